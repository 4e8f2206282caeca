"""Checks and copies of a SQLite file: what doctor, backup and the check after an unclean stop need."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Final

import apsw

from holdfast.errors import StoreUnavailable
from holdfast.signing import new_key
from holdfast.store.base import Acknowledged
from holdfast.store.files import create
from holdfast.store.records import RunRow
from holdfast.store.sqlite.asking import MEND
from holdfast.store.sqlite.mark import behind, forget_mark, lost, read_mark
from holdfast.store.sqlite.reads import SqliteReads
from holdfast.store.statements import schema
from holdfast.values import RunNo

NO_PLACE: Final = 0  # no file has this inode, so a backup is recognised as a copy wherever it is
OPERATIONS_PER_LOOK: Final = (
    10_000  # SQLite instructions between two looks at the stop flag: a check stops within a few milliseconds
)


class SqliteUpkeep(SqliteReads):
    def check_file(self) -> list[str]:
        """What SQLite itself finds wrong with the file, page by page."""
        return _unsound(self._read)

    async def missing_parts(self) -> list[str]:
        """The parts of this release's schema that the file lacks: tables, indexes, and rows about the file as a whole."""
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

    async def definitions(self) -> AsyncIterator[tuple[str, str, str, str | None]]:
        """Every definition: name, hash, text, and the hashes of the definitions that it refers to."""
        for row in self._ask_all("every_definition"):
            yield row

    async def every_schedule(self) -> AsyncIterator[tuple[str, str, str, str | None]]:
        """Every schedule with each of its cursors: tenant, id, definition, cursor."""
        for row in self._ask_all("every_schedule"):
            yield row

    def checks(self) -> list[str]:
        """The names of the queries that find violated invariants."""
        return [name for name in self._sql if name.startswith("check_")]

    async def check(self, name: str) -> list[str]:
        """The violations that one of these queries finds, as sentences."""
        return [str(line) for (line,) in self._ask(name)]

    async def newest(self, limit: int) -> list[RunRow]:
        """The newest runs of all tenants."""
        return self._rows("newest_of_all", limit)

    async def open_runs(self) -> list[RunNo]:
        """Every run that has not finished."""
        return [no for (no,) in self._ask("open_runs")]

    def lost(self, acknowledged: Acknowledged | None) -> str:
        """Describe the commits that are lost if commits up to this position were acknowledged; empty if none are."""
        return lost(self.path, acknowledged, *self._reached())

    def behind(self) -> str:
        """Describe how far a restored copy is behind the database that was in its place; empty if it is not."""
        marked = read_mark(self._file, self.server_key) if self.is_copied() else None
        return "" if marked is None else behind(self.path, marked.acknowledged, self.feed_end_now())

    def accept_loss(self) -> None:
        """Accept the current content of the database as complete, although commits are lost. The caller holds the lock."""
        forget_mark(self._file)

    def file_check(self) -> FileCheck:
        return FileCheck(self.path)

    async def blobs_named(self) -> AsyncIterator[tuple[RunNo, str]]:
        """Journal rows that refer to large values: run, body."""
        for row in self._ask_all("rows_with_blobs"):
            yield row

    async def artefacts_named(self) -> AsyncIterator[tuple[str, str, int]]:
        """Artefacts that runs refer to: tenant, sha256, size."""
        for row in self._ask_all("artefacts_named"):
            yield row

    async def has_blob(self, no: RunNo, sha256: str) -> bool:
        return bool(self._ask("has_blob", (no, sha256)).get)

    async def blobs(self) -> AsyncIterator[tuple[RunNo, str, bytes | str]]:
        """Every large value: run, sha256, text."""
        for row in self._ask_all("every_blob"):
            yield row

    def epoch_now(self) -> int:
        """The newest incarnation of an engine on this file."""
        return int(self._ask("read_epoch").get)

    def is_copied(self) -> bool:
        """Return whether this database was last opened as another file."""
        return self._ask("read_place").get not in (None, os.stat(self._file).st_ino)

    async def schema(self) -> int:
        return self._schema(self._read)

    def copy_to(self, path: str, *, as_copy: bool = False) -> None:
        """Copy a snapshot of the file to a new file, which is checked and on disk when this returns.

        With `as_copy`, the copy gets its own server key, so it does not accept tokens that the original has issued.
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
            if why == "not an error":  # the message of SQLite when it closes a copy that could not be written
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
    """A check of every page. It uses its own connection and is meant to run in a thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.has_begun = self._is_stopped = False

    def run(self) -> str:
        """Describe the first damaged pages; empty if there are none, or if the check was stopped."""
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
            return ""  # the file cannot be read now; commits and reads will report it
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
