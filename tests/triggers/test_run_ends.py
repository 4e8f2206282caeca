"""Schedules that wait for the end of another run: the event is written by the commit that ends it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.spec.schedule import schedule_from_data
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.testing import TestEngine
from holdfast.values import DEFAULT_TENANT
from tests.triggers.scheduled import forever, ledger, put, runs

FIRST = {
    "name": "first",
    "steps": [{"id": "a", "tool": "one", "args": {"x": "{{inputs.x}}"}}],
    "output": "{{steps.a.output}}",
}


def after(statuses: list[str] | None = None, delay_secs: int = 0, **fields: Any) -> ScheduleSpec:
    trigger = {"kind": "run", "workflow": "first", "delay_secs": delay_secs}
    if statuses is not None:
        trigger["statuses"] = statuses
    data = {
        "id": "s",
        "workflow": "work",
        "inputs": {"at": "{{trigger.payload.output}}"},
        "max_concurrent": 0,
    }
    return schedule_from_data({**data, **fields, "trigger": trigger})


async def first(engine: TestEngine, x: Any = 1) -> Any:
    run = await engine.start(FIRST, {"x": x})
    return await engine.finish(run)


@pytest.fixture
def engine(engine: TestEngine) -> TestEngine:
    engine.fake_tool("one", lambda x: {"doubled": 2 * x})
    return engine


async def test_the_end_of_a_run_starts_a_run_with_its_output(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, after())
    await first(engine, 21)
    await engine.advance()
    assert work.calls == [{"x": {"doubled": 42}}]
    before, then = await runs(engine)
    (row,) = await ledger(engine)
    assert (row.occurrence, row.outcome, row.run_id) == (before.id, "fired", then.id)


async def test_the_event_is_written_by_the_commit_that_ends_the_run(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    own = await put(engine, after())
    own.kinds.waiting.abandon()  # nothing is started from now on: the process ends right after that commit
    await first(engine)
    await engine.advance()
    (row,) = await ledger(engine)
    assert (row.outcome, row.reason, work.calls) == ("buffered", "delayed", [])
    await engine.restart()
    await engine.advance()
    (row,) = await ledger(engine)
    assert (row.outcome, len(work.calls)) == ("fired", 1)


async def test_the_run_starts_after_the_delay_also_across_a_restart(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, after(delay_secs=60))
    await first(engine)
    await engine.advance(seconds=30)
    await engine.restart()
    await engine.advance(seconds=29)
    assert work.calls == []
    await engine.advance(seconds=2)
    assert len(work.calls) == 1


@pytest.mark.parametrize(
    ("statuses", "count"), [(None, 0), (["failed"], 1), (["completed", "failed"], 1), (["cancelled"], 0)]
)
async def test_only_the_statuses_of_the_trigger_count(
    engine: TestEngine, statuses: list[str] | None, count: int
) -> None:
    def fail(x: Any) -> None:
        raise ValueError("no")

    engine.fake_tool("one", fail)
    work = engine.fake_tool("work")
    await put(
        engine, after(statuses, inputs={"at": "{{trigger.payload.status}} {{trigger.payload.error.kind}}"})
    )
    run = await engine.start(FIRST, {"x": 1})
    await engine.advance(seconds=60)
    assert (await run.status()) == "failed"
    assert len(work.calls) == count
    if count:
        assert work.calls[0]["x"].startswith("failed ")


async def test_runs_of_other_workflows_do_not_count(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, after())
    await engine.finish(await engine.start({**FIRST, "name": "other"}, {"x": 1}))
    await engine.advance()
    assert work.calls == [] and await ledger(engine) == []


async def test_at_the_limit_of_open_runs_an_event_is_skipped_or_waits(engine: TestEngine) -> None:
    engine.fake_tool("work", forever)
    await put(engine, after(max_concurrent=1), after(id="t", max_concurrent=1, overlap="buffer_all"))
    for _ in range(3):
        await first(engine)
        await engine.advance()
    assert [row.outcome for row in await ledger(engine, "s")] == ["fired", "skipped", "skipped"]
    assert [(row.outcome, row.reason) for row in await ledger(engine, "t")] == [
        ("fired", ""),
        ("buffered", ""),
        ("buffered", ""),
    ]


async def test_a_schedule_that_is_removed_or_disabled_gets_no_event(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    own = await put(engine, after())
    await own.schedules.put(DEFAULT_TENANT, after(enabled=False))
    await first(engine)
    await engine.advance()
    assert work.calls == [] and await ledger(engine) == []
