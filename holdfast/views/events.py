"""The events of a run, projected from committed rows, for its readers.

    journal ──► Events.take(row) ──► workflow_started, step_enter, step_exit, …, workflow_terminal
                     ▲
    Feed ── "there is more" ── readers

The journal is the only source: a reader reads it from its first row, is notified when there is more, and continues. So there is
no gap between history and present, nothing is sent twice, and nothing is buffered for a slow reader. Messages of running tools
(`log`, `progress`) are not in the journal: connected readers receive them between the start and the end of the attempt, and a
slow reader may miss some. Does not know how an event is shown.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncGenerator
from typing import Any, Final, TypedDict, assert_never

import msgspec

from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import Continue, Decision, FinishRun, OpenWait
from holdfast.engine.events import (
    Adopted,
    CancelRequested,
    Continued,
    Event,
    RunStarted,
    StepFailed,
    StepSucceeded,
    TimerFired,
)
from holdfast.errors import EngineClosed
from holdfast.execution.contexts import AttemptListener
from holdfast.runtime.entries import Entry, Watcher
from holdfast.runtime.service import Service
from holdfast.runtime.waiters import CLOSED
from holdfast.store.base import PIECE_BYTES, Store
from holdfast.store.batch import Batch
from holdfast.store.records import ReadRow
from holdfast.values import TERMINAL, Error, Millis, RunId, RunNo, Status, decode, job_id, rfc3339
from holdfast.views.positions import BEGINNING, Position, numbered
from holdfast.views.steps import Steps, StepView

SAID_MAX: Final = 1_000  # messages of tools that one reader has not read yet; the oldest are dropped
PAGE: Final = 50  # rows read at a time; other tasks run between two pages, some milliseconds later
_INSTANCE = re.compile(r"~\d+|\[\d+\]")  # the parts of a path that are not in the definition


Said = tuple[str, int, str, dict[str, Any]]  # path, attempt, `log` or `progress`, and what


class Progress(TypedDict):
    """Steps of the definition, including nested ones, each counted once; `completed_steps` are those with a completed instance."""

    completed_steps: int
    total_steps: int


class RunEvent(TypedDict):
    """One event of a run. `id` is the number of its row: several events may share one.

    `state` is that of the run after the row, where `status` is `running` until the end. Messages of tools (`log`, `progress`) have
    no id, row or time: they are sent as they happen and are not repeated.
    """

    id: int | None
    run_id: str
    seq: int | None
    at: str | None
    state: Status
    path: str | None
    workflow_id: str
    job_id: str
    status: str
    current_step_id: str | None
    progress: Progress
    detail: dict[str, Any]


class Events:
    """Turns rows into events, in order. Needs neither a plan nor a store."""

    def __init__(self, run_id: RunId, total_steps: int) -> None:
        self._run_id, self._total = run_id, total_steps
        self._steps = Steps()
        self._at_work: dict[str, int | None] = {}  # entered steps → the attempt, None between two
        self._completed: set[str] = set()
        self._begun = False
        self._is_split = False  # the rest of a decision follows
        self._state: Status = "pending"
        self._at = Millis(0)
        self._last: str | None = None  # the step of the latest event
        self._seq = 0

    def take(self, row: ReadRow) -> list[RunEvent]:
        self._seq, _, at, _, body = row
        self._at, before = Millis(at), self._state
        event, decisions = decode_row(body)
        found = self._started(event)
        if isinstance(event, TimerFired) and event.timer == "escalate":
            found.append(self._event("approve_escalated", event.path, step_id=event.path))
        if isinstance(event, StepSucceeded | StepFailed | TimerFired):
            self._last = event.path or self._last
        for step in self._steps.take(event, decisions, Millis(at)):
            found += self._moved(step)
            if step.is_over:
                self._steps.by_path.pop(step.path, None)  # its events were sent: drop it to keep memory flat
        for decision in decisions:
            if isinstance(decision, OpenWait):
                found.append(self._waits(decision))
            elif isinstance(decision, FinishRun):
                found += self._finished(decision)
        self._state = self._state_after(event, decisions)
        if not found and self._state != before:
            found.append(self._event("state_changed", before=before))
        for one in found:
            one["state"] = self._state
        return found

    def _state_after(self, event: Event, decisions: list[Decision]) -> Status:
        """Return the state of the run as of this row, as the engine has it."""
        finish = next((one for one in decisions if isinstance(one, FinishRun)), None)
        if finish is not None or self._state in TERMINAL:
            return self._state if finish is None else finish.status
        is_deadline = isinstance(event, TimerFired) and not event.path and event.timer == "deadline"
        if self._state == "cancelling" or isinstance(event, CancelRequested) or is_deadline:
            return "cancelling"
        if not self._begun:
            return "pending"
        if isinstance(event, Continued) or isinstance(event, Adopted) and event.drive:
            self._is_split = False
        self._is_split = self._is_split or any(isinstance(one, Continue) for one in decisions)
        return "running" if self._steps.is_active or self._is_split else "waiting"

    def _waits(self, wait: OpenWait) -> RunEvent:
        """Yield the event of a step that waits: what it waits for, and the details for callers that can resolve it."""
        detail: dict[str, Any] = {
            "step_id": wait.path,
            **(decode(wait.detail) or {}),
            "until": wait.expires_at,
        }
        match wait.kind:
            case "approval":
                return self._event("approve_requested", wait.path, **{"prompt": "", **detail})
            case "callback":
                detail["task_id"] = wait.name
            case "signal" | "condition":
                pass
            case _:
                assert_never(wait.kind)
        return self._event("step_paused", wait.path, waits_for=wait.kind, **detail)

    @property
    def size(self) -> int:
        """The size of this projection, in steps."""
        return 1 + len(self._at_work) + len(self._completed)

    def say(self, said: Said) -> RunEvent:
        """Return a message of a tool as an event."""
        path, attempt, kind, data = said
        event = self._event(kind, path, attempt, attempt=attempt, **data)
        return {**event, "id": None, "seq": None, "at": None}

    def is_at_work(self, said: Said) -> bool:
        return self._at_work.get(said[0]) == said[1]

    def _started(self, event: Event) -> list[RunEvent]:
        if self._begun or not (isinstance(event, RunStarted | Adopted) and event.drive):
            return []
        self._begun = True
        return [self._event("workflow_started")]

    def _moved(self, step: StepView) -> list[RunEvent]:
        path, reported = step.path, self._at_work.get(step.path)
        found: list[RunEvent] = []
        if (
            reported is not None and reported != step.attempt
        ):  # it failed and was started again in the same row
            found.append(self._exit(step, reported, "retrying"))
        if step.is_over:
            if path not in self._at_work:  # it was entered and left in the same row
                found.append(self._enter(step))
            del self._at_work[path]
            if step.status in ("completed", "skipped") and not step.undoes:
                self._completed.add(_INSTANCE.sub("", path))
            found.append(self._exit(step, step.attempt, step.status))
        elif step.status in ("retrying", "ready") or step.reason in ("key", "on_error"):
            if reported is not None:
                self._at_work[path] = None
                status = "failed" if step.reason == "on_error" else step.status
                found.append(self._exit(step, reported, status))
        elif reported != step.attempt:
            found.append(self._enter(step))
        return found

    def _enter(self, step: StepView) -> RunEvent:
        self._at_work[step.path] = step.attempt
        return self._event("step_enter", step.path, step.attempt, attempt=step.attempt)

    def _exit(self, step: StepView, attempt: int, status: str) -> RunEvent:
        detail: dict[str, Any] = {"attempt": attempt, "status": status, "error": _plain(step.error)}
        if step.reason:
            detail["reason"] = step.reason
        return self._event("step_exit", step.path, attempt, **detail)

    def _finished(self, end: FinishRun) -> list[RunEvent]:
        last = end.error.path if end.error is not None and end.error.path else self._last
        found = []
        if end.status == "interrupted":
            found.append(self._event("interrupted", last, status=end.status, reason="server restart"))
        detail = {"error": _plain(end.error)}
        return [*found, self._event("workflow_terminal", last, status=end.status, **detail)]

    def _event(
        self, kind: str, path: str | None = None, attempt: int | None = None, /, **detail: Any
    ) -> RunEvent:
        is_end = kind in ("interrupted", "workflow_terminal")
        return {
            "id": self._seq,
            "run_id": self._run_id,
            "seq": self._seq,
            "at": rfc3339(self._at),
            "state": self._state,
            "path": path,
            "workflow_id": self._run_id,
            "job_id": self._run_id
            if path is None or attempt is None
            else job_id(self._run_id, path, attempt),
            "status": detail["status"] if is_end else "running" if self._begun else "pending",
            "current_step_id": path,
            "progress": {"completed_steps": len(self._completed), "total_steps": self._total},
            "detail": {"kind": kind, **detail},
        }


class Feed(Service):
    """The readers of each run and of all runs. A reader is only notified that there is more, so a slow reader blocks nothing."""

    def __init__(self, watchers: list[Watcher], hearers: list[AttemptListener]) -> None:
        self._watchers, self._hearers = watchers, hearers
        self._readers: dict[RunNo, set[Reader]] = {}
        self._of_all: set[Reader] = set()

    async def close(self) -> None:
        self.end(EngineClosed(CLOSED))

    def abandon(self, error: Exception | None = None) -> None:
        if error is not None:
            self.end(error)

    def follow(self, no: RunNo) -> Reader:
        if not self._readers:
            self._watchers.append(self._moved)
            self._hearers.append(self._said)
        reader = Reader()
        self._readers.setdefault(no, set()).add(reader)
        return reader

    def leave(self, no: RunNo, reader: Reader) -> None:
        readers = self._readers[no]
        readers.discard(reader)
        if not readers:
            del self._readers[no]
        if not self._readers:
            self._watchers.remove(self._moved)
            self._hearers.remove(self._said)

    def follow_all(self) -> Reader:
        """Open a reader of all runs. It is notified of commits, and receives no messages of tools."""
        if not self._of_all:
            self._watchers.append(self._committed)
        reader = Reader()
        self._of_all.add(reader)
        return reader

    def leave_all(self, reader: Reader) -> None:
        self._of_all.discard(reader)
        if not self._of_all:
            self._watchers.remove(self._committed)

    def end(self, error: Exception, no: RunNo | None = None) -> None:
        """End the readers of this run, or all readers: no more rows will follow."""
        ended = [reader for run, readers in self._readers.items() if no in (run, None) for reader in readers]
        for reader in [*ended, *(self._of_all if no is None else ())]:
            reader.error = error
            reader.more.set()

    def look(self) -> None:
        """Other nodes may have committed rows since the last look."""
        for readers in (*self._readers.values(), self._of_all):
            for reader in readers:
                reader.more.set()

    def _moved(self, batch: Batch, entries: list[Entry], seconds: float) -> None:
        for resident, *_ in entries:
            for reader in self._readers.get(resident.run.no, ()):
                reader.more.set()

    def _committed(self, batch: Batch, entries: list[Entry], seconds: float) -> None:
        for reader in self._of_all:
            reader.more.set()

    def _said(self, no: RunNo, path: str, attempt: int, kind: str, data: dict[str, Any]) -> None:
        for reader in self._readers.get(no, ()):
            reader.said.append((path, attempt, kind, data))
            reader.more.set()


class Reader:
    def __init__(self) -> None:
        self.more = asyncio.Event()
        self.error: Exception | None = None
        self.said: deque[Said] = deque(maxlen=SAID_MAX)

    def last_words(self, event: RunEvent) -> list[Said]:
        """Return the remaining messages of the attempt that this event ends."""
        if event["detail"]["kind"] != "step_exit" or not self.said:
            return []
        ended = (event["current_step_id"], event["detail"]["attempt"])
        words = [said for said in self.said if said[:2] == ended]
        if words:
            self.said = deque((said for said in self.said if said[:2] != ended), SAID_MAX)
        return words

    def words(self) -> list[Said]:
        words = list(self.said)
        self.said.clear()
        return words


class Tail:
    """The events of one run after a position: past ones, then new ones, up to its end.

    Keeps a position in the journal and no queue. Close it after use.
    """

    def __init__(self, store: Store, feed: Feed, no: RunNo, events: Events, position: Position[int]) -> None:
        self._store, self._feed, self._no, self._events = store, feed, no, events
        self.position = position
        self.is_over = False
        self._after = 0
        self._reader = feed.follow(no)

    def close(self) -> None:
        self._feed.leave(self._no, self._reader)

    async def read(self) -> list[tuple[Position[int] | None, RunEvent]]:
        """Return the next events; none only if there are no more for now. Messages of tools have no position."""
        reader = self._reader
        reader.more.clear()  # before reading: later commits set it again
        if reader.error is not None:
            raise reader.error
        while rows := await self._store.journal(self._no, self._after, PAGE, PIECE_BYTES):
            found = [reported for row in rows for reported in self._events_of(row)]
            self._after = rows[-1][0]
            if found:
                return found
            await asyncio.sleep(0)  # old rows, sent already: let other tasks run
        return [(None, self._events.say(said)) for said in reader.words() if self._events.is_at_work(said)]

    async def more(self) -> None:
        await self._reader.more.wait()

    def _events_of(self, row: ReadRow) -> list[tuple[Position[int] | None, RunEvent]]:
        found: list[tuple[Position[int] | None, RunEvent]] = []
        seq = row[0]
        for nth, (position, event) in enumerate(numbered(seq - 1, seq, self._events.take(row)), 1):
            words = self._reader.last_words(event)
            if event["detail"]["kind"] == "workflow_terminal":
                self.is_over = True
            if not self.position.has_sent(seq - 1, seq, nth):
                found += [(None, self._events.say(said)) for said in words]
                found.append((position, event))
        return found


async def events_of(store: Store, feed: Feed, no: RunNo, events: Events) -> AsyncGenerator[RunEvent, None]:
    """Yield every event of a run: past ones, then new ones, up to its end."""
    tail = Tail(store, feed, no, events, BEGINNING)
    try:
        while not tail.is_over:
            found = await tail.read()
            for _, event in found:
                yield event
            await (asyncio.sleep(0) if found else tail.more())
    finally:
        tail.close()


def _plain(error: Error | None) -> Any:
    return None if error is None else msgspec.to_builtins(error)
