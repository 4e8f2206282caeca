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
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import Any, Final, TypeVar

import apsw
import msgspec

from holdfast.errors import NodeIsOver, NotFound, SchemaTooNew, SchemaTooOld, StoreUnavailable
from holdfast.signing import new_key
from holdfast.store.artefacts import named_in
from holdfast.store.base import (
    ApiKey,
    AssignmentRow,
    Batch,
    Committed,
    Ends,
    Fenced,
    KeyAnswer,
    KeyEnd,
    KeyName,
    Letter,
    Listing,
    NewRun,
    Publication,
    ReadRow,
    Release,
    ReplyRow,
    RunChange,
    RunRow,
    Stored,
    Verdict,
    WaitRow,
    Wanted,
    WorkerRow,
    Workflow,
)
from holdfast.store.lists import Lists, Tallies
from holdfast.store.statements import migrations, statements
from holdfast.values import Millis, RunId, RunNo

INLINE_SECONDS_MAX: Final = 0.005  # while syncing takes longer than this, commits go to the writer's thread
ROWS_PER_STATEMENT_MAX: Final = 256
STATEMENTS_KEPT: Final = 500  # prepared; apsw forgets one after as many uses of others
WAL_BYTES: Final = 4 * 1024 * 1024  # grown beforehand: a commit then changes no file size
CHECKPOINT_PAGES: Final = 1_000
BUSY_MS: Final = 5_000  # how long opening waits for whoever writes to the file
BUSY_MS_LATER: Final = 50  # and a commit: the door looks again by itself, and nobody else has to wait for it
REPLY_MS: Final = 24 * 3600 * 1000  # how long an answer is kept for whoever asks again
EVERY_RUN: Final = Wanted()

ALL: Final = -1  # as a limit
ENDS_LOOKED_AT_MAX: Final = 10_000  # runs that are looked for by the end of their id
FIRST_ROWS: Final = 5  # of a journal: enough to see when its run was begun

Done = Callable[[BaseException | None], None]
Record = TypeVar("Record", bound=msgspec.Struct)


class SqliteStore:
    def __init__(
        self, path: str, *, node: str = "local", durability: str = "full", threads: bool = True
    ) -> None:
        self.path, self.node, self.durability, self.threads = path, node, durability, threads
        self.epoch, self.server_key = 0, b""
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
        self._tallies: Tallies
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
        self._tallies = Tallies(self._write, self._sql)
        self._settle()
        self._migrate()
        with self._write:
            self._lane = self._value(self._write, "read_lane", self.node)
            self.epoch = self._value(self._write, "raise_epoch")
            self._write.execute(self._sql["join_node"], (self.node, self.epoch))
            self._write.execute(self._sql["make_server_key"], (new_key(),))
            self.server_key = self._value(self._write, "read_server_key")
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
        db = apsw.Connection(
            self.path, flags=access | apsw.SQLITE_OPEN_URI, statementcachesize=STATEMENTS_KEPT
        )
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
            if batch.versions or batch.requests or batch.published or batch.workflows:
                self._put_names(batch)
            if batch.has_rest:
                self._put_rest(batch)
            began = time.perf_counter()
            db.execute("COMMIT")
            self._sync_seconds += 0.1 * (time.perf_counter() - began - self._sync_seconds)
        except BaseException:
            if not db.get_autocommit():
                db.execute("ROLLBACK")
            self._tallies.forget()
            raise

    def _put_many(self, name: str, rows: list[Any]) -> None:
        """Rows in as few statements as there are powers of two in their number: each text is prepared once, and the
        thread gives the interpreter up once per statement, not once per row."""
        many, execute, start = self._many[name], self._write.execute, 0
        while start < len(rows):
            size = min(1 << ((len(rows) - start).bit_length() - 1), ROWS_PER_STATEMENT_MAX)
            execute(many[size], list(chain.from_iterable(rows[start : start + size])))
            start += size

    def _put_runs(self, batch: Batch) -> None:
        new, changes = batch.new_runs, batch.changes
        moved = self._tallies.before(batch)
        self._put_many("add_run", [self._added(run, changes[no]) for no, run in new.items()])
        self._put_many(
            "change_run", [self._changed(no, change) for no, change in changes.items() if no not in new]
        )
        self._tallies.add(moved)
        if any(run.labels is not None for run in new.values()):
            self._tallies.label(batch)

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
            self._tallies.series(new.tenant, new.workflow, new.number),
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
        for tenant, workflow in batch.workflows:
            named = (tenant, workflow.name, workflow.id, workflow.description, workflow.created_at)
            execute(sql["add_workflow"], named)
        for publication in batch.published:
            self._publish(publication)
        for request in batch.requests:
            execute(sql["add_request"], msgspec.structs.astuple(request))

    def _publish(self, publication: Publication) -> None:
        release = publication.release
        named: dict[str, Any] = {
            "tenant": publication.tenant,
            "name": release.name,
            "number": release.number,
            "version": release.version,
        }
        at = {"at": release.created_at}
        self._write.execute(
            self._sql["add_release"], named | at | {"id": release.id, "status": release.status}
        )
        if publication.description is not None:
            described = (publication.tenant, release.name, publication.description)
            self._write.execute(self._sql["describe_workflow"], described)
        if publication.is_current:
            self._write.execute(self._sql["make_current"], named | {"at": publication.at})

    def _put_rest(self, batch: Batch) -> None:
        execute, sql = self._write.execute, self._sql
        if batch.keys:
            Keys(self._write, sql).settle(batch)
        if batch.replies:
            execute(sql["forget_replies"], (batch.replies[-1].created_at - REPLY_MS,))
        records: tuple[tuple[str, Sequence[msgspec.Struct]], ...] = (
            ("put_api_key", batch.api_keys),
            ("put_reply", batch.replies),
            ("put_worker", batch.workers),
            ("put_assignment", batch.assignments),
        )
        for name, structs in records:
            for struct in structs:
                execute(sql[name], msgspec.structs.astuple(struct))
        for name, tuples in (  # after the records: one that was written and is over already is gone
            ("put_blob", batch.blobs),
            ("put_snapshot", batch.snapshots),
            ("put_artefact", batch.artefacts),
            ("put_trace", batch.traces),
            ("forget_key", batch.forgotten_keys),
            ("forget_worker", batch.forgotten_workers),
            ("end_assignment", batch.ended_assignments),
            ("open_wait", batch.opened_waits),
            ("close_wait", batch.closed_waits),
            ("forget_early", batch.expired_early),
            ("put_early", batch.early_results),
            ("take_early", batch.taken_early),
            ("put_letter", batch.letters),
            ("letter_tried", batch.tried),
        ):
            for each in tuples:
                execute(sql[name], each)
        self._forget_runs(batch.forgotten)
        if batch.lane is not None:
            execute(sql["set_lane"], (batch.lane or None, self.node))
        if batch.is_probe:
            execute(sql["probe"])

    def _forget_runs(self, runs: Sequence[RunNo]) -> None:
        self._tallies.without(runs)
        for no in runs:
            for statement in self._forget:
                self._write.execute(statement, (no,))

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
        with self._one_look():
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

    async def ends(self, tenant: str, run_id: RunId) -> Ends | None:
        with self._one_look():
            row = await self.run_by_id(tenant, run_id)
            if row is None:
                return None
            first = await self.journal(row.no, 0, FIRST_ROWS)
            return Ends(row, first, self._read.execute(self._sql["last_row"], (row.no,)).get)

    async def list_runs(
        self, tenant: str, before: RunNo | None, limit: int, wanted: Wanted = EVERY_RUN
    ) -> Listing:
        """Runs, the newest first."""
        with self._one_look():
            found, below = Lists(self._read, self._sql).part(tenant, before, limit, wanted)
            return Listing(self._rows("runs_by_no", msgspec.json.encode(found).decode()), below)

    async def below_runs(
        self, tenant: str, before: RunNo | None, count: int, wanted: Wanted = EVERY_RUN
    ) -> RunNo | None:
        """What a list begins below that leaves out so many runs; None if it has no more than these."""
        with self._one_look():
            return Lists(self._read, self._sql).part(tenant, before, count, wanted)[1]

    async def count_runs(self, tenant: str, wanted: Wanted = EVERY_RUN) -> int:
        """How many runs there are of a status, a workflow, a release: from counters, not by looking at runs."""
        assert wanted.label is None, "labelled runs are not counted"
        return Lists(self._read, self._sql).count(tenant, wanted)

    @contextmanager
    def _one_look(self) -> Iterator[None]:
        """What is read within is of one moment. Nothing in it waits: the connection is everybody's."""
        if not self._read.get_autocommit():  # within a longer look
            yield
            return
        self._read.execute("BEGIN")
        try:
            yield
        finally:
            self._read.execute("ROLLBACK")

    def _rows(self, name: str, *args: Any) -> list[RunRow]:
        return [RunRow(*row) for row in self._read.execute(self._sql[name], args)]

    async def request_of(self, no: RunNo) -> str | None:
        """The caller's own id of the start that made a run, if it had one."""
        found: str | None = self._value(self._read, "request_of", no)
        return found

    async def request(self, tenant: str, request_id: str) -> tuple[str, RunNo, RunId] | None:
        return next(iter(self._read.execute(self._sql["request"], (tenant, request_id))), None)

    async def published(self, tenant: str, name: str) -> tuple[str, str, int] | None:
        """The version that a name means, its definition, and the number of its release."""
        return next(iter(self._read.execute(self._sql["published"], (tenant, name))), None)

    async def workflows(self, tenant: str, after: str, limit: int) -> list[Workflow]:
        found = self._read.execute(self._sql["workflows"], (tenant, after, limit))
        return [Workflow(*row) for row in found]

    async def workflow(self, tenant: str, name: str) -> Workflow | None:
        return self._one("workflow", Workflow, tenant, name)

    async def workflow_by_id(self, tenant: str, flow_id: str) -> Workflow | None:
        return self._one("workflow_by_id", Workflow, tenant, flow_id)

    async def releases(self, tenant: str, name: str, below: int, limit: int) -> list[Release]:
        found = self._read.execute(self._sql["releases"], (tenant, name, below, limit))
        return [Release(*row) for row in found]

    async def release(self, tenant: str, name: str, number: int) -> Release | None:
        return self._one("release", Release, tenant, name, number)

    async def release_by_id(self, tenant: str, release_id: str) -> Release | None:
        return self._one("release_by_id", Release, tenant, release_id)

    async def newest_published(self, tenant: str, name: str) -> Release | None:
        return self._one("newest_published", Release, tenant, name)

    def _one(self, name: str, kind: type[Record], *args: Any) -> Record | None:
        row = next(iter(self._read.execute(self._sql[name], args)), None)
        return None if row is None else kind(*row)

    async def workflow_names(self, tenant: str, limit: int) -> list[str]:
        return [name for (name,) in self._read.execute(self._sql["workflow_names"], (tenant, limit))]

    async def ids_like(self, tenant: str, part: str, limit: int) -> list[RunId]:
        """Runs by the beginning of their id, or, of the newest ones, by its end."""
        found = list(self._read.execute(self._sql["ids_beginning"], (tenant, part, limit)))
        found += self._read.execute(self._sql["ids_ending"], (tenant, part, limit, ENDS_LOOKED_AT_MAX))
        return list(dict.fromkeys(run_id for (run_id,) in found))[:limit]

    async def key_holder(self, tenant: str, scope: str, key: str) -> tuple[RunId, str] | None:
        return next(iter(self._read.execute(self._sql["key_holder"], (tenant, scope, key))), None)

    async def answered_key(self, tenant: str, scope: str, key: str) -> KeyAnswer | None:
        created_at = self._value(self._read, "answered_key", tenant, scope, key)
        return None if created_at is None else KeyAnswer(tenant, scope, key, created_at)

    async def api_keys(self) -> list[ApiKey]:
        return [ApiKey(*row) for row in self._read.execute(self._sql["api_keys"])]

    async def reply(self, tenant: str, route: str, key: str) -> ReplyRow | None:
        return self._one("reply", ReplyRow, tenant, route, key)

    async def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in self._read.execute(self._sql["workers"])]

    async def assignments(self) -> list[AssignmentRow]:
        return [AssignmentRow(*row) for row in self._read.execute(self._sql["assignments"])]

    def _waits(self, name: str, *args: Any) -> list[WaitRow]:
        return [WaitRow(*row) for row in self._read.execute(self._sql[name], args)]

    async def waits_named(self, tenant: str, task_id: str, limit: int) -> list[WaitRow]:
        return self._waits("waits_named", tenant, task_id, limit)

    async def wait_at(self, no: RunNo, path: str, kind: str, attempt: int | None = None) -> WaitRow | None:
        """The wait of an attempt, or of the newest."""
        return next(iter(self._waits("wait_at", no, path, kind, attempt)), None)

    async def waits_of_run(self, no: RunNo, limit: int) -> list[WaitRow]:
        return self._waits("waits_of_run", no, limit)

    async def open_waits(self, tenant: str, kind: str, limit: int) -> list[WaitRow]:
        return self._waits("open_waits", tenant, kind, limit)

    async def early_result(self, tenant: str, task_id: str, now: Millis) -> str | None:
        found: str | None = self._value(self._read, "early_of", tenant, task_id, now)
        return found

    async def count_early(self, tenant: str, now: Millis) -> int:
        return int(self._value(self._read, "count_early", tenant, now))

    async def early_waits(self, limit: int) -> list[WaitRow]:
        """Open waits whose answer is here."""
        return self._waits("early_waits", limit)

    def _letters(self, name: str, args: Any) -> list[Letter]:
        return [Letter(*row) for row in self._read.execute(self._sql[name], args)]

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
        at: Millis | None = self._value(self._read, "next_letter", after)
        return at

    async def letters_of_run(self, no: RunNo) -> list[Letter]:
        return self._letters("letters_of_run", (no,))

    async def dead_letters(self, tenant: str, after: int, limit: int) -> list[Letter]:
        return self._letters("dead_letters", (tenant, after, limit))

    async def letter(self, tenant: str, letter_id: str) -> Letter | None:
        return next(iter(self._letters("letter", (tenant, letter_id))), None)

    async def expired_keys(self, now: Millis, limit: int) -> list[KeyAnswer]:
        return [KeyAnswer(*row) for row in self._read.execute(self._sql["expired_keys"], (now, limit))]

    async def finished_before(self, before: Millis, limit: int) -> list[tuple[RunNo, int]]:
        """Finished runs that ended before then, the oldest first: number, rows."""
        return list(self._read.execute(self._sql["finished_before"], (before, limit)))

    async def names_artefact(self, tenant: str, sha256: str) -> bool:
        """Does some run of the tenant name this artefact?"""
        return bool(self._value(self._read, "names_artefact", sha256, tenant))

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

    async def committed(self, tenant: str, after: int, until: int) -> list[Committed]:
        """The rows of all runs of a tenant after one position and up to another, in the order of their commits."""
        return [Committed(*row) for row in self._read.execute(self._sql["committed"], (after, until, tenant))]

    async def last_pos(self) -> int:
        return int(self._value(self._read, "last_pos"))

    async def trace_of(self, no: RunNo) -> str:
        """The trace that a run was started for, or nothing."""
        return self._value(self._read, "trace_of", no) or ""

    async def resting_runs(self, after: RunNo, limit: int) -> list[tuple[RunNo, bool]]:
        """Open runs that nobody drives and no time wakes, and whether each waits for something with a name."""
        return [
            (no, bool(waits)) for no, waits in self._read.execute(self._sql["resting_runs"], (after, limit))
        ]

    async def owned_runs(self, after: RunNo, limit: int) -> list[tuple[RunNo, int]]:
        """Open runs that somebody drives, and which incarnation of the engine."""
        return list(self._read.execute(self._sql["owned_runs"], (after, limit)))

    async def runs_by_status(self) -> dict[str, int]:
        return dict(self._read.execute(self._sql["runs_by_status"]))

    def sizes(self) -> tuple[int, int]:
        """The bytes of the file, and of the log that is not yet in it."""
        names = (self._read.filename, self._read.filename_wal)
        return tuple(os.path.getsize(name) if name and os.path.exists(name) else 0 for name in names)  # type: ignore[return-value]

    async def next_pos(self, after: int) -> int | None:
        """The first position after this one that still has a row, whoever's it is."""
        pos: int | None = self._value(self._read, "next_pos", after)
        return pos

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

    def newest(self, limit: int) -> list[RunRow]:
        """The newest runs of all tenants."""
        return self._rows("newest_of_all", limit)

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
