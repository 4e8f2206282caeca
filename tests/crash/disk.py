"""A disk that can fail, as an SQLite VFS over real files: it loses power, refuses to sync, and runs full.

The files themselves are what the operating system would show a live process. Beside them the disk keeps, per file, what
had been synced and every write since then. `image` says what a power cut at this instant leaves behind: synced bytes for
certain; of the writes since then any subset, torn at 512 bytes and in any order; of files created or deleted since their
folder was last synced, the old or the new one. Reads and shared memory are those of the VFS underneath, so WAL and
several connections work as they do in production.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import apsw

SECTOR = 512
BASE = apsw.vfs_names()[0]  # by its name: a disk that is the default itself must not stand on itself

Tick = Callable[[str, str], None]  # what was just done, and to which file
Fault = Callable[[str, str], int | None]  # the same, before it is done → the SQLite error to fail with

_numbers = itertools.count(1)


class State:
    """One file's bytes as of its last sync, and what was done to it since."""

    def __init__(self, synced: bytes = b"") -> None:
        self.synced = bytearray(synced)
        self.pending: list[tuple[int, bytes | None]] = []  # (offset, data); no data: cut off there
        self.size = len(synced)

    def write(self, data: bytes, offset: int) -> None:
        self.pending.append((offset, data))
        self.size = max(self.size, offset + len(data))

    def truncate(self, size: int) -> None:
        self.pending.append((size, None))
        self.size = size

    def grew_to(self, size: int) -> None:
        """Somebody made the file longer without us, and synced it."""
        if size > self.size:
            self.synced.extend(bytes(size - len(self.synced)))
            self.size = size

    def sync(self) -> None:
        _apply(self.synced, self.pending)
        self.pending = []

    def after_a_cut(self, rng: random.Random) -> bytes:
        left = bytearray(self.synced)
        pieces = [piece for done in self.pending for piece in _torn(*done)]
        _apply(left, _survivors(pieces, rng))
        return bytes(left)


def _apply(content: bytearray, pieces: list[tuple[int, bytes | None]]) -> None:
    for offset, data in pieces:
        if data is None:
            del content[offset:]
            continue
        if offset > len(content):
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data


def _torn(offset: int, data: bytes | None) -> list[tuple[int, bytes | None]]:
    if data is None:
        return [(offset, None)]
    ends = [*range(SECTOR - offset % SECTOR, len(data), SECTOR), len(data)]
    starts = [0, *ends[:-1]]
    return [(offset + start, data[start:end]) for start, end in zip(starts, ends, strict=True)]


def _survivors(pieces: list[tuple[int, bytes | None]], rng: random.Random) -> list[tuple[int, bytes | None]]:
    """Which of the unsynced pieces reached the platter: none, all, the first few, or any; older ones may come last."""
    how = rng.randrange(6)
    if how == 0:
        return []
    if how == 1:
        return pieces
    if how == 2:
        return pieces[: rng.randint(0, len(pieces))]
    share = rng.choice((0.1, 0.5, 0.9))
    kept = [piece for piece in pieces if rng.random() < share]
    if how == 3:
        rng.shuffle(kept)
    return kept


class Disk(apsw.VFS):
    """`uri(path)` is what to open; with `default=True` every plain path of this process goes through it."""

    def __init__(self, *, default: bool = False) -> None:
        self.name = f"disk-{os.getpid()}-{next(_numbers)}"
        self.syncs = 0
        self.tick: Tick | None = None
        self.fault: Fault | None = None
        self.remembers = True  # without it, only faults are simulated: no cost for long runs
        self.current: dict[str, State] = {}
        self.on_platter: dict[str, State] = {}
        super().__init__(self.name, BASE, default)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unregister()

    def uri(self, path: Path) -> str:
        return f"file:{path}?vfs={self.name}"

    def image(self, rng: random.Random) -> dict[str, bytes]:
        """File name → bytes, as the next process would find them if the power went now."""
        found: dict[str, bytes] = {}
        for path in sorted(self.current.keys() | self.on_platter.keys()):
            old, new = self.on_platter.get(path), self.current.get(path)
            state = new if old is new else rng.choice((old, new))
            if state is not None:
                found[os.path.basename(path)] = state.after_a_cut(rng)
        return found

    def sync_folder(self, path: str) -> None:
        """The first sync of a new WAL or journal syncs its folder too, and with it all that was created or deleted."""
        if path.endswith(("-wal", "-journal")):
            self.on_platter = dict(self.current)
        else:
            self.on_platter[path] = self.current[path]

    # ------------------------------------------------------------------------------------- what SQLite calls

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is not None and self.remembers and path not in self.current:
            existed = os.path.exists(path)
            self.current[path] = State(Path(path).read_bytes() if existed else b"")
            if existed:
                self.on_platter[path] = self.current[path]
        return _File(self, path or "", name, flags)

    def xDelete(self, path: str, sync_folder: bool) -> None:
        self.check("delete", path)
        super().xDelete(path, sync_folder)
        self.current.pop(path, None)
        if sync_folder:
            self.on_platter.pop(path, None)
        self.told("delete", path)

    def check(self, what: str, path: str) -> None:
        if self.fault is not None and (code := self.fault(what, path)) is not None:
            raise apsw.exception_for(code)

    def told(self, what: str, path: str) -> None:
        if self.tick is not None:
            self.tick(what, path)


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, path: str, name: Any, flags: list[int]) -> None:
        self.disk, self.path = disk, path
        super().__init__(BASE, name, flags)

    def state(self) -> State:
        state = self.disk.current[self.path]
        state.grew_to(super().xFileSize())
        return state

    def xWrite(self, data: bytes, offset: int) -> None:
        disk = self.disk
        disk.check("write", self.path)
        if disk.remembers and self.path in disk.current:
            self.state().write(bytes(data), offset)
        super().xWrite(data, offset)
        disk.told("write", self.path)

    def xTruncate(self, size: int) -> None:
        disk = self.disk
        disk.check("truncate", self.path)
        if disk.remembers and self.path in disk.current:
            self.state().truncate(size)
        super().xTruncate(size)
        disk.told("truncate", self.path)

    def xSync(self, flags: int) -> None:
        disk = self.disk
        disk.check("sync", self.path)
        disk.told("before sync", self.path)
        disk.syncs += 1
        if disk.remembers and self.path in disk.current:
            self.state().sync()
            if disk.on_platter.get(self.path) is not disk.current[self.path]:
                disk.sync_folder(self.path)
        # The real file is only what a live process sees: it needs no sync of its own.
        disk.told("sync", self.path)
