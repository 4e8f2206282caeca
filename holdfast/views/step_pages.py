"""The steps of a run in pages, read from its journal."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.engine.draft import Draft
from holdfast.engine.state import Run
from holdfast.plan.composed import TooLarge
from holdfast.plan.graph import Plan
from holdfast.runtime.load import whole
from holdfast.store.base import PIECE_BYTES, Store
from holdfast.store.records import ReadRow, RunRow
from holdfast.values import TERMINAL, Error, RunNo
from holdfast.views.outputs import JOURNAL_PAGE, READ_BYTES_MAX, apart_if_long, whole_run
from holdfast.views.steps import Steps, StepView

ROWS_AT_A_TIME: Final = 200  # journal rows read at a time; some milliseconds
PAGE_BYTES_MAX: Final = 64 * 1024 * 1024  # outputs of the steps of one page, together
PAGES_REMEMBERED_MAX: Final = 8  # each may contain as many values as a page has steps


async def steps_so_far(store: Store, no: RunNo, *, every: bool = False) -> Steps:
    """Read the steps of a run as of its last durable row, page by page."""
    steps, after = Steps(every=every), 0
    while rows := await store.journal(no, after, JOURNAL_PAGE, PIECE_BYTES):
        if after:
            await asyncio.sleep(0)
        steps.take_rows(rows)
        after = rows[-1][0]
    return steps


async def read_steps(store: Store, plan: Plan, run: Run, *, every: bool = False) -> dict[str, StepView]:
    """Read the steps of a run with their full outputs: top-level and failed steps, or every step."""
    steps = (await steps_so_far(store, run.no, every=every)).by_path
    shown = {path: step for path, step in steps.items() if every or step.is_top or step.status == "failed"}
    await _fill_outputs(store, plan, run, shown.values())
    return shown


class _Reading:
    """A page being built: steps behind `after`, up to its limit, as of the row `seq`."""

    def __init__(self, *, every: bool, after: int, limit: int) -> None:
        self._every, self._after, self._limit = every, after, limit
        self._steps = Steps()
        self.found: dict[int, StepView] = {}
        self.seq = 0

    @property
    def is_done(self) -> bool:
        """Return whether no later row can change these steps or one before them."""
        return len(self.found) == self._limit and not self._steps.has_open_upto(max(self.found))

    def take(self, rows: list[ReadRow]) -> None:
        for row in rows:
            if row[0] <= self.seq:
                continue  # another request has read the same page in the meantime
            self.seq = row[0]
            for step in self._steps.take_row(row):
                if step.order > self._after and (self._every or step.is_top or step.status == "failed"):
                    self.found[step.order] = step
        self.found = {order: self.found[order] for order in sorted(self.found)[: self._limit]}


class StepPages:
    """Pages of steps in the order in which they were reached. A page that may still change is cached, so that reading an open run again
    reads only new rows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[tuple[RunNo, bool, int, int], _Reading] = OrderedDict()

    async def page(
        self, plan: Plan, row: RunRow, *, every: bool, after: int, limit: int
    ) -> tuple[list[StepView], bool]:
        """Return the steps behind `after` with their full outputs, and whether more follow. The page is shorter if the outputs are large.
        Other tasks run between two pieces of the journal."""
        key = (row.no, every, after, limit)
        reading = self._known.setdefault(key, _Reading(every=every, after=after, limit=limit + 1))
        self._known.move_to_end(key)
        while len(self._known) > PAGES_REMEMBERED_MAX:
            self._known.popitem(last=False)
        while not reading.is_done:
            rows = await self._store.journal(row.no, reading.seq, ROWS_AT_A_TIME, PIECE_BYTES)
            if not rows:
                break
            reading.take(rows)
            await asyncio.sleep(0)
        if reading.is_done or row.status in TERMINAL:
            self._known.pop(key, None)  # nothing new will follow
        found = [msgspec.structs.replace(step) for step in reading.found.values()]
        run = Run(row.no, row.id, row.version, row.tenant)
        filled = await _fill_outputs(self._store, plan, run, found[:limit], PAGE_BYTES_MAX)
        return found[:filled], filled < len(found)


async def _fill_outputs(
    store: Store, plan: Plan, run: Run, steps: Iterable[StepView], bytes_max: float = math.inf
) -> int:
    """Load outputs for as many steps as fit, and at least one. Return how many."""
    gathered: Draft | None = None
    filled = 0
    for step in steps:
        if bytes_max <= 0:
            break
        if step.joined and gathered is None:
            gathered = Draft(plan, await whole_run(store, run), run.at)
        if step.joined and gathered is not None:
            await apart_if_long(gathered.run, fill_gathered, step, gathered)
        else:
            step.output = await whole(store, run.no, step.output)
        bytes_max -= len(step.output)
        filled += 1
    return filled


def fill_gathered(step: StepView, draft: Draft) -> None:
    """Fill in the output of a scope, or an error if it is too large to show, so that the rest of the page is not affected."""
    try:
        step.output = msgspec.Raw(draft.gathered(step.path, READ_BYTES_MAX) or b"null")
    except (TooLarge, RecursionError):
        message = f"the output of {step.path} is too large to be shown; read the steps inside it"
        step.error = Error("output_too_large", message, step.path)
