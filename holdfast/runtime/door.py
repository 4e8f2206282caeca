"""The door: turns every input into an event of one run. No other module calls `engine.step`.

    apply ─► engine.step ─► encode ─► batch ══ commit ══► carry out, answer
                                       ▲                    │
                                       └── the next one fills while this one is being committed

Events of many runs are decided and folded in memory, and their rows are committed together. After the commit, their
decisions are carried out and their callers get a response. Does not know which interface a request came
from, or how decisions are carried out.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from holdfast.deliveries.destinations import callback_deliveries_of
from holdfast.engine import plain
from holdfast.engine.codec import encode_event, encode_parts, encode_row
from holdfast.engine.decisions import (
    Continue,
    Decision,
    FinishRun,
    OpenWait,
    Poll,
    StartAttempt,
    StopAttempt,
)
from holdfast.engine.effects import Effect, KeyWork
from holdfast.engine.events import (
    Adopted,
    Continued,
    Event,
    KeyAnswered,
    KeyGranted,
    KeyHeld,
    RunStarted,
    StepSucceeded,
    SuspectsTurn,
)
from holdfast.engine.step import step
from holdfast.errors import StoreUnavailable
from holdfast.plan.graph import Way
from holdfast.runtime import resident_run
from holdfast.runtime.clock import Clock
from holdfast.runtime.commits import Commits, Process
from holdfast.runtime.committer import Committer
from holdfast.runtime.effect_handler import EffectHandler
from holdfast.runtime.entries import KINDS, NO_DECISIONS, Entry, Reply, answer
from holdfast.runtime.fatal_runs import FatalRuns
from holdfast.runtime.later import HeldOutcomes, SplitDecisions
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
from holdfast.store.batch import Batch
from holdfast.store.ownership import NewMail
from holdfast.store.records import NewRun, Request, RunChange, WaitClosed
from holdfast.store.schedule_records import Firing
from holdfast.values import TERMINAL, Millis, RunNo

log = logging.getLogger("holdfast")

ANY_TIME: Final = Millis(0)
SUCCEEDED: Final = KINDS[StepSucceeded]
STARTED: Final = KINDS[RunStarted]
# Decisions that are carried out after the commit. All others only change the run.
_CARRIED_OUT: Final = frozenset({StopAttempt, Continue, OpenWait, Poll, FinishRun})

Stops = dict[tuple[RunNo, str], None]  # attempts that are to stop, in the order of their decisions


class Door:
    def __init__(self, committer: Committer, clock: Clock, fatal_runs: FatalRuns) -> None:
        self.committer, self.clock = committer, clock
        self.handler: EffectHandler
        self.watch(fatal_runs)
        self.commits = commits = Commits(committer, self)
        # What other parts ask about commits, without a step in between.
        self.residents, self.quarantined, self.watchers = (
            commits.residents,
            commits.quarantined,
            commits.watchers,
        )
        self.away, self.again, self.set_aside = commits.away, commits.again, commits.set_aside
        self.drained, self.caught_up = commits.drained, commits.caught_up
        self.ahead, self.enter = commits.ahead, commits.enter
        # What the commit that ends a run writes for schedules that wait for that; None if there are none.
        self.ends: Callable[[ResidentRun], list[Firing]] | None = None
        # Told that the commit which is collected ends a run of a schedule.
        self.on_scheduled_end: Callable[[ResidentRun], None] = lambda resident: None
        self.parks = True
        self.shares_runs = False  # other nodes may drive runs of this database
        self._split = SplitDecisions(self._continue)
        self._held = HeldOutcomes(self._deliver_held)
        self.hold, self.let_go = self._held.hold, self._held.let_go

    def connect(self, handler: EffectHandler, process: Process) -> None:
        """Set the handler that carries decisions out. Its parts apply events to the door, so they are created after
        it."""
        self.handler = handler
        self.commits.connect(process)

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
            return self.commits.turn_away(run.no, event, reply)
        if run.status in TERMINAL:
            log.info("ignored: run %s is %s: %r", run.id, run.status, event)
            return answer(reply, None)
        at = self.clock.now()
        if at < run.at:
            at = run.at  # if the wall clock was set back, rows must still be in order of time
        if at < not_before:
            at = not_before
        deciding, no, epoch = self.deciding, run.no, resident.epoch
        deciding[0] = no
        resident.open_call = None
        if self.watched and no in self.watched:
            self.fatal_runs.begins(no, _doing(event))
        try:
            plan = resident.plan
            decisions, effects = step(plan, run, event, at, epoch)
            body, blobs = encode_row(event, decisions)
            if plan.asks_workers:
                self.handler.put_jobs(resident, decisions, self.commits.batch)
        except Exception as error:
            deciding[0] = 0
            return self.commits.quarantine(resident, error, reply)
        if blobs:
            self._put_aside(resident, blobs)
        if effects:
            self._put_effects(resident, effects, at)
        if run.status != "running" or not resident.is_settled:
            self._change(resident, at)
        self._append(resident, at, KINDS[type(event)], body, (resident, event, decisions, reply))

    def succeed(self, resident: ResidentRun, path: str, number: int, output: bytes, ran_ms: int) -> None:
        """Apply the success of an attempt, as `apply` does. If a call or the end of the run follows, no event and no decision is made: its row has
        both."""
        if resident.schedule is not None and self._held.holds:
            return self._held.put(resident.run.no, StepSucceeded(path, number, msgspec.Raw(output), ran_ms))
        led = resident.open_call
        way = led.then if led is not None and led.name == path else self._way_from(resident, path, number)
        if way is None or self.watched or self.committer.is_shut:
            return self.apply(resident, StepSucceeded(path, number, msgspec.Raw(output), ran_ms))
        run, commits, deciding, at = resident.run, self.commits, self.deciding, self.clock.now()
        if at < run.at:
            at = run.at  # as above
        deciding[0] = no = run.no
        try:
            change = plain.end if way.call is None else plain.pass_on
            body = change(resident.plan, run, way, path, output, ran_ms, at)
        except Exception as error:
            deciding[0] = 0
            return commits.quarantine(resident, error, None)
        deciding[0] = 0
        if body is None:
            return self.apply(resident, StepSucceeded(path, number, msgspec.Raw(output), ran_ms))
        if way.call is None:
            resident.open_call = start = None
            self._note_end(resident)
        else:
            resident.open_call, start = way, (no, way.name, 1)
        commits.batch.rows.append((no, run.seq, resident.epoch, at, SUCCEEDED, body))
        commits.entries.append((resident, (ran_ms, start), NO_DECISIONS, None))
        resident.journal_bytes = size = resident.journal_bytes + len(body)
        if size > resident.snapshot_at:
            self._snapshot(resident)
        if not commits.is_scheduled:
            commits.schedule()

    def _way_from(self, resident: ResidentRun, path: str, number: int) -> Way | None:
        """Return what follows a call that was not started by a plain row, if a plain row can tell of its success."""
        way = resident.plan.root.plain.get(path)
        if way is None or number != 1:
            return None
        if not resident.is_settled or resident.plan.asks_workers:
            return None
        return way if plain.is_straight(resident.run, path, resident.epoch) else None

    def _append(self, resident: ResidentRun, at: Millis, kind: str, body: str, entry: Entry) -> None:
        run, commits = resident.run, self.commits
        commits.batch.rows.append((run.no, run.seq, resident.epoch, at, kind, body))
        commits.entries.append(entry)
        resident.journal_bytes += len(body)
        if resident.journal_bytes > resident.snapshot_at:
            self._snapshot(resident)
        self.deciding[0] = 0
        if not commits.is_scheduled:
            commits.schedule()

    def _put_effects(self, resident: ResidentRun, effects: Iterable[Effect], at: Millis) -> None:
        """Let the commit of a row reserve and release concurrency keys, and store the waits that it opens and closes."""
        run, batch = resident.run, self.commits.batch
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
            self.commits.batch.blobs.append((resident.run.no, sha256, text))
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
            self.commits.batch.new_runs[new.no] = new
            if firing is not None:
                self.commits.batch.firings.append(firing)
            if request is not None:
                self.commits.batch.requests.append(request)
            self.residents[new.no] = resident
            self._note_artefacts(resident, bytes(event.inputs))
            if event.vars or event.taken:  # taken over from the run that this one repeats
                outputs = [outcome.output for outcome in event.taken.values()]
                for value in (*event.vars.values(), *outputs):
                    self._note_artefacts(resident, bytes(value))
        at = new.created_at
        if at < not_before:
            at = not_before
        if not self._begin_plainly(resident, event, reply, at):
            self.apply(resident, event, reply, not_before)

    def _begin_plainly(self, resident: ResidentRun, event: RunStarted, reply: Reply, at: Millis) -> bool:
        """Apply the start of a run that begins with a call, as `apply` does, without deciding."""
        run, plan = resident.run, resident.plan
        if self.watched or plan.asks_workers or self.committer.is_shut:
            return False
        self.deciding[0] = run.no
        try:
            begun = plain.begin(plan, run, event, at)
        except Exception as error:
            self.deciding[0] = 0
            self.commits.quarantine(resident, error, reply)
            return True
        if begun is None:
            self.deciding[0] = 0
            return False
        start, body = begun
        resident.open_call = plan.root.entry
        self.commits.batch.changes[run.no] = RunChange("running", True, run.epoch)
        resident.status, resident.is_settled = "running", True
        self._append(resident, at, STARTED, body, (resident, event, [start], reply))
        return True

    def deliver(self, no: RunNo, event: Event, reply: Reply | None = None) -> None:
        """Apply the outcome of an attempt. Its run may have been dropped or finished in the meantime."""
        resident = self.residents.get(no)
        if resident is not None:
            self.apply(resident, event, reply)
        elif reply is not None:
            answer(reply, StoreUnavailable("the database is unavailable") if no in self.away else None)
        elif no in self.away:
            self.again.append((no, event))
        else:
            log.info("ignored: the run has finished: %s", KINDS[type(event)])

    def enter_isolation(self, resident: ResidentRun, path: str) -> None:
        """Start an isolated step, and record in the same commit that it runs alone."""
        if not self.committer.is_shut:
            self.commits.batch.isolated = f"{resident.run.id} {path}"
        self.apply(resident, SuspectsTurn(path))

    def leave_isolation(self) -> None:
        if not self.committer.is_shut:
            self.commits.batch.isolated = ""
            self.commits.schedule()

    def release(self, resident: ResidentRun) -> None:
        """Release a run. It is due at once, so that the next process claims it."""
        run = resident.run
        is_waiting = run.status == "waiting"
        needs = needs_of(resident) if resident.lacks and is_waiting else None
        wake_at = run.wake_at if is_waiting else run.at
        self.commits.batch.changes[run.no] = RunChange(run.status, False, resident.epoch, wake_at, needs)
        self.residents.pop(run.no, None)
        self.commits.schedule()

    @property
    def batch(self) -> Batch:
        """The batch that is being collected, for rows of a commit that belong to no run."""
        return self.commits.batch

    def _change(self, resident: ResidentRun, at: Millis) -> None:
        """Let the commit change the row of a run, if its last event did."""
        run = resident.run
        if run.over:
            return self._note_end(resident)
        needs = None
        if resident.lacks and run.status == "waiting":  # it visits all steps, so not while others move
            needs = needs_of(resident)
            resident.lacks = needs is not None
        parked = self.parks and may_evict(run, at)
        resident.is_settled = run.status == "running" and not (parked or resident.lacks)
        if run.status == resident.status and resident.owned and not parked:
            return
        wake_at = wake_at_of(run) if parked else None
        self.commits.batch.changes[run.no] = RunChange(run.status, not parked, run.epoch, wake_at, needs)
        resident.status, resident.owned = run.status, not parked

    def _note_end(self, resident: ResidentRun) -> None:
        """Let the commit write that a run has ended, with all that waits for it."""
        run, batch = resident.run, self.commits.batch
        if run.destinations:
            batch.callback_deliveries += callback_deliveries_of(run)
        if self.ends is not None:
            batch.firings += self.ends(resident)
        if resident.schedule is not None:
            if run.status != "cancelled":
                batch.schedule_ends.append(schedule_end(resident, resident.schedule))
            self.on_scheduled_end(resident)
        batch.changes[run.no] = RunChange(run.status, False, run.epoch, finished_at=run.at)
        resident.status, resident.owned, resident.is_settled = run.status, False, False

    def _snapshot(self, resident: ResidentRun) -> None:
        parts = encode_parts(resident.run)
        self.commits.batch.snapshots.extend(
            (resident.run.no, part, resident.run.seq, body) for part, body in parts
        )
        resident.journal_bytes, resident.snapshot_at = 0, max(resident_run.SNAPSHOT_BYTES, len(parts[0][1]))

    # ---------------------------------------------------------------------------------------- after the commit

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
        self.commits.batch.posted_mail.append(mail)
        self.commits.schedule()

    def _note_artefacts(self, resident: ResidentRun, text: bytes) -> None:
        """Keep the files that a run received from another run of its tenant from being deleted."""
        for sha256 in named_in(text):
            if self.handler.notes_artefact(resident.run.tenant, sha256):
                self.commits.batch.artefacts.append((resident.run.no, sha256, 0, self.clock.now()))

    @property
    def has_more(self) -> bool:
        """Whether a split decision goes on, or an outcome that was held is applied, without a new input."""
        return not (self._held.is_empty and self._split.is_empty)

    def was_set_aside(self, no: RunNo) -> None:
        self.handler.set_aside(no)

    def committed(self, batch: Batch, entries: list[Entry]) -> None:
        """Act on what has become durable: carry out the decisions, answer the callers, apply verdicts about keys."""
        has_rest = batch.has_rest
        if has_rest:
            self.handler.jobs_are_put(batch)
        self._carry_out_all(entries)
        if has_rest:
            self._apply_verdicts(batch)

    def _carry_out_all(self, entries: list[Entry]) -> None:
        """Carry out the decisions, then answer the callers."""
        handler = self.handler
        start_attempt = handler.start_attempt
        moved: dict[RunNo, ResidentRun] = {}
        stops: Stops = {}
        for resident, event, decisions, reply in self._start_plainly(entries):
            try:
                if type(event) is tuple:
                    self._end(resident)
                for decision in decisions:
                    if type(decision) is StartAttempt:
                        if stops and (resident.run.no, decision.path) in stops:
                            self._stop(stops)  # now, because it means the attempt before this one
                        start_attempt(resident, decision.path, decision.attempt)
                    elif type(decision) in _CARRIED_OUT:
                        self._carry_out(resident, decision, stops)
            except Exception as error:  # the rest of the batch is not affected
                self.commits.quarantine(resident, error, reply)
            run = resident.run
            if resident.owned:
                if run.timers or run.has_suspects or type(event) is Adopted:
                    moved[run.no] = resident
            elif not run.over:
                self._park(resident)
            if reply is not None:
                answer(reply, None)
        self._stop(stops)
        self._split.go_on()
        # once per run and batch, because examining all timers of a run is expensive
        for resident in moved.values():
            handler.committed(resident)

    def _start_plainly(self, entries: list[Entry]) -> list[Entry]:
        """Carry out the plain rows that only start a call. Return the other entries."""
        starts = [start for _, row, _, _ in entries if type(row) is tuple and (start := row[1]) is not None]
        if not starts:
            return entries
        self.handler.start_attempts(starts)
        if len(starts) == len(entries):
            return []
        return [entry for entry in entries if type(entry[1]) is not tuple or entry[1][1] is None]

    def _stop(self, stops: Stops) -> None:
        if stops:  # together, because finding those that have not begun is expensive
            self.handler.stop_attempts(list(stops))
            stops.clear()

    def _carry_out(self, resident: ResidentRun, decision: Decision, stops: Stops) -> None:
        match decision:
            case FinishRun():  # every run has one
                self._end(resident)
            case StopAttempt(path=path):
                stops[resident.run.no, path] = None
            case Continue():
                self._split.put(resident)
            case OpenWait(path, "callback", task_id):
                self.handler.paused(resident, path, task_id)
            case Poll(path, attempt):
                self.handler.poll(resident, path, attempt)
            case _:
                pass

    def _end(self, resident: ResidentRun) -> None:
        self.residents.pop(resident.run.no, None)
        self.handler.run_ended(resident)

    def _continue(self, resident: ResidentRun) -> None:
        if self.residents.get(resident.run.no) is resident:
            self.apply(resident, Continued())
        self._may_be_idle()

    def _deliver_held(self, outcomes: list[tuple[RunNo, StepSucceeded]]) -> None:
        for no, event in outcomes:
            if (resident := self.residents.get(no)) is None:
                self.deliver(no, event)
            else:
                self.succeed(resident, event.path, event.attempt, bytes(event.output), event.ran_ms)
        self._may_be_idle()

    def _may_be_idle(self) -> None:
        if not self.has_more and not self.commits.in_flight and self.commits.is_empty:
            self.commits.notify_idle()

    def _park(self, resident: ResidentRun) -> None:
        """Evict a run that its last row released, unless a new event has been applied since."""
        if (
            self.residents.get(resident.run.no) is resident
            and resident.run.no not in self.commits.batch.changes
        ):
            del self.residents[resident.run.no]
            self.handler.parked(resident, wake_at_of(resident.run))


def _doing(event: Event) -> str:
    return f"{KINDS[type(event)]} {getattr(event, 'path', '')}".rstrip()
