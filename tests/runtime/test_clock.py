"""A clock that is set by hours, a machine that sleeps, a process that is killed, in any order: every wait ends when its
hour has come by the wall clock, never before, and once. Back-offs and polls have no hour: a clock that is set back does
not hold them up, and none is too short by the monotonic clock."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from holdfast import tool
from holdfast.engine.decisions import ArmTimer, Poll
from holdfast.engine.events import TimerFired
from holdfast.runtime.delays import COUNTED
from holdfast.runtime.entries import Entry
from holdfast.spec.workflow import WorkflowSpec
from holdfast.store.batch import Batch
from holdfast.waits import polling
from tests.runtime.bench import Bench, opened, rows, started
from tests.runtime.manual import by_hand, clock, settled

HOUR_MS = 3_600_000
# Where a wait has two timers their hours are close together: the one that has come must not bring the other along.
WAITS = {
    "timer": "{id: a, kind: timer, delay_ms: '{{ inputs.ms }}'}",
    "callback": "{id: a, tool: ask, pending_ttl_secs: 5400, retry: {max_attempts: 1}}",
    "poll": "{id: a, tool: ask_at, pending_ttl_secs: 8000, poll: {interval_ms: 600000, max_ms: 3600000}, retry: {max_attempts: 1}}",
    "approval": "{id: a, kind: approve, timeout_secs: 7200, quorum: {need: 1, of: [bob]}, escalate: {after_secs: 7000, to: ada}}",
    "signal": "{id: a, kind: wait_event, signal_key: go, timeout_secs: 3000}",
    "back-off": "{id: a, tool: flaky, retry: {max_attempts: 3, backoff: fixed, initial_delay_ms: 2400000, max_delay_ms: 2400000}}",
}
OF_EACH = 4
MOVES = 40


@tool
async def ask() -> dict[str, Any]:
    return {"pending": True, "task_id": "T"}


@tool
async def ask_at() -> dict[str, Any]:
    return {"pending": True, "task_id": "T", "poll_url": "http://127.0.0.1:9/T"}


async def not_yet(*_: Any) -> tuple[bytes, str]:
    """What is found at that address."""
    return b'{"pending": true, "task_id": "T"}', "here"


@tool
async def flaky() -> None:
    raise ValueError("not yet")


TOOLS = [ask, ask_at, flaky]


class Watch:
    """Sees in every commit which timers were set and which fired, and reads the wall clock then."""

    def __init__(self) -> None:
        self.set: dict[tuple[int, str, str], int] = {}
        self.counts_until: dict[tuple[int, str, str], float] = {}  # by the monotonic clock
        self.fired: Counter[tuple[int, str, str, int]] = Counter()
        self.early: list[tuple[int, str, str, int]] = []
        self.last_looks: set[tuple[int, str]] = set()

    def committed(self, batch: Batch, entries: list[Entry], seconds: float) -> None:
        for resident, event, decisions, _ in entries:
            no = resident.run.no
            if isinstance(event, TimerFired):
                due = self.set[key := (no, event.path, event.timer)]
                self.fired[no, event.path, event.timer, due] += 1
                is_last_poll = (no, event.path) in self.last_looks  # its hour has come: it ends with the look
                is_over = event.timer in COUNTED and clock().monotonic() >= self.counts_until[key]
                if clock().now() < due and not is_over and not (is_last_poll and event.timer == "expiry"):
                    self.early.append((no, event.path, event.timer, due - clock().now()))
                if event.timer == "expiry" and any(isinstance(order, Poll) for order in decisions):
                    self.last_looks.add((no, event.path))
            for order in decisions:
                if isinstance(order, ArmTimer):
                    self.set[no, order.path, order.timer] = order.at
                    delay = (order.at - resident.run.at) / 1000
                    self.counts_until[no, order.path, order.timer] = clock().monotonic() + delay - 0.001


async def began(engine: Bench) -> None:
    for number in range(OF_EACH):
        for name, step in WAITS.items():
            await engine.begin(f"name: {name}\nsteps: [{step}]", {"ms": (number + 1) * 1_700_000})


async def moved(rng: random.Random, hours: list[int]) -> bool:
    """Let something happen to time; says whether the process is to be killed instead."""
    what = rng.choices(("pass", "edge", "back", "forward", "suspend", "kill"), (2, 8, 2, 1, 1, 3))[0]
    if what == "pass":
        await clock().advance(rng.random() * 20)
    elif what == "edge":  # to the very moment at which something is due next, or just before it
        due = min((hour for hour in hours if hour > clock().now()), default=clock().now())
        clock().wall_offset_ms += due - clock().now() - rng.choice((0, 0, 1, 1_000))
        await clock().advance(rng.choice((0.0, 1.5)))
    elif what in ("back", "forward"):
        clock().wall_offset_ms += rng.randrange(3 * HOUR_MS) * (1 if what == "forward" else -1)
        await clock().advance(rng.choice((0.0, 1.5)))
    elif (
        what == "suspend"
    ):  # the monotonic clock stands still while a machine sleeps, the wall clock does not
        clock().wall_offset_ms += rng.randrange(HOUR_MS)
        await clock().advance(1.5)
    return what == "kill"


@pytest.mark.parametrize("seed", range(3))
@by_hand
async def test_whatever_the_clock_does_no_wait_ends_early_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(polling, "get", not_yet)
    rng, watch, moves = random.Random(seed), Watch(), 0
    while moves < MOVES:
        async with opened(tmp_path, TOOLS, clock()) as engine:
            engine.door.watchers.append(watch.committed)
            if not moves:
                await began(engine)
            while (moves := moves + 1) < MOVES and not await moved(rng, sorted(watch.set.values())):
                pass
            await settled()
            engine.crash()
    async with opened(tmp_path, TOOLS, clock()) as engine:
        engine.door.watchers.append(watch.committed)
        for _ in range(10):  # what a back-off or a last look sets anew is due later again
            clock().wall_offset_ms = (
                max(watch.set.values()) + HOUR_MS - (clock().now() - clock().wall_offset_ms)
            )
            await clock().advance(2.5)
    assert watch.early == []
    assert set(watch.fired.values()) == {1}, "a timer fired twice"
    left = rows(tmp_path, "SELECT no, status FROM run WHERE status NOT IN ('completed', 'failed')")
    assert left == []
    assert rows(tmp_path, "SELECT count(*) FROM run") == [(OF_EACH * len(WAITS),)]


@by_hand
async def test_a_clock_that_was_set_back_by_hours_lets_a_wait_end_at_its_hour(tmp_path: Path) -> None:
    async with opened(tmp_path, [ask], clock()) as engine:
        engine.door.watchers.append((watch := Watch()).committed)
        run = await engine.begin(f"name: n\nsteps: [{WAITS['callback']}]")
        await settled()
        due = max(watch.set.values())
        clock().wall_offset_ms -= 5 * HOUR_MS
        await clock().advance(90)
        assert await run.status() == "waiting"
        clock().wall_offset_ms += due - clock().now() - 500
        await clock().advance(0.4)
        assert await run.status() == "waiting"
        await clock().advance(2)
        assert await run.status() == "failed"


AT_ONCE = 10_000


@by_hand
async def test_timers_that_are_all_due_at_one_instant_all_fire_once(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        engine.door.watchers.append((watch := Watch()).committed)
        spec = WorkflowSpec.from_yaml_str("name: n\nsteps: [{id: a, kind: timer, delay_ms: 3600000}]")
        for _ in range(0, AT_ONCE, 500):
            await asyncio.gather(*(started(engine, spec) for _ in range(500)))
        await settled()
        assert len(set(watch.set.values())) == 1 and len(watch.set) == AT_ONCE
        clock().wall_offset_ms += HOUR_MS
        await clock().advance(5)
        assert (len(watch.fired), set(watch.fired.values())) == (AT_ONCE, {1})
        assert watch.early == []
        assert rows(tmp_path, "SELECT status, count(*) FROM run GROUP BY 1") == [("completed", AT_ONCE)]


PATIENT = "retry: {max_attempts: 2, backoff: fixed, initial_delay_ms: %d, max_delay_ms: 60000}"


@pytest.mark.parametrize("delay_ms", [2_000, 20_000])  # one stays in memory, the other is parked
@pytest.mark.parametrize("seconds", [0.5, 1.5])
@by_hand
async def test_a_clock_that_is_set_back_by_hours_does_not_hold_up_a_retry(
    tmp_path: Path, delay_ms: int, seconds: float
) -> None:
    began: list[float] = []

    @tool
    async def fails() -> None:
        began.append(clock().monotonic())
        raise ValueError("no")

    async with opened(tmp_path, [fails], clock()) as engine:
        run = await engine.begin(f"name: n\nsteps: [{{id: a, tool: fails, {PATIENT % delay_ms}}}]")
        await clock().advance(seconds)
        clock().wall_offset_ms -= 5 * HOUR_MS
        await clock().advance(2 * delay_ms / 1000 + 3)
        assert await run.status() == "failed"
        assert began[1] - began[0] >= delay_ms / 1000


@by_hand
async def test_polls_go_on_at_their_pace_however_often_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[float] = []

    async def look(*_: Any) -> tuple[bytes, str]:
        looked.append(clock().monotonic())
        return b'{"pending": true, "task_id": "T"}', "here"

    monkeypatch.setattr(polling, "get", look)
    poll = "{id: a, tool: ask_at, pending_ttl_secs: 80000, poll: {interval_ms: 10000, max_ms: 10000}}"
    async with opened(tmp_path, [ask_at], clock()) as engine:
        run = await engine.begin(f"name: n\nsteps: [{poll}]")
        for _ in range(3):
            await clock().advance(60)
            clock().wall_offset_ms -= 5 * HOUR_MS
        await clock().advance(60)
        assert await run.status() == "waiting"
    gaps = [after - before for before, after in itertools.pairwise(looked)]
    assert len(looked) >= 18
    assert min(gaps) >= 9.9 and max(gaps) < 22


@by_hand
async def test_a_run_that_was_answered_after_the_clock_was_set_back_waits_as_long_as_it_says(
    tmp_path: Path,
) -> None:
    began: list[float] = []

    @tool
    async def fails() -> None:
        began.append(clock().monotonic())
        raise ValueError("no")

    retry = PATIENT % 20_000
    steps = (
        f"[{{id: w, kind: wait_event, signal_key: go, timeout_secs: 90000}}, {{id: a, tool: fails, {retry}}}]"
    )
    async with opened(tmp_path, [fails], clock()) as engine:
        run = await engine.begin(f"name: n\nsteps: {steps}")
        await clock().advance(10)
        clock().wall_offset_ms -= 5 * HOUR_MS
        await clock().advance(10)
        await engine.runs.signal(run.id, "go", {})
        await clock().advance(45)
        assert await run.status() == "failed"
        assert 20 <= began[1] - began[0] <= 41


@pytest.mark.parametrize("delay_ms", [2_000, 20_000])
@pytest.mark.parametrize("killed", [False, True])
@by_hand
async def test_a_clock_that_was_set_back_while_no_process_ran_does_not_hold_up_a_retry(
    tmp_path: Path, delay_ms: int, killed: bool
) -> None:
    @tool
    async def fails() -> None:
        raise ValueError("no")

    async with opened(tmp_path, [fails], clock()) as engine:
        await engine.begin(f"name: n\nsteps: [{{id: a, tool: fails, {PATIENT % delay_ms}}}]")
        await clock().advance(0.5)
        if killed:
            engine.crash()
    clock().wall_offset_ms -= 5 * HOUR_MS
    async with opened(tmp_path, [fails], clock()) as engine:
        await clock().advance(2 * delay_ms / 1000 + 3)
        assert rows(tmp_path, "SELECT status FROM run") == [("failed",)]
