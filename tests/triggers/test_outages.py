"""Occurrences that were due while no engine was awake: missed, or only late."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from holdfast.runtime.engine import Engine
from holdfast.schedule.due import EXAMINED_MAX
from holdfast.testing import TestEngine
from holdfast.triggers import deciding
from holdfast.triggers.deciding import TURN_WORK
from holdfast.values import DEFAULT_TENANT, Millis
from holdfast.views.schedules import detail_of
from tests.triggers.scheduled import Gates, cron, ledger, put, state


async def down(engine: TestEngine, seconds: float) -> Engine:
    """Kill the process, and start it again after a while."""
    engine.close()
    engine.clock.seconds += seconds
    opened = (await engine.open())._engine
    await engine.advance()
    return opened


async def asleep(engine: TestEngine, seconds: float) -> None:
    """Suspend the machine: the wall clock goes on, the monotonic clock stands still."""
    opened = (await engine.open())._engine
    opened.fires.timers.sleep_seconds_max = 1.0
    await engine.advance(seconds=2)
    engine.clock.wall_offset_ms += int(seconds * 1000)
    await engine.advance(seconds=1.1)


def minutes(calls: list[dict[str, Any]]) -> list[str]:
    return [call["x"][11:16] for call in calls]


async def test_what_was_due_within_the_grace_is_late_and_fires(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron())
    await down(engine, 90)  # until 22:14:50
    assert minutes(work.calls) == ["22:14"]
    (row,) = await ledger(engine)
    assert not row.is_catchup


async def test_what_was_missed_is_skipped_and_in_the_ledger(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron())
    await down(engine, 600)  # until 22:23:20
    assert minutes(work.calls) == ["22:23"]
    missed, _ = await ledger(engine)
    assert (missed.outcome, missed.reason, missed.times) == ("skipped", "missed", 9)


async def test_run_once_catches_up_the_latest(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron(missed_run_policy="run_once"))
    await down(engine, 600)
    await engine.advance(seconds=1)
    assert minutes(work.calls) == ["22:22"]
    rows = {row.reason: row for row in await ledger(engine)}
    assert rows["missed"].times == 8
    assert rows[""].is_catchup
    assert rows["overlap"].times == 1  # 22:23 was only late, and a run was open


async def test_run_all_catches_up_each_of_them_in_order(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron(missed_run_policy="run_all"))
    await down(engine, 600)
    await engine.advance(seconds=1)
    assert minutes(work.calls) == [f"22:{minute}" for minute in range(14, 23)]
    assert all(row.is_catchup for row in await ledger(engine) if row.outcome == "fired")


async def test_a_second_crash_does_not_turn_missed_occurrences_into_late_ones(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron())
    engine.close()
    engine.clock.seconds += 600
    opened = (await engine.open())._engine
    await opened.fires.outages.open()  # and it is killed before it decides anything
    engine.close()
    await down(engine, 1)
    assert minutes(work.calls) == ["22:23"]


async def test_an_outage_ends_when_the_engine_opened_however_often_it_has_to_ask(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await put(engine, cron())
    engine.close()
    engine.clock.seconds += 600
    fires = (await engine.open())._engine.fires
    fires._is_closed, outages = True, fires.outages
    await outages.open()  # and what it reads after that fails, for five minutes
    (before,) = outages.stretches
    engine.clock.seconds += 300
    await outages.open()
    assert outages.stretches == (before,)


async def test_the_time_between_two_jumps_of_the_clock_is_no_outage(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await put(engine, cron())
    opened = (await engine.open())._engine
    await engine.advance(seconds=1)
    outages, start = opened.fires.outages, opened.clock.now()
    for _ in range(2):  # while the database is away, so neither can be stored
        engine.clock.wall_offset_ms += 600_000
        outages.slept_from(Millis(opened.clock.now() - 600_000))
        engine.clock.wall_offset_ms += 300_000
    await outages.store()
    lasted = [(one.asleep_from - start, one.woke_at - start) for one in outages.stretches]
    assert lasted == [(0, 600_000), (900_000, 1_500_000)]


async def test_outages_that_overlap_because_the_clock_was_set_back_are_one(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await put(engine, cron())
    opened = (await engine.open())._engine
    opened.fires._is_closed, outages, start = True, opened.fires.outages, opened.clock.now()
    engine.clock.seconds += 600
    outages.slept_from(start)
    await outages.store()
    engine.clock.seconds += 60
    outages.slept_from(Millis(start + 300_000))  # the last heartbeat, by a clock that was set back before it
    await outages.store()
    lasted = [(one.asleep_from - start, one.woke_at - start) for one in outages.stretches]
    assert lasted == [(0, 660_000)]


async def test_an_occurrence_that_waits_for_a_late_run_does_not_turn_missed_ones_into_late_ones(
    engine: TestEngine,
) -> None:
    gates = Gates()
    work = engine.fake_tool("work", side_effect=gates)
    opened = await put(engine, cron())
    async with opened.fires.deciding:
        await engine.advance(minutes=3)  # under load
        asleep_from = opened.clock.now()
        engine.clock.seconds += 600
        opened.fires.outages.slept_from(asleep_from)
        await opened.fires.outages.store()
    for _ in range(4):
        await engine.advance(seconds=1)
        gates.open()
    assert minutes(work.calls) == ["22:14", "22:15", "22:16", "22:26"]
    assert [row.times for row in await ledger(engine) if row.reason == "missed"] == [9]


async def test_a_crash_between_two_late_occurrences_does_not_turn_missed_ones_into_late_ones(
    engine: TestEngine,
) -> None:
    engine.fake_tool("work")
    await put(engine, cron(grace_secs=180, max_concurrent=0))
    for _ in range(2):  # until 22:23:20, and until 22:33:20: the last three are late, the others were missed
        engine.close()
        engine.clock.seconds += 600
        opened = (await engine.open())._engine
        die = partial(setattr, opened.fires, "_is_closed", True)
        opened.door.watchers.append(lambda *commit, die=die: die())  # when the first of them has fired
        await engine.advance()
    await down(engine, 600)
    fired = [row.occurrence[11:16] for row in await ledger(engine) if row.outcome == "fired"]
    assert fired == [f"22:{minute}" for minute in (21, 22, 23, 31, 32, 33, 41, 42, 43)]


async def test_an_edit_before_anything_is_decided_does_not_turn_missed_occurrences_into_late_ones(
    engine: TestEngine,
) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron())
    engine.close()
    engine.clock.seconds += 600
    opened = (await engine.open())._engine
    opened.fires.hold()
    await opened.schedules.put(DEFAULT_TENANT, cron(inputs={"at": "{{trigger.scheduled_at}}", "n": 1}))
    await down(engine, 1)  # the process is killed before it decides anything
    assert minutes(work.calls) == ["22:23"]


async def test_an_outage_in_the_middle_of_many_decisions_is_found_after_a_crash(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deciding, "PAGE", 1)
    work = engine.fake_tool("work")
    opened = await put(engine, *[cron(f"s{n}") for n in range(3)])
    opened.fires.prepares = False

    def suspend_then_die(*commit: object) -> None:
        if not engine.clock.wall_offset_ms:
            engine.clock.wall_offset_ms += 600_000
        elif len(work.calls) == 2:
            opened.fires._is_closed = True

    opened.door.watchers.append(suspend_then_die)
    await engine.advance(seconds=41)
    await down(engine, 1)
    await engine.advance(seconds=1)
    assert set(minutes(work.calls)) == {"22:14", "22:24"}


async def test_a_machine_that_is_suspended_between_a_timer_and_its_query_has_slept(
    engine: TestEngine,
) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    opened.fires.timers.sleep_seconds_max = 1.0
    await engine.advance(seconds=39.9)  # its run is being made ready
    opened.fires.timers._query = lambda: None  # the timer has rung, and the query has not begun
    await engine.advance(seconds=1.1)
    engine.clock.wall_offset_ms += 600_000
    opened.fires.query()
    await engine.advance()
    assert minutes(work.calls) == ["22:14", "22:24"]  # the second is only late, and no run is open any more
    assert [row.reason for row in await ledger(engine) if row.outcome == "skipped"][:1] == ["missed"]


@pytest.mark.parametrize("command", ["pause", "resume", "edit", "backfill"])
async def test_a_command_that_is_the_first_after_a_suspend_finds_the_outage(
    engine: TestEngine, command: str
) -> None:
    engine.fake_tool("work")
    opened = await put(engine, cron())
    opened.fires.timers.sleep_seconds_max = 1.0
    await engine.advance(seconds=2)
    engine.clock.wall_offset_ms += 600_000  # no timer has looked at the clock since
    schedules, now = opened.schedules, opened.clock.now()
    match command:
        case "pause":
            await schedules.pause(DEFAULT_TENANT, "s")
        case "resume":
            await schedules.resume(DEFAULT_TENANT, "s")
        case "edit":
            await schedules.put(DEFAULT_TENANT, cron(expression="30 * * * * *"))
        case _:
            await schedules.backfill(DEFAULT_TENANT, "s", now, now)
    assert [(row.reason, row.times) for row in await ledger(engine) if row.outcome == "skipped"] == [
        ("missed", 9)
    ]


async def test_load_alone_misses_nothing(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron(overlap="buffer_all"))
    async with opened.fires.deciding:
        await engine.advance(minutes=10)
    await engine.advance(seconds=1)
    assert len(work.calls) == 10
    assert {row.outcome for row in await ledger(engine)} == {"fired"}


async def test_load_alone_skips_nothing_for_a_run_that_has_ended(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, *[cron(f"s{n}") for n in range(3)])
    async with opened.fires.deciding:
        await engine.advance(minutes=10)
    await engine.advance(seconds=1)
    assert sorted(minutes(work.calls)) == sorted([f"22:{minute}" for minute in range(14, 24)] * 3)


async def test_load_alone_skips_nothing_for_a_run_that_is_only_beginning(engine: TestEngine) -> None:
    gates = Gates()
    work = engine.fake_tool("work", side_effect=gates)
    opened = await put(engine, cron())
    async with opened.fires.deciding:
        await engine.advance(minutes=3)
    for _ in range(3):
        await engine.advance(seconds=1)
        gates.open()
    await engine.advance(seconds=1)
    assert minutes(work.calls) == ["22:14", "22:15", "22:16"]
    assert {row.reason for row in await ledger(engine)} == {""}


async def test_what_is_due_during_a_catch_up_does_not_wait_for_it(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await put(engine, cron(missed_run_policy="run_all"))
    opened = await down(engine, 600)
    assert opened.fires.running(await state(engine)).newest is None


async def test_what_is_late_is_skipped_for_a_run_that_is_open(engine: TestEngine) -> None:
    gate = asyncio.Event()
    work = engine.fake_tool("work", side_effect=lambda x: gate.wait())
    opened = await put(engine, cron())
    async with opened.fires.deciding:
        await engine.advance(minutes=10)
    await engine.advance(seconds=39)  # until 22:23:59
    assert minutes(work.calls) == ["22:14"]
    assert len(await ledger(engine)) == 1
    await engine.advance(seconds=2)  # the next one is due
    _, skipped = await ledger(engine)
    assert (skipped.reason, skipped.times) == ("overlap", 10)
    gate.set()
    await engine.advance(minutes=1)
    assert minutes(work.calls) == ["22:14", "22:25"]


async def test_what_was_due_while_the_machine_was_suspended_is_missed(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron())
    await asleep(engine, 600)
    assert minutes(work.calls) == ["22:23"]
    missed, _ = await ledger(engine)
    assert (missed.reason, missed.times) == ("missed", 9)


async def test_a_short_suspend_makes_an_occurrence_late(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron())
    await asleep(engine, 55)
    assert minutes(work.calls) == ["22:14"]


async def test_a_clock_that_is_set_back_fires_nothing_again(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron())
    opened.fires.timers.sleep_seconds_max = 1.0
    await engine.advance(minutes=3)
    engine.clock.wall_offset_ms -= 150_000
    await engine.advance(minutes=2)
    assert minutes(work.calls) == ["22:14", "22:15", "22:16"]
    await engine.advance(minutes=2)
    assert minutes(work.calls)[3:] == ["22:17"]


async def test_a_clock_that_is_set_back_while_the_process_is_down_fires_nothing_again(
    engine: TestEngine,
) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron())
    await engine.advance(minutes=3)
    engine.close()
    engine.clock.wall_offset_ms -= 150_000
    await down(engine, 10)
    await engine.advance(minutes=4)
    assert minutes(work.calls) == ["22:14", "22:15", "22:16", "22:17"]


async def test_only_the_newest_are_caught_up_if_more_than_max_catchup_were_missed(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    await put(engine, cron(missed_run_policy="run_all", max_catchup=20))
    await down(engine, 6_000)
    await engine.advance(seconds=5)
    assert minutes(work.calls)[::19] == ["23:33", "23:52"]
    dropped = next(row for row in await ledger(engine) if row.reason == "max_catchup")
    assert (dropped.scheduled_at, dropped.times) == (1_700_000_040_000, 79)


async def test_a_schedule_that_is_stored_while_nothing_fires_has_missed_nothing_before(
    engine: TestEngine,
) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine)
    opened.fires.is_open = False
    await put(engine, cron(missed_run_policy="run_all"))
    await down(engine, 10)
    await engine.advance(minutes=1)
    assert minutes(work.calls) == ["22:14"]


async def test_an_idle_engine_writes_nothing(engine: TestEngine) -> None:
    engine.fake_tool("work")
    opened = await put(engine, cron(expression="0 0 0 1 1 *"))
    await engine.advance()
    commits = []
    submit = opened.store.submit
    opened.store.submit = lambda batch, done: (commits.append(batch), submit(batch, done))  # type: ignore[method-assign, assignment, func-returns-value]
    await engine.advance(days=3)
    assert commits == []


async def test_opening_writes_nothing_where_nothing_was_due(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await put(engine, cron(expression="0 0 0 1 1 *"))
    await engine.advance()
    opened = await down(engine, 3_600)
    assert opened.fires.outages.stretches == ()
    assert (await opened.store.awake())[1] is None


async def test_an_outage_is_forgotten_once_nothing_before_its_end_is_left(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await put(engine, cron())
    opened = await down(engine, 600)
    assert (await opened.store.awake())[1] is not None
    assert opened.fires.outages.stretches == ()


async def test_jitter_that_falls_into_an_outage_does_not_lose_the_occurrence(engine: TestEngine) -> None:
    trigger = {"kind": "cron", "expression": "0 * * * * *", "jitter_secs": 50}
    work = engine.fake_tool("work")
    await put(engine, cron(trigger=trigger))
    await engine.advance(seconds=41)  # its nominal time has passed, its jitter has not
    assert work.calls == []
    await down(engine, 40)
    assert minutes(work.calls) == ["22:14"]


async def test_other_work_gets_its_turn_while_schedules_are_decided_after_an_outage(
    engine: TestEngine,
) -> None:
    """Each of these takes a whole answer, about 20 ms: together they must not hold up the server."""
    engine.fake_tool("work")
    schedules = [cron(f"s{n}", "* * * * * *", overlap="buffer_all") for n in range(20)]
    opened = await put(engine, *schedules)
    engine.clock.seconds += EXAMINED_MAX - 1
    states = await opened.store.schedule_states([(DEFAULT_TENANT, spec.id) for spec in schedules])
    turns = [
        [one.due.examined for one in decisions]
        for decisions in opened.fires._decide_all(states, opened.clock.now())
        if decisions
    ]
    assert len(turns) == 20
    assert all(sum(examined) > TURN_WORK for examined in turns)


async def test_what_fires_late_because_the_database_was_away_says_so(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    opened = await put(engine, cron(overlap="allow"))
    committer = opened.door.committer
    committer.is_stalled = committer.is_shut = True
    await engine.advance(seconds=45)  # one occurrence is due meanwhile
    assert work.calls == []
    committer.is_stalled = committer.is_shut = False
    await engine.advance(seconds=60)
    assert minutes(work.calls) == ["22:14", "22:15"]
    late, _ = map(detail_of, await ledger(engine))
    assert late == {"late": "store_unavailable"}
