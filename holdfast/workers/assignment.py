"""A job for a pull worker: its row, its lease and its name. Knows no queue, clock or store."""

from __future__ import annotations

import asyncio
import base64
from typing import Final

import msgspec

from holdfast.errors import NotFound
from holdfast.store.records import AssignmentRow
from holdfast.values import Millis, RunId, RunNo
from holdfast.workers.push import Job
from holdfast.workers.worker import Worker

LEASE_SECS_LEAST: Final = 0.25  # a shorter one would expire between two heartbeats of a busy worker
NO_MAX: Final = 2**62  # no run has a number this large, and no store could look it up

Key = tuple[RunNo, str, int]  # run, path, attempt
Queue = tuple[str, str]  # a tenant, and the name of a service, or @ and the id of a worker


class Assignment:
    """A job that is offered, or leased to a worker. `job` is missing until its run is loaded after a restart."""

    def __init__(self, row: AssignmentRow) -> None:
        self.row = row
        self.key: Key = (row.no, row.path, row.attempt)
        self.job: Job | None = None
        self.worker: Worker | None = None
        self.tokens: set[str] = {row.token} if row.token else set()
        self.lease_until = self.call_until = float("inf")
        self.alone_since: float | None = None  # since when there has been no worker for it
        self.offered_at = Millis(0)
        self.stop_until: float | None = None  # it must stop, and its result is accepted until then
        self.result: asyncio.Future[bytes] | None = None
        self.confirmed: asyncio.Future[None] | None = None  # set when the outcome is durable
        self.digest = b""

    @property
    def id(self) -> str:
        assert self.job is not None
        return id_of(self.job.run_id, self.job.path, self.job.attempt)

    @property
    def worker_queue(self) -> Queue:
        """The queue of messages for the worker that holds this job."""
        assert self.job is not None
        return self.job.tenant, f"@{self.row.worker}"

    def lease_secs(self, most: float) -> float:
        """How long its lease lasts: a third of the timeout of the call at most, so that a worker that ended is noticed in time."""
        if self.job is None or (timeout_ms := self.job.rule.call_timeout_ms) is None:
            return most
        return min(most, max(LEASE_SECS_LEAST, timeout_ms / 3_000))

    @property
    def is_leased(self) -> bool:
        return bool(self.row.token)

    @property
    def awaits(self) -> bool:
        """Whether its attempt waits for a result, and none is being written."""
        return self.result is not None and not self.result.done() and self.confirmed is None

    @property
    def due(self) -> float:
        if self.stop_until is not None:  # the timeout of the call no longer applies
            return min(self.lease_until, self.stop_until)
        return min(self.lease_until, self.call_until)


def id_of(run_id: RunId, path: str, attempt: int) -> str:
    """The public name of a job. It contains the run id, so it does not reveal how many runs there are."""
    text = msgspec.json.encode((run_id, path, attempt))
    return "asg-" + base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def parts_of(name: str) -> tuple[str | int, str, int]:
    """Run, path and attempt of a job. Up to release 0.3 names contained the run's number instead of its id."""
    try:
        text = name.removeprefix("asg-").encode("ascii")
        run, path, attempt = msgspec.json.decode(
            base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)), type=tuple[int | str, str, int]
        )
    except (ValueError, msgspec.MsgspecError):
        raise unknown(name) from None
    if isinstance(run, int) and not 0 < run < NO_MAX:
        raise unknown(name)
    return run, path, attempt


def unknown(name: str) -> NotFound:
    return NotFound(f"there is no assignment {name!a:.100}")


def is_read(confirmed: asyncio.Future[None]) -> None:
    """The caller may have disconnected, so mark the exception as retrieved."""
    if not confirmed.cancelled():
        confirmed.exception()
