"""The file `<database>.mark`: up to which position commits of a database were acknowledged.

Database and WAL do not show that commits at the end of the WAL are missing: SQLite ignores incomplete ones. The mark
is written after each commit that appends to a journal, without a sync, so it is never ahead of what was synced. It stays when
the database is closed, so that an older copy in its place is noticed. Holds, as text: the number of the last row of the
journal, the inode of the database, how often the database was opened, and a hash of its server key.
"""

from __future__ import annotations

import hashlib
import os
from typing import Final, NamedTuple

from holdfast.store.base import Acknowledged
from holdfast.store.feed import Cursor
from holdfast.store.files import FILE_MODE
from holdfast.store.sqlite.feed import RowNumber

DIGITS: Final = 20
BYTES_MAX: Final = 200


class Marked(NamedTuple):
    acknowledged: Acknowledged
    pos: int  # the same as a number
    is_of_this_file: bool  # a copy has another inode


class Mark:
    def __init__(self, database: str, server_key: bytes, pos: int, epoch: int) -> None:
        self._fd = os.open(_path(database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        self._pos = pos
        numbers = b" ".join(b"%0*d" % (DIGITS, number) for number in (pos, os.stat(database).st_ino, epoch))
        os.pwrite(self._fd, b"%b %b\n" % (numbers, _identity(server_key).encode()), 0)

    def note(self, pos: int) -> None:
        """Everything up to this position is on disk."""
        if pos > self._pos:
            self._pos = pos
            os.pwrite(self._fd, b"%0*d" % (DIGITS, pos), 0)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_mark(database: str, server_key: bytes = b"") -> Marked | None:
    """Read the mark of a database. None if it cannot be read, or belongs to a database with another server key."""
    try:
        with open(_path(database), "rb") as file:
            pos, inode, *rest = file.read(BYTES_MAX).decode().split()
        epoch, identity = rest or ("0", "")  # marks of earlier releases have neither
        if identity and server_key and identity != _identity(server_key):
            return None
        acknowledged = Acknowledged(RowNumber(int(pos)), int(epoch))
        return Marked(acknowledged, int(pos), int(inode) == os.stat(database).st_ino)
    except (OSError, ValueError, TypeError):
        return None


def forget_mark(database: str) -> None:
    """Delete the mark, so that the current content of the database counts as complete."""
    if os.path.exists(_path(database)):
        os.unlink(_path(database))


def lost(database: str, acknowledged: Acknowledged | None, end: Cursor, epoch: int) -> str:
    """Describe the acknowledged commits that the database lacks; empty if it has all of them. `epoch`: how often it was opened."""
    if acknowledged is None or acknowledged.upto <= end and acknowledged.epoch <= epoch:
        return ""
    found = (
        f"its journal ends at position {end}, but was acknowledged up to {acknowledged.upto}"
        if acknowledged.upto > end
        else f"it was opened {epoch} times, but {acknowledged.epoch} times by the record beside it"
    )
    return (
        f"commits are missing at the end of {database}: {found}. Its WAL was removed, cut or damaged, or an older copy was "
        "put in its place. Stop the server and restore the newest files or backup. If you do not have them, or meant to go "
        "back, accept the loss: holdfast doctor --accept-loss"
    )


def behind(database: str, acknowledged: Acknowledged, end: Cursor) -> str:
    """Describe how far a restored copy is behind the database that was in its place; empty if it is not."""
    if acknowledged.upto <= end:
        return ""
    return (
        f"{database} ends at position {end}; the database that was in its place before had commits up to "
        f"{acknowledged.upto}. Later commits are not in it; if you did not mean to go back, stop the server and put the newest files back"
    )


def _identity(server_key: bytes) -> str:
    return hashlib.sha256(b"holdfast mark" + server_key).hexdigest()[:16]


def _path(database: str) -> str:
    return f"{database}.mark"
