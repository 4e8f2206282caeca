"""Fires are made ready half a second before they are due. What changes after that counts as if nothing had been made ready.

Each test begins at 22:13:20 and has a schedule that is due at 22:14:00.
"""

from __future__ import annotations

import asyncio

import pytest

from holdfast.schedule import control
from holdfast.store.schedule_records import Firing
from holdfast.testing import TestEngine
from holdfast.triggers.ahead import PORTION
from holdfast.triggers.rows import cursor_of, cursor_row, key_of
from holdfast.values import DEFAULT_TENANT
from tests.triggers.scheduled import WORK, cron, forever, ledger, put, runs

READY = 39.8  # seconds: the fire is ready, and not due yet


async def test_a_fire_that_is_ready_has_no_run_yet(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await put(engine, cron())
    await engine.advance(seconds=READY)
    assert await runs(engine) == []


async def test_the_run_is_created_when_it_is_due_not_when_it_was_made_ready(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await put(engine, cron())
    await engine.advance(seconds=41)
    (run,) = await runs(engine)
    (row,) = await ledger(engine)
    assert run.created_at == row.scheduled_at == row.at


async def test_nothing_fires_if_the_schedule_is_paused_meanwhile(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    await engine.advance(seconds=READY)
    await opened.schedules.pause(DEFAULT_TENANT, "s")
    await engine.advance(seconds=5)
    assert work.calls == []


async def test_an_edit_meanwhile_changes_the_inputs_of_the_run(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    await engine.advance(seconds=READY)
    await opened.schedules.put(DEFAULT_TENANT, cron(inputs={"at": "edited"}))
    await engine.advance(seconds=5)
    assert work.calls == [{"x": "edited"}]


async def test_a_schedule_that_is_deleted_and_made_anew_meanwhile_is_the_new_one(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    await engine.advance(seconds=READY)
    await opened.schedules.delete(DEFAULT_TENANT, "s")
    await opened.schedules.put(DEFAULT_TENANT, cron(inputs={"at": "new"}))
    await engine.advance(seconds=5)
    assert work.calls == [{"x": "new"}]


async def test_a_workflow_that_is_published_meanwhile_is_the_one_that_runs(engine: TestEngine) -> None:
    work, other = engine.fake_tool("work"), engine.fake_tool("other")
    await put(engine, cron())
    await engine.advance(seconds=READY)
    await (await engine.open()).publish(WORK.replace("tool: work", "tool: other"))
    await engine.advance(seconds=5)
    assert (len(work.calls), len(other.calls)) == (0, 1)


async def test_a_run_that_was_started_by_hand_meanwhile_counts_against_the_limit(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=forever)
    opened = await put(engine, cron())
    await engine.advance(seconds=READY)
    await opened.schedules.fire(DEFAULT_TENANT, "s")
    await engine.advance(seconds=5)
    assert [(row.outcome, row.reason) for row in await ledger(engine)] == [
        ("fired", "manual"),
        ("skipped", "overlap"),
    ]


async def test_a_run_that_fails_meanwhile_pauses_a_schedule_that_fails_too_often(engine: TestEngine) -> None:
    gate = asyncio.Event()

    async def fail(**args: object) -> None:
        await gate.wait()
        raise ValueError("no")

    work = engine.fake_tool("work", side_effect=fail)
    opened = await put(engine, cron(pause_after_failures=1, overlap="allow"))
    await opened.schedules.fire(DEFAULT_TENANT, "s")
    await engine.advance(seconds=READY)
    gate.set()
    await engine.advance(seconds=5)
    assert len(work.calls) == 1


async def test_a_machine_that_is_suspended_meanwhile_has_missed_the_occurrence(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    opened.fires.timers.sleep_seconds_max = 1.0
    await engine.advance(seconds=READY)
    engine.clock.wall_offset_ms += 590_000  # until 22:23:49.8
    await engine.advance(seconds=5)
    assert work.calls == [{"x": "2023-11-14T22:23:00.000Z"}]  # within the grace: it is only late
    missed = (await ledger(engine))[0]
    assert (missed.outcome, missed.reason, missed.times) == ("skipped", "missed", 9)


async def test_many_schedules_that_are_due_at_once_start_in_several_commits(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, *(cron(f"s{n}") for n in range(250)))
    commits: list[int] = []
    opened.door.watchers.append(lambda batch, *_: commits.append(len(batch.new_runs)))
    await engine.advance(seconds=41)
    assert [count for count in commits if count] == [100, 100, 50]
    assert len(work.calls) == 250
    assert {run.schedule for run in await runs(engine)} == {f"s{n}" for n in range(250)}


async def test_of_many_that_are_ready_one_that_was_decided_elsewhere_is_left_out(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron("a"), cron("b"))
    await engine.advance(seconds=READY)
    (found,) = await opened.store.schedule_states([(DEFAULT_TENANT, "a")])
    moved = control.paused(cursor_of(found), (found.cursor.next_at or 0) - 1)
    row = cursor_row(key_of(found.cursor), moved, None)
    await opened.fires.commit([Firing(cursor=row, seen=found.cursor.revision)])
    await engine.advance(seconds=5)
    assert [run.schedule for run in await runs(engine)] == ["b"]
    assert len(work.calls) == 1


async def test_all_runs_that_are_due_at_once_begin_before_one_of_them_ends(engine: TestEngine) -> None:
    engine.fake_tool("work")
    opened = await put(engine, *[cron(f"s{n}") for n in range(3 * PORTION)])
    commits: list[str] = []
    opened.door.watchers.append(
        lambda batch, entries, seconds: commits.extend(
            ["begin"] * bool(batch.new_runs)
            + ["end"] * any(change.finished_at for no, change in batch.changes.items())
        )
    )
    await engine.advance(seconds=41)
    assert commits[:3] == ["begin"] * 3 and set(commits[3:]) == {"end"}
    assert {run.status for run in await runs(engine)} == {"completed"}


async def test_all_steps_begin_before_the_fires_are_counted(engine: TestEngine) -> None:
    counted: list[int] = []
    engine.fake_tool("work", side_effect=lambda **args: counted.append(opened.fires.run_counts.total()))
    opened = await put(engine, *[cron(f"s{n}") for n in range(3 * PORTION)])
    await engine.advance(seconds=41)
    assert counted == [0] * 3 * PORTION


async def test_a_run_that_is_cancelled_while_its_outcome_is_held_back_ends_as_cancelled(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    let_go = opened.door.let_go
    monkeypatch.setattr(opened.door, "let_go", lambda: None)
    await engine.advance(seconds=41)
    (run,) = await runs(engine)
    assert (len(work.calls), run.status) == (1, "running")
    await opened.runs.cancel(run.id, "", tenant=DEFAULT_TENANT)
    let_go()
    await engine.advance(seconds=60)
    assert (await runs(engine))[0].status == "cancelled"
