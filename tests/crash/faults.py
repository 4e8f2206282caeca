"""Errors of the disk beneath open connections, given as SQLite's own VFS gives them: as codes, not as exceptions.

A VFS in Python cannot do this: apsw raises what such a VFS raised even where SQLite passes over the error (a checkpoint
after a commit). So the methods of the open files, a table of C functions, are replaced by ones that may say no.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

import apsw

POINTERS = 18  # of version 3 of sqlite3_io_methods, after its version number
XWRITE, XTRUNCATE, XSYNC = 2, 3, 4

_Write = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64)
_Truncate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)


class Methods(ctypes.Structure):
    _fields_ = [("version", ctypes.c_int), ("functions", ctypes.c_void_p * POINTERS)]


class File(ctypes.Structure):
    _fields_ = [("methods", ctypes.POINTER(Methods))]


Fault = Callable[[str, str], int]  # operation, file ("db" or "wal") → an SQLite code; 0 lets it happen


class Faults:
    """While it is entered, knows every connection that is opened; `begin` puts its faults beneath them."""

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.counts: dict[tuple[str, str], int] = {}
        self._connections: list[apsw.Connection] = []
        self._kept: list[object] = []  # what C holds a pointer to must not be collected

    def __enter__(self) -> Self:
        apsw.connection_hooks.append(self._connections.append)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.fault = None
        apsw.connection_hooks.remove(self._connections.append)

    def begin(self) -> None:
        """To be called when the connections have their files open."""
        for db in self._connections:
            # that of the look at every page is used by its thread, or closed already
            with suppress(apsw.ConnectionClosedError, apsw.ThreadingViolationError):
                self._replace(db, apsw.SQLITE_FCNTL_FILE_POINTER, "db")
                self._replace(db, apsw.SQLITE_FCNTL_JOURNAL_POINTER, "wal")
        self._connections.clear()

    def _replace(self, db: apsw.Connection, which: int, name: str) -> None:
        pointer = ctypes.c_void_p()
        assert db.file_control("main", which, ctypes.addressof(pointer))
        file = File.from_address(pointer.value or 0)
        ours = Methods.from_buffer_copy(file.methods.contents)
        write, truncate, sync = (
            kind(ours.functions[at])
            for kind, at in ((_Write, XWRITE), (_Truncate, XTRUNCATE), (_Sync, XSYNC))
        )
        replaced = {
            XWRITE: _Write(lambda *args: self._code("write", name) or write(*args)),
            XTRUNCATE: _Truncate(lambda *args: self._code("truncate", name) or truncate(*args)),
            XSYNC: _Sync(lambda *args: self._code("sync", name) or sync(*args)),
        }
        for at, function in replaced.items():
            ours.functions[at] = ctypes.cast(function, ctypes.c_void_p).value
        self._kept += [ours, *replaced.values()]
        file.methods = ctypes.pointer(ours)

    def _code(self, operation: str, name: str) -> int:
        self.counts[operation, name] = self.counts.get((operation, name), 0) + 1
        return 0 if self.fault is None else self.fault(operation, name)
