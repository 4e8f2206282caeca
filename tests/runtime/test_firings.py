"""Runs that a schedule starts: the run and the ledger row of its occurrence are one commit, or neither is written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import tool
from holdfast.api.services import Services
from holdfast.engine.events import TriggeredBy
from holdfast.runtime.commits import FiringLost
from holdfast.runtime.engine import Engine
from holdfast.runtime.starts import Begun, StartRun
from holdfast.store.records import NewRun
from holdfast.store.schedule_records import Firing, LedgerEntry, LedgerKey
from holdfast.values import Millis
from tests.runtime.bench import opened
from tests.runtime.manual import by_hand, clock

T = "default"
FLOW = {"name": "n", "steps": [{"id": "a", "tool": "echo", "args": {"x": "{{inputs.x}}"}}]}


@tool
async def echo(x: Any = None) -> Any:
    return x


async def start(engine: Engine, occurrence: str, x: int = 1) -> Begun:
    definition, number = await engine.starts.published("n", T)

    def firing(new: NewRun) -> Firing:
        now = Millis(1)
        entry = LedgerEntry(T, "s", "", occurrence, "fired", "", now, None, 1, now, run=new.no)
        return Firing((entry._replace(reply=new.id.encode()),), no=new.no)

    by = TriggeredBy("s", "webhook", occurrence, 1)
    return await engine.starts.start(
        StartRun(definition=definition, number=number, inputs={"x": x}, trigger=by, firing=firing)
    )


@by_hand
async def test_a_run_is_started_with_the_ledger_row_of_its_occurrence(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        await Services(engine).commands.publish(T, FLOW)
        begun = await start(engine, "one")
        row = await engine.store.ledger_row(LedgerKey(T, "s", "", "one"))
        run = await engine.store.run_by_no(begun.no)
    assert row is not None and run is not None
    assert (row.run_id, row.reply) == (begun.run_id, begun.run_id.encode())
    assert (run.schedule, run.slot) == ("s", "")


@by_hand
async def test_a_second_run_for_the_same_occurrence_is_not_started(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        await Services(engine).commands.publish(T, FLOW)
        first = await start(engine, "one")
        with pytest.raises(FiringLost):
            await start(engine, "one")
        row = await engine.store.ledger_row(LedgerKey(T, "s", "", "one"))
        page = await Services(engine).queries.runs(T)
    assert row is not None and row.run_id == first.run_id
    assert [run.id for run in page.items] == [first.run_id]


@by_hand
async def test_of_starts_in_one_commit_only_those_that_are_lost_are_dropped(tmp_path: Path) -> None:
    async with opened(tmp_path, [echo], clock()) as engine:
        await Services(engine).commands.publish(T, FLOW)
        await start(engine, "one")
        names = ["one", "two", "two", "three"]
        begun = await asyncio.gather(*(start(engine, name) for name in names), return_exceptions=True)
        page = await Services(engine).queries.runs(T)
    lost = [isinstance(one, FiringLost) for one in begun]
    assert lost[0] and not lost[3] and sorted(lost[1:3]) == [False, True]
    assert len(page.items) == 3
