"""Workers as one service: the jobs that the engine gives them, and the requests that they make.

    registry      which workers are registered, alive and loaded
    push          workers that the engine calls
    pull          workers that poll for jobs: poll, heartbeat, complete; uses leases, pollers and expiry
    backoff       calls that fail if a service has no worker, and are repeated
    outages       services without a worker that steps wait for

Knows which workers are tried first. Push workers come before pull workers: their result arrives a round
trip earlier, and a worker that cannot be reached costs only the failed call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.runtime.pulse import Pulse
from holdfast.runtime.service import Service
from holdfast.runtime.writes import Writes
from holdfast.store.base import Store
from holdfast.tools.guard import Guard
from holdfast.values import TERMINAL, RunNo
from holdfast.workers.assignment import Key
from holdfast.workers.backoff import Backoff
from holdfast.workers.leases import Assignments
from holdfast.workers.outages import Outages
from holdfast.workers.pull import Fetched, Progress, Pull, Renewed
from holdfast.workers.push import Calls, Job, Line, Unreached
from holdfast.workers.registry import WorkerRegistry
from holdfast.workers.shared import Shared
from holdfast.workers.worker import Kind, Offered, Worker, WorkerView

TTL_SECS: Final = 15.0
LEASE_SECS: Final = 10.0


class Workers(Service):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        committer: Committer,
        guard: Guard,
        *,
        ttl_secs: float = TTL_SECS,
        lease_secs: float = LEASE_SECS,
        manual_clock: bool = False,
    ) -> None:
        self._store = store
        self.writes = Writes(committer)
        self.pulse = Pulse(clock, ticks=not manual_clock)
        shares = store.look_every is not None
        read = store.workers if shares else None
        self.registry = WorkerRegistry(self.writes, clock, self.pulse, guard, ttl_secs, read)
        self.calls = Calls(self.registry, guard)
        self.assignments = Assignments(self.writes, self.registry, clock, self.pulse, lease_secs)
        if store.shared_jobs is not None:
            self.assignments.shared = Shared(store.shared_jobs, self.assignments, clock)
            store.on_change("workers", self.registry.look)
            store.on_change("jobs", self.assignments.shared.look)
            store.on_change("offers", self.assignments.pollers.wake_all)
        self.pull = Pull(store, self.assignments, self.registry, clock)
        self._backoff = Backoff(self.registry)
        self.outages = Outages(self.registry, clock)
        # Called when a service may have a worker again, to continue the steps that wait for one.
        self.when_served: Callable[[], None] = lambda: None
        self.registry.when_here.append(self._is_here)
        self.holds, self.stop, self.forget_job = (
            self.assignments.holds,
            self.assignments.stop,
            self.assignments.forget,
        )
        self.is_answered, self.settled = self.assignments.is_answered, self.assignments.settled
        self.is_offered = self.assignments.is_offered

    async def open(self, *, drive: bool = True) -> None:
        """Load the registered workers and their jobs. Jobs of finished runs are dropped."""
        self.registry.open(await self._store.workers())
        if self.assignments.shared is not None:
            return  # a job is known here once its run is
        rows, over = await self._store.assignments(), dict[RunNo, bool]()
        for no in {row.no for row in rows}:
            run = await self._store.run_by_no(no)
            over[no] = run is None or run.status in TERMINAL
        self.assignments.open(row for row in rows if not over[row.no])
        for row in rows:
            if over[row.no]:
                self.writes.batch.ended_assignments.append((row.no, row.path, row.attempt))
                self.writes.soon()

    async def close(self) -> None:
        """Write pending rows, and respond to every worker that waits."""
        self.writes.close()
        self.abandon()

    def abandon(self, error: Exception | None = None) -> None:
        """Respond to every worker that waits, and write nothing more."""
        self.writes.abandon()
        self.pulse.close()
        self.assignments.close()
        self.registry.close()

    # ----------------------------------------------------------------------------------- the side of the engine

    async def take_over(self, runs: Sequence[RunNo]) -> None:
        """This node has claimed runs. Their jobs may be at workers, or wait for one."""
        if self.assignments.shared is not None:
            await self.assignments.shared.take_over(runs)

    async def call(self, job: Job) -> bytes:
        """The result of a job, as JSON text. Raises ToolError if there is no worker, or every worker that tried has
        failed; NoWorker if the job waits for a worker and there is none."""
        if self.holds(job.key):
            return await self.assignments.wait(job)
        if job.waits or self.registry.is_served(job.tenant, job.service):
            self._backoff.is_over(job)
        else:
            with self.assignments.at_rest():
                await self._backoff.wait(job)
        pull = self.registry.able(job.tenant, job.service, "pull")
        if not pull:
            return await self._called(job)
        if self.registry.able(job.tenant, job.service, "http"):
            try:
                return await self._called(job)
            except Unreached:
                job.worker = ()
        return await self.assignments.wait(job)

    def lacks(self, job: Job) -> bool:
        """Whether a job has to wait, because no worker serves it."""
        return job.waits and not self.holds(job.key) and not self.is_served(job.tenant, job.service)

    def released(self, job: Job) -> None:
        """The attempt of a job was given back, and its step waits for a worker. One may have come meanwhile."""
        self.outages.waits(job.tenant, job.service)
        if self.is_served(job.tenant, job.service):
            self.when_served()

    def _is_here(self, worker: Worker) -> None:
        self.outages.served(worker)
        self.when_served()

    async def _called(self, job: Job) -> bytes:
        """A call of a worker takes no slot from attempts that run here, however long it hangs."""
        with self.assignments.at_rest():
            return await self.calls.call(job)

    def is_served(self, tenant: str, service: str) -> bool:
        """Whether a live worker serves this service."""
        return self.registry.is_served(tenant, service)

    def is_fetched(self, tenant: str, service: str) -> bool:
        """Whether a job of this service would go directly to pull workers."""
        able = self.registry.able
        return bool(able(tenant, service, "pull")) and not able(tenant, service, "http")

    def held(self, no: RunNo) -> list[Key]:
        """The attempts of a run that pull workers have fetched, or can fetch."""
        return self.assignments.held(no)

    def unheard(self) -> list[Key]:
        """The attempts whose results no longer have a recipient, because their commit failed."""
        return self.assignments.unheard()

    # ---------------------------------------------------------------------------------- the side of the workers

    async def register(
        self,
        tenant: str,
        worker_id: str,
        url: str | None,
        services: Sequence[Offered],
        kind: Kind = "http",
        *,
        key_id: str = "",
    ) -> WorkerView:
        """Register a worker, or update the one with its id, with load 0."""
        return await self.registry.register(tenant, worker_id, url, services, kind, key_id=key_id)

    async def find(self, tenant: str, worker_id: str | None, url: str | None = None) -> None:
        """Get to know a worker that registered at another node."""
        await self.registry.find(tenant, worker_id, url)

    def heartbeat(
        self,
        tenant: str,
        worker_id: str | None = None,
        url: str | None = None,
        load: int = 0,
        *,
        key_id: str | None = None,
    ) -> WorkerView:
        """A heartbeat, by id or else by URL. NotFound makes the worker register again."""
        return self.registry.heartbeat(tenant, worker_id, url, load, key_id=key_id).view()

    async def forget(self, tenant: str, worker_id: str, *, key_id: str | None = None) -> WorkerView:
        await self.registry.find(tenant, worker_id)
        return await self.registry.forget(tenant, worker_id, key_id=key_id)

    def allocate(self, tenant: str, service: str) -> WorkerView | None:
        return self.registry.allocate(tenant, service)

    async def poll(
        self,
        tenant: str,
        worker_id: str,
        services: Iterable[str] | None = None,
        limit: int = 1,
        wait_secs: float = 0,
        *,
        key_id: str | None = None,
        leaving: asyncio.Event | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Fetched:
        await self.registry.find(tenant, worker_id)
        worker = self.registry.worker(tenant, worker_id, key_id)
        return await self.pull.poll(worker, services, limit, wait_secs, leaving, check)

    async def job_heartbeat(
        self,
        tenant: str,
        name: str,
        token: str,
        progress: Progress | None = None,
        load: int | None = None,
        logs: Sequence[Line] = (),
    ) -> Renewed:
        return await self.pull.heartbeat(tenant, name, token, progress, load, logs)

    async def complete(
        self,
        tenant: str,
        name: str,
        token: str,
        result: Any = None,
        error: str = "",
        error_kind: str | None = None,
        *,
        traceback: str | None = None,
        logs: Sequence[Line] = (),
    ) -> None:
        await self.pull.complete(
            tenant, name, token, result, error, error_kind, traceback=traceback, logs=logs
        )

    # --------------------------------------------------------------------------------------------------- counts

    def online(self) -> int:
        return self.registry.online()

    def open_assignments(self) -> int:
        return self.assignments.count()

    def oldest_lease_secs(self) -> float:
        return self.assignments.oldest_lease_secs()

    # Last, because it hides the builtin `list` from annotations below it.
    def list(self, tenant: str, service: str | None = None, ttl: float | None = None) -> list[WorkerView]:
        """The live workers, in the order of registration."""
        return self.registry.views(tenant, service, ttl)
