"""The course of a run: which top-level node it has reached, the last action, and how many steps it took.

    rows ──► Course.take(row) ──► current node, last action, steps so far

A very long journal is read only where the run leaves one node or cycle for the next.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.engine.codec import decode_row
from holdfast.engine.decisions import (
    ArmTimer,
    CompleteStep,
    Decision,
    FailStep,
    FinishRun,
    OpenScope,
    OpenWait,
    StartAttempt,
    Take,
)
from holdfast.engine.events import (
    CallbackReceived,
    StepSucceeded,
)
from holdfast.engine.state import Run
from holdfast.plan.graph import Block, Plan
from holdfast.store.base import PIECE_BYTES, Store
from holdfast.store.records import ReadRow
from holdfast.values import RunNo, base_of, scope_of, split
from holdfast.views.node_runs import place_of

ROWS_AT_A_TIME: Final = 200
ROWS_MAX: Final = 20_000  # rows read of a new journal; the rest of a longer one is skipped (`_skip`)
TURN_ROWS: Final = 20  # among this many consecutive rows, at least one shows where the run is
COURSES_CACHED_MAX: Final = 1_000

_BEGINNING: Final = frozenset({StartAttempt, OpenScope, OpenWait, ArmTimer})
_ENDED: Final = frozenset({CompleteStep, FailStep})
_ENDING: Final = frozenset({StepSucceeded, CallbackReceived})


class Course:
    """How far a run has come at its top level."""

    def __init__(self) -> None:
        self.action, self.steps = "", 0
        self.seq = 0
        self.is_whole = True  # False once rows were skipped
        self.turn = ""  # the latest node, with its visit
        self._over: set[str] = set()  # nodes that have ended
        self._last_over = ""  # the latest of these, with its visit
        self._path = ""

    @property
    def current(self) -> str:
        return place_of(self._path)[0] if self._path else ""

    def take(self, row: ReadRow) -> None:
        self.seq, *_, body = row
        event, decisions = decode_row(body)
        if type(event) in _ENDING and decisions:
            self._end(event.path)  # type: ignore[union-attr]  # both have one
        for decision in decisions:
            kind = type(decision)
            if kind in _BEGINNING:
                if kind is not ArmTimer or decision.timer == "delay":  # type: ignore[union-attr]
                    self._path = decision.path  # type: ignore[union-attr]
            elif kind in _ENDED:
                self._end(decision.path)  # type: ignore[union-attr]
            elif kind is Take:
                self._leave(decision)  # type: ignore[arg-type]
            elif kind is FinishRun:
                self._finish(decision)  # type: ignore[arg-type]
        self.turn = turn_after(decisions) or self.turn

    def _end(self, path: str) -> None:
        if not split(path)[0] and scope_of(path)[1] is None:
            self.steps += 1
            self._over.add(base_of(path))
            self._last_over = path

    def _leave(self, order: Take) -> None:
        if not split(order.path)[0]:
            self.action, self._path = order.action, order.to

    def _finish(self, order: FinishRun) -> None:
        self._path = order.error.path if order.status == "failed" and order.error is not None else ""

    def count_visits(self, run: Run, block: Block) -> None:
        """Count the visits in rows that were skipped: the state of the run has the visits of nodes on cycles."""
        visits, first = dict(run.frames[""].visits), run.first or block.first
        if first in block.again:
            visits.setdefault(first, 1)
        is_open = self.turn not in ("", self._last_over) and base_of(self.turn) in block.again
        self.steps = len(self._over - block.again) + sum(visits.values()) - is_open


def turn_after(decisions: list[Decision]) -> str:
    """Return the top-level node, with its visit, that the run is at after these decisions; empty if they do not show it."""
    for decision in reversed(decisions):
        if isinstance(decision, Take) and decision.to and not split(decision.path)[0]:
            return f"{decision.to}~{decision.visit}" if decision.visit > 1 else decision.to
        if path := getattr(decision, "path", ""):
            while frame := split(path)[0]:
                path = frame
            return scope_of(path)[0]
    return ""


class Courses:
    """The courses of runs, cached. In a very long journal, rows between two rows inside the same node or cycle are not read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[RunNo, Course] = OrderedDict()

    async def of(self, run: Run, plan_of: Callable[[], Awaitable[Plan]]) -> Course:
        """Return the course of a run as of the last row of the given state."""
        course = self._known.setdefault(run.no, Course())
        self._known.move_to_end(run.no)
        while len(self._known) > COURSES_CACHED_MAX:
            self._known.popitem(last=False)
        until, last = course.seq + ROWS_MAX, run.seq
        while course.seq < last:
            if course.seq >= until:
                course.is_whole = False
                await self._skip(course, run, (await plan_of()).root)
            rows = await self._store.journal(run.no, course.seq, ROWS_AT_A_TIME, PIECE_BYTES)
            if not rows:
                break  # the run is being deleted
            for row in rows:
                if course.seq < row[0] <= last:
                    course.take(row)
            await asyncio.sleep(0)
        if not course.is_whole:
            course.count_visits(run, (await plan_of()).root)
        return course

    async def _skip(self, course: Course, run: Run, block: Block) -> None:
        """Skip to the last row that adds nothing: a run never returns to a node that it has left for good, so between two rows on one
        cycle there is nothing else. The start of the newest visit is read, because it says which action led there."""
        newest, here = await self._turn_at(run.no, run.seq), course.turn

        def adds_nothing(turn: str) -> bool:
            if "" in (turn, here) or newest in (turn, here):
                return turn == here == newest
            return block.leads(base_of(turn), base_of(here))

        low, high = course.seq, run.seq
        while high - low > ROWS_AT_A_TIME:
            middle = (low + high) // 2
            if adds_nothing(await self._turn_at(run.no, middle)):
                low = middle
            else:
                high = middle
        course.seq = max(course.seq, low)  # another request may have read further in the meantime

    async def _turn_at(self, no: RunNo, seq: int) -> str:
        """Return where the run was after a row, or after one of the few rows before it; empty if none of them shows it."""
        rows = await self._store.journal(no, max(0, seq - TURN_ROWS), TURN_ROWS)
        turns = (turn_after(decode_row(body)[1]) for *_, body in reversed(rows))
        return next(filter(None, turns), "")
