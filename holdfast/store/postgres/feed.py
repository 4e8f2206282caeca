"""The journal of all runs in the order of commits, on PostgreSQL.

A number of a sequence is given out before its transaction commits, so the order of numbers is not the order of commits. A
cursor is therefore the id of a transaction and a number, and a row is shown once no older transaction can still commit.
"""

from __future__ import annotations

import re
from typing import Final

from holdfast.store.feed import Committed, Cursor, Stretch
from holdfast.store.postgres.asking import Asking

_PLACE: Final = re.compile(r"0|([0-9]{1,18})-([0-9]{1,18})")


class TransactionPlace(Cursor, frozen=True, order=True):
    """The place after a row: its transaction, and its number."""

    xid: int
    pos: int

    def __str__(self) -> str:
        return f"{self.xid}-{self.pos}" if self.xid else "0"


class FeedReads(Asking):
    def cursor(self, text: str) -> Cursor:
        """Read the text of a cursor. Raise ValueError if it is not one."""
        found = _PLACE.fullmatch(text)
        if found is None:
            raise ValueError(f"a position is two numbers with a dash between them, not {text[:50]!r}")
        return TransactionPlace(int(found[1] or 0), int(found[2] or 0))

    async def feed(self, tenant: str, after: Cursor, limit: int) -> Stretch:
        """The rows of a tenant among the next `limit` rows of all tenants after a cursor."""
        xid, pos = _place(after)
        found = await self._ask("feed", str(xid), pos, tenant, limit)
        if not found:
            return Stretch([], after)
        rows = [
            Committed(TransactionPlace(xid, pos - 1), TransactionPlace(xid, pos), *row[2:])
            for xid, pos, row in ((row[0], row[1], row) for row in found)
            if row[-1] is not None
        ]
        return Stretch(rows, TransactionPlace(*found[-1][:2]))

    async def feed_end(self) -> Cursor:
        """The place after the last row that is committed, and that no row can come before any more."""
        return TransactionPlace(*(await self._first("feed_end") or (0, 0)))

    async def rows_after(self, cursor: Cursor) -> int:
        """About how many rows come after a cursor."""
        xid, pos = _place(cursor)
        return int(await self._value("feed_rest", str(xid), pos))


def _place(cursor: Cursor) -> tuple[int, int]:
    assert isinstance(cursor, TransactionPlace), f"{cursor!r} is a position of another store"
    return cursor.xid, cursor.pos
