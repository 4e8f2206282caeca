"""The boards of the runs that were read last, by run and row. An open run is read on from the row where its board ends."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from holdfast.errors import LimitExceeded
from holdfast.runtime.load import GiveWay, give_way
from holdfast.store.base import Store
from holdfast.store.records import RunRow
from holdfast.values import TERMINAL, RunNo
from holdfast.views.board import Board, FoldedBoard
from holdfast.views.open_board import open_board
from holdfast.views.stored_board import LONG_ROWS, stored_board

ROWS_AT_A_TIME: Final = 200
ROWS_IN_TURN: Final = 50  # folded in one turn of the loop: some 2 ms
STEPS_REMEMBERED_MAX: Final = 50_000  # steps on all cached boards; about a kilobyte each
ROWS_MAX: Final = 200_000  # a longer journal is not read as a board


class Boards:
    """`on_long` is called with a run of whose board a long part had to be folded, because it is not stored."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.on_long: Callable[[RunNo], None] = lambda no: None
        self._known: OrderedDict[RunNo, Board] = OrderedDict()
        self._reading: dict[RunNo, asyncio.Lock] = {}

    async def of(self, row: RunRow) -> Board:
        """Return the board of a run as of its last row. Other tasks run between two pieces of the journal."""
        no = row.no
        lock = self._reading.setdefault(no, asyncio.Lock())
        try:
            async with lock:  # two readers must not take the same row
                board = await self._read(row)
        except BaseException:
            self._known.pop(no, None)  # a row may be taken in half
            raise
        finally:
            if not lock.locked():
                self._reading.pop(no, None)
        while len(self._known) > 1 and sum(map(len, self._known.values())) > STEPS_REMEMBERED_MAX:
            self._known.popitem(last=False)
        return board

    async def is_too_long(self, no: RunNo) -> bool:
        return await self._store.last_seq(no) > ROWS_MAX

    def folded(self, no: RunNo) -> FoldedBoard | None:
        """Return the cached board of a run, if it was folded."""
        known = self._known.get(no)
        return known if isinstance(known, FoldedBoard) else None

    async def _read(self, row: RunRow) -> Board:
        no, last = row.no, await self._store.last_seq(row.no)
        board = self._known.get(no)
        is_over = row.status in TERMINAL
        if board is None and last >= LONG_ROWS:
            board = await stored_board(self._store, no) if is_over else None
            board = board or await open_board(self._store, no, give_way)
        if board is None:
            board = FoldedBoard()
        self._known[no] = board
        self._known.move_to_end(no)
        if isinstance(board, FoldedBoard) and board.seq < last:
            lacked = last - board.seq
            await read_on(self._store, no, board)
            if last >= LONG_ROWS if is_over else lacked >= LONG_ROWS:
                self.on_long(no)
        return board


async def read_on(store: Store, no: RunNo, board: FoldedBoard, pause: GiveWay = give_way) -> None:
    """Fold the rows that a board lacks. `pause` is awaited between two pieces."""
    if await store.last_seq(no) > ROWS_MAX:
        raise LimitExceeded(
            "journal_too_long",
            f"the journal of this run has over {ROWS_MAX:,} rows; read its steps in pages",
        )
    while rows := await store.journal(no, board.seq, ROWS_AT_A_TIME):
        for n, row in enumerate(rows, start=1):
            board.take(row)
            if n % ROWS_IN_TURN == 0:
                await pause()
        if len(rows) < ROWS_AT_A_TIME:
            return
