"""Jobs of workers that fetch them: offered, leased, answered; and offered again when a lease is over.

    offered ──poll──► leased (token) ──complete──► answered      lease over: offered again, with another token
                        └─ heartbeat: the lease begins anew, and the answer tells whether to stop

Knows leases and tokens, not what a job does. A job is a row before anybody sees it, so it outlives this process: the
engine that takes the run up waits for the same answer. An answer counts only with the token of the current lease; its
receipt stands in the row that it makes, so that whoever says it again is told so, also by the engine after this one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import msgspec

from holdfast import limits
from holdfast.engine.codec import decode_row
from holdfast.engine.events import StepFailed, StepPaused, StepSucceeded
from holdfast.engine.scopes import cancel_grace_ms
from holdfast.errors import EngineClosed, InvalidRequest, NotFound, Superseded, Unavailable
from holdfast.runtime.clock import Clock
from holdfast.runtime.pulse import Pulse
from holdfast.runtime.writes import Writes
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import AssignmentRow
from holdfast.tools.failures import ToolError
from holdfast.values import NotJson, RunId, RunNo, encode
from holdfast.workers.push import Job, failure_of
from holdfast.workers.registry import Roster, Worker

log = logging.getLogger("holdfast")

SWEEP_SECONDS: Final = 1.0
ENDED_MAX: Final = 10_000  # answered jobs that are remembered, for those who answer again
ROWS_LOOKED_AT_MAX: Final = 20_000  # at the end of a journal, for an answer that was taken before a restart
ROWS_AT_A_TIME: Final = 200
NO_MAX: Final = 2**62  # no run has such a number, and no store could be asked for it

GONE: Final = object()

Outcome = StepSucceeded | StepFailed | StepPaused
Place = TypeVar("Place")
Entry = TypeVar("Entry")
Key = tuple[RunNo, str, int]  # run, path, attempt
Queue = tuple[str, str]  # a tenant, and the name of a service, or of a worker with @ before it


class Offer(msgspec.Struct, frozen=True):
    """A job as a worker gets it. What it says stands under the token, while the lease lasts."""

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
    """What a poll gives: jobs to do, and those of this worker's that are to be stopped."""

    assignments: list[Offer]
    cancel: list[str] = []


class Renewed(msgspec.Struct, frozen=True):
    """A lease that begins anew; `cancel`: stop, and answer with what there is."""

    lease_secs: float
    cancel: bool


class Progress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a job is: a fraction from 0 to 1, or done of total."""

    done: float
    total: float | None = None
    message: str = ""


class _Body(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw(b"null")
    params: msgspec.Raw = msgspec.Raw(b"{}")


class _Ended(msgspec.Struct):
    """A job that is over: who may say what about it now."""

    tokens: frozenset[str]
    accepted: tuple[str, bytes] | None  # token and digest of the answer that counted
    is_shown: bool = False  # a late answer stands in the run's journal


class Assignment:
    """A job that is offered, or leased to a worker. `job` is missing until its run is taken up after a restart."""

    def __init__(self, row: AssignmentRow) -> None:
        self.row = row
        self.key: Key = (row.no, row.path, row.attempt)
        self.job: Job | None = None
        self.worker: Worker | None = None
        self.tokens: set[str] = {row.token} if row.token else set()
        self.lease_until = self.call_until = float("inf")
        self.alone_since: float | None = None  # since when nobody is there who could do it
        self.stop_until: float | None = None  # it is to be stopped, and waited for until then
        self.result: asyncio.Future[bytes] | None = None
        self.told: asyncio.Future[None] | None = None  # answered when the outcome is durable
        self.digest = b""

    @property
    def id(self) -> str:
        assert self.job is not None
        return id_of(self.job.run_id, self.job.path, self.job.attempt)

    @property
    def is_leased(self) -> bool:
        return bool(self.row.token)

    @property
    def due(self) -> float:
        if self.stop_until is not None:  # the time of the call is no longer looked at
            return min(self.lease_until, self.stop_until)
        return min(self.lease_until, self.call_until)


class Assignments:
    def __init__(
        self, store: Store, writes: Writes, roster: Roster, clock: Clock, pulse: Pulse, lease_secs: float
    ) -> None:
        self._store, self._writes, self._roster, self._clock = store, writes, roster, clock
        self.lease_secs, self._pulse = lease_secs, pulse
        pulse.watch(lambda: bool(self._open), self._paused)
        self.waiting = 0  # attempts that wait here for a worker
        self.when_waiting: Callable[[], None] = lambda: None
        self._open: dict[Key, Assignment] = {}
        self._of_run: dict[RunNo, dict[Key, None]] = {}
        self._not_begun: dict[RunNo, dict[Key, None]] = {}  # those that this process has not offered yet
        self._offered: dict[Queue, dict[Key, Assignment]] = {}  # the oldest first
        self._to_be_told: dict[Queue, dict[Key, Assignment]] = {}  # by worker: those that it is to stop
        self._pollers: dict[Queue, dict[asyncio.Event, None]] = {}  # who came first is woken first
        self._named: dict[str, Assignment] = {}  # those that workers were told of
        self._ended: OrderedDict[Key, _Ended] = OrderedDict()
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = 0.0
        roster.when_gone = lambda worker: self._wake(worker.tenant, f"@{worker.id}")
        # Shows an answer that came too late in the journal of its run, if that is open: given by whoever has the door.
        self.show_late: Callable[[Key, bytes | ToolError], None] | None = None

    def open(self, rows: Iterable[AssignmentRow]) -> None:
        """Jobs whose rows are on disk, and that nobody waits for yet: just started, or given out by an engine before
        this one. Leases begin anew: nobody could renew them meanwhile."""
        for row in rows:
            assignment = self._add(Assignment(row))
            self._not_begun.setdefault(row.no, {})[assignment.key] = None

    def close(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        for events in self._pollers.values():
            for event in events:
                event.set()
        for assignment in self._open.values():
            if assignment.told is not None and not assignment.told.done():
                assignment.told.set_exception(
                    EngineClosed("the engine was closed; answer again when it is back")
                )

    # ----------------------------------------------------------------------------------- the side of the engine

    def holds(self, key: Key) -> bool:
        """Is this attempt with a worker, or for those who fetch?"""
        return key in self._open

    def is_offered(self, key: Key) -> bool:
        """Has this process offered it to those who fetch?"""
        found = self._open.get(key)
        return found is not None and found.job is not None

    def lease_left(self, key: Key) -> float | None:
        """Seconds until the lease of this attempt is over; None if it is not leased."""
        found = self._open.get(key)
        if found is None or not found.is_leased or found.lease_until == float("inf"):
            return None
        return found.lease_until - self._clock.monotonic()

    def count(self) -> int:
        return len(self._open)

    def oldest_lease_secs(self) -> float:
        """How long the oldest of those given out has been so."""
        claimed = [each.row.claimed_at for each in self._open.values() if each.is_leased]
        return (self._clock.now() - min(claimed)) / 1000 if claimed else 0.0

    def held(self, no: RunNo) -> list[Key]:
        return list(self._of_run.get(no, ()))

    def start(self, row: AssignmentRow, batch: Batch) -> None:
        """Let the commit that starts an attempt say that it is a job."""
        batch.assignments.append(row)
        self._not_begun.setdefault(row.no, {})[row.no, row.path, row.attempt] = None

    def not_begun(self, no: RunNo) -> list[Key]:
        """The jobs of a run that have a row, or are to have one, and are not offered by this process."""
        return list(self._not_begun.get(no, ()))

    def rows_are_gone(self, keys: Iterable[Key]) -> None:
        """What ended before it was offered is forgotten with its row."""
        for key in keys:
            _take_out(self._not_begun, key[0], key)
            if (found := self._open.get(key)) is not None and found.job is None:
                self._take_off(found)

    def unheard(self) -> list[Key]:
        """Given out in this process, and nobody waits for the answer; those of others wait to be taken up."""
        return [key for key, each in self._open.items() if each.job is not None and each.result is None]

    def forget(self, key: Key) -> None:
        """Nobody waits for this attempt any more."""
        self._end(self._open[key])

    async def wait(self, job: Job) -> bytes:
        """Offer a job, or go on waiting for one that was given out before, until a worker has answered it."""
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
        with self.at_rest():
            return await assignment.result

    @contextmanager
    def at_rest(self) -> Generator[None, None, None]:
        """Whoever waits for a worker here costs a task, and takes no place from those who have something to do."""
        self.waiting += 1
        self.when_waiting()
        try:
            yield
        finally:
            self.waiting -= 1

    def stop(self, job: Job) -> bool:
        """Tell whoever has this job to stop, and wait a little for the answer. False: it is not here."""
        assignment = self._open.get(job.key)
        if assignment is None or assignment.result is None:
            return False
        if not assignment.is_leased:
            self._fail(assignment, "nobody had fetched the job", "cancelled")
        elif assignment.stop_until is None:
            assignment.stop_until = self._clock.monotonic() + cancel_grace_ms() / 1000
            self._to_be_told.setdefault(_place(assignment), {})[assignment.key] = assignment
            self._wake_pollers(assignment)
            self._watch(assignment.due)
        return True

    def is_answered(self, job: Job) -> bool:
        """Does a worker wait to hear that its answer is durable?"""
        assignment = self._open.get(job.key)
        return assignment is not None and assignment.told is not None

    def settled(self, job: Job, error: BaseException | None) -> None:
        """What a worker answered is durable, and its job's row went with that; or it came too late; or it could not be
        written: then the worker has to answer again."""
        assignment = self._open.get(job.key)
        if assignment is None:
            return
        if assignment.told is None:
            self._end(assignment)
        elif isinstance(error, Superseded):
            self._end(assignment)
            self._ended[assignment.key].is_shown = True  # where there is anything to show it in
        elif error is None:
            self._end(assignment, accepted=(assignment.row.token, assignment.digest))
        if assignment.told is None:
            return
        told, assignment.told, assignment.result = assignment.told, None, None
        if not told.done():
            if error is None:
                told.set_result(None)
            else:
                told.set_exception(error)

    # ---------------------------------------------------------------------------------- the side of the workers

    async def poll(
        self,
        worker: Worker,
        services: Iterable[str] | None = None,
        limit: int = 1,
        wait_secs: float = 0,
        leaving: asyncio.Event | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Fetched:
        """Jobs for a worker, waiting for the first one if it may. They are its own when this returns.

        `check` raises where the worker may have none any more, although it might when it began to wait.
        """
        if worker.kind != "pull":
            raise InvalidRequest(f"worker {worker.id!r} is called at {worker.name[1]}, and fetches nothing")
        wanted = frozenset(worker.services if services is None else set(services) & set(worker.services))
        queues = frozenset((worker.tenant, service) for service in wanted)
        until = self._clock.monotonic() + min(max(0.0, wait_secs), limits.now.wait_secs_max)
        taken, cancel = list[Assignment](), list[str]()
        while not worker.is_gone:
            check()
            self._roster.hear(worker)
            taken, cancel = (
                self._take(worker, queues, min(max(1, limit), limits.now.poll_jobs_max)),
                self._to_stop(worker),
            )
            left = until - self._clock.monotonic()
            if taken or cancel or left <= 0 or (leaving is not None and leaving.is_set()):
                break
            await self._woken(
                queues | {(worker.tenant, f"@{worker.id}")}, min(left, self._roster.ttl_secs / 3), leaving
            )
        return Fetched(await self._given_out(taken), cancel)

    async def _woken(self, queues: frozenset[Queue], seconds: float, leaving: asyncio.Event | None) -> None:
        """Until there may be something, the time is over, or the server stops."""
        event = asyncio.Event()
        for queue in queues:
            self._pollers.setdefault(queue, {})[event] = None
        waits = [asyncio.ensure_future(each.wait()) for each in (event, leaving) if each is not None]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for queue in queues:
                del self._pollers[queue][event]
                if not self._pollers[queue]:
                    del self._pollers[queue]
            for waiting in waits:
                waiting.cancel()

    async def heartbeat(
        self, tenant: str, name: str, token: str, progress: Progress | None = None, load: int | None = None
    ) -> Renewed:
        """The worker is still at it."""
        assignment = self._leased(await self._key(tenant, name), name, token)
        if assignment.worker is not None:
            self._roster.hear(assignment.worker)
            if load is not None:
                assignment.worker.says(load)
        assignment.lease_until = self._clock.monotonic() + self.lease_secs
        if progress is not None and assignment.job is not None:
            assignment.job.context.progress(progress.done, progress.total, progress.message)
        return Renewed(self.lease_secs, assignment.stop_until is not None)

    async def complete(
        self,
        tenant: str,
        name: str,
        token: str,
        result: Any = None,
        error: str = "",
        error_kind: str | None = None,
    ) -> None:
        """The answer to a job; durable when this returns. Said twice, it counts once. A result that is `Raw` is compact
        JSON text that was checked."""
        outcome = self._outcome(result, error, error_kind)
        said = hashlib.sha256(repr((error_kind, error)).encode())
        said.update(outcome if isinstance(outcome, bytes) else b"")
        digest = said.digest()
        receipt = hashlib.sha256(token.encode() + digest).hexdigest()[:32]
        key = await self._key(tenant, name)
        try:
            assignment = self._leased(key, name, token)
        except Superseded:
            if self._was_accepted(key, token, digest) or await self._was_written(key, receipt):
                return
            self._late(key, token, outcome)
            raise
        if assignment.told is not None:
            if assignment.digest != digest:
                raise Superseded(f"assignment {name} has just been answered otherwise")
            return await asyncio.shield(assignment.told)
        if assignment.result is None or assignment.result.done():
            if await self._was_written(key, receipt):
                return
            raise Unavailable("the run of this job is being taken up; answer again in a moment")
        told = assignment.told = asyncio.get_running_loop().create_future()
        told.add_done_callback(_is_read)
        assignment.digest = digest
        assert assignment.job is not None
        assignment.job.worker = (assignment.row.worker, "", receipt)
        if isinstance(outcome, bytes):
            assignment.result.set_result(outcome)
        else:
            assignment.result.set_exception(outcome)
        await asyncio.shield(told)

    @staticmethod
    def _outcome(result: Any, error: str, error_kind: str | None) -> bytes | ToolError:
        if error:
            return failure_of(error, error_kind)
        if isinstance(result, msgspec.Raw):
            return bytes(result)
        try:
            return encode(result)
        except NotJson as why:
            raise InvalidRequest(f"the result is not JSON: {why}") from None

    # ------------------------------------------------------------------------------------------------- offering

    def _offer(self, assignment: Assignment) -> None:
        job = assignment.job
        assert job is not None
        self._offered.setdefault((job.tenant, job.service), {})[assignment.key] = assignment
        self._wake_pollers(assignment)
        self._watch(self._clock.monotonic() + SWEEP_SECONDS)

    def _wake_pollers(self, assignment: Assignment) -> None:
        """All who could take it: one of them may be gone, and nobody can tell which."""
        assert assignment.job is not None
        name = f"@{assignment.row.worker}" if assignment.is_leased else assignment.job.service
        self._wake(assignment.job.tenant, name)

    def _wake(self, tenant: str, name: str) -> None:
        for event in self._pollers.get((tenant, name), ()):
            event.set()

    def _take(self, worker: Worker, queues: frozenset[Queue], limit: int) -> list[Assignment]:
        taken: list[Assignment] = []
        for queue in sorted(queues):
            offered = self._offered.get(queue)
            while offered and len(taken) < limit:
                assignment = offered.pop(next(iter(offered)))
                self._lease(assignment, worker)
                taken.append(assignment)
            if offered is not None and not offered:
                del self._offered[queue]
        return taken

    def _lease(self, assignment: Assignment, worker: Worker) -> None:
        """Give a job to a worker. Its lease begins when that is durable (`_given_out`), however long a sync takes."""
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
        assignment.lease_until = now + self.lease_secs
        if timeout_ms := assignment.job.rule.call_timeout_ms:
            assignment.call_until = now + timeout_ms / 1000
        self._watch(assignment.due)

    def _lease_again(self, assignment: Assignment) -> None:
        """Given out by an engine before this one. Its call may last what was left of its time."""
        job, row, now = assignment.job, assignment.row, self._clock.monotonic()
        assert job is not None
        job.worker = (row.worker, "")
        try:
            assignment.worker = self._roster.worker(job.tenant, row.worker)
        except NotFound:
            assignment.worker = None
        assignment.lease_until = now + self.lease_secs
        if job.rule.call_timeout_ms:
            spent = (self._clock.now() - row.claimed_at) / 1000
            assignment.call_until = now + max(0.0, job.rule.call_timeout_ms / 1000 - spent)
        self._watch(assignment.due)

    def _note(self, assignment: Assignment) -> None:
        self._writes.batch.assignments.append(assignment.row)
        self._writes.soon()

    async def _given_out(self, taken: list[Assignment]) -> list[Offer]:
        """Hand jobs out once it is durable who has them; if it will not be, nobody has."""
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
        return [self._shown(assignment) for assignment in given]

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
            self.lease_secs,
        )
        return (
            offer if job.traceparent is None else msgspec.structs.replace(offer, traceparent=job.traceparent)
        )

    def _take_back(self, assignment: Assignment) -> None:
        assignment.row = msgspec.structs.replace(assignment.row, worker="", token="")
        assignment.lease_until = assignment.call_until = float("inf")
        assignment.worker = None
        self._note(assignment)
        self._offer(assignment)

    # ------------------------------------------------------------------------------------------- late and again

    async def _key(self, tenant: str, name: str) -> Key:
        """The job of that name. Another tenant's does not exist, and never did."""
        assignment = self._named.get(name)
        if assignment is not None and assignment.job is not None and assignment.job.tenant == tenant:
            return assignment.key
        run, path, attempt = parts_of(name)
        if isinstance(run, int):
            row = await self._store.run_by_no(RunNo(run))
        else:
            row = await self._store.run_by_id(tenant, RunId(run))
        if row is None or row.tenant != tenant:
            raise _unknown(name)
        return row.no, path, attempt

    def _leased(self, key: Key, name: str, token: str) -> Assignment:
        """The open job, if the token is that of its lease."""
        assignment = self._open.get(key)
        if assignment is None:
            raise Superseded(f"assignment {name} is over: it was answered, stopped or given up")
        if not secrets.compare_digest(assignment.row.token.encode(), token.encode()):
            raise Superseded(f"assignment {name} is with somebody else: the lease of this token is over")
        return assignment

    async def _was_written(self, key: Key, receipt: str) -> bool:
        """Did an engine before this one take this very answer? Then its receipt stands in the run's journal."""
        no, path, attempt = key
        found, run = self._open.get(key), await self._store.run_by_no(no)
        if key in self._ended or run is None or (found is not None and found.job is not None):
            return False  # it came to its end here, or has not come to it
        ends = await self._store.ends(run.tenant, run.id)
        last = 0 if ends is None else ends.last[0]
        for until in range(last, max(0, last - ROWS_LOOKED_AT_MAX), -ROWS_AT_A_TIME):
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

    def _was_accepted(self, key: Key, token: str, digest: bytes) -> bool:
        ended = self._ended.get(key)
        return ended is not None and ended.accepted == (token, digest)

    def _late(self, key: Key, token: str, outcome: bytes | ToolError) -> None:
        """Show an answer that came too late, once, if it is from somebody who had the job."""
        open_one, ended = self._open.get(key), self._ended.get(key)
        if open_one is not None:
            if open_one.job is not None and token in open_one.tokens:
                open_one.job.context.log("a worker answered after its lease was over")
        elif (
            ended is not None and token in ended.tokens and not ended.is_shown and self.show_late is not None
        ):
            ended.is_shown = True
            self.show_late(key, outcome)

    def _to_stop(self, worker: Worker) -> list[str]:
        """Jobs of a worker that it was not yet told to stop. Later on it is told by heartbeats alone."""
        found = self._to_be_told.pop((worker.tenant, f"@{worker.id}"), {})
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
            _take_out(self._to_be_told, _place(assignment), assignment.key)
        if accepted is None:  # else the row went with the answer
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

    def _fail(self, assignment: Assignment, message: str, kind: str) -> None:
        """The attempt ends without an answer."""
        self._withdraw(assignment)
        if assignment.result is not None and not assignment.result.done():
            assignment.result.set_exception(ToolError(message, kind=kind))

    # ---------------------------------------------------------------------------------------------------- times

    def _paused(self, seconds: float) -> None:
        """We could not listen: that time counts against nobody, and a worker has as long again to be heard, up to a lease."""
        now = self._clock.monotonic()
        least, most = now + min(seconds, self.lease_secs), now + self.lease_secs
        for assignment in self._open.values():
            if assignment.lease_until != float("inf"):
                assignment.lease_until = min(max(assignment.lease_until + seconds, least), most)
            assignment.call_until += seconds
            if assignment.stop_until is not None:
                assignment.stop_until += seconds
            if assignment.alone_since is not None:
                assignment.alone_since += seconds

    def _watch(self, at: float) -> None:
        self._pulse.start()
        now = self._clock.monotonic()
        at = min(at, now + SWEEP_SECONDS)
        if self._sweep is not None and self._sweep_at <= at:
            return
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_at = at
        self._sweep = asyncio.get_running_loop().call_later(max(0.0, at - now), self._look_after)

    def _look_after(self) -> None:
        self._sweep = None
        self._pulse.look()
        now = self._clock.monotonic()
        able: dict[tuple[str, str], bool] = {}
        for assignment in list(self._open.values()):
            if assignment.result is None or assignment.result.done():
                continue
            if assignment.is_leased:
                self._look_at_lease(assignment, now)
            else:
                self._look_at_offer(assignment, now, able)
        due = [each.due for each in self._open.values() if each.result is not None and not each.result.done()]
        if due:
            self._watch(min(due))

    def _look_at_lease(self, assignment: Assignment, now: float) -> None:
        job, row = assignment.job, assignment.row
        assert job is not None
        if assignment.stop_until is not None and assignment.stop_until <= now:
            self._fail(assignment, f"worker {row.worker} did not stop in time", "cancelled")
        elif assignment.call_until <= now and assignment.stop_until is None:
            timeout_ms = job.rule.call_timeout_ms or 0
            self._fail(
                assignment, f"worker {row.worker} did not answer within {timeout_ms / 1000:g} s", "timeout"
            )
        elif assignment.lease_until <= now:
            self._lease_is_over(assignment)

    def _lease_is_over(self, assignment: Assignment) -> None:
        job, row = assignment.job, assignment.row
        assert job is not None
        log.warning("run %s: worker %s fell silent with step %s", job.run_id, row.worker, job.path)
        if assignment.stop_until is not None:
            self._fail(assignment, f"worker {row.worker} fell silent", "cancelled")
        elif job.only_once:
            self._fail(assignment, f"worker {row.worker} fell silent, and it must not be done twice", "lost")
        elif row.offers >= limits.now.leases_max:
            message = f"the leases of {row.offers} workers in turn expired ({limits.met('leases_max')})"
            self._fail(assignment, message, "lost")
        else:
            self._take_back(assignment)

    def _look_at_offer(self, assignment: Assignment, now: float, able: dict[tuple[str, str], bool]) -> None:
        job = assignment.job
        assert job is not None
        queue = (job.tenant, job.service)
        if queue not in able:
            able[queue] = bool(self._roster.able(*queue, "pull"))
        if able[queue]:
            assignment.alone_since = None
        elif assignment.alone_since is None:
            assignment.alone_since = now
        elif now - assignment.alone_since >= self._roster.ttl_secs:
            self._fail(
                assignment, f"no worker: nobody is left who fetches jobs of {job.service!r}", "no_worker"
            )


def _place(assignment: Assignment) -> Queue:
    """Where the worker is told that has this job."""
    assert assignment.job is not None
    return assignment.job.tenant, f"@{assignment.row.worker}"


def _take_out(places: dict[Place, dict[Key, Entry]], place: Place, key: Key) -> None:
    """Out of a place, and the last one takes the place along."""
    found = places.get(place)
    if found is not None and found.pop(key, GONE) is not GONE and not found:
        del places[place]


def id_of(run_id: RunId, path: str, attempt: int) -> str:
    """The name of a job. It says whose attempt it is, and not how many runs there are."""
    text = msgspec.json.encode((run_id, path, attempt))
    return "asg-" + base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def parts_of(name: str) -> tuple[str | int, str, int]:
    """Run, path and attempt of a job. Releases up to 0.3 gave out names with the number of the run in place of its id."""
    try:
        text = name.removeprefix("asg-").encode("ascii")
        run, path, attempt = msgspec.json.decode(
            base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4)), type=tuple[int | str, str, int]
        )
    except (ValueError, msgspec.MsgspecError):
        raise _unknown(name) from None
    if isinstance(run, int) and not 0 < run < NO_MAX:
        raise _unknown(name)
    return run, path, attempt


def _unknown(name: str) -> NotFound:
    return NotFound(f"there is no assignment {name!a:.100}")


def _is_read(told: asyncio.Future[None]) -> None:
    """Whoever waited for it may be gone: an error that nobody asks for is none."""
    if not told.cancelled():
        told.exception()
