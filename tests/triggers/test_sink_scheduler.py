"""A scheduler whose fires go to a sink: a real database and a real clock, without an engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidSpec, ManagedByFile
from holdfast.spec.schedule import schedule_from_data
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.schedule_records import LedgerRow
from holdfast.triggers.handover import AGAIN_SECS
from holdfast.triggers.sink_scheduler import SinkScheduler, check
from holdfast.triggers.sinks import SLOT, InFlight, TriggerFire
from holdfast.values import DEFAULT_TENANT
from tests.triggers.scheduled import WORK

pytestmark = pytest.mark.anyio

EVERY = {"kind": "interval", "every": "100ms"}
SOON = (0.01, 0.01, 0.01)


def spec(name: str = "s", **keys: Any) -> ScheduleSpec:
    data = {"id": name, "workflow": "job", "trigger": EVERY, "inputs": {"at": "{{trigger.scheduled_at}}"}}
    return schedule_from_data({**data, **keys})


class Sink:
    """Accepts fires, or says why not, as its answers say; the last one is given for ever."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers) or [None]
        self.fires: list[TriggerFire] = []
        self._grown = asyncio.Condition()

    async def offer(self, fire: TriggerFire) -> str | None:
        async with self._grown:
            self.fires.append(fire)
            self._grown.notify_all()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    async def has(self, count: int) -> list[TriggerFire]:
        """Wait for so many offers."""
        async with self._grown:
            await self._grown.wait_for(lambda: len(self.fires) >= count)
        return self.fires


class Place:
    def __init__(self, path: Path) -> None:
        self.db = f"sqlite:///{path}"

    @asynccontextmanager
    async def opened(self, sink: Sink, *specs: ScheduleSpec, **more: Any) -> AsyncIterator[SinkScheduler]:
        scheduler = SinkScheduler(self.db, sink.offer, again_secs=SOON, **more)
        await scheduler.open(specs)
        try:
            yield scheduler
        finally:
            await scheduler.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "h.db")


async def rows(scheduler: SinkScheduler, name: str = "s") -> list[LedgerRow]:
    # All of them: ten rows a second are added, so that on a busy machine the row looked for may not be among the last hundred.
    return (await scheduler.store.ledger(DEFAULT_TENANT, name, None, 100_000))[::-1]


async def until(found: Callable[[], Awaitable[bool]]) -> None:
    while not await found():
        await asyncio.sleep(0.005)


async def until_row(scheduler: SinkScheduler, outcome: str) -> LedgerRow:
    async def is_there() -> bool:
        return any(row.outcome == outcome for row in await rows(scheduler))

    await until(is_there)
    return next(row for row in await rows(scheduler) if row.outcome == outcome)


async def test_an_occurrence_goes_to_the_sink_and_into_the_ledger(place: Place) -> None:
    sink = Sink()
    async with place.opened(sink, spec()) as scheduler:
        (fire, *_) = await sink.has(1)
        row = await until_row(scheduler, "fired")
    assert (fire.kind, fire.schedule_id, fire.workflow, fire.payload) == ("interval", "s", "job", {})
    assert fire.scheduled_at == row.scheduled_at // 1000 and fire.inputs == {"at": row.occurrence}
    assert (row.run_id, row.slot, fire.is_catchup) == (None, SLOT, False)


async def test_at_the_limit_nothing_fires_until_a_job_has_ended(place: Place) -> None:
    sink = Sink()
    async with place.opened(sink, spec()) as scheduler:
        await sink.has(1)
        row = await until_row(scheduler, "skipped")
        assert (row.reason, len(sink.fires), scheduler.in_flight.count("s")) == ("overlap", 1, 1)
        scheduler.in_flight.end("s")
        scheduler.ended("s")
        await sink.has(2)


async def test_what_waits_for_a_job_to_end_is_handed_over_then(place: Place) -> None:
    sink = Sink()
    async with place.opened(sink, spec(overlap="buffer_one")) as scheduler:
        await sink.has(1)
        await until_row(scheduler, "skipped")  # the first waits, the next are skipped
        assert len(sink.fires) == 1
        scheduler.in_flight.end("s")
        scheduler.ended("s")
        first, second = (await sink.has(2))[:2]
        assert first.inputs["at"] < second.inputs["at"]


async def test_a_fire_that_is_not_accepted_is_offered_again(place: Place) -> None:
    sink = Sink("busy", "busy", None)
    async with place.opened(sink, spec()) as scheduler:
        fires = await sink.has(3)
        assert fires[0] == fires[1] == fires[2]
        await until_row(scheduler, "fired")
        assert scheduler.in_flight.count("s") == 1


async def test_a_fire_that_is_never_accepted_is_failed_with_the_message_and_frees_its_place(
    place: Place,
) -> None:
    sink = Sink("no such job", "no such job", "no such job", "no such job", None)
    async with place.opened(sink, spec()) as scheduler:
        row = await until_row(scheduler, "failed")
        assert row.reason == "sink_failed" and row.detail is not None and "no such job" in row.detail
        fires = await sink.has(5)
        assert fires[3] == fires[0] and fires[4] != fires[0]


def test_a_fire_is_offered_again_after_1_5_and_30_seconds() -> None:
    assert AGAIN_SECS == (1, 5, 30)


async def test_a_placeholder_that_leads_nowhere_refuses_a_strict_schedule(place: Place) -> None:
    sink = Sink()
    strict = spec(inputs={"x": "{{trigger.payload.x}}"}, strict_templates=True)
    async with place.opened(sink, strict) as scheduler:
        row = await until_row(scheduler, "failed")
        assert (row.reason, sink.fires) == ("unresolved_template", [])


async def test_schedules_that_are_not_declared_any_more_are_gone(place: Place) -> None:
    async with place.opened(Sink(), spec("a"), spec("b")):
        pass
    async with place.opened(Sink(), spec("b")) as scheduler:
        found = await scheduler.store.schedules(DEFAULT_TENANT, "", 9)
        assert [(row.id, row.origin) for row in found] == [("b", "code")]


async def test_an_engine_on_the_same_database_leaves_the_schedules_of_a_sink_alone(place: Place) -> None:
    sink = Sink()
    hook = spec("hook", trigger={"kind": "webhook", "path": "/hooks/a"})
    async with place.opened(sink, spec(), hook):
        await sink.has(1)
    async with Holdfast(place.db) as hf:
        engine = hf._engine
        assert await engine.store.next_due() is None and engine.kinds.hooks.at("/hooks/a") is None
        with pytest.raises(ManagedByFile):
            await engine.schedules.fire(DEFAULT_TENANT, "s")
        with pytest.raises(ManagedByFile):
            await engine.schedules.pause(DEFAULT_TENANT, "s")
        assert await hf.runs() == []


async def test_a_scheduler_leaves_the_schedules_of_the_engine_alone(place: Place) -> None:
    async with Holdfast(place.db) as hf:
        await hf.publish(WORK)
        await hf._engine.schedules.put(DEFAULT_TENANT, spec("theirs", workflow="work"))
    sink = Sink()
    async with place.opened(sink, spec("ours", max_concurrent=0)) as scheduler:
        assert {fire.schedule_id for fire in await sink.has(3)} == {"ours"}
        with pytest.raises(ManagedByFile):
            await scheduler._definitions.put(DEFAULT_TENANT, spec("theirs"), origin="code")


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"trigger": {"kind": "run", "workflow": "w"}}, "kind run"),
        ({"trigger": {"kind": "file", "path": "/tmp"}}, "kind file"),
        ({"trigger": {"kind": "source", "source": "m:f"}}, "kind source"),
        ({"overlap": "cancel_previous"}, "cancel_previous"),
        ({"trigger": {"kind": "webhook", "path": "/a"}, "overlap": "buffer_all"}, "buffer_all of a webhook"),
        ({"pause_after_failures": 3}, "pause_after_failures"),
    ],
)
def test_a_schedule_that_needs_the_engine_is_refused(keys: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=words):
        check([spec(), spec("other", **keys)])


def test_jobs_that_have_not_ended_are_counted_and_never_below_none() -> None:
    count = InFlight()
    count.end("s")
    count.begin("s", is_catchup=True)
    count.begin("s")
    assert (count.count("s"), count.catchups("s"), count.count("t")) == (2, 1, 0)
    count.end("s", is_catchup=False)  # the second was not accepted
    assert (count.count("s"), count.catchups("s")) == (1, 1)
    count.end("s")
    count.end("s")
    assert count.count("s") == 0
