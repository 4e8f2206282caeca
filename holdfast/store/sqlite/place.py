"""Where a database lies: are the files that SQLite has open still the ones under their names, and as SQLite left them?

SQLite writes to the files that it has open. When they are moved, replaced or removed, its commits still succeed, but the
next process that opens the database by its name does not find them. So the files are checked around every commit:

    before   are database, log (the WAL) and the index of the log still there, and is the log as long as it was?
    after    are database and log the same files (device and inode), is the database as SQLite left it (time and size),
             and is the header of the log the one that we know or its successor?

A commit that fails the first check changes nothing, so its runs can go on when the files are back. Python's stat costs as
much as all the rest of a check together, so the first one asks SQLite instead; before a checkpoint everything is checked.
Where the name leads over a symbolic link, the file that it leads to is checked too.

Knows files and the header of a log. Does not know what a batch contains.
"""

from __future__ import annotations

import ctypes
import logging
import os
import struct
from typing import Final

import apsw

from holdfast.errors import StoreDamaged, StoreGone

log = logging.getLogger("holdfast")

HEADER_BYTES: Final = 32  # the WAL header: magic, version, page size, sequence, two salts, two checksums
FRAME_BYTES: Final = 24  # before each page in it
JOURNAL_MAGIC: Final = bytes.fromhex("d9d505f920a163d7")
FILE_HEADER_BYTES: Final = 100  # of a database
LOG_MAGIC: Final = (0x377F0682, 0x377F0683)
RESTARTS_MAX: Final = 1_000  # restarts of the WAL by other programs between two checks

Seen = tuple[int, int]  # device, inode


class Place:
    """The files of the connection that writes. To be called by the thread that writes; `problem` by any."""

    def __init__(self, db: apsw.Connection, name: str = "") -> None:
        """`name` is what the operator calls the database, where that may be a link."""
        self._db = db
        self.path, self.log_path = db.filename, db.filename_wal
        self._file, self._log = _seen(self.path), _seen(self.log_path)
        self._index_path = f"{self.path}-shm"
        self._rest = [(self._index_path, _seen(self._index_path))]
        self._is_linked = bool(name) and os.path.abspath(name) != self.path
        if self._is_linked:
            self._rest.append((os.path.abspath(name), self._file))
        self._has_moved = ctypes.c_int()
        self._has_moved_at = ctypes.addressof(self._has_moved)
        self.was_touched = (
            False  # another program may have written to the database: its pages are to be checked
        )
        self._frame = int(db.pragma("page_size")) + FRAME_BYTES
        self._log_fd = os.open(self.log_path, os.O_RDONLY | os.O_CLOEXEC)  # SQLite has no lock on this file
        self._header = os.pread(self._log_fd, HEADER_BYTES, 0)
        self._pages = self._pages_before = 0  # in the log, now and before the last commit
        self._moved = 0  # pages of the WAL that are in the database too
        self._log_size = 0
        self._stamp: tuple[int, int] | None = None  # time and size of the database as SQLite left it
        self._file_header = b""
        self._damage = ""  # why nothing can be written until the next start
        self._is_gone = self._is_rescued = False
        self.checkpointed()

    def close(self) -> None:
        """To be called before the connection is closed, which would move the log into whatever file is there now."""
        if self._log_fd < 0:
            return
        if self.problem(self._db) is not None:
            self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        os.close(self._log_fd)
        self._log_fd = -1

    # ------------------------------------------------------------------------------------------- what SQLite did

    def logged(self, pages: int) -> None:
        """A commit has written to the log, which has this many pages now."""
        self._pages_before, self._pages = self._pages, pages

    def checkpointed(self) -> None:
        """The log was moved into the database, as far as readers allowed."""
        self._pages, self._moved = _progress(self._db)
        self._log_size = os.fstat(self._log_fd).st_size
        self._remember_file()

    def _remember_file(self) -> None:
        now = os.stat(self.path)
        self._stamp, self._file_header = (now.st_mtime_ns, now.st_size), header_of(self.path)

    # ------------------------------------------------------------------------------------------------ the checks

    def check(self) -> None:
        """Raise StoreGone unless the next process that opens the database by its name finds what is committed now."""
        if self._damage:
            raise StoreDamaged(self._damage)
        for path, ours in self._rest:
            if _seen_if_there(path) != ours:
                raise self._gone()
        self._check_files()

    def check_before_commit(self) -> None:
        """The same for the common case, at a fraction of the cost."""
        self._db.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, self._has_moved_at)
        is_suspicious = (
            self._damage
            or self._is_gone
            or self._has_moved.value
            or self._is_linked
            or not os.access(self.log_path, os.F_OK)
            or not os.access(self._index_path, os.F_OK)
            or os.lseek(self._log_fd, 0, os.SEEK_END) < self._log_size
        )
        if is_suspicious:
            self.check()

    def check_after_commit(self) -> None:
        """The same for a commit that may be acknowledged if this passes."""
        header = os.pread(self._log_fd, HEADER_BYTES, 0)
        if header != self._header and self._pages:  # an empty log has none
            self._log_began_again(header)
        if self._is_linked:
            self.check()
        else:
            self._check_files()
        self._log_size = max(self._log_size, HEADER_BYTES + self._pages * self._frame)

    def _check_files(self) -> None:
        try:
            file, log_file = os.stat(self.path), os.stat(self.log_path)
        except OSError:
            raise self._gone() from None
        if (file.st_dev, file.st_ino) != self._file or (log_file.st_dev, log_file.st_ino) != self._log:
            raise self._gone()
        if log_file.st_size < self._log_size:
            self._log_shrank(log_file.st_size)
        if (file.st_mtime_ns, file.st_size) != self._stamp:
            self._file_changed(file)
        self._is_gone = self._is_rescued = False

    def problem(self, db: apsw.Connection) -> StoreGone | None:
        """What is wrong with the files, without changing anything; `db` is the caller's connection."""
        if self._damage:
            return StoreDamaged(self._damage)
        if wrong := self._absent():
            return StoreGone(wrong)
        size = os.fstat(self._log_fd).st_size
        is_short = size < self._log_size and size < self._needed(_progress(db)[0])
        return StoreDamaged(self._of_short_log(size)) if is_short else None

    def condemn(self, why: str) -> StoreDamaged:
        """Write nothing more to these files."""
        if not self._damage:
            self._damage = why
            log.error("%s", why)
        return StoreDamaged(self._damage)

    def _absent(self) -> str:
        restart = "restart the server"
        for path, ours in ((self.path, self._file), (self.log_path, self._log), *self._rest):
            if (found := _seen_if_there(path)) == ours:
                continue
            what = "is not there any more" if found is None else "was replaced by another file"
            back = (
                f"{path} {what}, while this process had it open; nothing is accepted now. Move the file back"
            )
            if ours == self._file:
                return f"{back}, or {restart} to use the file that is there then"
            return f"{back}, or {restart}: all that was acknowledged is in {self.path}"
        return ""

    # ------------------------------------------------------------------------------------ when they are not as left

    def _gone(self) -> StoreGone:
        self._is_gone = True
        wrong = self._absent() or f"{self.path} cannot be read; nothing is accepted now"
        if not self._is_rescued:
            log.error("%s", wrong)
            self._rescue()
        return StoreGone(wrong)

    def _rescue(self) -> None:
        """Move what was acknowledged from the log into the database that is open, wherever its name is now.

        A log that is still here must not be found beside another database: SQLite would write it into that one.
        """
        is_here = os.path.exists(self.log_path) and _seen(self.log_path) == self._log
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if is_here else apsw.SQLITE_CHECKPOINT_FULL
        try:
            self._db.wal_checkpoint(mode=mode)
            self._pages, self._moved = _progress(self._db)
        except apsw.Error as error:
            if is_failed_sync(error):
                raise
            log.error("the log of %s cannot be moved into it, and is tried again: %s", self.path, error)
            return
        self._is_rescued = self._pages == self._moved
        self._log_size, self._stamp = os.fstat(self._log_fd).st_size, None

    def _needed(self, pages: int) -> int:
        return HEADER_BYTES + pages * self._frame if pages else 0

    def _log_shrank(self, size: int) -> None:
        """Another program may have moved it into the database and cut it, as SQLite allows; else pages are lost."""
        if size < self._needed(_progress(self._db)[0]):
            raise self.condemn(self._of_short_log(size))
        self.checkpointed()
        self._header = b""  # the next one has no likeness to it

    def _of_short_log(self, size: int) -> str:
        return (
            f"{self.log_path} was cut to {size:,} bytes while this process had it open, so commits of the last moments "
            "may be lost. Stop the server, keep a copy of the files, run holdfast doctor, and restore a backup if it "
            "reports lost commits"
        )

    def _log_began_again(self, header: bytes) -> None:
        """SQLite begins a log again when all of it is in the database: the next number, and the next salt."""
        if not _is_next(self._header, header):
            raise self.condemn(
                f"{self.log_path} was overwritten while this process had it open, so commits of the last moments may be "
                "lost. Stop the server, keep a copy of the files, run holdfast doctor, and restore a backup if it "
                "reports lost commits"
            )
        self._header = header
        if self._moved < self._pages_before:
            self._stamp = None  # another program moved the rest, and so wrote to the database
        self._moved = 0

    def _file_changed(self, now: os.stat_result) -> None:
        """Only a checkpoint may write to the database. One by another program shows in SQLite's count."""
        pages, moved = _progress(self._db)
        is_expected = self._stamp is None or moved > self._moved or pages < self._pages
        is_touched = self._stamp is not None and now.st_size == self._stamp[1]
        if is_expected or is_touched and header_of(self.path) == self._file_header:
            self.was_touched = self.was_touched or not is_expected
            self._pages, self._moved = pages, moved
            self._remember_file()
            return
        raise self.condemn(
            f"{self.path} was overwritten while this process had it open; nothing is accepted now. Stop the server. To "
            f"use what is in the file now, remove {self.log_path} and {self.path}-shm before you start it again; else "
            "restore a backup"
        )


def is_failed_sync(error: BaseException) -> bool:
    return getattr(error, "extendedresult", 0) in (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)


def _seen(path: str) -> Seen:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _seen_if_there(path: str) -> Seen | None:
    try:
        return _seen(path)
    except OSError:
        return None


def _progress(db: apsw.Connection) -> tuple[int, int]:
    """Pages in the log, and how many of them are in the database too, by SQLite's own count."""
    pages, moved = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    return max(pages, 0), max(moved, 0)


def header_of(path: str) -> bytes:
    """Read through SQLite: to close the file here would free the locks that SQLite has on it."""
    file = apsw.VFSFile("", path, [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        return bytes(file.xRead(FILE_HEADER_BYTES, 0))
    finally:
        file.xClose()


def is_half_made(path: str) -> bool:
    """Did a power cut interrupt the making of a database? SQLite then rolls it back to an empty file by its journal."""
    journal = f"{path}-journal"
    if not os.path.exists(journal):
        return False
    with open(journal, "rb") as file:
        return file.read(len(JOURNAL_MAGIC)) == JOURNAL_MAGIC


def _is_next(former: bytes, header: bytes) -> bool:
    magic, _, _, number, salt, *_ = _words(header)
    *_, number_before, salt_before = _words(former)[:5]
    restarts = (number - number_before) % 2**32
    is_successor = restarts <= RESTARTS_MAX and (salt - salt_before) % 2**32 == restarts
    return magic in LOG_MAGIC and (not former or is_successor)


def _words(header: bytes) -> tuple[int, ...]:
    return struct.unpack(">8I", header.ljust(HEADER_BYTES, b"\0"))
