"""Expires leases, calls and offers: one timer of the event loop checks all open jobs.

Knows the times of jobs, not how they are stored: it is given the open jobs, and two functions for expired ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from holdfast import limits
from holdfast.runtime.clock import Clock
from holdfast.runtime.pulse import Pulse
from holdfast.tools.failures import ToolError
from holdfast.workers.assignment import Assignment, Key
from holdfast.workers.push import NoWorker
from holdfast.workers.registry import WorkerRegistry

log = logging.getLogger("holdfast")

SWEEP_SECONDS: Final = 1.0


class Expiry:
    def __init__(
        self,
        jobs: Mapping[Key, Assignment],
        registry: WorkerRegistry,
        clock: Clock,
        pulse: Pulse,
        *,
        fail: Callable[[Assignment, ToolError], None],
        take_back: Callable[[Assignment], None],
    ) -> None:
        self._jobs, self._registry, self._clock, self._pulse = jobs, registry, clock, pulse
        self._fail, self._take_back = fail, take_back
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def watch(self, at: float) -> None:
        """Check the open jobs at this time, or earlier."""
        self._pulse.start()
        now = self._clock.monotonic()
        at = min(at, now + SWEEP_SECONDS)
        if self._timer is not None and self._timer_at <= at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self._check_all)

    def _check_all(self) -> None:
        self._timer = None
        self._pulse.check()
        now = self._clock.monotonic()
        able: dict[tuple[str, str], bool] = {}
        for assignment in list(self._jobs.values()):
            if assignment.result is None or assignment.result.done():
                continue
            if assignment.is_leased:
                self._check_lease(assignment, now)
            else:
                self._check_offer(assignment, now, able)
        due = [each.due for each in self._jobs.values() if each.result is not None and not each.result.done()]
        if due:
            self.watch(min(due))

    def _check_lease(self, assignment: Assignment, now: float) -> None:
        job, row = assignment.job, assignment.row
        assert job is not None
        if assignment.stop_until is not None and assignment.stop_until <= now:
            self._fail(assignment, ToolError(f"worker {row.worker} did not stop in time", kind="cancelled"))
        elif assignment.call_until <= now and assignment.stop_until is None:
            timeout_ms = job.rule.call_timeout_ms or 0
            message = f"worker {row.worker} did not respond within {timeout_ms / 1000:g} s"
            self._fail(assignment, ToolError(message, kind="timeout"))
        elif assignment.lease_until <= now:
            self._lease_expired(assignment)

    def _lease_expired(self, assignment: Assignment) -> None:
        job, row = assignment.job, assignment.row
        assert job is not None
        log.warning("run %s: the lease of worker %s expired during step %s", job.run_id, row.worker, job.path)
        if assignment.stop_until is not None:
            self._fail(assignment, ToolError(f"the lease of worker {row.worker} expired", kind="cancelled"))
        elif job.only_once:
            message = f"the lease of worker {row.worker} expired, and the step must not run twice"
            self._fail(assignment, ToolError(message, kind="lost"))
        elif row.offers >= limits.now.leases_max:
            message = f"the leases of {row.offers} workers in turn expired ({limits.met('leases_max')})"
            self._fail(assignment, ToolError(message, kind="lost"))
        else:
            self._take_back(assignment)

    def _check_offer(self, assignment: Assignment, now: float, able: dict[tuple[str, str], bool]) -> None:
        job = assignment.job
        assert job is not None
        queue = (job.tenant, job.service)
        if queue not in able:
            able[queue] = bool(self._registry.able(*queue, "pull"))
        if able[queue]:
            assignment.alone_since = None
        elif job.waits:
            lost = assignment.row.offers
            self._fail(assignment, NoWorker(f"no worker polls for jobs of {job.service!r} any more", lost))
        elif assignment.alone_since is None:
            assignment.alone_since = now
        elif now - assignment.alone_since >= self._registry.ttl_secs:
            message = f"no worker polls for jobs of {job.service!r} any more"
            self._fail(assignment, ToolError(message, kind="no_worker"))
