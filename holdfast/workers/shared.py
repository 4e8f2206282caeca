"""Jobs of pull workers where several nodes share a database: a worker fetches, renews and reports at any of them.

    poll ──► claim the row of a job ──► the job of a run that another node drives is made from its journal
    report ──► into the row ──► its owner hears of it, or looks each second ──► the attempt ends as if reported here

Knows which rows to ask for, and what their answers mean for the jobs of this node (leases.py). The rows decide every race
(store/jobs.py).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol

import msgspec

from holdfast import limits
from holdfast.errors import HoldfastError, Unavailable
from holdfast.runtime.again import Again
from holdfast.runtime.clock import Clock
from holdfast.store.jobs import FetchedJob, SharedJobs
from holdfast.store.records import AssignmentRow
from holdfast.tools.failures import ToolError
from holdfast.workers.assignment import Assignment, Key, id_of
from holdfast.workers.push import Job, Line, failure_of
from holdfast.workers.worker import Worker

log = logging.getLogger("holdfast")

LOOK_SECONDS: Final = 1.0  # a hint that a job was fetched or reported on may be lost
FOREIGN_MAX: Final = (
    10_000  # jobs of other nodes that were given out here, for the log lines of their workers
)


class Report(msgspec.Struct, omit_defaults=True):
    """A result that a node accepted for the owner of the run."""

    receipt: str
    digest: bytes
    result: msgspec.Raw = msgspec.Raw(b"null")
    error: str | None = None
    kind: str = ""
    traceback: str | None = None
    logs: list[Line] = []

    @classmethod
    def of(cls, outcome: bytes | ToolError, receipt: str, digest: bytes, logs: Sequence[Line]) -> Report:
        if isinstance(outcome, bytes):
            return cls(receipt, digest, msgspec.Raw(outcome), logs=list(logs))
        trace = outcome.traceback_text
        return cls(receipt, digest, error=str(outcome), kind=outcome.kind, traceback=trace, logs=list(logs))

    @property
    def outcome(self) -> bytes | ToolError:
        return bytes(self.result) if self.error is None else failure_of(self.error, self.kind, self.traceback)


class OwnJobs(Protocol):
    """The jobs of the runs that this node drives (leases.py)."""

    lease_secs: float

    def open(self, rows: Iterable[AssignmentRow]) -> None: ...
    def holds(self, key: Key) -> bool: ...
    def count(self) -> int: ...
    def job(self, key: Key) -> Job | None: ...
    def fetched(self, row: AssignmentRow) -> Assignment | None: ...
    def renewed(self, key: Key, token: str, lease_secs: float) -> None: ...
    def complete(
        self,
        assignment: Assignment,
        outcome: bytes | ToolError,
        receipt: str,
        digest: bytes,
        logs: Iterable[Line],
    ) -> asyncio.Future[None]: ...


class Shared:
    """`job_of` makes the job of a row from the journal of its run; None if the run does not wait for it."""

    def __init__(self, rows: SharedJobs, assignments: OwnJobs, clock: Clock) -> None:
        self._rows, self._assignments, self._clock = rows, assignments, clock
        self.job_of: Callable[[AssignmentRow], Awaitable[Job | None]] | None = None
        self._reading = Again(self._read, "the jobs of workers")
        self._foreign: OrderedDict[Key, Job] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._asking: dict[Key, asyncio.Task[None]] = {}
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True
        self._reading.close()
        if self._timer is not None:
            self._timer.cancel()
        for task in self._asking.values():
            task.cancel()

    # ---------------------------------------------------------------------------------- the side of the workers

    async def take(self, worker: Worker, services: Sequence[str], limit: int) -> list[Assignment]:
        """Lease jobs to a worker, of the runs of any node. The leases are durable when this returns."""
        tokens = [secrets.token_urlsafe(24) for _ in range(limit)]
        lease_ms = int(1000 * self._assignments.lease_secs)
        rows = await self._rows.claim_jobs(
            worker.tenant, services, worker.id, tokens, self._clock.now(), lease_ms
        )
        given, left = list[Assignment](), limits.now.value_bytes_max
        for row in rows:
            assignment = await self._given(row, worker)
            if assignment is None or (left <= 0 and given):
                await self._rows.shorten_lease(
                    (row.no, row.path, row.attempt), row.token, 0
                )  # for another poll
                continue
            assert assignment.job is not None
            left -= assignment.job.large_bytes
            given.append(assignment)
        return given

    async def _given(self, row: AssignmentRow, worker: Worker) -> Assignment | None:
        """A job as it is handed to a worker: one of this node, or one of another that is made from its journal."""
        key = (row.no, row.path, row.attempt)
        assignment = self._assignments.fetched(row)
        if assignment is None or assignment.job is None:
            job = None if self.job_of is None else await self.job_of(row)
            if job is None:
                return None
            assignment = Assignment(row)
            assignment.job = self._foreign[key] = job
            if len(self._foreign) > FOREIGN_MAX:
                self._foreign.popitem(last=False)
        assert assignment.job is not None
        assignment.worker, assignment.job.worker = worker, (worker.id, "")
        lease_secs = assignment.lease_secs(self._assignments.lease_secs)
        if lease_secs < self._assignments.lease_secs:
            await self._rows.shorten_lease(key, row.token, int(1000 * lease_secs))
        return assignment

    async def to_stop(self, worker: Worker) -> list[str]:
        return [id_of(*key) for key in await self._rows.stopped_jobs(worker.tenant, worker.id)]

    async def renew(self, key: Key, token: str) -> tuple[float, bool, str] | None:
        """Renew a lease: its length in seconds, whether to stop, and the worker. None if the token is not current."""
        found = await self._rows.renew_job(key, token)
        if found is None:
            return None
        self._assignments.renewed(key, token, found.lease_ms / 1000)
        return found.lease_ms / 1000, found.must_stop, found.worker

    def job(self, key: Key) -> Job | None:
        """A job that was given out here, of this node or of another."""
        return self._assignments.job(key) or self._foreign.get(key)

    async def report(self, key: Key, token: str, report: Report) -> bool:
        """Accept a result for the owner of the run. False if the token is not current."""
        if await self._rows.report_job(key, token, msgspec.json.encode(report)):
            self._foreign.pop(key, None)
            return True
        known = await self._rows.report_of(key, token)
        return known is not None and msgspec.json.decode(known, type=Report).receipt == report.receipt

    # ----------------------------------------------------------------------------------- the side of the engine

    def look(self) -> None:
        """Jobs of this node may have been fetched or reported on at another."""
        self._reading.ask()

    def watch(self) -> None:
        """Look each second while this node waits for jobs."""
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._watched)

    def _watched(self) -> None:
        self._timer = None
        if self._assignments.count():
            self.look()
            self.watch()

    async def _read(self) -> None:
        if self._assignments.count():
            for job in await self._rows.fetched_jobs():
                self._apply(job)

    def _apply(self, found: FetchedJob) -> None:
        assignment = self._assignments.fetched(found.row)
        if assignment is None:
            return
        assignment.lease_until = self._clock.monotonic() + found.lease_left_secs
        if found.report is not None and assignment.awaits:
            report = msgspec.json.decode(found.report, type=Report)
            _ = self._assignments.complete(
                assignment, report.outcome, report.receipt, report.digest, report.logs
            )

    def take_back(self, assignment: Assignment, then: Callable[[], None]) -> None:
        """Offer a job again whose lease has expired, unless it was renewed or completed at another node."""
        self._ask(assignment, self._rows.take_back_job(assignment.key, assignment.row.token), then)

    def end(self, assignment: Assignment, then: Callable[[], None]) -> None:
        """Give a job up, unless it was fetched or completed at another node."""
        self._ask(assignment, self._rows.end_job(assignment.key, assignment.row.token), then)

    def stop(self, assignment: Assignment, then: Callable[[str], None]) -> None:
        """Ask the worker of a job to stop, with its next request. `then` is called with the token of its lease, or ''."""

        async def asked() -> bool:
            token = await self._rows.stop_job(assignment.key)
            then(token or "")
            return True

        self._ask(assignment, asked(), lambda: None)

    def _ask(
        self, assignment: Assignment, asked: Coroutine[Any, Any, bool], then: Callable[[], None]
    ) -> None:
        if self._is_closed or assignment.key in self._asking:
            return asked.close()
        task = asyncio.get_running_loop().create_task(self._answered(asked, then))
        self._asking[assignment.key] = task
        task.add_done_callback(lambda done: self._asking.pop(assignment.key, None))

    async def _answered(self, asked: Coroutine[Any, Any, bool], then: Callable[[], None]) -> None:
        try:
            if await asked:
                then()
            else:
                self.look()
        except Unavailable as error:
            log.warning("the lease of a job cannot be ended now; trying again: %s", error)
        except HoldfastError as error:
            log.info("the lease of a job is left to another node: %s", error)

    async def take_over(self, runs: Sequence[Any]) -> None:
        """This node has claimed runs: their jobs are its own."""
        if runs:
            self._assignments.open(
                row
                for row in await self._rows.take_over_jobs(list(runs))
                if not self._assignments.holds((row.no, row.path, row.attempt))
            )
            self.look()
