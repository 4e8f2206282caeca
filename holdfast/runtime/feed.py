"""Committed rows → the events of a run, for whoever follows it.

    journal ──► Events.take(row) ──► workflow_started, step_enter, step_exit, …, workflow_terminal
                     ▲
    Feed ── "there is more" ── readers

The journal is the only source: a reader reads it from its first row, waits for word that there is more, and reads on.
So there is no gap between history and present, nothing is told twice, and nothing is held for a reader who is slow.
What tools say while they work (`log`, `progress`) is in no journal: whoever reads at that time hears it, between the
beginning and the end of its attempt, and a reader who is slow misses some. Does not know how an event is shown.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections import deque
from collections.abc import AsyncGenerator, Callable
from functools import lru_cache
from typing import Any, Final, TypedDict

import msgspec

from holdfast.engine.decisions import Decision, FinishRun
from holdfast.engine.events import Adopted, Event, RunStarted, StepFailed, StepSucceeded, TimerFired
from holdfast.engine.rows import decode_row
from holdfast.runtime.advance import Listener, Live
from holdfast.runtime.steps import Steps, StepView
from holdfast.store.base import ReadRow, Store
from holdfast.values import Error, Millis, RunId, RunNo

SAID_MAX: Final = 1_000  # words of tools that one reader has not read yet; the oldest are dropped
PAGE: Final = 50  # rows read at a time; others get their turn between two pages, some milliseconds later
_INSTANCE = re.compile(r"~\d+|\[\d+\]")  # what a path has that the definition has not


Said = tuple[str, int, str, dict[str, Any]]  # path, attempt, `log` or `progress`, and what
Hearer = Callable[[RunNo, str, int, str, dict[str, Any]], None]


class Progress(TypedDict):
    """Steps of the definition, nested ones too, each counted once; completed: of which an instance has completed."""

    completed_steps: int
    total_steps: int


class RunEvent(TypedDict):
    """One event of a run. `id` is the number of the row that tells of it: several events may share one.

    What a tool said while it worked (`log`, `progress`) has none: it is told as it happens, and never again.
    """

    id: int | None
    workflow_id: str
    job_id: str
    status: str
    current_step_id: str | None
    progress: Progress
    detail: dict[str, Any]


@lru_cache(maxsize=4096)  # asked for when an attempt is entered and when it is left, by every reader
def job_id(run_id: RunId, path: str, attempt: int) -> str:
    """The id of one attempt, as a job beneath its run."""
    return str(uuid.uuid5(uuid.UUID(run_id), f"{path}#{attempt}"))


class Events:
    """The events that rows tell of, in order. Only listens: never a plan, never a store."""

    def __init__(self, run_id: RunId, total_steps: int) -> None:
        self._run_id, self._total = run_id, total_steps
        self._steps = Steps()
        self._at_work: dict[str, int | None] = {}  # steps that were entered: the attempt, None between two
        self._completed: set[str] = set()
        self._begun = False
        self._last: str | None = None  # the step that something happened to last
        self._seq = 0

    def take(self, row: ReadRow) -> list[RunEvent]:
        self._seq, _, at, _, body = row
        event, decisions = decode_row(body)
        found = self._started(event)
        if isinstance(event, StepSucceeded | StepFailed | TimerFired):
            self._last = event.path or self._last
        for step in self._steps.take(event, decisions, Millis(at)):
            found += self._moved(step)
        for decision in decisions:
            if isinstance(decision, FinishRun):
                found += self._finished(decision)
        return found

    def say(self, said: Said) -> RunEvent:
        """What a tool said of its attempt, as an event of now."""
        path, attempt, kind, data = said
        return {**self._event(kind, path, attempt, attempt=attempt, **data), "id": None}

    def is_at_work(self, said: Said) -> bool:
        return self._at_work.get(said[0]) == said[1]

    def _started(self, event: Event) -> list[RunEvent]:
        if self._begun or not (isinstance(event, RunStarted | Adopted) and event.drive):
            return []
        self._begun = True
        return [self._event("workflow_started")]

    def _moved(self, step: StepView) -> list[RunEvent]:
        path, told = step.path, self._at_work.get(step.path)
        found: list[RunEvent] = []
        if told is not None and told != step.attempts:  # it failed, and was started again by the same row
            found.append(self._exit(step, told, "retrying"))
        if step.is_over:
            if path not in self._at_work:  # it was entered and left in one row
                found.append(self._enter(step))
            del self._at_work[path]
            if step.status == "completed":
                self._completed.add(_INSTANCE.sub("", path))
            found.append(self._exit(step, step.attempts, step.status))
        elif step.status in ("retrying", "ready") or step.reason == "key":
            if told is not None:
                self._at_work[path] = None
                found.append(self._exit(step, told, step.status))
        elif told != step.attempts:
            found.append(self._enter(step))
        return found

    def _enter(self, step: StepView) -> RunEvent:
        self._at_work[step.path] = step.attempts
        return self._event("step_enter", step.path, step.attempts, attempt=step.attempts)

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
            "workflow_id": self._run_id,
            "job_id": self._run_id
            if path is None or attempt is None
            else job_id(self._run_id, path, attempt),
            "status": detail["status"] if is_end else "running" if self._begun else "pending",
            "current_step_id": path,
            "progress": {"completed_steps": len(self._completed), "total_steps": self._total},
            "detail": {"kind": kind, **detail},
        }


class Feed:
    """Who follows which run. A reader is only told that there is more: it holds nothing up, however slow it is."""

    def __init__(self, listeners: list[Listener], hearers: list[Hearer]) -> None:
        self._listeners, self._hearers = listeners, hearers
        self._readers: dict[RunNo, set[Reader]] = {}

    def open(self, no: RunNo) -> Reader:
        if not self._readers:
            self._listeners.append(self._heard)
            self._hearers.append(self._said)
        reader = Reader()
        self._readers.setdefault(no, set()).add(reader)
        return reader

    def close(self, no: RunNo, reader: Reader) -> None:
        readers = self._readers[no]
        readers.discard(reader)
        if not readers:
            del self._readers[no]
        if not self._readers:
            self._listeners.remove(self._heard)
            self._hearers.remove(self._said)

    def end(self, error: Exception, no: RunNo | None = None) -> None:
        """There will be no more rows of this run, or of any."""
        for reader in [
            reader for run, readers in self._readers.items() if no in (run, None) for reader in readers
        ]:
            reader.error = error
            reader.more.set()

    def _heard(self, live: Live, event: Event, decisions: list[Decision]) -> None:
        for reader in self._readers.get(live.run.no, ()):
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
        """What the attempt that this event ends had still to say."""
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


async def events_of(store: Store, feed: Feed, no: RunNo, events: Events) -> AsyncGenerator[RunEvent, None]:
    """Every event of a run: those that were, then those that come, up to its end."""
    reader, after = feed.open(no), 0
    try:
        while True:
            reader.more.clear()  # before reading: what is committed meanwhile is looked for again
            if reader.error is not None:
                raise reader.error
            rows = await store.journal(no, after, PAGE)
            for row in rows:
                after = row[0]
                for event in events.take(row):
                    for said in reader.last_words(event):
                        yield events.say(said)
                    yield event
                    if event["detail"]["kind"] == "workflow_terminal":
                        return
            if rows:
                await asyncio.sleep(0)
                continue
            for said in reader.words():
                if events.is_at_work(said):
                    yield events.say(said)
            await reader.more.wait()
    finally:
        feed.close(no, reader)


def _plain(error: Error | None) -> Any:
    return None if error is None else msgspec.to_builtins(error)
