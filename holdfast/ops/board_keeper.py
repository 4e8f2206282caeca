"""Stores the boards of long runs when they have finished, so that a look at one folds nothing, also after a restart.

    a long run ends, or is looked at ──► its board is folded in small pieces ──► one commit

Works while the event loop is idle: runs do not wait for it. A board that was not stored, because the process ended first, is made
when the database is opened again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from typing import Final

import msgspec

from holdfast.errors import HoldfastError
from holdfast.runtime.committer import Committer
from holdfast.runtime.service import Service
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import RunRow
from holdfast.values import TERMINAL, RunNo, split
from holdfast.views.board import FoldedBoard
from holdfast.views.boards import read_on
from holdfast.views.run_steps import Gathering
from holdfast.views.runs import Queries
from holdfast.views.stored_board import LONG_ROWS, OUTPUT_BYTES_MAX, output_part, parts_of, stored_head

log = logging.getLogger("holdfast")

NEWEST_RUNS: Final = 1_000  # that are looked at when the database is opened: a few milliseconds
WAITING_MAX: Final = (
    100  # runs whose boards are to be stored; the oldest are dropped, and made when they are looked at
)
TURN_SECONDS: Final = 0.001  # between two pieces
LATE_SECONDS: Final = 0.003  # a turn that comes this much later shows that the loop is busy
BUSY_SECONDS: Final = 0.05  # the pause then


class BoardKeeper(Service):
    """Without `works` it stores nothing: for an engine whose caller moves the clock."""

    def __init__(self, store: Store, committer: Committer, queries: Queries, *, works: bool) -> None:
        self._store, self._committer, self._queries = store, committer, queries
        self._waiting: OrderedDict[RunNo, None] = OrderedDict()
        self._task: asyncio.Task[None] | None = None
        self._works = works
        queries.run_steps.boards.on_long = self.note

    async def open(self, *, drive: bool) -> None:
        if drive and self._works:
            self._task = asyncio.get_running_loop().create_task(self._work(finds=True))

    def abandon(self, error: Exception | None = None) -> None:
        self._works = False
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.abandon()
        if self._task is not None:
            await asyncio.wait([self._task])

    def note(self, no: RunNo) -> None:
        """A long run has finished, or was folded for a reader: its board is to be stored."""
        if not self._works:
            return
        self._waiting[no] = None
        while len(self._waiting) > WAITING_MAX:
            self._waiting.popitem(last=False)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    async def _work(self, *, finds: bool = False) -> None:
        try:
            if finds:
                found = await self._store.runs_without_board(NEWEST_RUNS, LONG_ROWS)
                self._waiting |= dict.fromkeys(found[:WAITING_MAX])
            while self._waiting:
                no, _ = self._waiting.popitem(last=not finds)  # the newest first
                await self._keep(no)
        except HoldfastError as error:  # the store is away, or another process owns it
            log.info("the boards of long runs are not stored now: %s", error)
            self._waiting.clear()  # they are made when they are looked at
        except Exception:  # a bug here must not affect runs
            log.exception("the board of a long run could not be stored")

    async def _keep(self, no: RunNo) -> None:
        row = await self._store.run_by_no(no)
        if row is None or row.status not in TERMINAL or await stored_head(self._store, no) is not None:
            return
        board = self._queries.run_steps.boards.folded(no)
        if board is None:
            board = FoldedBoard()
            await read_on(self._store, no, board, self._pause)
        batch = Batch()
        for name, body in [*await self._outputs(row, board), *await self._parts(board)]:
            batch.boards.append((no, name, body))
        await self._committer.commit(batch)

    async def _parts(self, board: FoldedBoard) -> list[tuple[str, bytes]]:
        found = []
        for part in parts_of(board):
            found.append(part)
            await self._pause()
        return found

    async def _outputs(self, row: RunRow, board: FoldedBoard) -> list[tuple[str, bytes]]:
        """The outputs that would have to be gathered: of the run, and of its top-level scopes."""
        gathering = Gathering(self._store, await self._queries.plan_of(row), row)
        found: list[tuple[str, bytes]] = []
        room = OUTPUT_BYTES_MAX
        for entry in board.entries:
            if not entry.step.joined or split(entry.step.path)[0]:
                continue
            step = msgspec.structs.replace(entry.step)
            await gathering.fill(step)
            room -= len(step.output)
            if room < 0:
                break
            if step.error is None:
                found.append(output_part(step.path, bytes(step.output)))
            await self._pause()
        text = (await self._queries.run(row.tenant, row.id)).output_text
        if 0 < len(text) <= room:
            found.append(output_part("", bytes(text)))
        return found

    async def _pause(self) -> None:
        """Let everything else go first."""
        loop = asyncio.get_running_loop()
        due = loop.time() + TURN_SECONDS
        await asyncio.sleep(TURN_SECONDS)
        if loop.time() > due + LATE_SECONDS:
            await asyncio.sleep(BUSY_SECONDS)
