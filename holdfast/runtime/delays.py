"""Corrects delays of runs that were stored before the wall clock was set back. Does not fire timers.

Timers are due by the wall clock. A delay that counts from an event (a retry, a poll, a grace period, the pause before
an isolated step) would grow by as much as the clock is set back. If the last event of a run is in the future, it was
stored before the change. Then the rest of the delay is measured again by the monotonic clock, from the moment this
process first reads the run: the delay is never too short, and at most twice as long. A timer with a fixed time (a
deadline, the expiry of a wait, a timer step) waits for that time.
"""

from __future__ import annotations

from typing import Final

from holdfast.engine.state import Run, timer_of
from holdfast.runtime.clock import JUMP_MS_LEAST, Clock
from holdfast.values import Millis, RunNo

COUNTED: Final = frozenset({"retry", "poll", "grace", "suspect"})  # timers that count from an event


class Delays:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # by timer: its due time, and when it ends by the monotonic clock
        self._ends: dict[RunNo, dict[str, tuple[Millis, int]]] = {}
        self.is_on = False  # the wall clock was set back while this process ran

    def has(self, no: RunNo) -> bool:
        return no in self._ends

    def forget(self, no: RunNo) -> None:
        self._ends.pop(no, None)

    def next(self, run: Run) -> Millis | None:
        """When the run's next timer fires, by the wall clock as it is set now."""
        return min(self.hours(run).values(), default=None) if self.is_on else run.wake_at

    def hours(self, run: Run) -> dict[str, Millis]:
        """The timers of a run, and when each is due by the wall clock as it is set now."""
        if not self.is_on:
            return run.timers
        now, passed = self._clock.now(), self._passed()
        self._measure(run, now, passed)
        ends = self._ends.get(run.no, {})
        return {
            key: Millis(now + ends[key][1] - passed) if key in ends else at for key, at in run.timers.items()
        }

    def _measure(self, run: Run, now: Millis, passed: int) -> None:
        known, ends = self._ends.pop(run.no, {}), {}
        if run.at - now >= JUMP_MS_LEAST:
            for key, at in run.timers.items():
                if timer_of(key)[0] in COUNTED:
                    was = known.get(key, (at, passed + max(0, at - run.at)))
                    ends[key] = was if was[0] == at else (at, passed + max(0, at - run.at))
        if ends:
            self._ends[run.no] = ends

    def _passed(self) -> int:
        return int(self._clock.monotonic() * 1000)
