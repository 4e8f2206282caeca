"""`/api/v1/schedules` at a real server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import msgspec
import pytest

from holdfast.config import Settings
from holdfast.http.serve import serving
from tests.http.conftest import Answer, Asker

pytestmark = pytest.mark.anyio

BASE = "/api/v1/schedules"
# Nothing of it is due while a test runs.
FAR = {"kind": "cron", "expression": "0 30 2 29 2 * 2096", "timezone": "Europe/Berlin"}
NIGHTLY: dict[str, Any] = {"workflow": "sum", "trigger": FAR, "inputs": {"a": 1}}
PAST: dict[str, Any] = {**NIGHTLY, "trigger": {"kind": "cron", "expression": "0 0 3 * * *"}}


async def put(ask: Asker, name: str = "nightly", **keys: Any) -> dict[str, Any]:
    answer = await ask("PUT", f"{BASE}/{name}", {**NIGHTLY, **keys})
    assert answer.status in (200, 201), answer.body
    return dict(answer.body)


async def post(ask: Asker, what: str, body: Any = None, **rest: Any) -> Answer:
    return await ask("POST", f"{BASE}/nightly/{what}", body, **rest)


# ------------------------------------------------------------------------------------------------- definitions


async def test_a_schedule_is_created_then_replaced(ask: Asker) -> None:
    assert (await ask("PUT", f"{BASE}/nightly", NIGHTLY)).status == 201
    answer = await ask("PUT", f"{BASE}/nightly", {**NIGHTLY, "max_concurrent": 3})
    assert (answer.status, answer.body["definition"]["max_concurrent"]) == (200, 3)
    assert (answer.body["origin"], answer.body["status"], answer.body["next_at"]) == (
        "api",
        "active",
        "2096-02-29T01:30:00.000Z",
    )


async def test_a_schedule_may_be_sent_as_yaml(ask: Asker) -> None:
    text = "workflow: sum\ntrigger: {kind: interval, every: 366d}\n"
    headers = {"content-type": "application/yaml"}
    answer = await ask("PUT", f"{BASE}/nightly", data=text.encode(), headers=headers)
    assert (answer.status, answer.body["kind"]) == (201, "interval")


@pytest.mark.parametrize(
    ("change", "code", "hint"),
    [
        ({"trigger": {**FAR, "expression": "0 3 * * *"}}, "wrong_field_count", '"0 0 3 * * *"'),
        ({"trigger": {**FAR, "jitter_sec": 5}}, "unknown_key", "did you mean jitter_secs?"),
        ({"trigger": {**FAR, "timezone": "utc"}}, "unknown_timezone", "did you mean UTC?"),
        ({"overlap": "allow", "max_concurrent": 2}, "exclusive_keys", "leave one of them out"),
        ({"trigger": {"kind": "webhook", "path": "/api/x"}}, "invalid_path", "/hooks/upload"),
        ({"id": "another"}, "misplaced_key", "leave the id out"),
        ({"schedules": []}, "unknown_key", ""),
    ],
)
async def test_a_mistake_is_reported_with_its_place_and_changes_nothing(
    ask: Asker, change: dict[str, Any], code: str, hint: str
) -> None:
    answer = await ask("PUT", f"{BASE}/nightly", {**NIGHTLY, **change})
    assert (answer.status, answer.code) == (422, "invalid_spec")
    (problem,) = answer.body["details"]
    assert (problem["code"], hint in problem.get("hint", ""), problem["line"]) == (code, True, 1)
    assert (await ask("GET", f"{BASE}/nightly")).status == 404


@pytest.mark.parametrize("body", ["[]", "5", "{", '{"a": 1, "a": 2}'])
async def test_a_body_that_is_no_object_is_refused(ask: Asker, body: str) -> None:
    headers = {"content-type": "application/json"}
    answer = await ask("PUT", f"{BASE}/nightly", data=body.encode(), headers=headers)
    assert (answer.status, answer.code) == (400, "invalid_request")


async def test_an_edit_keeps_how_far_a_schedule_has_come(ask: Asker) -> None:
    await put(ask)
    await post(ask, "fire")
    edited = await put(ask, max_concurrent=5)
    assert len((await ask("GET", f"{BASE}/nightly/ledger")).body["items"]) == 1
    assert edited["created_at"] != "" and edited["status"] == "active"


async def test_a_deleted_schedule_is_gone_and_its_ledger_stays(ask: Asker) -> None:
    await put(ask)
    await post(ask, "fire")
    assert (await ask("DELETE", f"{BASE}/nightly")).body["id"] == "nightly"
    assert (await ask("GET", f"{BASE}/nightly")).status == 404
    (row,) = (await ask("GET", f"{BASE}/nightly/ledger")).body["items"]
    assert row["outcome"] == "fired"
    assert (await ask("GET", f"{BASE}/nightly/why")).body["status"] == "deleted"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("DELETE", ""),
        ("GET", "/ledger"),
        ("GET", "/next"),
        ("GET", "/why"),
        ("POST", "/fire"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/backfill"),
    ],
)
async def test_an_unknown_schedule_is_not_found(ask: Asker, method: str, path: str) -> None:
    body = {"from": "2026-01-01", "to": "2026-01-02"} if path == "/backfill" else None
    answer = await ask(method, f"{BASE}/nothing{path}", body)
    assert (answer.status, answer.code) == (404, "not_found")


async def test_schedules_are_listed_page_by_page(ask: Asker) -> None:
    for name in ("b", "a", "c"):
        await put(ask, name)
    first = (await ask("GET", f"{BASE}?limit=2")).body
    second = (await ask("GET", f"{BASE}?limit=2&cursor={first['cursor']}")).body
    assert [one["id"] for one in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["cursor"] is None


# ------------------------------------------------------------------------------------------------ what can be done


async def test_a_schedule_fires_on_request(ask: Asker) -> None:
    await put(ask, inputs={"a": "{{trigger.payload.n}}"})
    answer = await post(ask, "fire", {"payload": {"n": 40}})
    assert answer.status == 202
    run = await ended(ask, answer.body["run_id"])
    assert (run["status"], run["output"]) == ("completed", 42)
    (row,) = (await ask("GET", f"{BASE}/nightly/ledger")).body["items"]
    assert (row["run_id"], row["occurrence"], row["reason"]) == (
        answer.body["run_id"],
        answer.body["occurrence"],
        "manual",
    )


async def test_the_same_key_fires_once(ask: Asker) -> None:
    await put(ask)
    headers = {"Idempotency-Key": "once"}
    first, second = [await post(ask, "fire", {}, headers=headers) for _ in range(2)]
    assert first.body == second.body
    assert len((await ask("GET", f"{BASE}/nightly/ledger")).body["items"]) == 1
    assert (await post(ask, "fire", {"payload": 1}, headers=headers)).code == "request_conflict"


async def test_a_fire_at_the_limit_is_refused(ask: Asker) -> None:
    await put(ask, workflow="held", inputs={})
    assert (await post(ask, "fire")).status == 202
    answer = await post(ask, "fire")
    assert (answer.status, answer.code) == (429, "max_concurrent_exceeded")


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"workflow": "nothing"}, 404, "not_found"),
        ({"inputs": {"b": 1}}, 422, "invalid_inputs"),
        ({"inputs": {"a": "{{trigger.payload.n}}"}, "strict_templates": True}, 422, "unresolved_template"),
    ],
)
async def test_a_fire_that_cannot_start_a_run_says_why(
    ask: Asker, change: dict[str, Any], status: int, code: str
) -> None:
    await put(ask, **change)
    answer = await post(ask, "fire")
    assert (answer.status, answer.code) == (status, code)


async def test_a_paused_schedule_is_shown_as_such_until_it_is_resumed(ask: Asker) -> None:
    await put(ask)
    paused = (await post(ask, "pause")).body
    assert (paused["status"], paused["next_at"], paused["paused_since"] is None) == ("paused", None, False)
    (found,) = (await ask("GET", f"{BASE}/nightly/why?when=2096-02-29")).body["items"]
    assert (found["outcome"], found["reason"]) == ("will_not_fire", "paused")
    resumed = (await post(ask, "resume", {"missed": True})).body
    assert (resumed["status"], resumed["paused_since"]) == ("active", None)


async def test_a_backfill_starts_what_has_no_run_and_can_be_repeated(ask: Asker) -> None:
    await put(ask, **PAST, max_concurrent=0)
    wanted = {"from": "2026-03-01", "to": "2026-03-03"}
    preview = await post(ask, "backfill", {**wanted, "preview": True})
    assert (preview.status, preview.body) == (
        200,
        {
            "preview": True,
            "count": 3,
            "settled": 0,
            "items": [f"2026-03-0{day}T03:00:00.000Z" for day in (1, 2, 3)],
        },
    )
    assert (await ask("GET", f"{BASE}/nightly/ledger")).body["items"] == []
    started = await post(ask, "backfill", wanted)
    assert (started.status, started.body["count"]) == (202, 3)
    rows = await fired(ask, 3)
    assert [row["occurrence"] for row in reversed(rows)] == preview.body["items"]
    again = await post(ask, "backfill", {**wanted, "to": "2026-03-04"})
    assert (again.body["count"], again.body["settled"]) == (1, 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"from": "soon"}, "from is a date or a time"),
        ({"to": "2026-02-30"}, "to is a date or a time"),
        ({"from": "2026-03-05"}, "is after to"),
    ],
)
async def test_a_backfill_between_no_times_is_refused(
    ask: Asker, change: dict[str, str], message: str
) -> None:
    await put(ask)
    answer = await post(ask, "backfill", {"from": "2026-03-01", "to": "2026-03-03", **change})
    assert (answer.status, answer.code, message in answer.body["message"]) == (422, "invalid_inputs", True)


@pytest.mark.parametrize("rate", [0, -1, 1_001, "1"])
async def test_a_rate_out_of_range_is_refused(ask: Asker, rate: Any) -> None:
    await put(ask)
    wanted = {"from": "2026-03-01", "to": "2026-03-03", "max_per_sec": rate}
    answer = await post(ask, "backfill", wanted)
    assert (answer.status, answer.code) == (400, "invalid_request")


# ------------------------------------------------------------------------------------------------------- reading


async def test_the_next_fires_are_shown_in_both_zones(ask: Asker) -> None:
    await put(ask)
    found = (await ask("GET", f"{BASE}/nightly/next?limit=3")).body
    assert (found["timezone"], found["never_fires"]) == ("Europe/Berlin", False)
    (fire,) = found["items"]
    assert (fire["at"], fire["local"]) == ("2096-02-29T01:30:00.000Z", "2096-02-29T02:30:00+01:00")


async def test_a_schedule_that_never_fires_is_accepted_and_noted(ask: Asker) -> None:
    made = await put(ask, trigger={"kind": "cron", "expression": "0 0 0 30 2 *"})
    assert (made["status"], [note["code"] for note in made["notes"]]) == ("ended", ["never_fires"])
    assert (await ask("GET", f"{BASE}/nightly/next")).body["never_fires"] is True


async def test_a_schedule_whose_workflow_is_not_published_is_accepted_and_noted(ask: Asker) -> None:
    made = await put(ask, workflow="summ")
    (note,) = made["notes"]
    assert (note["code"], note["pointer"], note["hint"]) == (
        "unknown_workflow",
        "/workflow",
        "did you mean sum?",
    )
    assert (await put(ask))["notes"] == []


async def test_the_ledger_is_read_page_by_page(ask: Asker) -> None:
    await put(ask, **PAST, max_concurrent=0)
    await post(ask, "backfill", {"from": "2026-03-01", "to": "2026-03-03"})
    await fired(ask, 3)
    first = (await ask("GET", f"{BASE}/nightly/ledger?limit=2")).body
    second = (await ask("GET", f"{BASE}/nightly/ledger?limit=2&cursor={first['cursor']}")).body
    assert [len(first["items"]), len(second["items"]), second["cursor"]] == [2, 1, None]
    assert (await ask("GET", f"{BASE}/nightly/ledger?unfired=true")).body["items"] == []


@pytest.mark.parametrize("query", ["ledger?cursor=x", "why?when=yesterday"])
async def test_a_query_that_names_nothing_is_refused(ask: Asker, query: str) -> None:
    await put(ask)
    answer = await ask("GET", f"{BASE}/nightly/{query}")
    assert (answer.status, answer.code) == (422, "invalid_inputs")


async def ended(ask: Asker, run_id: str) -> dict[str, Any]:
    await ask.serving.services.queries.wait_for("default", run_id, 60)
    return dict((await ask("GET", f"/api/v1/runs/{run_id}")).body)


async def fired(ask: Asker, count: int) -> list[dict[str, Any]]:
    """The ledger, once so many occurrences have fired."""
    async with asyncio.timeout(60):
        while len(rows := (await ask("GET", f"{BASE}/nightly/ledger")).body["items"]) < count:
            await asyncio.sleep(0.01)
    return list(rows)


# --------------------------------------------------------------------------------------------- files, guarded servers


@pytest.fixture
async def with_files(settings: Settings, tmp_path: Path) -> AsyncIterator[Asker]:
    """A server with a folder of schedules, in which `nightly` is defined."""
    folder = tmp_path / "schedules"
    folder.mkdir()
    data = {"schedules": [{"id": "nightly", **NIGHTLY}]}
    (folder / "a.schedules.yaml").write_bytes(msgspec.json.encode(data))
    settings = msgspec.structs.replace(settings, schedules=str(folder))
    async with serving(settings) as server, aiohttp.ClientSession() as session:
        yield Asker(server, session, None)  # type: ignore[arg-type]


async def test_a_schedule_of_a_file_can_be_operated_but_not_changed(with_files: Asker) -> None:
    ask = with_files
    for method, body in (("PUT", NIGHTLY), ("DELETE", None)):
        answer = await ask(method, f"{BASE}/nightly", body)
        assert (answer.status, answer.code) == (409, "managed_by_file")
        assert "a.schedules.yaml" in answer.body["message"]
    assert (await post(ask, "pause")).body["status"] == "paused"
    assert (await post(ask, "resume")).body["status"] == "active"
    found = (await ask("GET", f"{BASE}/nightly")).body
    assert (found["origin"], found["source"].endswith("a.schedules.yaml")) == ("file", True)


async def test_the_state_of_the_folder_is_reported(with_files: Asker, tmp_path: Path) -> None:
    report = (await with_files("GET", "/api/v1/folder?of=schedules")).body
    assert ([one["status"] for one in report["items"]], report["problem"]) == (["published"], "")


async def test_what_files_left_behind_can_be_deleted_without_a_folder(
    with_files: Asker, settings: Settings
) -> None:
    store = with_files.serving.services
    assert (await store.schedules.schedule("default", "nightly")).row.origin == "file"
    store.schedule_commands.has_files = False  # as after a start without --schedules
    assert (await with_files("DELETE", f"{BASE}/nightly")).status == 200


async def test_a_schedule_whose_file_is_gone_does_not_fire_at_the_next_start(
    settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "schedules"
    folder.mkdir()
    trigger = {"kind": "interval", "every": "100ms"}
    data = {"schedules": [{"id": "nightly", "workflow": "sum", "inputs": {"a": 1}, "trigger": trigger}]}
    (folder / "schedules.yaml").write_bytes(msgspec.json.encode(data))
    settings = msgspec.structs.replace(settings, schedules=str(folder))

    async with serving(settings) as server, aiohttp.ClientSession() as session:
        await fired(Asker(server, session, None), 1)  # type: ignore[arg-type]
    before = decided(settings)
    (folder / "schedules.yaml").unlink()
    async with serving(settings):
        pass
    assert decided(settings) == before


def decided(settings: Settings) -> int:
    """How many occurrences of a database have fired or failed."""
    db = apsw.Connection(settings.db.removeprefix("sqlite:///"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(db.execute("SELECT count(*) FROM ledger WHERE outcome IN ('fired', 'failed')").get)
    finally:
        db.close()


@pytest.mark.parametrize(
    "trigger",
    [{"kind": "file", "path": "/etc"}, {"kind": "source", "source": "os:popen"}],
    ids=["file", "source"],
)
async def test_a_trigger_that_reaches_files_or_code_is_refused_by_a_guarded_server(
    settings: Settings, trigger: dict[str, Any]
) -> None:
    key = "a-key-that-is-long-enough"
    async with (
        serving(msgspec.structs.replace(settings, key=key)) as server,
        aiohttp.ClientSession() as session,
    ):
        ask = Asker(server, session, None)  # type: ignore[arg-type]
        given = {"workflow": "sum", "trigger": trigger}
        answer = await ask("PUT", f"{BASE}/a", given, headers={"authorization": f"Bearer {key}"})
        assert (answer.status, [one["code"] for one in answer.body["details"]]) == (422, ["operators_only"])


async def test_an_unsigned_webhook_is_refused_by_a_guarded_server(settings: Settings) -> None:
    key = "a-key-that-is-long-enough"
    guarded = msgspec.structs.replace(settings, key=key)
    hook = {"workflow": "sum", "trigger": {"kind": "webhook", "path": "/hooks/a"}}
    async with serving(guarded) as server, aiohttp.ClientSession() as session:
        ask = Asker(server, session, None)  # type: ignore[arg-type]
        headers = {"authorization": f"Bearer {key}"}
        answer = await ask("PUT", f"{BASE}/hook", hook, headers=headers)
        assert (answer.status, [one["code"] for one in answer.body["details"]]) == (422, ["unsigned_webhook"])
        allowed = await ask("PUT", f"{BASE}/hook", {**hook, "allow_unsigned": True}, headers=headers)
        assert allowed.status == 201
