"""What changes a cursor beside time: a schedule is registered, paused, resumed, edited.

Knows how each keeps what is owed. The caller commits the cursor as it does after `due`, and then asks `due` again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.schedule.cron import Tick
from holdfast.schedule.due import FIRES_MAX, Decision, due, first_of
from holdfast.schedule.records import Cursor, Due, Outage, Owed, Pause, Running, Schedule, Skipped
from holdfast.schedule.timing import Grid, grid_of

# So many occurrences that are owed survive an edit of their grid, listed one by one; older ones are skipped.
KEPT_MAX: Final = 1_000


def registered(now: int) -> Cursor:
    """The first cursor of a schedule: nothing before now is missed."""
    return Cursor(registered_at=now, at=now)


def paused(cursor: Cursor, now: int) -> Cursor:
    """Ask `due` first: what is due already should fire before the pause."""
    if any(pause.until is None for pause in cursor.pauses):
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
    """Everything that is due under the old definition. A pause goes on, in two parts, so that the first can be decided."""
    if any(pause.until is None for pause in cursor.pauses):
        halves = resumed(cursor, now).pauses
        cursor = msgspec.structs.replace(cursor, pauses=(*halves, Pause(now)))
    trimmed = Decision(old, cursor, running, now, limit, outages)
    trimmed.limit_catchup(KEPT_MAX)
    cursor = msgspec.structs.replace(cursor, catchup_from=trimmed.catchup_from)
    return due(old, cursor, running, now, limit, outages=outages)


def _moved(old: Schedule, cursor: Cursor, now: int) -> tuple[Cursor, list[Skipped]]:
    """A cursor that needs the old grid no longer, and the rows of what it had to let go."""
    grid = grid_of(old.timing, cursor.registered_at)
    is_paused = any(pause.until is None for pause in cursor.pauses)
    pending = [] if is_paused or not old.enabled else [Owed(cursor.at, now)]
    missed, _ = _listed(cursor.missed, grid)
    waiting, dropped = _listed((*cursor.waiting, *pending), grid)
    cursor = msgspec.structs.replace(
        cursor, at=max(cursor.at, now), missed=missed, waiting=waiting, skipping=None, dropping=None
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


def _changed(cursor: Cursor, **fields: object) -> Cursor:
    return msgspec.structs.replace(cursor, revision=cursor.revision + 1, **fields)
