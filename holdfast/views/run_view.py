"""A run as readers see it at one moment, and a row of its journal."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import FinishRun
from holdfast.engine.events import Adopted, RunStarted, TriggeredBy
from holdfast.store.records import Ends, RunRow, SetAside
from holdfast.values import Error, Millis, RunId, Status, decode, job_id
from holdfast.views.open_waits import Wait
from holdfast.views.progress import Progress
from holdfast.views.values import Head, cut

Trigger = TriggeredBy  # the occurrence of a schedule that started a run


class RunView(msgspec.Struct, frozen=True):
    """A run at one moment. `number` is the release it was started from, if it was started by name."""

    run_id: str
    workflow: str
    version: str
    number: int | None
    status: Status
    inputs_text: msgspec.Raw  # JSON text of up to 25 MiB, which interfaces pass on unchanged
    output_text: msgspec.Raw
    error: Error | None
    waits: list[Wait]
    progress: Progress
    labels: dict[str, str]
    created_at: Millis
    started_at: Millis | None
    finished_at: Millis | None
    rerun_of: str | None
    parent_job_id: str | None
    set_aside: SetAside | None = None
    trigger: Trigger | None = None
    seq: int = 0  # the row that this is as of
    heads: dict[str, Head] = {}  # the beginnings of values that are truncated
    is_left: bool = False  # it is open, and the process that has the file drives other runs

    @property
    def inputs(self) -> Any:
        return decode(self.inputs_text)

    @property
    def output(self) -> Any:
        return decode(self.output_text)


def only_callbacks(view: RunView) -> list[str]:
    """Return the task ids that a run waits for, oldest first, if it waits for nothing else."""
    if view.status != "waiting" or any(wait.kind != "callback" for wait in view.waits):
        return []
    return [wait.name for wait in sorted(view.waits, key=lambda wait: wait.since or 0)]


class JournalEntry(msgspec.Struct, frozen=True):
    """One journal row: an event with its decisions. `body` is `[format, event, decisions]`. `jobs` are the job ids of the attempts
    in the row, by path and number: `a#1`."""

    seq: int
    epoch: int
    at: Millis
    kind: str
    body: msgspec.Raw
    jobs: dict[str, str] = {}


class Preview(msgspec.Struct, frozen=True):
    """What a rerun would copy and what it would run: top-level steps, and paths inside a step that runs in part."""

    copied: list[str]
    runs: list[str]


def cut_apart(output: msgspec.Raw, unshown: Error | None) -> tuple[msgspec.Raw, Error | None, Head | None]:
    shown, head = cut(output)
    return shown, unshown, head


def jobs_in(run_id: RunId, body: str) -> dict[str, str]:
    """Return the job ids of the attempts in a row."""
    event, decisions = decode_row(body)
    parts = ((getattr(part, "path", ""), getattr(part, "attempt", 0)) for part in (event, *decisions))
    return {f"{path}#{attempt}": job_id(run_id, path, attempt) for path, attempt in parts if attempt}


def start_of(ends: Ends) -> RunStarted:
    event, _ = decode_row(ends.first[0][4])
    assert isinstance(event, RunStarted)
    return event


def begun_at(ends: Ends, started: RunStarted) -> Millis | None:
    """Return when a run first ran: at its first row, or at the row of the process that adopted it."""
    if started.drive:
        return Millis(ends.first[0][2])
    for _, _, at, kind, body in ends.first:
        if kind == "adopted":
            event, _ = decode_row(body)
            if isinstance(event, Adopted) and event.drive:
                return Millis(at)
    return None


def finish_of(ends: Ends) -> FinishRun | None:
    _, decisions = decode_row(ends.last[4])
    return next((each for each in decisions if isinstance(each, FinishRun)), None)


def labels_of(row: RunRow) -> dict[str, str]:
    return msgspec.json.decode(row.labels, type=dict[str, str]) if row.labels else {}
