"""The occurrences that a schedule owes: stretches of its grid, or of a grid that it had before an edit.

Knows which grid a stretch belongs to. Does not know when something owed fires, or why it is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.schedule.cron import Tick
from holdfast.schedule.records import Cursor, Owed
from holdfast.schedule.timing import Grid, Timing, grid_of


class Grids:
    """The grid of a schedule, and the earlier ones of which its cursor owes occurrences."""

    __slots__ = ("_cursor", "now")

    def __init__(self, timing: Timing, cursor: Cursor) -> None:
        self._cursor = cursor
        self.now = grid_of(timing, cursor.registered_at)

    def of(self, owed: Owed) -> Grid:
        return grid_of(self._cursor.earlier[owed.grid], self._cursor.registered_at) if owed.grid else self.now

    def first(self, owed: Owed) -> Tick | None:
        tick = self.of(owed).after(owed.after)
        return tick if tick is not None and tick.at <= owed.until else None

    def before(self, owed: Owed, instant: int) -> Tick | None:
        """The last occurrence of a stretch before an instant."""
        tick = self.of(owed).before(min(instant, owed.until + 1))
        return tick if tick is not None and tick.at > owed.after else None

    def promised(self, at: int) -> bool:
        """Whether an occurrence will fire without anyone asking for it."""
        return any(
            owed.after < at <= owed.until and (not owed.grid or self._has(owed, at))
            for owed in stretches(self._cursor)
        )

    def _has(self, owed: Owed, at: int) -> bool:
        tick = self.of(owed).after(at - 1)
        return tick is not None and tick.at == at


def stretches(cursor: Cursor) -> Iterable[Owed]:
    yield from cursor.missed
    yield from cursor.waiting
    for backfill in cursor.backfills:
        yield from backfill.owed


def with_earlier(cursor: Cursor, timing: Timing) -> Cursor:
    """A cursor whose schedule gets another grid: what it owes stays occurrences of the one it had."""
    number = max(cursor.earlier, default=0) + 1
    number = next((known for known, one in cursor.earlier.items() if one == timing), number)

    def marked(queue: Iterable[Owed]) -> tuple[Owed, ...]:
        return tuple(owed if owed.grid else msgspec.structs.replace(owed, grid=number) for owed in queue)

    backfills = (msgspec.structs.replace(one, owed=marked(one.owed)) for one in cursor.backfills)
    return needed(
        msgspec.structs.replace(
            cursor,
            missed=marked(cursor.missed),
            waiting=marked(cursor.waiting),
            backfills=tuple(backfills),
            earlier={**cursor.earlier, number: timing},
        )
    )


def needed(cursor: Cursor) -> Cursor:
    """A cursor without the earlier grids of which nothing is owed any more."""
    if not cursor.earlier:
        return cursor
    used = {owed.grid for owed in stretches(cursor)}
    kept = {number: timing for number, timing in cursor.earlier.items() if number in used}
    return cursor if len(kept) == len(cursor.earlier) else msgspec.structs.replace(cursor, earlier=kept)
