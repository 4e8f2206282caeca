"""Every step of a run with its attempts and waits, projected from committed rows.

    rows ──► FoldedBoard.take(row) ──► Entry: the step, its tries, its spans, and which rows have its input and output

A board has no values over a few hundred bytes: they stay in the journal, and `output_of` and `input_of` read the rows that have
them. So a page reads only what it shows. `boards` caches them, and `stored_board` keeps those of long runs in the database.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, Protocol, Self

import msgspec

from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import (
    ArmTimer,
    CompleteStep,
    Decision,
    FailStep,
    OpenWait,
    ReserveKey,
    StartAttempt,
)
from holdfast.engine.events import (
    Adopted,
    AttemptReleased,
    AttemptTimedOut,
    Event,
    KeyHeld,
    StepFailed,
    StepPaused,
    StepSucceeded,
)
from holdfast.engine.state import LACKS
from holdfast.store.base import Store
from holdfast.store.records import ReadRow
from holdfast.values import NULL, Error, Millis, RunNo, scope_of, split
from holdfast.views.steps import Steps, StepsState, StepView

KEPT_BYTES_MAX: Final = 256  # a shorter output is kept with its step


class Try(msgspec.Struct, omit_defaults=True):
    """One attempt. `outcome` is `pending` if the call announced a later result, which the step then waits for."""

    n: int
    start: Millis
    end: Millis | None = None
    outcome: str = "running"
    error: Error | None = None
    worker: tuple[str, ...] = ()
    retry_at: Millis | None = None


class Span(msgspec.Struct, omit_defaults=True):
    """A time in which a step waited: for something from outside, for a timer, or for its next attempt (`backoff`)."""

    kind: str
    start: Millis
    end: Millis | None = None


class Fan(msgspec.Struct, omit_defaults=True):
    """The children of a fan-out over time: when each began and when each completed or failed, the failed ones with their number."""

    starts: list[Millis] = []
    completed: list[Millis] = []
    failed: list[tuple[Millis, int]] = []

    def end(self, at: Millis, index: int, *, failed: bool) -> None:
        if failed:
            self.failed.append((at, index))
        else:
            self.completed.append(at)


class Entry(msgspec.Struct, omit_defaults=True):
    """A step as a board has it. `frame` is where it stands, `input_seq` and `output_seq` are rows that have its values; 0 is none."""

    step: StepView
    frame: str
    tries: list[Try] = []
    spans: list[Span] = []
    fan: Fan | None = None
    input_seq: int = 0
    output_seq: int = 0


class Board(Protocol):
    """What readers ask of a board. `seq` is the last row that it has."""

    seq: int

    def __len__(self) -> int: ...

    def entry(self, path: str) -> Entry | None: ...

    def chosen(self, after: int, limit: int, wanted: Callable[[str, str], bool]) -> list[Entry]:
        """Steps in the order of reaching, from the first behind `after` on, whose path and status are wanted."""
        ...

    def inside(self, frame: str) -> Sequence[Entry]:
        """The steps of a frame; none if the run has not reached it."""
        ...

    def frames(self, scope: str) -> Sequence[str]:
        """The frames of a scope, in the order in which they were reached."""
        ...


class FoldedBoard:
    """The board of a run that is made from its rows."""

    def __init__(self) -> None:
        self._steps = Steps(every=True)
        self.seq = 0
        self.at = Millis(0)
        self.by_path: dict[str, Entry] = {}
        self.entries: list[Entry] = []  # in the order of reaching
        self._inside: dict[str, list[Entry]] = {}  # by frame
        self._frames: dict[str, list[str]] = {}  # of each scope, in the order of reaching

    @classmethod
    def going_on(cls, seq: int, at: Millis, entries: Iterable[Entry], steps: StepsState) -> Self:
        """A board as it was at a row, to take those after it."""
        board = cls()
        board.seq, board.at = seq, at
        for entry in entries:
            board._add(entry)
        board._steps = Steps.going_on(steps, (entry.step for entry in board.entries))
        return board

    @property
    def steps_state(self) -> StepsState:
        return self._steps.state

    def __len__(self) -> int:
        return len(self.entries)

    def entry(self, path: str) -> Entry | None:
        return self.by_path.get(path)

    def chosen(self, after: int, limit: int, wanted: Callable[[str, str], bool]) -> list[Entry]:
        begin = bisect_right(self.entries, after, key=lambda one: one.step.order)
        found = (one for one in islice(self.entries, begin, None) if wanted(one.step.path, one.step.status))
        return list(islice(found, limit))

    def inside(self, frame: str) -> Sequence[Entry]:
        return self._inside.get(frame, ())

    def frames(self, scope: str) -> Sequence[str]:
        return self._frames.get(scope, ())

    # --------------------------------------------------------------------------------------------- taking rows

    def take(self, row: ReadRow) -> None:
        self.seq, _, at, _, body = row
        self.at = Millis(at)
        event, decisions = decode_row(body)
        self._note_event(event)
        changed = self._steps.take(event, decisions, self.at)
        for step in changed:
            self._entered(step)
        for decision in decisions:
            self._note_decision(decision)
        for step in changed:
            self._settle(self.by_path[step.path], event, decisions)

    def _entered(self, step: StepView) -> None:
        known = self.by_path.get(step.path)
        if known is not None and known.step is step:
            return
        frame = split(step.path)[0]
        if not self._add(Entry(step, frame)):
            return
        scope, index = scope_of(frame)
        around = self.by_path.get(scope)
        if index is not None and around is not None:
            _fan_of(around).starts.append(self.at)

    def _add(self, entry: Entry) -> bool:
        """Add a step behind all others; returns whether it is the first of its frame."""
        frame = entry.frame
        self.by_path[entry.step.path] = entry
        self.entries.append(entry)
        beside = self._inside.get(frame)
        if beside is not None:
            beside.append(entry)
            return False
        self._inside[frame] = [entry]
        self._frames.setdefault(scope_of(frame)[0], []).append(frame)
        return True

    def _note_event(self, event: Event) -> None:
        match event:
            case StepSucceeded():
                self._answered(event.path, event.attempt, "completed", None, event.worker)
            case StepFailed():
                self._answered(event.path, event.attempt, "failed", event.error, event.worker)
            case StepPaused():
                self._answered(event.path, event.attempt, "pending", None, event.worker)
            case AttemptTimedOut():
                self._answered(event.path, event.attempt, "timed_out")
            case AttemptReleased(reason=reason, waits=waits):
                self._answered(event.path, event.attempt, "released")
                if waits and reason in LACKS:
                    self._wait(event.path, reason)
            case Adopted(lost):
                for path in lost:
                    if (one := self._open_try(path)) is not None:
                        one.end, one.outcome = self.at, "lost"
            case KeyHeld(path) if (entry := self.by_path.get(path)) is not None:
                entry.spans = [*entry.spans, Span("key", self.at)]
            case _:
                pass

    def _open_try(self, path: str) -> Try | None:
        entry = self.by_path.get(path)
        return entry.tries[-1] if entry is not None and entry.tries and entry.tries[-1].end is None else None

    def _answered(
        self, path: str, attempt: int, outcome: str, error: Error | None = None, worker: tuple[str, ...] = ()
    ) -> None:
        one = self._open_try(path)
        if one is None or one.n != attempt:
            return  # a late result
        target = self.by_path[path].step.stopping
        if target is not None:
            outcome = "timed_out" if target == path else "cancelled"
        one.end, one.outcome, one.error, one.worker = self.at, outcome, error, worker[:2]

    def _note_decision(self, decision: Decision) -> None:
        match decision:
            case StartAttempt(path, attempt, inputs):
                entry = self.by_path[path]
                entry.tries = [*entry.tries, Try(attempt, self.at)]
                if inputs != NULL:
                    entry.input_seq = self.seq
            case ReserveKey(path=path, inputs=inputs) if inputs != NULL:
                self.by_path[path].input_seq = self.seq
            case OpenWait(path, kind):
                self._wait(path, kind)
            case ArmTimer(path, timer, at) if timer in ("retry", "suspect") and path in self.by_path:
                if (tries := self.by_path[path].tries) and tries[-1].retry_at is None:
                    tries[-1].retry_at = at
                self._wait(path, "backoff")
            case ArmTimer(path, "delay"):
                self._wait(path, "timer")
            case CompleteStep(path) | FailStep(path):
                scope, index = scope_of(path)
                if index is not None and (around := self.by_path.get(scope)) is not None:
                    _fan_of(around).end(self.at, index, failed=isinstance(decision, FailStep))
            case _:
                pass

    def _wait(self, path: str, kind: str) -> None:
        entry = self.by_path[path]
        entry.spans = [*entry.spans, Span(kind, self.at)]

    def _settle(self, entry: Entry, event: Event, decisions: Iterable[Decision]) -> None:
        """Close what a row has ended, and let go of what the journal has."""
        step = entry.step
        if step.is_over or step.status in ("running", "ready"):
            for span in entry.spans:
                span.end = self.at if span.end is None else span.end
        if not step.is_over:
            return
        if entry.tries and entry.tries[-1].end is None:
            entry.tries[-1].end, entry.tries[-1].outcome = self.at, step.status
        if len(step.output) <= KEPT_BYTES_MAX:
            step.output = msgspec.Raw(
                bytes(step.output)
            )  # copied, because a slice would keep the whole row in memory
        elif any(value is step.output for value in _values(step.path, event, decisions)):
            entry.output_seq, step.output = self.seq, NULL


def _fan_of(entry: Entry) -> Fan:
    if entry.fan is None:
        entry.fan = Fan()
    return entry.fan


def _values(path: str, event: Event, decisions: Iterable[Decision]) -> Iterator[Any]:
    """Yield the outputs of a step that a row has."""
    for part in (event, *decisions):
        if getattr(part, "path", None) == path:
            yield getattr(part, "output", None)
            yield getattr(part, "value", None)
    yield getattr(event, "copied", {}).get(path)


async def output_of(store: Store, no: RunNo, entry: Entry) -> msgspec.Raw:
    """Read the output of a step that has ended, as its row has it."""
    if not entry.output_seq:
        return entry.step.output
    event, decisions = await _row(store, no, entry.output_seq)
    found = [one for one in _values(entry.step.path, event, decisions) if one is not None and one != NULL]
    return found[0] if found else NULL


async def input_of(store: Store, no: RunNo, entry: Entry) -> msgspec.Raw:
    """Read what a step was called with, as it was decided."""
    if not entry.input_seq:
        return NULL
    _, decisions = await _row(store, no, entry.input_seq)
    for part in decisions:
        if isinstance(part, StartAttempt | ReserveKey) and part.path == entry.step.path:
            return part.inputs
    return NULL


async def _row(store: Store, no: RunNo, seq: int) -> tuple[Event, list[Decision]]:
    (row,) = await store.journal(no, seq - 1, 1)
    return decode_row(row[4])
