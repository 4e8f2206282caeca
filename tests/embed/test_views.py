"""Runs as two plain tables for whoever asks with SQL: the views say what the engine says."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import RunCancelled, RunFailed, RunHandle, RunInterrupted, ToolError
from holdfast.testing import TestEngine

LOOP = """
name: loop
inputs: {items: {default: [1, 2, 3]}}
steps:
  - {id: loop, kind: foreach, items: $.inputs.items, concurrency: 2, on_any_fail: continue, steps: [
      {id: a, tool: odd, args: {x: "{{ item }}"}, retry: {max_attempts: 2, initial_delay_ms: 10}}, {id: b, tool: echo, args: {x: 1}}]}
  - {id: par, kind: parallel, steps: [{id: c, tool: echo, args: {x: 2}}, {id: d, kind: timer, delay_ms: 5}]}
  - {id: br, kind: branch, on: $.inputs.items, then: [{id: e, tool: echo, args: {x: {"k": [null, 1.5, "ü"]}}}]}
"""
RETRIED = "name: n\nsteps: [{id: a, tool: flaky, retry: {max_attempts: 3, initial_delay_ms: 10}}]"
TIMED_OUT = (
    "name: n\nsteps: [{id: a, tool: hang, timeout_secs: 1, retry: {max_attempts: 2, initial_delay_ms: 10}}]"
)
ABORTED = """
name: n
steps: [{id: par, kind: parallel, steps: [{id: a, tool: hang}, {id: w, kind: timer, delay_ms: 60000}, {id: b, tool: fail}]}]
"""
HANGS = "name: n\nsteps: [{id: x, tool: echo, args: {x: 5}}, {id: a, tool: hang}]"
UNRENDERED = "name: n\nsteps: [{id: x, tool: echo, args: {x: [1]}}, {id: loop, kind: foreach, items: '$.steps.x[0]', steps: [{id: s, tool: echo}]}]"
ODD_IDS = 'name: n\nsteps: [{id: "a.b", tool: echo, args: {x: 1}}, {id: br, kind: branch, on: "$.steps", then: [{id: "c[0]", tool: echo}]}]'


@pytest.fixture
def tools(engine: TestEngine) -> TestEngine:
    def odd(x: int) -> int:
        if x == 2:
            raise ToolError("even")
        return x

    engine.fake_tool("odd", odd)
    engine.fake_tool("echo", lambda x=None: x)
    engine.fake_tool("fail", raises=ToolError("no", kind="quota"))
    engine.fake_tool("hang", lambda: asyncio.sleep(1e6))
    engine.fake_tool("flaky", side_effect=[ToolError("no"), ToolError("no"), {"ok": True}])
    return engine


def rows(file: Path, query: str, *args: Any) -> list[Any]:
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(db.execute(query, args))
    finally:
        db.close()


def transitions(engine: TestEngine, run: RunHandle) -> list[tuple[str, str, int]]:
    query = "SELECT step_id, status, attempt FROM workflow_steps WHERE workflow_id = ?"
    return rows(engine.file, query, run.id)


async def ended(engine: TestEngine, spec: str) -> RunHandle:
    run = await engine.start(spec)
    with suppress(RunFailed):
        await engine.finish(run)
    return run


async def assert_agreement(engine: TestEngine, run: RunHandle) -> None:
    """The last row of each step says what the engine says of it, and so does the row of the run."""
    steps = await run.steps(every=True)
    found = rows(engine.file, "SELECT * FROM workflow_steps WHERE workflow_id = ?", run.id)
    last = {step: (status, attempt, result) for _, step, status, attempt, result, _ in found}
    assert {step: entry[:2] for step, entry in last.items()} == {
        path: (step.status, step.attempts) for path, step in steps.items()
    }
    for path, (status, _, result) in last.items():
        if status == "failed":
            assert json.loads(result)["message"] == steps[path].error.message  # type: ignore[union-attr]
        elif status == "completed" and result is not None:
            assert json.loads(result) == steps[path].output
    ((root, inputs, status, outputs, created, completed),) = rows(
        engine.file,
        "SELECT root_job_id, inputs_json, status, step_outputs_json, created_at, completed_at FROM workflows WHERE workflow_id = ?",
        run.id,
    )
    assert (root, status) == (run.id, await run.status())
    assert isinstance(json.loads(inputs), dict)
    assert created <= completed
    expected = {
        path: step for path, step in steps.items() if step.status == "completed" and path in _top(steps)
    }
    told = {(f'["{name}"]' if "." in name else name): value for name, value in json.loads(outputs).items()}
    assert told.keys() == expected.keys()
    assert all(value in (None, expected[path].output) for path, value in told.items())


def _top(paths: Any) -> set[str]:
    return {path for path in paths if "." not in path or path == '["a.b"]'}


@pytest.mark.parametrize(
    "spec", [LOOP, RETRIED, TIMED_OUT, ABORTED, UNRENDERED, ODD_IDS], ids=["loop", "retry", "timeout", "abort", "items", "ids"]
)  # fmt: skip
async def test_the_views_agree_with_the_engine_about_a_run_that_ended(tools: TestEngine, spec: str) -> None:
    await assert_agreement(tools, await ended(tools, spec))


async def test_the_views_agree_with_the_engine_about_steps_under_one_key(tools: TestEngine) -> None:
    spec = """
name: n
steps:
  - {id: a, tool: slow, idempotency_key: k}
  - {id: b, tool: slow, idempotency_key: k}
  - {id: par, kind: parallel, steps: [{id: c, tool: slow, idempotency_key: m}, {id: d, tool: slow, idempotency_key: m}]}
"""

    async def slow() -> str:
        await asyncio.sleep(60)
        return "done"

    tools.fake_tool("slow", slow)
    run = await ended(tools, spec)
    await assert_agreement(tools, run)
    assert [entry for entry in transitions(tools, run) if entry[0] in ("b", "par[1].d")] == [
        ("b", "ready", 0),
        ("b", "completed", 0),
        ("par[1].d", "ready", 0),
        ("par[1].d", "waiting", 0),
        ("par[1].d", "ready", 0),  # woken, it asks again
        ("par[1].d", "completed", 0),
    ]
    entered = [
        event["current_step_id"] async for event in run.events() if event["detail"]["kind"] == "step_enter"
    ]
    assert entered == ["a", "b", "par", "par[0].c", "par[1].d"]


async def test_the_views_agree_with_the_engine_about_a_nested_workflow(tools: TestEngine) -> None:
    hf = await tools.open()
    await hf.publish("name: child\nsteps: [{id: s, tool: echo, args: {x: 4}}]\noutput: {got: '{{ s }}'}")
    run = await ended(tools, "name: n\nsteps: [{id: c, kind: workflow, workflow: child}]")
    assert await run.result() == {"c": {"got": 4}}
    await assert_agreement(tools, run)
    kinds = [(event["detail"]["kind"], event["current_step_id"]) async for event in run.events()]
    assert kinds[1:-1] == [
        ("step_enter", "c"),
        ("step_enter", "c.s"),
        ("step_exit", "c.s"),
        ("step_exit", "c"),
    ]


async def test_the_views_agree_with_the_engine_about_a_run_that_does_another_again(tools: TestEngine) -> None:
    hf = await tools.open()
    first = await ended(tools, "name: n\nsteps: [{id: x, tool: echo, args: {x: 5}}, {id: f, tool: fail}]")
    run = await tools.attach((await hf.rerun(first.id, from_step="f")).id)
    with pytest.raises(RunFailed):
        await tools.finish(run)
    await assert_agreement(tools, run)
    assert (await run.steps())["x"].output == 5
    assert (await run.info()).rerun_of == first.id


async def test_the_views_agree_with_the_engine_about_a_run_that_was_cancelled(tools: TestEngine) -> None:
    hf = await tools.open()
    for spec in (HANGS, ABORTED.replace("fail", "hang"), RETRIED.replace("flaky", "fail")):
        run = await tools.start(spec)
        await hf.cancel(run.id)
        with pytest.raises(RunCancelled):
            await tools.finish(run)
        await assert_agreement(tools, run)


async def test_the_views_agree_with_the_engine_about_a_run_that_a_crash_met(tools: TestEngine) -> None:
    run = await tools.start(HANGS)
    interrupted = await tools.start(HANGS + "\non_restart: interrupt")
    await tools.restart()
    with pytest.raises(RunInterrupted):
        await tools.finish(interrupted)
    await assert_agreement(tools, interrupted)
    assert transitions(tools, run)[-3:] == [("a", "running", 1), ("a", "ready", 1), ("a", "running", 2)]


async def test_each_transition_of_a_step_is_a_row(tools: TestEngine) -> None:
    run = await ended(tools, RETRIED)
    assert transitions(tools, run) == [
        ("a", "running", 1),
        ("a", "retrying", 1),
        ("a", "running", 2),
        ("a", "retrying", 2),
        ("a", "running", 3),
        ("a", "completed", 3),
    ]


async def test_an_answer_that_comes_too_late_is_no_transition(tools: TestEngine) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            await asyncio.sleep(12)  # longer than its grace
        return "late"

    tools.fake_tool("hang", stubborn)
    run = await tools.start(TIMED_OUT)
    with pytest.raises(RunFailed):
        await tools.finish(run)
    await assert_agreement(tools, run)
    assert [status for _, status, _ in transitions(tools, run)] == [
        "running",
        "retrying",
        "running",
        "failed",
    ]


async def test_what_is_not_known_before_the_end_is_null(tools: TestEngine) -> None:
    run = await tools.start("name: n\nsteps: [{id: x, tool: echo}, {id: t, kind: timer, delay_ms: 600000}]")
    query = (
        "SELECT status, current_step_id, step_outputs_json, completed_at FROM workflows WHERE workflow_id = ?"
    )
    assert rows(tools.file, query, run.id) == [("running", None, None, None)]
    await tools.finish(run)
    ((status, current, outputs, completed),) = rows(tools.file, query, run.id)
    assert (status, current, json.loads(outputs).keys(), completed is None) == (
        "completed",
        "t",
        {"x", "t"},
        False,
    )


async def test_the_step_that_failed_is_the_current_one(tools: TestEngine) -> None:
    run = await ended(tools, ABORTED)
    assert rows(tools.file, "SELECT current_step_id FROM workflows WHERE workflow_id = ?", run.id) == [
        ("par",)
    ]
    last = [event async for event in run.events()][-1]
    assert last["current_step_id"] == "par"


async def test_large_values_are_shown_whole(tools: TestEngine) -> None:
    spec = "name: n\ninputs: {text: {type: string}}\nsteps: [{id: a, tool: big}]"
    tools.fake_tool("big", returns={"text": "y" * 100_000})
    await tools.run(spec, {"text": "x" * 100_000})
    ((inputs, outputs),) = rows(tools.file, "SELECT inputs_json, step_outputs_json FROM workflows")
    assert json.loads(inputs) == {"text": "x" * 100_000}
    assert json.loads(outputs) == {"a": {"text": "y" * 100_000}}
    ((result,),) = rows(tools.file, "SELECT result_json FROM workflow_steps WHERE status = 'completed'")
    assert json.loads(result) == {"text": "y" * 100_000}


async def test_asking_for_one_workflow_reads_the_journal_of_one_run(tools: TestEngine) -> None:
    await ended(tools, HANGS.replace("hang", "echo"))
    for table in ("workflows", "workflow_steps"):
        plan = rows(tools.file, f"EXPLAIN QUERY PLAN SELECT * FROM {table} WHERE workflow_id = 'x'")
        assert [step for *_, step in plan if step.startswith("SCAN j")] == []
