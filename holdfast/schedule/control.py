"""Changes of a cursor other than by time: a schedule is registered, paused, resumed, edited, backfilled, deleted.

Knows how each keeps pending occurrences. The caller commits the cursor as it does after `due`, and then calls `due` again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterator, Sequence
from typing import Final

import msgspec

from holdfast.schedule.cron import Tick
from holdfast.schedule.due import FIRES_MAX, Decision, due, first_of
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
    """The cursor under another definition. Commit it with the definition; if the answer is cut, without, and ask again.

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
    moved, dropped = _moved(old, decided.cursor, now)
    if moved.revision == cursor.revision:
        moved = _changed(moved)
    return msgspec.structs.replace(decided, cursor=moved, skipped=(*decided.skipped, *dropped), next_at=now)


def _settled(
    old: Schedule, cursor: Cursor, running: Running, now: int, limit: int, outages: tuple[Outage, ...]
) -> Due:
    """Everything that is due under the old definition. A pause continues, in two parts, so that the first can be
    decided."""
    if cursor.is_paused:
        halves = resumed(cursor, now).pauses
        cursor = msgspec.structs.replace(cursor, pauses=(*halves, Pause(now)))
    trimmed = Decision(old, cursor, running, now, limit, outages)
    trimmed.limit_catchup(KEPT_MAX)
    cursor = msgspec.structs.replace(cursor, catchup_from=trimmed.catchup_from)
    return due(old, cursor, running, now, limit, outages=outages)


def _moved(old: Schedule, cursor: Cursor, now: int) -> tuple[Cursor, list[Skipped]]:
    """A cursor that no longer needs the old grid, and the rows of the occurrences that it had to drop."""
    grid = grid_of(old.timing, cursor.registered_at)
    pending = [] if cursor.is_paused or not old.enabled else [Owed(cursor.at, now)]
    missed, _ = _listed(cursor.missed, grid)
    waiting, dropped = _listed((*cursor.waiting, *pending), grid)
    backfills = []
    for backfill in cursor.backfills:
        listed, left_out = _listed(backfill.owed, grid)
        dropped += left_out
        backfills += [msgspec.structs.replace(backfill, owed=listed)] if listed else []
    cursor = msgspec.structs.replace(
        cursor,
        at=max(cursor.at, now),
        missed=missed,
        waiting=waiting,
        skipping=None,
        dropping=None,
        backfills=tuple(backfills),
    )
    return cursor, dropped


def _listed(queue: tuple[Owed, ...], grid: Grid) -> tuple[tuple[Owed, ...], list[Skipped]]:
    """A queue as a list of its newest occurrences, and the row of the older ones."""
    newest: deque[int] = deque(maxlen=KEPT_MAX)
    first, last, count = 0, 0, 0
    for tick in (tick for owed in queue for tick in _ticks(owed, grid)):
        if len(newest) == KEPT_MAX:
            first, last, count = first or newest[0], newest[0], count + 1
        newest.append(tick.at)
    listed = (Owed(newest[0] - 1, newest[-1], tuple(newest)),) if newest else ()
    return listed, [Skipped("superseded", first, last, count)] if count else []


def _ticks(owed: Owed, grid: Grid) -> Iterator[Tick]:
    """The occurrences of an entry that fire."""
    while (tick := first_of(owed, grid)) is not None:
        if owed.instants or (tick.fires and not grid.is_excluded(tick)):
            yield tick
        owed = msgspec.structs.replace(owed, after=tick.at)


class Missing(msgspec.Struct, frozen=True):
    """The occurrences of a stretch that have no run, and how far the search has come."""

    instants: tuple[int, ...]
    settled: int  # occurrences that have a run, or will get one
    next_from: int | None  # where to go on; None at the end of the stretch


def missing(
    schedule: Schedule, cursor: Cursor, since: int, until: int, settled: Container[int], limit: int
) -> Missing:
    """The occurrences from `since` to `until` that have no run; `settled` are those that have one. Examines at most
    `limit` of them."""
    grid = grid_of(schedule.timing, cursor.registered_at)
    promised = (*cursor.missed, *cursor.waiting, *(owed for one in cursor.backfills for owed in one.owed))
    found: list[int] = []
    has_run = 0
    at = since - 1
    for _ in range(limit):
        tick = grid.after(at)
        if tick is None or tick.at > min(until, cursor.at):  # later ones are still to be decided
            return Missing(tuple(found), has_run, None)
        at = tick.at
        if not tick.fires or grid.is_excluded(tick):
            continue
        if at in settled or any(_has(owed, at) for owed in promised):
            has_run += 1
        else:
            found.append(at)
    return Missing(tuple(found), has_run, at + 1)


def stretches(schedule: Schedule, cursor: Cursor, instants: Sequence[int]) -> tuple[Owed, ...]:
    """Some occurrences of the grid, in order, as stretches of it."""
    grid = grid_of(schedule.timing, cursor.registered_at)
    made: list[Owed] = []
    for at in instants:
        following = grid.fire_after(made[-1].until) if made else None
        if following is not None and following.at == at:
            made[-1] = Owed(made[-1].after, at)
        else:
            made.append(Owed(at - 1, at))
    return tuple(made)


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
            row = Skipped(reason, row.first if row else tick.at, tick.at, row.count + 1 if row else 1)
    return _changed(cursor, missed=tuple(queue), waiting=(), backfills=(), catchup_from=0), row


def _has(owed: Owed, at: int) -> bool:
    return at in owed.instants if owed.instants else owed.after < at <= owed.until


def _changed(cursor: Cursor, **fields: object) -> Cursor:
    return msgspec.structs.replace(cursor, revision=cursor.revision + 1, **fields)
