"""Schedules: what starts runs, when they fire next, and the outcome of each occurrence."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from holdfast.api.types.common import PAGE, Cursor, Limit, Text
from holdfast.errors import Problem

Rate = Annotated[float, msgspec.Meta(gt=0, le=1_000)]
ScheduleStatus = Literal["active", "paused", "disabled", "ended", "unreadable"]
ScheduleOrigin = Literal["file", "api", "plugin", "code"]


class ScheduleLine(msgspec.Struct, frozen=True):
    """A schedule in a list. `words` say when it fires; `next_at` is null if it is paused, disabled, has ended or has no clock. One that
    is `unreadable` is damaged in the database: replace or delete it.

    Schedules of `origin` `file` are changed in their `source`, and of `plugin` and `code` by the program that declares them.
    """

    id: str
    workflow: str
    kind: str
    status: ScheduleStatus
    origin: ScheduleOrigin
    source: str
    words: list[str]
    next_at: str | None
    open_runs: int
    failures: int  # failed runs since the last one that completed
    last_error: str


class SchedulePage(msgspec.Struct, frozen=True):
    items: list[ScheduleLine]
    cursor: str | None


class Schedule(msgspec.Struct, frozen=True):
    """A schedule with its definition. `notes` are warnings, such as that it never fires; `paused_because` is what made it pause by
    itself."""

    id: str
    workflow: str
    kind: str
    status: ScheduleStatus
    origin: ScheduleOrigin
    source: str
    words: list[str]
    timezone: str
    next_at: str | None
    paused_since: str | None
    paused_because: str
    open_runs: int
    total_run_count: int
    error_count: int
    failures: int
    last_error: str
    created_at: str
    updated_at: str
    definition: dict[str, Any]
    notes: list[Problem]


class PauseSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An empty body."""


class ResumeSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """With `missed`, the occurrences of the pause are caught up, one after the other."""

    missed: bool = False


class FireSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`payload` is what `{{trigger.payload}}` means in the inputs of the schedule."""

    payload: Any = {}


class Redeliver(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`delivery` is the `occurrence` of a row of the ledger: the id of a delivery, of a run, of a file or of an event."""

    delivery: Text


class FiredSchedule(msgspec.Struct, frozen=True):
    """The run that was started, and its `occurrence` in the ledger."""

    run_id: str
    occurrence: str


class BackfillSchedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Start the occurrences from `from` to `to`, both included, that have no run. Dates and times without an offset are meant in
    the zone of the schedule; a date as `to` includes the whole day. Only occurrences of the past are started, as far as
    `max_concurrent` allows, at most `max_per_sec` a second. `preview` only lists them."""

    from_: Text = msgspec.field(name="from")
    to: Text
    max_per_sec: Rate | None = None
    preview: bool = False


class Backfill(msgspec.Struct, frozen=True):
    """`count` occurrences have no run and are started; `settled` have one already. `items` are the first of them."""

    preview: bool
    count: int
    settled: int
    items: list[str]


class NextFire(msgspec.Struct, frozen=True):
    """One future occurrence. `local` is the same time in the zone of the schedule; `fires_at` includes jitter, and is
    null if the schedule does not fire for it. `note` says why, or what a clock change does to it."""

    at: str
    local: str
    fires_at: str | None
    note: str


class NextFires(msgspec.Struct, frozen=True):
    """`never_fires`: no occurrence is left up to the end of 2100. Empty for triggers without a clock."""

    timezone: str
    words: list[str]
    never_fires: bool
    items: list[NextFire]


class NextQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    limit: Limit = 10


class LedgerLine(msgspec.Struct, frozen=True):
    """The outcome of one occurrence, or of `count` occurrences from `scheduled_at` to `until` that were skipped for one reason.

    `occurrence` is an instant, or the id of a delivery, a run, a file or an event. `fired_at` is null if no run was started.
    """

    occurrence: str
    outcome: Literal["fired", "skipped", "failed", "buffered"]
    reason: str
    message: str
    scheduled_at: str
    until: str | None
    count: int
    decided_at: str
    fired_at: str | None
    run_id: str | None
    is_catchup: bool
    slot: str
    warnings: list[str]


class LedgerPage(msgspec.Struct, frozen=True):
    items: list[LedgerLine]
    cursor: str | None


class LedgerQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`unfired` leaves out occurrences that started a run."""

    unfired: bool = False
    cursor: Cursor | None = None
    limit: Limit = PAGE


class WhyQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`when` is a date or a time (in the zone of the schedule unless it has an offset), or the id of a delivery."""

    when: Cursor | None = None
    limit: Limit = 20


class Verdict(msgspec.Struct, frozen=True):
    """Why the schedule did or did not fire for an occurrence, or whether it will. `hint` says what would change that. `slot` is
    the node, if the schedule fires on each node; `warnings` are about inputs that could not be filled in."""

    outcome: Literal[
        "fired",
        "skipped",
        "failed",
        "buffered",
        "waiting",
        "undecided",
        "will_fire",
        "will_not_fire",
        "not_due",
        "unknown",
    ]
    reason: str
    message: str
    hint: str
    occurrence: str
    at: str | None
    local: str
    until: str | None
    count: int
    run_id: str | None
    decided_at: str | None
    slot: str
    warnings: list[str]


class WhyReport(msgspec.Struct, frozen=True):
    schedule: str
    status: Literal["active", "paused", "disabled", "ended", "unreadable", "deleted"]
    items: list[Verdict]
