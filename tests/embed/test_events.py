"""Following a run: its events from the first to the last, told once each, whoever reads them and however slowly."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from holdfast import (
    Context,
    EngineClosed,
    Holdfast,
    HoldfastError,
    NotFound,
    RunEvent,
    RunHandle,
    ToolError,
    tool,
)

TWO = "name: two\nsteps: [{id: a, tool: echo, args: {x: 1}}, {id: b, tool: echo, args: {x: 2}}]"
GATE = "name: g\nsteps: [{id: g, tool: gate}]"


@tool
async def echo(x: Any = None) -> Any:
    return x


@tool
async def fail() -> None:
    raise ToolError("no luck", kind="quota")


class Gate:
    """A tool that waits until the test opens it."""

    def __init__(self) -> None:
        self.opened, self.began = asyncio.Event(), asyncio.Event()

        @tool(name="gate")
        async def gate() -> str:
            self.began.set()
            await self.opened.wait()
            return "through"

        self.tool = gate


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'h.db'}"


async def all_of(run: RunHandle) -> list[RunEvent]:
    return [event async for event in run.events()]


def told(events: list[RunEvent]) -> list[str]:
    """Each event in a few words."""
    words = []
    for event in events:
        detail = event["detail"]
        status = f"={detail['status']}" if "status" in detail else ""
        attempt = f"#{detail['attempt']}" if detail.get("attempt") else ""
        words.append(f"{detail['kind']} {event['current_step_id'] or ''}{attempt}{status}".replace(" =", "="))
    return [word.strip() for word in words]


# ------------------------------------------------------------------------------------------------ what is told


@pytest.mark.anyio
async def test_each_step_is_entered_and_left_between_the_start_and_the_end(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        events = await all_of(await hf.start(TWO))
    assert told(events) == [
        "workflow_started",
        "step_enter a#1",
        "step_exit a#1=completed",
        "step_enter b#1",
        "step_exit b#1=completed",
        "workflow_terminal b=completed",
    ]


@pytest.mark.anyio
async def test_an_event_says_whose_it_is_and_how_far_the_run_is(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        run = await hf.start(TWO)
        events = await all_of(run)
    assert events[2].pop("at") is not None  # type: ignore[misc]
    assert events[2] == {
        "id": 2,
        "run_id": run.id,
        "seq": 2,
        "state": "running",
        "path": "a",
        "workflow_id": run.id,
        "job_id": str(uuid.uuid5(uuid.UUID(run.id), "a#1")),
        "status": "running",
        "current_step_id": "a",
        "progress": {"completed_steps": 1, "total_steps": 2},
        "detail": {"kind": "step_exit", "attempt": 1, "status": "completed", "error": None},
    }
    assert [events[0]["job_id"], events[-1]["job_id"]] == [run.id, run.id]
    assert events[-1]["status"] == "completed"


@pytest.mark.anyio
async def test_each_attempt_is_entered_and_left_under_a_job_of_its_own(database: str) -> None:
    spec = "name: n\nsteps: [{id: a, tool: fail, retry: {max_attempts: 2, initial_delay_ms: 1, max_delay_ms: 1}}]"
    async with Holdfast(database, tools=[fail]) as hf:
        run = await hf.start(spec)
        events = await all_of(run)
    assert told(events) == [
        "workflow_started",
        "step_enter a#1",
        "step_exit a#1=retrying",
        "step_enter a#2",
        "step_exit a#2=failed",
        "workflow_terminal a=failed",
    ]
    jobs = [event["job_id"] for event in events]
    assert jobs[1] == jobs[2] != jobs[3] == jobs[4] == str(uuid.uuid5(uuid.UUID(run.id), "a#2"))
    errors = [event["detail"]["error"]["kind"] for event in (events[2], events[4], events[5])]
    assert errors == ["quota"] * 3


@pytest.mark.anyio
async def test_nested_steps_are_counted_once_and_what_ends_without_a_call_is_entered_and_left(
    database: str,
) -> None:
    spec = """
name: n
steps:
  - {id: par, kind: parallel, steps: [{id: a, tool: echo}, {id: b, tool: echo}]}
  - {id: loop, kind: foreach, items: '$.inputs.items', steps: [{id: c, tool: echo, args: {x: '{{ item }}'}}]}
  - {id: br, kind: branch, on: '$.inputs.no', then: [{id: d, tool: echo}]}
inputs: {items: {default: [1, 2, 3]}, no: {default: false}}
"""
    async with Holdfast(database, tools=[echo]) as hf:
        events = await all_of(await hf.start(spec))
    assert [event["progress"]["total_steps"] for event in events] == [7] * len(events)
    assert events[-1]["progress"]["completed_steps"] == 6  # all but d, which nobody asked for
    words = told(events)
    assert words[-3:] == ["step_enter br", "step_exit br=completed", "workflow_terminal loop[2].c=completed"]
    assert [word for word in words if "loop" in word][:3] == [
        "step_enter loop",
        "step_enter loop[0].c#1",
        "step_exit loop[0].c#1=completed",
    ]


@pytest.mark.anyio
async def test_a_time_out_is_told_with_its_error(database: str) -> None:
    gate = Gate()
    spec = "name: n\nsteps: [{id: g, tool: gate, timeout_secs: 0.01, retry: {max_attempts: 2, initial_delay_ms: 1}}]"
    async with Holdfast(database, tools=[gate.tool]) as hf:
        events = await all_of(await hf.start(spec))
    exits = [event["detail"] for event in events if event["detail"]["kind"] == "step_exit"]
    assert [left["status"] for left in exits] == ["retrying", "failed"]
    assert [left["error"]["kind"] for left in exits] == ["timeout", "timeout"]


@pytest.mark.anyio
async def test_an_interrupted_run_says_so_before_its_end(database: str) -> None:
    gate = Gate()
    async with Holdfast(database, tools=[gate.tool]) as hf:
        run = await hf.start(GATE + "\non_restart: interrupt")
        await gate.began.wait()
    async with Holdfast(database, tools=[gate.tool]) as hf:
        events = await all_of(await hf.run(run.id))
    assert [event["detail"]["kind"] for event in events[-2:]] == ["interrupted", "workflow_terminal"]
    assert events[-2]["detail"]["reason"] == "server restart"
    assert events[-1]["status"] == "interrupted"


# ------------------------------------------------------------------------------------------------- who reads, and when


@pytest.mark.anyio
async def test_history_and_present_join_without_gap_or_repetition(database: str) -> None:
    gate = Gate()
    spec = "name: n\nsteps: [{id: a, tool: echo}, {id: g, tool: gate}, {id: b, tool: echo}]"
    async with Holdfast(database, tools=[echo, gate.tool]) as hf:
        run = await hf.start(spec)
        early = asyncio.ensure_future(all_of(run))
        await gate.began.wait()
        late = asyncio.ensure_future(all_of(await hf.run(run.id)))
        await asyncio.sleep(0)
        gate.opened.set()
        assert await early == await late == await all_of(run)


@pytest.mark.anyio
async def test_the_events_of_a_finished_run_are_told_after_a_restart(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        run = await hf.start(TWO)
        before = await all_of(run)
    async with Holdfast(database) as hf:
        assert await all_of(await hf.run(run.id)) == before


@pytest.mark.anyio
async def test_readers_who_come_while_a_run_ends_all_see_its_end(database: str) -> None:
    async with Holdfast(database, tools=[echo]) as hf:
        for _ in range(20):
            run = await hf.start(TWO)
            readers = []
            for _ in range(5):
                readers.append(asyncio.ensure_future(all_of(run)))
                await asyncio.sleep(0)
            ends = [told(events)[-1] for events in await asyncio.gather(*readers)]
            assert ends == ["workflow_terminal b=completed"] * 5


@pytest.mark.anyio
async def test_a_cancel_is_seen_by_whoever_reads(database: str) -> None:
    gate = Gate()
    async with Holdfast(database, tools=[gate.tool]) as hf:
        run = await hf.start(GATE)
        reading = asyncio.ensure_future(all_of(run))
        await gate.began.wait()
        assert (await hf.cancel(run.id))["cancelled"]
        assert told(await reading)[-2:] == ["step_exit g#1=cancelled", "workflow_terminal g=cancelled"]


@pytest.mark.anyio
async def test_a_reader_who_stops_reading_holds_nothing_back_and_misses_nothing(database: str) -> None:
    spec = """
name: n
inputs: {items: {type: array}}
steps: [{id: loop, kind: foreach, items: $.inputs.items, collect: none, steps: [{id: e, tool: echo}]}]
"""
    async with Holdfast(database, tools=[echo]) as hf:
        run = await hf.start(spec, {"items": [0] * 3_000})
        reading = run.events()
        first = await anext(reading)
        await run.result()
        rest = [event async for event in reading]
    assert first["detail"]["kind"] == "workflow_started"
    entered = [event["current_step_id"] for event in rest if event["detail"]["kind"] == "step_enter"]
    assert entered == ["loop", *(f"loop[{index}].e" for index in range(3_000))]
    assert told(rest[-2:]) == ["step_exit loop=completed", "workflow_terminal loop[2999].e=completed"]


@pytest.mark.anyio
async def test_nobody_is_told_of_rows_once_the_last_reader_has_gone(database: str) -> None:
    gate = Gate()
    async with Holdfast(database, tools=[gate.tool]) as hf:
        run = await hf.start(GATE)
        reading = run.events()
        await anext(reading)
        assert len(hf._engine.door.watchers) == 1
        await reading.aclose()  # type: ignore[attr-defined]
        assert hf._engine.door.watchers == []
        gate.opened.set()


@pytest.mark.anyio
async def test_a_reader_does_not_wait_for_an_engine_that_was_closed(database: str) -> None:
    gate = Gate()
    async with Holdfast(database, tools=[gate.tool]) as hf:
        run = await hf.start(GATE)
        reading = asyncio.ensure_future(all_of(run))
        await gate.began.wait()
    with pytest.raises(EngineClosed):
        await reading
    with pytest.raises(EngineClosed):
        await all_of(run)


@pytest.mark.anyio
async def test_a_reader_does_not_wait_for_a_run_that_was_set_aside(database: str) -> None:
    gate = Gate()
    async with Holdfast(database, tools=[gate.tool]) as hf:
        run = await hf.start(GATE)
        reading = asyncio.ensure_future(all_of(run))
        await gate.began.wait()
        hf._engine.door.set_aside(run._no, RuntimeError("a defect"))
        for late in (reading, all_of(run)):
            with pytest.raises(HoldfastError, match="set aside"):
                await late


@pytest.mark.anyio
async def test_a_run_that_is_not_there_has_no_events(database: str) -> None:
    async with Holdfast(database) as hf:
        with pytest.raises(NotFound):
            await hf.run("nothing")


# ------------------------------------------------------------------------------------------- what tools say meanwhile

SAYS = "name: s\nsteps: [{id: g, tool: gate}, {id: s, tool: says}]"


async def read_from_the_gate_on(database: str, *tools: Any) -> list[RunEvent]:
    """The events of SAYS after its first step, as a reader has them who was there before the second began."""
    gate = Gate()
    async with Holdfast(database, tools=[gate.tool, *tools]) as hf:
        reading = asyncio.ensure_future(all_of(await hf.start(SAYS)))
        await gate.began.wait()
        await asyncio.sleep(0)
        gate.opened.set()
        return [event for event in await reading if event["current_step_id"] == "s"]


@tool
async def says(context: Context) -> str:
    context.log("looking", page=1)
    context.progress(1, 4, "on page 1")
    return "seen"


@pytest.mark.anyio
async def test_what_a_tool_says_is_told_between_the_beginning_and_the_end_of_its_attempt(
    database: str,
) -> None:
    events = await read_from_the_gate_on(database, says)
    assert [event["detail"]["kind"] for event in events] == [
        "step_enter", "log", "progress", "step_exit", "workflow_terminal",
    ]  # fmt: skip
    said, far = events[1], events[2]
    assert (said["id"], said["current_step_id"], said["job_id"]) == (None, "s", events[0]["job_id"])
    assert said["detail"] == {"kind": "log", "attempt": 1, "message": "looking", "fields": {"page": 1}}
    assert (far["detail"]["fraction"], far["detail"]["message"]) == (0.25, "on page 1")


@pytest.mark.anyio
async def test_what_a_tool_said_is_not_told_again(database: str) -> None:
    gate = Gate()
    gate.opened.set()
    async with Holdfast(database, tools=[gate.tool, says]) as hf:
        run = await hf.start(SAYS)
        await run.result()
        assert {event["detail"]["kind"] for event in await all_of(run)}.isdisjoint({"log", "progress"})


@pytest.mark.anyio
async def test_of_what_tools_say_a_slow_reader_misses_the_oldest(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.views.events.SAID_MAX", 3)

    @tool(name="says")
    async def chatters(context: Context) -> None:
        for n in range(10):
            context.log(str(n))

    events = await read_from_the_gate_on(database, chatters)
    logs = [event["detail"]["message"] for event in events if event["detail"]["kind"] == "log"]
    assert logs == ["7", "8", "9"]
