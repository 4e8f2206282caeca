"""The requests of pull workers: poll for jobs, renew a lease, complete a job.

    offered ──poll──► leased (token) ──complete──► completed      lease expired: offered again, with another token
                        └─ heartbeat: renews the lease; the response says whether to stop

Knows which requests a token allows. How jobs are offered and leased is in leases.py.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.engine.codec import decode_row
from holdfast.engine.events import StepFailed, StepPaused, StepSucceeded
from holdfast.errors import InvalidRequest, Superseded, Unavailable
from holdfast.runtime.clock import Clock
from holdfast.store.base import Store
from holdfast.tools.failures import ToolError
from holdfast.values import JsonText, NotJson, RunId, RunNo, encode
from holdfast.workers.assignment import Assignment, Key, Queue, parts_of, unknown
from holdfast.workers.leases import Assignments
from holdfast.workers.push import Line, failure_of
from holdfast.workers.registry import WorkerRegistry
from holdfast.workers.shared import Report, Shared
from holdfast.workers.worker import Worker

# at the end of a journal, when searching for a result that was accepted before a restart
ROWS_READ_MAX: Final = 20_000
ROWS_AT_A_TIME: Final = 200

Outcome = StepSucceeded | StepFailed | StepPaused


class Offer(msgspec.Struct, frozen=True):
    """A job as a worker receives it. Reports about it need its token, while the lease lasts."""

    id: str
    token: str
    run_id: str
    path: str
    attempt: int
    service: str
    input: msgspec.Raw
    params: msgspec.Raw
    idempotency_key: str
    lease_secs: float
    traceparent: str | msgspec.UnsetType = msgspec.UNSET


class Fetched(msgspec.Struct, frozen=True):
    """The response to a poll: jobs to do, and jobs of this worker that it must stop."""

    assignments: list[Offer]
    cancel: list[str] = []


class Renewed(msgspec.Struct, frozen=True):
    """A renewed lease. `cancel` means: stop, and report what there is."""

    lease_secs: float
    cancel: bool


class Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The progress of a job: a fraction from 0 to 1, or done of total."""

    done: float
    total: float | None = None
    message: str = ""


class _Body(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw(b"null")
    params: msgspec.Raw = msgspec.Raw(b"{}")


class Pull:
    def __init__(
        self, store: Store, assignments: Assignments, registry: WorkerRegistry, clock: Clock
    ) -> None:
        self._store, self._assignments, self._registry, self._clock = store, assignments, registry, clock

    async def poll(
        self,
        worker: Worker,
        services: Iterable[str] | None = None,
        limit: int = 1,
        wait_secs: float = 0,
        leaving: asyncio.Event | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Fetched:
        """Lease jobs to a worker, waiting for the first one if `wait` allows. The leases are durable when this
        returns.

        `check` raises if the worker lost its permission while it waited.
        """
        if worker.kind != "pull":
            raise InvalidRequest(
                f"worker {worker.id!r} is a push worker at {worker.name[1]}, and cannot poll"
            )
        wanted = frozenset(worker.services if services is None else set(services) & set(worker.services))
        queues = frozenset((worker.tenant, service) for service in wanted)
        until = self._clock.monotonic() + min(max(0.0, wait_secs), limits.now.wait_secs_max)
        taken, cancel = list[Assignment](), list[str]()
        while not worker.is_gone:
            check()
            self._registry.hear(worker)
            taken, cancel = await self._offered(worker, queues, min(max(1, limit), limits.now.poll_jobs_max))
            left = until - self._clock.monotonic()
            if taken or cancel or left <= 0 or (leaving is not None and leaving.is_set()):
                break
            await self._assignments.pollers.wait(
                queues | {(worker.tenant, f"@{worker.id}")}, min(left, self._registry.ttl_secs / 3), leaving
            )
        if self._assignments.shared is None:
            taken = await self._assignments.give_out(taken)
        return Fetched([self._shown(each) for each in taken], cancel)

    async def _offered(
        self, worker: Worker, queues: frozenset[Queue], limit: int
    ) -> tuple[list[Assignment], list[str]]:
        """Jobs for a worker, and jobs that it must stop."""
        if (shared := self._assignments.shared) is None:
            return self._assignments.take(worker, queues, limit), self._assignments.to_stop(worker)
        services = sorted(service for _, service in queues)
        return await shared.take(worker, services, limit), await shared.to_stop(worker)

    async def heartbeat(
        self,
        tenant: str,
        name: str,
        token: str,
        progress: Progress | None = None,
        load: int | None = None,
        logs: Sequence[Line] = (),
    ) -> Renewed:
        """Renew a lease: the worker is still working. `logs` are lines of the job, kept with its attempt."""
        key = await self._key(tenant, name)
        if self._assignments.shared is not None:
            return await self._renewed(self._assignments.shared, tenant, key, token, progress, load, logs)
        assignment = self._assignments.leased(key, name, token)
        if assignment.worker is not None:
            self._registry.hear(assignment.worker)
            if load is not None:
                assignment.worker.says(load)
        lease_secs = self._assignments.lease_secs
        if assignment.job is not None:
            lease_secs = assignment.lease_secs(lease_secs)
        assignment.lease_until = self._clock.monotonic() + lease_secs
        if progress is not None and assignment.job is not None:
            assignment.job.context.progress(progress.done, progress.total, progress.message)
        if assignment.job is not None:
            assignment.job.keep(logs)
        return Renewed(lease_secs, assignment.stop_until is not None)

    async def _renewed(
        self,
        shared: Shared,
        tenant: str,
        key: Key,
        token: str,
        progress: Progress | None,
        load: int | None,
        logs: Sequence[Line],
    ) -> Renewed:
        found = await shared.renew(key, token)
        if found is None:
            raise Superseded(
                "this assignment has ended or belongs to another worker: the lease of this token has expired"
            )
        lease_secs, must_stop, worker_id = found
        if (worker := self._registry.known(tenant, worker_id)) is not None:
            self._registry.hear(worker)
            if load is not None:
                worker.says(load)
        if (job := shared.job(key)) is not None:
            job.keep(logs)
            if progress is not None:
                job.context.progress(progress.done, progress.total, progress.message)
        return Renewed(lease_secs, must_stop)

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
        """Complete a job; the result is durable when this returns. Repeating the call has no further effect. A result
        of type `JsonText` is not encoded again."""
        outcome = self._outcome(result, error, error_kind, traceback)
        said = hashlib.sha256(repr((error_kind, error)).encode())
        said.update(outcome if isinstance(outcome, bytes) else b"")
        digest = said.digest()
        receipt = hashlib.sha256(token.encode() + digest).hexdigest()[:32]
        key, shared = await self._key(tenant, name), self._assignments.shared
        report = None if shared is None else Report.of(outcome, receipt, digest, logs)
        try:
            assignment = self._assignments.leased(key, name, token)
        except Superseded:
            if shared is not None and report is not None and await shared.report(key, token, report):
                return
            if self._assignments.was_accepted(key, token, digest) or await self._was_written(key, receipt):
                return
            self._assignments.note_late(key, token, outcome)
            raise
        if assignment.confirmed is not None:
            if assignment.digest != digest:
                raise Superseded(f"assignment {name} was just completed with a different result")
            return await asyncio.shield(assignment.confirmed)
        if assignment.result is None or assignment.result.done():
            if await self._was_written(key, receipt):
                return
            if shared is not None and report is not None and await shared.report(key, token, report):
                return
            raise Unavailable("the run of this job is being loaded; send the result again in a moment")
        confirmed = self._assignments.complete(assignment, outcome, receipt, digest, logs)
        await asyncio.shield(confirmed)

    @staticmethod
    def _outcome(result: Any, error: str, error_kind: str | None, traceback: str | None) -> bytes | ToolError:
        if error:
            return failure_of(error, error_kind, traceback)
        if isinstance(result, JsonText):
            return result.text
        try:
            return encode(result)
        except NotJson as why:
            raise InvalidRequest(f"the result is not JSON: {why}") from None

    async def _key(self, tenant: str, name: str) -> Key:
        """The job with that name. Jobs of other tenants are not found."""
        assignment = self._assignments.named(name)
        if assignment is not None and assignment.job is not None and assignment.job.tenant == tenant:
            return assignment.key
        run, path, attempt = parts_of(name)
        if isinstance(run, int):
            row = await self._store.run_by_no(RunNo(run))
        else:
            row = await self._store.run_by_id(tenant, RunId(run))
        if row is None or row.tenant != tenant:
            raise unknown(name)
        return row.no, path, attempt

    async def _was_written(self, key: Key, receipt: str) -> bool:
        """Whether an earlier engine accepted this very result: then its receipt is in the run's journal."""
        no, path, attempt = key
        run = await self._store.run_by_no(no)
        if run is None or self._assignments.has_begun(key):
            return False  # it ended in this process, or has not ended yet
        ends = await self._store.ends(run.tenant, run.id)
        last = 0 if ends is None else ends.last[0]
        for until in range(last, max(0, last - ROWS_READ_MAX), -ROWS_AT_A_TIME):
            after = max(0, until - ROWS_AT_A_TIME)
            for *_, body in await self._store.journal(no, after, until - after):
                if receipt in body:
                    event, _ = decode_row(body)
                    return (
                        isinstance(event, Outcome)
                        and event.worker[2:] == (receipt,)
                        and (event.path, event.attempt) == (path, attempt)
                    )
            await asyncio.sleep(0)
        return False

    def _shown(self, assignment: Assignment) -> Offer:
        job, row, worker = assignment.job, assignment.row, assignment.worker
        assert job is not None and worker is not None
        body = msgspec.json.decode(job.body_for(worker), type=_Body)
        offer = Offer(
            assignment.id,
            row.token,
            job.run_id,
            job.path,
            job.attempt,
            job.service,
            body.input,
            body.params,
            job.idempotency_key,
            assignment.lease_secs(self._assignments.lease_secs),
        )
        return (
            offer if job.traceparent is None else msgspec.structs.replace(offer, traceparent=job.traceparent)
        )
