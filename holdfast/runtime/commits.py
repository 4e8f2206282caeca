"""The commits of the door: what many runs add is collected, committed together, and then followed up.

    door ─► batch and entries ─► committer ══ durable ══► follower ─► callers, readers
                 ▲                            ║
                 └── the next one fills       ╚══ failed ═► fenced, one by one, or dropped until commits work again

Knows which rows belong to which callers, and what a failed commit means for them. Does not know what an event means, or how decisions
are carried out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import perf_counter
from typing import Final, Protocol

from holdfast.engine.events import (
    Adopted,
    AttemptReleased,
    AttemptTimedOut,
    Continued,
    Event,
    StepFailed,
    StepPaused,
    StepSucceeded,
)
from holdfast.errors import HoldfastError, NodeIsOver, StoreUnavailable
from holdfast.runtime.committer import Committer
from holdfast.runtime.entries import Ahead, Entry, Reply, Watcher, answer, read_back, run_no
from holdfast.runtime.resident_run import ResidentRun
from holdfast.store.base import Fenced
from holdfast.store.batch import Batch
from holdfast.store.records import SetAside
from holdfast.values import RunNo

log = logging.getLogger("holdfast")

# Inputs that are not sent a second time. Timers are armed again from the rows of the run.
_KEPT: Final = (StepSucceeded, StepFailed, StepPaused, AttemptTimedOut, AttemptReleased, Adopted, Continued)


# More entries than FEW wait for a turn of the loop in which none is added, unless there are ENOUGH: many callers send their next
# requests within a few turns, and a commit costs as much as a dozen entries.
FEW: Final = 3
ENOUGH: Final = 64
TURNS_MAX: Final = 8  # of the loop, in which a commit waits for a row that is to be part of it


class FiringLost(HoldfastError):
    """The start of a scheduled run was refused: the schedule's cursor moved, or the occurrence already has a run."""

    code = "firing_lost"


class Follower(Protocol):
    """Acts on what has become durable."""

    @property
    def has_more(self) -> bool:
        """Whether it will add rows without a new input."""

    def committed(self, batch: Batch, entries: list[Entry]) -> None: ...
    def was_set_aside(self, no: RunNo) -> None: ...


class Process(Protocol):
    """Called when commits work again, and when they never will."""

    def restored(self) -> None: ...
    def over(self, error: BaseException) -> None: ...


class Commits:
    def __init__(self, committer: Committer, follower: Follower) -> None:
        self.committer, self._follower = committer, follower
        self._process: Process
        committer.node = self
        self.residents: dict[RunNo, ResidentRun] = {}
        self.quarantined: dict[RunNo, SetAside] = {}
        self.watchers: list[Watcher] = []  # notified of each commit
        self.away: set[RunNo] = set()  # runs dropped by a commit that failed, until they are loaded again
        self.again: list[tuple[RunNo, Event]] = []  # inputs of those runs, which are applied after that
        self.batch = Batch()
        self.entries: list[Entry] = []
        self.in_flight = False
        self.is_scheduled = False
        self._gathered = 0  # entries at the last look
        self.expected = 0  # rows that are being decided, and are to be part of the commit that is collected
        self._turns = 0  # in which it waited for them
        self._submitted = 0.0
        self._idle: list[Reply] = []
        self._begun = self._over = 0  # commits
        self._waiters: list[Reply] = []  # answered whenever a commit is done

    def connect(self, process: Process) -> None:
        self._process = process

    def ahead(self, begin: Callable[[], None]) -> Ahead:
        """Decide and encode the runs that `begin` adds, in a batch of their own. They do not exist until `enter`."""
        kept, self.is_scheduled = (self.batch, self.entries, self.is_scheduled), True  # submits nothing
        self.batch, self.entries = Batch(), []
        try:
            begin()
            return Ahead(self.batch, self.entries)
        finally:
            for no in self.batch.new_runs:
                self.residents.pop(no, None)
            self.batch, self.entries, self.is_scheduled = kept

    def enter(self, ahead: Ahead) -> None:
        """Add runs that were decided ahead to the next commit."""
        if self.committer.is_shut:
            for entry, row in zip(ahead.entries, ahead.batch.rows, strict=True):
                self.turn_away(run_no(entry), read_back(entry, row)[0], entry[3])
            return
        for resident, *_ in ahead.entries:
            self.residents[resident.run.no] = resident
        self.batch.add(ahead.batch)
        self.entries += ahead.entries
        self.schedule()

    async def drained(self) -> None:
        """Wait until everything applied so far is durable or refused."""
        while (self.in_flight or self._follower.has_more or not self.is_empty) and not self.committer.is_shut:
            reply: Reply = asyncio.get_running_loop().create_future()
            self._idle.append(reply)
            self.schedule()
            await reply

    async def caught_up(self) -> None:
        """Wait until everything applied before this call is durable or refused, but not for later events."""
        target = self._begun + (not self.is_empty)
        while self._over < target and not self.committer.is_shut:
            reply: Reply = asyncio.get_running_loop().create_future()
            self._waiters.append(reply)
            self.schedule()
            await reply

    def _commit_done(self) -> None:
        self._over = self._begun
        if self._waiters:
            followers, self._waiters = self._waiters, []
            for reply in followers:
                answer(reply, None)

    def schedule(self) -> None:
        if not self.is_scheduled:
            self.is_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    @property
    def is_empty(self) -> bool:
        return not self.entries and not self.batch.is_due

    def _flush(self) -> None:
        """Commit what is collected, unless more starts seem to be on their way."""
        if self.batch.new_runs and FEW < (count := len(self.entries)) < ENOUGH and count > self._gathered:
            self._gathered = count
            asyncio.get_running_loop().call_soon(self._flush)
            return
        if self.expected and self._turns < TURNS_MAX:
            self._turns += 1
            asyncio.get_running_loop().call_soon(self._flush)
            return
        self.is_scheduled, self._gathered, self._turns = False, 0, 0
        if self.in_flight or self.committer.is_shut or self.is_empty:
            return
        batch, entries = self.batch, self.entries
        self.batch, self.entries = Batch(), []
        self._begun += 1
        self._submit(batch, entries)

    def _submit(self, batch: Batch, entries: list[Entry]) -> None:
        self._submitted = perf_counter()
        self.in_flight = True
        self.committer.submit(batch, lambda error: self._done(batch, entries, error))

    def _done(self, batch: Batch, entries: list[Entry], error: BaseException | None) -> None:
        self.in_flight = False
        if error is not None:
            return self._failed(batch, entries, error)
        if self.watchers:
            self._notify_watchers(batch, entries)
        self._follower.committed(batch, entries)
        self._commit_done()
        if self.committer.is_stalled:  # by a commit of another part, while this one was in progress
            self._drop(Batch(), [], StoreUnavailable("the database cannot be written now; try again"))
        elif not self.is_empty:
            self.schedule()
        elif self._idle and not self._follower.has_more:
            self.notify_idle()

    def notify_idle(self) -> None:
        idle, self._idle = self._idle, []
        for reply in idle:
            answer(reply, None)

    def _notify_watchers(self, batch: Batch, entries: list[Entry]) -> None:
        seconds = perf_counter() - self._submitted
        for watcher in self.watchers:
            try:
                watcher(batch, entries, seconds)
            except Exception:  # a failing watcher must not prevent the work
                log.exception("a watcher failed")

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
        self._submit(rest, [entry for entry in entries if run_no(entry) not in lost])

    def _lose(self, runs: set[RunNo], entries: list[Entry], error: Fenced) -> None:
        for no in runs:
            self.residents.pop(no, None)
        self._forget_pending(runs, error)
        unstarted = {firing.no for firing in error.firings}
        for resident, _, _, reply in entries:
            if resident.run.no in unstarted:
                answer(reply, FiringLost("the schedule has already decided this occurrence"))
            elif resident.run.no in runs:
                answer(reply, NodeIsOver("another node owns this run now"))

    def _one_by_one(self, batch: Batch, entries: list[Entry]) -> None:
        """Commit each run separately, so that a run that cannot be written affects only itself."""
        parts: dict[RunNo, list[Entry]] = {}
        for entry in entries:
            parts.setdefault(run_no(entry), []).append(entry)
        runs = list(parts)

        def send(index: int) -> None:
            if index == len(runs):
                return self._done(Batch(), [], None)
            no = runs[index]
            part, sending = parts[no], batch.only({no})
            self._submitted, self.in_flight = perf_counter(), True
            self.committer.submit(sending, lambda error: sent(index, part, sending, error))

        def sent(index: int, part: list[Entry], sending: Batch, error: BaseException | None) -> None:
            if error is None:
                self._notify_watchers(sending, part)
                self._follower.committed(sending, part)
            elif isinstance(error, StoreUnavailable | NodeIsOver | SystemExit):
                unsent = set(runs[index:])
                rest = [entry for entry in entries if run_no(entry) in unsent]
                return self._done(batch.only(unsent), rest, error)
            elif isinstance(error, Fenced):
                self._lose(set(error.runs), part, error)
            else:
                self.quarantine(part[0][0], error, None)
                for *_, reply in part:
                    answer(reply, StoreUnavailable(f"the run was set aside: {error}"))
            # a commit on the loop completes at once: a loop instead of recursion
            asyncio.get_running_loop().call_soon(send, index + 1)

        send(0)

    def quarantine(self, resident: ResidentRun, error: BaseException, reply: Reply | None) -> None:
        """A bug in Holdfast quarantines the run in which it happened, and no other run."""
        no = resident.run.no
        log.error("run %s is set aside because of a bug in Holdfast", resident.run.id, exc_info=error)
        self.residents.pop(no, None)
        self.set_aside(no, error)
        self._forget_pending({no}, error)
        answer(reply, HoldfastError(f"run {resident.run.id} was set aside: {error!r}"))

    def set_aside(self, no: RunNo, error: BaseException) -> None:
        retry = "it is retried when the server is restarted, or by a newer release"
        self.quarantined[no] = SetAside(f"this is a bug in Holdfast: {error!r:.500}", retry)
        self._follower.was_set_aside(no)

    def _forget_pending(self, runs: set[RunNo], error: BaseException) -> None:
        for resident, _, _, reply in self.entries:
            if resident.run.no in runs:
                answer(reply, StoreUnavailable(str(error)))
        self.entries = [entry for entry in self.entries if run_no(entry) not in runs]
        self.batch = self.batch.without(runs)

    def stalled(self, error: BaseException) -> None:
        """A commit of another part failed: do not send what is collected here either."""
        if not self.in_flight:
            self._drop(Batch(), [], error)

    def _drop(self, batch: Batch, entries: list[Entry], error: BaseException) -> None:
        """Drop state that did not become durable, and keep its inputs until commits work again."""
        rows = [*batch.rows, *self.batch.rows]
        for entry, row in zip([*entries, *self.entries], rows, strict=True):
            no = run_no(entry)
            self.away.add(no)
            self.residents.pop(no, None)
            self.turn_away(no, read_back(entry, row)[0], entry[3], error)
        stored = [*batch.artefacts, *self.batch.artefacts]  # their outcomes are applied again
        self.batch, self.entries = Batch(), []
        self.batch.artefacts = stored
        self._commit_done()
        self.notify_idle()

    def turn_away(
        self, no: RunNo, event: Event, reply: Reply | None, error: BaseException | None = None
    ) -> None:
        """Callers of the API get an error at once. Outcomes of attempts are kept, because they are not sent again."""
        if reply is not None:
            why = error or (
                NodeIsOver("this process no longer owns the database")
                if self.committer.is_over
                else StoreUnavailable("the database is unavailable")
            )
            answer(reply, why)
        elif isinstance(event, _KEPT):
            # timers are not kept: they are armed again from the rows of the run
            self.again.append((no, event))

    def restored(self) -> None:
        log.warning("the database can be written again; %d runs continue", len(self.away))
        self._process.restored()

    def over(self, error: BaseException) -> None:
        """This process may not write any more: fail all callers and change nothing."""
        self._reject_all(self.entries, error)
        self.batch, self.entries = Batch(), []
        self.residents.clear()
        self._process.over(error)

    def _reject_all(self, entries: list[Entry], error: BaseException) -> None:
        for *_, reply in entries:
            answer(reply, error if isinstance(error, Exception) else NodeIsOver(str(error)))
        self._commit_done()
        self.notify_idle()
