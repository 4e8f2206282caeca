"""The lock of a database file: one engine process at a time, and where that process can be reached.

The lock is the kernel's and ends with the process, however that ends. It only tells a second engine that the file is in
use; what makes a stale engine harmless is the epoch that every commit reads.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sys
from collections.abc import Callable
from typing import Final, Self

import msgspec

from holdfast.errors import DatabaseInUse, StoreUnavailable
from holdfast.store.files import FILE_MODE, NOT_REGULAR, is_regular, other_names

log = logging.getLogger("holdfast")

READS_OF_LOCKS: Final = 3  # of the kernel's list of locks

NETWORK_FILESYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afpfs", "webdav", "fuse.sshfs", "glusterfs", "ceph", "lustre"}
)


class Lock:
    """One engine process per file. The lock file names the process that has it, and the address that it serves.

    The database itself is locked too, by device and inode: a hard link is another name, but the same file.
    """

    def __init__(self, database: str, address: str | None = None) -> None:
        self.database, self.path = database, f"{database}.lock"
        self._address = address
        self._fd = self._database_fd = -1
        self._is_held = False

    def __enter__(self) -> Self:
        self.take()
        return self

    def __exit__(self, *error: object) -> None:
        self.free()

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
    """The process that holds the lock: pid, and address if it serves one; empty if the file names none."""
    try:
        with open(path, "rb") as file:
            found: dict[str, object] = msgspec.json.decode(file.read() or b"{}", type=dict[str, object])
            return found
    except (OSError, msgspec.DecodeError):
        return {}


def holder_of(database: str) -> dict[str, object]:
    """The process that has a file now, under any of its names, without asking for the lock: empty if none has it, whatever a
    killed process left written."""
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
