"""The file `<database>.mark`: up to which position commits of a database were acknowledged.

Database and WAL do not show that commits at the end of the WAL are missing: SQLite ignores incomplete ones. The mark
is written after each commit that appends to a journal, without a sync, so it is never ahead of what was synced. Holds the
number of the last row of the journal and the inode of the database, both as text.
"""

from __future__ import annotations

import os
from typing import Final, NamedTuple

from holdfast.store.feed import Cursor
from holdfast.store.files import FILE_MODE
from holdfast.store.sqlite.feed import RowNumber

DIGITS: Final = 20


class Marked(NamedTuple):
    upto: RowNumber
    inode: int


class Mark:
    def __init__(self, database: str, pos: int) -> None:
        self._fd = os.open(_path(database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._pos = pos
        inode = os.stat(database).st_ino
        os.pwrite(self._fd, b"%0*d %0*d\n" % (DIGITS, pos, DIGITS, inode), 0)

    def note(self, pos: int) -> None:
        """Everything up to this position is on disk."""
        if pos > self._pos:
            self._pos = pos
            os.pwrite(self._fd, b"%0*d" % (DIGITS, pos), 0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_mark(database: str) -> Marked | None:
    """Read the mark of a database. None if it cannot be read, or belongs to another file."""
    try:
        with open(_path(database), "rb") as file:
            pos, inode = map(int, file.read(2 * DIGITS + 1).split())
        marked = Marked(RowNumber(pos), inode)
        return marked if marked.inode == os.stat(database).st_ino else None
    except (OSError, ValueError, TypeError):
        return None


def forget_mark(database: str) -> None:
    """Delete the mark, so that the current content of the database counts as complete."""
    if os.path.exists(_path(database)):
        os.unlink(_path(database))


def lost(database: str, acknowledged: Cursor | None, end: Cursor) -> str:
    """Describe the acknowledged commits that the journal lacks; empty if it has all of them."""
    if acknowledged is None or acknowledged <= end:
        return ""
    return (
        f"commits are missing at the end of {database}: its journal ends at position {end}, but was acknowledged up to "
        f"{acknowledged}. Its WAL was removed, cut or damaged, or an older copy was put in its place. Stop the server and "
        "restore the newest files or backup. If you do not have them, or meant to go back, accept the loss: "
        "holdfast doctor --accept-loss"
    )


def _path(database: str) -> str:
    return f"{database}.mark"
