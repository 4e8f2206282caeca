"""The store on one SQLite file: opens the file and commits batches, on a separate thread where needed. Knows no rule of the engine.

One connection writes, on one thread at a time. With `shares_loop`, as in a server, this is always a separate thread. While the
disk syncs quickly, the event loop waits for that thread, because a callback would cost more; it waits at most WAIT_SECONDS, so a
disk that hangs blocks commits and nothing else. Without `shares_loop`, the loop commits by itself while the disk syncs quickly: it
has no other requests to serve, and the two thread switches would add a fifth. A second connection reads, on the loop (asking.py). WAL and
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
from holdfast.store.sqlite.mark import Mark, behind, lost, read_mark
from holdfast.store.sqlite.place import Place, is_failed_sync
from holdfast.store.sqlite.upkeep import SqliteUpkeep
from holdfast.store.sqlite.writes import Writes
from holdfast.store.statements import owed
from holdfast.values import RunNo

# The loop does not wait for commits while a sync takes longer than this on average. A server that answers requests has other work
# meanwhile, so it waits less; below a millisecond, sharing the interpreter with the thread costs more than waiting for it.
QUICK_SECONDS: Final = 0.005
QUICK_SECONDS_SHARED: Final = 0.001
WAIT_SECONDS: Final = (
    0.01  # the longest that the loop waits for one commit: one turn of the loop may have several
)
WAL_BYTES: Final = 4 * 1024 * 1024  # allocated in advance: a commit then changes no file size
CHECKPOINT_PAGES: Final = 1_000
BUSY_MS_LATER: Final = 50  # how long a commit waits for another writer; the committer retries, so that other callers are not blocked

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
        self.name = name or path  # the name that the operator uses; may be a symbolic link
        self.node, self.durability, self.threads, self.shares_loop = node, durability, threads, shares_loop
        self.server_key = b""
        self._last_no = 0
        self._sync_seconds = 0.0
        self._at_work = 0  # batches in progress that the loop does not wait for
        self._wal_pages = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._write: apsw.Connection
        self._writer: apsw.Cursor  # executes the statements that begin and end a commit
        self._place: Place
        self._mark: Mark
        self._last_pos = 0  # the newest journal position of the last commit; 0 if it wrote none
        self._writes: Writes

    # --------------------------------------------------------------------------------------- open and close

    async def open(self) -> None:
        """Migrate the file and claim it: from now on, no process with an older epoch can commit."""
        self.open_file()

    def open_file(self) -> None:
        """Open the file without an event loop."""
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
        self._refuse_moved(self._write)
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
        if is_moved:  # so that the new name is known even without the WAL
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
        """Start the writer thread when the store opens: at the first slow commit the process may be out of threads."""
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
        """Return whether the file has another name than when it was last opened, and whether it is a copy of another database. Log a
        warning for a copy, because the original may be in use."""
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
        """Begin to record the acknowledged position. A restored copy has older commits on purpose, which is only reported."""
        end, epoch = self._reached()
        marked, pos, why = read_mark(self._file, self.server_key), end.pos, ""
        if marked is not None and is_copy:
            if older := behind(self.path, marked.acknowledged, end):
                log.warning("%s", older)
        elif marked is not None and marked.is_of_this_file:
            why = lost(self.path, marked.acknowledged, end, epoch - 1)
            pos = max(end.pos, marked.pos)
        if why and self.durability == "full":
            self._place.condemn(why)
            epoch += 1  # so that the next start finds it too
        elif why:
            log.warning("%s", why)
        self._mark = Mark(self._file, self.server_key, pos, epoch)

    async def close(self) -> None:
        self.close_file()

    def abandon(self) -> None:
        """Close the file when no caller waits for it, as after a crash."""
        self.close_file()

    def close_file(self) -> None:
        """Close the file without an event loop."""
        if self._thread is not None:
            self._work.put(None)
            self._thread.join()
            self._thread = None
        self._end_look()
        self._read.close()
        if self.epoch:  # otherwise it was opened only to read
            self._place.close()
            self._mark.close()
            self._write.close()

    def was_touched(self) -> bool:
        """Return whether another program may have written to the file since the last call."""
        was, self._place.was_touched = self._place.was_touched, False
        return was

    def problem(self) -> StoreGone | None:
        """What is wrong with the files of the database."""
        self._end_look()
        return self._place.problem(self._read)

    def condemn(self, why: str, db: apsw.Connection | None = None) -> StoreDamaged:
        """Stop writing to a damaged database. If its files were tampered with, that is given as the reason. `db` is the
        connection that the calling thread may use."""
        found = self._place.problem(db or self._read)
        return self._place.condemn(str(found) if isinstance(found, StoreDamaged) else why)

    def _settle(self) -> None:
        db = self._write
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "NORMAL" if self.durability == "relaxed" else "FULL")
        if sys.platform == "darwin":
            db.pragma("fullfsync", True)
        db.wal_autocheckpoint(0)  # an automatic checkpoint would hide a failed sync; see _checkpoint

    def _migrate(self) -> None:
        done = self._schema(self._write)
        scripts = owed("sqlite", done)
        if done and scripts:
            self._keep_copy(done)
        for number, script in scripts:
            with self._write:
                self._write.execute(script)
                self._write.execute(self._sql["set_schema_version"], (number,))
        if scripts:  # so that the schema version is known even if the WAL is lost
            self._write.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def _keep_copy(self, schema: int) -> None:
        """Copy the file of an older release before it is migrated, so that the operator can return to that release."""
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
        """Extend the WAL with zeros. SQLite ignores zeros after the last frame and overwrites them later."""
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
        self._end_look()  # an open snapshot would keep the WAL from being checkpointed
        most = QUICK_SECONDS_SHARED if self.shares_loop else QUICK_SECONDS
        is_quick = self._sync_seconds < most and not batch.forgotten  # a run may have any number of rows
        may_wait = is_quick and not self._at_work
        if not self.threads or (may_wait and not self.shares_loop):
            return done(self.write_now(batch))
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
            work = None  # frees a batch that may be large before the thread waits for the next one

    def _write_one(self, commit: _Commit) -> None:
        commit.error = self.write_now(commit.batch)
        commit.is_over.release()

    def write_now(self, batch: Batch) -> BaseException | None:
        """The outcome of a commit. Every exception is an outcome: the thread survives, and the committer is notified."""
        try:
            self._place.check_before_commit()
            if self._wal_pages > CHECKPOINT_PAGES:
                self._place.check()
                self._checkpoint()  # before the commit: readers then see everything that is in the WAL now, so none of it is kept back
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
        """Move the WAL into the file. Errors are temporary and lose no commit, except for a failed sync, which is fatal."""
        try:
            self._write.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            if is_failed_sync(error):
                raise
        self._place.checkpointed()
        self._wal_pages = 0

    def _commit(self, batch: Batch) -> None:
        db, execute = self._write, self._writer.execute
        if not db.get_autocommit():  # the last commit failed, and so did its rollback
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
        return self._meaning_of(error, "written", self._write)


class _Commit:
    """One batch on the writer thread. `error` is its outcome once `is_over` can be acquired."""

    __slots__ = ("batch", "error", "is_over")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.error: BaseException | None = None
        self.is_over = threading.Lock()
        self.is_over.acquire()


def _call(loop: asyncio.AbstractEventLoop, finish: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed, so no caller waits
        loop.call_soon_threadsafe(finish)
