"""The lock of a database file: one engine process at a time, and the address of that process.

The kernel holds the lock and releases it when the process ends, even by a crash. The lock only keeps a second engine from opening
the file; a stale engine is stopped by the epoch, which every commit checks.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import logging
import os
import sys
from collections.abc import Callable
from typing import Final, Literal, Self

import msgspec

from holdfast.errors import DatabaseInUse, StoreUnavailable
from holdfast.local_socket import SCHEME, LocalSocket
from holdfast.store.files import FILE_MODE, NOT_REGULAR, in_the_way, is_regular, other_names

log = logging.getLogger("holdfast")

TRIES: Final = 100  # while another command holds the lock for a moment
AGAIN_SECS: Final = 0.05
READS_OF_LOCKS: Final = 3  # how often the kernel's list of locks is read

Answers = Literal["all", "own"]

NETWORK_FILESYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "webdav", "fuse.sshfs", "glusterfs", "ceph", "lustre"}
)


class Lock:
    """One engine process per file. The lock file names the process that has it, and the address that it serves.

    The database itself is locked too, by device and inode: a hard link is another name, but the same file.
    """

    def __init__(self, database: str, address: str | None = None, *, answers: Answers | None = None) -> None:
        """With `answers`, the process can be reached on the local socket: it executes all runs of the file, or only its own."""
        self.database, self.path = database, f"{database}.lock"
        self.socket = None if answers is None else LocalSocket(database)
        self._address, self._answers = address, answers
        self._fd = self._database_fd = -1
        self._is_held = False

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *error: object) -> None:
        self.free()

    async def take_soon(self) -> None:
        """Take the lock. Wait for a command, which holds it for a moment only, but not for a process that can be reached."""
        for _ in range(TRIES):
            try:
                return self.take()
            except DatabaseInUse as error:
                if error.pid is None or holder_of(self.database).get("socket"):
                    raise
            await asyncio.sleep(AGAIN_SECS)
        self.take()

    def take(self) -> None:
        kind = _filesystem_of(os.path.dirname(os.path.abspath(self.path)))
        if kind in NETWORK_FILESYSTEMS:
            raise DatabaseInUse(
                f"{self.path} would be on a network file system ({kind}), where locks do not hold; use a local disk"
            )
        if not is_regular(self.database):
            raise StoreUnavailable(NOT_REGULAR.format(path=self.database))
        if obstacle := in_the_way(self.database) or in_the_way(os.path.realpath(self.database)):
            raise StoreUnavailable(obstacle)
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
        if sys.platform == "linux":  # on other systems it would conflict with SQLite's own locks
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
        if self.socket is not None:
            self.socket.bind()
        self._write(self._said())

    def withdraw(self) -> None:
        """Name no address any more, because the process is about to stop listening. It still holds the file."""
        self._write({"pid": os.getpid(), "address": None})

    def _write(self, said: dict[str, object]) -> None:
        # One write over what is there, with spaces up to its end: a reader never finds half of it.
        os.pwrite(self._fd, msgspec.json.encode(said).ljust(os.fstat(self._fd).st_size), 0)

    def _said(self) -> dict[str, object]:
        said: dict[str, object] = {"pid": os.getpid(), "address": self._address}
        if self.socket is not None and self.socket.reached is not None:
            said |= {"socket": self.socket.reached, "executes": self._answers}
        return said

    def _lock_database(self) -> None:
        """Lock the database file itself. Raise DatabaseInUse if another process holds it under another name. If the file has one name,
        only the lock file counts: an operator may delete it to take the database from a hanging process, which the epoch stops."""
        try:
            self._database_fd = _locked(
                self.database, lambda: _in_use(self.database, holder_of(self.database))
            )
        except DatabaseInUse:
            if os.stat(self.database).st_nlink > 1:
                raise
            log.warning("%s is taken over from a process that still has it open", self.database)

    def free(self) -> None:
        """Release the lock. Call it after the database is closed: closing a second descriptor would release SQLite's locks."""
        if self.socket is not None:
            self.socket.close()
        if self._database_fd >= 0:
            os.close(self._database_fd)
            self._database_fd = -1
        if self._fd >= 0:
            if self._is_held:
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = -1


def _locked(path: str, in_use: Callable[[], DatabaseInUse]) -> int:
    """Open the file, create it if it is missing, and lock it for this process."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise in_use() from None
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
    """The process that holds the lock: pid, address and socket if it has them; empty if the file names none."""
    try:
        if not is_regular(path):
            return {}  # opening a FIFO would wait for a writer
        with open(path, "rb") as file:
            found: dict[str, object] = msgspec.json.decode(file.read() or b"{}", type=dict[str, object])
            return found
    except (OSError, msgspec.DecodeError):
        return {}


def holder_of(database: str) -> dict[str, object]:
    """The process that holds a file now, under any of its names. Does not take the lock. Empty if no process holds it, even if a
    killed process left its id in the lock file."""
    for name in (database, *other_names(database)):
        holder = read_lock(f"{name}.lock")
        if holder and _is_locked(f"{name}.lock", holder.get("pid")):
            return holder
    return {}


def _is_listed(number: str) -> bool:
    with open("/proc/locks", encoding="ascii") as locks:  # Linux only
        return any("FLOCK" in line and line.split()[5].endswith(f":{number}") for line in locks)


def _is_locked(path: str, pid: object) -> bool:
    try:
        number = str(os.stat(path).st_ino)
        # The kernel writes the list in pieces, and a list that changes meanwhile may lack an entry: read it again.
        return any(_is_listed(number) for _ in range(READS_OF_LOCKS))
    except OSError:
        pass
    try:
        os.kill(pid if isinstance(pid, int) else 0, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _in_use(database: str, holder: dict[str, object]) -> DatabaseInUse:
    pid = holder.get("pid")
    where = f" at {holder['address']}" if holder.get("address") else ""
    error = DatabaseInUse(f"{database} is in use by process {pid or 'unknown'}{where}; {_way_out(holder)}")
    error.pid = pid if isinstance(pid, int) else 0
    return error


def _way_out(holder: dict[str, object]) -> str:
    """What a command or a program can do instead of opening the file itself."""
    if not holder.get("socket"):
        return "wait until it ends, stop it, or use another file"
    return (
        "holdfast start, signal, approve and cancel ask that process to act; in Python, "
        f'holdfast.Client("{SCHEME}{holder["socket"]}") does. Or stop it, or use another file with --db'
    )


def _filesystem_of(folder: str) -> str:
    """The type of the file system of a folder; known on Linux only."""
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
