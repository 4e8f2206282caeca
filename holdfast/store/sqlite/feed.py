"""The journal of all runs in the order of commits, on SQLite.

One connection writes, so the order of the rows of the table is the order of their commits: a cursor is the number of a row.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.store.feed import Committed, Cursor, Stretch
from holdfast.store.sqlite.asking import Asking

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class RowNumber(Cursor, frozen=True, order=True):
    """The place after a row of the journal."""

    pos: int

    def __str__(self) -> str:
        return str(self.pos)


class FeedReads(Asking):
    def cursor(self, text: str) -> Cursor:
        """Read the text of a cursor. Raise ValueError if it is not one."""
        if not _NUMBER.fullmatch(text):
            raise ValueError(f"a position is a number, not {text[:50]!r}")
        return RowNumber(int(text))

    async def feed(self, tenant: str, after: Cursor, limit: int) -> Stretch:
        """The rows of a tenant among the next `limit` rows of all tenants after a cursor."""
        begin = _pos(after)
        until: int | None = self._ask("feed_until", (begin, limit)).get
        if until is None:
            return Stretch([], after)
        rows = [
            Committed(RowNumber(pos - 1), RowNumber(pos), *row)
            for pos, *row in self._ask("committed", (begin, until, tenant))
        ]
        return Stretch(rows, RowNumber(until))

    async def feed_end(self) -> Cursor:
        """The place after the last row that is committed."""
        return self.feed_end_now()

    def feed_end_now(self) -> Cursor:
        return RowNumber(int(self._ask("last_pos").get))

    async def rows_after(self, cursor: Cursor) -> int:
        """About how many rows come after a cursor: rows of deleted runs are counted too."""
        return max(0, int(self._ask("last_pos").get) - _pos(cursor))


def _pos(cursor: Cursor) -> int:
    assert isinstance(cursor, RowNumber), f"{cursor!r} is a position of another store"
    return cursor.pos
