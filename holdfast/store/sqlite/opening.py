"""Opens a SQLite file to read it. Checks that it is a database of this release, and that its WAL is not missing."""

from __future__ import annotations

import os
from typing import Final

import apsw
import msgspec

from holdfast.errors import (
    DatabaseMoved,
    NotFound,
    SchemaTooNew,
    SchemaTooOld,
    StoreDamaged,
    StoreUnavailable,
)
from holdfast.store.base import Acknowledged
from holdfast.store.files import NOT_REGULAR, in_the_way, is_regular, log_of
from holdfast.store.promotion import Move
from holdfast.store.sqlite.asking import Asking
from holdfast.store.sqlite.feed import RowNumber
from holdfast.store.sqlite.mark import lost, read_mark
from holdfast.store.sqlite.place import header_of, is_half_made
from holdfast.store.statements import migrations

STATEMENTS_KEPT: Final = (
    128  # prepared statements; apsw evicts the least recently used, and searches all of them at each use
)
BUSY_MS: Final = 5_000  # how long opening waits for another writer
MAGIC: Final = b"SQLite format 3\0"
LOGS_AT: Final = (
    18  # offset in the database header: whether the file uses a WAL, or a rollback journal as a backup does
)
HAS_NO_LOG: Final = 1


class Opening(Asking):
    server_key: bytes = b""

    def _connect(self, access: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) -> apsw.Connection:
        db = apsw.Connection(
            self.path, flags=access | apsw.SQLITE_OPEN_URI, statementcachesize=STATEMENTS_KEPT
        )
        db.set_busy_timeout(BUSY_MS)
        db.config(
            apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1
        )  # else SQLite plans many statements again for each value
        db.pragma("trusted_schema", False)
        db.pragma("foreign_keys", True)
        return db

    async def open_to_read(self, *, any_release: bool = False) -> None:
        """Read the file while another process may write to it: nothing is locked, migrated or changed.

        A file of an older release lacks some tables; with `any_release` it may only be copied.
        """
        self.open_file_to_read(any_release=any_release)

    def open_file_to_read(self, *, any_release: bool = False) -> None:
        """Open the file to read it, without an event loop."""
        if not os.path.exists(self.path):
            raise NotFound(f"there is no database {self.path}; holdfast run makes it, --db names another")
        try:
            self._recognise()
            self._read_with(self._connect(apsw.SQLITE_OPEN_READONLY))
            self._refuse_file_without_log(self._read)
            found, newest = self._schema(self._read), migrations("sqlite")[-1][0]
            if found == newest:
                self._read_server_key()
            if not any_release:
                self._refuse_moved(self._read)
        except apsw.Error as error:
            raise StoreUnavailable(f"{self.path} cannot be read as a database: {error}") from error
        if found < newest and not any_release:
            why = lost(
                self.path, self.acknowledged(), *self._reached()
            )  # the WAL with the migrations may be missing
            self._read.close()
            if why:
                raise StoreDamaged(why)
            raise SchemaTooOld(
                f"{self.path} was written by an older release (schema {found}, this one needs {newest}); "
                "holdfast run brings it up to date"
            )

    def _read_server_key(self) -> None:
        """Read the key that seals the cursors of this server. A file without a key can still be examined."""
        key = self._value(self._read, "read_server_key")
        self.server_key = key if isinstance(key, bytes) else b""

    def _recognise(self) -> None:
        """Refuse a file that is not a database, or that has the WAL of another database beside it, before anything is changed."""
        if not is_regular(self._file):
            raise StoreUnavailable(NOT_REGULAR.format(path=self.path))
        if obstacle := in_the_way(os.path.realpath(self._file)):
            raise StoreUnavailable(obstacle)
        header = header_of(self._file) if os.path.exists(self._file) else b""
        if header and not header.startswith(MAGIC) and not is_half_made(self._file):
            raise StoreUnavailable(
                f"{self.path} cannot be read as a database: it is something else; give another file with --db"
            )
        if not (log_file := log_of(self._file)):
            return
        if not header:  # SQLite would delete the WAL and the commits in it
            raise StoreUnavailable(
                f"{self.path} is not there, but its log {log_file} is, with commits in it. Put the database back beside it; "
                "to start with a new database, move the log elsewhere first"
            )
        if header[LOGS_AT] == HAS_NO_LOG:  # SQLite would write the WAL into the file nevertheless
            raise StoreUnavailable(
                f"{self.path} is a backup, and {log_file} is the log of the database that was here before. To use the "
                f"backup, move the log and {self.path}-shm elsewhere first"
            )

    def _refuse_file_without_log(self, db: apsw.Connection) -> None:
        """Refuse a database that was moved or linked without its WAL: it lacks the last commits."""
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").get:
            return
        former, name = db.execute(self._sql["read_place_name"]).get, db.filename
        if former in (None, name) or (os.path.exists(former) and not os.path.samefile(former, name)):
            return
        if log_file := log_of(former):
            db.close()
            raise StoreUnavailable(
                f"{name} was last used as {former}, and its log {log_file} has commits in it. Use it by that name, or move "
                f"the log to {name}-wal; to give up these commits, move the log elsewhere"
            )

    def _refuse_moved(self, db: apsw.Connection) -> None:
        """Refuse a database whose contents are on a server: driving its runs here too would do their work twice."""
        if (move := self._move(db)) is not None:
            db.close()
            raise DatabaseMoved(move.told(self.path))

    def _move(self, db: apsw.Connection) -> Move | None:
        if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").get:
            return None
        text = self._value(db, "read_move")
        return None if text is None else msgspec.json.decode(text, type=Move)

    def _schema(self, db: apsw.Connection) -> int:
        """Return the number of the last migration applied to the file. Raise if this release cannot use the file."""
        known = bool(db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").get)
        if not known and db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get:
            raise StoreUnavailable(
                f"{self.path} is the database of another program; give Holdfast a file of its own"
            )
        done = self._value(db, "schema_version") if known else 0
        if not isinstance(done, int):
            raise StoreUnavailable(
                f"{self.path} does not say which schema it has: it is damaged, or a database of another program; restore a "
                "backup, or give another file with --db"
            )
        newest = migrations("sqlite")[-1][0]
        if done > newest:
            raise SchemaTooNew(
                f"{self.path} was written by a newer release (schema {done}, this one knows {newest}); upgrade holdfast"
            )
        return done

    def _reached(self) -> tuple[RowNumber, int]:
        """The last position of the journal, and how often the file was opened. A file whose first commits are lost has neither."""
        has_tables = (
            self._read.execute("SELECT count(*) FROM sqlite_schema WHERE name IN ('journal', 'meta')").get
            == 2
        )
        if not has_tables:
            return RowNumber(0), 0
        return RowNumber(int(self._value(self._read, "last_pos"))), int(
            self._value(self._read, "read_epoch") or 0
        )

    def acknowledged(self) -> Acknowledged | None:
        """The last acknowledged commit, as written beside the database; None if it is unknown."""
        marked = read_mark(self._file, self.server_key)
        return marked.acknowledged if marked is not None and marked.is_of_this_file else None
