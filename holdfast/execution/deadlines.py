"""Timeouts of attempts: one heap and one timer of the event loop. Knows when a timeout is reached, not what follows
from it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from typing import Final

from holdfast.execution.attempt import Attempt, Key
from holdfast.runtime.clock import Clock
from holdfast.runtime.pulse import Pulse
from holdfast.values import RunNo

STALE_ENTRIES: Final = 1_000


class Deadlines:
    """Calls `expire` for each attempt in `attempts` that is still running when its timeout is reached."""

    def __init__(
        self, clock: Clock, pulse: Pulse, attempts: Mapping[Key, Attempt], expire: Callable[[Attempt], None]
    ) -> None:
        self._clock, self._pulse, self._attempts, self._expire = clock, pulse, attempts, expire
        self._heap: list[tuple[float, RunNo, str, int]] = []
        self._timer: asyncio.TimerHandle | None = None
        pulse.watch(lambda: bool(self._heap), self._postpone)

    def add(self, attempt: Attempt, timeout_ms: int) -> None:
        due = self._clock.monotonic() + timeout_ms / 1000
        heapq.heappush(self._heap, (due, attempt.no, attempt.path, attempt.number))
        if len(self._heap) > STALE_ENTRIES + 2 * len(self._attempts):  # most of these attempts ended long ago
            self._heap = [entry for entry in self._heap if entry[1:3] in self._attempts]
            heapq.heapify(self._heap)
        self._pulse.start()
        if self._heap[0][0] == due:
            self._arm(timeout_ms / 1000)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _postpone(self, seconds: float) -> None:
        """While this process was paused, its tools could not run and no response was read, so that time does not
        count."""
        self._heap = [(due + seconds, *start) for due, *start in self._heap]  # type: ignore[misc]  # still a heap

    def _arm(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(max(0.0, delay), self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        self._pulse.check()
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now:
            _, no, path, number = heapq.heappop(self._heap)
            attempt = self._attempts.get((no, path))
            if attempt is not None and attempt.number == number and not attempt.stopped:
                self._expire(attempt)
        if self._heap:
            self._arm(self._heap[0][0] - now)
