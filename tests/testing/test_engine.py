"""The fixture `engine` as a user has it: time by hand, tools that are not real, crashes."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import NotFound, RunCancelled, RunFailed, ToolError, tool
from holdfast.testing import TestEngine, next_call

THREE_DAYS = """
name: reminder
inputs: {to: {type: string}}
steps:
  - {id: pause, kind: timer, delay_ms: 259200000}
  - {id: send, tool: send, args: {to: "{{ to }}"}}
"""
CALLS = "name: n\ninputs: {x: {default: 1}}\nsteps: [{id: a, tool: work, args: {x: '{{ x }}'}}]"
RETRIES = "name: n\nsteps: [{id: a, tool: work, retry: {max_attempts: 3, initial_delay_ms: 60000, max_delay_ms: 600000}}]"


# -------------------------------------------------------------------------------------------------------------- time


async def test_a_run_goes_through_three_days_by_itself(engine: TestEngine) -> None:
    send = engine.fake_tool("send", returns="sent")
    began = engine.now
    output = await engine.run(THREE_DAYS, {"to": "ada"})
    assert (output["send"], send.calls) == ("sent", [{"to": "ada"}])
    assert timedelta(days=3) <= engine.now - began < timedelta(days=3, seconds=2)


async def test_time_stands_still_until_the_test_moves_it(engine: TestEngine) -> None:
    send = engine.fake_tool("send")
    run = await engine.start(THREE_DAYS, {"to": "ada"})
    await engine.advance(days=2, hours=23, minutes=59, seconds=59)
    assert (await run.status(), send.calls) == ("waiting", [])
    await engine.advance(seconds=1)
    assert (await run.status(), len(send.calls)) == ("completed", 1)


async def test_back_off_passes_as_time_does(engine: TestEngine) -> None:
    work = engine.fake_tool("work", side_effect=[ToolError("no"), ToolError("no"), "yes"])
    run = await engine.start(RETRIES)
    assert len(work.calls) == 1
    await engine.advance(minutes=1)
    assert len(work.calls) == 2
    await engine.advance(minutes=2)
    assert await run.result() == {"a": "yes"}


async def test_three_days_pass_in_a_handful_of_turns(engine: TestEngine) -> None:
    engine.fake_tool("send")
    await engine.start(THREE_DAYS, {"to": "ada"})
    turns = 0
    loop: Any = asyncio.get_running_loop()
    once = loop._run_once

    def counted() -> None:
        nonlocal turns
        turns += 1
        once()

    loop._run_once = counted
    await engine.advance(days=3)
    assert turns < 500  # no tick per second of it


async def test_a_time_out_comes_in_its_own_time(engine: TestEngine) -> None:
    @engine.tool
    async def work(x: int) -> None:
        await asyncio.sleep(3_600)

    began = engine.now
    with pytest.raises(RunFailed) as caught:
        await engine.run(CALLS.replace("tool: work", "tool: work, timeout_secs: 60"))
    assert caught.value.error.kind == "timeout"
    assert engine.now - began < timedelta(seconds=80)


async def test_time_waits_for_a_tool_in_a_thread(engine: TestEngine) -> None:
    threads = []

    @tool(name="work")
    def work(x: int) -> int:
        threading.Event().wait(0.05)  # the work of a sync tool takes real time
        threads.append(threading.current_thread())
        return x

    engine.tool(work)
    assert await engine.run(CALLS.replace("tool: work", "tool: work, timeout_secs: 1")) == {"a": 1}
    assert threads != [threading.main_thread()]


async def test_a_run_that_time_cannot_bring_further_is_told_apart_from_one_that_waits(
    engine: TestEngine,
) -> None:
    engine.fake_tool("send")
    await engine.start(THREE_DAYS, {"to": "ada"})
    with pytest.raises(AssertionError, match=r"makes no progress: .*work"):
        await engine.run(CALLS)


async def test_a_test_can_look_at_several_runs(engine: TestEngine) -> None:
    engine.fake_tool("send")
    runs = [await engine.start(THREE_DAYS, {"to": str(number)}) for number in range(50)]
    await engine.advance(days=3)
    assert {await run.status() for run in runs} == {"completed"}


# ------------------------------------------------------------------------------------------------------------- tools


async def test_a_fake_tool_records_its_calls_and_returns_what_it_was_told_to(engine: TestEngine) -> None:
    work = engine.fake_tool("work", returns={"ok": True})
    assert await engine.run(CALLS, {"x": [1, 2]}) == {"a": {"ok": True}}
    assert work.calls == [{"x": [1, 2]}]


async def test_a_fake_tool_raises_what_it_was_told_to(engine: TestEngine) -> None:
    engine.fake_tool("work", raises=ToolError("full", kind="quota"))
    with pytest.raises(RunFailed) as caught:
        await engine.run(CALLS)
    assert (caught.value.error.kind, caught.value.error.message) == ("quota", "full")


async def test_a_fake_tool_asks_a_function(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=lambda x: x + 1)
    assert await engine.run(CALLS) == {"a": 2}


async def test_a_function_may_stand_in_the_place_of_the_answer(engine: TestEngine) -> None:
    async def later(x: int) -> int:
        await asyncio.sleep(5)
        return x * 10

    engine.fake_tool("work", later)
    assert await engine.run(CALLS) == {"a": 10}


async def test_a_fake_tool_that_has_run_out_of_answers_fails(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=[ToolError("first")])
    with pytest.raises(RunFailed, match="more often than it has results"):
        await engine.run(RETRIES)


async def test_a_later_fake_takes_the_place_of_an_earlier_one(engine: TestEngine) -> None:
    engine.fake_tool("work", returns=1)
    assert await engine.run(CALLS) == {"a": 1}
    engine.fake_tool("work", returns=2)
    assert await engine.run(CALLS) == {"a": 2}


# ------------------------------------------------------------------------------------------------------------ crashes


async def test_a_run_goes_on_after_a_crash(engine: TestEngine) -> None:
    send = engine.fake_tool("send", returns="sent")
    run = await engine.start(THREE_DAYS, {"to": "ada"})
    await engine.advance(days=1)
    await engine.restart()
    await engine.advance(days=2)
    assert (await run.result())["send"] == "sent"
    assert len(send.calls) == 1


async def test_an_attempt_that_a_crash_cut_off_is_made_again(engine: TestEngine) -> None:
    hangs = engine.fake_tool("work", side_effect=lambda: asyncio.sleep(1e6))
    run = await engine.start("name: n\nsteps: [{id: a, tool: work}]")
    assert len(hangs.calls) == 1
    engine.fake_tool("work", returns="done")
    await engine.restart()
    assert await engine.finish(run) == {"a": "done"}
    assert (await run.steps())["a"].attempts == 2


async def test_a_step_that_must_not_be_made_twice_is_lost_by_a_crash(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=lambda: asyncio.sleep(1e6))
    run = await engine.start("name: n\nsteps: [{id: a, tool: work, on_crash: fail}]")
    await engine.restart()
    with pytest.raises(RunFailed) as caught:
        await run.result()
    assert caught.value.error.kind == "lost"


async def test_a_tool_that_was_missing_is_used_after_a_restart(engine: TestEngine) -> None:
    run = await engine.start(CALLS)
    engine.fake_tool("work", returns=7)
    await engine.restart()
    assert await engine.finish(run) == {"a": 7}


# ------------------------------------------------------------------------------------------------- the rest of the door


async def test_everything_else_that_a_holdfast_can_do_is_there(engine: TestEngine) -> None:
    engine.fake_tool("send")
    hf = await engine.open()
    await hf.publish(THREE_DAYS)
    run = await engine.start("reminder", {"to": "ada"}, request_id="r", labels={"a": "b"})
    assert (await engine.start("reminder", {"to": "ada"}, request_id="r")).id == run.id
    await hf.cancel(run.id, "not needed")
    with pytest.raises(RunCancelled):
        await engine.finish(run)
    assert [event["detail"]["kind"] async for event in run.events()][-1] == "workflow_terminal"
    with pytest.raises(NotFound):
        await engine.attach("nothing")


def test_a_sync_test_may_run_loops_of_its_own(engine: TestEngine) -> None:
    engine.fake_tool("send", returns="sent")

    async def begin() -> str:
        run = await engine.start(THREE_DAYS, {"to": "ada"})
        return run.id

    async def end(run_id: str) -> Any:
        return await engine.finish(await engine.attach(run_id))

    run_id = asyncio.run(begin())
    assert asyncio.run(end(run_id))["send"] == "sent"


def test_a_test_that_does_not_use_its_engine_opens_nothing(engine: TestEngine) -> None:
    assert not engine.file.exists()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_test_of_another_plugin_has_the_same_engine(
    engine: TestEngine, anyio_backend: str, tmp_path: Path
) -> None:
    send = engine.fake_tool("send")
    run = await engine.start(THREE_DAYS, {"to": "ada"})
    await engine.advance(days=1)
    await engine.restart()
    assert await run.status() == "waiting"
    await engine.finish(run)
    assert len(send.calls) == 1


async def test_a_century_passes_in_as_many_steps_as_there_are_things_due(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def counted() -> float | None:
        nonlocal looks
        looks += 1
        return next_call()

    ten_years = "kind: timer, delay_ms: 315360000000"
    run = await engine.start(f"{{name: c, steps: [{{id: a, {ten_years}}}, {{id: b, {ten_years}}}]}}")
    await engine.start("{name: s, steps: [{id: a, kind: wait_event, signal_key: go}]}")
    monkeypatch.setattr("holdfast.testing.next_call", counted)
    await engine.advance(days=36_500)
    assert await run.status() == "completed"
    assert looks < 50


async def test_runs_are_forgotten_in_the_hours_that_pass(engine: TestEngine) -> None:
    engine.options["retention_days"] = 30
    old = await engine.start("{name: o, steps: [{id: a, kind: timer, delay_ms: 1000}]}")
    await engine.finish(old)
    await engine.advance(days=29)
    assert [found.id for found in await (await engine.open()).runs()] == [old.id]
    await engine.advance(days=2)
    assert await (await engine.open()).runs() == []


async def test_time_that_goes_back_is_refused(engine: TestEngine) -> None:
    with pytest.raises(ValueError, match="time cannot go back"):
        await engine.advance(days=-1)
