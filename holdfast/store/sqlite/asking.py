"""Queries of a SQLite file, and what its errors mean. The reads of each kind (reads.py and its neighbours) are built on it.

All reads within one turn of the event loop see one snapshot: it begins with the first query of the turn and ends with the
turn, or before a commit of ours. Beginning one costs more than most queries, and SQLite drops its page cache when another
connection has written to the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any, Final, TypeVar

import apsw
import msgspec

from holdfast.errors import StoreDamaged, StoreUnavailable
from holdfast.store.files import file_of
from holdfast.store.read_errors import translating
from holdfast.store.statements import statements

MEND: Final = "Stop the server, keep a copy of the files, run holdfast doctor, and restore a backup"

APART_BYTES: Final = 1024 * 1024  # an answer over this is read in a thread

# Errors that may be temporary. None of them is caused by a batch or a run.
AWAY: Final = (
    apsw.FullError,
    apsw.IOError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.ProtocolError,
    apsw.CantOpenError,
    apsw.ReadOnlyError,
    apsw.PermissionsError,
    apsw.InterruptError,
    apsw.NoMemError,
    apsw.CorruptError,
    apsw.NotADBError,
    MemoryError,
    OSError,
)

Record = TypeVar("Record", bound=msgspec.Struct)


class Asking:
    def __init__(self, path: str) -> None:
        self.path, self.epoch, self.node = path, 0, "local"
        self._file = file_of(path)
        self._sql = statements("sqlite")
        self._read: apsw.Connection
        self._reader: apsw.Cursor
        self._ending: asyncio.Handle | None = None  # ends the snapshot at the end of this turn of the loop

    def _read_with(self, db: apsw.Connection) -> None:
        self._read, self._reader = db, db.cursor()

    def _value(self, db: apsw.Connection, name: str, *args: Any) -> Any:
        return db.execute(self._sql[name], args).get

    def condemn(self, why: str, db: apsw.Connection | None = None) -> StoreDamaged:
        return StoreDamaged(why)

    def _meaning_of(
        self, error: BaseException, what: str, db: apsw.Connection | None = None
    ) -> BaseException:
        """What an SQLite error means: the file is damaged, or unavailable for now; any other is a bug in Holdfast."""
        if isinstance(error, apsw.CorruptError | apsw.NotADBError) or _is_cut(error):
            return self.condemn(f"{self.path} is damaged: {error}. {MEND}", db)
        if isinstance(error, apsw.ConnectionClosedError):  # a request that outlived the engine
            return StoreUnavailable(f"{self.path} is closed: the engine has stopped")
        if isinstance(error, AWAY):
            return StoreUnavailable(f"{self.path} cannot be {what} now: {error}")
        return error

    # ------------------------------------------------------------------------------------------------- queries

    def _ask(self, name: str, args: Any = ()) -> apsw.Cursor:
        """Return the rows, which must be read before the next query: all queries share one cursor, because a new one costs as much as
        a short query."""
        if self._ending is None:
            self._begin_look()
        return self._reader.execute(self._sql[name], args)

    def _ask_all(self, name: str) -> apsw.Cursor:
        """Return rows that can be read one by one with other queries in between."""
        if self._ending is None:
            self._begin_look()
        return self._read.execute(self._sql[name])

    def _one(self, name: str, kind: type[Record], *args: Any) -> Record | None:
        row = next(iter(self._ask(name, args)), None)
        return None if row is None else kind(*row)

    async def _first(self, name: str, args: Any) -> Any:
        """Return the first row, which may be large. Reading 25 MiB takes up to 100 ms, so a large row is read in a thread with its own
        connection. If that fails, the loop reads the row, and raises if it cannot."""
        if (self._ask(f"{name}_bytes", args).get or 0) > APART_BYTES:
            with suppress(apsw.Error, RuntimeError):  # or no thread can be started
                read = asyncio.get_running_loop().run_in_executor(None, self._first_apart, name, args)
                if (found := await read) is not None:
                    return found
        return next(iter(self._ask(name, args)), None)

    def _first_apart(self, name: str, args: Any) -> Any:
        access = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        with closing(apsw.Connection(self.path, flags=access)) as db:
            return next(iter(db.execute(self._sql[name], args)), None)

    def _begin_look(self) -> None:
        """Begin the snapshot of this turn of the loop, unless `still` has one open or no loop runs that would end it."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._read.get_autocommit():
            self._reader.execute("BEGIN")
            self._ending = loop.call_soon(self._end_look)

    def _end_look(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
            if not self._read.get_autocommit():  # a failed query may have ended the transaction
                self._reader.execute("ROLLBACK")

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """All reads inside this context see one snapshot, whatever is committed meanwhile."""
        self._end_look()
        self._read.execute("BEGIN")
        try:
            yield
        except apsw.Error as error:
            raise StoreUnavailable(
                f"{self.path} cannot be read: {error}; run `holdfast doctor` for details"
            ) from error
        finally:
            self._read.execute("ROLLBACK")


# Makes every query of a class raise StoreUnavailable if SQLite reports that the file cannot be read.
raises_store_errors: Final = translating(apsw.Error, lambda asking, error: asking._meaning_of(error, "read"))


def _is_cut(error: BaseException) -> bool:
    """Return whether the file is shorter than SQLite expects: pages are missing."""
    codes = (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)
    return getattr(error, "extendedresult", 0) in codes
