"""Schedules with a clock on the real engine and a real file, with time by hand."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.store.batch import Batch
from holdfast.testing import TestEngine
from holdfast.values import DEFAULT_TENANT, decode
from tests.triggers.scheduled import Gates, cron, forever, ledger, put, runs


async def test_a_schedule_starts_a_run_at_each_of_its_times(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron())  # it is 22:13:20
    await engine.advance(seconds=39.9)
    assert work.calls == []
    await engine.advance(minutes=2)
    assert work.calls == [{"x": "2023-11-14T22:14:00.000Z"}, {"x": "2023-11-14T22:15:00.000Z"}]


async def test_the_ledger_has_a_row_for_each_run(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await put(engine, cron())
    await engine.advance(minutes=2)
    rows, started = await ledger(engine), await runs(engine)
    assert [row.occurrence for row in rows] == ["2023-11-14T22:14:00.000Z", "2023-11-14T22:15:00.000Z"]
    assert [row.run_id for row in rows] == [run.id for run in started]
    assert {row.outcome for row in rows} == {"fired"}
    assert {run.schedule for run in started} == {"s"}


async def test_a_run_of_one_step_takes_two_commits(engine: TestEngine) -> None:
    engine.fake_tool("work")
    opened = await put(engine, cron())
    await engine.advance(seconds=30)
    batches: list[Batch] = []
    submit = opened.store.submit

    def counted(batch: Batch, done: Any) -> None:
        batches.append(batch)
        submit(batch, done)

    opened.store.submit = counted  # type: ignore[method-assign]
    await engine.advance(seconds=30)
    assert [len(batch.rows) for batch in batches] == [1, 1]  # it starts, and it ends


async def test_nothing_is_queried_while_nothing_is_due(engine: TestEngine) -> None:
    engine.fake_tool("work")
    opened = await put(engine, cron(expression="0 0 0 1 1 *"))
    await engine.advance()
    asked = []
    read = opened.store.due_schedules

    async def counted(*args: Any) -> Any:
        asked.append(args)
        return await read(*args)

    opened.store.due_schedules = counted  # type: ignore[method-assign, assignment]
    await engine.advance(days=10)
    assert asked == []


async def test_a_schedule_goes_on_after_a_restart(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron())
    await engine.advance(minutes=1)
    await engine.restart()
    await engine.advance(minutes=1)
    assert [call["x"][14:16] for call in work.calls] == ["14", "15"]


async def test_an_occurrence_while_a_run_is_open_is_skipped_and_says_why(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=forever)
    await put(engine, cron())
    await engine.advance(minutes=4)
    fired, skipped = await ledger(engine)
    assert fired.outcome == "fired"
    assert (skipped.outcome, skipped.reason, skipped.times) == ("skipped", "overlap", 3)
    assert skipped.occurrence == "2023-11-14T22:15:00.000Z/.."


async def test_a_buffered_occurrence_starts_when_the_run_before_it_has_ended(engine: TestEngine) -> None:
    gates = Gates()
    work = engine.fake_tool("work", side_effect=gates)
    await put(engine, cron(overlap="buffer_all"))
    await engine.advance(minutes=3)
    assert len(work.calls) == 1
    gates.open()
    await engine.advance()
    assert [call["x"][14:16] for call in work.calls] == ["14", "15"]


async def test_what_waits_for_a_run_to_end_survives_a_crash_at_its_end(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron(overlap="buffer_all"))
    engine.fake_tool("work", side_effect=forever)
    await engine.advance(minutes=3)
    opened = (await engine.open())._engine
    opened.fires.run_ended = lambda resident: None  # type: ignore[method-assign]  # the process ends before it acts on it
    opened.door.on_scheduled_end = lambda resident: (
        None
    )  # and there was no time to start the next run with it
    (first,) = await runs(engine)
    await opened.runs.cancel(first.id)
    await engine.advance(seconds=11)
    assert [run.status for run in await runs(engine)] == ["cancelled"]
    engine.fake_tool("work")
    await engine.restart()
    await engine.advance()
    assert [run.status for run in await runs(engine)] == ["cancelled", "completed", "completed"]
    assert work.calls == []


async def test_the_commit_that_ends_a_run_starts_the_one_that_waits_for_it(engine: TestEngine) -> None:
    gates = Gates()
    engine.fake_tool("work", side_effect=gates)
    opened = await put(engine, cron(overlap="buffer_all"))
    await engine.advance(minutes=3)
    commits: list[tuple[int, int]] = []
    opened.door.watchers.append(
        lambda batch, entries, seconds: commits.append((len(batch.rows), len(batch.new_runs)))
    )
    for _ in range(2):
        gates.open()
        await engine.advance()
    assert commits == [(2, 1), (2, 1)]
    statuses = [run.status for run in await runs(engine)]
    assert statuses == ["completed", "completed", "running"]


async def test_where_a_schedule_is_being_changed_at_the_end_of_a_run_the_end_does_not_wait_for_it(
    engine: TestEngine,
) -> None:
    gates = Gates()
    work = engine.fake_tool("work", side_effect=gates)
    opened = await put(engine, cron(overlap="buffer_all"))
    await engine.advance(minutes=2)
    async with opened.fires.command():
        gates.open()
        await engine.advance()
        assert [run.status for run in await runs(engine)] == ["completed"]
    await engine.advance()
    assert len(work.calls) == 2 and opened.door.commits.expected == 0


async def test_cancel_previous_cancels_the_oldest_run_and_fires_when_it_has_ended(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=forever)
    await put(engine, cron(overlap="cancel_previous"))
    await engine.advance(minutes=1)
    engine.fake_tool("work")
    await engine.advance(minutes=1, seconds=15)
    assert [run.status for run in await runs(engine)] == ["cancelled", "completed"]


async def test_an_unknown_workflow_is_a_row_of_the_ledger(engine: TestEngine) -> None:
    await put(engine, cron(workflow="wrok"))
    await engine.advance(minutes=1)
    (row,) = await ledger(engine)
    assert (row.outcome, row.reason, row.run_id) == ("failed", "unknown_workflow", None)
    assert "did you mean" in decode(row.detail or "")["message"]


async def test_invalid_inputs_are_a_row_of_the_ledger(engine: TestEngine) -> None:
    await put(engine, cron(inputs=["no", "object"]))
    await engine.advance(minutes=1)
    (row,) = await ledger(engine)
    assert (row.outcome, row.reason) == ("failed", "invalid_inputs")


async def test_an_unresolved_placeholder_is_a_warning(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron(inputs={"at": "{{trigger.payload.x}}"}))
    await engine.advance(minutes=1)
    (row,) = await ledger(engine)
    assert work.calls == [{"x": "{{trigger.payload.x}}"}]
    assert decode(row.detail or "")["warnings"] == [
        "{{trigger.payload.x}} was left as it is: nothing has that name"
    ]


async def test_strict_templates_refuse_an_unresolved_placeholder(engine: TestEngine) -> None:
    await put(engine, cron(inputs={"at": "{{trigger.payload.x}}"}, strict_templates=True))
    await engine.advance(minutes=1)
    (row,) = await ledger(engine)
    assert (row.outcome, row.reason) == ("failed", "unresolved_template")


async def test_many_schedules_that_are_due_together_are_committed_together(engine: TestEngine) -> None:
    engine.fake_tool("work")
    opened = await put(engine, *(cron(f"s{number}") for number in range(200)))
    commits = []
    opened.door.watchers.append(lambda batch, entries, seconds: commits.append(len(batch.firings)))
    await engine.advance(minutes=1)
    assert sum(commits) == 200
    assert sum(1 for fires in commits if fires) <= 5


async def test_a_schedule_that_cannot_be_decided_does_not_stop_the_others(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron("a"), cron("b"))
    batch, row = Batch(), await opened.store.schedule(DEFAULT_TENANT, "a")
    assert row is not None
    batch.schedules.append(row._replace(body='{"nonsense": true}'))
    await opened.committer.commit(batch)
    await engine.advance(minutes=3)
    assert len(work.calls) == 3
    assert list(opened.fires.broken) == [(DEFAULT_TENANT, "a", "")]


async def test_a_run_that_ends_while_its_schedule_is_read_makes_room_for_the_next(engine: TestEngine) -> None:
    gates = Gates()
    engine.fake_tool("work", side_effect=gates)
    opened = await put(engine, cron(overlap="buffer_one"))
    await engine.advance(minutes=1)
    work = engine.fake_tool("work")
    due_schedules = opened.store.due_schedules

    async def end_after_reading(*args: Any) -> Any:
        found = await due_schedules(*args)
        if found and (await runs(engine))[0].status != "completed":
            gates.open()
            while (await runs(engine))[0].status != "completed":
                await asyncio.sleep(0)
        return found

    opened.store.due_schedules = end_after_reading  # type: ignore[method-assign, assignment]
    await engine.advance(seconds=60.5)
    assert len(work.calls) == 1
