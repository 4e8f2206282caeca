"""Jobs of pull workers: offered, leased, ended, and offered again when a lease expires.

Knows leases and tokens, not what a job does, and not what a worker may request (pull.py). A job is durable before a
worker sees it, so it survives this process: the engine that loads the run later waits for the same result. A result
counts only with the token of the current lease. A receipt is stored with it, so that a worker that sends it again
learns that it was accepted, even from a later engine.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Final, TypeVar

import msgspec

from holdfast import limits
from holdfast.engine.undo import cancel_grace_ms
from holdfast.errors import EngineClosed, NotFound, Superseded
from holdfast.runtime.clock import Clock
from holdfast.runtime.pulse import Pulse
from holdfast.runtime.writes import Writes
from holdfast.store.batch import Batch
from holdfast.store.records import AssignmentRow
from holdfast.tools.failures import ToolError
from holdfast.values import Millis, RunNo
from holdfast.workers.assignment import Assignment, Key, Queue, is_read
from holdfast.workers.expiry import SWEEP_SECONDS, Expiry
from holdfast.workers.pollers import Pollers
from holdfast.workers.push import Job, Line
from holdfast.workers.registry import WorkerRegistry
from holdfast.workers.shared import Shared
from holdfast.workers.worker import Worker

ENDED_MAX: Final = 10_000  # completed jobs that are remembered, for workers that send a result again

GONE: Final = object()

Place = TypeVar("Place")
Entry = TypeVar("Entry")


class _Ended(msgspec.Struct):
    """A job that has ended, and which reports about it are still accepted."""

    tokens: frozenset[str]
    accepted: tuple[str, bytes] | None  # token and digest of the result that counted
    is_shown: bool = False  # a late result is recorded in the run's journal


class Assignments:
    def __init__(
        self, writes: Writes, registry: WorkerRegistry, clock: Clock, pulse: Pulse, lease_secs: float
    ) -> None:
        self._writes, self._registry, self._clock = writes, registry, clock
        self.lease_secs = lease_secs
        pulse.watch(lambda: bool(self._open), self._paused)
        self.waiting = 0  # attempts that wait here for a worker
        self.when_waiting: Callable[[], None] = lambda: None
        self._open: dict[Key, Assignment] = {}
        self._of_run: dict[RunNo, dict[Key, None]] = {}
        self._not_begun: dict[RunNo, dict[Key, None]] = {}  # jobs that this process has not offered yet
        self._offered: dict[Queue, dict[Key, Assignment]] = {}  # oldest first
        self._to_be_stopped: dict[Queue, dict[Key, Assignment]] = {}  # by worker: jobs that it must stop
        self.pollers = Pollers()
        self._named: dict[str, Assignment] = {}  # jobs that were handed to workers
        self._ended: OrderedDict[Key, _Ended] = OrderedDict()
        # Where other nodes lease jobs too: races are decided by the rows of jobs, and not here.
        self.shared: Shared | None = None
        self._expiry = Expiry(self._open, registry, clock, pulse, fail=self._give_up, take_back=self._expired)
        registry.when_gone = lambda worker: self.pollers.wake((worker.tenant, f"@{worker.id}"))
        # Records a late result in the journal of its run, if the run is open; set by the owner of the door.
        self.show_late: Callable[[Key, bytes | ToolError], None] | None = None

    def open(self, rows: Iterable[AssignmentRow]) -> None:
        """Load durable jobs that no attempt waits for yet: just started, or leased by an earlier engine. Their leases
        restart, because workers could not renew them in the meantime."""
        for row in rows:
            assignment = self._add(Assignment(row))
            self._not_begun.setdefault(row.no, {})[assignment.key] = None

    def close(self) -> None:
        self._expiry.close()
        if self.shared is not None:
            self.shared.close()
        self.pollers.wake_all()
        for assignment in self._open.values():
            if assignment.confirmed is not None and not assignment.confirmed.done():
                assignment.confirmed.set_exception(
                    EngineClosed("the engine was closed; send the result again when it is back")
                )

    # ----------------------------------------------------------------------------------- the side of the engine

    def holds(self, key: Key) -> bool:
        """Whether a pull worker has this attempt, or can fetch it."""
        return key in self._open

    def is_offered(self, key: Key) -> bool:
        """Whether this process offers it to pull workers."""
        found = self._open.get(key)
        return found is not None and found.job is not None

    def lease_left(self, key: Key) -> float | None:
        """Seconds until the lease of this attempt expires; None if it is not leased."""
        found = self._open.get(key)
        if found is None or not found.is_leased or found.lease_until == float("inf"):
            return None
        return found.lease_until - self._clock.monotonic()

    def offered(self, tenant: str) -> dict[str, tuple[int, Millis]]:
        """How many jobs of each service wait for a worker to fetch them, and since when the oldest does."""
        return {
            service: (len(jobs), min(each.offered_at for each in jobs.values()))
            for (owner, service), jobs in self._offered.items()
            if owner == tenant
        }

    def count(self) -> int:
        return len(self._open)

    def oldest_lease_secs(self) -> float:
        """How long the oldest leased job has been leased."""
        claimed = [each.row.claimed_at for each in self._open.values() if each.is_leased]
        return (self._clock.now() - min(claimed)) / 1000 if claimed else 0.0

    def held(self, no: RunNo) -> list[Key]:
        return list(self._of_run.get(no, ()))

    def start(self, row: AssignmentRow, batch: Batch) -> None:
        """Let the commit that starts an attempt also store its job."""
        batch.assignments.append(row)
        self._not_begun.setdefault(row.no, {})[row.no, row.path, row.attempt] = None

    def not_begun(self, no: RunNo) -> list[Key]:
        """The jobs of a run that have a row, or will get one, and are not offered by this process."""
        return list(self._not_begun.get(no, ()))

    def rows_are_gone(self, keys: Iterable[Key]) -> None:
        """Forget a job, with its row, that ended before it was offered."""
        for key in keys:
            _take_out(self._not_begun, key[0], key)
            if (found := self._open.get(key)) is not None and found.job is None:
                self._take_off(found)

    def unheard(self) -> list[Key]:
        """Jobs of this process whose result has no recipient. Jobs of an earlier process wait to be adopted."""
        return [key for key, each in self._open.items() if each.job is not None and each.result is None]

    def forget(self, key: Key) -> None:
        """Nothing waits for this attempt any more."""
        self._end(self._open[key])

    async def wait(self, job: Job) -> bytes:
        """Offer a job, or continue to wait for one that is leased already, until a worker completes it."""
        assignment = self._open.get(job.key)
        if assignment is None:
            assignment = self._add(Assignment(AssignmentRow(job.no, job.path, job.attempt, job.service)))
            self._note(assignment)
        assignment.job = job
        self._named[assignment.id] = assignment
        _take_out(self._not_begun, job.no, job.key)
        if assignment.is_leased:
            self._lease_again(assignment)
        else:
            self._offer(assignment)
        assignment.result = asyncio.get_running_loop().create_future()
        if self.shared is not None:
            self.shared.watch()
            if assignment.is_leased:
                self.shared.look()  # its worker may have reported at another node
        with self.at_rest():
            return await assignment.result

    @contextmanager
    def at_rest(self) -> Generator[None, None, None]:
        """An attempt that waits for a worker costs a task, and takes no slot from attempts that run here."""
        self.waiting += 1
        self.when_waiting()
        try:
            yield
        finally:
            self.waiting -= 1

    def stop(self, job: Job) -> bool:
        """Ask the worker that has this job to stop, and wait briefly for its result. False if the job is not here."""
        assignment = self._open.get(job.key)
        if assignment is None or assignment.result is None:
            return False
        if self.shared is not None:
            self.shared.stop(assignment, lambda token: self._stop(assignment, is_leased=bool(token)))
        else:
            self._stop(assignment, is_leased=assignment.is_leased)
        return True

    def _stop(self, assignment: Assignment, *, is_leased: bool) -> None:
        if not is_leased:
            self._fail(assignment, ToolError("no worker had fetched the job", kind="cancelled"))
        elif assignment.stop_until is None:
            assignment.stop_until = self._clock.monotonic() + cancel_grace_ms() / 1000
            if self.shared is None:  # otherwise any node tells it
                self._to_be_stopped.setdefault(assignment.worker_queue, {})[assignment.key] = assignment
                self._wake_pollers(assignment)
            self._expiry.watch(assignment.due)

    def is_answered(self, job: Job) -> bool:
        """Whether a worker waits for confirmation that its result is durable."""
        assignment = self._open.get(job.key)
        return assignment is not None and assignment.confirmed is not None

    def settled(self, job: Job, error: BaseException | None) -> None:
        """Report what became of a worker's result: it is durable, and the row of its job is removed; or it came too
        late; or it could not be written, and the worker has to send it again."""
        assignment = self._open.get(job.key)
        if assignment is None:
            return
        if assignment.confirmed is None:
            self._end(assignment)
        elif isinstance(error, Superseded):
            self._end(assignment)
            self._ended[assignment.key].is_shown = True  # if the run is still open
        elif error is None:
            self._end(assignment, accepted=(assignment.row.token, assignment.digest))
        if assignment.confirmed is None:
            return
        confirmed, assignment.confirmed, assignment.result = assignment.confirmed, None, None
        if not confirmed.done():
            if error is None:
                confirmed.set_result(None)
            else:
                confirmed.set_exception(error)

    # ------------------------------------------------------------------------------------------------- offering

    def _offer(self, assignment: Assignment) -> None:
        job = assignment.job
        assert job is not None
        assignment.offered_at = self._clock.now()
        self._offered.setdefault((job.tenant, job.service), {})[assignment.key] = assignment
        self._wake_pollers(assignment)
        self._expiry.watch(self._clock.monotonic() + SWEEP_SECONDS)

    def _wake_pollers(self, assignment: Assignment) -> None:
        assert assignment.job is not None
        name = f"@{assignment.row.worker}" if assignment.is_leased else assignment.job.service
        self.pollers.wake((assignment.job.tenant, name))

    def take(self, worker: Worker, queues: frozenset[Queue], limit: int) -> list[Assignment]:
        taken: list[Assignment] = []
        left = limits.now.value_bytes_max
        for queue in sorted(queues):
            offered = self._offered.get(queue)
            while offered and len(taken) < limit and (left > 0 or not taken):
                assignment = offered.pop(next(iter(offered)))
                left -= 0 if assignment.job is None else assignment.job.large_bytes
                self._lease(assignment, worker)
                taken.append(assignment)
            if offered is not None and not offered:
                del self._offered[queue]
        return taken

    def _lease(self, assignment: Assignment, worker: Worker) -> None:
        """Lease a job to a worker. The lease starts when it is durable (`give_out`), however long a sync takes."""
        row = assignment.row
        assert assignment.job is not None
        token = secrets.token_urlsafe(24)
        assignment.row = msgspec.structs.replace(
            row, worker=worker.id, token=token, offers=row.offers + 1, claimed_at=self._clock.now()
        )
        assignment.tokens.add(token)
        assignment.worker, assignment.job.worker = worker, (worker.id, "")
        assignment.alone_since = None
        self._note(assignment)

    def _begin_lease(self, assignment: Assignment) -> None:
        now = self._clock.monotonic()
        assert assignment.job is not None
        assignment.lease_until = now + assignment.lease_secs(self.lease_secs)
        if timeout_ms := assignment.job.rule.call_timeout_ms:
            assignment.call_until = now + timeout_ms / 1000
        self._expiry.watch(assignment.due)

    def _lease_again(self, assignment: Assignment) -> None:
        """A job that an earlier engine leased. Its call gets the rest of its timeout."""
        job, row, now = assignment.job, assignment.row, self._clock.monotonic()
        assert job is not None
        job.worker = (row.worker, "")
        try:
            assignment.worker = self._registry.worker(job.tenant, row.worker)
        except NotFound:
            assignment.worker = None
        assignment.lease_until = now + assignment.lease_secs(self.lease_secs)
        if job.rule.call_timeout_ms:
            spent = (self._clock.now() - row.claimed_at) / 1000
            assignment.call_until = now + max(0.0, job.rule.call_timeout_ms / 1000 - spent)
        self._expiry.watch(assignment.due)

    def _note(self, assignment: Assignment) -> None:
        self._writes.batch.assignments.append(assignment.row)
        self._writes.soon()

    async def give_out(self, taken: list[Assignment]) -> list[Assignment]:
        """Hand out jobs once their leases are durable. If the commit fails, they are not leased."""
        if not taken:
            return []
        leases = [(assignment, assignment.row.token) for assignment in taken]
        try:
            await self._writes.durable()
        except BaseException:
            for assignment, token in leases:
                if assignment.row.token == token and assignment.key in self._open:
                    self._take_back(assignment)
            raise
        given = [
            assignment
            for assignment, token in leases
            if assignment.row.token == token and assignment.key in self._open
        ]
        for assignment in given:
            self._begin_lease(assignment)
        return given

    def _expired(self, assignment: Assignment) -> None:
        if self.shared is None:
            self._take_back(assignment)
        else:
            self.shared.take_back(assignment, lambda: self._take_back(assignment))

    def _give_up(self, assignment: Assignment, error: ToolError) -> None:
        """A lease, a call or an offer has ended without a result."""
        if self.shared is None:
            self._fail(assignment, error)
        else:
            self.shared.end(assignment, lambda: self._fail(assignment, error))

    def _take_back(self, assignment: Assignment) -> None:
        assignment.row = msgspec.structs.replace(assignment.row, worker="", token="")
        assignment.lease_until = assignment.call_until = float("inf")
        assignment.worker = None
        if self.shared is None:  # otherwise its row says so already
            self._note(assignment)
        self._offer(assignment)

    # ------------------------------------------------------------------------------- fetched at any node (shared.py)

    def fetched(self, row: AssignmentRow) -> Assignment | None:
        """A job of this node whose row says that a worker has it; None if it is not one of this node."""
        assignment = self._open.get((row.no, row.path, row.attempt))
        if assignment is None or assignment.row.token == row.token:
            return assignment
        assignment.row = row
        assignment.tokens.add(row.token)
        assignment.alone_since = None
        if assignment.job is not None:
            self._withdraw(assignment)
            self._lease_again(assignment)
        return assignment

    def renewed(self, key: Key, token: str, lease_secs: float) -> None:
        assignment = self._open.get(key)
        if assignment is not None and assignment.row.token == token:
            assignment.lease_until = self._clock.monotonic() + lease_secs

    def job(self, key: Key) -> Job | None:
        found = self._open.get(key)
        return None if found is None else found.job

    def complete(
        self,
        assignment: Assignment,
        outcome: bytes | ToolError,
        receipt: str,
        digest: bytes,
        logs: Iterable[Line],
    ) -> asyncio.Future[None]:
        """End an attempt with the result of its worker. What is returned is set when that is durable."""
        assert assignment.job is not None and assignment.result is not None
        confirmed = assignment.confirmed = asyncio.get_running_loop().create_future()
        confirmed.add_done_callback(is_read)
        assignment.digest = digest
        assignment.job.worker = (assignment.row.worker, "", receipt)
        assignment.job.keep(logs)
        if isinstance(outcome, bytes):
            assignment.result.set_result(outcome)
        else:
            assignment.result.set_exception(outcome)
        return confirmed

    # ------------------------------------------------------------------------------------------- late and again

    def leased(self, key: Key, name: str, token: str) -> Assignment:
        """The open job, if the token is that of its lease."""
        assignment = self._open.get(key)
        if assignment is None:
            raise Superseded(
                f"assignment {name} has ended: it was completed or stopped, or its attempts were used up"
            )
        if not secrets.compare_digest(assignment.row.token.encode(), token.encode()):
            raise Superseded(
                f"assignment {name} belongs to another worker: the lease of this token has expired"
            )
        return assignment

    def named(self, name: str) -> Assignment | None:
        """The open job with this name."""
        return self._named.get(name)

    def has_begun(self, key: Key) -> bool:
        """Whether this process has offered the job, or ended it."""
        return key in self._ended or self.is_offered(key)

    def was_accepted(self, key: Key, token: str, digest: bytes) -> bool:
        ended = self._ended.get(key)
        return ended is not None and ended.accepted == (token, digest)

    def note_late(self, key: Key, token: str, outcome: bytes | ToolError) -> None:
        """Record a late result once, if it comes from a worker that had the job."""
        open_one, ended = self._open.get(key), self._ended.get(key)
        if open_one is not None:
            if open_one.job is not None and token in open_one.tokens:
                open_one.job.context.log("a worker reported a result after its lease had expired")
        elif (
            ended is not None and token in ended.tokens and not ended.is_shown and self.show_late is not None
        ):
            ended.is_shown = True
            self.show_late(key, outcome)

    def to_stop(self, worker: Worker) -> list[str]:
        """Jobs that a worker must stop and has not been notified of. After this, only heartbeats repeat the
        notification."""
        found = self._to_be_stopped.pop((worker.tenant, f"@{worker.id}"), {})
        return [assignment.id for assignment in found.values()]

    def _add(self, assignment: Assignment) -> Assignment:
        self._open[assignment.key] = assignment
        self._of_run.setdefault(assignment.row.no, {})[assignment.key] = None
        return assignment

    def _end(self, assignment: Assignment, accepted: tuple[str, bytes] | None = None) -> None:
        if assignment.key not in self._open:
            return
        self._take_off(assignment)
        job = assignment.job
        if job is not None:
            self._withdraw(assignment)
            self._ended[assignment.key] = _Ended(frozenset(assignment.tokens), accepted)
            if len(self._ended) > ENDED_MAX:
                self._ended.popitem(last=False)
            _take_out(self._to_be_stopped, assignment.worker_queue, assignment.key)
        if accepted is None:  # otherwise the commit of the result removed the row
            self._writes.batch.ended_assignments.append(assignment.key)
            self._writes.soon()

    def _take_off(self, assignment: Assignment) -> None:
        del self._open[assignment.key]
        if assignment.job is not None:
            self._named.pop(assignment.id, None)
        for places in (self._of_run, self._not_begun):
            _take_out(places, assignment.row.no, assignment.key)

    def _withdraw(self, assignment: Assignment) -> None:
        job = assignment.job
        assert job is not None
        _take_out(self._offered, (job.tenant, job.service), assignment.key)

    def _fail(self, assignment: Assignment, error: ToolError) -> None:
        """End the attempt without a result."""
        self._withdraw(assignment)
        if assignment.result is not None and not assignment.result.done():
            assignment.result.set_exception(error)

    # ---------------------------------------------------------------------------------------------------- times

    def _paused(self, seconds: float) -> None:
        """This process was paused: extend leases by the length of the pause, up to one lease."""
        now = self._clock.monotonic()
        for assignment in self._open.values():
            if assignment.lease_until != float("inf"):
                lease_secs = assignment.lease_secs(self.lease_secs)
                least, most = now + min(seconds, lease_secs), now + lease_secs
                assignment.lease_until = min(max(assignment.lease_until + seconds, least), most)
            assignment.call_until += seconds
            if assignment.stop_until is not None:
                assignment.stop_until += seconds
            if assignment.alone_since is not None:
                assignment.alone_since += seconds


def _take_out(places: dict[Place, dict[Key, Entry]], place: Place, key: Key) -> None:
    """Remove an entry, and its group if it was the last one."""
    found = places.get(place)
    if found is not None and found.pop(key, GONE) is not GONE and not found:
        del places[place]
