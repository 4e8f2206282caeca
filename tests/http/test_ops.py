"""What those see who look after the server: alive, ready, counted, and a log line for each request."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast import ToolError, tool
from holdfast.deliveries import destinations
from holdfast.http.auth import ANONYMOUS
from holdfast.http.routes import ops
from holdfast.http.table import Ask
from holdfast.ops import health, metrics
from holdfast.store.batch import Batch
from holdfast.store.records import RunChange
from holdfast.values import Millis, RunNo
from tests.http.conftest import Asker
from tests.http.sse import listening
from tests.runtime.receiver import receiving
from tests.small_limits import with_limits

pytestmark = pytest.mark.anyio


async def counts(ask: Asker) -> dict[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels."""
    answer = await ask("GET", "/metrics")
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


# --------------------------------------------------------------------------------------------- alive and ready


async def test_a_process_that_answers_is_alive(ask: Asker) -> None:
    answer = await ask("GET", "/healthz")
    assert (answer.status, answer.body) == (200, {"status": "ok"})


async def test_a_server_that_can_write_is_ready(ask: Asker) -> None:
    answer = await ask("GET", "/readyz")
    assert (answer.status, answer.body) == (200, {"ready": True, "reasons": []})


async def test_an_engine_that_cannot_write_is_not_ready(ask: Asker) -> None:
    ask.serving.services.engine.committer.is_stalled = True
    answer = await ask("GET", "/readyz")
    ask.serving.services.engine.committer.is_stalled = False
    assert (answer.status, answer.body) == (503, {"ready": False, "reasons": ["store_stalled"]})


async def test_an_idle_engine_finds_out_that_its_store_cannot_write(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PROBED_SECS", 0.0)
    store: Any = ask.serving.services.engine.store
    store._write.pragma("query_only", True)
    answer = await ask("GET", "/readyz")
    store._write.pragma("query_only", False)
    assert (answer.status, answer.body["reasons"]) == (503, ["store_unavailable"])
    while ask.serving.services.engine.committer.is_stalled:  # until its probe has written
        await asyncio.sleep(0.01)
    assert (await ask("GET", "/readyz")).status == 200


async def test_a_server_without_room_on_its_disk_is_not_ready(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = ask.serving.services.engine.store.free_bytes()
    monkeypatch.setattr(health, "FREE_BYTES_MIN", 2 * free)
    answer = await ask("GET", "/readyz")
    assert (answer.status, answer.body["reasons"]) == (503, ["disk_full"])
    monkeypatch.setattr(health, "FREE_BYTES_MIN", 1)
    assert (await ask("GET", "/readyz")).status == 200


async def test_a_client_that_asks_all_the_time_makes_no_commits(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, probes = ask.serving.services.engine.store, 0
    submit = store.submit

    def counted(batch: Batch, done: Any) -> None:
        nonlocal probes
        probes += batch.is_probe
        submit(batch, done)

    monkeypatch.setattr(store, "submit", counted)
    monkeypatch.setattr(health, "PROBED_SECS", 3_600.0)  # however long those twenty take here
    for _ in range(20):
        assert (await ask("GET", "/readyz")).status == 200
    assert probes == 1


async def test_a_server_that_leaves_is_not_ready(ask: Asker) -> None:
    leaving = asyncio.Event()
    leaving.set()
    asked = Ask(ask.serving.services, ANONYMOUS, {}, None, None, b"", {}, "", leaving)
    answer = await ops.readyz(asked)
    assert (answer.status, answer.value.reasons) == (503, ["draining"])


# ------------------------------------------------------------------------------------------------------ counts


async def test_runs_steps_and_commits_are_counted(ask: Asker) -> None:
    for _ in range(3):
        await ask.done(workflow="sum", inputs={"a": 1})
    found = await counts(ask)
    assert found["holdfast_runs_started_total", "sum"] == 3
    assert found["holdfast_runs_finished_total", "completed", "sum"] == 3
    assert found["holdfast_attempts_finished_total", "succeeded"] == 3
    assert found["holdfast_journal_rows_total", "run_started"] == 3
    assert found["holdfast_runs", "completed"] == 3
    for name in ("step", "run", "first_step"):
        assert found[f"holdfast_{name}_seconds_count",] == 3
        assert found[f"holdfast_{name}_seconds_bucket", "+Inf"] == 3
    assert found["holdfast_commit_rows_sum",] == 6
    assert found["holdfast_commit_seconds_count",] == found["holdfast_commit_rows_count",] > 0


async def test_what_is_open_is_shown_as_it_is_now(ask: Asker) -> None:
    await ask.start(workflow="held")
    await ask.holds.began.wait()
    async with listening(ask.session, f"{ask.serving.address}/api/v1/events") as reader:
        await reader.response.content.readuntil(b"\n\n")
        found = await counts(ask)
    assert found["holdfast_runs", "running"] == 1
    assert found["holdfast_attempts_open",] == found["holdfast_runs_in_memory",] == 1
    assert found["holdfast_event_streams",] == 1
    assert found["holdfast_feed_lag_rows",] == 0
    assert found["holdfast_workers_online",] == found["holdfast_assignments_open",] == 0
    assert found["holdfast_database_bytes", "database"] > 0
    assert found["holdfast_starts_waiting", "place"] == 0
    assert found["holdfast_orphan_runs",] == 0
    ask.holds.free.set()


async def test_failures_are_counted_apart(ask: Asker) -> None:
    @tool
    async def refuse() -> None:
        raise ToolError("no")

    ask.serving.services.engine.registry.add(refuse)
    await ask.done(spec={"name": "fails", "steps": [{"id": "f", "tool": "refuse"}]})
    found = await counts(ask)
    assert found["holdfast_attempts_finished_total", "failed"] == 1
    assert found["holdfast_runs_finished_total", "failed", "fails"] == 1


async def test_requests_are_counted_by_the_template_of_their_route(ask: Asker) -> None:
    for name in ("a", "b"):
        await ask("GET", f"/api/v1/runs/{name}")
    await ask("GET", "/nowhere/at/all")
    await ask("GET", "/nothing\nholdfast_orphan_runs 7")
    found = await counts(ask)
    assert found["holdfast_http_request_seconds_count", "GET", "/api/v1/runs/{id}", "404"] == 2
    assert found["holdfast_http_request_seconds_count", "other", "", "404"] == 2
    assert found["holdfast_orphan_runs",] == 0


async def test_there_are_only_so_many_labels_whatever_workflows_are_called(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, metrics_workflows_max=2)
    for name in ("one", "two", "three", "four"):
        spec = {"name": name, "steps": [{"id": "s", "tool": "add", "args": {"a": 1, "b": 1}}]}
        await ask.done(spec=spec)
    found = await counts(ask)
    started = {key[1]: count for key, count in found.items() if key[0] == "holdfast_runs_started_total"}
    assert started == {"one": 1, "two": 1, "other": 2}


@pytest.mark.parametrize("name", ["a\nb", "\x1b[31m", "x" * 101, "\u2028"])
def test_text_that_could_break_a_line_becomes_no_label(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = metrics.Metrics.__new__(metrics.Metrics)
    counted._workflows = set()
    assert counted._label(name) == "other"
    assert counted._workflows == set()


async def test_a_run_that_nothing_will_ever_move_is_an_orphan(ask: Asker) -> None:
    services = ask.serving.services
    run_id = await ask.start(workflow="held")
    await ask.holds.began.wait()
    row = await services.engine.store.run_by_id("default", run_id)  # type: ignore[arg-type]
    assert row is not None
    batch = Batch()
    batch.changes[row.no] = RunChange("waiting", False, row.epoch, None)
    await services.engine.gate.commit(batch)
    assert (await counts(ask))["holdfast_orphan_runs",] == 1
    batch = Batch()
    batch.changes[row.no] = RunChange("running", True, row.epoch, None)
    await services.engine.gate.commit(batch)
    assert (await counts(ask))["holdfast_orphan_runs",] == 0
    resident = services.engine.door.residents.pop(row.no)
    assert (await counts(ask))["holdfast_orphan_runs",] == 1
    services.engine.door.residents[row.no] = resident
    ask.holds.free.set()


async def test_looking_for_orphans_goes_on_where_it_stopped(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "LOOKED_AT_MAX", 2)
    engine = ask.serving.services.engine
    asked: list[int] = []

    async def resting(after: RunNo, limit: int) -> list[tuple[RunNo, bool]]:
        asked.append(after)
        return [(RunNo(no), no != 5) for no in range(after + 1, 6)][:limit]

    monkeypatch.setattr(engine.store, "resting_runs", resting)
    orphans = metrics.Orphans(engine.store, engine.door, engine.wakes)
    assert [await orphans.count() for _ in range(5)] == [0, 0, 1, 1, 1]
    assert asked == [0, 2, 4, 0, 2]


async def test_a_run_that_was_due_long_ago_shows(ask: Asker) -> None:
    store = ask.serving.services.engine.store
    now = ask.serving.services.clock.now()

    async def next_wake(after: int = 0) -> Millis | None:
        return Millis(now - 90_000)

    store.next_wake = next_wake  # type: ignore[method-assign]
    assert (await counts(ask))["holdfast_overdue_seconds",] >= 90


# -------------------------------------------------------------------------------------------------------- logs


async def test_each_request_has_a_line_that_says_what_came_of_it(
    ask: Asker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "holdfast.http"):
        answer = await ask("GET", "/api/v1/runs/none%0Asuch", headers={"X-Request-Id": "mine-1"})
    assert answer.headers["x-request-id"] == "mine-1"
    (record,) = [one for one in caplog.records if hasattr(one, "request")]
    said = record.__dict__["request"]
    assert {name: said[name] for name in ("request_id", "method", "route", "status", "key")} == {
        "request_id": "mine-1",
        "method": "GET",
        "route": "/api/v1/runs/{id}",
        "status": 404,
        "key": "local",
    }
    assert said["ms"] > 0
    assert "such" not in record.getMessage()


@pytest.mark.parametrize("given", ["a b", "x" * 65, "ü", 'quote"'])
async def test_an_id_that_may_not_stand_in_a_log_is_replaced(ask: Asker, given: str) -> None:
    answer = await ask("GET", "/healthz", headers={"X-Request-Id": given})
    assert len(answer.headers["x-request-id"]) == 16


async def test_probes_that_go_well_are_not_worth_a_line(ask: Asker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast.http"):
        await ask("GET", "/healthz")
    assert not [one for one in caplog.records if hasattr(one, "request")]


# ------------------------------------------------------------------------------------------------- waits, deliveries


async def test_waits_are_counted_by_kind_and_by_what_ended_them(ask: Asker) -> None:
    gate = {"id": "gate", "kind": "approve", "prompt": "Sure?"}
    signal = {"id": "go", "kind": "wait_event", "signal_key": "go"}
    denied, said, _ = [
        await ask.start(spec={"name": "n", "steps": [step]}) for step in (gate, signal, signal)
    ]
    await waiting(ask, 3)
    await ask("POST", f"/api/v1/runs/{denied}/approvals/gate", {"approved": False})
    await ask("POST", f"/api/v1/runs/{said}/signals", {"key": "go"})
    found = await counts(ask)
    assert (found["holdfast_waits_open", "signal"], found["holdfast_waits_open", "approval"]) == (1, 0)
    assert found["holdfast_waits_ended_total", "approval", "denied"] == 1
    assert found["holdfast_waits_ended_total", "signal", "answered"] == 1


async def waiting(ask: Asker, count: int) -> None:
    """Until so many runs wait."""
    async with asyncio.timeout(120):
        while (await counts(ask))["holdfast_runs", "waiting"] < count:
            await asyncio.sleep(0.005)


async def test_more_waits_than_are_looked_at_in_one_go_are_counted_over_several(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "LOOKED_AT_MAX", 2)
    signal = {"id": "go", "kind": "wait_event", "signal_key": "go"}
    for _ in range(5):
        await ask.start(spec={"name": "n", "steps": [signal]})
    await waiting(ask, 5)
    seen = [(await counts(ask))["holdfast_waits_open", "signal"] for _ in range(6)]
    assert seen[-3:] == [5, 5, 5]


async def test_deliveries_are_counted_by_what_became_of_them(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the one that failed is not tried again meanwhile
    monkeypatch.setattr(destinations, "DELAYS_SECS", (3_600,))
    with receiving() as receiver:
        receiver.statuses = [204, 503, 410]
        for _ in range(3):
            await ask.done(workflow="sum", inputs={"a": 1}, final_callback_url=receiver.url)
            await ask.serving.services.engine.outbox.rests()
        found = await counts(ask)
    assert found["holdfast_callback_deliveries_queued_total",] == 3
    outcomes = ("delivered", "failed", "dead", "replayed")
    assert [found["holdfast_callback_deliveries_tried_total", one] for one in outcomes] == [1, 1, 1, 0]
    assert (
        found["holdfast_callback_deliveries", "waiting"],
        found["holdfast_callback_deliveries", "dead"],
    ) == (1, 1)
