"""How a workflow did lately: how many of its last runs succeeded, and how long its steps took. Writes nothing.

    last finished runs ──► board of each, its first rows ──► durations by step of the definition

Of a long run only the first rows are read: its first items say how long such an item takes. What was read of a finished run is
remembered, so a second look reads only the runs since.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Sequence
from math import ceil
from typing import Final

import msgspec

from holdfast.store.base import Store
from holdfast.store.records import RunRow, Wanted
from holdfast.values import TERMINAL, Millis, RunNo, definition_path
from holdfast.views.board import FoldedBoard

ROWS_PER_RUN_MAX: Final = 200
ROWS_MAX: Final = 400  # read for one answer: some 40 ms; the next one reads on
RUNS_REMEMBERED_MAX: Final = 5_000

Took = tuple[str, int, bool, int]  # step of the definition, milliseconds, whether it failed, retries


class StepStats(msgspec.Struct):
    path: str
    runs: int = 0
    failed: int = 0
    retries: int = 0
    took_ms: list[int] = []


class Stats(msgspec.Struct, frozen=True):
    """`runs` are the last finished ones, newest first; the steps are those of `steps_of` of them, in reading order."""

    runs: list[RunRow]
    steps: list[StepStats]
    steps_of: int

    @property
    def by_status(self) -> Counter[str]:
        return Counter(row.status for row in self.runs)

    @property
    def took_ms(self) -> list[int]:
        return [row.finished_at - row.created_at for row in self.runs if row.finished_at is not None]


class WorkflowStats:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[RunNo, list[Took]] = OrderedDict()

    async def of(
        self, tenant: str, workflow: str, number: int | None, last: int, created_from: Millis | None
    ) -> Stats:
        above = None
        if created_from is not None:
            above = RunNo(await self._store.number_at(created_from) - 1)
        wanted = Wanted(workflow=workflow, number=number, status=tuple(sorted(TERMINAL)), above=above)
        rows = (await self._store.list_runs(tenant, None, last, wanted)).rows
        steps, steps_of = await self._steps(rows)
        return Stats(rows, steps, steps_of)

    async def _steps(self, runs: Sequence[RunRow]) -> tuple[list[StepStats], int]:
        found: dict[str, StepStats] = {}
        read = count = 0
        for row in runs:
            took = self._known.get(row.no)
            if took is None:
                if read >= ROWS_MAX:
                    continue
                took, rows = await self._read(row.no)
                read += rows
            count += 1
            for path, took_ms, is_failed, retries in took:
                one = found.setdefault(path, StepStats(path))
                one.runs += 1
                one.failed += is_failed
                one.retries += retries
                one.took_ms.append(took_ms)
        return list(found.values()), count

    async def _read(self, no: RunNo) -> tuple[list[Took], int]:
        board, rows = FoldedBoard(), await self._store.journal(no, 0, ROWS_PER_RUN_MAX)
        for row in rows:
            board.take(row)
        await asyncio.sleep(0)
        took = [
            (
                definition_path(step.path),
                step.finished - step.started,
                step.status == "failed",
                max(step.attempts - 1, 0),
            )
            for step in (entry.step for entry in board.by_path.values())
            if step.finished is not None and step.status in ("completed", "failed")
        ]
        self._known[no] = took
        while len(self._known) > RUNS_REMEMBERED_MAX:
            self._known.popitem(last=False)
        return took, len(rows)


def share(took_ms: Sequence[int], part: float) -> int | None:
    """The time within which this part ended; None without any."""
    ordered = sorted(took_ms)
    return ordered[max(0, ceil(len(ordered) * part) - 1)] if ordered else None
