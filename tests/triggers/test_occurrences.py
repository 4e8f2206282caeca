"""Events of schedules without a clock, on the real engine and a real file: each starts one run, waits, or is skipped."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from holdfast import limits
from holdfast.errors import StoreUnavailable
from holdfast.spec.schedule import schedule_from_data
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.testing import TestEngine
from holdfast.triggers.occurrences import Accepted, Delivered, Delivery
from holdfast.values import DEFAULT_TENANT
from tests.small_limits import with_limits
from tests.triggers.scheduled import Gates, forever, ledger, put, runs


def hook(**fields: Any) -> ScheduleSpec:
    data = {"id": "s", "workflow": "work", "inputs": {"at": "{{trigger.payload.n}}"}, **fields}
    return schedule_from_data({**data, "trigger": {"kind": "webhook", "path": "/hooks/s"}})


async def deliver(
    engine: TestEngine, spec: ScheduleSpec, name: str, payload: Any = None, **more: Any
) -> Delivered:
    own = (await engine.open())._engine
    text = json.dumps({"n": name} if payload is None else payload).encode()
    delivery = Delivery(
        tenant=DEFAULT_TENANT, spec=spec, occurrence=name, payload=text, scheduled_at=own.clock.now(), **more
    )
    return await own.kinds.occurrences.deliver(delivery)


def reply(accepted: Accepted) -> bytes:
    return f"{accepted.inputs} {accepted.run_id}".encode()


async def outcomes(engine: TestEngine) -> list[tuple[str, str, str]]:
    return [(row.occurrence, row.outcome, row.reason) for row in await ledger(engine)]


async def test_an_event_starts_a_run_that_names_its_schedule(engine: TestEngine) -> None:
    work, spec = engine.fake_tool("work"), hook()
    await put(engine, spec)
    delivered = await deliver(engine, spec, "e1", reply=reply)
    await engine.advance()
    (run,) = await runs(engine)
    assert (delivered.outcome, delivered.run_id, run.schedule) == ("fired", run.id, "s")
    assert delivered.reply == f"{{'at': 'e1'}} {run.id}".encode()
    assert work.calls == [{"x": "e1"}]


async def test_an_event_that_is_repeated_gets_the_stored_reply_also_after_a_restart(
    engine: TestEngine,
) -> None:
    engine.fake_tool("work")
    spec = hook()
    await put(engine, spec)
    first = await deliver(engine, spec, "e1", reply=reply)
    await engine.restart()
    again = await deliver(engine, spec, "e1", {"n": "other"}, reply=reply)
    assert (again.reply, again.run_id, again.is_repeated) == (first.reply, first.run_id, True)
    assert len(await runs(engine)) == 1


async def test_the_same_event_many_times_at_once_starts_one_run(engine: TestEngine) -> None:
    engine.fake_tool("work")
    spec = hook(max_concurrent=0)
    await put(engine, spec)
    found = await asyncio.gather(*(deliver(engine, spec, "e1", reply=reply) for _ in range(50)))
    assert len({one.reply for one in found}) == 1
    assert [one.is_repeated for one in found].count(False) == 1
    assert len(await runs(engine)) == 1


async def test_events_at_once_start_no_more_runs_than_the_schedule_allows(engine: TestEngine) -> None:
    engine.fake_tool("work", forever)
    spec = hook(max_concurrent=3)
    await put(engine, spec)
    found = await asyncio.gather(*(deliver(engine, spec, f"e{n}") for n in range(20)))
    assert [one.outcome for one in found].count("fired") == 3
    assert {one.in_flight for one in found if one.outcome == "skipped"} == {3}
    assert len(await runs(engine)) == 3


async def test_an_event_that_is_skipped_is_a_row_and_is_not_started_when_it_is_repeated(
    engine: TestEngine,
) -> None:
    gates = Gates()
    engine.fake_tool("work", gates)
    spec = hook()
    await put(engine, spec)
    await deliver(engine, spec, "e1")
    assert (await deliver(engine, spec, "e2")).reason == "overlap"
    await engine.advance()
    gates.open()
    await engine.advance()
    assert (await deliver(engine, spec, "e2")).outcome == "skipped"
    assert await outcomes(engine) == [("e1", "fired", ""), ("e2", "skipped", "overlap")]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_buffer_all_starts_every_event_in_order(engine: TestEngine, is_restarted: bool) -> None:
    gates = Gates()
    work, spec = engine.fake_tool("work", gates), hook(overlap="buffer_all")
    await put(engine, spec)
    found = [await deliver(engine, spec, f"e{n}", reply=reply) for n in range(4)]
    assert [one.outcome for one in found] == ["fired", "buffered", "buffered", "buffered"]
    if is_restarted:
        await engine.advance()
        await engine.restart()
        gates.forget()
    for _ in range(4):
        await engine.advance()
        gates.open()
    await engine.advance()
    assert [call["x"] for call in work.calls][-3:] == ["e1", "e2", "e3"]
    assert {outcome for _, outcome, _ in await outcomes(engine)} == {"fired"}
    assert (await deliver(engine, spec, "e1", reply=reply)).reply == found[1].reply


async def test_a_new_event_does_not_overtake_those_that_wait(engine: TestEngine) -> None:
    gates = Gates()
    work, spec = engine.fake_tool("work", gates), hook(overlap="buffer_all")
    await put(engine, spec)
    for name in ("e1", "e2"):
        await deliver(engine, spec, name)
    await engine.advance()
    own = (await engine.open())._engine
    own.kinds.waiting.abandon()  # as if it had not come to it yet
    gates.open()
    await engine.advance()
    assert (await deliver(engine, spec, "e3")).outcome == "buffered"
    assert [call["x"] for call in work.calls] == ["e1"]


async def test_buffer_one_keeps_one_event_and_skips_the_rest(engine: TestEngine) -> None:
    engine.fake_tool("work", forever)
    spec = hook(overlap="buffer_one")
    await put(engine, spec)
    found = [(await deliver(engine, spec, f"e{n}")).outcome for n in range(4)]
    assert found == ["fired", "buffered", "skipped", "skipped"]


async def test_no_more_events_wait_than_the_limit_says(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.fake_tool("work", forever)
    spec = hook(overlap="buffer_all")
    await put(engine, spec)
    with_limits(monkeypatch, buffered_max=2)
    found = [(await deliver(engine, spec, f"e{n}")).outcome for n in range(4)]
    assert found == ["fired", "buffered", "buffered", "skipped"]


async def test_cancel_previous_cancels_the_open_run_and_starts_the_newest_event(engine: TestEngine) -> None:
    async def slow_to_stop(x: str) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await forever()
        await forever()

    work, spec = engine.fake_tool("work", slow_to_stop), hook(overlap="cancel_previous")
    await put(engine, spec)
    await deliver(engine, spec, "e0")
    await engine.advance()
    for name in ("e1", "e2"):  # both come while the run of the first is being cancelled
        assert (await deliver(engine, spec, name)).outcome == "buffered"
    await engine.advance(seconds=30)
    assert [run.status for run in await runs(engine)] == ["cancelled", "running"]
    assert await outcomes(engine) == [
        ("e0", "fired", ""),
        ("e1", "skipped", "superseded"),
        ("e2", "fired", ""),
    ]
    assert work.calls[-1] == {"x": "e2"}


@pytest.mark.parametrize("overlap", ["buffer_one", "buffer_all", "cancel_previous"])
async def test_a_run_that_ends_while_an_event_is_decided_makes_room_for_it(
    engine: TestEngine, overlap: str
) -> None:
    gates, spec = Gates(), hook(overlap=overlap)
    engine.fake_tool("work", side_effect=gates)
    own = await put(engine, spec)
    await deliver(engine, spec, "e1")
    await engine.advance()
    work, count = engine.fake_tool("work"), own.store.open_runs_of

    async def end_after_counting(*args: Any) -> Any:
        counted = await count(*args)
        if counted:
            own.store.open_runs_of = count  # type: ignore[method-assign]
            gates.open()
            while await count(*args):
                await asyncio.sleep(0)
        return counted

    own.store.open_runs_of = end_after_counting  # type: ignore[method-assign, assignment]
    assert (await deliver(engine, spec, "e2")).outcome == "buffered"
    await engine.advance()
    assert work.calls == [{"x": "e2"}]


async def test_overlap_allow_starts_a_run_for_each_event(engine: TestEngine) -> None:
    engine.fake_tool("work", forever)
    spec = hook(overlap="allow")
    await put(engine, spec)
    assert [(await deliver(engine, spec, f"e{n}")).outcome for n in range(3)] == ["fired"] * 3


async def test_an_unknown_workflow_is_a_row_and_the_event_may_come_again(engine: TestEngine) -> None:
    engine.fake_tool("work")
    spec = hook(workflow="none")
    await put(engine, spec)
    delivered = await deliver(engine, spec, "e1", may_come_again=True)
    assert (delivered.outcome, delivered.reason) == ("failed", "unknown_workflow")
    hf = await engine.open()
    await hf.publish({"name": "none", "steps": [{"id": "a", "tool": "work"}]})
    assert (await deliver(engine, spec, "e1", may_come_again=True)).outcome == "fired"
    assert await outcomes(engine) == [("e1", "fired", "")]


async def test_nothing_is_accepted_while_the_store_cannot_write(engine: TestEngine) -> None:
    engine.fake_tool("work")
    spec = hook()
    own = await put(engine, spec)
    own.committer.is_stalled = own.committer.is_shut = True
    with pytest.raises(StoreUnavailable):
        await deliver(engine, spec, "e1")
    own.committer.is_stalled = own.committer.is_shut = False
    assert await outcomes(engine) == []
    assert (await deliver(engine, spec, "e1")).outcome == "fired"


async def test_a_known_secret_in_a_payload_is_not_stored(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_TOKEN", "hunter2-hunter2")
    work, spec = engine.fake_tool("work"), hook()
    await put(engine, spec)
    await deliver(engine, spec, "e1", {"n": "token hunter2-hunter2"})
    await engine.advance()
    assert work.calls == [{"x": "token ***"}]


async def test_a_payload_is_kept_only_up_to_a_limit(engine: TestEngine) -> None:
    engine.fake_tool("work")
    spec = hook(max_concurrent=0)
    own = await put(engine, spec)
    most = limits.now.delivery_bytes_max
    await deliver(engine, spec, "small", {"n": 1})
    await deliver(engine, spec, "large", {"n": 1, "x": "x" * most})
    small, large = await ledger(engine)
    assert await own.store.ledger_payload(small.pos) == b'{"n": 1}'
    assert await own.store.ledger_payload(large.pos) is None


async def test_the_position_of_a_source_is_stored_with_the_event(engine: TestEngine) -> None:
    engine.fake_tool("work", forever)
    spec = hook()
    await put(engine, spec)
    for name in ("e1", "e2"):  # one fires, one is skipped
        await deliver(engine, spec, name, position=name)
        await engine.restart()
        own = (await engine.open())._engine
        assert await own.kinds.occurrences.position(DEFAULT_TENANT, "s") == name


@pytest.mark.parametrize("n", range(5))
async def test_an_event_and_a_manual_fire_at_the_same_time_stay_within_the_limit(
    engine: TestEngine, n: int
) -> None:
    spec = hook(max_concurrent=1)
    engine.fake_tool("work", forever)
    await put(engine, spec)
    own = (await engine.open())._engine
    await asyncio.gather(
        deliver(engine, spec, "e1"),
        own.schedules.fire(DEFAULT_TENANT, "s", {"n": n}),
        return_exceptions=True,
    )
    assert len(await runs(engine)) == 1
