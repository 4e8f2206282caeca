"""Backfills: finds the occurrences of a past period that have no run, and fires them on request.

The missing occurrences are a set difference: all occurrences minus those that have a run in the ledger, minus those that
will fire anyway. So a repeated request fires nothing twice. A request is durable when it is accepted: it is part of the
cursor, and `due` fires its occurrences in order, at the rate that was asked for and as far as `max_concurrent` allows.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

import msgspec

from holdfast import limits
from holdfast.errors import InvalidInputs, LimitExceeded, Refused
from holdfast.schedule import control
from holdfast.schedule.due import EXAMINED_MAX
from holdfast.schedule.records import Cursor, Owed
from holdfast.schedule.timing import grid_of
from holdfast.store.base import Store
from holdfast.store.schedule_records import LedgerKey, ScheduleState
from holdfast.triggers.rows import Key, cursor_of, key_of
from holdfast.triggers.starting import known
from holdfast.values import Millis, rfc3339

EXAMINED_IN_ALL_MAX: Final = 1_000_000  # occurrences of one request, whether or not they have a run
STRETCHES_MAX: Final = 1_000  # gaps without runs in one request: they are stored with the cursor
SHOWN_MAX: Final = 1_000  # occurrences that a response lists
LEDGER_PAGE: Final = 10_000


class Backfill(msgspec.Struct, frozen=True):
    """What a backfill fires: `count` occurrences, the first of which are listed. `settled` occurrences have a run or
    will get one."""

    count: int
    settled: int
    first: Millis | None
    last: Millis | None
    occurrences: tuple[Millis, ...]


class Found(NamedTuple):
    """The occurrences that a request is to fire, of a cursor that was read."""

    state: ScheduleState
    cursor: Cursor
    instants: tuple[int, ...]
    stretches: tuple[Owed, ...]
    settled: int

    @property
    def shown(self) -> Backfill:
        listed = tuple(map(Millis, self.instants[:SHOWN_MAX]))
        first, last = (listed[0], Millis(self.instants[-1])) if listed else (None, None)
        return Backfill(len(self.instants), self.settled, first, last, listed)

    def requested(self, max_per_sec: float | None) -> Cursor:
        """The cursor with the request."""
        owed = self.stretches
        if len(owed) > STRETCHES_MAX:
            raise LimitExceeded(
                "backfill_stretches",
                f"the missing occurrences form {len(owed):,} periods with runs between them, and a request may cover "
                f"{STRETCHES_MAX:,} periods; ask for a shorter time",
            )
        every_ms = 0 if max_per_sec is None else round(1_000 / max_per_sec)
        return control.backfilled(self.cursor, owed, every_ms)


class _Settled:
    """The occurrences that have a run, as instants."""

    def __init__(self, texts: set[str]) -> None:
        self._texts = texts

    def __contains__(self, at: object) -> bool:
        return isinstance(at, int) and rfc3339(Millis(at)) in self._texts


async def find(store: Store, state: ScheduleState, since: Millis, until: Millis) -> Found:
    """The occurrences of a schedule from `since` to `until` that have no run. Raises if the schedule cannot be
    backfilled."""
    schedule, cursor = known(state.schedule.body), cursor_of(state)
    name = schedule.spec.id
    if schedule.clock is None:
        raise Refused(f"schedule {name!r} has no clock: its trigger is of kind {schedule.spec.trigger.kind}")
    if not schedule.spec.enabled:
        raise Refused(f"schedule {name!r} is disabled; set enabled: true first")
    if since > until:
        raise InvalidInputs(f"the backfill ends at {rfc3339(until)}, before it begins at {rfc3339(since)}")
    settled = _Settled(await _settled_texts(store, key_of(state.cursor), since, until))
    instants: list[int] = []
    stretches: list[Owed] = []
    has_run, examined, at = 0, 0, int(since)
    last: Owed | None = None
    at_once = EXAMINED_MAX // grid_of(schedule.clock.timing, cursor.registered_at).cost
    while True:
        part = control.missing(schedule.clock, cursor, at, until, settled, at_once, last)
        instants += part.instants
        stretches[len(stretches) - (last is not None) :] = part.stretches
        last = stretches[-1] if part.is_open else None
        has_run, examined = has_run + part.settled, examined + at_once
        if len(instants) > limits.now.backfill_max:
            message = f"more than {limits.now.backfill_max:,} occurrences of schedule {name!r} are missing in that time"
            raise LimitExceeded("backfill_max", f"{message}; ask for a shorter time")
        if part.next_from is None:
            return Found(state, cursor, tuple(instants), tuple(stretches), has_run)
        if examined >= EXAMINED_IN_ALL_MAX:
            message = f"schedule {name!r} has more than {EXAMINED_IN_ALL_MAX:,} occurrences in that time"
            raise LimitExceeded("backfill_examined", f"{message}; ask for a shorter time")
        at = part.next_from
        await asyncio.sleep(0)


async def _settled_texts(store: Store, key: Key, since: Millis, until: Millis) -> set[str]:
    """The occurrences between two instants that have a run, as the ledger writes them."""
    found: set[str] = set()
    first, last = rfc3339(since), rfc3339(until)
    while page := await store.settled_between(LedgerKey(*key, first), last, LEDGER_PAGE):
        found.update(page)
        if len(page) < LEDGER_PAGE:
            break
        first = f"{page[-1]} "  # the first text after it
    return found
