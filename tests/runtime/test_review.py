"""What a sceptical reader broke once: each case stays here."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from holdfast import Context, Holdfast, RunFailed, tool
from holdfast.execution.dispatcher import THREADS_MAX
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.sqlite.store import SqliteStore
from holdfast.tools.registry import Registry
from tests.runtime.bench import engine_on, started


@tool
async def ok() -> int:
    return 1


@tool
async def with_context(ctx: Context) -> str:
    return ctx.path


@pytest.mark.anyio
async def test_arguments_that_are_no_object_fail_only_their_step(tmp_path: Path) -> None:
    bad = "name: bad\ninputs: {x: {}}\nsteps: [{id: a, tool: with_context, args: '{{inputs.x}}'}]"
    async with Holdfast(str(tmp_path / "a.db"), tools=[ok, with_context]) as hf:
        good = "name: good\nsteps: [{id: a, tool: ok}]"
        starts = [hf.start(bad, {"x": 5}), *(hf.start(good) for _ in range(5))]
        first, *others = await asyncio.wait_for(asyncio.gather(*starts), 60)
        assert [await run.result(60) for run in others] == [{"a": 1}] * 5
        with pytest.raises(RunFailed) as caught:
            await first.result(60)
        assert caught.value.error.kind == "inputs"


@pytest.mark.anyio
async def test_a_sync_tool_that_waits_for_a_thread_never_begins_after_a_cancel(tmp_path: Path) -> None:
    gate, began = threading.Event(), []

    @tool
    def slow(ctx: Context) -> None:
        began.append(ctx.path)
        gate.wait(120)

    definition = (
        "name: n\ninputs: {xs: {type: array}}\n"
        "steps: [{id: l, kind: foreach, items: $.inputs.xs, concurrency: 100, steps: [{id: s, tool: slow}]}]"
    )
    async with Holdfast(str(tmp_path / "a.db"), tools=[slow]) as hf:
        run = await hf.start(definition, {"xs": list(range(100))})
        while len(began) < THREADS_MAX:
            await asyncio.sleep(0.01)
        await hf.cancel(run.id)
        gate.set()
        while await run.status() == "cancelling":
            await asyncio.sleep(0.01)
    assert len(began) == THREADS_MAX


@pytest.mark.anyio
@pytest.mark.parametrize("order", range(4))  # of the reads that suspend: each has its own seed
async def test_a_run_that_had_to_wait_for_room_is_not_interrupted_by_beginning(
    tmp_path: Path, order: int
) -> None:
    spec = WorkflowSpec.from_yaml_str("name: n\non_restart: interrupt\nsteps: [{id: a, tool: ok}]")
    engine = engine_on(SqliteStore(str(tmp_path / "a.db")), Registry([ok]), resident_max=1)
    await engine.open()
    runs = await asyncio.gather(*(started(engine, spec) for _ in range(3)))
    ended = [await asyncio.wait_for(engine.waiters.ended(resident.run.no), 60) for resident in runs]
    assert [resident.run.status for resident in ended] == ["completed"] * 3
    await engine.close()


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "value", "count"),
    [
        ("$.inputs.x['0']", [7], 0),
        ("$.inputs.x[0]", {"0": 7}, 0),
        ("$.inputs.x['--1']", [7], 0),
        ("$.inputs.x", [7], 1),
    ],
)
async def test_names_and_numbers_of_a_path_are_told_apart(
    tmp_path: Path, path: str, value: object, count: int
) -> None:
    definition = {
        "name": "n",
        "inputs": {"x": {}},
        "steps": [{"id": "l", "kind": "foreach", "items": path, "steps": [{"id": "s", "tool": "ok"}]}],
    }
    async with Holdfast(str(tmp_path / "a.db"), tools=[ok]) as hf:
        output = await (await hf.start(definition, {"x": value})).result(60)
    assert len(output["l"]["iterations"]) == count
