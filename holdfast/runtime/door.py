"""The door: turns every input into an event of one run. No other module calls `engine.step`.

    apply ─► engine.step ─► encode ─► batch ══ commit ══► carry out, answer
                                       ▲                    │
                                       └── the next one fills while this one is being committed

Events of many runs are decided and folded in memory, and their rows are committed together. After the commit, their
decisions are carried out and their callers get a response. Does not know which interface a request came
from, or how decisions are carried out.

Budget of the hot path, as shares of the total cost of a plain step: decide one fifth, fold one seventh, encoding
and the door itself a tenth. `python -m bench w1_saturated` measures the total.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Final, NamedTuple, Protocol

import msgspec

from holdfast.deliveries.destinations import callback_deliveries_of
from holdfast.engine.codec import decode_row, encode_event, encode_parts, encode_plain, encode_row
from holdfast.engine.decisions import Continue, Decision, FinishRun, OpenWait, Poll, StartAttempt, StopAttempt
from holdfast.engine.effects import Effect, KeyWork
from holdfast.engine.events import (
    Adopted,
    AttemptReleased,
    AttemptTimedOut,
    Continued,
    Event,
    KeyAnswered,
    KeyGranted,
    KeyHeld,
    RunStarted,
    StepFailed,
    StepPaused,
    StepSucceeded,
    SuspectsTurn,
)
from holdfast.engine.step import next_inputs, start_next, step
from holdfast.errors import HoldfastError, NodeIsOver, StoreUnavailable
from holdfast.runtime import resident_run
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.runtime.fatal_runs import FatalRuns
from holdfast.runtime.resident_run import (
    ResidentRun,
    key_entry,
    may_evict,
    needs_of,
    schedule_end,
    wait_opened,
    wake_at_of,
)
from holdfast.store.artefacts import named_in
from holdfast.store.base import Fenced
from holdfast.store.batch import Batch
from holdfast.store.ownership import NewMail
from holdfast.store.records import JournalRow, NewRun, Request, RunChange, SetAside, WaitClosed
from holdfast.store.schedule_records import Firing
from holdfast.values import TERMINAL, Millis, RunNo

log = logging.getLogger("holdfast")

ANY_TIME: Final = Millis(0)
# Turns that the event loop takes before a split decision goes on: a new connection is accepted, read and answered in them.
TURNS_BETWEEN: Final = 3

KINDS: Final[dict[type, str]] = {kind: kind.__struct_config__.tag for kind in Event.__args__}

SUCCEEDED: Final = KINDS[StepSucceeded]
NO_DECISIONS: Final[list[Decision]] = []  # of a plain row, which has them in its body

# Inputs that are not sent a second time. Timers are armed again from the rows of the run.
_KEPT: Final = (StepSucceeded, StepFailed, StepPaused, AttemptTimedOut, AttemptReleased, Adopted, Continued)
# Decisions that are carried out after the commit. All others only change the run.
_CARRIED_OUT: Final = frozenset({StopAttempt, Continue, OpenWait, Poll, FinishRun})

Reply = asyncio.Future[None]


class FiringLost(HoldfastError):
    """The start of a scheduled run was refused: the schedule's cursor moved, or the occurrence already has a run."""

    code = "firing_lost"


class PlainRow(msgspec.Struct, gc=False):
    """Stands for the event and the decision of a plain row: a call succeeded and the next one starts. `read_back` makes them."""

    start: str  # the path that starts
    ran_ms: int


# One for each row of a batch, in the same order.
Entry = tuple[ResidentRun, Event | PlainRow, list[Decision], Reply | None]


class Ahead(NamedTuple):
    """New runs that were decided before their time, and are in no commit yet."""

    batch: Batch
    entries: list[Entry]


# a commit, the rows it made durable, and the seconds it took
Watcher = Callable[[Batch, list[Entry], float], None]


class EffectHandler(Protocol):
    """Carries decisions out once they are durable."""

    def put_jobs(self, resident: ResidentRun, decisions: list[Decision], batch: Batch) -> None: ...
    def jobs_are_put(self, batch: Batch) -> None: ...
    def start_attempt(self, resident: ResidentRun, path: str, attempt: int) -> None: ...
    def stop_attempt(self, no: RunNo, path: str) -> None: ...
    def paused(self, resident: ResidentRun, path: str, task_id: str) -> None: ...
    def poll(self, resident: ResidentRun, path: str, attempt: int) -> None: ...
    def run_ended(self, resident: ResidentRun) -> None: ...
    def committed(self, resident: ResidentRun) -> None: ...
    def parked(self, resident: ResidentRun, wake_at: Millis | None) -> None: ...
    def is_due(self) -> None: ...
    def has_artefact(self, tenant: str, sha256: str) -> bool: ...
    def set_aside(self, no: RunNo) -> None: ...


class Process(Protocol):
    """Called when commits work again, and when they never will."""

    def restored(self) -> None: ...
    def over(self, error: BaseException) -> None: ...


class Door:
    def __init__(self, committer: Committer, clock: Clock, fatal_runs: FatalRuns) -> None:
        self.committer, self.clock = committer, clock
        self.handler: EffectHandler
        self._process: Process
        committer.node = self
        self.watch(fatal_runs)
        self.residents: dict[RunNo, ResidentRun] = {}
        self.quarantined: dict[RunNo, SetAside] = {}
        self.watchers: list[Watcher] = []  # notified of each commit
        self.away: set[RunNo] = set()  # runs dropped by a commit that failed, until they are loaded again
        self.again: list[tuple[RunNo, Event]] = []  # inputs of those runs, which are applied after that
        # What the commit that ends a run writes for schedules that wait for that; None if there are none.
        self.ends: Callable[[ResidentRun], list[Firing]] | None = None
        self.parks = True
        self.shares_runs = False  # other nodes may drive runs of this database
        self._batch = Batch()
        self._entries: list[Entry] = []
        self._in_flight = False
        self._submitted = 0.0
        self._scheduled = False
        self._idle: list[Reply] = []
        self._begun = self._over = 0  # commits
        self._followers: list[Reply] = []  # notified whenever a commit is done
        self._split: dict[RunNo, ResidentRun] = {}  # runs whose decision was split, with the rest durable
        self._continues = False  # whether some of them have their turn soon

    def connect(self, handler: EffectHandler, process: Process) -> None:
        """Set the handler that carries decisions out. Its parts apply events to the door, so they are created after
        it."""
        self.handler, self._process = handler, process

    def watch(self, fatal_runs: FatalRuns) -> None:
        """Record from now on which run is being decided, so that a crash can be attributed to it."""
        self.fatal_runs, self.deciding, self.watched = fatal_runs, fatal_runs.mark.now, fatal_runs.watched

    @property
    def is_stalled(self) -> bool:
        return self.committer.is_stalled

    @property
    def is_over(self) -> bool:
        return self.committer.is_over

    # ------------------------------------------------------------------------------------------------ the door

    def apply(
        self, resident: ResidentRun, event: Event, reply: Reply | None = None, not_before: Millis = ANY_TIME
    ) -> None:
        """Apply one event. `reply` is resolved when the event is durable, or rejected if it cannot be stored.

        The row gets the time of the clock, but never an earlier time than the run's last row or `not_before`.
        """
        run = resident.run
        if self.committer.is_shut:
            return self._turn_away(run.no, event, reply)
        if run.status in TERMINAL:
            log.info("ignored: run %s is %s: %r", run.id, run.status, event)
            return _answer(reply, None)
        at = self.clock.now()
        if at < run.at:
            at = run.at  # if the wall clock was set back, rows must still be in order of time
        if at < not_before:
            at = not_before
        deciding, no, epoch = self.deciding, run.no, resident.epoch
        deciding[0] = no
        if self.watched and no in self.watched:
            self.fatal_runs.begins(no, _doing(event))
        try:
            plan = resident.plan
            decisions, effects = step(plan, run, event, at, epoch)
            body, blobs = encode_row(event, decisions)
            if plan.asks_workers:
                self.handler.put_jobs(resident, decisions, self._batch)
        except Exception as error:
            deciding[0] = 0
            return self._quarantine(resident, error, reply)
        if blobs:
            self._put_aside(resident, blobs)
        if effects:
            self._put_effects(resident, effects, at)
        if run.status != "running" or not resident.is_settled:
            self._change(resident, at)
        self._append(resident, at, KINDS[type(event)], body, (resident, event, decisions, reply))

    def succeed(self, resident: ResidentRun, path: str, number: int, output: bytes, ran_ms: int) -> None:
        """Apply the success of an attempt, as `apply` does. If a call follows, no event and no decision is made: its row has both."""
        run, plan, value = resident.run, resident.plan, msgspec.Raw(output)
        way = plan.root.plain.get(path)
        if (
            way is None or way.call is None or number != 1 or not resident.is_settled
            or self.watched or self.committer.is_shut or plan.asks_workers
        ):  # fmt: skip
            return self.apply(resident, StepSucceeded(path, number, value, ran_ms))
        at = self.clock.now()
        if at < run.at:
            at = run.at  # as above
        self.deciding[0] = run.no
        try:
            inputs = next_inputs(plan, run, way, path, number, value, at, resident.epoch)
            if inputs is None or (body := encode_plain(way, path, output, ran_ms, inputs)) is None:
                return self.apply(resident, StepSucceeded(path, number, value, ran_ms))
            start_next(run, way, path, value, inputs, at)
        except Exception as error:
            self.deciding[0] = 0
            return self._quarantine(resident, error, None)
        entry: Entry = (resident, PlainRow(way.name, ran_ms), NO_DECISIONS, None)
        self._append(resident, at, SUCCEEDED, body, entry)

    def _append(self, resident: ResidentRun, at: Millis, kind: str, body: str, entry: Entry) -> None:
        run = resident.run
        self._batch.rows.append((run.no, run.seq, resident.epoch, at, kind, body))
        self._entries.append(entry)
        resident.journal_bytes += len(body)
        if resident.journal_bytes > resident.snapshot_at:
            self._snapshot(resident)
        self.deciding[0] = 0
        if not self._scheduled:
            self._schedule()

    def _put_effects(self, resident: ResidentRun, effects: Iterable[Effect], at: Millis) -> None:
        """Let the commit of a row reserve and release concurrency keys, and store the waits that it opens and closes."""
        run, batch = resident.run, self._batch
        for effect in effects:
            if isinstance(effect, KeyWork):
                batch.keys.append(key_entry(resident, effect, at))
                continue
            path, attempt, wait, outcome = effect
            if outcome is None:
                batch.opened_waits.append(wait_opened(run, effect))
            else:
                batch.closed_waits.append(WaitClosed(at, outcome, run.no, path, attempt, wait.kind))

    def _put_aside(self, resident: ResidentRun, blobs: list[tuple[str, bytes]]) -> None:
        for sha256, text in blobs:
            self._batch.blobs.append((resident.run.no, sha256, text))
            resident.journal_bytes += len(text)  # loading the run reads it, as it does the row

    def begin(
        self,
        resident: ResidentRun,
        new: NewRun,
        event: RunStarted,
        reply: Reply,
        request: Request | None = None,
        firing: Firing | None = None,
        not_before: Millis = ANY_TIME,
    ) -> None:
        """Add a new run, with the request or the schedule that asked for it."""
        if not self.committer.is_shut:
            self._batch.new_runs[new.no] = new
            if firing is not None:
                self._batch.firings.append(firing)
            if request is not None:
                self._batch.requests.append(request)
            self.residents[new.no] = resident
            self._note_artefacts(resident, bytes(event.inputs))
            if event.vars or event.taken:  # taken over from the run that this one repeats
                outputs = [outcome.output for outcome in event.taken.values()]
                for value in (*event.vars.values(), *outputs):
                    self._note_artefacts(resident, bytes(value))
        self.apply(resident, event, reply, not_before)

    def ahead(self, begin: Callable[[], None]) -> Ahead:
        """Decide and encode the runs that `begin` adds, in a batch of their own. They do not exist until `enter`."""
        kept, self._scheduled = (self._batch, self._entries, self._scheduled), True  # submits nothing
        self._batch, self._entries = Batch(), []
        try:
            begin()
            return Ahead(self._batch, self._entries)
        finally:
            for no in self._batch.new_runs:
                self.residents.pop(no, None)
            self._batch, self._entries, self._scheduled = kept

    def enter(self, ahead: Ahead) -> None:
        """Add runs that were decided ahead to the next commit."""
        if self.committer.is_shut:
            for entry, row in zip(ahead.entries, ahead.batch.rows, strict=True):
                self._turn_away(_no(entry), read_back(entry, row)[0], entry[3])
            return
        for resident, *_ in ahead.entries:
            self.residents[resident.run.no] = resident
        self._batch.add(ahead.batch)
        self._entries += ahead.entries
        self._schedule()

    def deliver(self, no: RunNo, event: Event, reply: Reply | None = None) -> None:
        """Apply the outcome of an attempt. Its run may have been dropped or finished in the meantime."""
        resident = self.residents.get(no)
        if resident is not None:
            self.apply(resident, event, reply)
        elif reply is not None:
            _answer(reply, StoreUnavailable("the database is unavailable") if no in self.away else None)
        elif no in self.away:
            self.again.append((no, event))
        else:
            log.info("ignored: the run has finished: %s", KINDS[type(event)])

    def enter_isolation(self, resident: ResidentRun, path: str) -> None:
        """Start an isolated step, and record in the same commit that it runs alone."""
        if not self.committer.is_shut:
            self._batch.isolated = f"{resident.run.id} {path}"
        self.apply(resident, SuspectsTurn(path))

    def leave_isolation(self) -> None:
        if not self.committer.is_shut:
            self._batch.isolated = ""
            self._schedule()

    def release(self, resident: ResidentRun) -> None:
        """Release a run. It is due at once, so that the next process claims it."""
        run = resident.run
        is_waiting = run.status == "waiting"
        needs = needs_of(resident) if resident.lacks and is_waiting else None
        wake_at = run.wake_at if is_waiting else run.at
        self._batch.changes[run.no] = RunChange(run.status, False, resident.epoch, wake_at, needs)
        self.residents.pop(run.no, None)
        self._schedule()

    @property
    def batch(self) -> Batch:
        """The batch that is being collected, for rows of a commit that belong to no run."""
        return self._batch

    async def drained(self) -> None:
        """Wait until everything applied so far is durable or refused."""
        while (self._in_flight or self._split or not self._is_empty()) and not self.committer.is_shut:
            reply: Reply = asyncio.get_running_loop().create_future()
            self._idle.append(reply)
            self._schedule()
            await reply

    async def caught_up(self) -> None:
        """Wait until everything applied before this call is durable or refused, but not for later events."""
        target = self._begun + (not self._is_empty())
        while self._over < target and not self.committer.is_shut:
            reply: Reply = asyncio.get_running_loop().create_future()
            self._followers.append(reply)
            self._schedule()
            await reply

    def _commit_done(self) -> None:
        self._over = self._begun
        followers, self._followers = self._followers, []
        for reply in followers:
            _answer(reply, None)

    def _change(self, resident: ResidentRun, at: Millis) -> None:
        run = resident.run
        needs, is_over = None, run.over
        if resident.lacks and run.status == "waiting":  # it visits all steps, so not while others move
            needs = needs_of(resident)
            resident.lacks = needs is not None
        parked = is_over or (self.parks and may_evict(run, at))
        resident.is_settled = run.status == "running" and not (parked or resident.lacks)
        if run.status == resident.status and resident.owned and not parked:
            return
        finished_at = run.at if is_over else None
        wake_at = wake_at_of(run) if parked and not is_over else None
        if is_over and run.destinations:
            self._batch.callback_deliveries += callback_deliveries_of(run)
        if is_over and self.ends is not None:
            self._batch.firings += self.ends(resident)
        if is_over and resident.schedule is not None and run.status != "cancelled":
            self._batch.schedule_ends.append(schedule_end(resident, resident.schedule))
        self._batch.changes[run.no] = RunChange(
            run.status, not parked, run.epoch, wake_at, needs, finished_at
        )
        resident.status, resident.owned = run.status, not parked

    def _snapshot(self, resident: ResidentRun) -> None:
        parts = encode_parts(resident.run)
        self._batch.snapshots.extend((resident.run.no, part, resident.run.seq, body) for part, body in parts)
        resident.journal_bytes, resident.snapshot_at = 0, max(resident_run.SNAPSHOT_BYTES, len(parts[0][1]))

    # ------------------------------------------------------------------------------------------------- commits

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _is_empty(self) -> bool:
        return not self._entries and not self._batch.is_due

    def _flush(self) -> None:
        self._scheduled = False
        if self._in_flight or self.committer.is_shut or self._is_empty():
            return
        batch, entries = self._batch, self._entries
        self._batch, self._entries = Batch(), []
        self._begun += 1
        self._submit(batch, entries)

    def _submit(self, batch: Batch, entries: list[Entry]) -> None:
        self._submitted = perf_counter()
        self._in_flight = True
        self.committer.submit(batch, lambda error: self._done(batch, entries, error))

    def _done(self, batch: Batch, entries: list[Entry], error: BaseException | None) -> None:
        self._in_flight = False
        if error is not None:
            return self._failed(batch, entries, error)
        if self.watchers:
            self._notify_watchers(batch, entries)
        has_rest = batch.has_rest
        if has_rest:
            self.handler.jobs_are_put(batch)
        self._durable(entries)
        if has_rest:
            self._apply_verdicts(batch)
        self._commit_done()
        if self.is_stalled:  # by a commit of another part, while this one was in progress
            self._drop(Batch(), [], StoreUnavailable("the database cannot be written now; try again"))
        elif not self._is_empty():
            self._schedule()
        elif not self._split:
            self._notify_idle()

    def _apply_verdicts(self, batch: Batch) -> None:
        """Apply the verdict about a concurrency key to the steps that asked for it. The store has already made
        evicted runs due."""
        for no, path, verdict, output in batch.verdicts:
            resident = self.residents.get(no)
            if resident is None:
                self.handler.is_due()
                if self.shares_runs:
                    self._post_verdict(no, path, output)
            elif verdict == "granted":
                self.apply(resident, KeyGranted(path))
            elif verdict == "held":
                self.apply(resident, KeyHeld(path))
            else:
                assert output is not None
                self._note_artefacts(resident, output)
                self.apply(resident, KeyAnswered(path, msgspec.Raw(output)))

    def _post_verdict(self, no: RunNo, path: str, output: bytes | None) -> None:
        """Another node may drive the run that a key has passed to."""
        event = KeyGranted(path) if output is None else KeyAnswered(path, msgspec.Raw(output))
        mail = NewMail(no, uuid.uuid4().hex, self.clock.now(), encode_event(event))
        self._batch.posted_mail.append(mail)
        self._schedule()

    def _note_artefacts(self, resident: ResidentRun, text: bytes) -> None:
        """Keep the files that a run received from another run of its tenant from being deleted."""
        for sha256 in named_in(text):
            if self.handler.has_artefact(resident.run.tenant, sha256):
                self._batch.artefacts.append((resident.run.no, sha256, 0, self.clock.now()))

    def _notify_idle(self) -> None:
        idle, self._idle = self._idle, []
        for reply in idle:
            _answer(reply, None)

    def _durable(self, entries: list[Entry]) -> None:
        """Carry out the decisions, then answer the callers."""
        handler = self.handler
        start_attempt = handler.start_attempt
        moved: dict[RunNo, ResidentRun] = {}
        for resident, event, decisions, reply in entries:
            try:
                if type(event) is PlainRow:  # it changes nothing else
                    start_attempt(resident, event.start, 1)
                    continue
                for decision in decisions:
                    if type(decision) is StartAttempt:
                        start_attempt(resident, decision.path, decision.attempt)
                    elif type(decision) in _CARRIED_OUT:
                        self._carry_out(resident, decision)
            except Exception as error:  # the rest of the batch is not affected
                self._quarantine(resident, error, reply)
            run = resident.run
            if resident.owned:
                if run.timers or run.has_suspects or type(event) is Adopted:
                    moved[run.no] = resident
            elif not run.over:
                self._park(resident)
            if reply is not None:
                _answer(reply, None)
        if self._split and not self._continues:
            self._continues = True
            self._continue_after(TURNS_BETWEEN)
        # once per run and batch, because examining all timers of a run is expensive
        for resident in moved.values():
            handler.committed(resident)

    def _notify_watchers(self, batch: Batch, entries: list[Entry]) -> None:
        seconds = perf_counter() - self._submitted
        for watcher in self.watchers:
            try:
                watcher(batch, entries, seconds)
            except Exception:  # a failing watcher must not prevent the work
                log.exception("a watcher failed")

    def _carry_out(self, resident: ResidentRun, decision: Decision) -> None:
        match decision:
            case FinishRun():  # every run has one
                self.residents.pop(resident.run.no, None)
                self.handler.run_ended(resident)
            case StopAttempt(path=path):
                self.handler.stop_attempt(resident.run.no, path)
            case Continue():
                self._split[resident.run.no] = resident
            case OpenWait(path, "callback", task_id):
                self.handler.paused(resident, path, task_id)
            case Poll(path, attempt):
                self.handler.poll(resident, path, attempt)
            case _:
                pass

    def _continue_after(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._continue_after, turns - 1)
        else:
            self._continue_split()

    def _continue_split(self) -> None:
        """Continue one of the runs whose decision was split: the event takes up all that is left of the run. The rest have their turn
        after other tasks, because one row can take 0.1 s of expressions."""
        if self._split:
            no = next(iter(self._split))
            resident = self._split.pop(no)
            if self.residents.get(no) is resident:
                self.apply(resident, Continued())
        self._continues = bool(self._split)
        if self._continues:
            self._continue_after(TURNS_BETWEEN)
        elif not self._in_flight and self._is_empty():
            self._notify_idle()

    def _park(self, resident: ResidentRun) -> None:
        """Evict a run that its last row released, unless a new event has been applied since."""
        if self.residents.get(resident.run.no) is resident and resident.run.no not in self._batch.changes:
            del self.residents[resident.run.no]
            self.handler.parked(resident, wake_at_of(resident.run))

    # ------------------------------------------------------------------------------------------ when it goes wrong

    def _failed(self, batch: Batch, entries: list[Entry], error: BaseException) -> None:
        if isinstance(error, Fenced):
            return self._fenced(batch, entries, error)
        if isinstance(error, NodeIsOver | SystemExit):
            return self._reject_all(entries, error)
        if isinstance(error, StoreUnavailable):
            return self._drop(batch, entries, error)
        log.error(
            "a batch of %d rows was refused; trying its runs one by one", len(batch.rows), exc_info=error
        )
        self._one_by_one(batch, entries)

    def _fenced(self, batch: Batch, entries: list[Entry], error: Fenced) -> None:
        """Another process has written these runs or fires first: drop them, and send the rest of the batch again."""
        lost = set(error.runs)
        self._lose(lost, entries, error)
        rest = batch.without(lost)
        if error.firings:
            gone = set(map(id, error.firings))
            rest.firings = [one for one in rest.firings if id(one) not in gone]
        self._submit(rest, [entry for entry in entries if _no(entry) not in lost])

    def _lose(self, runs: set[RunNo], entries: list[Entry], error: Fenced) -> None:
        for no in runs:
            self.residents.pop(no, None)
        self._forget_pending(runs, error)
        unstarted = {firing.no for firing in error.firings}
        for resident, _, _, reply in entries:
            if resident.run.no in unstarted:
                _answer(reply, FiringLost("the schedule has already decided this occurrence"))
            elif resident.run.no in runs:
                _answer(reply, NodeIsOver("another node owns this run now"))

    def _one_by_one(self, batch: Batch, entries: list[Entry]) -> None:
        """Commit each run separately, so that a run that cannot be written affects only itself."""
        parts: dict[RunNo, list[Entry]] = {}
        for entry in entries:
            parts.setdefault(_no(entry), []).append(entry)
        runs = list(parts)

        def send(index: int) -> None:
            if index == len(runs):
                return self._done(Batch(), [], None)
            no = runs[index]
            part, sending = parts[no], batch.only({no})
            self._submitted, self._in_flight = perf_counter(), True
            self.committer.submit(sending, lambda error: sent(index, part, sending, error))

        def sent(index: int, part: list[Entry], sending: Batch, error: BaseException | None) -> None:
            if error is None:
                self._notify_watchers(sending, part)
                self.handler.jobs_are_put(sending)
                self._durable(part)
                self._apply_verdicts(sending)
            elif isinstance(error, StoreUnavailable | NodeIsOver | SystemExit):
                unsent = set(runs[index:])
                rest = [entry for entry in entries if _no(entry) in unsent]
                return self._done(batch.only(unsent), rest, error)
            elif isinstance(error, Fenced):
                self._lose(set(error.runs), part, error)
            else:
                self._quarantine(part[0][0], error, None)
                for *_, reply in part:
                    _answer(reply, StoreUnavailable(f"the run was set aside: {error}"))
            # a commit on the loop completes at once: a loop instead of recursion
            asyncio.get_running_loop().call_soon(send, index + 1)

        send(0)

    def _quarantine(self, resident: ResidentRun, error: BaseException, reply: Reply | None) -> None:
        """A bug in Holdfast quarantines the run in which it happened, and no other run."""
        no = resident.run.no
        log.error("run %s is set aside because of a bug in Holdfast", resident.run.id, exc_info=error)
        self.residents.pop(no, None)
        self.set_aside(no, error)
        self._forget_pending({no}, error)
        _answer(reply, HoldfastError(f"run {resident.run.id} was set aside: {error!r}"))

    def set_aside(self, no: RunNo, error: BaseException) -> None:
        retry = "it is retried when the server is restarted, or by a newer release"
        self.quarantined[no] = SetAside(f"this is a bug in Holdfast: {error!r:.500}", retry)
        self.handler.set_aside(no)

    def _forget_pending(self, runs: set[RunNo], error: BaseException) -> None:
        for resident, _, _, reply in self._entries:
            if resident.run.no in runs:
                _answer(reply, StoreUnavailable(str(error)))
        self._entries = [entry for entry in self._entries if _no(entry) not in runs]
        self._batch = self._batch.without(runs)

    def stalled(self, error: BaseException) -> None:
        """A commit of another part failed: do not send what is collected here either."""
        if not self._in_flight:
            self._drop(Batch(), [], error)

    def _drop(self, batch: Batch, entries: list[Entry], error: BaseException) -> None:
        """Drop state that did not become durable, and keep its inputs until commits work again."""
        rows = [*batch.rows, *self._batch.rows]
        for entry, row in zip([*entries, *self._entries], rows, strict=True):
            no = _no(entry)
            self.away.add(no)
            self.residents.pop(no, None)
            self._turn_away(no, read_back(entry, row)[0], entry[3], error)
        stored = [*batch.artefacts, *self._batch.artefacts]  # their outcomes are applied again
        self._batch, self._entries = Batch(), []
        self._batch.artefacts = stored
        self._commit_done()
        self._notify_idle()

    def _turn_away(
        self, no: RunNo, event: Event, reply: Reply | None, error: BaseException | None = None
    ) -> None:
        """Callers of the API get an error at once. Outcomes of attempts are kept, because they are not sent again."""
        if reply is not None:
            why = error or (
                NodeIsOver("this process no longer owns the database")
                if self.is_over
                else StoreUnavailable("the database is unavailable")
            )
            _answer(reply, why)
        elif isinstance(event, _KEPT):
            # timers are not kept: they are armed again from the rows of the run
            self.again.append((no, event))

    def restored(self) -> None:
        log.warning("the database can be written again; %d runs continue", len(self.away))
        self._process.restored()

    def over(self, error: BaseException) -> None:
        """This process may not write any more: fail all callers and change nothing."""
        self._reject_all(self._entries, error)
        self._batch, self._entries = Batch(), []
        self.residents.clear()
        self._process.over(error)

    def _reject_all(self, entries: list[Entry], error: BaseException) -> None:
        for *_, reply in entries:
            _answer(reply, error if isinstance(error, Exception) else NodeIsOver(str(error)))
        self._commit_done()
        self._notify_idle()


def _doing(event: Event) -> str:
    return f"{KINDS[type(event)]} {getattr(event, 'path', '')}".rstrip()


def read_back(entry: Entry, row: JournalRow) -> tuple[Event, list[Decision]]:
    """Return the event and the decisions of an entry, from the entry or from its row."""
    _, event, decisions, _ = entry
    return decode_row(row[5]) if isinstance(event, PlainRow) else (event, decisions)


def _no(entry: Entry) -> RunNo:
    return entry[0].run.no


def _answer(reply: Reply | None, error: BaseException | None) -> None:
    if reply is None or reply.done():
        return
    if error is None:
        reply.set_result(None)
    else:
        reply.set_exception(error)
