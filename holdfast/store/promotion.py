"""A move of a database from a file to a server: what both sides keep of it, so that it can go on after a crash.

    the file     `move` in its meta: where to, and whether it has finished. No engine opens the file any more
    the server   `promotion` in its meta: how many rows of each table have arrived. No node joins before the end

The mark in the file is durable before the first row is copied, so nothing changes there meanwhile. Each portion of rows is
committed together with the count, and a portion that another process has copied already is refused by that count.

Knows what is kept. Does not know SQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from holdfast.store.base import Store
from holdfast.values import RunNo


class Move(msgspec.Struct, frozen=True):
    """What a file keeps of its move. `to` has no password; `token` tells this move from any other."""

    token: str
    to: str
    is_done: bool = False

    def told(self, path: str) -> str:
        """Why the file cannot be used, and what to do."""
        if self.is_done:
            return f"{path} was moved to {self.to}; use that address with --db"
        return (
            f"{path} is being moved to {self.to}, and this has not finished; repeat the command holdfast promote, or give the "
            "move up with holdfast promote --cancel"
        )


class Progress(msgspec.Struct):
    """What the server keeps. `epoch` is that of the node that stands for the former engine; `rows` have arrived."""

    token: str
    source: str
    epoch: int = 0
    rows: dict[str, int] = {}
    is_done: bool = False


class Heirloom(NamedTuple):
    """What the server takes over beside the tables: with the same key, callback URLs and approval links stay valid."""

    server_key: bytes
    fatal_runs: str | None
    lane: str | None


class Placing(NamedTuple):
    """What rows refer to on the server: the node that owned runs, its name for schedules with a slot per node, and the lease of
    jobs that workers have."""

    epoch: int
    node: str
    lease_ms: int


class Source(Store, Protocol):
    """The file that is moved. Only the caller has it open."""

    path: str

    def open_file(self) -> None: ...
    def close_file(self) -> None: ...
    def move(self) -> Move | None: ...
    def note_move(self, move: Move | None) -> None: ...
    def heirloom(self) -> Heirloom: ...
    def tables(self) -> list[str]: ...
    def count(self, table: str) -> int: ...
    def journal_bytes(self) -> int: ...
    def rows(
        self, table: str, columns: Sequence[str], after: int, placing: Placing
    ) -> Iterator[tuple[Any, ...]]: ...
    async def open_runs(self) -> list[RunNo]: ...
    def epoch_now(self) -> int: ...


class Target(Store, Protocol):
    """The server that is filled."""

    path: str
    node: str

    async def reach(self, token: str) -> None: ...
    async def refuse_used(self, tables: Sequence[str]) -> None: ...
    async def begin(self, token: str, source: str, tables: Sequence[str], heirloom: Heirloom) -> Progress: ...
    async def columns(self, table: str) -> list[str]: ...
    async def put(self, table: str, columns: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None: ...
    async def count(self, table: str) -> int: ...
    async def journal_bytes(self) -> int: ...
    async def open_readers(self) -> None: ...
    async def finish(self) -> None: ...
    async def cancel(self, token: str, tables: Sequence[str]) -> None: ...
    async def close(self) -> None: ...
