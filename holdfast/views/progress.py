"""The progress of a run: how many steps its definition has, including nested ones, and how many of them have a completed instance.

Read from the journal once and cached. A journal that is long beside its definition is not read completely, because its middle
repeats steps that were already counted.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final, TypedDict

from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import CompleteStep
from holdfast.engine.events import StepSucceeded
from holdfast.store.base import PIECE_BYTES, Store
from holdfast.store.records import ReadRow
from holdfast.values import NULL, Millis, RunNo, definition_path
from holdfast.views.open_board import open_head
from holdfast.views.steps import Steps
from holdfast.views.stored_board import LONG_ROWS, stored_head

ROWS_READ_MAX: Final = (
    4_000  # from the beginning of a journal: these, or ROWS_PER_STEP for each step if that is more
)
ROWS_PER_STEP: Final = 2
ROWS_AT_THE_END: Final = 500
ROWS_AT_A_TIME: Final = 200
REMEMBERED_MAX: Final = 1_000  # runs


class Progress(TypedDict):
    completed_steps: int
    total_steps: int


class _Read:
    """The progress found in the journal of one run so far."""

    def __init__(self) -> None:
        self.steps: Steps | None = Steps()
        self.completed: set[str] = set()
        self.seq = 0
        self.skips_from = ROWS_AT_THE_END  # rows that are still to be read: of more, only the end is read

    def take(self, row: ReadRow) -> None:
        self.seq, _, at, _, body = row
        event, decisions = decode_row(body)
        if self.steps is not None:
            for step in self.steps.take(event, decisions, Millis(at)):
                if step.status in ("completed", "skipped") and not step.undoes:
                    self.completed.add(definition_path(step.path))
                step.output = NULL  # not needed, and perhaps large
            return
        if isinstance(event, StepSucceeded) and decisions:
            self.completed.add(definition_path(event.path))
        for decision in decisions:
            if isinstance(decision, CompleteStep) and not decision.path.endswith("]"):
                self.completed.add(definition_path(decision.path))


class Progresses:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[RunNo, _Read] = OrderedDict()

    async def of(self, no: RunNo, last: int, total: int) -> Progress:
        """Return the progress as of the row `last`, or a later one."""
        read = self._known.get(no)
        if read is None:
            read = self._known[no] = _Read()
            if len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(no)
        first = max(ROWS_READ_MAX, ROWS_PER_STEP * total)
        if read.seq == 0 and last >= LONG_ROWS:
            head = await stored_head(self._store, no) or await open_head(self._store, no)
            if head is not None:
                read.seq, read.completed, read.steps = head.seq, set(head.completed), None
                read.skips_from = first
        while read.seq < last:
            if read.steps is not None and read.seq >= first:
                read.steps = None
            if read.steps is None and last - read.seq > read.skips_from:
                read.seq = max(read.seq, last - ROWS_AT_THE_END)
            rows = await self._store.journal(no, read.seq, ROWS_AT_A_TIME, PIECE_BYTES)
            for row in rows:
                if row[0] > read.seq:  # otherwise another request has read further in the meantime
                    read.take(row)
            if not rows:
                break
            await asyncio.sleep(0)
        return {"completed_steps": min(len(read.completed), total), "total_steps": total}
