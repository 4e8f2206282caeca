"""The store on one SQLite file: binds, runs and maps. Knows no rule of the engine and nothing of PostgreSQL.

One connection writes, on one thread at a time. With `shares_loop`, as in a server, that is a thread of its own always: while the
disk syncs quickly the event loop waits for it, which costs less than being called back, but for WAIT_SECONDS at most, so a disk
that hangs stops commits and nothing else. Without, the loop itself commits while the disk syncs quickly: it has nothing else
to answer, and the two hops take a fifth of such a sync. Another connection reads, on the loop (sqlite_reads.py). WAL and
`synchronous=FULL`: what `submit` reports as done survives a power cut.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Final

import apsw
import msgspec

from holdfast.errors import NodeIsOver, StoreDamaged, StoreGone, StoreUnavailable
from holdfast.signing import new_key
from holdfast.store.base import COPIED, Fenced
from holdfast.store.batch import Batch
from holdfast.store.files import claim, file_of
from holdfast.store.records import KeyEnd, KeyName, NewRun, Publication, ReplyRow, RunChange, Verdict
from holdfast.store.sqlite.feed import RowNumber
from holdfast.store.sqlite.firings import Firings, LostFirings
from holdfast.store.sqlite.lists import Tallies
from holdfast.store.sqlite.mark import Mark, forget_mark, lost, read_mark
from holdfast.store.sqlite.place import Place, is_failed_sync
from holdfast.store.sqlite.reads import SqliteReads
from holdfast.store.statements import owed
from holdfast.values import Millis, RunNo

QUICK_SECONDS: Final = (
    0.005  # while syncing takes longer than this on average, the loop does not wait for a commit
)
WAIT_SECONDS: Final = (
    0.01  # the longest that the loop waits for one: there may be several in one of its turns
)
ROWS_PER_STATEMENT_MAX: Final = 256
MANY_ROWS: Final = (
    "append",
    "add_run",
    "change_run",
    "move_cursor",
    "add_entry",
)  # statements made to take many
WAL_BYTES: Final = 4 * 1024 * 1024  # grown beforehand: a commit then changes no file size
CHECKPOINT_PAGES: Final = 1_000
BUSY_MS_LATER: Final = 50  # how long a commit waits: the committer retries, and no other caller is held up
PROBE_BYTES_MIN: Final = 16
PROBE_BYTES_MAX: Final = 1024 * 1024
REPLY_MS: Final = 24 * 3600 * 1000  # how long a response is kept for repeated requests

ALL: Final = -1  # as a limit

log = logging.getLogger("holdfast")

Done = Callable[[BaseException | None], None]


class SqliteStore(SqliteReads):
    def __init__(
        self,
        path: str,
        *,
        node: str = "local",
        durability: str = "full",
        threads: bool = True,
        shares_loop: bool = False,
        name: str = "",
    ) -> None:
        super().__init__(path)
        self.name = name or path  # what the operator calls it, which may be a link
        self.node, self.durability, self.threads, self.shares_loop = node, durability, threads, shares_loop
        self.server_key = b""
        self._many = {name: _many_rows(self._sql[name]) for name in MANY_ROWS}
        doomed = [name for name in self._sql if name.startswith("forget_run_")]
        doomed.sort(key=lambda name: name == "forget_run_row")  # last: the other statements still need its id
        self._forget = [self._sql[name] for name in doomed]
        self._put_own: dict[str, Callable[[Batch], None]] = {
            "published": self._publish,
            "keys": self._settle_keys,
            "replies": self._put_replies,
            "run_replies": self._put_run_replies,
            "forgotten": self._forget_all,
            "forgotten_schedules": self._forget_schedules,
            "firings": self._put_firings,
        }
        self._last_no = 0
        self._lane: str | None = None
        self._sync_seconds = 0.0
        self._at_work = 0  # batches on their way that the loop does not wait for
        self._wal_pages = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._write: apsw.Connection
        self._writer: (
            apsw.Cursor
        )  # of every commit: to make one for each statement costs as much as a short statement
        self._place: Place
        self._mark: Mark
        self._last_pos = 0  # that the last commit wrote; 0 if it appended to no journal
        self._tallies: Tallies

    # --------------------------------------------------------------------------------------- open and close

    async def open(self) -> None:
        """Bring the file up to date and make it ours: from here on, no process with an older epoch can commit."""
        self.open_file()

    def open_file(self) -> None:
        """The same where no event loop runs."""
        try:
            self._open()
        except apsw.Error as error:
            raise StoreUnavailable(f"{self.path} cannot be opened as a database: {error}") from error
        except OSError as error:
            raise StoreUnavailable(f"{self.path} cannot be written: {error.strerror}") from error

    def _open(self) -> None:
        self._claim()
        self._write = self._connect()
        self._refuse_file_without_log(self._write)
        self._writer = self._write.cursor()
        self._tallies = Tallies(self._write.cursor(), self._sql)
        self._settle()
        self._migrate()
        with self._write:
            self._lane = self._value(self._write, "read_lane", self.node)
            self.epoch = self._value(self._write, "raise_epoch")
            self._write.execute(self._sql["join_node"], (self.node, self.epoch))
            self._write.execute(self._sql["make_server_key"], (new_key(),))
            self.server_key = self._value(self._write, "read_server_key")
            is_moved, is_copy = self._note_place()
        if is_moved:  # written into the file now: it has to say so if it is opened without its log
            self._write.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        self._read_with(self._connect())
        self._last_no = self._value(self._read, "last_no")
        self._write.set_busy_timeout(BUSY_MS_LATER)
        self._grow_wal()
        self._watch_files(is_copy=is_copy)
        self._write.set_wal_hook(self._note_pages)
        if self.threads:
            self._start_writer()

    def _claim(self) -> None:
        self._recognise()
        claim(self._file)

    def _watch_files(self, *, is_copy: bool) -> None:
        self._place = Place(self._write, file_of(self.name))
        self._begin_mark(is_copy=is_copy)

    def _start_writer(self) -> None:
        """Now, and not with the first slow commit: then there might be no thread left to have."""
        self._thread = threading.Thread(target=self._run, name="holdfast-writer", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            raise StoreUnavailable(
                f"the thread that writes {self.path} cannot be started ({error}): "
                "the limit of processes or memory is reached; see ulimit -u"
            ) from error

    def _note_place(self) -> tuple[bool, bool]:
        """Has the file another name than last time? And is it a copy of another, which may be in use? Then say so."""
        name = self._write.filename
        is_moved = self._value(self._write, "read_place_name") != name
        if is_moved:
            self._write.execute(self._sql["set_place_name"], (name,))
        inode, known = os.stat(self._file).st_ino, self._value(self._write, "read_place")
        is_copy = known not in (None, inode)
        if is_copy:
            log.warning("%s", COPIED.format(path=self.path))
        self._write.execute(self._sql["set_place"], (inode,))
        return is_moved, is_copy

    def _begin_mark(self, *, is_copy: bool) -> None:
        """A copy that was put in the place of a database is behind it, as was meant."""
        end = RowNumber(int(self._value(self._read, "last_pos")))
        marked = None if is_copy else read_mark(self._file)
        acknowledged = end if marked is None else marked.upto
        if why := lost(self.path, acknowledged, end):
            if self.durability == "full":
                self._place.condemn(why)
            else:
                log.warning("%s", why)
        self._mark = Mark(self._file, max(end, acknowledged).pos)

    async def close(self) -> None:
        self.close_file()

    def abandon(self) -> None:
        """Let the file go where no caller waits for that, as after a crash."""
        self.close_file()

    def close_file(self) -> None:
        """The same as `close` where no event loop runs."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
        self._end_look()
        self._read.close()
        if self.epoch:  # else it was opened to be read
            is_sound = self._place.close()
            self._mark.close()
            self._write.close()
            if is_sound and not os.path.exists(self._place.log_path):
                forget_mark(self._file)  # all is in the file

    def was_touched(self) -> bool:
        """May another program have written to the file since this was last asked?"""
        was, self._place.was_touched = self._place.was_touched, False
        return was

    def problem(self) -> StoreGone | None:
        """What is wrong with the files of the database."""
        self._end_look()
        return self._place.problem(self._read)

    def condemn(self, why: str, db: apsw.Connection | None = None) -> StoreDamaged:
        """Write nothing more to a database that is damaged; where its files were tampered with, that is the reason. The
        connection is the one that the calling thread may use."""
        found = self._place.problem(db or self._read)
        return self._place.condemn(str(found) if isinstance(found, StoreDamaged) else why)

    def _settle(self) -> None:
        db = self._write
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "NORMAL" if self.durability == "relaxed" else "FULL")
        if sys.platform == "darwin":
            db.pragma("fullfsync", True)
        db.wal_autocheckpoint(0)  # it would swallow a failed sync; see _checkpoint

    def _migrate(self) -> None:
        done = self._schema(self._write)
        scripts = owed("sqlite", done)
        if done and scripts:
            self._keep_copy(done)
        for number, script in scripts:
            with self._write:
                self._write.execute(script)
                self._write.execute(self._sql["set_schema_version"], (number,))
        if scripts:  # a database that loses its WAL still says what it is
            self._write.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _keep_copy(self, schema: int) -> None:
        """The file as an older release left it, beside it, before anything of it is changed: the way back."""
        kept = f"{self._write.filename}.schema-{schema:03}"
        partial = f"{kept}.partial"
        if os.path.exists(partial):
            os.unlink(partial)
        self._read_with(self._connect(apsw.SQLITE_OPEN_READONLY))
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

    # ---------------------------------------------------------------------------------------------- writing

    def isolated_of_former(self) -> str | None:
        return self._lane

    def next_no(self) -> RunNo:
        self._last_no += 1
        return RunNo(self._last_no)

    def submit(self, batch: Batch, done: Done) -> None:
        self._end_look()  # else it would keep the log from being moved into the file
        is_quick = self._sync_seconds < QUICK_SECONDS and not batch.forgotten  # a run has any number of rows
        may_wait = is_quick and not self._at_work
        if not self.threads or (may_wait and not self.shares_loop):
            return done(self._try(batch))
        commit = _Commit(batch)
        self._work.put(partial(self._write_one, commit))
        if may_wait and commit.is_over.acquire(timeout=WAIT_SECONDS):
            return done(commit.error)
        self._at_work += 1

        def finish() -> None:
            self._at_work -= 1
            self._end_look()  # readers that are notified of this commit see it
            done(commit.error)

        # The thread takes one piece of work after the other: when it reaches this one, the commit is done.
        self._work.put(partial(_call, asyncio.get_running_loop(), finish))

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()
            work = None  # what it has written may be large, and the next work may come late

    def _write_one(self, commit: _Commit) -> None:
        commit.error = self._try(commit.batch)
        commit.is_over.release()

    def _try(self, batch: Batch) -> BaseException | None:
        """The outcome of a commit. Every exception is an outcome: the thread survives, and the committer is notified."""
        try:
            self._place.check_before_commit()
            if self._wal_pages > CHECKPOINT_PAGES:
                self._place.check()
                self._checkpoint()  # before it: a reader sees all that is in the log now, and holds none of it back
            self._commit(batch)
            self._place.check_after_commit()
            self._mark.note(self._last_pos)
        except BaseException as error:
            try:
                return self._meaning(error, batch)
            except Exception as second:
                return StoreUnavailable(f"the database cannot be written now: {error}; {second}")
        return None

    def _note_pages(self, db: apsw.Connection, name: str, pages: int) -> int:
        self._wal_pages = pages
        self._place.logged(pages)
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Move the log into the file. Whatever stops that may pass, and what was committed stands; only a failed sync is final."""
        try:
            self._write.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            if is_failed_sync(error):
                raise
        self._place.checkpointed()
        self._wal_pages = 0

    def _commit(self, batch: Batch) -> None:
        db, execute = self._write, self._writer.execute
        if not db.get_autocommit():  # the last one failed, and so did taking it back
            execute("ROLLBACK")
        execute("BEGIN IMMEDIATE")
        try:
            if execute(self._sql["read_epoch"]).get != self.epoch:
                raise NodeIsOver("another process has taken this file over; this one can write nothing more")
            self._put_many("append", batch.rows)
            pos = db.last_insert_rowid() if batch.rows else 0
            if batch.new_runs or batch.changes:
                self._put_runs(batch)
            if batch.has_rest:
                self._put_rest(batch)
            began = time.perf_counter()
            execute("COMMIT")
            self._sync_seconds += 0.1 * (time.perf_counter() - began - self._sync_seconds)
            self._last_pos = pos
        except BaseException:
            if not db.get_autocommit():
                execute("ROLLBACK")
            self._tallies.forget()
            raise

    def _put_many(self, name: str, rows: list[Any]) -> None:
        """Write rows in as few statements as there are powers of two in their number: each text is prepared once, and
        the thread gives the interpreter up once per statement, not once per row."""
        many, execute, start = self._many[name], self._writer.execute, 0
        if len(rows) == 1:
            execute(many[1], rows[0])
            return
        while start < len(rows):
            size = min(1 << ((len(rows) - start).bit_length() - 1), ROWS_PER_STATEMENT_MAX)
            execute(many[size], list(chain.from_iterable(rows[start : start + size])))
            start += size

    def _put_runs(self, batch: Batch) -> None:
        new, changes = batch.new_runs, batch.changes
        moved = self._tallies.before(batch)
        if new:
            self._put_many("add_run", [self._added(run, changes[no]) for no, run in new.items()])
        if len(changes) > len(new):
            known = [self._changed(no, change) for no, change in changes.items() if no not in new]
            self._put_many("change_run", known)
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
            new.series,
            new.schedule,
            new.slot,
            new.is_catchup,
        )
        return (*identity, change.needs, *rest)

    def _changed(self, no: RunNo, change: RunChange) -> tuple[Any, ...]:
        owner = (self.node, self.epoch) if change.owned else (None, None)
        return (no, change.status, *owner, change.epoch, change.wake_at, change.needs, change.finished_at)

    def _publish_one(self, publication: Publication) -> None:
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
        """What few commits have, field by field."""
        for field in batch.fields():
            rows = getattr(batch, field.name)
            if field.statement:
                self._writer.executemany(
                    self._sql[field.statement], map(field.values, rows) if field.values else rows
                )
            else:
                self._put_own[field.name](batch)
        if batch.isolated is not None:
            self._write.execute(self._sql["set_lane"], (batch.isolated or None, self.node))
        if batch.fatal_runs is not None:
            self._write.execute(self._sql["set_deaths"], (batch.fatal_runs,))
        if batch.awake_at is not None:
            self._write.execute(self._sql["set_awake"], (batch.awake_at,))
        if batch.outages is not None:
            self._write.execute(self._sql["set_outages"], (batch.outages,))
        if batch.is_probe:
            size = min(max(batch.probe_bytes, PROBE_BYTES_MIN), PROBE_BYTES_MAX)
            self._write.execute(self._sql["probe"], (size,))

    def _settle_keys(self, batch: Batch) -> None:
        Keys(self._write, self._sql).settle(batch)

    def _publish(self, batch: Batch) -> None:
        for publication in batch.published:
            self._publish_one(publication)

    def _put_replies(self, batch: Batch) -> None:
        self._keep_replies(batch.replies)

    def _put_run_replies(self, batch: Batch) -> None:
        self._keep_replies([row for _, row in batch.run_replies])

    def _keep_replies(self, rows: list[ReplyRow]) -> None:
        self._write.execute(self._sql["forget_replies"], (rows[-1].created_at - REPLY_MS,))
        self._write.executemany(self._sql["put_reply"], map(msgspec.structs.astuple, rows))

    def _forget_all(self, batch: Batch) -> None:
        self._forget_runs(batch.forgotten)

    def _forget_runs(self, runs: Sequence[RunNo]) -> None:
        self._tallies.without(runs)
        for no in runs:
            for statement in self._forget:
                self._write.execute(statement, (no,))

    def _forget_schedules(self, batch: Batch) -> None:
        for name in ("forget_schedule", "forget_cursors", "forget_buffered"):
            self._writer.executemany(self._sql[name], batch.forgotten_schedules)

    def _put_firings(self, batch: Batch) -> None:
        Firings(self._writer, self._sql, self._put_many).put(batch.firings)

    def _meaning(self, error: BaseException, batch: Batch) -> BaseException:
        """What a failure means to the committer: fenced off, to be retried later, or a bug in Holdfast."""
        if isinstance(error, apsw.ConstraintError):
            taken = self._taken(batch)
            return Fenced(taken) if taken else error
        if isinstance(error, LostFirings):
            return Fenced([], Firings(self._writer, self._sql, self._put_many).lost(batch.firings))
        if is_failed_sync(error):
            return SystemExit("the disk did not sync: what it holds is unknown, and going on could lose data")
        return self._in_our_words(error, "written", self._write)

    def _taken(self, batch: Batch) -> list[RunNo]:
        runs: dict[int, None] = {}
        for run, seq, *_ in batch.rows:
            if next(iter(self._write.execute(self._sql["rows_of"], (run, seq - 1, 1))), (0,))[0] == seq:
                runs[run] = None
        return [RunNo(run) for run in runs]


class _Commit:
    """One batch on its way through the writer's thread. `error` is its outcome once `is_over` can be acquired."""

    __slots__ = ("batch", "error", "is_over")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.error: BaseException | None = None
        self.is_over = threading.Lock()
        self.is_over.acquire()


def _call(loop: asyncio.AbstractEventLoop, finish: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: no caller is left
        loop.call_soon_threadsafe(finish)


class Keys:
    """Idempotency keys within one commit: a requester gets the key, waits, or receives the stored output; a release passes it on."""

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


def _many_rows(statement: str) -> dict[int, str]:
    """A statement that takes one row of values, made to take 1, 2, 4 … of them."""
    head, row, tail = re.split(r"(?<=VALUES )(\([?, ]+\))", statement, maxsplit=1)
    sizes = [1 << power for power in range(ROWS_PER_STATEMENT_MAX.bit_length())]
    return {size: head + ",".join([row] * size) + tail for size in sizes} | {1: _of_one(statement)}


def _of_one(statement: str) -> str:
    """An update from a table of values, made to take one row: SQLite would make two temporary tables for it."""
    return re.sub(r"\bb\.column(\d+)", r"?\1", re.sub(r"\s+FROM \(VALUES .*\) AS b\b", "", statement))
