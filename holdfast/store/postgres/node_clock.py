"""The clock of the database, as this node reads it, and how far the clock of this machine is off.

Measured when the node joins and with each renewal of its lease. Between two measurements the monotonic clock of this machine
goes on, so setting its wall clock changes nothing.
"""

from __future__ import annotations

import logging
import time
from typing import Final

log = logging.getLogger("holdfast")

STEP_MS_LEAST: Final = 20  # a smaller difference is within what a measurement can tell
WARN_MS: Final = 1_000


class NodeClock:
    def __init__(self) -> None:
        self.offset_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000
        self.wall_ahead_ms = 0  # of this machine, by the database's clock
        self._is_warned = False

    def measured(self, sent: float, now_ms: int) -> None:
        """The database said that it was `now_ms`, in the answer to what was sent at this monotonic time."""
        received = time.monotonic()
        offset = now_ms - int((sent + received) * 500)  # the answer took half of it
        if abs(offset - self.offset_ms) >= STEP_MS_LEAST + int((received - sent) * 1000):
            self.offset_ms = offset
        self.wall_ahead_ms = (time.time_ns() - time.monotonic_ns()) // 1_000_000 - self.offset_ms
        is_off = abs(self.wall_ahead_ms) >= WARN_MS
        if is_off and not self._is_warned:
            how = "ahead of" if self.wall_ahead_ms > 0 else "behind"
            log.warning(
                "the clock of this machine is %.0f s %s the database's; due times follow the database's clock. Correct it with NTP",
                abs(self.wall_ahead_ms) / 1000,
                how,
            )
        self._is_warned = is_off

    def now(self) -> int:
        return time.monotonic_ns() // 1_000_000 + self.offset_ms
