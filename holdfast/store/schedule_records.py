"""The records of schedules that a store deals in: their definitions, cursors, ledgers and what they fire."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from holdfast.values import Millis, RunId, RunNo

Origin = Literal["file", "api", "plugin", "code"]


class ScheduleRow(NamedTuple):
    """A schedule. `body` is its definition as canonical JSON; `source` is where it was read from."""

    tenant: str
    id: str
    kind: str
    origin: Origin
    source: str
    priority: int  # among those that are due at the same time, the lower ones first
    created_at: Millis
    updated_at: Millis
    body: str


class NewCursor(NamedTuple):
    """How far a schedule has come in a slot, to be written. `owes`: occurrences wait for a run to end."""

    tenant: str
    schedule: str
    slot: str  # '' for all nodes together, or the name of a node
    revision: int
    next_at: Millis | None
    owes: bool
    body: str


class CursorRow(NamedTuple):
    """The same as it is read, with the failures of its runs. `failures` are those since the last success."""

    tenant: str
    schedule: str
    slot: str
    revision: int
    next_at: Millis | None
    owes: bool
    body: str
    error_count: int
    failures: int
    last_error: str


class ScheduleState(NamedTuple):
    """All that deciding about a schedule takes. `open` are its open runs in this slot, `catchups` those that catch up."""

    schedule: ScheduleRow
    cursor: CursorRow
    open: int
    catchups: int


LedgerOutcome = Literal["fired", "skipped", "failed", "buffered"]


class LedgerKey(NamedTuple):
    tenant: str
    schedule: str
    slot: str
    occurrence: str


class LedgerEntry(NamedTuple):
    """What became of an occurrence, to be written. A stretch that was skipped lasts from `scheduled_at` to `until`."""

    tenant: str
    schedule: str
    slot: str
    occurrence: str
    outcome: LedgerOutcome
    reason: str
    scheduled_at: Millis
    until: Millis | None
    times: int  # occurrences of the stretch
    at: Millis  # when it was decided
    run: RunNo | None = None  # of one that fired
    is_catchup: bool = False
    detail: str | None = None  # JSON: a message, warnings
    reply: bytes | None = None  # to the sender of a delivery
    payload: bytes | None = None

    @property
    def key(self) -> LedgerKey:
        return LedgerKey(*self[:4])


class LedgerRow(NamedTuple):
    """The same as it is read, by its place in the order of decisions; the payload is read by itself."""

    pos: int
    tenant: str
    schedule: str
    slot: str
    occurrence: str
    outcome: LedgerOutcome
    reason: str
    scheduled_at: Millis
    until: Millis | None
    times: int  # occurrences of the stretch
    at: Millis
    run_id: RunId | None
    is_catchup: bool
    detail: str | None
    reply: bytes | None


class Firing(msgspec.Struct, frozen=True):
    """One decision about a schedule: a cursor that moves, rows of the ledger, and the run that starts, all or none of it.

    It is lost if the cursor has another revision than `seen`, if an occurrence has a run already or is buffered, or if `takes`
    is not buffered any more. Without `seen` the cursor is a new one.
    """

    entries: tuple[LedgerEntry, ...] = ()
    cursor: NewCursor | None = None
    seen: int | None = None
    no: RunNo | None = None  # of the run that starts
    takes: LedgerKey | None = None  # a buffered occurrence that starts now


class ScheduleEnd(NamedTuple):
    """The end of a run that a schedule started. `error` is what it failed with, if it did."""

    no: RunNo
    tenant: str
    schedule: str
    slot: str
    error: str | None
