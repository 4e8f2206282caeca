"""Arms the timers of a run, and queues its steps that are under crash isolation. Does not know what happens when a
timer fires."""

from __future__ import annotations

from holdfast.execution.crash_isolation import CrashIsolation
from holdfast.runtime.clock import Clock
from holdfast.runtime.delays import Delays
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.timers import Timers
from holdfast.runtime.waiters import Waiters
from holdfast.values import Millis, RunNo


class Alarms:
    def __init__(
        self, clock: Clock, isolation: CrashIsolation, waiters: Waiters, *, manual_clock: bool = False
    ) -> None:
        self.timers, self.delays = Timers(clock, manual_clock=manual_clock), Delays(clock)
        self._isolation, self._waiters = isolation, waiters

    def arm(self, resident: ResidentRun) -> None:
        """Arm the timers of a run in memory, queue its isolated steps, and wake callers that wait until it is idle."""
        self._waiters.resting(resident)
        wake_at = self.delays.next(resident.run)
        if wake_at is not None:
            self.timers.arm(resident.run.no, wake_at)
        for path in resident.run.suspects():
            self._isolation.add(resident.run.no, path)

    def evicted(self, resident: ResidentRun, wake_at: Millis | None) -> None:
        """A run was evicted from memory. The store knows its timers, except for delays that are measured by the
        monotonic clock."""
        self._waiters.resting(resident)
        self.timers.disarm(resident.run.no)
        self.timers.due_in_store(wake_at)
        self.arm_evicted(resident)

    def arm_evicted(self, resident: ResidentRun) -> None:
        at = self.delays.next(resident.run) if self.delays.is_on else None
        if at is not None and self.delays.has(resident.run.no):
            self.timers.arm(resident.run.no, at)

    def forget(self, no: RunNo) -> None:
        """A run has finished."""
        self.timers.disarm(no)
        self.delays.forget(no)
