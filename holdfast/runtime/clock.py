"""The only place that knows what time it is, or draws a random number. Everything else is handed both.

Due times are wall-clock milliseconds in UTC; how long something took is measured on the monotonic clock.
"""

from __future__ import annotations

import os
import time
from typing import Protocol

from holdfast.values import Millis, RunId


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
            self._noise = os.urandom(10 * 100)  # one question to the kernel per hundred ids
        noise, self._noise = self._noise[:10], self._noise[10:]
        return uuid7(self.now(), noise)


def uuid7(at: Millis, noise: bytes) -> RunId:
    """A UUID of version 7: sorted by creation, unique by 74 random bits."""
    time, drawn = f"{at:012x}", noise.hex()
    variant = "89ab"[noise[2] & 3]
    return f"{time[:8]}-{time[8:]}-7{drawn[:3]}-{variant}{drawn[5:8]}-{drawn[8:]}"  # type: ignore[return-value]
