"""Who owns a file and its runs: the OS lock, and taking up what a former owner left. Not what a run does.

The lock is the kernel's and ends with the process, however that ends. It only keeps two engines apart politely; what
makes a stale one harmless is the epoch that every commit reads.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import Final

import msgspec

from holdfast.engine.events import Adopted, StepPaused
from holdfast.errors import DatabaseInUse, StoreUnavailable
from holdfast.execution.dispatcher import Dispatch
from holdfast.runtime.door import Advance, Live
from holdfast.store.base import Store
from holdfast.store.files import FILE_MODE, NOT_REGULAR, is_regular, other_names
from holdfast.values import Millis, RunNo

log = logging.getLogger("holdfast")

ADOPT_BATCH: Final = 500  # runs taken up between two looks at the loop

LOSSES_LOGGED_MAX: Final = 10  # of one run
LARGE_BYTES: Final = 64 * 1024  # of a run that takes some milliseconds to take up
LOADED_AT_ONCE: Final = 50  # of those that are due, with the same questions
WOKEN_BYTES_MAX: Final = 4 * 1024 * 1024  # of their journals, between two looks at the loop
LOOKS: Final = 3  # at the kernel's list of locks

NETWORK_FILESYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "webdav", "fuse.sshfs", "glusterfs", "ceph", "lustre"}
)


class Lock:
    """One engine process per file. The lock file says whose it is, and where that one can be reached.

    The database itself is locked too, by device and inode: a hard link is another name, but the same file.
    """

    def __init__(self, database: str, address: str | None = None) -> None:
        self.database, self.path = database, f"{database}.lock"
        self._address = address
        self._fd = self._database_fd = -1
        self._is_held = False

    def take(self) -> None:
        kind = _filesystem_of(os.path.dirname(os.path.abspath(self.path)))
        if kind in NETWORK_FILESYSTEMS:
            raise DatabaseInUse(
                f"{self.path} would be on a network file system ({kind}), where locks do not hold; use a local disk"
            )
        if not is_regular(self.database):
            raise StoreUnavailable(NOT_REGULAR.format(path=self.database))
        try:
            self._take()
        except OSError as error:
            self.free()
            raise StoreUnavailable(_unwritable(self.database, error)) from error
        except DatabaseInUse:
            self.free()
            raise

    def _take(self) -> None:
        self._fd = _locked(self.path, lambda: _in_use(self.database, read_lock(self.path)))
        if sys.platform == "linux":  # elsewhere such a lock would stand in the way of SQLite's own
            self._lock_database()
        for name in other_names(self.database):
            if os.path.exists(f"{name}-wal"):
                raise DatabaseInUse(
                    f"{self.database} is the same file as {name}, whose log {name}-wal has commits in it; "
                    f"use it by that name: --db {name}"
                )
        if not os.access(os.path.dirname(os.path.abspath(self.path)), os.W_OK):
            raise PermissionError(errno.EACCES, "its folder cannot be written, and SQLite makes files there")
        self._is_held = True
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, msgspec.json.encode({"pid": os.getpid(), "address": self._address}), 0)

    def _lock_database(self) -> None:
        """Where the file has one name, the lock file alone decides: an operator may delete that to take a database from a
        process that hangs, which the epoch makes harmless."""
        try:
            self._database_fd = _locked(
                self.database, lambda: _in_use(self.database, holder_of(self.database))
            )
        except DatabaseInUse:
            if os.stat(self.database).st_nlink > 1:
                raise
            log.warning("%s is taken over from a process that still has it open", self.database)

    def free(self) -> None:
        """To be called when the database is closed: to close another descriptor of it would free SQLite's locks."""
        if self._database_fd >= 0:
            os.close(self._database_fd)
            self._database_fd = -1
        if self._fd >= 0:
            if self._is_held:
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


def _locked(path: str, in_use: Callable[[], str]) -> int:
    """The file, made if it is not there, and locked for this process."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise DatabaseInUse(in_use()) from None
    return fd


def _unwritable(database: str, error: OSError) -> str:
    folder = os.path.dirname(os.path.abspath(database))
    why = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        return f"the database {database} cannot be made: there is no folder {folder}; make it, or use another with --db"
    if error.errno == errno.EROFS:
        hint = "it is on a file system that is mounted read-only"
    elif error.errno == errno.ENOSPC:
        hint = "free some space on its disk"
    else:
        hint = f"give this user the right to write to it and to {folder}"
    return f"the database {database} cannot be written: {why}; {hint}, or use another file with --db"


def read_lock(path: str) -> dict[str, object]:
    """Who holds the lock: pid, and address if it serves one; empty if nobody says so."""
    try:
        with open(path, "rb") as file:
            found: dict[str, object] = msgspec.json.decode(file.read() or b"{}", type=dict[str, object])
            return found
    except (OSError, msgspec.DecodeError):
        return {}


def holder_of(database: str) -> dict[str, object]:
    """Who has a file now, under any of its names, without asking for the lock: empty if no process does, whatever a killed
    process left written."""
    for name in (database, *other_names(database)):
        holder = read_lock(f"{name}.lock")
        if holder and _is_locked(f"{name}.lock", holder.get("pid")):
            return holder
    return {}


def _is_listed(number: str) -> bool:
    with open("/proc/locks", encoding="ascii") as locks:  # where the kernel tells (Linux)
        return any("FLOCK" in line and line.split()[5].endswith(f":{number}") for line in locks)


def _is_locked(path: str, pid: object) -> bool:
    try:
        number = str(os.stat(path).st_ino)
        # The kernel hands the list out in pieces, and one that changes meanwhile may leave an entry out: look again.
        return any(_is_listed(number) for _ in range(LOOKS))
    except OSError:
        pass
    try:
        os.kill(pid if isinstance(pid, int) else 0, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _in_use(database: str, holder: dict[str, object]) -> str:
    pid = holder.get("pid", "unknown")
    where = f" at {holder['address']}" if holder.get("address") else ", which serves no address"
    return f"{database} is in use by process {pid}{where}; stop it first, or use another file with --db"


def _filesystem_of(folder: str) -> str:
    """The type of the file system that a folder is on, where the machine tells (Linux)."""
    best, kind = "", ""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                _, point, found, *_ = line.split(" ")
                inside = folder == point or folder.startswith(point.rstrip("/") + "/")
                if inside and len(point) >= len(best):
                    best, kind = point, found
    except OSError:
        return ""
    return kind


BringIn = Callable[[RunNo], Awaitable[tuple[Live | None, bool]]]  # and whether it was this call that did
BringInMany = Callable[[Sequence[RunNo]], Awaitable[list[Live]]]


class Owners:
    """Takes runs up: those left behind by a former process, those that are due, those whose tool is here now."""

    def __init__(
        self,
        store: Store,
        advance: Advance,
        dispatch: Dispatch,
        bring_in: BringIn,
        bring_in_many: BringInMany,
        fire: Callable[[RunNo], None],
        held_back: Callable[[], int],
        held: set[RunNo],
        loading: Sized,
        *,
        resident: int,
    ) -> None:
        self._store, self._advance, self._dispatch = store, advance, dispatch
        self._bring_in, self._bring_in_many = bring_in, bring_in_many
        self._fire, self._held_back = fire, held_back
        self._resident, self._loading = resident, loading
        self.held = held  # runs that a process may have died of: the others go first
        self._passed_over: list[RunNo] = []  # of these, what was left behind
        self._lane = store.lane_of_former()
        self._cursor: RunNo | None = RunNo(
            0
        )  # where the search for runs left behind is; None when it is over
        self._more_due = False

    @property
    def room(self) -> int:
        """How many more runs may be in memory."""
        return self._resident - len(self._advance.live) - len(self._loading)

    @property
    def has_more(self) -> bool:
        """There are runs to take up, for which there was no room."""
        return self._cursor is not None or self._more_due

    async def interrupt(self) -> None:
        """End the runs that ask not to survive a restart, parked ones too."""
        after = RunNo(0)
        while found := await self._store.interruptible(after, ADOPT_BATCH):
            for no in found:
                await self.adopt(no, restarted=True)
            await self._advance.drained()
            after = found[-1]

    async def supply(self, has: Callable[[str], bool]) -> None:
        """Take up the runs that wait for a tool which this node has."""
        after = RunNo(0)
        while found := await self._store.in_need(after, ADOPT_BATCH):
            for no, needs in found:
                if no not in self.held and all(map(has, msgspec.json.decode(needs, type=list[str]))):
                    await self.adopt(no)
            await self._advance.drained()
            after = found[-1][0]

    async def fill(self, now: Millis) -> bool:
        """Take up as many runs as there is room for: first what was left behind, then what is due. Was there any?"""
        room, taken = min(self.room, self._dispatch.free_places, ADOPT_BATCH), 0
        if self._cursor is not None and room > 0:
            taken += await self._take_left_behind(self._cursor, room)
        if not self.held:
            taken += await self._take_passed_over()
        self._more_due = True
        room = min(self.room, ADOPT_BATCH)  # a timer needs no place; what it starts waits for one
        if room > 0:
            set_aside = self._advance.quarantined
            stay_due = (
                len(set_aside) + len(self.held) + self._held_back()
            )  # others must not stand in line behind them
            found = await self._store.due(now, room + stay_due)
            due = [no for no in found if no not in set_aside and no not in self.held]
            room = min(self.room, room)  # runs may have begun while it was read
            self._more_due = len(due) >= room
            taken += await self._wake_due([no for no in due if no not in self._advance.live][: max(0, room)])
        return taken > 0

    async def _take_left_behind(self, after: RunNo, room: int) -> int:
        found = await self._store.left_behind(after, room)
        for no in found:
            if self.room <= 0:
                return len(found)  # runs have begun meanwhile: the next look goes on from here
            if no in self.held:
                self._passed_over.append(no)
            elif no not in self._advance.live:
                live = await self.adopt(no, restarted=True)
                if live is not None and live.bytes > LARGE_BYTES:
                    await asyncio.sleep(0)
            self._cursor = no  # where a read fails, the next look begins again
        if len(found) < room:
            self._cursor = None
        return len(found)

    def let_go(self) -> None:
        """Those that were held are taken up with the next look."""
        self.held = set()

    async def _take_passed_over(self) -> int:
        """One after the other: what was decided of the others is durable before each."""
        count = len(self._passed_over)
        while self._passed_over:
            await self._advance.drained()
            await self.adopt(self._passed_over[0], restarted=True)
            del self._passed_over[0]
        return count

    async def _wake_due(self, due: list[RunNo]) -> int:
        woken = size = 0
        for start in range(0, len(due), LOADED_AT_ONCE):
            if self.room <= 0:  # runs have begun meanwhile
                self._more_due = True
                break
            asked = due[start : start + min(LOADED_AT_ONCE, self.room)]
            for live in await self._bring_in_many(asked):
                size += live.journal_bytes
                if not await self._begins_what_is_ready(live):
                    self._fire(live.run.no)
                woken += 1
            if size > WOKEN_BYTES_MAX:
                self._more_due = True
                break
        return woken

    async def adopt(self, no: RunNo, *, drive: bool = True, restarted: bool = False) -> Live | None:
        """Make a run ours by a row of its own: whoever had it can never append to it again.

        Nothing of it moves before that row: its timers and suspects get their turn when the row is durable.
        """
        live, is_ours = self._advance.live.get(no), True
        if live is None:
            live, is_ours = await self._bring_in(no)
        if live is None or live.run.over or not is_ours:  # or another part has taken it up meanwhile
            return live
        live.epoch += 1
        held = set(self._dispatch.workers.held(no))
        begun = list(live.run.open_attempts())
        here = self._dispatch.attempts_of(no) if begun else ()
        gone = [
            (path, step)
            for path, step in begun
            if (no, path, step.attempt) not in held and (path, step.attempt) not in here
        ]
        # One that was answered before it could say that it would be is not lost: it has its answer.
        answered = [
            (path, step.attempt) for path, step in gone if step.parked is not None and step.target is None
        ]
        lost = [path for path, step in gone if step.parked is None or step.target is not None]
        run_id, _, path = (self._lane or "").partition(" ")
        alone = path if run_id == live.run.id and path in lost else ""
        self._log_losses(live, lost, alone)
        self._advance.offer(live, Adopted(lost, alone, drive, restarted))
        if drive:
            for path, attempt in answered:
                self._advance.offer(live, StepPaused(path, attempt, ""))
        if held:
            self._dispatch.rejoin(live)
        return live

    async def wake(self, no: RunNo, *, drive: bool = True) -> Live | None:
        """Bring a parked run back; its first row makes it ours. One that has something ready begins it."""
        live, is_ours = await self._bring_in(no)
        if live is not None and not live.run.over and is_ours:
            await self._begins_what_is_ready(live, drive=drive)
        return live

    async def _begins_what_is_ready(self, live: Live, *, drive: bool = True) -> bool:
        run = live.run
        if run.status == "pending" or run.active or run.todo or run.waits_for_key():
            await self.adopt(run.no, drive=drive)
            return True
        live.epoch += 1
        return False

    def _log_losses(self, live: Live, lost: list[str], alone: str) -> None:
        for path in lost[:LOSSES_LOGGED_MAX]:
            attempt = live.run.steps[path].attempt
            beside = ", alone in its lane" if path == alone else ""
            log.warning(
                "run %s: attempt %d of %s was lost with its process%s", live.run.id, attempt, path, beside
            )
        if len(lost) > LOSSES_LOGGED_MAX:
            log.warning("run %s: %d attempts were lost with their process", live.run.id, len(lost))
