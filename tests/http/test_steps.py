"""The steps of a run in pages and one by one, and the run over time."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from holdfast.views import timeline
from tests.http.conftest import Asker

pytestmark = pytest.mark.anyio

LOOP = {
    "name": "loop",
    "inputs": {"items": {"type": "array"}},
    "steps": [
        {"id": "before", "tool": "add", "args": {"a": 1, "b": 2}},
        {
            "id": "loop",
            "kind": "foreach",
            "items": "$.inputs.items",
            "on_any_fail": "continue",
            "steps": [{"id": "s", "tool": "add", "args": {"a": "{{item}}", "b": 1}}],
        },
        {"id": "ask", "kind": "approve", "prompt": "Go?"},
    ],
}
RETRIED = {
    "name": "retried",
    "steps": [
        {
            "id": "s",
            "tool": "fail",
            "args": {"n": 7},
            "retry": {"max_attempts": 2, "initial_delay_ms": 1},
        }
    ],
}


async def waiting(ask: Asker, items: list[Any]) -> str:
    """A run that has looped over some items and waits for an approval."""
    run_id = await ask.start(spec=LOOP, inputs={"items": items})
    async with ask.session.get(f"{ask.serving.address}/api/v1/runs/{run_id}/events") as stream:
        await stream.content.readuntil(b"approve_requested")
    return run_id


async def steps(ask: Asker, run_id: str, query: str = "") -> list[Any]:
    answer = await ask("GET", f"/api/v1/runs/{run_id}/steps?{query}")
    assert answer.status == 200, answer.body
    return list(answer.body["items"])


async def test_steps_are_found_by_where_they_stand_their_state_and_their_kind(ask: Asker) -> None:
    run_id = await waiting(ask, [1, "x", 3])

    async def paths(query: str) -> list[str]:
        return [step["path"] for step in await steps(ask, run_id, query)]

    assert await paths("") == ["before", "loop", "loop[1].s", "ask"]
    assert await paths("under=loop") == ["loop[0].s", "loop[1].s", "loop[2].s"]
    assert await paths("under=" + quote("loop[2]")) == ["loop[2].s"]
    assert await paths("status=failed,waiting") == ["loop[1].s", "ask"]
    assert await paths("status=failed&status=waiting") == ["loop[1].s", "ask"]
    assert await paths("kind=approve") == ["ask"]
    assert await paths("kind=tool&status=completed&under=loop") == ["loop[0].s", "loop[2].s"]


async def test_pages_of_a_filter_follow_each_other(ask: Asker) -> None:
    run_id = await waiting(ask, [1, 2, 3, 4, 5])
    first = (await ask("GET", f"/api/v1/runs/{run_id}/steps?under=loop&limit=2")).body
    rest = (await ask("GET", f"/api/v1/runs/{run_id}/steps?under=loop&cursor={first['cursor']}")).body
    assert [step["path"] for step in first["items"] + rest["items"]] == [f"loop[{i}].s" for i in range(5)]
    assert rest["cursor"] is None


async def test_a_page_says_its_row_and_an_open_run_is_read_on(ask: Asker) -> None:
    run_id = await waiting(ask, [1])
    before = (await ask("GET", f"/api/v1/runs/{run_id}/steps")).body["seq"]
    assert before == (await ask("GET", f"/api/v1/runs/{run_id}")).body["seq"]
    await ask("POST", f"/api/v1/runs/{run_id}/approvals/ask", {"approved": True})
    after = (await ask("GET", f"/api/v1/runs/{run_id}/steps?status=completed")).body
    assert after["seq"] == before + 1
    assert [step["path"] for step in after["items"]] == ["before", "loop", "loop[0].s", "ask"]


@pytest.mark.parametrize("values", ["all", "head", "none"])
async def test_of_values_only_as_much_is_sent_as_is_wanted(ask: Asker, values: str) -> None:
    text = "x" * 5_000
    spec = {
        "name": "large",
        "inputs": {"t": {"type": "string"}},
        "steps": [{"id": "b", "kind": "wait_event", "signal_key": "k"}],
        "output": "{{inputs.t}}",
    }
    run_id = await ask.start(spec=spec, inputs={"t": text})
    await ask("POST", f"/api/v1/runs/{run_id}/signals", {"key": "k", "value": text})
    async with ask.session.get(f"{ask.serving.address}/api/v1/runs/{run_id}/events") as stream:
        await stream.content.readuntil(b"workflow_terminal")
    run = (await ask("GET", f"/api/v1/runs/{run_id}?values={values}")).body
    (step,) = await steps(ask, run_id, f"values={values}")
    if values == "all":
        assert (run["inputs"], run["output"], step["output"]) == ({"t": text}, text, text)
        assert run["heads"] == step["heads"] == {}
        return
    assert (run["inputs"], run["output"], step["output"]) == (None, None, None)
    if values == "head":
        assert run["heads"]["output"] == {"text": '"' + text[:2_047], "bytes": 5_002}
        assert step["heads"]["output"] == run["heads"]["output"]
        assert run["heads"]["inputs"]["bytes"] == len(text) + 8
    else:
        assert run["heads"] == step["heads"] == {}


async def test_one_step_shows_its_attempts_and_what_it_was_called_with(ask: Asker) -> None:
    run = await ask.done(spec=RETRIED)
    found = (await ask("GET", f"/api/v1/runs/{run['run_id']}/steps/s")).body
    assert (found["status"], found["kind"], found["attempts"]) == ("failed", "tool", 2)
    assert found["input"] == {"n": 7}
    assert [(one["n"], one["outcome"]) for one in found["tries"]] == [(1, "failed"), (2, "failed")]
    first, second = found["tries"]
    assert first["from"] <= first["to"] <= first["retry_at"] <= second["from"] <= second["to"]
    assert first["error"]["kind"] == found["error"]["kind"]
    assert second["retry_at"] is None
    assert second["job_id"] == found["job_id"] != first["job_id"]


async def test_one_step_shows_what_it_waited_for(ask: Asker) -> None:
    run_id = await waiting(ask, [])
    found = (await ask("GET", f"/api/v1/runs/{run_id}/steps/ask")).body
    assert [(one["kind"], one["to"]) for one in found["waits"]] == [("approval", None)]
    await ask("POST", f"/api/v1/runs/{run_id}/approvals/ask", {"approved": True})
    found = (await ask("GET", f"/api/v1/runs/{run_id}/steps/ask")).body
    assert found["waits"][0]["to"] == found["finished_at"]


@pytest.mark.parametrize("path", ["nothing", "loop[9].s", "%E2%82%AC", "loop"])
async def test_a_step_that_was_not_reached_is_not_found(ask: Asker, path: str) -> None:
    run = await ask.done(workflow="sum", inputs={"a": 1})
    answer = await ask("GET", f"/api/v1/runs/{run['run_id']}/steps/{path}")
    assert (answer.status, answer.code) == (404, "not_found")
    for query in (f"steps?under={path}", f"timeline?under={path}"):
        assert (await ask("GET", f"/api/v1/runs/{run['run_id']}/{query}")).status == 404


async def test_a_timeline_has_a_row_for_each_step_in_reading_order(ask: Asker) -> None:
    run_id = await waiting(ask, [1, "x"])
    found = (await ask("GET", f"/api/v1/runs/{run_id}/timeline")).body
    rows = [(row["path"], row["depth"], [span["kind"] for span in row["spans"]]) for row in found["rows"]]
    assert rows == [
        ("before", 0, ["try"]),
        ("loop", 0, []),
        ("loop[0].s", 1, ["try"]),
        ("loop[1].s", 1, ["try"]),
        ("ask", 0, ["wait"]),
    ]
    assert found["rows"][-1]["spans"][0]["outcome"] == "approval"
    assert (found["status"], found["more"], found["rows"][-1]["to"]) == ("waiting", 0, None)
    inside = (await ask("GET", f"/api/v1/runs/{run_id}/timeline?under=" + quote("loop[1]"))).body
    assert [row["path"] for row in inside["rows"]] == ["loop[1].s"]


async def test_a_timeline_of_too_many_steps_leaves_out_completed_ones(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await waiting(ask, [1, "x", 3])
    whole = (await ask("GET", f"/api/v1/runs/{run_id}/timeline")).body
    monkeypatch.setattr(timeline, "ROWS_MAX", 3)
    found = (await ask("GET", f"/api/v1/runs/{run_id}/timeline?buckets=9")).body
    assert [row["path"] for row in found["rows"]] == ["before", "loop[1].s", "ask"]
    assert found["more"] == len(whole["rows"]) - 3
    assert found["from"] == whole["from"]


async def test_waiting_for_a_worker_is_an_interval_of_the_timeline(ask: Asker) -> None:
    spec = {"name": "adds", "start": "sum", "nodes": {"sum": {"kind": "executor", "service": "adding"}}}
    run_id = await ask.start(spec=spec)
    async with asyncio.timeout(60):
        while (await ask("GET", f"/api/v1/runs/{run_id}")).body["status"] != "waiting":
            await asyncio.sleep(0.01)
    (row,) = (await ask("GET", f"/api/v1/runs/{run_id}/timeline")).body["rows"]
    spans = [(span["kind"], span["outcome"], span["to"] is None) for span in row["spans"]]
    assert spans == [("try", "released", False), ("wait", "no_worker", True)]


async def test_a_large_fan_out_is_one_row_that_counts_its_children(ask: Asker) -> None:
    run_id = await waiting(ask, [*range(59), "x"])
    found = (await ask("GET", f"/api/v1/runs/{run_id}/timeline?buckets=7")).body
    assert [row["path"] for row in found["rows"]] == ["before", "loop", "ask"]
    loop = found["rows"][1]
    assert (loop["children"], loop["done"], loop["failed"]) == (60, 60, 1)
    strip = loop["strip"]
    assert {len(strip[name]) for name in ("started", "completed", "failed", "cancelled")} == {7}
    assert [sum(strip[name]) for name in ("started", "completed", "failed", "cancelled")] == [60, 59, 1, 0]
    assert strip["failed_items"] == [59]


@pytest.mark.parametrize("query", ["buckets=0", "buckets=201", "buckets=x", "under=", "fold=1"])
async def test_a_wrong_question_about_a_timeline_is_refused(ask: Asker, query: str) -> None:
    run = await ask.done(workflow="sum", inputs={"a": 1})
    assert (await ask("GET", f"/api/v1/runs/{run['run_id']}/timeline?{query}")).status == 400
