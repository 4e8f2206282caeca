"""Jobs of pull workers where several nodes share a database: a worker fetches and reports at any of them.

    offered ──claim──► leased by a token, until a time of the database's clock ──report──► the owner of the run reads the result
       ▲                    │ renew                │
       └──── take back ◄────┴── the lease expired  └── end: the owner waits no longer

The row of a job decides every race: a result is accepted only while its token is in the row, and a job with an accepted result
is neither taken back nor ended. A database that one process locks has no need of this: its jobs are in the memory of that process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from holdfast.store.records import AssignmentRow
from holdfast.values import Millis, RunId, RunNo

JobKey = tuple[RunNo, str, int]  # run, path, attempt


class RenewedJob(NamedTuple):
    lease_ms: int
    must_stop: bool
    worker: str


class FetchedJob(NamedTuple):
    """A leased job of a run of this node. The time that is left of its lease is negative after it has expired."""

    row: AssignmentRow
    lease_left_secs: float
    report: bytes | None


class SharedJobs(Protocol):
    async def claim_jobs(
        self,
        tenant: str,
        services: Sequence[str],
        worker: str,
        tokens: Sequence[str],
        now: Millis,
        lease_ms: int,
    ) -> list[AssignmentRow]:
        """Lease offered jobs of any node's runs to a worker: one for each token, if there are so many."""

    async def shorten_lease(self, key: JobKey, token: str, lease_ms: int) -> None:
        """Let a lease that has just begun, and all that renew it, be shorter."""

    async def renew_job(self, key: JobKey, token: str) -> RenewedJob | None:
        """Renew a lease; None if the token is not that of the job any more."""

    async def report_job(self, key: JobKey, token: str, report: bytes) -> bool:
        """Accept a result. False if the token is not that of the job any more, or there is a result."""

    async def report_of(self, key: JobKey, token: str) -> bytes | None:
        """The result that was accepted."""

    async def stopped_jobs(self, tenant: str, worker: str) -> list[tuple[RunId, str, int]]:
        """Jobs that a worker must stop, and that it was not yet asked to stop."""

    async def stop_job(self, key: JobKey) -> str | None:
        """Ask the worker to stop, with its next request; no other worker fetches the job. The token of its lease, or '', or None if there is no such job."""

    async def take_back_job(self, key: JobKey, token: str) -> bool:
        """Offer a job again whose lease has expired. False if it was renewed, or a result was accepted."""

    async def end_job(self, key: JobKey, token: str) -> bool:
        """Accept nothing more for this token, or for a job that is not leased (''). False if it was fetched, or a result was accepted."""

    async def fetched_jobs(self) -> list[FetchedJob]: ...

    async def take_over_jobs(self, runs: Sequence[RunNo]) -> list[AssignmentRow]:
        """The jobs of runs that this node has claimed. Those that are leased get a whole lease."""
