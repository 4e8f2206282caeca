"""Stores the boards of long runs, so that reading one folds few rows or none, also after a restart.

    a long run ends, waits, or is read ──►  its board is folded in small pieces ──► one commit

Works while the event loop is idle: runs do not wait for it. A board that was not stored, because the process ended first, is made
when the database is opened again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
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
from holdfast.views.open_board import emptied_parts, open_board, open_head, open_output_name, open_parts_of
from holdfast.views.run_steps import Gathering
from holdfast.views.runs import Queries
from holdfast.views.steps import StepView
from holdfast.views.stored_board import (
    LONG_ROWS,
    OUTPUT_BYTES_MAX,
    output_name,
    output_part,
    parts_of,
    stored_head,
)

log = logging.getLogger("holdfast")

NEWEST_RUNS: Final = 1_000  # runs that are checked when the database is opened: a few milliseconds
WAITING_MAX: Final = 100  # runs whose boards are to be stored; the oldest are dropped, and their boards are made when they are read
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
        self._parked_at: dict[RunNo, int] = {}  # the row at which a run was last noted because it waits
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
        """A long run has finished, waits, or was folded for a reader: its board is to be stored."""
        if not self._works:
            return
        self._waiting[no] = None
        while len(self._waiting) > WAITING_MAX:
            self._waiting.popitem(last=False)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work())

    def parked(self, no: RunNo, seq: int) -> None:
        """A long run waits. It may do so after every few rows."""
        if seq - self._parked_at.get(no, 0) >= LONG_ROWS:
            self._parked_at[no] = seq
            self.note(no)

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
            self._waiting.clear()  # they are made when they are read
        except Exception:  # a bug here must not affect runs
            log.exception("the board of a long run could not be stored")

    async def _keep(self, no: RunNo) -> None:
        row, boards = await self._store.run_by_no(no), self._queries.run_steps.boards
        if row is None or await boards.is_too_long(no):
            return
        if row.status not in TERMINAL:
            return await self._keep_open(row)
        self._parked_at.pop(no, None)
        if await stored_head(self._store, no) is not None:
            return
        board = boards.folded(no) or await self._folded(no)
        outputs = {output_name(step.path): text for step, text in await self._outputs(row, board)}
        text = (await self._queries.run(row.tenant, row.id)).output_text
        if 0 < len(text) <= OUTPUT_BYTES_MAX - sum(map(len, outputs.values())):
            outputs[output_name("")] = bytes(text)
        parts = [*map(output_part, outputs.items()), *await self._parts(parts_of(board))]
        await self._commit(no, [*parts, *await emptied_parts(self._store, no)])

    async def _keep_open(self, row: RunRow) -> None:
        """Store the board of an open run, if it has grown by a tenth since that was last done."""
        no = row.no
        head = await open_head(self._store, no)
        had, last = 0 if head is None else head.seq, await self._store.last_seq(no)
        if last - had >= max(LONG_ROWS, had // 10):
            # a board of its own: those of readers may grow between two pieces
            board = await self._folded(no)
            outputs = {open_output_name(step): text for step, text in await self._outputs(row, board)}
            parts = await self._parts(open_parts_of(board, list(outputs)))
            await self._commit(no, [*map(output_part, outputs.items()), *parts])

    async def _folded(self, no: RunNo) -> FoldedBoard:
        board = await open_board(self._store, no, self._pause) or FoldedBoard()
        await read_on(self._store, no, board, self._pause)
        return board

    async def _commit(self, no: RunNo, parts: Iterable[tuple[str, bytes]]) -> None:
        batch = Batch()
        batch.boards += [(no, name, body) for name, body in parts]
        await self._committer.commit(batch)

    async def _parts(self, parts: Iterable[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        found = []
        for part in parts:
            found.append(part)
            await self._pause()
        return found

    async def _outputs(self, row: RunRow, board: FoldedBoard) -> list[tuple[StepView, bytes]]:
        """The outputs of top-level scopes, which would have to be gathered."""
        gathering = Gathering(self._store, await self._queries.plan_of(row), row)
        found: list[tuple[StepView, bytes]] = []
        room = OUTPUT_BYTES_MAX
        for entry in board.entries:
            if not (entry.step.joined and entry.step.is_over) or split(entry.step.path)[0]:
                continue
            step = msgspec.structs.replace(entry.step)
            await gathering.fill(step)
            room -= len(step.output)
            if room < 0:
                break
            if step.error is None:
                found.append((step, bytes(step.output)))
            await self._pause()
        return found

    async def _pause(self) -> None:
        """Let everything else go first."""
        loop = asyncio.get_running_loop()
        due = loop.time() + TURN_SECONDS
        await asyncio.sleep(TURN_SECONDS)
        if loop.time() > due + LATE_SECONDS:
            await asyncio.sleep(BUSY_SECONDS)
