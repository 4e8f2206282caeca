"""What only the process that drives the runs knows about them, and what a caller can wait for. Nothing here is
stored."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.execution.dispatcher import Dispatch
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import Door
from holdfast.runtime.waiters import Waiters
from holdfast.store.records import SetAside
from holdfast.values import Millis, RunNo
from holdfast.workers.service import Workers


class Memory:
    def __init__(
        self,
        clock: Clock,
        door: Door,
        dispatch: Dispatch,
        workers: Workers,
        waiters: Waiters,
        drives: Callable[[RunNo], bool],
    ) -> None:
        self._clock, self._door, self._workers = clock, door, workers
        self.residents, self.caught_up = door.residents, door.caught_up
        self.lines_of = dispatch.queues.limits_of  # the limits that starts of a run wait for
        self.ended, self.rests = waiters.ended, waiters.rests
        self.drives = drives  # whether this process continues a run by itself

    @property
    def now(self) -> Millis:
        return self._clock.now()

    @property
    def is_stalled(self) -> bool:
        return self._door.is_stalled

    def set_aside(self, no: RunNo) -> SetAside | None:
        return self._door.quarantined.get(no)

    def workers_of(self, tenant: str, service: str) -> int:
        """How many workers serve a service now."""
        return len(self._workers.list(tenant, service))

    def unserved_since(self, tenant: str, service: str) -> Millis | None:
        """Since when a service has had no worker; None if it has one, or none is remembered."""
        return self._workers.registry.unserved_since(tenant, service)

    def outage(self, tenant: str, service: str, oldest: Millis | None) -> Millis | None:
        """The same, at the latest since the oldest step that waits for it."""
        return self._workers.outages.since(tenant, service, oldest)

    def services(self, tenant: str) -> dict[str, int]:
        """The services of the registered workers, each with the number of live ones."""
        return self._workers.registry.services(tenant)

    def offered(self, tenant: str) -> dict[str, tuple[int, Millis]]:
        """How many jobs wait for a pull worker to fetch them, by service, and since when the oldest does."""
        return self._workers.assignments.offered(tenant)

    def lease_secs(self, no: RunNo, path: str, attempt: int) -> float | None:
        """How long the lease of a job is still valid, if a worker has it."""
        return self._workers.assignments.lease_left((no, path, attempt))
