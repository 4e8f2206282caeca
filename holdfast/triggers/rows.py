"""Builds the rows for decisions about schedules: cursors, and entries of the ledger."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec

from holdfast.engine.events import TriggeredBy
from holdfast.errors import InvalidSpec, Problem
from holdfast.schedule.records import Cursor, Skipped
from holdfast.store.records import NewRun
from holdfast.store.schedule_records import CursorRow, LedgerEntry, LedgerOutcome, NewCursor, ScheduleState
from holdfast.values import Millis, rfc3339

Key = tuple[str, str, str]  # tenant, schedule, slot

_ENCODER: Final = msgspec.json.Encoder()
_CURSOR: Final = msgspec.json.Decoder(Cursor)


def cursor_of(state: ScheduleState) -> Cursor:
    try:
        return _CURSOR.decode(state.cursor.body)
    except msgspec.MsgspecError as error:
        name = state.schedule.id
        message = f"schedule {name!a}: how far it has come is damaged: {error}"
        raise InvalidSpec([Problem("unreadable", message, hint="replace or delete it")]) from error


def key_of(cursor: CursorRow) -> Key:
    return cursor[:3]


def asked_at(state: ScheduleState, now: Millis) -> Millis:
    """The stored time of a schedule that is to be decided at once. It does not pass the next occurrence that is undecided: what
    was stored for that is kept until no schedule has an earlier time, an outage for example."""
    before = state.cursor.next_at
    return now if before is None else min(now, before)


def cursor_row(key: Key, cursor: Cursor, next_at: int | None) -> NewCursor:
    at = None if next_at is None else Millis(next_at)
    return NewCursor(*key, cursor.revision, at, cursor.owes, _ENCODER.encode(cursor).decode())


def entry(
    key: Key,
    by: TriggeredBy,
    outcome: LedgerOutcome,
    reason: str,
    at: Millis,
    detail: str | None = None,
    run: NewRun | None = None,
) -> LedgerEntry:
    no = None if run is None else run.no
    return LedgerEntry(
        *key,
        by.occurrence,
        outcome,
        reason,
        Millis(by.scheduled_at),
        None,
        1,
        at,
        no,
        by.is_catchup,
        detail,
    )


def entry_of_stretch(key: Key, row: Skipped, at: Millis) -> LedgerEntry:
    occurrence = f"{rfc3339(Millis(row.first))}/.."
    first, last = Millis(row.first), Millis(row.last)
    return LedgerEntry(*key, occurrence, "skipped", row.reason, first, last, row.count, at)


def local_text(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}"
