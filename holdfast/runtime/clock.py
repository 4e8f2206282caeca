"""The only module that reads a clock or draws a random number. Other modules get the time and random numbers as
parameters.

Due times are wall-clock milliseconds in UTC; durations are measured with the monotonic clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Final, Protocol

from holdfast.values import Millis, RunId

JUMP_MS_LEAST: Final = 1_000  # smaller steps are ordinary corrections of a clock


class Clock(Protocol):
    def now(self) -> Millis: ...
    def monotonic(self) -> float: ...
    def new_id(self) -> RunId: ...


class SystemClock:
    def __init__(self) -> None:
        self._noise = b""
        self.monotonic = time.monotonic

    def now(self) -> Millis:
        return time.time_ns() // 1_000_000  # type: ignore[return-value]  # asked for every event: no call to spare

    def new_id(self) -> RunId:
        if not self._noise:
            self._noise = os.urandom(10 * 100)  # one system call for a hundred ids
        noise, self._noise = self._noise[:10], self._noise[10:]
        return uuid7(self.now(), noise)


class SharedClock(SystemClock):
    """The clock of the database that several nodes share, so that their due times and claims agree: `offset_ms` says how far it is
    ahead of the monotonic clock of this machine. The wall clock of this machine may be wrong, or be set, without effect."""

    def __init__(self, offset_ms: Callable[[], int]) -> None:
        super().__init__()
        self._offset_ms = offset_ms

    def now(self) -> Millis:
        return Millis(time.monotonic_ns() // 1_000_000 + self._offset_ms())


def uuid7(at: Millis, noise: bytes) -> RunId:
    """A UUID of version 7: sorted by creation, unique by 74 random bits."""
    drawn = noise.hex()
    variant = "89ab"[noise[2] & 3]
    return f"{_drawn_at(at)}{drawn[:3]}-{variant}{drawn[5:8]}-{drawn[8:]}"  # type: ignore[return-value]


@lru_cache(1)  # many runs start at the same time
def _drawn_at(at: Millis) -> str:
    time = f"{at:012x}"
    return f"{time[:8]}-{time[8:]}-7"


class Steady:
    """A clock that follows the wall clock, but continues by the monotonic clock when the wall clock is set back.

    Used for delays after an event, such as the next attempt of a delivery: if the wall clock were set back by five
    hours, it would postpone them by five hours. When the wall clock is set forward, or after a suspend, this clock
    follows it again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock, self.monotonic, self.new_id = clock, clock.monotonic, clock.new_id
        self._ahead = clock.now() - int(
            clock.monotonic() * 1000
        )  # how far the wall clock is ahead of the monotonic clock

    def begin(self) -> None:
        """Follow the wall clock as it is now, whatever it said before."""
        self._ahead = self._clock.now() - int(self.monotonic() * 1000)

    def at_least(self, at: Millis) -> None:
        """Continue from this time, which was reached before the wall clock was set back and before this process
        started."""
        self._ahead = max(self._ahead, at - int(self.monotonic() * 1000))

    def now(self) -> Millis:
        wall, passed = self._clock.now(), int(self.monotonic() * 1000)
        if self._ahead + passed - wall >= JUMP_MS_LEAST:
            return Millis(self._ahead + passed)
        self._ahead = wall - passed
        return wall
