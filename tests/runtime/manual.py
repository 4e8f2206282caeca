"""Time by hand: an event loop and a clock that stand still until the test moves them.

The product asks two things for time: its Clock (`now`, `monotonic`) and the event loop (`call_later`). Here both read
one number, so a timer that the product sets with the one and judges by the other cannot fall between them, and no line
of the product is replaced. Threads and I/O stay real: while nothing is ready the loop waits for them, but a scheduled
call comes only when the test has moved time past it.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from holdfast.runtime.clock import uuid7
from holdfast.values import Millis, RunId

P = ParamSpec("P")
T = TypeVar("T")

BEGAN = 1_700_000_000_000
TURNS_MAX = 300_000
STUCK_SECONDS = 10.0  # real ones: nobody moves time, no thread answers, the test would hang


class ManualClock:
    """Wall and monotonic time advance together; the wall clock can also be set, as an operator would."""

    def __init__(self) -> None:
        self.seconds = 1_000.0
        self.wall_offset_ms = 0
        self._ids = 0

    def now(self) -> Millis:
        return Millis(BEGAN + int((self.seconds - 1_000.0) * 1000 + 1e-3) + self.wall_offset_ms)

    def monotonic(self) -> float:
        return self.seconds

    def new_id(self) -> RunId:
        self._ids += 1
        return uuid7(self.now(), self._ids.to_bytes(10, "big"))

    async def advance(self, seconds: float) -> None:
        """Let time pass: every scheduled call comes at its own moment, with all that follows from it."""
        until = self.seconds + seconds
        await settled()
        while (at := _loop().next_call()) is not None and at <= until:
            self.seconds = max(self.seconds, at)
            await settled()
        self.seconds = max(self.seconds, until)
        await settled()

    async def until(self, awaitable: Awaitable[T], *, at_most: float = 1e9) -> T:
        """Let time pass, from one scheduled call to the next, until something has happened."""
        task = asyncio.ensure_future(awaitable)
        end = self.seconds + at_most
        await settled()
        while not task.done():
            at = _loop().next_call()
            if at is None:
                break  # threads and I/O alone can bring it about: wait for them
            assert at <= end, f"it did not happen within {at_most} s"
            self.seconds = max(self.seconds, at)
            await settled()
        return await task


class ManualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = ManualClock()
        super().__init__(_PatientSelector())

    def time(self) -> float:
        return self.clock.seconds

    def _run_once(self) -> None:
        """Time creeps by a nanosecond a turn: sums of floats may fall short of a moment, and never make it up else."""
        self.clock.seconds += 1e-9
        super()._run_once()  # type: ignore[misc]

    def next_call(self) -> float | None:
        """When the next scheduled call is due. The loop's own list: there is no public way to look ahead."""
        calls = [call.when() for call in self._scheduled if not call.cancelled()]  # type: ignore[attr-defined]
        return min(calls, default=None)

    def is_settled(self) -> bool:
        return not self._ready  # type: ignore[attr-defined]


class _PatientSelector(selectors.DefaultSelector):
    """Waits for I/O in real time, since the time until the next scheduled call says nothing about it."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        found = super().select(STUCK_SECONDS)
        assert found, "nothing moves: time stands still and no thread answers"
        return found


def _loop() -> ManualLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, ManualLoop)
    return loop


def clock() -> ManualClock:
    """The clock of the loop that this test runs on."""
    return _loop().clock


async def settled() -> None:
    """Until all that is ready has run, and all that became ready by it."""
    await asyncio.sleep(0)
    for _ in range(TURNS_MAX):
        if _loop().is_settled():
            return
        await asyncio.sleep(0)
    raise AssertionError("the loop does not come to rest")


def by_hand(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on time by hand."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=ManualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
