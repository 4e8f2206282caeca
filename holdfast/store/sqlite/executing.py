"""Executes statements whose values may be large.

A prepared statement is kept for the next time, with a copy of the values that it was executed with: after one callback of 25 MiB a server
would hold them until the next one. So a statement that had a large value is not kept. Knows no statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import apsw

LARGE_BYTES: Final = 1024 * 1024
_SIZED: Final = frozenset({bytes, str})


def execute_all(cursor: apsw.Cursor, statement: str, rows: Sequence[Sequence[Any]]) -> None:
    if len(rows) == 1:
        cursor.execute(statement, rows[0], can_cache=not _is_large(rows[0]))
    else:
        cursor.executemany(statement, rows, can_cache=not any(map(_is_large, rows)))


def execute(db: apsw.Connection, statement: str, values: Sequence[Any]) -> apsw.Cursor:
    return db.execute(statement, values, can_cache=not _is_large(values))


def _is_large(values: Iterable[Any]) -> bool:
    return any(type(value) in _SIZED and len(value) > LARGE_BYTES for value in values)
