"""Scheduled plugins on the real engine and a real file, with time by hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import (
    InvalidSpec,
    MissedRunPolicy,
    NotFound,
    Schedule,
    ScheduledPlugin,
    ScheduledRunCtx,
)
from holdfast.testing import TestEngine
from holdfast.values import decode
from tests.triggers.scheduled import ledger, runs, state

MINUTELY = "plugin:cleaner:minutely"
FIRST = 1_700_000_040_000  # it is 40 seconds earlier


class Cleaner(ScheduledPlugin):
    """Notes the context of each run."""

    def __init__(self, name: str = "cleaner", *schedules: Schedule, priority: int = 1000) -> None:
        self._name, self._priority = name, priority
        self._schedules = schedules or (Schedule("minutely", "* * * * *"),)
        self.ran: list[ScheduledRunCtx] = []
        self.is_clean = False

    def name(self) -> str:
        return self._name

    def priority(self) -> int:
        return self._priority

    def schedules(self) -> Sequence[Schedule]:
        return self._schedules

    async def run(self, ctx: ScheduledRunCtx) -> str | None:
        self.ran.append(ctx)
        return None

    def cleanup(self) -> None:
        self.is_clean = True


class Failing(Cleaner):
    async def run(self, ctx: ScheduledRunCtx) -> str | None:
        await super().run(ctx)
        if len(self.ran) == 1:
            raise ValueError("no table")
        return "no disk" if len(self.ran) == 2 else None


class Blocked(Cleaner):
    """Each run waits until it is let go."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.go = asyncio.Event()

    async def run(self, ctx: ScheduledRunCtx) -> str | None:
        await super().run(ctx)
        await self.go.wait()
        return None


async def given(engine: TestEngine, *plugins: Any) -> None:
    engine.options["plugins"] = plugins
    await engine.open()


async def test_a_plugin_runs_at_each_of_its_times_with_its_context(engine: TestEngine) -> None:
    cleaner = Cleaner()
    await given(engine, cleaner)
    await engine.advance(minutes=2)
    assert cleaner.ran == [
        ScheduledRunCtx("minutely", FIRST, 1, total_run_count=1),
        ScheduledRunCtx("minutely", FIRST + 60_000, 2, total_run_count=2),
    ]


async def test_a_fire_is_a_run_of_a_workflow_of_its_own_with_the_context_as_inputs(
    engine: TestEngine,
) -> None:
    await given(engine, Cleaner())
    await engine.advance(minutes=1)
    [run] = await runs(engine)
    assert (run.workflow, run.schedule, run.status) == (MINUTELY, MINUTELY, "completed")
    resident = await (await engine.open())._engine.runs.find(run.id)
    assert decode(resident.run.inputs) == {
        "schedule_id": "minutely", "scheduled_at_ms": FIRST, "run_count": 1, "is_catchup": False, "tenant_id": None,
        "site_id": None, "total_run_count": 1,
    }  # fmt: skip


async def test_an_interval_counts_from_when_the_plugin_was_registered(engine: TestEngine) -> None:
    cleaner = Cleaner("cleaner", Schedule("often", "25s"))
    await given(engine, cleaner)
    await engine.advance(seconds=24.9)
    assert cleaner.ran == []
    await engine.advance(seconds=25.2)
    assert [ctx.scheduled_at_ms - FIRST for ctx in cleaner.ran] == [-15_000, 10_000]


async def test_a_sync_run_does_not_stop_the_engine(engine: TestEngine) -> None:
    here, go = threading.get_ident(), threading.Event()

    class Slow(Cleaner):
        def run(self, ctx: ScheduledRunCtx) -> None:  # type: ignore[override]
            assert threading.get_ident() != here
            assert go.wait(timeout=60)
            self.ran.append(ctx)

    class Later(Cleaner):
        async def run(self, ctx: ScheduledRunCtx) -> None:
            go.set()

    slow = Slow(priority=1)
    await given(engine, slow, Later("later", priority=2))
    await engine.advance(minutes=1)
    assert len(slow.ran) == 1


async def test_a_failed_run_is_not_repeated_and_the_schedule_goes_on(engine: TestEngine) -> None:
    failing = Failing()
    await given(engine, failing)
    await engine.advance(minutes=3)
    assert [run.status for run in await runs(engine)] == ["failed", "failed", "completed"]
    assert len(failing.ran) == 3


async def test_errors_are_counted_with_the_last_message_also_after_a_restart(engine: TestEngine) -> None:
    await given(engine, Failing())
    await engine.advance(minutes=3)
    await engine.restart()
    cursor = (await state(engine, MINUTELY)).cursor
    assert (cursor.error_count, cursor.last_error) == (2, "no disk")


async def test_a_run_that_was_lost_in_a_crash_counts_as_an_error(engine: TestEngine) -> None:
    await given(engine, Blocked())
    await engine.advance(minutes=1)
    await engine.restart()
    [run] = await runs(engine)
    cursor = (await state(engine, MINUTELY)).cursor
    assert (run.status, cursor.error_count) == ("failed", 1)


async def test_a_run_that_takes_longer_than_the_plugin_allows_fails(engine: TestEngine) -> None:
    blocked = Blocked()
    blocked.timeout_secs = 5
    await given(engine, blocked)
    await engine.advance(seconds=50)
    assert [run.status for run in await runs(engine)] == ["failed"]


async def test_a_tick_is_skipped_while_the_previous_run_is_open(engine: TestEngine) -> None:
    blocked = Blocked()
    await given(engine, blocked)
    await engine.advance(minutes=3)
    assert len(blocked.ran) == 1
    skipped = (await ledger(engine, MINUTELY))[-1]
    assert (skipped.outcome, skipped.reason, skipped.times) == ("skipped", "overlap", 2)


async def test_schedules_of_one_plugin_run_at_the_same_time(engine: TestEngine) -> None:
    blocked = Blocked("cleaner", Schedule("a", "* * * * *"), Schedule("b", "* * * * *"))
    await given(engine, blocked)
    await engine.advance(minutes=1)
    assert [ctx.schedule_id for ctx in blocked.ran] == ["a", "b"]


async def test_plugins_that_are_due_together_start_by_priority_then_name_then_id(engine: TestEngine) -> None:
    order: list[str] = []

    class Noted(Cleaner):
        async def run(self, ctx: ScheduledRunCtx) -> None:
            order.append(f"{self._name}:{ctx.schedule_id}")

    both = Schedule("b", "* * * * *"), Schedule("a", "* * * * *")
    await given(
        engine,
        Noted("z", *both, priority=5),
        Noted("a-b", *both),
        Noted("a", *both),
        Noted("m", *both, priority=10),
    )
    await engine.advance(minutes=1)
    assert order == ["z:a", "z:b", "m:a", "m:b", "a:a", "a:b", "a-b:a", "a-b:b"]


# ------------------------------------------------------------------------------------------------- missed and restarted


async def test_after_an_outage_a_plugin_runs_once_for_the_latest_time_it_missed(engine: TestEngine) -> None:
    cleaner = Cleaner("cleaner", Schedule("hourly", "0 * * * *"))
    await given(engine, cleaner)
    await engine.advance()
    engine.close()
    engine.clock.seconds += 5 * 3600
    await engine.open()
    await engine.advance()
    [ctx] = cleaner.ran
    assert (ctx.is_catchup, ctx.run_count) == (True, 1)
    assert ctx.scheduled_at_ms == 1_700_017_200_000  # 03:00, and it is 03:13


async def test_run_all_catches_up_every_time_in_order(engine: TestEngine) -> None:
    every = Schedule("hourly", "0 * * * *", missed_run_policy=MissedRunPolicy.RUN_ALL)
    cleaner = Cleaner("cleaner", every)
    await given(engine, cleaner)
    await engine.advance()
    engine.close()
    engine.clock.seconds += 5 * 3600
    await engine.open()
    await engine.advance()
    hours = [(ctx.scheduled_at_ms - 1_700_002_800_000) / 3_600_000 for ctx in cleaner.ran]
    assert hours == [0, 1, 2, 3, 4]


async def test_the_run_count_begins_anew_with_the_process_and_the_total_goes_on(engine: TestEngine) -> None:
    cleaner = Cleaner()
    await given(engine, cleaner)
    await engine.advance(minutes=2)
    await engine.restart()
    await engine.advance(minutes=1)
    assert [(ctx.run_count, ctx.total_run_count) for ctx in cleaner.ran] == [(1, 1), (2, 2), (1, 3)]


async def test_a_schedule_that_is_gone_does_not_fire_and_keeps_its_ledger(engine: TestEngine) -> None:
    await given(engine, Cleaner())
    await engine.advance(minutes=1)
    other = Cleaner("cleaner", Schedule("other", "@yearly"))
    engine.options["plugins"] = [other]
    await engine.restart()
    await engine.advance(minutes=5)
    assert other.ran == []
    assert [row.outcome for row in await ledger(engine, MINUTELY)] == ["fired"]


async def test_an_engine_without_plugins_leaves_their_schedules_to_the_one_that_has_them(
    engine: TestEngine,
) -> None:
    cleaner = Cleaner("cleaner", Schedule("m", "* * * * *", missed_run_policy=MissedRunPolicy.RUN_ALL))
    await given(engine, cleaner)
    await engine.advance(minutes=1)
    engine.options["plugins"] = None
    await engine.restart()
    await engine.advance(minutes=5)
    assert len(await ledger(engine, "plugin:cleaner:m")) == 1
    engine.options["plugins"] = [cleaner]
    await engine.restart()
    await engine.advance()
    assert [ctx.is_catchup for ctx in cleaner.ran] == [
        False,
        True,
        True,
        True,
        True,
    ]  # the fifth is within the grace


async def test_the_whole_set_may_be_empty(engine: TestEngine) -> None:
    await given(engine, Cleaner())
    engine.options["plugins"] = []
    await engine.restart()
    await engine.advance(minutes=2)
    assert await runs(engine) == []


# ------------------------------------------------------------------------------------------------------------- trust


async def test_a_plugin_that_cannot_be_used_is_reported_and_the_others_start(
    engine: TestEngine, caplog: pytest.LogCaptureFixture
) -> None:
    cleaner = Cleaner()
    await given(engine, Cleaner("bad", Schedule("a", "0s"), Schedule("a", "99 * * * *")), cleaner)
    await engine.advance(minutes=1)
    assert len(cleaner.ran) == 1
    assert (
        "plugin bad" in caplog.text and 'not "0s"' in caplog.text and "duplicate schedule id" in caplog.text
    )


async def test_cleanup_is_called_when_the_engine_closes(engine: TestEngine) -> None:
    cleaner = Cleaner()
    await given(engine, cleaner)
    hf = await engine.open()
    await hf.__aexit__(None, None, None)
    assert cleaner.is_clean


async def test_no_workflow_can_call_a_plugin(engine: TestEngine) -> None:
    await given(engine, Cleaner())
    hf = await engine.open()
    with pytest.raises(InvalidSpec, match="invalid tool name"):
        await hf.start({"name": "x", "steps": [{"id": "a", "tool": "plugin:cleaner", "args": {}}]})


async def test_the_workflow_of_a_plugin_cannot_be_started_by_name(engine: TestEngine) -> None:
    await given(engine, Cleaner())
    hf = await engine.open()
    with pytest.raises(NotFound):
        await hf.start(MINUTELY)


async def test_a_run_of_a_plugin_can_be_repeated_by_hand(engine: TestEngine) -> None:
    cleaner = Cleaner()
    await given(engine, cleaner)
    await engine.advance(minutes=1)
    [run] = await runs(engine)
    await (await (await engine.open()).rerun(run.id)).result()
    assert cleaner.ran[0] == cleaner.ran[1]
