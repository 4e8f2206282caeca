"""The store on one SQLite file: opens it, and commits batches, on a thread of its own if it must. Knows no rule of the engine.

One connection writes, on one thread at a time. With `shares_loop`, as in a server, that is a thread of its own always: while the
disk syncs quickly the event loop waits for it, which costs less than being called back, but for WAIT_SECONDS at most, so a disk
that hangs stops commits and nothing else. Without, the loop itself commits while the disk syncs quickly: it has nothing else
to answer, and the two hops take a fifth of such a sync. Another connection reads, on the loop (asking.py). WAL and
`synchronous=FULL`: what `submit` reports as done survives a power cut.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import apsw

from holdfast.errors import NodeIsOver, StoreDamaged, StoreGone, StoreUnavailable
from holdfast.signing import new_key
from holdfast.store.base import COPIED
from holdfast.store.batch import Batch
from holdfast.store.files import claim, file_of
from holdfast.store.sqlite.feed import RowNumber
from holdfast.store.sqlite.mark import Mark, forget_mark, lost, read_mark
from holdfast.store.sqlite.place import Place, is_failed_sync
from holdfast.store.sqlite.upkeep import SqliteUpkeep
from holdfast.store.sqlite.writes import Writes
from holdfast.store.statements import owed
from holdfast.values import RunNo

QUICK_SECONDS: Final = (
    0.005  # while syncing takes longer than this on average, the loop does not wait for a commit
)
WAIT_SECONDS: Final = (
    0.01  # the longest that the loop waits for one: there may be several in one of its turns
)
WAL_BYTES: Final = 4 * 1024 * 1024  # grown beforehand: a commit then changes no file size
CHECKPOINT_PAGES: Final = 1_000
BUSY_MS_LATER: Final = 50  # how long a commit waits: the committer retries, and no other caller is held up

log = logging.getLogger("holdfast")

Done = Callable[[BaseException | None], None]


class SqliteStore(SqliteUpkeep):
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
        self._last_no = 0
        self._sync_seconds = 0.0
        self._at_work = 0  # batches on their way that the loop does not wait for
        self._wal_pages = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._write: apsw.Connection
        self._writer: apsw.Cursor  # of what begins and ends every commit
        self._place: Place
        self._mark: Mark
        self._last_pos = 0  # that the last commit wrote; 0 if it appended to no journal
        self._writes: Writes

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
        self._settle()
        self._migrate()
        with self._write:
            self._lane = self._value(self._write, "read_lane", self.node)
            self.epoch = self._value(self._write, "raise_epoch")
            self._write.execute(self._sql["join_node"], (self.node, self.epoch))
            self._write.execute(self._sql["make_server_key"], (new_key(),))
            self.server_key = self._value(self._write, "read_server_key")
            is_moved, is_copy = self._note_place()
        self._writes = Writes(self._write, self._sql, self.node, self.epoch)
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
            pos = self._writes.put(batch)
            began = time.perf_counter()
            execute("COMMIT")
            self._sync_seconds += 0.1 * (time.perf_counter() - began - self._sync_seconds)
            self._last_pos = pos
        except BaseException:
            if not db.get_autocommit():
                execute("ROLLBACK")
            self._writes.forget()
            raise

    def _meaning(self, error: BaseException, batch: Batch) -> BaseException:
        """What a failure means to the committer: fenced off, to be retried later, or a bug in Holdfast."""
        if (fenced := self._writes.fenced(error, batch)) is not None:
            return fenced
        if is_failed_sync(error):
            return SystemExit("the disk did not sync: what it holds is unknown, and going on could lose data")
        return self._in_our_words(error, "written", self._write)


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
