"""Wakes runs when a timer is due. Does not know what a timer is for.

Timers of runs in memory are kept in a heap. For evicted runs only the earliest due time is kept; the store has the
rest. While there is any deadline, the loop sleeps for at most a second and reads the wall clock again. A changed
clock, or a machine that was suspended, therefore delays a timer by at most a second. Without a deadline the loop does
not wake up. A wall clock that was set back, or that jumped forward after a suspend, is reported.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable
from typing import Final

from holdfast.runtime.clock import JUMP_MS_LEAST, Clock
from holdfast.values import Millis, RunNo

SLEEP_SECONDS_MAX: Final = 1.0
# uvloop measures a sleep from the start of its turn, so a sleep that begins at the end of a long turn lasts too long.
# The last part is therefore slept separately, in a turn that does nothing else.
LAST_STRETCH_SECONDS: Final = 0.02
STALE_ENTRIES: Final = 1_000
# Timers that fire per turn; the next work of their runs starts before more runs are woken.
WOKEN_AT_ONCE: Final = 500


class Timers:
    """With `manual_clock` the clock only moves when the caller moves it, so it is not read in between."""

    def __init__(self, clock: Clock, *, manual_clock: bool = False) -> None:
        self._clock = clock
        self._awake_at: Millis | None = None  # when the wall clock was last read while there was a deadline
        self._ahead: int | None = None  # by the monotonic clock, in ms, when the wall clock was last read
        self._heap: list[tuple[Millis, RunNo]] = []
        self._armed: dict[RunNo, Millis] = {}
        self._in_store: Millis | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._until = Millis(0)  # the time for which the handle is set
        self._is_closed = self._is_watching = False
        self.sleep_seconds_max = math.inf if manual_clock else SLEEP_SECONDS_MAX
        self._last_stretch_seconds = 0.0 if manual_clock else LAST_STRETCH_SECONDS

    def begin(
        self,
        wake: Callable[[RunNo], int | None],
        query: Callable[[], None],
        set_back: Callable[[], None] = lambda: None,
        jumped: Callable[[Millis], None] = lambda awake_at: None,
    ) -> None:
        """Set the callbacks: `wake` for a run in memory that is due, which returns how many of its timers fired if that is
        known, `query` when a run in the store is due, `set_back` when the wall clock was set back, and `jumped` when it
        moved further than the monotonic clock, with the time before that."""
        self._wake, self._query, self._set_back, self._jumped = wake, query, set_back, jumped

    def arm(self, no: RunNo, at: Millis) -> None:
        """Wake this run at `at`; a later call replaces an earlier one."""
        if self._armed.get(no) != at:
            self._armed[no] = at
            heapq.heappush(self._heap, (at, no))
            if len(self._heap) > STALE_ENTRIES + 2 * len(self._armed):  # most entries are out of date
                self._heap = [(due, run) for run, due in self._armed.items()]
                heapq.heapify(self._heap)
            if self._handle is None or at < self._until:
                self._sleep()

    def disarm(self, no: RunNo) -> None:
        self._armed.pop(no, None)

    def due_in_store(self, at: Millis | None) -> None:
        """A run in the store is due at `at`: query the store by then. None: no run in the store is due at any time."""
        if at is not None and (self._in_store is None or at < self._in_store):
            self._in_store = at
            self._sleep()
        elif at is None and self._next() is None:
            self._awake_at = None  # a jump until the next deadline concerns nothing

    def watch(self, is_watching: bool) -> None:
        """Whether to read the clock each second although no deadline is known: what is due is being looked for, and that can take
        long. A jump is otherwise noticed afterwards, and the time until then taken for a part of it."""
        self._is_watching = is_watching
        self._sleep()

    def read_clock(self) -> None:
        """This process has set the clock, so a timer may be due sooner."""
        self._sleep()

    def check_clock(self) -> Millis:
        """Read the wall clock, and report if it was changed since the last reading."""
        now = self._clock.now()
        before, self._ahead = self._ahead, self._ahead_of_monotonic(now)
        awake_at, self._awake_at = self._awake_at, now
        if before is not None and before - self._ahead >= JUMP_MS_LEAST:
            self._set_back()
        elif before is not None and self._ahead - before >= JUMP_MS_LEAST and awake_at is not None:
            self._jumped(awake_at)
        return now

    def close(self) -> None:
        self._is_closed = True
        if self._handle is not None:
            self._handle.cancel()

    def _next(self) -> Millis | None:
        while self._heap and self._armed.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # the timer was changed or removed since
        first = self._heap[0][0] if self._heap else None
        if self._in_store is None or first is None:
            return first if self._in_store is None else self._in_store
        return min(first, self._in_store)

    def _sleep(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        now, at = self._clock.now(), self._next()
        if at is None and self._is_watching and self.sleep_seconds_max < math.inf:
            at = Millis(now + int(self.sleep_seconds_max * 1000))
        if at is not None and not self._is_closed:
            self._until = at
            if self._awake_at is None:
                self._awake_at = now
                ahead = self._ahead_of_monotonic(now)
                self._ahead = ahead if self._ahead is None else max(ahead, self._ahead)
            delay = (at - now) / 1000
            if delay > 2 * self._last_stretch_seconds:
                delay -= self._last_stretch_seconds
            self._handle = asyncio.get_running_loop().call_later(
                min(max(0.0, delay), self.sleep_seconds_max), self._tick
            )

    def _ahead_of_monotonic(self, now: Millis) -> int:
        return now - int(self._clock.monotonic() * 1000)

    def _tick(self) -> None:
        self._handle = None
        now = self.check_clock()
        if self._in_store is not None and self._in_store <= now:
            self._in_store = None
            self._query()
        woken = 0
        while woken < WOKEN_AT_ONCE and self._heap and self._heap[0][0] <= now:
            at, no = heapq.heappop(self._heap)
            if self._armed.get(no) == at:  # otherwise the timer was changed or removed since
                del self._armed[no]
                woken += self._wake(no) or 1
        self._sleep()
