"""Schedules and the outcomes of their occurrences, read from committed rows.

Knows rows and how they are put together for a reader; when a schedule is due is asked of schedule/. Writes nothing; lists are pages
of bounded size.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, Self

import msgspec

from holdfast.errors import HoldfastError, NotFound, Problem
from holdfast.schedule.due import jitter_ms
from holdfast.schedule.of_spec import NEVER_FIRES, notes_on, schedule_of
from holdfast.schedule.preview import Upcoming, upcoming
from holdfast.schedule.records import Cursor, Schedule
from holdfast.schedule.timing import grid_of
from holdfast.schedule.words import event_words, in_words
from holdfast.spec.cron import parse_expression
from holdfast.spec.schedule import schedule_from_stored
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import Exclude, WebhookTrigger
from holdfast.store.base import Store
from holdfast.store.schedule_records import LedgerRow, ScheduleRow, ScheduleState
from holdfast.threads import in_thread
from holdfast.values import Millis, decode, rfc3339
from holdfast.views.cursors import at_cursor, cursor_at
from holdfast.views.pages import Page

log = logging.getLogger("holdfast")

__all__ = [
    "LedgerRow",
    "NextFire",
    "ScheduleQueries",
    "ScheduleView",
    "detail_of",
    "words_of",
]  # for those who know no store

STALLED: Final = "stalled"
UNREADABLE: Final = (
    "its stored definition or position cannot be read, so it does not fire; replace or delete it"
)
VIEWS_OF_A_TURN: Final = 50  # definitions that are parsed in one turn of the loop: about 6 ms

ScheduleStatus = Literal["active", "paused", "disabled", "ended", "unreadable"]


class ScheduleView(msgspec.Struct, frozen=True):
    """A schedule with how far it has come, over all slots. `slots` has the slot of each cursor."""

    row: ScheduleRow
    spec: ScheduleSpec
    slots: tuple[str, ...]
    cursors: tuple[Cursor, ...]
    status: ScheduleStatus
    next_at: Millis | None  # jitter included
    open_runs: int
    error_count: int
    failures: int  # since the last run that completed
    last_error: str
    as_of: int
    problem: str = ""  # what keeps it from firing in this process
    warnings: tuple[Problem, ...] = ()  # about what it names

    @property
    def total_run_count(self) -> int:
        return sum(cursor.total_run_count for cursor in self.cursors)

    @property
    def registered_at(self) -> int:
        return min((cursor.registered_at for cursor in self.cursors), default=self.row.created_at)

    @property
    def paused_since(self) -> Millis | None:
        since = [pause.since for cursor in self.cursors for pause in cursor.pauses if pause.until is None]
        return Millis(min(since)) if since else None

    @property
    def paused_because(self) -> str:
        """What made it pause by itself; empty if nothing did."""
        limit = self.spec.pause_after_failures
        if self.paused_since is None or not 0 < limit <= self.failures:
            return ""
        return (
            f"its last {self.failures} runs have failed" if self.failures > 1 else "its last run has failed"
        )

    @property
    def clock(self) -> Schedule | None:
        """The part that decides when it fires, if a clock does."""
        return schedule_of(self.spec)

    @property
    def timezone(self) -> str:
        return "UTC" if self.clock is None else self.clock.timing.timezone

    @property
    def notes(self) -> list[Problem]:
        """Warnings about it."""
        if self.status == "unreadable":
            return [Problem("unreadable", self.last_error)]
        stalled = [Problem(STALLED, self.problem)] if self.problem else []
        return [*stalled, *self.warnings, *notes_on(self.spec, self.as_of)]

    @property
    def never_fires(self) -> bool:
        """Whether no occurrence is left."""
        return any(note.code == NEVER_FIRES for note in self.notes)

    @property
    def words(self) -> list[str]:
        """When it fires, one sentence per rule."""
        return [] if self.status == "unreadable" else _words(self.row.body)


class NextFire(msgspec.Struct, frozen=True):
    """An occurrence to come. `fires_at` has the jitter added; None if it does not fire, which the note explains."""

    at: Millis
    local: str
    fires_at: Millis | None
    note: str

    @classmethod
    def of(cls, one: Upcoming, stopped: str = "", jitter: int = 0) -> Self:
        """`stopped` is what keeps every occurrence from firing."""
        fires_at = Millis(one.at + jitter) if one.fires and not stopped else None
        return cls(Millis(one.at), one.local, fires_at, stopped or one.note)


class ScheduleQueries:
    """`problem` says by tenant, id and slots what keeps a schedule from firing in this process, which no row tells."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], int],
        problem: Callable[[str, str, Sequence[str]], str] = lambda tenant, schedule_id, slots: "",
    ) -> None:
        self._store, self._now, self._problem = store, now, problem

    async def schedules(self, tenant: str, *, cursor: str | None, limit: int) -> Page[ScheduleView]:
        """In the order of their ids."""
        rows = await self._store.schedules(tenant, cursor or "", limit + 1)
        views = await self._views(rows[:limit])
        return Page(views, rows[limit - 1].id if len(rows) > limit else None)

    async def schedule(self, tenant: str, schedule_id: str) -> ScheduleView:
        row = await self._store.schedule(tenant, schedule_id)
        if row is None:
            raise NotFound(f"there is no schedule {schedule_id!r}; see holdfast schedules list")
        return (await self._views([row]))[0]

    async def _views(self, rows: Sequence[ScheduleRow]) -> list[ScheduleView]:
        found: dict[str, list[ScheduleState]] = {}
        asked = [(row.tenant, row.id) for row in rows]
        for state in await self._store.schedule_states(asked, every_slot=True):
            found.setdefault(state.schedule.id, []).append(state)
        now = self._now()
        views: list[ScheduleView] = []
        for row in rows:
            view = _view_or_why_not(row, found.get(row.id, []), now)
            problem = self._problem(row.tenant, row.id, view.slots) if view.spec.enabled else ""
            views.append(msgspec.structs.replace(view, problem=problem) if problem else view)
            if len(views) % VIEWS_OF_A_TURN == 0:
                await asyncio.sleep(0)
        return views

    async def ledger(
        self, tenant: str, schedule_id: str, *, cursor: str | None, limit: int, unfired: bool = False
    ) -> Page[LedgerRow]:
        """The outcomes of a schedule's occurrences, latest decision first; also of a deleted schedule."""
        key, which = self._store.server_key, f"ledger {tenant}"
        before = None if cursor is None else at_cursor(key, which, cursor)
        rows = await self._store.ledger(tenant, schedule_id, before, limit + 1, unfired=unfired)
        if not rows and before is None:
            await self.schedule(tenant, schedule_id)
        return Page(rows[:limit], cursor_at(key, which, rows[limit - 1].pos) if len(rows) > limit else None)

    async def next_fires(
        self, tenant: str, schedule_id: str, limit: int
    ) -> tuple[ScheduleView, list[NextFire]]:
        view = await self.schedule(tenant, schedule_id)
        return view, await in_thread(next_fires, view, self._now(), limit)


def next_fires(view: ScheduleView, now: int, limit: int) -> list[NextFire]:
    """The next occurrences of a schedule with a clock, and what keeps them from firing as things are now."""
    clock = view.clock
    if clock is None:
        return []
    stopped = {"paused": "the schedule is paused", "disabled": "the schedule is disabled"}.get(
        view.status, ""
    )
    found = upcoming(clock.timing, now, limit, registered_at=view.registered_at)
    return [NextFire.of(one, stopped, jitter_ms(clock, one.at)) for one in found]


def words_of(spec: ScheduleSpec) -> list[str]:
    """When a schedule fires, one sentence per rule."""
    clock = schedule_of(spec)
    if clock is None:
        return [event_words(spec.trigger)]
    timing = clock.timing
    words = [in_words(parse_expression(text), timing.timezone, timing.dst) for text in timing.expressions]
    match timing.instants:
        case ():
            return words
        case (at,):
            return [*words, f"once, at {rfc3339(Millis(at))}"]
        case several:
            return [*words, f"once at each of {len(several):,} listed instants"]


def detail_of(row: LedgerRow) -> dict[str, Any]:
    """The details of a row besides its reason: a message, warnings."""
    found = decode(row.detail) if row.detail else {}
    return found if isinstance(found, dict) else {}


@lru_cache(maxsize=1_024)  # lists read the same definitions again and again
def _spec(body: str) -> ScheduleSpec:
    return schedule_from_stored(body)


@lru_cache(maxsize=1_024)
def _words(body: str) -> list[str]:
    return words_of(_spec(body))


TIME_MAX: Final = 253_402_300_799_999  # the last millisecond of the year 9999

# What reading a stored definition or position raises if it is not what was stored.
_DAMAGED: Final = (HoldfastError, msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError)


def unreadable(body: str, cursor: str | None) -> str:
    """Why a stored schedule, or how far it has come, cannot be read; empty if it can."""
    try:
        words_of(schedule_from_stored(body))
        if cursor is not None:
            msgspec.json.decode(cursor, type=Cursor)
    except _DAMAGED as error:
        return str(error) or type(error).__name__
    return ""


def unreadable_state(state: ScheduleState) -> str:
    """The same of all columns."""
    try:
        _check_numbers(state.schedule, [state])
    except _DAMAGED as error:
        return str(error)
    return unreadable(state.schedule.body, state.cursor.body)


def _check_numbers(row: ScheduleRow, states: Sequence[ScheduleState]) -> None:
    """SQLite keeps whatever a damaged row has in a column of numbers."""
    cursors = [state.cursor for state in states]
    times = [row.created_at, row.updated_at, *(each.next_at for each in cursors if each.next_at is not None)]
    if not all(map(is_time, times)):
        raise ValueError("a time of it is not a number of milliseconds")
    counts = [row.priority, *(count for each in cursors for count in (each.error_count, each.failures))]
    if not all(isinstance(count, int) for count in counts):
        raise ValueError("a count of it is not a number")


def is_time(found: object) -> bool:
    return isinstance(found, int) and 0 <= found <= TIME_MAX


def _view_or_why_not(row: ScheduleRow, states: Sequence[ScheduleState], now: int) -> ScheduleView:
    """A row that is damaged is shown as such: it must not hide the other schedules of a list."""
    try:
        _check_numbers(row, states)
        view = _view(row, states, now)
        _words(row.body)  # kept, so that showing a page is quick too
        return view
    except _DAMAGED as error:
        log.warning("schedule %a of tenant %s cannot be read: %s", row.id, row.tenant, error)
        spec = ScheduleSpec(id=row.id, workflow="", trigger=WebhookTrigger(path=""), enabled=False)
        created_at, updated_at = (at if is_time(at) else Millis(0) for at in (row.created_at, row.updated_at))
        row = row._replace(created_at=created_at, updated_at=updated_at)
        return ScheduleView(row, spec, (), (), "unreadable", None, 0, 0, 0, UNREADABLE, now)


def _view(row: ScheduleRow, states: Sequence[ScheduleState], now: int) -> ScheduleView:
    spec = _spec(row.body)
    cursors = tuple(msgspec.json.decode(state.cursor.body, type=Cursor) for state in states)
    next_at = _next_at(spec, states, cursors, now)
    return ScheduleView(
        row,
        spec,
        tuple(state.cursor.slot for state in states),
        cursors,
        _status(spec, cursors, next_at, owes=any(state.cursor.owes for state in states)),
        next_at,
        sum(state.open for state in states),
        sum(state.cursor.error_count for state in states),
        max((state.cursor.failures for state in states), default=0),
        next((state.cursor.last_error for state in states if state.cursor.last_error), ""),
        now,
    )


def _next_at(
    spec: ScheduleSpec, states: Sequence[ScheduleState], cursors: Sequence[Cursor], now: int
) -> Millis | None:
    """When it fires next. At a stored time that has passed an engine decides now, and perhaps it does not fire; and a schedule
    with exclusions may be decided at times at which it does not fire."""
    times = [state.cursor.next_at for state in states if state.cursor.next_at is not None]
    soonest, clock = min(times, default=None), schedule_of(spec)
    if soonest is None or clock is None or (soonest > now and clock.timing.exclude == Exclude()):
        return soonest
    tick = grid_of(clock.timing, cursors[0].registered_at).fire_after(max(now, cursors[0].at))
    return None if tick is None else Millis(tick.at + jitter_ms(clock, tick.at))


def _status(
    spec: ScheduleSpec, cursors: Sequence[Cursor], next_at: Millis | None, *, owes: bool
) -> ScheduleStatus:
    if not spec.enabled:
        return "disabled"
    if any(pause.until is None for cursor in cursors for pause in cursor.pauses):
        return "paused"
    has_ended = bool(cursors) and next_at is None and not owes and schedule_of(spec) is not None
    return "ended" if has_ended else "active"
