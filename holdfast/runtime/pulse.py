"""Detects pauses of this process: it was stopped, or a slow disk or a long computation blocked its loop.

Ticks four times a second while there is something to watch; a tick that comes late is a pause. Time during which the
server could not receive messages must not count against workers and attempts, whose messages waited in their sockets.
Knows how long a pause was, not what follows from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from holdfast.runtime.clock import Clock

log = logging.getLogger("holdfast")

TICK_SECONDS: Final = 0.25
PAUSE_SECONDS: Final = 0.5  # between two ticks; a shorter delay is an ordinary turn of a busy loop
LOGGED_SECONDS: Final = 5.0  # a pause of this length is logged


class Pulse:
    """Without `ticks` no pause is detected: for a clock that only moves when the caller moves it."""

    def __init__(self, clock: Clock, *, ticks: bool = True) -> None:
        self._clock, self._last = clock, 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._watchers: list[tuple[Callable[[], bool], Callable[[float], None]]] = []
        self._is_closed = False
        self._ticks = ticks

    def watch(self, is_needed: Callable[[], bool], paused: Callable[[float], None]) -> None:
        """Call `paused` with the length of each pause in seconds. Ticks only while a watcher needs it."""
        self._watchers.append((is_needed, paused))

    def start(self) -> None:
        """There is something to watch from now on."""
        if self._handle is None and not self._is_closed and self._ticks:
            self._last = self._clock.monotonic()
            self._arm()

    def check(self) -> None:
        """Report a pause that has just ended to all watchers. Call this before a timeout is acted on: timers may fire
        first."""
        if self._handle is None:
            return
        now = self._clock.monotonic()
        passed, self._last = now - self._last, now
        if passed >= PAUSE_SECONDS + TICK_SECONDS:
            if passed >= LOGGED_SECONDS:
                log.warning("this process was paused for %.1f s; leases and timeouts are extended", passed)
            for _, paused in self._watchers:
                paused(passed)

    def close(self) -> None:
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self) -> None:
        self._handle = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        self.check()
        self._handle = None
        if any(is_needed() for is_needed, _ in self._watchers):
            self._arm()
