"""The clock and the event loop of a test: both read one number, which changes only when the test advances it."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:  # pytest loads this file at every start, used or not: the rest is imported on first use
    from holdfast.values import Millis, RunId


T = TypeVar("T")
# 14 November 2023, 22:13:20 UTC, so that a test sees the same dates whenever it runs
BEGAN: Final = 1_700_000_000_000
TURNS_MAX: Final = 300_000
JUMPS_MAX: Final = 1_000_000
# of real time: after this long without progress the test fails instead of hanging
STUCK_SECONDS: Final = 10.0
SOCKET_SECONDS: Final = 0.25  # of real time: how long the clock waits for an async tool that uses a socket
MOMENT_SECONDS: Final = 0.002


class ManualClock:
    """A manual clock: wall and monotonic time advance together. The wall clock can also be set, as an operator would."""

    def __init__(self, seconds: float = 1_000.0) -> None:
        self.seconds = self._began = seconds
        self.wall_offset_ms = 0
        self._read_at, self._read_ms = seconds, BEGAN  # the last reading: one turn of the loop makes many
        self._ids = 0
        self._uuid7: Callable[[Millis, bytes], RunId] | None = None

    def now(self) -> Millis:
        if self.seconds != self._read_at:
            self._read_at, passed = self.seconds, int((self.seconds - self._began) * 1000 + 1e-3)
            self._read_ms = BEGAN + passed
        return self._read_ms + self.wall_offset_ms  # type: ignore[return-value]

    def monotonic(self) -> float:
        return self.seconds

    def new_id(self) -> RunId:
        if self._uuid7 is None:
            from holdfast.runtime.clock import uuid7

            self._uuid7 = uuid7
        self._ids += 1
        return self._uuid7(self.now(), self._ids.to_bytes(10, "big"))

    def go_on_from(self, seconds: float) -> None:
        """Set the number that the clock counts from. No time passes."""
        self._began += seconds - self.seconds
        self.seconds = max(seconds, self._began)
        self._read_at = math.nan

    def loop_time(self) -> float:
        """The time for the event loop. Each call advances it by the smallest possible step, because a sum of floats
        may end just short of a due time and would never reach it. After some months that step is more than a
        nanosecond."""
        self.seconds += max(1e-9, math.ulp(self.seconds))
        return self.seconds

    async def advance(self, seconds: float, rest: Callable[[], Awaitable[None]] | None = None) -> None:
        """Advance time: every scheduled call runs at its own time, with everything that follows from it until `rest`."""
        rest = rest or settled
        until = self.seconds + seconds
        await rest()
        while (at := next_call()) is not None and at <= until:
            self.seconds = max(self.seconds, at)
            await rest()
        self.seconds = max(self.seconds, until)
        await rest()

    async def until(self, awaitable: Awaitable[T], *, at_most: float = math.inf) -> T:
        """Advance time from one scheduled call to the next, until a condition is true."""
        task = asyncio.ensure_future(awaitable)
        end = self.seconds + at_most
        await settled()
        while not task.done():
            at = next_call()
            if at is None:
                break  # only threads and I/O can make it true: wait for them
            assert at <= end, f"the condition did not become true within {at_most} s"
            self.seconds = max(self.seconds, at)
            await settled()
        return await task


class ManualLoop(asyncio.SelectorEventLoop):
    """An event loop on a manual clock, which raises an error when nothing can make progress."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(_PatientSelector())

    def time(self) -> float:
        return self.clock.loop_time()


class _PatientSelector(selectors.DefaultSelector):
    """Waits for I/O in real time, because the time until the next scheduled call says nothing about it."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        found = super().select(STUCK_SECONDS)
        assert found, (
            "no progress: the clock is stopped and no thread is busy; advance it with `await engine.advance(hours=1)`"
        )
        return found


def next_call() -> float | None:
    """When the next scheduled call is due. Reads a private list of the loop, which has no public method for this."""
    calls = [call.when() for call in manual_loop()._scheduled if not call.cancelled()]
    return min(calls, default=None)


async def settled() -> None:
    """Run until all ready callbacks, and those that they schedule, have run."""
    loop = manual_loop()
    await asyncio.sleep(0)
    for _ in range(TURNS_MAX):
        if not loop._ready:
            return
        await asyncio.sleep(0)
    raise AssertionError("the event loop does not become idle")


def manual_loop() -> Any:
    loop = asyncio.get_running_loop()
    if not isinstance(loop, asyncio.BaseEventLoop):
        raise TypeError(f"a manual clock needs asyncio's own event loop, not {type(loop).__module__}")
    return loop
