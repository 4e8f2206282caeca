"""Cursors and the ledger of schedules within one commit, on SQLite. Knows no rule of schedules.

A firing that another process has made, or that repeats one, changes nothing of what it should: the statements count their
changes, so a commit learns that there is one without asking beforehand. Which one it is, is asked once the commit is rolled
back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import apsw

from holdfast.store.schedule_records import Firing, LedgerKey

PutMany = Callable[[str, list[Any]], None]


class LostFirings(Exception):
    """Some firings of a commit are lost; the commit must be rolled back."""


class Firings:
    def __init__(self, writer: apsw.Cursor, sql: dict[str, str], put_many: PutMany) -> None:
        self._writer, self._sql, self._put_many = writer, sql, put_many

    def put(self, firings: Sequence[Firing]) -> None:
        moved = [(*one.cursor, one.seen) for one in firings if one.cursor and one.seen is not None]
        self._put("move_cursor", moved)
        for cursor in [one.cursor for one in firings if one.cursor and one.seen is None]:
            self._put("add_cursor", [cursor])
        for key in [one.takes for one in firings if one.takes]:
            self._put("take_buffered", [key])
        self._put("add_entry", [entry for one in firings for entry in one.entries])

    def _put(self, name: str, rows: list[Any]) -> None:
        before = self._writer.connection.total_changes()
        if name in ("move_cursor", "add_entry"):
            self._put_many(name, rows)
        else:
            self._writer.executemany(self._sql[name], rows)
        if self._writer.connection.total_changes() - before != len(rows):
            raise LostFirings

    def lost(self, firings: Iterable[Firing]) -> list[Firing]:
        """Those that cannot be written, and of those that write the same all but the first."""
        written: set[tuple[str, ...]] = set()
        lost = []
        for one in firings:
            keys = {(*entry.key, "") for entry in one.entries} | ({one.cursor[:3]} if one.cursor else set())
            if keys & written or not self._is_possible(one):
                lost.append(one)
            else:
                written |= keys
        return lost

    def _is_possible(self, one: Firing) -> bool:
        if one.cursor is not None and self._value("revision_of", one.cursor[:3]) != one.seen:
            return False
        if one.takes is not None and self._outcome(one.takes) != "buffered":
            return False
        settled = (self._outcome(entry.key) for entry in one.entries if entry.key != one.takes)
        return not any(outcome in ("fired", "buffered") for outcome in settled)

    def _outcome(self, key: LedgerKey) -> str | None:
        found: str | None = self._value("outcome_of", key)
        return found

    def _value(self, name: str, args: tuple[Any, ...]) -> Any:
        return self._writer.execute(self._sql[name], args).get
