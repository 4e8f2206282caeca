"""The local socket of a database, `<file>.sock`: where the process that owns the file answers other processes of the same user.

Knows how such a socket is named, bound, reached and removed; not what is said on it. Only the owner of the file's lock binds it, so
a socket that is found there then is left over from a process that was killed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import stat
import sys
from typing import Final

log = logging.getLogger("holdfast")

SCHEME: Final = "unix:"
MODE: Final = 0o600  # a user who may open the database may do all that the API offers
PATH_BYTES_MAX: Final = 107 if sys.platform == "linux" else 103  # the kernel's limit (sun_path)
BACKLOG: Final = 128


class ShortPath:
    """A name of a socket that the kernel accepts. Linux can name the folder of a long path by a descriptor, which is open until
    `close`. Elsewhere a path over the limit has no such name: raises OSError."""

    def __init__(self, path: str) -> None:
        self.text, self._folder = path, -1
        if len(os.fsencode(path)) <= PATH_BYTES_MAX:
            return
        folder, name = os.path.split(path)
        if sys.platform == "linux":
            self._folder = os.open(folder or ".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.text = f"/proc/self/fd/{self._folder}/{name}"
        if len(os.fsencode(self.text)) > PATH_BYTES_MAX:
            self.close()
            raise OSError(f"its path has more than {PATH_BYTES_MAX} bytes")

    def close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1


class LocalSocket:
    """The socket of a database whose lock this process holds. `listener` is None if there can be no socket: then the engine works
    without one."""

    def __init__(self, database: str) -> None:
        self.path = os.path.abspath(f"{database}.sock")
        self.listener: socket.socket | None = None
        self._short: ShortPath | None = None
        self._inode = 0

    @property
    def reached(self) -> str | None:
        """The path at which other processes reach it."""
        return None if self.listener is None else self.path

    def bind(self) -> None:
        """Replace a socket that a killed process left. Callers wait in the queue of the socket until it is served."""
        try:
            self._bind()
        except OSError as error:
            self.close()
            log.info("other processes cannot reach this engine: no socket %s: %s", self.path, error)

    def _bind(self) -> None:
        self._short = ShortPath(self.path)
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(self.path).st_mode):
                raise FileExistsError("a file of that name exists, and is not a socket")
            os.unlink(self.path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self._short.text)
        os.chmod(self.path, MODE)  # before it listens, so that no caller is earlier
        self._inode = os.stat(self.path).st_ino
        self.listener.setblocking(False)
        self.listener.listen(BACKLOG)

    def close(self) -> None:
        if self.listener is not None:
            # Not that of a process that has taken the file from this one.
            with contextlib.suppress(OSError):
                if os.stat(self.path).st_ino == self._inode:
                    os.unlink(self.path)
            self.listener.close()
            self.listener = None
        if self._short is not None:
            self._short.close()
            self._short = None
