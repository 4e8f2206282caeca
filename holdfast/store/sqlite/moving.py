"""A SQLite file whose contents are moved to a server: its rows as PostgreSQL has them, and the mark that it was moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import apsw
import msgspec

from holdfast.store.promotion import Heirloom, Move, Placing
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.statements import statements

# What is not a table of PostgreSQL too, or has another meaning there.
NOT_COPIED: Final = ("meta", "node")
# Columns that PostgreSQL has and SQLite has not, or that refer to a node.
EXPRESSIONS: Final = {
    ("run", "owner_epoch"): "CASE WHEN owner IS NOT NULL THEN :epoch END",
    ("run", "mail"): statements("sqlite")["unread_mail_of_run"],
    ("run", "slot"): "iif(slot = :own, :node, slot)",
    ("cursor", "slot"): "iif(slot = :own, :node, slot)",
    ("ledger", "slot"): "iif(slot = :own, :node, slot)",
    ("assignment", "lease_ms"): ":lease_ms",
    ("tally", "node"): "''",
    ("pulse", "node"): "''",
}


class MovingFile(SqliteStore):
    def _refuse_moved(self, db: apsw.Connection) -> None:
        """This is who moves it."""

    def move(self) -> Move | None:
        return self._move(self._write)

    def note_move(self, move: Move | None) -> None:
        """When this returns, no engine can open the file, or may again if there is no move."""
        with self._write:
            if move is None:
                self._write.execute(self._sql["forget_move"])
            else:
                self._write.execute(self._sql["set_move"], (msgspec.json.encode(move).decode(),))

    def heirloom(self) -> Heirloom:
        return Heirloom(self.server_key, self._value(self._write, "read_deaths"), self._lane)

    def tables(self) -> list[str]:
        """Those that are copied."""
        found = self._write.execute(self._sql["tables_to_move"])
        return [name for (name,) in found if name not in NOT_COPIED]

    def count(self, table: str) -> int:
        return int(self._write.execute(self._sql["count_table"].format(table=table)).get)

    def journal_bytes(self) -> int:
        return int(self._value(self._write, "journal_bytes"))

    def rows(
        self, table: str, columns: Sequence[str], after: int, placing: Placing
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a table in the order of its primary key, without the first `after`."""
        order = self._value(self._write, "order_of_table", table)
        values = ", ".join(EXPRESSIONS.get((table, name), f'"{name}"') for name in columns)
        statement = self._sql["rows_of_table"].format(values=values, table=table, order=order)
        given = {**placing._asdict(), "own": self.node, "after": after}
        with closing(self._connect(apsw.SQLITE_OPEN_READONLY)) as db:
            yield from db.execute(statement, given)
