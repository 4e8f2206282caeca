"""One step with all that is known of it, and all steps of a run over time."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from holdfast.api.types.common import PathInAddress
from holdfast.api.types.runs import LogLine, Step
from holdfast.values import Error, Status, StepState


class Try(msgspec.Struct, frozen=True):
    """One attempt; `to` is null while it runs. `pending`: the call announced a later result, which the step then waited for."""

    n: int
    from_: str = msgspec.field(name="from")
    to: str | None
    outcome: Literal[
        "running", "completed", "failed", "timed_out", "pending", "lost", "released", "cancelled"
    ]
    error: Error | None
    worker: list[str]
    retry_at: str | None
    job_id: str


class WaitSpan(msgspec.Struct, frozen=True):
    """A time in which the step waited: for an approval, a signal, a callback, a key, a timer …"""

    kind: str
    from_: str = msgspec.field(name="from")
    to: str | None


class StepArtefact(msgspec.Struct, frozen=True):
    sha256: str
    size: int
    name: str


class StepDetail(Step, frozen=True, kw_only=True):
    """A step with all that is known of it. `input` is what it was called with, as it was decided: secrets are `{"$secret": name}`, and
    references to other outputs `{"$of": path, "at": pointer}`. `logs` are the newest lines, oldest first."""

    seq: int
    input: Any
    tries: list[Try]
    waits: list[WaitSpan]
    artefacts: list[StepArtefact]
    logs: list[LogLine]
    logs_more: bool


class TimelineQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`under` selects the inside of a step or an item; `buckets` is how finely large fan-outs are counted."""

    under: PathInAddress | None = None
    buckets: Annotated[int, msgspec.Meta(ge=1, le=200)] = 100


class TimelineSpan(msgspec.Struct, frozen=True):
    """A time of a step: an attempt (`try`), a wait, or the back-off before the next attempt. `outcome` of a wait is its kind."""

    kind: Literal["try", "wait", "backoff"]
    n: int
    from_: str = msgspec.field(name="from")
    to: str | None
    outcome: str


class Strip(msgspec.Struct, frozen=True):
    """The children of a fan-out in buckets of `bucket_ms` from `from` on: how many began and ended. `failed_items` are the numbers of
    the first 100 that failed."""

    from_: str = msgspec.field(name="from")
    bucket_ms: int
    started: list[int]
    completed: list[int]
    failed: list[int]
    cancelled: list[int]
    failed_items: list[int]


class TimelineRow(msgspec.Struct, frozen=True):
    """A step. A fan-out of over 50 children has a `strip`, and no rows for what is inside it."""

    path: str
    kind: str
    status: StepState
    from_: str = msgspec.field(name="from")
    to: str | None
    depth: int
    spans: list[TimelineSpan]
    children: int
    done: int
    failed: int
    strip: Strip | None


class Timeline(msgspec.Struct, frozen=True):
    """In reading order: a scope before what is inside it. `more` counts rows that were left out: at most 2,000 are given."""

    run_id: str
    seq: int
    status: Status
    from_: str = msgspec.field(name="from")
    to: str
    rows: list[TimelineRow]
    more: int
