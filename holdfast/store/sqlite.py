"""The store on one SQLite file: binds, runs and maps. Knows no rule of the engine and nothing of PostgreSQL.

One connection writes, on one thread at a time: the event loop's while the disk syncs quickly, else its own. A hop to
another thread and back costs more than such a sync, and every statement there waits for the interpreter. One connection
reads, on the loop. WAL and `synchronous=FULL`: what `submit` reports as done survives a power cut.
"""

from __future__ import annotations

import asyncio
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import apsw
import msgspec

from holdfast.errors import NodeIsOver, NotFound, SchemaTooNew, SchemaTooOld, StoreUnavailable
from holdfast.store.artefacts import named_in
from holdfast.store.base import (
    Batch,
    Fenced,
    KeyAnswer,
    KeyEnd,
    KeyName,
    NewRun,
    ReadRow,
    RunChange,
    RunRow,
    Stored,
    Verdict,
    Wanted,
)
from holdfast.store.statements import migrations, statements
from holdfast.values import Millis, RunId, RunNo

INLINE_SECONDS_MAX: Final = 0.005  # while syncing takes longer than this, commits go to the writer's thread
ROWS_PER_STATEMENT_MAX: Final = 256
WAL_BYTES: Final = 4 * 1024 * 1024  # grown beforehand: a commit then changes no file size
CHECKPOINT_PAGES: Final = 1_000
BUSY_MS: Final = 5_000  # how long opening waits for whoever writes to the file
BUSY_MS_LATER: Final = 50  # and a commit: the door looks again by itself, and nobody else has to wait for it
EVERY_RUN: Final = Wanted()

ALL: Final = -1  # as a limit

Done = Callable[[BaseException | None], None]


class SqliteStore:
    def __init__(
        self, path: str, *, node: str = "local", durability: str = "full", threads: bool = True
    ) -> None:
        self.path, self.node, self.durability, self.threads = path, node, durability, threads
        self.epoch = 0
        self._sql = statements("sqlite")
        self._many = {name: _many_rows(self._sql[name]) for name in ("append", "add_run", "change_run")}
        doomed = [name for name in self._sql if name.startswith("forget_run_")]
        doomed.sort(key=lambda name: name == "forget_run_row")  # last: the others may still ask it for its id
        self._forget = [self._sql[name] for name in doomed]
        self._last_no = 0
        self._lane: str | None = None
        self._sync_seconds = 0.0
        self._at_work = 0  # batches on the writer's thread
        self._wal_pages = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._write: apsw.Connection
        self._read: apsw.Connection

    # --------------------------------------------------------------------------------------- open and close

    def open(self) -> None:
        """Bring the file up to date and make it ours: from here on, nobody with an older epoch can commit."""
        try:
            self._open()
        except apsw.Error as error:
            raise StoreUnavailable(f"{self.path} cannot be opened as a database: {error}") from error

    def _open(self) -> None:
        self._write = self._connect()
        self._settle()
        self._migrate()
        with self._write:
            self._lane = self._value(self._write, "read_lane", self.node)
            self.epoch = self._value(self._write, "raise_epoch")
            self._write.execute(self._sql["join_node"], (self.node, self.epoch))
        self._read = self._connect()
        self._last_no = self._value(self._read, "last_no")
        self._write.set_busy_timeout(BUSY_MS_LATER)
        self._grow_wal()

    def open_to_read(self, *, any_release: bool = False) -> None:
        """Look at the file beside whoever writes to it: nothing is locked, migrated or changed.

        One of an older release has not all that is asked for; with `any_release` it may only be copied.
        """
        if not os.path.exists(self.path):
            raise NotFound(f"there is no database {self.path}; holdfast run makes it, --db names another")
        try:
            self._read = self._connect(apsw.SQLITE_OPEN_READONLY)
            found, newest = self._schema(self._read), migrations("sqlite")[-1][0]
        except apsw.Error as error:
            raise StoreUnavailable(f"{self.path} cannot be read as a database: {error}") from error
        if found < newest and not any_release:
            self._read.close()
            raise SchemaTooOld(
                f"{self.path} was written by an older release (schema {found}, this one needs {newest}); "
                "holdfast run brings it up to date"
            )

    def close(self) -> None:
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
        self._read.close()
        if self.epoch:  # else it was opened to be read
            self._write.close()

    def _connect(self, access: int = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) -> apsw.Connection:
        db = apsw.Connection(self.path, flags=access | apsw.SQLITE_OPEN_URI)
        db.set_busy_timeout(BUSY_MS)
        db.pragma("trusted_schema", False)
        db.pragma("foreign_keys", True)
        return db

    def _settle(self) -> None:
        db = self._write
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "NORMAL" if self.durability == "relaxed" else "FULL")
        if sys.platform == "darwin":
            db.pragma("fullfsync", True)
        db.wal_autocheckpoint(0)  # it would swallow a failed sync; see _checkpoint
        db.set_wal_hook(self._note_pages)

    def _schema(self, db: apsw.Connection) -> int:
        """The number of the newest migration that the file has seen; refused if it is not a file for this release."""
        known = bool(db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'meta'").get)
        if not known and db.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get:
            raise StoreUnavailable(f"{self.path} is a database of something else; give a file of its own")
        done = int(self._value(db, "schema_version")) if known else 0
        newest = migrations("sqlite")[-1][0]
        if done > newest:
            raise SchemaTooNew(
                f"{self.path} was written by a newer release (schema {done}, this one knows {newest}); upgrade holdfast"
            )
        return done

    def _migrate(self) -> None:
        done = self._schema(self._write)
        owed = [(number, script) for number, script in migrations("sqlite") if number > done]
        if done and owed:
            self._keep_copy(done)
        for number, script in owed:
            with self._write:
                self._write.execute(script)
                self._write.execute(self._sql["set_schema_version"], (number,))

    def _keep_copy(self, schema: int) -> None:
        """The file as an older release left it, beside it, before anything of it is changed: the way back."""
        kept = f"{self._write.filename}.schema-{schema:03}"
        partial = f"{kept}.partial"
        if os.path.exists(partial):
            os.unlink(partial)
        self._read = self._connect(apsw.SQLITE_OPEN_READONLY)
        try:
            self.copy_to(partial)
            os.replace(partial, kept)
        finally:
            self._read.close()

    def _grow_wal(self) -> None:
        """Zeros behind the last frame are no frames: SQLite passes over them and later writes in their place."""
        name = self._write.filename_wal
        if not name or not os.path.exists(name):
            return
        missing = WAL_BYTES - os.path.getsize(name)
        if missing > 0:
            with open(name, "ab", buffering=0) as wal:
                wal.write(bytes(missing))
                os.fsync(wal.fileno())

    def _value(self, db: apsw.Connection, name: str, *args: Any) -> Any:
        return db.execute(self._sql[name], args).get

    # ---------------------------------------------------------------------------------------------- writing

    def next_no(self) -> RunNo:
        self._last_no += 1
        return RunNo(self._last_no)

    def submit(self, batch: Batch, done: Done) -> None:
        is_quick = (
            self._sync_seconds < INLINE_SECONDS_MAX and not batch.forgotten
        )  # a run may have any number of rows
        if not self._at_work and (is_quick or not self.threads):
            return done(self._try(batch))
        self._at_work += 1
        loop = asyncio.get_running_loop()

        def work() -> None:
            error = self._try(batch)
            loop.call_soon_threadsafe(finish, error)

        def finish(error: BaseException | None) -> None:
            self._at_work -= 1
            done(error)

        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-writer", daemon=True)
            self._thread.start()
        self._work.put(work)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def _try(self, batch: Batch) -> BaseException | None:
        try:
            self._commit(batch)
            if self._wal_pages > CHECKPOINT_PAGES:
                self._checkpoint()
        except Exception as error:
            return self._meaning(error, batch)
        return None

    def _note_pages(self, db: apsw.Connection, name: str, pages: int) -> int:
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Move the log into the file. Whatever stops that may pass, and the commit stands; only a failed sync is final."""
        try:
            self._write.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            if _is_failed_sync(error):
                raise
        self._wal_pages = 0

    def _commit(self, batch: Batch) -> None:
        db = self._write
        db.execute("BEGIN IMMEDIATE")
        try:
            if self._value(db, "read_epoch") != self.epoch:
                raise NodeIsOver("another process has taken this file over; this one can write nothing more")
            self._put_many("append", batch.rows)
            if batch.new_runs or batch.changes:
                self._put_runs(batch)
            if batch.versions or batch.requests or batch.published:
                self._put_names(batch)
            if batch.has_rest:
                self._put_rest(batch)
            began = time.perf_counter()
            db.execute("COMMIT")
            self._sync_seconds += 0.1 * (time.perf_counter() - began - self._sync_seconds)
        except BaseException:
            if not db.get_autocommit():
                db.execute("ROLLBACK")
            raise

    def _put_many(self, name: str, rows: list[Any]) -> None:
        """Rows in as few statements as there are powers of two in their number: each text is prepared once, and the
        thread gives the interpreter up once per statement, not once per row."""
        many, execute, start = self._many[name], self._write.execute, 0
        while start < len(rows):
            size = min(1 << ((len(rows) - start).bit_length() - 1), ROWS_PER_STATEMENT_MAX)
            bound: list[Any] = []
            for row in rows[start : start + size]:
                bound += row
            execute(many[size], bound)
            start += size

    def _put_runs(self, batch: Batch) -> None:
        new, changes = batch.new_runs, batch.changes
        self._put_many("add_run", [self._added(run, changes[no]) for no, run in new.items()])
        self._put_many(
            "change_run", [self._changed(no, change) for no, change in changes.items() if no not in new]
        )

    def _added(self, new: NewRun, change: RunChange) -> tuple[Any, ...]:
        owner = (self.node, self.epoch) if change.owned else (None, None)
        identity = (
            new.no,
            new.tenant,
            new.id,
            new.version,
            change.status,
            *owner,
            change.epoch,
            change.wake_at,
        )
        rest = (
            new.on_restart,
            new.labels,
            new.created_at,
            change.finished_at,
            new.parent_job_id,
            new.rerun_of,
        )
        return (*identity, change.needs, *rest)

    def _changed(self, no: RunNo, change: RunChange) -> tuple[Any, ...]:
        owner = (self.node, self.epoch) if change.owned else (None, None)
        return (no, change.status, *owner, change.epoch, change.wake_at, change.needs, change.finished_at)

    def _put_names(self, batch: Batch) -> None:
        """What users name: definitions, what a name means, and their own ids of starts."""
        execute, sql = self._write.execute, self._sql
        for version in batch.versions:
            execute(sql["add_version"], msgspec.structs.astuple(version))
        for publication in batch.published:
            execute(sql["publish"], msgspec.structs.astuple(publication))
        for request in batch.requests:
            execute(sql["add_request"], msgspec.structs.astuple(request))

    def _put_rest(self, batch: Batch) -> None:
        execute, sql = self._write.execute, self._sql
        for blob in batch.blobs:
            execute(sql["put_blob"], blob)
        for snapshot in batch.snapshots:
            execute(sql["put_snapshot"], snapshot)
        for artefact in batch.artefacts:
            execute(sql["put_artefact"], artefact)
        if batch.keys:
            Keys(self._write, sql).settle(batch)
        for key in batch.forgotten_keys:
            execute(sql["forget_key"], key)
        for no in batch.forgotten:
            for statement in self._forget:
                execute(statement, (no,))
        if batch.lane is not None:
            execute(sql["set_lane"], (batch.lane or None, self.node))
        if batch.is_probe:
            execute(sql["probe"])

    def _meaning(self, error: Exception, batch: Batch) -> BaseException:
        """What a failure means to the door: over, fenced, later, or a mistake of ours."""
        if isinstance(error, apsw.ConstraintError):
            taken = self._taken(batch)
            return Fenced(taken) if taken else error
        if _is_failed_sync(error):
            return SystemExit("the disk did not sync: what it holds is unknown, and going on could lose data")
        if isinstance(
            error, apsw.FullError | apsw.IOError | apsw.BusyError | apsw.CantOpenError | apsw.ReadOnlyError
        ):
            return StoreUnavailable(f"the database cannot be written now: {error}")
        return error

    def _taken(self, batch: Batch) -> list[RunNo]:
        runs: dict[int, None] = {}
        for run, seq, *_ in batch.rows:
            if next(iter(self._write.execute(self._sql["rows_of"], (run, seq - 1, 1))), (0,))[0] == seq:
                runs[run] = None
        return [RunNo(run) for run in runs]

    # ---------------------------------------------------------------------------------------------- reading

    async def load(self, no: RunNo) -> Stored | None:
        row = await self.run_by_no(no)
        if row is None:
            return None
        snapshot = list(self._read.execute(self._sql["snapshot_of"], (no,)))
        seq = snapshot[0][1] if snapshot else 0
        rows = await self.journal(no, seq, -1)
        return Stored(row, [(part, body) for part, _, body in snapshot], seq, rows)

    async def run_by_id(self, tenant: str, run_id: RunId) -> RunRow | None:
        return next(iter(self._rows("run_by_id", tenant, run_id)), None)

    async def run_by_no(self, no: RunNo) -> RunRow | None:
        return next(iter(self._rows("run_by_no", no)), None)

    async def list_runs(
        self, tenant: str, before: RunNo | None, limit: int, wanted: Wanted = EVERY_RUN
    ) -> list[RunRow]:
        label, value = wanted.label or (None, None)
        names = {"status": wanted.status, "workflow": wanted.workflow, "label": label, "value": value}
        page = {"tenant": tenant, "before": before if before is not None else 2**62, "limit": limit}
        return [RunRow(*row) for row in self._read.execute(self._sql["list_runs"], page | names)]

    def _rows(self, name: str, *args: Any) -> list[RunRow]:
        return [RunRow(*row) for row in self._read.execute(self._sql[name], args)]

    async def request(self, tenant: str, request_id: str) -> tuple[str, RunNo, RunId] | None:
        return next(iter(self._read.execute(self._sql["request"], (tenant, request_id))), None)

    async def published(self, tenant: str, name: str) -> tuple[str, str] | None:
        """The version that a name means, and its definition."""
        return next(iter(self._read.execute(self._sql["published"], (tenant, name))), None)

    async def workflow_names(self, tenant: str, limit: int) -> list[str]:
        return [name for (name,) in self._read.execute(self._sql["workflow_names"], (tenant, limit))]

    async def ids_like(self, tenant: str, part: str, limit: int) -> list[RunId]:
        return [run_id for (run_id,) in self._read.execute(self._sql["ids_like"], (tenant, part, limit))]

    async def key_holder(self, tenant: str, scope: str, key: str) -> tuple[RunId, str] | None:
        return next(iter(self._read.execute(self._sql["key_holder"], (tenant, scope, key))), None)

    async def answered_key(self, tenant: str, scope: str, key: str) -> KeyAnswer | None:
        created_at = self._value(self._read, "answered_key", tenant, scope, key)
        return None if created_at is None else KeyAnswer(tenant, scope, key, created_at)

    async def expired_keys(self, now: Millis, limit: int) -> list[KeyAnswer]:
        return [KeyAnswer(*row) for row in self._read.execute(self._sql["expired_keys"], (now, limit))]

    async def finished_before(self, before: Millis, limit: int) -> list[tuple[RunNo, int]]:
        """Finished runs that ended before then, the oldest first: number, rows."""
        return list(self._read.execute(self._sql["finished_before"], (before, limit)))

    async def artefacts_of_shelf(self, shelf: str) -> set[str]:
        """The artefacts that runs name, of those whose sha256 begins so."""
        bounds = (shelf, f"{shelf}g")  # past every hexadecimal digit
        return {sha256 for (sha256,) in self._read.execute(self._sql["artefacts_between"], bounds)}

    async def artefacts_of_keys(self) -> set[str]:
        """The artefacts that answers kept under idempotency keys name."""
        outputs = self._read.execute(self._sql["outputs_with_artefacts"])
        return {sha256 for (output,) in outputs for sha256 in named_in(output)}

    async def journal(self, no: RunNo, after: int, limit: int) -> list[ReadRow]:
        return list(self._read.execute(self._sql["rows_of"], (no, after, limit)))

    async def blob(self, no: RunNo, sha256: str) -> bytes:
        body: bytes = self._value(self._read, "blob", no, sha256)
        return body

    async def definition(self, tenant: str, version: str) -> tuple[str, str | None] | None:
        """The text of a definition, and the versions of those that it names."""
        return next(iter(self._read.execute(self._sql["definition"], (tenant, version))), None)

    def lane_of_former(self) -> str | None:
        return self._lane

    async def left_behind(self, after: RunNo, limit: int) -> list[RunNo]:
        return [no for (no,) in self._read.execute(self._sql["owned_by_former"], (self.epoch, after, limit))]

    async def due(self, now: Millis, limit: int) -> list[RunNo]:
        return [no for (no,) in self._read.execute(self._sql["due_runs"], (now, limit))]

    async def next_wake(self) -> Millis | None:
        at: Millis | None = self._value(self._read, "next_wake")
        return at

    async def in_need(self, after: RunNo, limit: int) -> list[tuple[RunNo, str]]:
        return list(self._read.execute(self._sql["runs_in_need"], (after, limit)))

    async def interruptible(self, after: RunNo, limit: int) -> list[RunNo]:
        return [no for (no,) in self._read.execute(self._sql["interruptible_runs"], (after, limit))]

    # ----------------------------------------------------------------------------------------------- upkeep

    @contextmanager
    def still(self) -> Iterator[None]:
        """What is read within is of one moment, however much is written meanwhile."""
        self._read.execute("BEGIN")
        try:
            yield
        except apsw.Error as error:
            raise StoreUnavailable(
                f"{self.path} cannot be read: {error}; holdfast doctor tells more"
            ) from error
        finally:
            self._read.execute("ROLLBACK")

    def check_file(self) -> list[str]:
        """What SQLite itself finds wrong with the file, page by page."""
        return _unsound(self._read)

    def checks(self) -> list[str]:
        """The names of the queries that look for what must not be."""
        return [name for name in self._sql if name.startswith("check_")]

    def check(self, name: str) -> list[str]:
        """What one of them finds, in words."""
        return [str(line) for (line,) in self._read.execute(self._sql[name])]

    def blobs_named(self) -> Iterator[tuple[RunNo, str]]:
        """Journal rows that refer to large values: run, body."""
        yield from self._read.execute(self._sql["rows_with_blobs"])

    def artefacts_named(self) -> Iterator[tuple[str, int]]:
        """Artefacts that runs refer to: sha256, size."""
        yield from self._read.execute(self._sql["artefacts_named"])

    def has_blob(self, no: RunNo, sha256: str) -> bool:
        return bool(self._value(self._read, "has_blob", no, sha256))

    def epoch_now(self) -> int:
        """The newest incarnation of an engine on this file."""
        return int(self._value(self._read, "read_epoch"))

    def schema(self) -> int:
        return self._schema(self._read)

    def copy_to(self, path: str) -> None:
        """The whole file as it is at one moment, into a new one, which is checked and on disk when this returns."""
        try:
            with closing(apsw.Connection(path)) as copy:
                with copy.backup("main", self._read, "main") as backup:
                    backup.step(-1)
                copy.pragma("journal_mode", "delete")  # one file, that can be carried away
                wrong = _unsound(copy)
        except apsw.Error as error:
            why = str(error)
            if why == "not an error":  # what closing a copy says that could not be written
                why = "there is no room for it, or it cannot be written"
            raise StoreUnavailable(f"{self.path} cannot be copied to {path}: {why}") from error
        if wrong:
            raise StoreUnavailable(f"the copy is not sound: {'; '.join(wrong)}")


def _unsound(db: apsw.Connection) -> list[str]:
    try:
        found = [str(line) for (line,) in db.execute("PRAGMA integrity_check(20)")]
    except apsw.Error as error:  # so damaged that it cannot even be looked at
        return [str(error)]
    return [] if found == ["ok"] else found


class Keys:
    """Idempotency keys within one commit: who asks gets, waits, or is answered; who lets go hands on."""

    def __init__(self, db: apsw.Connection, sql: dict[str, str]) -> None:
        self._db, self._sql = db, sql

    def settle(self, batch: Batch) -> None:
        batch.verdicts = []
        for name, end in batch.keys:
            batch.verdicts += [self._ask(name)] if end is None else self._let_go(name, end)

    def _run(self, name: str, *args: Any) -> apsw.Cursor:
        return self._db.execute(self._sql[name], args)

    def _ask(self, name: KeyName) -> Verdict:
        tenant, scope, key, no, path, at = name
        self._run("take_key", tenant, scope, key, no, path, at)
        ((holder, held_at, output),) = self._run("key_state", tenant, scope, key)
        if output is None and (holder, held_at) != (no, path):
            self._run("wait_for_key", tenant, scope, key, no, path, at)
            return no, path, "held", None
        self._run("wait_no_more", no, path)
        return no, path, "granted" if output is None else "answered", output

    def _let_go(self, name: KeyName, end: KeyEnd) -> list[Verdict]:
        tenant, scope, key, no, path, at = name
        self._run("wait_no_more", no, path)
        state = self._run("key_state", tenant, scope, key).get
        if state is None or tuple(state) != (no, path, None):
            return []  # it only asked
        if end.output is not None:
            self._run("answer_key", end.output, end.expires_at, tenant, scope, key)
        waiters = list(self._run("waiters_of_key", tenant, scope, key, 1 if end.output is None else ALL))
        if end.output is None:
            if not waiters:
                self._run("free_key", tenant, scope, key)
            for next_run, next_path in waiters:
                self._run("pass_key_on", next_run, next_path, tenant, scope, key)
        return [self._tell(RunNo(run), at_path, end, at) for run, at_path in waiters]

    def _tell(self, no: RunNo, path: str, end: KeyEnd, at: Millis) -> Verdict:
        self._run("wait_no_more", no, path)
        self._run("make_due", at, no)
        return no, path, "granted" if end.output is None else "answered", end.output


def _is_failed_sync(error: Exception) -> bool:
    return getattr(error, "extendedresult", 0) in (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)


def _many_rows(statement: str) -> dict[int, str]:
    """A statement that takes one row of values, made to take 1, 2, 4 … of them."""
    head, row, tail = re.split(r"(?<=VALUES )(\([?, ]+\))", statement, maxsplit=1)
    sizes = [1 << power for power in range(ROWS_PER_STATEMENT_MAX.bit_length())]
    return {size: head + ",".join([row] * size) + tail for size in sizes}
