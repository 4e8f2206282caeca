"""How the last runs of a workflow went."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import ADD, Asker

pytestmark = pytest.mark.anyio

SPEC = {
    "name": "n",
    "inputs": {"a": {}},
    "steps": [
        {
            "id": "each",
            "kind": "foreach",
            "items": "$.inputs.a",
            "steps": [{"id": "s", "tool": "add", "args": {"a": "{{item}}", "b": 1}}],
        }
    ],
}


async def stats(ask: Asker, query: str = "") -> Any:
    return (await ask("GET", f"/api/v1/workflows/n/stats{query}")).body


async def run(ask: Asker, a: Any) -> None:
    await ask.done(workflow="n", inputs={"a": a})


async def test_the_share_of_successes_and_the_times_of_steps_are_those_of_the_last_runs(ask: Asker) -> None:
    await ask("POST", "/api/v1/workflows", SPEC)
    await run(ask, [1, 2, 3])
    await run(ask, ["x"])
    found = await stats(ask)
    assert (found["runs"], found["completed"], found["failed"], found["success"]) == (2, 1, 1, 0.5)
    assert 0 <= found["p50_ms"] <= found["p95_ms"]
    steps = {one["path"]: one for one in found["steps"]}
    assert (steps["each.s"]["runs"], steps["each.s"]["failed"], steps["each.s"]["kind"]) == (4, 1, "tool")
    assert steps["each"]["runs"] == 2
    assert steps["each.s"]["p50_ms"] <= steps["each.s"]["p95_ms"]


async def test_only_the_last_runs_are_counted_and_those_of_a_version_if_asked(ask: Asker) -> None:
    await ask("POST", "/api/v1/workflows", SPEC)
    await run(ask, ["x"])
    await ask("POST", "/api/v1/workflows", {**SPEC, "description": "the second"})
    await run(ask, [1])
    assert (await stats(ask, "?last=1"))["success"] == 1
    assert (await stats(ask, "?number=1"))["success"] == 0
    assert (await stats(ask, "?from=2100-01-01T00:00:00Z"))["runs"] == 0


async def test_a_workflow_without_finished_runs_has_no_figures(ask: Asker) -> None:
    await ask("POST", "/api/v1/workflows", {**ADD, "name": "n"})
    found = await stats(ask)
    assert (found["runs"], found["success"], found["p50_ms"], found["steps"], found["from"]) == (
        0,
        None,
        None,
        [],
        None,
    )


async def test_an_open_run_is_not_counted(ask: Asker) -> None:
    await ask(
        "POST", "/api/v1/workflows", {"name": "n", "steps": [{"id": "w", "kind": "approve", "prompt": "?"}]}
    )
    await ask.start(workflow="n")
    assert (await stats(ask))["runs"] == 0


@pytest.mark.parametrize("query", ["?last=0", "?last=501", "?number=0", "?from=monday", "?first=1"])
async def test_a_wrong_question_about_stats_is_refused(ask: Asker, query: str) -> None:
    await ask("POST", "/api/v1/workflows", SPEC)
    assert (await ask("GET", f"/api/v1/workflows/n/stats{query}")).status in (400, 422)


async def test_stats_of_an_unknown_workflow_are_not_found(ask: Asker) -> None:
    assert (await ask("GET", "/api/v1/workflows/n/stats")).status == 404
