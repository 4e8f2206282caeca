"""What the embedded engine tells its program: plain records of runs, steps and answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec

from holdfast.values import Error, Millis, RunId, StepState, decode, job_id
from holdfast.views.runs import RunRow
from holdfast.views.steps import StepView


class Cancellation(TypedDict):
    """`cancelled` is true if the run is now being cancelled; otherwise `status` is the final status that it already had."""

    cancelled: bool
    status: str


class Resumption(TypedDict):
    """`reason` is resumed, parked (no step waits for it yet), already_resumed, expired or unknown_task."""

    resumed: bool
    reason: str


class RunInfo(msgspec.Struct, frozen=True):
    """A run as lists show it."""

    id: str
    workflow: str
    version: str
    status: str
    labels: dict[str, str]
    parent_job_id: str | None
    rerun_of: str | None
    created_at: datetime
    finished_at: datetime | None


class StepInfo(msgspec.Struct, frozen=True):
    """One step that a run has reached. `job_id` is the id of its latest attempt; a step without a call has none."""

    path: str
    status: StepState
    attempts: int
    job_id: str | None
    output: Any
    error: Error | None
    started_at: datetime
    finished_at: datetime | None
    due_at: datetime | None  # when its timer or retry is due, while it waits


def run_info(row: RunRow) -> RunInfo:
    labels = decode(row.labels) if row.labels else {}
    created, finished = _moment(row.created_at), _moment_or_none(row.finished_at)
    above = (row.parent_job_id, row.rerun_of)
    return RunInfo(row.id, row.workflow, row.version, row.status, labels, *above, created, finished)


def step_info(run_id: RunId, step: StepView) -> StepInfo:
    job = job_id(run_id, step.path, step.attempt) if step.attempt else None
    times = (_moment(step.started), _moment_or_none(step.finished), _moment_or_none(step.due))
    return StepInfo(step.path, step.status, step.attempts, job, decode(step.output), step.error, *times)


def _moment(at: Millis) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)


def _moment_or_none(at: Millis | None) -> datetime | None:
    return None if at is None else _moment(at)
