"""Moving a database from a file to a server, so that several machines can share it.

    mark the file ──► copy its artefacts ──► copy its tables in portions ──► compare ──► open the server ──► note that it was moved

Each step can be repeated: after a crash the same call continues where it stopped. Between the first step and the last, neither
the file nor the server can be used by an engine, so no run is driven twice. The caller holds the lock of the file.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast.errors import Refused, StoreDamaged
from holdfast.runtime.fatal_runs import set_aside_of
from holdfast.runtime.load import load_run
from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.artefacts import PIECE_BYTES, Artefacts
from holdfast.store.base import Store
from holdfast.store.promotion import Move, Placing, Source, Target
from holdfast.store.records import Stored

FOLDED_AT_ONCE: Final = 200

Tell = Callable[[str], None]


class Promoted(msgspec.Struct, frozen=True):
    """What was moved. `compared` runs were open, and were folded on both sides."""

    source: str
    to: str
    rows: dict[str, int]
    artefacts: int
    compared: int


class _Moving:
    def __init__(self, source: Source, target: Target, lease_ms: int, tell: Tell) -> None:
        self._source, self._target, self._lease_ms, self._tell = source, target, lease_ms, tell
        self._tables = source.tables()

    async def marked(self) -> Move:
        """The mark of the file, which is made now unless an earlier call made it. Before that, the server is tried."""
        move = self._source.move()
        if move is not None and (move.to != self._target.path or move.is_done):
            raise Refused(move.told(self._source.path))
        await self._target.reach("" if move is None else move.token)
        if move is None:
            await self._target.refuse_used(self._tables)
            move = Move(secrets.token_hex(16), self._target.path)
            self._source.note_move(move)
        return move

    async def fill(self, move: Move) -> bool:
        """Copy what has not arrived yet. Return False if only the last mark in the file is missing."""
        target = self._target
        progress = await target.begin(move.token, self._source.path, self._tables, self._source.heirloom())
        if progress.is_done:
            return False
        placing = Placing(progress.epoch, target.node, self._lease_ms)
        for table in self._tables:
            columns = await target.columns(table)
            done = progress.rows.get(table, 0)
            await target.put(table, columns, self._source.rows(table, columns, done, placing))
            self._tell(f"{table}: {progress.rows.get(table, 0):,} rows")
        return True

    async def compare(self) -> int:
        """Count the rows on both sides, and fold all open runs on both sides. Return how many those are."""
        for table in self._tables:
            ours, theirs = self._source.count(table), await self._target.count(table)
            if ours != theirs:
                raise _different(
                    f"the table {table} has {ours:,} rows in the file and {theirs:,} on the server"
                )
        if self._source.journal_bytes() != await self._target.journal_bytes():
            raise _different("the journals are not equally long")
        await self._target.open_readers()
        runs = await self._source.open_runs()
        for at in range(0, len(runs), FOLDED_AT_ONCE):
            asked = runs[at : at + FOLDED_AT_ONCE]
            theirs_by_no = {one.row.no: one for one in await self._target.load_many(asked)}
            for stored in await self._source.load_many(asked):
                await self._compare_run(stored, theirs_by_no[stored.row.no])
        return len(runs)

    async def _compare_run(self, ours: Stored, theirs: Stored) -> None:
        if await set_aside_of(self._source, ours.row.no) is not None:
            return  # processes died of folding it
        if await _folded(self._source, ours) != await _folded(self._target, theirs):
            raise _different(f"the run {ours.row.id} has another state on the server")


async def promote(
    source: Source, target: Target, artefacts: tuple[ArtefactFiles, Artefacts], lease_ms: int, tell: Tell
) -> Promoted:
    """Move the contents of a file that only the caller has open, and its artefacts from one place to another."""
    moving = _Moving(source, target, lease_ms, tell)
    move = await moving.marked()
    copied = copy_artefacts(*artefacts)
    compared = 0
    if await moving.fill(move):
        compared = await moving.compare()
        await target.finish()
    source.note_move(msgspec.structs.replace(move, is_done=True))
    rows = {table: source.count(table) for table in source.tables()}
    return Promoted(source.path, target.path, rows, copied, compared)


async def give_up(source: Source, target: Target) -> None:
    """Empty the server again, and let the file be used as before."""
    move = source.move()
    if move is None:
        raise Refused(f"{source.path} is not being moved")
    if move.is_done or move.to != target.path:
        raise Refused(move.told(source.path))
    await target.reach(move.token)
    await target.cancel(move.token, source.tables())
    source.note_move(None)


def copy_artefacts(source: ArtefactFiles, target: Artefacts) -> int:
    """Copy the artefacts that are not there yet. Return how many there are."""
    count = 0
    for tenant, path in source.stored():
        count += 1
        if target.of(tenant).find(path.name) is None:
            with open(path, "rb") as file:
                sha256, _ = target.of(tenant).put(iter(lambda: file.read(PIECE_BYTES), b""), str(path))
            if sha256 != path.name:
                raise _different(f"{path} has other content than its name says")
    return count


async def _folded(store: Store, stored: Stored) -> Any:
    """The state of a run, or why it cannot be folded: a damaged run is moved unchanged."""
    try:
        return await load_run(store, stored)
    except Exception as error:  # noqa: BLE001  # damage in a journal can show as any error
        return f"{type(error).__name__}: {error}"


def _different(why: str) -> StoreDamaged:
    return StoreDamaged(
        f"{why}; nothing was opened there. Give the move up with holdfast promote --cancel, and report this"
    )
