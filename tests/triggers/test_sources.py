"""Sources: generators of the user whose events start runs, each once, and are acknowledged when they are durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.api.services import Services
from holdfast.spec.schedule import schedule_from_data
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.testing import TestEngine
from holdfast.values import DEFAULT_TENANT
from tests.triggers.scheduled import ledger, put, runs


class Log:
    """A queue outside: what was acknowledged is not sent again."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.events: list[tuple[str, Any]] = []
        self.acknowledged: list[str] = []
        self.positions: list[str | None] = []
        self.more = asyncio.Event()
        self.failure: BaseException | None = None

    def add(self, *events: tuple[str, Any]) -> None:
        self.events += events
        self.more.set()


LOG = Log()


async def events(position: str | None) -> AsyncIterator[tuple[str, Any]]:
    LOG.positions.append(position)
    while True:
        for event in [one for one in LOG.events if one[0] not in LOG.acknowledged]:
            yield event
            if LOG.failure is not None:
                failure, LOG.failure = LOG.failure, None
                raise failure
            LOG.acknowledged.append(event[0])
        LOG.more.clear()
        await LOG.more.wait()


async def ends(position: str | None) -> AsyncIterator[tuple[str, Any]]:
    LOG.positions.append(position)
    for event in LOG.events:
        yield event


async def no_generator(position: str | None) -> None:
    """A coroutine: it cannot yield events."""


@pytest.fixture(autouse=True)
def log() -> Log:
    LOG.reset()
    return LOG


def source(function: str = "events", **fields: Any) -> ScheduleSpec:
    trigger = {"kind": "source", "source": f"{__name__}:{function}"}
    data = {"id": "s", "workflow": "work", "inputs": {"at": "{{trigger.payload.n}}"}, "max_concurrent": 0}
    return schedule_from_data({**data, **fields, "trigger": trigger})


async def test_each_event_starts_a_run_and_is_acknowledged(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    LOG.add(("1", {"n": 10}), ("2", {"n": 20}))
    await put(engine, source())
    await engine.advance()
    LOG.add(("3", {"n": 30}))
    await engine.advance()
    assert [call["x"] for call in work.calls] == [10, 20, 30]
    assert LOG.acknowledged == ["1", "2", "3"]
    assert [row.occurrence for row in await ledger(engine)] == ["1", "2", "3"]


async def test_a_source_goes_on_from_its_position_after_a_restart(engine: TestEngine) -> None:
    engine.fake_tool("work")
    LOG.add(("1", {"n": 1}), ("2", {"n": 2}))
    await put(engine, source())
    await engine.advance()
    await engine.restart()
    await engine.advance()
    assert LOG.positions == [None, "2"]


async def test_an_event_that_was_not_acknowledged_is_not_started_twice(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    LOG.failure = ConnectionError("gone between commit and acknowledgement")
    LOG.add(("1", {"n": 1}), ("2", {"n": 2}))
    await put(engine, source())
    await engine.advance()
    assert LOG.acknowledged == []
    await engine.advance(seconds=5)
    assert LOG.acknowledged == ["1", "2"]
    assert [call["x"] for call in work.calls] == [1, 2] and len(await runs(engine)) == 2


async def test_a_source_that_raises_is_started_again_after_a_pause_that_doubles(engine: TestEngine) -> None:
    engine.fake_tool("work")
    own = await put(engine, source("ends"))
    for seconds in (0, 2, 4, 8, 16, 32, 60, 60):
        await engine.advance(seconds=seconds)
    assert 5 <= len(LOG.positions) <= 9
    (problem,) = own.kinds.sources.problems.values()
    assert problem == "its source is not running: the source ended; it is started again after 60 s"


async def test_a_schedule_whose_source_does_not_run_is_explained(engine: TestEngine) -> None:
    engine.fake_tool("work")
    services = Services(await put(engine, source("none")))
    await engine.advance()
    (note,) = (await services.schedules.schedule(DEFAULT_TENANT, "s")).notes
    assert note.code == "stalled" and "has no 'none'" in note.message
    (stalled,) = (await services.why.why(DEFAULT_TENANT, "s", None, 9)).items
    assert (stalled.outcome, stalled.message) == ("will_not_fire", note.message)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("none", "has no 'none'"),
        ("no_generator", "is not an async generator function"),
    ],
)
async def test_a_reference_that_is_no_generator_is_a_problem(
    engine: TestEngine, name: str, words: str
) -> None:
    engine.fake_tool("work")
    own = await put(engine, source(name))
    await engine.advance()
    (problem,) = own.kinds.sources.problems.values()
    assert words in problem


@pytest.mark.parametrize("event", ["text", ("", 1), (1, 2), ("a", 1, 2), ("x" * 1_001, 1)])
async def test_an_event_of_another_shape_is_a_problem_and_starts_nothing(
    engine: TestEngine, event: Any
) -> None:
    engine.fake_tool("work")
    LOG.add(event)
    own = await put(engine, source("ends"))
    await engine.advance()
    assert "event" in next(iter(own.kinds.sources.problems.values())) or "yields" in next(
        iter(own.kinds.sources.problems.values())
    )
    assert await runs(engine) == []


async def test_a_payload_that_is_not_json_is_a_failed_row_and_the_rest_goes_on(engine: TestEngine) -> None:
    work = engine.fake_tool("work")
    LOG.add(("1", {"n": float("nan")}), ("2", {"n": 2}))
    await put(engine, source())
    await engine.advance()
    assert [(row.occurrence, row.outcome) for row in await ledger(engine)] == [
        ("1", "failed"),
        ("2", "fired"),
    ]
    assert len(work.calls) == 1 and LOG.acknowledged == ["1", "2"]


async def test_a_source_stops_when_its_schedule_is_disabled(engine: TestEngine) -> None:
    engine.fake_tool("work")
    own = await put(engine, source())
    await engine.advance()
    await own.schedules.put(DEFAULT_TENANT, source(enabled=False))
    LOG.add(("1", {"n": 1}))
    await engine.advance(seconds=120)
    assert await runs(engine) == []
