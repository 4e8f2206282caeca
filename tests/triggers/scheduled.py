"""Schedules on a real engine, for the tests beside this file."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.runtime.engine import Engine
from holdfast.spec.schedule import schedule_from_data
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.records import RunRow
from holdfast.store.schedule_records import LedgerRow, ScheduleState
from holdfast.testing import TestEngine
from holdfast.values import DEFAULT_TENANT

WORK = """
name: work
steps:
  - {id: a, tool: work, args: {x: "{{inputs.at}}"}}
"""


def cron(name: str = "s", expression: str = "0 * * * * *", **fields: Any) -> ScheduleSpec:
    data = {"id": name, "workflow": "work", "trigger": {"kind": "cron", "expression": expression}, **fields}
    data.setdefault("inputs", {"at": "{{trigger.scheduled_at}}"})
    return schedule_from_data(data)


async def put(engine: TestEngine, *specs: ScheduleSpec) -> Engine:
    """Publish the workflow and store schedules of it."""
    hf = await engine.open()
    await hf.publish(WORK)
    for spec in specs:
        await hf._engine.schedules.put(DEFAULT_TENANT, spec)
    return hf._engine


async def ledger(engine: TestEngine, name: str = "s") -> list[LedgerRow]:
    """The rows of a schedule, the oldest first."""
    opened = (await engine.open())._engine
    return (await opened.store.ledger(DEFAULT_TENANT, name, None, 1_000))[::-1]


async def runs(engine: TestEngine) -> list[RunRow]:
    opened = (await engine.open())._engine
    return (await opened.store.list_runs(DEFAULT_TENANT, None, 1_000)).rows[::-1]


async def state(engine: TestEngine, name: str = "s") -> ScheduleState:
    opened = (await engine.open())._engine
    (found,) = await opened.store.schedule_states([(DEFAULT_TENANT, name)])
    return found


async def forever(**args: Any) -> None:
    await asyncio.get_running_loop().create_future()


class Gates:
    """A tool whose calls wait until each is let through, in the order of the calls."""

    def __init__(self) -> None:
        self._waiting: list[asyncio.Future[None]] = []

    async def __call__(self, **args: Any) -> None:
        self._waiting.append(asyncio.get_running_loop().create_future())
        await self._waiting[-1]

    def open(self) -> None:
        """Let the oldest call through."""
        self._waiting.pop(0).set_result(None)

    def forget(self) -> None:
        """The calls of a process that has ended are not waiting any more."""
        self._waiting = [call for call in self._waiting if not call.done()]
