"""Changes of a cursor other than by time: a schedule is registered, paused, resumed, edited, backfilled, deleted.

Knows how each keeps pending occurrences. The caller commits the cursor as it does after `due`, and then calls `due` again.
"""

from __future__ import annotations

from collections.abc import Container

import msgspec

from holdfast.schedule.due import FIRES_MAX, due
from holdfast.schedule.owed import Grids, needed, with_earlier
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
from holdfast.schedule.timing import grid_of


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
    is owed or waits for its jitter still fires, and the new grid counts from now.
    """
    if old.timing == new.timing and old.enabled == new.enabled:
        return Due(cursor, next_at=now)
    decided = Due(cursor)
    if old.enabled:
        decided = _settled(old, cursor, running, now, limit, outages)
        if decided.is_cut:
            return decided
    moved = _moved(old, decided.cursor, now)
    if old.timing != new.timing:
        moved = with_earlier(moved, old.timing)
    changed = moved if moved.revision != cursor.revision else _changed(moved)
    return msgspec.structs.replace(decided, cursor=changed, next_at=now)


def _settled(
    old: Schedule, cursor: Cursor, running: Running, now: int, limit: int, outages: tuple[Outage, ...]
) -> Due:
    """Everything that is due under the old definition. A pause continues, in two parts, so that the first can be
    decided."""
    if cursor.is_paused:
        halves = resumed(cursor, now).pauses
        cursor = msgspec.structs.replace(cursor, pauses=(*halves, Pause(now)))
    return due(old, cursor, running, now, limit, outages=outages)


def _moved(old: Schedule, cursor: Cursor, now: int) -> Cursor:
    """A cursor that has come to now. What is due and waits for its jitter is owed."""
    waiting = cursor.waiting
    if old.enabled and not cursor.is_paused:
        tick = grid_of(old.timing, cursor.registered_at).after(cursor.at)
        if tick is not None and tick.at <= now:
            waiting = (*waiting, Owed(cursor.at, now))
    return msgspec.structs.replace(
        cursor, at=max(cursor.at, now), waiting=waiting, skipping=None, dropping=None
    )


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
    grids = Grids(schedule.timing, cursor)
    grid = grids.now
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
        if at in settled or grids.promised(at):
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
    """A cursor without this many of its pending occurrences, or stretches of them, and their row. Occurrences of backfills have
    rows already."""
    grids = Grids(schedule.timing, cursor)
    queue, row = [*cursor.missed, *cursor.waiting], None
    for _ in range(limit):
        if not queue:
            break
        owed = queue[0]
        tick = grids.first(owed)
        if tick is None:
            queue.pop(0)
            continue
        more = grids.of(owed).stretch(tick.at, owed.until)
        last = max(tick.at, more.until)
        row = Skipped.grown(row, reason, tick.at, last, 1 + more.ticks)
        queue[0] = msgspec.structs.replace(owed, after=last)
    left = _changed(cursor, missed=tuple(queue), waiting=(), backfills=(), catchup_from=0)
    return needed(left), row


def _changed(cursor: Cursor, **fields: object) -> Cursor:
    return msgspec.structs.replace(cursor, revision=cursor.revision + 1, **fields)
