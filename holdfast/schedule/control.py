"""Changes of a cursor other than by time: a schedule is registered, paused, resumed, edited, backfilled, deleted.

Knows how each keeps pending occurrences. The caller commits the cursor as it does after `due`, and then calls `due` again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container
from typing import Final, NamedTuple

import msgspec

from holdfast.schedule.due import EXAMINED_MAX, FIRES_MAX, due, first_of
from holdfast.schedule.records import (
    Backfill,
    Cursor,
    Due,
    Outage,
    Owed,
    Pause,
    Reason,
    Running,
    Schedule,
    Skipped,
)
from holdfast.schedule.timing import Grid, grid_of

# This many pending occurrences survive an edit of their grid, listed one by one; older ones are skipped.
KEPT_MAX: Final = 1_000


def registered(now: int) -> Cursor:
    """The first cursor of a schedule: nothing before now is missed."""
    return Cursor(registered_at=now, at=now)


def paused(cursor: Cursor, now: int) -> Cursor:
    """Pause a schedule. Call `due` first: occurrences that are already due should fire before the pause."""
    if cursor.is_paused:
        return cursor
    return _changed(cursor, pauses=(*cursor.pauses, Pause(now)))


def resumed(cursor: Cursor, now: int, *, missed: bool = False) -> Cursor:
    """With `missed`, the occurrences of the pause are caught up, whatever the missed-run policy is."""
    pauses = tuple(
        Pause(pause.since, max(now, pause.since), missed) if pause.until is None else pause
        for pause in cursor.pauses
    )
    return cursor if pauses == cursor.pauses else _changed(cursor, pauses=pauses)


def replaced(
    old: Schedule,
    new: Schedule,
    cursor: Cursor,
    running: Running,
    now: int,
    limit: int = FIRES_MAX,
    *,
    outages: tuple[Outage, ...] = (),
) -> Due:
    """The cursor under another definition. Commit it together with the definition. If the answer is cut short, commit it alone and ask again.

    An edit that keeps the grid keeps the cursor. Otherwise everything that was due under the old grid is decided first, what
    was owed or waited for its jitter is kept, and the new grid counts from now.
    """
    if old.timing == new.timing and old.enabled == new.enabled:
        return Due(cursor, next_at=now)
    decided = Due(cursor)
    if old.enabled:
        decided = _settled(old, cursor, running, now, limit, outages)
        if decided.is_cut:
            return decided
    moved = _moved(old, decided.cursor, now, EXAMINED_MAX - decided.examined)
    changed = moved.cursor if moved.cursor.revision != cursor.revision else _changed(moved.cursor)
    return msgspec.structs.replace(
        decided,
        cursor=changed,
        skipped=(*decided.skipped, *moved.dropped),
        next_at=now,
        is_cut=moved.is_cut,
    )


def _settled(
    old: Schedule, cursor: Cursor, running: Running, now: int, limit: int, outages: tuple[Outage, ...]
) -> Due:
    """Everything that is due under the old definition. A pause continues, in two parts, so that the first can be
    decided."""
    if cursor.is_paused:
        halves = resumed(cursor, now).pauses
        cursor = msgspec.structs.replace(cursor, pauses=(*halves, Pause(now)))
    return due(old, cursor, running, now, limit, outages=outages)


class _Moved(NamedTuple):
    """A cursor that no longer needs the old grid, and the rows of the occurrences that it had to drop.

    If it `is_cut`, some of its queues are not listed yet: commit it with the old definition, and ask again.
    """

    cursor: Cursor
    dropped: list[Skipped]
    is_cut: bool


def _moved(old: Schedule, cursor: Cursor, now: int, examined_max: int) -> _Moved:
    listing = _Listing(grid_of(old.timing, cursor.registered_at), examined_max)
    missed = listing.listed(cursor.missed, "max_catchup")
    pending = [] if cursor.is_paused or not old.enabled else [Owed(cursor.at, now)]
    waiting = listing.listed(cursor.waiting, "superseded")
    waiting = listing.listed((*waiting, *pending), "superseded") if not listing.is_cut else waiting
    backfills = [
        msgspec.structs.replace(one, owed=owed)
        for one in cursor.backfills
        if (owed := listing.listed(one.owed, "superseded", has_rows=True))
    ]
    is_cut = listing.is_cut
    moved = msgspec.structs.replace(
        cursor,
        at=cursor.at if is_cut else max(cursor.at, now),
        missed=missed,
        waiting=waiting,
        skipping=None,
        dropping=None,
        backfills=tuple(backfills),
    )
    return _Moved(moved, [*listing.rows.values()], is_cut)


class _Listing:
    """Lists the newest occurrences of queues one by one, and drops older ones. What it has no time for stays as it is."""

    def __init__(self, grid: Grid, examined_max: int) -> None:
        self.grid, self.left = grid, examined_max
        self.rows: dict[int, Skipped] = {}  # of the occurrences that are dropped, by the first of each

    @property
    def is_cut(self) -> bool:
        return self.left <= 0

    def listed(self, queue: tuple[Owed, ...], reason: Reason, *, has_rows: bool = False) -> tuple[Owed, ...]:
        """A queue as a list of instants. Those that are dropped get a row for this reason; those that never fire get a row too,
        unless the ledger `has_rows` of the queue already."""
        newest: deque[int] = deque(maxlen=KEPT_MAX)
        oldest: Skipped | None = None
        barred: Skipped | None = None
        rest = deque(queue)
        while rest and not self.is_cut:
            owed = rest.popleft()
            tick = first_of(owed, self.grid)
            if tick is None:
                continue
            rest.appendleft(msgspec.structs.replace(owed, after=tick.at))
            self.left -= 0 if owed.instants else self.grid.cost  # what is listed already costs nothing
            if not owed.instants and not self.grid.fires(tick):
                why: Reason = "excluded" if tick.fires else "dst_gap"
                barred = None if has_rows else self._dropped(barred, why, tick.at)
                continue
            barred = None
            if len(newest) == KEPT_MAX:
                oldest = self._dropped(oldest, reason, newest[0])
            newest.append(tick.at)
        return (*([Owed(newest[0] - 1, newest[-1], tuple(newest))] if newest else []), *rest)

    def _dropped(self, row: Skipped | None, reason: Reason, at: int) -> Skipped:
        row = Skipped.grown(row, reason, at)
        self.rows[row.first] = row
        return row


class Missing(msgspec.Struct, frozen=True):
    """The occurrences of a period that have no run, and how far the search has come."""

    instants: tuple[int, ...]
    stretches: tuple[
        Owed, ...
    ]  # the same, as stretches of the grid, the first of which may go on from `last`
    is_open: bool  # whether the last stretch may go on
    settled: int  # occurrences that have a run, or will get one
    next_from: int | None  # where to go on; None at the end of the period


def missing(
    schedule: Schedule,
    cursor: Cursor,
    since: int,
    until: int,
    settled: Container[int],
    limit: int,
    last: Owed | None = None,
) -> Missing:
    """The occurrences from `since` to `until` that have no run; `settled` are those that have one. Examines at most
    `limit` of them. `last` is the stretch that the search had come to before, if it may go on."""
    grid = grid_of(schedule.timing, cursor.registered_at)
    promised = (*cursor.missed, *cursor.waiting, *(owed for one in cursor.backfills for owed in one.owed))
    found: list[int] = []
    made = [] if last is None else [last]
    is_open = last is not None
    has_run = 0
    at = since - 1
    for _ in range(limit):
        tick = grid.after(at)
        if tick is None or tick.at > min(until, cursor.at):  # later ones are still to be decided
            return Missing(tuple(found), tuple(made), is_open, has_run, None)
        at = tick.at
        if not grid.fires(tick):
            continue
        if at in settled or any(_has(owed, at) for owed in promised):
            has_run += 1
            is_open = False
            continue
        found.append(at)
        if is_open:
            made[-1] = Owed(made[-1].after, at)
        else:
            made.append(Owed(at - 1, at))
        is_open = True
    return Missing(tuple(found), tuple(made), is_open, has_run, at + 1)


def backfilled(cursor: Cursor, owed: tuple[Owed, ...], every_ms: int) -> Cursor:
    """Fire past occurrences, after those of backfills that were requested before."""
    return _changed(cursor, backfills=(*cursor.backfills, Backfill(owed, every_ms)))


def discarded(
    schedule: Schedule, cursor: Cursor, reason: Reason, limit: int
) -> tuple[Cursor, Skipped | None]:
    """A cursor without this many of its pending occurrences, and their row. Occurrences of backfills have rows
    already."""
    grid = grid_of(schedule.timing, cursor.registered_at)
    queue, row = [*cursor.missed, *cursor.waiting], None
    for _ in range(limit):
        if not queue:
            break
        tick = first_of(queue[0], grid)
        if tick is None or tick.at >= queue[0].until:
            queue.pop(0)
        else:
            queue[0] = msgspec.structs.replace(queue[0], after=tick.at)
        if tick is not None:
            row = Skipped.grown(row, reason, tick.at)
    return _changed(cursor, missed=tuple(queue), waiting=(), backfills=(), catchup_from=0), row


def _has(owed: Owed, at: int) -> bool:
    return at in owed.instants if owed.instants else owed.after < at <= owed.until


def _changed(cursor: Cursor, **fields: object) -> Cursor:
    return msgspec.structs.replace(cursor, revision=cursor.revision + 1, **fields)
