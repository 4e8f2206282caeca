"""Reads of a SQLite file. All reads within one turn of the event loop see one snapshot: it begins with the first
query of the turn and ends with the turn, or before a commit of ours. Beginning one costs more than most queries, and
SQLite drops its page cache when another connection has written to the file.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from functools import wraps
from typing import Any, Final, TypeVar

import apsw
import msgspec

from holdfast.errors import NotFound, SchemaTooNew, SchemaTooOld, StoreDamaged, StoreUnavailable
from holdfast.signing import new_key
from holdfast.store.artefacts import named_in
from holdfast.store.feed import Cursor
from holdfast.store.files import NOT_REGULAR, create, file_of, is_regular, log_of
from holdfast.store.records import (
    ApiKey,
    AssignmentRow,
    Ends,
    KeyAnswer,
    Letter,
    Listing,
    OpenWait,
    ReadRow,
    Release,
    ReplyRow,
    RunRow,
    Stored,
    WaitRow,
    Wanted,
    WorkerRow,
    Workflow,
)
from holdfast.store.sqlite.feed import FeedReads, RowNumber
from holdfast.store.sqlite.lists import EVERY_RUN, Lists
from holdfast.store.sqlite.mark import forget_mark, lost, read_mark
from holdfast.store.sqlite.place import header_of, is_half_made
from holdfast.store.sqlite.schedules import ScheduleReads
from holdfast.store.statements import migrations, schema, statements
from holdfast.values import Millis, RunId, RunNo

STATEMENTS_KEPT: Final = (
    128  # prepared statements; apsw evicts the least recently used, and searches all of them at each use
)
BUSY_MS: Final = 5_000  # how long opening waits for another writer
MEND: Final = "Stop the server, keep a copy of the files, run holdfast doctor, and restore a backup"
MAGIC: Final = b"SQLite format 3\0"
LOGS_AT: Final = (
    18  # in the header of a database: whether it has a log, or a rollback journal as a backup has
)
HAS_NO_LOG: Final = 1
NO_PLACE: Final = 0  # no file has this inode: a backup is a copy wherever it lies
ENDS_LOOKED_AT_MAX: Final = 10_000  # runs that are searched by the end of their id
OPERATIONS_PER_LOOK: Final = (
    10_000  # of SQLite's machine: some milliseconds until a check that is stopped ends
)
FIRST_ROWS: Final = 5  # of a journal: enough to see when its run was begun

# A store that fails in one of these ways may work again, and none of them is the fault of a batch or a run.
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


def _translated(method: Any) -> Any:
    @wraps(method)
    async def ask(self: SqliteReads, *args: Any, **named: Any) -> Any:
        try:
            return await method(self, *args, **named)
        except apsw.Error as error:
            raise self._in_our_words(error, "read") from error

    return ask


def _errors_in_our_words(cls: type[SqliteReads]) -> type[SqliteReads]:
    """Make every question raise StoreUnavailable where SQLite says that the file cannot be read."""
    inherited = [vars(base) for base in reversed(cls.__mro__)]
    for name, method in [item for found in inherited for item in found.items()]:
        if inspect.iscoroutinefunction(method):
            setattr(cls, name, _translated(method))
    return cls


@_errors_in_our_words
class SqliteReads(ScheduleReads, FeedReads):
    def __init__(self, path: str) -> None:
        self.path, self.epoch, self.node = path, 0, "local"
        self._file = file_of(path)
        self._sql = statements("sqlite")
        self._read: apsw.Connection
        self._reader: apsw.Cursor
        self._ending: asyncio.Handle | None = None  # ends the snapshot at the end of this turn of the loop

    def _connect(self, access: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) -> apsw.Connection:
        db = apsw.Connection(
            self.path, flags=access | apsw.SQLITE_OPEN_URI, statementcachesize=STATEMENTS_KEPT
        )
        db.set_busy_timeout(BUSY_MS)
        db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)  # else many a statement is planned anew for each value
        db.pragma("trusted_schema", False)
        db.pragma("foreign_keys", True)
        return db

    def _read_with(self, db: apsw.Connection) -> None:
        self._read, self._reader = db, db.cursor()

    async def open_to_read(self, *, any_release: bool = False) -> None:
        """Read the file while another process may write to it: nothing is locked, migrated or changed.

        A file of an older release lacks some tables; with `any_release` it may only be copied.
        """
        self.open_file_to_read(any_release=any_release)

    def open_file_to_read(self, *, any_release: bool = False) -> None:
        """The same where no event loop runs."""
        if not os.path.exists(self.path):
            raise NotFound(f"there is no database {self.path}; holdfast run makes it, --db names another")
        try:
            self._recognise()
            self._read_with(self._connect(apsw.SQLITE_OPEN_READONLY))
            self._refuse_file_without_log(self._read)
            found, newest = self._schema(self._read), migrations("sqlite")[-1][0]
        except apsw.Error as error:
            raise StoreUnavailable(f"{self.path} cannot be read as a database: {error}") from error
        if found < newest and not any_release:
            self._read.close()
            if why := lost(self.path, self.acknowledged(), RowNumber(0)):
                raise StoreDamaged(why)  # the WAL that brought it up to date is not there
            raise SchemaTooOld(
                f"{self.path} was written by an older release (schema {found}, this one needs {newest}); "
                "holdfast run brings it up to date"
            )

    def _recognise(self) -> None:
        """Refuse a file that is no database, or that has the log of another beside it, before anything is changed."""
        if not is_regular(self._file):
            raise StoreUnavailable(NOT_REGULAR.format(path=self.path))
        header = header_of(self._file) if os.path.exists(self._file) else b""
        if header and not header.startswith(MAGIC) and not is_half_made(self._file):
            raise StoreUnavailable(
                f"{self.path} cannot be read as a database: it is something else; give another file with --db"
            )
        if not (log_file := log_of(self._file)):
            return
        if not header:  # SQLite would delete the log, with all that was committed to it
            raise StoreUnavailable(
                f"{self.path} is not there, but its log {log_file} is, with commits in it. Put the database back beside it; "
                "to start with a new database, move the log elsewhere first"
            )
        if header[LOGS_AT] == HAS_NO_LOG:  # SQLite would write the log into it all the same
            raise StoreUnavailable(
                f"{self.path} is a backup, and {log_file} is the log of the database that was here before. To use the "
                f"backup, move the log and {self.path}-shm elsewhere first"
            )

    def _refuse_file_without_log(self, db: apsw.Connection) -> None:
        """A database that was moved or linked, while its log stayed beside its former name, lacks the last commits."""
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

    def _schema(self, db: apsw.Connection) -> int:
        """The number of the newest migration that the file has seen; refused if it is not a file for this release."""
        known = bool(db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").get)
        if not known and db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get:
            raise StoreUnavailable(f"{self.path} is a database of something else; give a file of its own")
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

    def _value(self, db: apsw.Connection, name: str, *args: Any) -> Any:
        return db.execute(self._sql[name], args).get

    def condemn(self, why: str, db: apsw.Connection | None = None) -> StoreDamaged:
        return StoreDamaged(why)

    def _in_our_words(
        self, error: BaseException, what: str, db: apsw.Connection | None = None
    ) -> BaseException:
        """What an SQLite error means: the file is damaged, or unavailable for now; any other is a bug in Holdfast."""
        if isinstance(error, apsw.CorruptError | apsw.NotADBError) or _is_cut(error):
            return self.condemn(f"{self.path} is damaged: {error}. {MEND}", db)
        if isinstance(error, AWAY):
            return StoreUnavailable(f"{self.path} cannot be {what} now: {error}")
        return error

    # ------------------------------------------------------------------------------------------------- a look

    def _ask(self, name: str, args: Any = ()) -> apsw.Cursor:
        """The answer, to be read before the next question: a cursor for each would cost as much as a short answer."""
        if self._ending is None:
            self._begin_look()
        return self._reader.execute(self._sql[name], args)

    def _ask_all(self, name: str) -> apsw.Cursor:
        """The same for an answer that is read bit by bit, with other questions between."""
        if self._ending is None:
            self._begin_look()
        return self._read.execute(self._sql[name])

    def _begin_look(self) -> None:
        """Within `still`, or where no loop runs that would end it, there is none to begin."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if self._read.get_autocommit():
            self._reader.execute("BEGIN")
            self._ending = loop.call_soon(self._end_look)

    def _lists(self) -> Lists:
        if self._ending is None:
            self._begin_look()
        return Lists(self._read, self._sql)

    def _end_look(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
            if not self._read.get_autocommit():  # a question that failed may have ended it
                self._reader.execute("ROLLBACK")

    # ---------------------------------------------------------------------------------------------- reading

    async def load(self, no: RunNo) -> Stored | None:
        return next(iter(await self.load_many((no,))), None)

    async def load_many(self, runs: Sequence[RunNo]) -> list[Stored]:
        """All that is needed to fold some runs, of those that are there, in few questions."""
        asked = (msgspec.json.encode(runs).decode(),)
        found = {
            row[0]: Stored(RunRow(*row), [], seq, [], trace)
            for *row, trace, seq in self._ask("runs_to_load", asked)
        }
        for row in self._ask("rows_to_load", asked):
            found[row[-1]].rows.append(row[:-1])
        for stored in found.values():
            if stored.snapshot_seq:
                stored.parts += self._ask("snapshot_of", (stored.row.no,))
        return list(found.values())

    async def run_by_id(self, tenant: str, run_id: RunId) -> RunRow | None:
        return next(iter(self._rows("run_by_id", tenant, run_id)), None)

    async def fatal_runs(self) -> str | None:
        return self._ask("read_deaths").get  # type: ignore[no-any-return]

    async def run_by_no(self, no: RunNo) -> RunRow | None:
        return next(iter(self._rows("run_by_no", no)), None)

    async def ends(self, tenant: str, run_id: RunId) -> Ends | None:
        row = await self.run_by_id(tenant, run_id)
        if row is None:
            return None
        first = await self.journal(row.no, 0, FIRST_ROWS)
        return Ends(row, first, self._ask("last_row", (row.no,)).get)

    async def list_runs(
        self, tenant: str, before: RunNo | None, limit: int, wanted: Wanted = EVERY_RUN
    ) -> Listing:
        """Runs, the newest first."""
        found, below = self._lists().part(tenant, before, limit, wanted)
        return Listing(self._rows("runs_by_no", msgspec.json.encode(found).decode()), below)

    async def below_runs(
        self, tenant: str, before: RunNo | None, count: int, wanted: Wanted = EVERY_RUN
    ) -> RunNo | None:
        """What a list begins below that leaves out so many runs; None if it has no more than these."""
        return self._lists().below(tenant, before, count, wanted)

    async def count_runs(self, tenant: str, wanted: Wanted = EVERY_RUN) -> int:
        """How many runs there are of a status, a workflow, a release: from counters, not by looking at runs."""
        assert wanted.label is None, "labelled runs are not counted"
        return self._lists().count(tenant, wanted)

    def _rows(self, name: str, *args: Any) -> list[RunRow]:
        return [RunRow(*row) for row in self._ask(name, args)]

    async def request_of(self, no: RunNo) -> str | None:
        """The caller's own id of the start that made a run, if it had one."""
        found: str | None = self._ask("request_of", (no,)).get
        return found

    async def request(self, tenant: str, request_id: str) -> tuple[str, RunNo, RunId] | None:
        return next(iter(self._ask("request", (tenant, request_id))), None)

    async def published(self, tenant: str, name: str) -> tuple[str, str, int] | None:
        """The version that a name means, its definition, and the number of its release."""
        return next(iter(self._ask("published", (tenant, name))), None)

    async def workflows(self, tenant: str, after: str, limit: int) -> list[Workflow]:
        found = self._ask("workflows", (tenant, after, limit))
        return [Workflow(*row) for row in found]

    async def workflow(self, tenant: str, name: str) -> Workflow | None:
        return self._one("workflow", Workflow, tenant, name)

    async def workflow_by_id(self, tenant: str, flow_id: str) -> Workflow | None:
        return self._one("workflow_by_id", Workflow, tenant, flow_id)

    async def releases(self, tenant: str, name: str, below: int, limit: int) -> list[Release]:
        found = self._ask("releases", (tenant, name, below, limit))
        return [Release(*row) for row in found]

    async def release(self, tenant: str, name: str, number: int) -> Release | None:
        return self._one("release", Release, tenant, name, number)

    async def release_by_id(self, tenant: str, release_id: str) -> Release | None:
        return self._one("release_by_id", Release, tenant, release_id)

    async def newest_published(self, tenant: str, name: str) -> Release | None:
        return self._one("newest_published", Release, tenant, name)

    def _one(self, name: str, kind: type[Record], *args: Any) -> Record | None:
        row = next(iter(self._ask(name, args)), None)
        return None if row is None else kind(*row)

    async def workflow_names(self, tenant: str, limit: int) -> list[str]:
        return [name for (name,) in self._ask("workflow_names", (tenant, limit))]

    async def ids_like(self, tenant: str, part: str, limit: int) -> list[RunId]:
        """Runs by the beginning of their id, or, of the newest ones, by its end."""
        found = list(self._ask("ids_beginning", (tenant, part, limit)))
        found += self._ask("ids_ending", (tenant, part, limit, ENDS_LOOKED_AT_MAX))
        return list(dict.fromkeys(run_id for (run_id,) in found))[:limit]

    async def key_holder(self, tenant: str, scope: str, key: str) -> tuple[RunId, str] | None:
        return next(iter(self._ask("key_holder", (tenant, scope, key))), None)

    async def answered_key(self, tenant: str, scope: str, key: str) -> KeyAnswer | None:
        created_at = self._ask("answered_key", (tenant, scope, key)).get
        return None if created_at is None else KeyAnswer(tenant, scope, key, created_at)

    async def api_keys(self) -> list[ApiKey]:
        return [ApiKey(*row) for row in self._ask("api_keys")]

    async def reply(self, tenant: str, route: str, key: str) -> ReplyRow | None:
        return self._one("reply", ReplyRow, tenant, route, key)

    async def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in self._ask("workers")]

    async def assignments(self) -> list[AssignmentRow]:
        return [AssignmentRow(*row) for row in self._ask("assignments")]

    async def assignments_of_run(self, no: RunNo) -> list[AssignmentRow]:
        return [AssignmentRow(*row) for row in self._ask("assignments_of_run", (no,))]

    def _waits(self, name: str, *args: Any) -> list[WaitRow]:
        return [WaitRow(*row) for row in self._ask(name, args)]

    async def waits_named(self, tenant: str, task_id: str, limit: int) -> list[WaitRow]:
        return self._waits("waits_named", tenant, task_id, limit)

    async def wait_at(self, no: RunNo, path: str, kind: str, attempt: int | None = None) -> WaitRow | None:
        """The wait of an attempt, or of the newest."""
        return next(iter(self._waits("wait_at", no, path, kind, attempt)), None)

    async def gate_decided(self, no: RunNo, path: str) -> WaitRow | None:
        """A decided or expired approval, by its path or by the id of its step."""
        return next(iter(self._waits("gate_decided", no, path)), None)

    async def waits_of_run(self, no: RunNo, limit: int) -> list[WaitRow]:
        return self._waits("waits_of_run", no, limit)

    async def open_waits(self, tenant: str, kind: str, limit: int) -> list[WaitRow]:
        return self._waits("open_waits", tenant, kind, limit)

    async def early_result(
        self, tenant: str, task_id: str, run_id: RunId, now: Millis
    ) -> tuple[str, str] | None:
        """The answer that came early for a run: the id of the run that it is meant for, if any, and what it says."""
        return next(iter(self._ask("early_of", (tenant, task_id, run_id, now))), None)

    async def early_room(self, tenant: str, now: Millis) -> tuple[int, int]:
        """How many answers of a tenant wait for their pause, and how many bytes they are."""
        count, total = next(iter(self._ask("early_room", (tenant, now))))
        return int(count), int(total)

    async def early_waits(self, limit: int) -> list[WaitRow]:
        """Open waits for which an early callback is stored."""
        return self._waits("early_waits", limit)

    def _letters(self, name: str, args: Any) -> list[Letter]:
        return [Letter(*row) for row in self._ask(name, args)]

    async def letters_due(
        self, now: Millis, full: Sequence[str], runs: Sequence[RunNo] | None, limit: int
    ) -> list[Letter]:
        """Letters whose time has come, the longest due first: none to `full` origins, and of `runs` alone, if given."""
        named = {
            "now": now,
            "full": msgspec.json.encode(full).decode(),
            "runs": None if runs is None else msgspec.json.encode(runs).decode(),
            "limit": limit,
        }
        return self._letters("letters_due", named)

    async def next_letter(self, after: Millis) -> Millis | None:
        at: Millis | None = self._ask("next_letter", (after,)).get
        return at

    async def letters_of_run(self, no: RunNo) -> list[Letter]:
        return self._letters("letters_of_run", (no,))

    async def dead_letters(self, tenant: str, after: int, limit: int) -> list[Letter]:
        return self._letters("dead_letters", (tenant, after, limit))

    async def letter(self, tenant: str, letter_id: str) -> Letter | None:
        return next(iter(self._letters("letter", (tenant, letter_id))), None)

    async def expired_keys(self, now: Millis, limit: int) -> list[KeyAnswer]:
        return [KeyAnswer(*row) for row in self._ask("expired_keys", (now, limit))]

    async def finished_before(self, before: Millis, limit: int) -> list[tuple[RunNo, int]]:
        """Finished runs that ended before then, the oldest first: number, rows."""
        return list(self._ask("finished_before", (before, limit)))

    async def names_artefact(self, tenant: str, sha256: str) -> bool:
        """Does some run of the tenant name this artefact?"""
        return bool(self._ask("names_artefact", (sha256, tenant)).get)

    async def artefacts_of_shelf(self, shelf: str) -> set[str]:
        """The artefacts that runs name, of those whose sha256 begins so."""
        bounds = (shelf, f"{shelf}g")  # past every hexadecimal digit
        return {sha256 for (sha256,) in self._ask("artefacts_between", bounds)}

    async def artefacts_of_keys(self) -> set[str]:
        """The artefacts that answers kept under idempotency keys name."""
        outputs = self._ask("outputs_with_artefacts")
        return {sha256 for (output,) in outputs for sha256 in named_in(output)}

    async def journal(self, no: RunNo, after: int, limit: int) -> list[ReadRow]:
        return list(self._ask("rows_of", (no, after, limit)))

    async def resting_runs(self, after: RunNo, limit: int) -> list[tuple[RunNo, bool]]:
        """Open runs without an owner or a wake time, and whether each waits for something with a name."""
        return [(no, bool(waits)) for no, waits in self._ask("resting_runs", (after, limit))]

    async def owned_runs(self, after: RunNo, limit: int) -> list[tuple[RunNo, int]]:
        """Open runs with an owner, and the epoch of the engine that owns them."""
        return list(self._ask("owned_runs", (after, limit)))

    async def waits_open(self, after: OpenWait, limit: int) -> list[OpenWait]:
        """What is waited for now, of all tenants: whose, of which kind, and its place."""
        return [OpenWait(*row) for row in self._ask("waits_open", (*after, limit))]

    async def letters_by_state(self, limit: int) -> dict[str, int]:
        """The number of pending and of dead deliveries; `limit` means that many or more."""
        return dict(self._ask("letters_by_state", (limit,)))

    async def runs_by_status(self) -> dict[str, int]:
        return dict(self._ask("runs_by_status"))

    async def sizes(self) -> dict[str, int]:
        """The bytes of the file, and of the log that is not yet in it."""
        return {"database": _size_of(self._read.filename), "log": _size_of(self._read.filename_wal)}

    def free_bytes(self) -> int:
        """What the disk of the file has left for this process."""
        found = os.statvfs(os.path.dirname(self._read.filename))
        return found.f_frsize * (found.f_bfree if os.geteuid() == 0 else found.f_bavail)

    async def blob(self, no: RunNo, sha256: str) -> bytes:
        body: bytes = self._ask("blob", (no, sha256)).get
        return body

    async def definition(self, tenant: str, version: str) -> tuple[str, str | None] | None:
        """The text of a definition, and the versions of those that it names."""
        return next(iter(self._ask("definition", (tenant, version))), None)

    async def left_behind(self, after: RunNo, limit: int) -> list[RunNo]:
        return [no for (no,) in self._ask("owned_by_former", (self.epoch, after, limit))]

    async def due(self, now: Millis, limit: int) -> list[RunNo]:
        return [no for (no,) in self._ask("due_runs", (now, limit))]

    async def next_wake(self, after: int = 0) -> Millis | None:
        at: Millis | None = self._ask("next_wake", (after,)).get
        return at

    async def latest_at(self, rows: int) -> Millis | None:
        at: Millis | None = self._ask("latest_at", (rows,)).get
        return at

    async def in_need(self, after: RunNo, limit: int) -> list[tuple[RunNo, str]]:
        return list(self._ask("runs_in_need", (after, limit)))

    async def interruptible(self, after: RunNo, limit: int) -> list[RunNo]:
        return [no for (no,) in self._ask("interruptible_runs", (after, limit))]

    # ----------------------------------------------------------------------------------------------- upkeep

    @asynccontextmanager
    async def still(self) -> AsyncIterator[None]:
        """What is read within is of one moment, however much is written meanwhile."""
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

    def acknowledged(self) -> Cursor | None:
        """The position up to which commits were acknowledged, as written beside the database; None if it is unknown."""
        marked = read_mark(self._file)
        return None if marked is None else marked.upto

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

    async def artefacts_of_tenants(self) -> list[tuple[str, str, bool]]:
        """What was stored for runs of other tenants than the default one, and whether that has stored the same."""
        return list(self._ask("artefacts_of_tenants"))

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


def _is_cut(error: BaseException) -> bool:
    """Pages that SQLite knows of are not there."""
    codes = (apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS)
    return getattr(error, "extendedresult", 0) in codes


def _size_of(path: str) -> int:
    return os.path.getsize(path) if path and os.path.exists(path) else 0


def _unsound(db: apsw.Connection) -> list[str]:
    try:
        found = [str(line) for (line,) in db.execute("PRAGMA integrity_check(20)")]
    except apsw.Error as error:  # too damaged to be read at all
        return [str(error)]
    return [] if found == ["ok"] else found
