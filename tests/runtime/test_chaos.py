"""Seeded mischief on a real engine and a real file: the store fails, processes end, time passes, runs are cancelled.

Whatever happens, no tool is called before the row that starts it is on disk, no attempt is called twice, no step is
done again after its outcome is on disk, and once the mischief stops every run comes to its end.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import Context, tool
from holdfast.embed import RunHandle
from holdfast.engine.codec import decode_row
from holdfast.engine.fold import fold
from holdfast.engine.state import Run
from holdfast.errors import StoreUnavailable
from holdfast.store.batch import Batch
from holdfast.values import Millis, RunId, RunNo
from tests.runtime.bench import Bench, bench
from tests.runtime.manual import by_hand, clock, settled

DEFINITIONS = [
    "name: chain\nsteps: [{id: a, tool: work}, {id: b, tool: work, retry: {max_attempts: 50, initial_delay_ms: 300}}]",
    """
    name: loop
    steps:
      - id: l
        kind: foreach
        items: $.inputs.xs
        concurrency: 3
        on_any_fail: continue
        retry: {max_attempts: 2, initial_delay_ms: 0}
        steps: [{id: s, tool: work, args: {x: "{{ item }}"}}]
      - {id: after, tool: work, args: {l: "{{ l }}"}}
    """,
    """
    name: sides
    timeout_secs: 4000
    steps:
      - id: p
        kind: parallel
        branches:
          - [{id: a, tool: work}, {id: w, kind: timer, delay_ms: 9000}, {id: b, tool: work}]
          - [{id: v, kind: timer, delay_ms: 700}, {id: c, tool: work, timeout_secs: 2, retry: {max_attempts: 99}}]
          - [{id: d, tool: work}]
    """,
    "name: long\nsteps: [{id: w, kind: timer, delay_ms: 60000}, {id: a, tool: work}]",
]


class World:
    def __init__(self, path: Path, seed: int) -> None:
        self.path, self.random = path, random.Random(seed)
        self.is_wild = True
        self.called: dict[tuple[str, str, int], int] = {}
        self.problems: list[str] = []
        self.runs: list[RunId] = []
        self.engine: Bench

        @tool(name="work")
        async def work(ctx: Context, **more: Any) -> str:
            self._look(ctx)
            if self.is_wild and (chance := self.random.random()) < 0.6:
                if chance < 0.2:
                    raise OSError("transient")
                await asyncio.sleep(self.random.choice([0, 0.1, 3, 20]))
            return "x" * self.random.choice([1, 100, 40_000])

        self.tool = work

    def _look(self, ctx: Context) -> None:
        """At the moment of a call: is it the first one, and does the disk say that this attempt is at work?"""
        key = (str(ctx.run_id), ctx.path, ctx.attempt)
        self.called[key] = self.called.get(key, 0) + 1
        if self.called[key] > 1:
            self.problems.append(f"{key} was called twice")
        run = Run(RunNo(1), ctx.run_id, "")
        for body in self.bodies(ctx.run_id):
            fold(run, *decode_row(body), Millis(0), 0)
        step = run.steps.get(ctx.path)
        if step is None or step.attempt != ctx.attempt or step.state != "running":
            self.problems.append(f"{key} was called, and on disk it says {run.status}, {step}")

    def bodies(self, run_id: str) -> list[str]:
        db = apsw.Connection(str(self.path / "h.db"), flags=apsw.SQLITE_OPEN_READONLY)
        query = "SELECT body FROM journal JOIN run ON run.no = journal.run WHERE run.id = ? ORDER BY seq"
        try:
            return [body for (body,) in db.execute(query, (run_id,))]
        finally:
            db.close()

    async def open(self) -> None:
        limits: dict[str, Any] = {
            "attempts_max": self.random.choice([2, 5, 1000]),
            "resident_max": self.random.choice([3, 1000]),
        }
        self.engine = bench(self.path, [self.tool], clock(), **(limits if self.is_wild else {}))
        self.engine.store.lag = self._lag
        await self.engine.open()

    def _lag(self) -> float:
        """A commit takes a while, and things happen meanwhile."""
        return self.random.choice([0.0, 0.0, 0.01, 0.3]) if self.is_wild else 0.0

    async def move(self) -> None:
        chance = self.random.random()
        if chance < 0.35:
            self._start()
        elif chance < 0.45 and self.runs:
            cancelling = asyncio.ensure_future(self.engine.runs.cancel(self.random.choice(self.runs)))
            cancelling.add_done_callback(lambda done: done.exception())
        elif chance < 0.55:
            self.engine.store.refuse = self._flaky if self.random.random() < 0.5 else self._away
        elif chance < 0.65:
            self.engine.crash()
            await self.open()
        elif chance < 0.72:
            await clock().until(self.engine.close())
            await self.open()
        else:
            self.engine.store.refuse = lambda batch: None
        await clock().advance(self.random.choice([0, 0.05, 0.4, 2, 8]))

    def _start(self) -> None:
        definition = self.random.choice(DEFINITIONS)
        inputs = {"xs": list(range(self.random.choice([0, 1, 7])))}
        starting = asyncio.ensure_future(self.engine.begin(definition, inputs))
        starting.add_done_callback(self._started)

    def _started(self, starting: asyncio.Future[RunHandle]) -> None:
        if starting.exception() is None:
            self.runs.append(starting.result().id)

    def _flaky(self, batch: Batch) -> BaseException | None:
        return StoreUnavailable("now and then") if self.random.random() < 0.3 else None

    def _away(self, batch: Batch) -> BaseException | None:
        return StoreUnavailable("away")

    async def calm(self) -> None:
        self.is_wild = False
        self.engine.store.refuse = lambda batch: None
        await clock().advance(200)

    def open_runs(self) -> list[tuple[Any, ...]]:
        db = apsw.Connection(str(self.path / "h.db"))
        query = "SELECT no, status, owner, wake_at, needs FROM run WHERE status NOT IN ('completed', 'failed', 'cancelled')"
        try:
            return list(db.execute(query))
        finally:
            db.close()


@pytest.mark.parametrize("seed", range(40))
@by_hand
async def test_whatever_happens_every_promise_holds(tmp_path: Path, seed: int) -> None:
    world = World(tmp_path, seed)
    await world.open()
    for _ in range(25):
        await world.move()
    await world.calm()
    assert world.problems == []
    assert world.engine.door.quarantined == {}
    assert world.open_runs() == []
    for run_id in world.runs:
        assert len(world.bodies(run_id)) > 0  # what was acknowledged is there
    await settled()
    await world.engine.close()
