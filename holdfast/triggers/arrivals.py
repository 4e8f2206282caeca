"""Which files of a folder have arrived: regular files whose size and modification time have not changed for a while.

Reads the folder; knows no schedules and no ledger. Links, pipes and sockets are never opened, so a file cannot lead elsewhere
or block the reader. Names that begin with a dot belong to programs that are still writing.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
from typing import Final, NamedTuple

from holdfast import limits
from holdfast.errors import LimitExceeded
from holdfast.values import is_text

CHUNK_BYTES: Final = 1024 * 1024


class Arrival(NamedTuple):
    """A file as it was seen. `changed_ns` is when it got its name or its content, by the file system."""

    name: str
    size: int
    modified_ns: int
    changed_ns: int
    inode: int

    @property
    def state(self) -> tuple[int, int, int, int]:
        return self.size, self.modified_ns, self.changed_ns, self.inode

    @property
    def identity(self) -> str:
        return f"{self.name}:{self.size}:{self.modified_ns}"


def arrivals(folder: str, pattern: str) -> list[Arrival]:
    """The files of a folder that match, in the order in which they arrived. Raises OSError and LimitExceeded."""
    found: list[Arrival] = []
    most = limits.now.watched_files_max
    with os.scandir(folder) as entries:
        for entry in entries:
            if not _matches(entry.name, pattern):
                continue
            try:
                seen = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # gone meanwhile
                continue
            if stat.S_ISREG(seen.st_mode):
                found.append(_arrival(entry.name, seen))
            if len(found) > most:
                raise LimitExceeded(
                    "watched_files_max", f"{folder} has more than {most:,} files that match {pattern}"
                )
    return sorted(found, key=lambda one: (one.changed_ns, one.name))


def content_of(folder: str, arrival: Arrival) -> str | None:
    """The SHA-256 of a file's content; None if it is not the file that was seen, or changes while it is read."""
    try:
        number = os.open(
            os.path.join(folder, arrival.name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        )
    except OSError:
        return None
    with os.fdopen(number, "rb", buffering=0) as file:
        if _arrival(arrival.name, os.fstat(number)) != arrival:
            return None
        digest = hashlib.sha256()
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
        return digest.hexdigest() if _arrival(arrival.name, os.fstat(number)) == arrival else None


def _matches(name: str, pattern: str) -> bool:
    """A name that is not UTF-8 cannot be part of an event."""
    is_hidden = name.startswith(".") and not pattern.startswith(".")
    return not is_hidden and fnmatch.fnmatchcase(name, pattern) and is_text(name)


def _arrival(name: str, seen: os.stat_result) -> Arrival:
    return Arrival(name, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)


class Stillness:
    """How long each file of a folder has been unchanged, by a monotonic clock.

    After a restart the wait starts again for each file.
    """

    def __init__(self, secs: float) -> None:
        self._secs = secs
        self._since: dict[str, tuple[tuple[int, int, int, int], float]] = {}

    def due(self, found: list[Arrival], now: float) -> tuple[list[Arrival], float | None]:
        """Return the files that have been unchanged for long enough, and the seconds until the next file may be."""
        before, self._since = self._since, {}
        due, left = [], []
        for one in found:
            state, since = before.get(one.name, (None, now))
            if state != one.state:
                since = now
            self._since[one.name] = (one.state, since)
            if since + self._secs <= now:  # rounded as below, so that the remaining wait is never zero
                due.append(one)
            else:
                left.append(since + self._secs - now)
        return due, min(left, default=None)
