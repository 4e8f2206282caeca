"""Checks and copies of a SQLite file: what doctor, backup and the check after an unclean stop need."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import apsw

from holdfast.errors import StoreUnavailable
from holdfast.signing import new_key
from holdfast.store.feed import Cursor
from holdfast.store.files import create
from holdfast.store.records import RunRow
from holdfast.store.sqlite.asking import MEND
from holdfast.store.sqlite.mark import forget_mark, lost
from holdfast.store.sqlite.reads import SqliteReads
from holdfast.store.statements import schema
from holdfast.values import RunNo

NO_PLACE: Final = 0  # no file has this inode: a backup is a copy wherever it lies
OPERATIONS_PER_LOOK: Final = (
    10_000  # of SQLite's machine: some milliseconds until a check that is stopped ends
)


class SqliteUpkeep(SqliteReads):
    def check_file(self) -> list[str]:
        """What SQLite itself finds wrong with the file, page by page."""
        return _unsound(self._read)

    def missing_parts(self) -> list[str]:
        """What the file lacks of the schema of this release: tables, indexes, and what is said of the file as a whole."""
        with closing(apsw.Connection(":memory:")) as new:
            new.execute(schema("sqlite"))
            wanted = set(new.execute(self._sql["parts_of_schema"]))
        missing = [
            f"there is no {kind} {name!r}"
            for kind, name in sorted(wanted - set(self._ask("parts_of_schema")))
        ]
        if missing:
            return missing
        return [f"meta says nothing usable of {key!r}" for (key,) in self._ask("unusable_meta")]

    def definitions(self) -> Iterator[tuple[str, str, str, str | None]]:
        """Every definition: name, hash, text, and the hashes of those that it names."""
        yield from self._ask_all("every_definition")

    def every_schedule(self) -> Iterator[tuple[str, str, str, str | None]]:
        """Every schedule, with each of its cursors: tenant, id, definition, and how far it has come."""
        yield from self._ask_all("every_schedule")

    def checks(self) -> list[str]:
        """The names of the queries that find violated invariants."""
        return [name for name in self._sql if name.startswith("check_")]

    def check(self, name: str) -> list[str]:
        """What one of them finds, in words."""
        return [str(line) for (line,) in self._ask(name)]

    def newest(self, limit: int) -> list[RunRow]:
        """The newest runs of all tenants."""
        return self._rows("newest_of_all", limit)

    def open_runs(self) -> list[RunNo]:
        """Every run that has not finished."""
        return [no for (no,) in self._ask("open_runs")]

    def lost(self, acknowledged: Cursor | None) -> str:
        """What is wrong if commits up to a position were acknowledged; empty if nothing is."""
        return lost(self.path, acknowledged, self.feed_end_now())

    def accept_loss(self) -> None:
        """Take what the database has now for all that there was. The caller has the lock."""
        forget_mark(self._file)

    def file_check(self) -> FileCheck:
        return FileCheck(self.path)

    def blobs_named(self) -> Iterator[tuple[RunNo, str]]:
        """Journal rows that refer to large values: run, body."""
        yield from self._ask_all("rows_with_blobs")

    def artefacts_named(self) -> Iterator[tuple[str, str, int]]:
        """Artefacts that runs refer to: sha256, size."""
        yield from self._ask_all("artefacts_named")

    def has_blob(self, no: RunNo, sha256: str) -> bool:
        return bool(self._ask("has_blob", (no, sha256)).get)

    def blobs(self) -> Iterator[tuple[RunNo, str, bytes | str]]:
        """Every large value: run, sha256, text."""
        yield from self._ask_all("every_blob")

    def epoch_now(self) -> int:
        """The newest incarnation of an engine on this file."""
        return int(self._ask("read_epoch").get)

    def is_copied(self) -> bool:
        """Was this database last opened in another file?"""
        return self._ask("read_place").get not in (None, os.stat(self._file).st_ino)

    def schema(self) -> int:
        return self._schema(self._read)

    def copy_to(self, path: str, *, as_copy: bool = False) -> None:
        """The whole file as it is at one moment, into a new one, which is checked and on disk when this returns.

        With `as_copy`, what the original gave out to prove itself by is not good for the new one.
        """
        try:
            os.close(create(path))
            with closing(apsw.Connection(path)) as copy:
                with copy.backup("main", self._read, "main") as backup:
                    backup.step(-1)
                copy.pragma("journal_mode", "delete")  # a single file that can be copied
                copy.execute(self._sql["forget_place"])
                copy.execute(self._sql["set_place"], (NO_PLACE,))
                if as_copy:
                    self._renew(copy)
                wrong = _unsound(copy)
        except apsw.Error as error:
            why = str(error)
            if why == "not an error":  # what closing a copy says that could not be written
                why = "there is no room for it, or it cannot be written"
            raise StoreUnavailable(f"{self.path} cannot be copied to {path}: {why}") from error
        if wrong:
            raise StoreUnavailable(f"the copy is not sound: {'; '.join(wrong)}")

    def _renew(self, copy: apsw.Connection) -> None:
        with copy:
            copy.execute(self._sql["renew_server_key"], (new_key(),))
            copy.execute(self._sql["forget_place"])
            copy.execute(self._sql["free_assignments"])


class FileCheck:
    """A check of every page, on a connection and a thread of its own."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.has_begun = self._is_stopped = False

    def run(self) -> str:
        """What is wrong with the first pages that are damaged; empty if none is, or if it was stopped."""
        self.has_begun = True
        try:
            with closing(apsw.Connection(self._path, flags=apsw.SQLITE_OPEN_READONLY)) as db:
                db.set_progress_handler(lambda: self._is_stopped, OPERATIONS_PER_LOOK)
                found = [str(line) for (line,) in db.execute("PRAGMA quick_check(3)")]
        except apsw.InterruptError:
            return ""
        except (apsw.CorruptError, apsw.NotADBError) as error:
            found = [str(error)]
        except apsw.Error:
            return ""  # it cannot be read now: commits and reads find that out
        wrong = "; ".join(found)
        return "" if self._is_stopped or wrong == "ok" else f"{self._path} is damaged: {wrong}. {MEND}"

    def stop(self) -> None:
        self._is_stopped = True


def _unsound(db: apsw.Connection) -> list[str]:
    try:
        found = [str(line) for (line,) in db.execute("PRAGMA integrity_check(20)")]
    except apsw.Error as error:  # too damaged to be read at all
        return [str(error)]
    return [] if found == ["ok"] else found
