"""The machine's own clocks: the loop sleeps by the monotonic one, which stands still while a machine sleeps, and what is
due is due by the wall clock, which people set. Each look at the one must not trust the other for long."""

from __future__ import annotations

import asyncio
from pathlib import Path

from holdfast import Holdfast
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.timers import SLEEP_SECONDS_MAX, Timers
from holdfast.values import Millis, RunNo

HOUR_MS = 3_600_000


class SetClock(SystemClock):
    """The real clock, and by how much somebody has set it, or for how long the machine has slept."""

    def __init__(self) -> None:
        super().__init__()
        self.offset_ms = 0

    def now(self) -> Millis:
        return Millis(super().now() + self.offset_ms)


class Watched:
    def __init__(self) -> None:
        self.clock, self.woken, self.looks = SetClock(), list[RunNo](), 0
        self.timers = Timers(self.clock)
        self.timers.begin(self.woken.append, self.look)

    def look(self) -> None:
        self.looks += 1

    def sleeps_for(self) -> float | None:
        """How long the loop sleeps from now on before it looks at the wall clock again."""
        handle = self.timers._handle
        return None if handle is None else handle.when() - asyncio.get_running_loop().time()

    def wakes_up(self) -> None:
        """The sleep of the loop is over."""
        handle = self.timers._handle
        assert handle is not None
        handle.cancel()
        self.timers._tick()


def test_with_nothing_to_wake_the_loop_sleeps_for_good() -> None:
    async def main() -> None:
        watched = Watched()
        assert watched.sleeps_for() is None
        watched.timers.arm(RunNo(1), watched.clock.now())
        watched.wakes_up()
        assert (watched.woken, watched.sleeps_for()) == ([1], None)

    asyncio.run(main())


def test_however_late_something_is_due_the_wall_clock_is_looked_at_within_a_second() -> None:
    async def main() -> None:
        watched = Watched()
        watched.timers.due_in_store(Millis(watched.clock.now() + 24 * HOUR_MS))
        for _ in range(3):
            slept = watched.sleeps_for()
            assert slept is not None and slept <= SLEEP_SECONDS_MAX
            watched.wakes_up()
        assert watched.looks == 0
        watched.timers.close()

    asyncio.run(main())


def test_while_what_is_due_is_looked_for_the_wall_clock_is_read_within_a_second() -> None:
    async def main() -> None:
        watched = Watched()
        watched.timers.watch(True)
        for _ in range(3):
            slept = watched.sleeps_for()
            assert slept is not None and slept <= SLEEP_SECONDS_MAX
            watched.wakes_up()
        watched.timers.watch(False)
        assert (watched.looks, watched.sleeps_for()) == (0, None)

    asyncio.run(main())


def test_what_became_due_while_the_machine_slept_is_woken_by_the_next_look() -> None:
    async def main() -> None:
        watched = Watched()
        watched.timers.arm(RunNo(1), Millis(watched.clock.now() + HOUR_MS))
        watched.timers.due_in_store(Millis(watched.clock.now() + 2 * HOUR_MS))
        watched.clock.offset_ms += 3 * HOUR_MS
        watched.wakes_up()
        assert (watched.woken, watched.looks) == ([1], 1)
        watched.timers.close()

    asyncio.run(main())


def test_a_clock_that_was_set_back_wakes_no_timer_early() -> None:
    async def main() -> None:
        watched = Watched()
        watched.timers.arm(RunNo(1), Millis(watched.clock.now() + 5))
        watched.clock.offset_ms -= HOUR_MS
        watched.wakes_up()
        slept = watched.sleeps_for()
        assert watched.woken == []
        assert slept is not None and slept <= SLEEP_SECONDS_MAX
        watched.clock.offset_ms += HOUR_MS + 5
        watched.wakes_up()
        assert watched.woken == [1]

    asyncio.run(main())


def test_a_run_goes_on_when_the_clock_of_the_machine_is_set_to_its_hour(tmp_path: Path) -> None:
    async def main() -> None:
        clock = SetClock()
        async with Holdfast(f"sqlite:///{tmp_path / 'h.db'}", clock=clock, durability="relaxed") as hf:
            hf._engine.timers.sleep_seconds_max = 0.01  # in the place of a second, which a test can spare
            run = await hf.start("{name: w, steps: [{id: a, kind: timer, delay_ms: 7200000}]}")
            assert await run.status() == "waiting"
            clock.offset_ms += 2 * HOUR_MS
            await run.result()

    asyncio.run(main())
