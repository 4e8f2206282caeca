"""Waiting end to end: whoever calls, whenever the answer comes, however often, and whatever happens to the process."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import (
    AmbiguousTask,
    Forbidden,
    InvalidInputs,
    LimitExceeded,
    NotWaiting,
    RunFailed,
    ToolError,
    tool,
)
from holdfast.embed import RunHandle
from holdfast.engine.events import CallbackReceived
from holdfast.errors import StoreUnavailable
from holdfast.runtime.entries import KINDS
from holdfast.signing import Capability, opened, sealed
from holdfast.testing import TestEngine
from holdfast.values import DEFAULT_TENANT, RunId, encode
from holdfast.waits import approvals, callbacks, polling
from tests.runtime.bench import opened as bench_opened
from tests.runtime.manual import by_hand, clock, settled
from tests.small_limits import with_limits

LATER = {"pending": True, "task_id": "T1", "poll_url": "http://127.0.0.1:9/t1", "estimated_seconds": 30}
CALL = """
name: later
steps:
  - {id: a, tool: ask, RULES}
  - {id: b, tool: use, args: {x: "{{ a }}"}}
output: "{{ b }}"
"""


def spec(rules: str = "") -> str:
    return CALL.replace(", RULES", rules and f", {rules}")


async def paused(engine: TestEngine, rules: str = "", answer: Any = LATER) -> RunHandle:
    engine.fake_tool("ask", answer)
    engine.fake_tool("use", lambda x: x)
    return await engine.start(spec(rules))


async def reasons(engine: TestEngine, run: RunHandle) -> dict[str, str]:
    hf = await engine.open()
    told = await hf._engine.queries.explain(DEFAULT_TENANT, run.id)
    return {reason.path: f"{reason.reason}: {reason.unblocks}" for reason in told.reasons}


# ------------------------------------------------------------------------------------------- who says it comes later


async def in_loop(**args: Any) -> dict[str, Any]:
    return LATER


async def after_a_while(**args: Any) -> dict[str, Any]:
    await asyncio.sleep(0.01)
    return LATER


def in_thread(**args: Any) -> dict[str, Any]:
    return LATER


@tool(isolate="process")
def in_process() -> dict[str, Any]:
    return {"task_id": "T1", "pending": True}


@pytest.mark.parametrize("caller", [in_loop, after_a_while, in_thread, in_process])
async def test_whatever_runs_the_tool_its_answer_may_come_later(engine: TestEngine, caller: Any) -> None:
    engine.tool(caller)
    run = await engine.start(
        f"{{name: w, steps: [{{id: a, tool: {caller.__name__}, retry: {{max_attempts: 1}}}}]}}"
    )
    await engine.advance(seconds=1)
    assert await run.status() == "waiting"
    assert await engine.resume("T1", {"n": 5}) == {"resumed": True, "reason": "resumed"}
    assert await engine.finish(run) == {"a": {"n": 5}}


async def test_a_tool_on_another_server_may_answer_later(engine: TestEngine) -> None:
    class Remote:
        async def call(self, server: str, tool: str, args: dict[str, Any], context: Any) -> Any:
            return {"pending": True, "task_id": f"{server}-{tool}"}

    engine.options["remote"] = Remote()
    run = await engine.start("{name: r, steps: [{id: a, dcc: maya, tool: render, args: {}}]}")
    assert (await engine.resume("maya-render", 7))["resumed"]
    assert await engine.finish(run) == {"a": 7}


@pytest.mark.parametrize(
    "answer",
    [
        {"pending": "true", "task_id": "T1"},
        {"pending": 1, "task_id": "T1"},
        {"pending": True},
        {"pending": False, "task_id": "T1"},
        [{"pending": True, "task_id": "T1"}],
        {"a": {"pending": True, "task_id": "T1"}},
    ],
)
async def test_anything_else_is_the_answer_itself(engine: TestEngine, answer: Any) -> None:
    run = await paused(engine, answer=answer)
    assert await engine.finish(run) == answer


async def test_a_task_id_that_is_no_text_is_warned_of(
    engine: TestEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        run = await paused(engine, answer={"pending": True, "task_id": 5})
    assert await engine.finish(run) == {"pending": True, "task_id": 5}
    assert "task_id is not text" in caplog.text


async def test_the_rules_of_a_result_are_for_the_later_answer(engine: TestEngine) -> None:
    run = await paused(engine, "result: {envelope: true, select: $.data.text, parse: json}")
    await engine.resume("T1", {"success": True, "data": {"text": '{"n": 1}'}})
    assert await engine.finish(run) == {"n": 1}


async def test_the_limit_of_a_call_ends_when_it_answers(engine: TestEngine) -> None:
    run = await paused(engine, "timeout_secs: 5")
    await engine.advance(hours=1)
    assert await run.status() == "waiting"


async def test_what_is_shown_of_a_pending_call_is_all_that_it_said(engine: TestEngine) -> None:
    run = await paused(engine)
    hf = await engine.open()
    (wait,) = await hf._engine.approvals.of_run("default", run.id)
    assert (wait.path, wait.name) == ("a", "T1")
    assert json.loads(wait.detail) == {"poll_url": "http://127.0.0.1:9/t1", "estimated_secs": 30.0}


# ------------------------------------------------------------------------------------------------ early, twice, late


async def test_the_result_becomes_the_output_and_a_second_one_changes_nothing(engine: TestEngine) -> None:
    run = await paused(engine)
    assert (await engine.resume("T1", 1))["reason"] == "resumed"
    assert (await engine.resume("T1", 2))["reason"] == "already_resumed"
    assert await engine.finish(run) == 1


async def test_of_many_at_once_one_counts(engine: TestEngine) -> None:
    run = await paused(engine)
    hf = await engine.open()
    told = await asyncio.gather(*(hf.resume("T1", n) for n in range(20)))
    assert sorted(one["reason"] for one in told) == ["already_resumed"] * 19 + ["resumed"]
    assert await engine.finish(run) == next(n for n, one in enumerate(told) if one["resumed"])


async def test_a_result_that_comes_before_its_pause_is_taken_by_it_once(engine: TestEngine) -> None:
    await engine.open()
    assert await engine.resume("T1", "early") == {"resumed": False, "reason": "parked"}
    assert await engine.resume("T1", "early") == {"resumed": False, "reason": "parked"}
    first = await paused(engine)
    assert await engine.finish(first) == "early"
    second = await engine.start(spec())
    assert await second.status() == "waiting"


async def test_of_two_results_before_the_pause_the_first_counts_and_the_second_is_told_so(
    engine: TestEngine,
) -> None:
    hf = await engine.open()
    told = list(await asyncio.gather(hf.resume("T1", "one"), hf.resume("T1", "other")))
    first = "one" if told[0]["reason"] == "parked" else "other"  # either may be the first
    told.append(await engine.resume("T1", "third"))
    assert sorted(one["reason"] for one in told) == ["already_resumed", "already_resumed", "parked"]
    assert await engine.finish(await paused(engine)) == first


async def test_a_second_result_cannot_take_the_place_of_one_that_was_kept_when_the_pause_comes(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.fake_tool("use", lambda x: x)
    engine.fake_tool("ask", LATER)
    hf = await engine.open()
    await engine.resume("T1", "first")
    may_look, take, park = asyncio.Event(), callbacks.Callbacks.take_early, callbacks.Callbacks.keep_early

    async def slowly(*args: Any) -> None:
        await may_look.wait()
        await take(*args)

    async def pause_first(*args: Any) -> bool:
        await hf.start(spec())
        await settled()
        return await park(*args)

    monkeypatch.setattr(callbacks.Callbacks, "take_early", slowly)
    monkeypatch.setattr(callbacks.Callbacks, "keep_early", pause_first)
    assert (await engine.resume("T1", "second"))["reason"] == "already_resumed"
    may_look.set()
    (run,) = await hf.runs()
    assert await engine.finish(await engine.attach(run.id)) == "first"


async def test_a_result_that_was_kept_is_for_no_later_call_when_another_was_quicker(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_look, take = asyncio.Event(), callbacks.Callbacks.take_early

    async def slowly(*args: Any) -> None:
        await may_look.wait()
        await take(*args)

    monkeypatch.setattr(callbacks.Callbacks, "take_early", slowly)
    await engine.open()
    await engine.resume("T1", "early")
    first = await paused(engine)
    assert (await engine.resume("T1", "quicker"))["resumed"]
    may_look.set()
    assert await engine.finish(first) == "quicker"
    second = await engine.start(spec())
    assert await second.status() == "waiting"


async def test_a_result_that_was_kept_is_taken_after_a_restart(engine: TestEngine) -> None:
    await engine.open()
    await engine.resume("T1", "early")
    await engine.restart()
    assert await engine.finish(await paused(engine)) == "early"


@contextmanager
def ended_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pauses are committed, and nothing follows from them, as if the process had ended then."""
    with monkeypatch.context() as patch:
        patch.setattr(callbacks.Callbacks, "paused", lambda *args: None)
        yield


async def test_a_pause_and_a_result_that_never_met_do_so_when_the_file_is_opened(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ended_after_the_commit(monkeypatch):
        await engine.open()
        await engine.resume("T1", "early")
        run = await paused(engine)
    assert await run.status() == "waiting"
    await engine.restart()
    assert await engine.finish(run) == "early"


async def test_a_result_that_was_kept_in_time_counts_though_its_time_ended_while_nobody_was_there(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ended_after_the_commit(monkeypatch):
        await engine.open()
        assert (await engine.resume("T1", "in time"))["reason"] == "parked"
        run = await paused(engine, "pending_ttl_secs: 60")
    engine.close()
    engine.clock.wall_offset_ms += 3_600_000
    await engine.restart()
    assert await engine.finish(run) == "in time"


async def test_a_result_for_another_run_is_not_taken(engine: TestEngine) -> None:
    engine.fake_tool("ask", side_effect=[{"pending": True, "task_id": "T0"}, LATER])
    engine.fake_tool("use", lambda x: x)
    meant = await engine.start(spec())
    assert (await engine.resume("T1", "x", run_id=meant.id))["reason"] == "parked"
    other = await engine.start(spec())
    assert await other.status() == "waiting"


async def test_runs_that_use_one_task_id_each_get_the_result_that_was_kept_for_them(
    engine: TestEngine,
) -> None:
    waits_first = 'name: two\nsteps:\n  - {id: w, kind: wait_event, signal_key: go}\n  - {id: a, tool: ask}\noutput: "{{ a }}"'
    engine.fake_tool("ask", LATER)
    runs = [await engine.start(waits_first) for _ in range(3)]
    told = [await engine.resume("T1", n, run_id=run.id) for n, run in enumerate(runs[:2])]
    told.append(await engine.resume("T1", 2))
    assert [one["reason"] for one in told] == ["parked"] * 3
    hf = await engine.open()
    for run in runs:
        await hf.signal(run.id, "go", 1)
    assert [await engine.finish(run) for run in runs] == [0, 1, 2]


async def test_a_run_that_cannot_be_given_its_early_result_keeps_no_file_from_being_opened(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ended_after_the_commit(monkeypatch):
        await engine.open()
        await engine.resume("T1", "early")
        await paused(engine)
    engine.close()
    with closing(apsw.Connection(str(engine.file))) as db:
        db.execute("UPDATE journal SET body = 'broken' WHERE kind = 'step_paused'")
    assert await engine.finish(await engine.start(spec())) == "early"


async def test_a_result_for_a_run_that_is_not_there_is_not_kept(engine: TestEngine) -> None:
    await engine.open()
    assert (await engine.resume("T1", 1, run_id="0190-nobody"))["reason"] == "unknown_task"
    assert await (await paused(engine)).status() == "waiting"


async def test_a_result_under_an_id_that_no_call_can_have_is_not_kept(engine: TestEngine) -> None:
    await engine.open()
    assert (await engine.resume("T" * 1_001, 1))["reason"] == "unknown_task"


async def test_a_result_that_nobody_comes_for_is_forgotten_after_a_day(engine: TestEngine) -> None:
    await engine.open()
    await engine.resume("T1", "early")
    await engine.advance(days=1, seconds=1)
    assert await (await paused(engine)).status() == "waiting"


async def test_results_that_nobody_waits_for_have_a_limit(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, parked_callbacks_max=2)
    await engine.open()
    await engine.resume("X1", 1)
    await engine.resume("X2", 1)
    with pytest.raises(LimitExceeded, match="early_results"):
        await engine.resume("X3", 1)


async def test_the_bytes_of_results_that_nobody_waits_for_have_a_limit(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, parked_bytes_max=100)
    hf = await engine.open()
    told = await asyncio.gather(*(hf.resume(f"X{n}", "x" * 38) for n in range(4)), return_exceptions=True)
    refused = [one for one in told if isinstance(one, LimitExceeded)]
    assert [one.limit for one in refused] == ["early_results_too_large"] * 2
    assert (await engine.resume("X9", "x" * 18))["reason"] == "parked"  # what is left
    with pytest.raises(LimitExceeded, match="would exceed"):
        await engine.resume("X3", "")


async def test_room_for_results_that_nobody_waits_for_is_made_by_the_pause_that_takes_one(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, parked_bytes_max=10)
    await engine.open()
    await engine.resume("T1", "12345678")
    assert await engine.finish(await paused(engine)) == "12345678"
    assert (await engine.resume("X1", "12345678"))["reason"] == "parked"


async def test_what_is_kept_of_results_is_not_looked_through_for_each_of_them(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, looks = (await engine.open())._engine.store, list[str]()
    look = store.early_room

    async def counted(tenant: str, now: Any) -> tuple[int, int]:
        looks.append(tenant)
        return await look(tenant, now)

    monkeypatch.setattr(store, "early_room", counted)
    for number in range(5):
        assert (await engine.resume(f"X{number}", "early"))["reason"] == "parked"
    assert looks == ["default"]


async def test_a_task_id_that_two_runs_wait_for_needs_the_run(engine: TestEngine) -> None:
    first, second = await paused(engine), await paused(engine)
    with pytest.raises(AmbiguousTask):
        await engine.resume("T1", 1)
    assert (await engine.resume("T1", 2, run_id=second.id))["resumed"]
    assert await engine.finish(second) == 2
    assert (await engine.resume("T1", 1))["resumed"]
    assert await engine.finish(first) == 1


async def test_a_result_after_its_time_is_told_so(engine: TestEngine) -> None:
    run = await paused(engine, "pending_ttl_secs: 60", {"pending": True, "task_id": "T1"})
    await engine.advance(seconds=61)
    assert (await engine.resume("T1", 1))["reason"] == "expired"
    with pytest.raises(RunFailed, match="resume_timeout"):
        await run.result()


async def test_a_result_for_a_run_that_was_cancelled_changes_nothing(engine: TestEngine) -> None:
    run = await paused(engine)
    await (await engine.open()).cancel(run.id)
    assert (await engine.resume("T1", 1))["reason"] == "expired"


async def test_a_failure_is_retried_and_the_new_call_has_a_task_of_its_own(engine: TestEngine) -> None:
    engine.fake_tool("ask", side_effect=[LATER, {"pending": True, "task_id": "T2"}])
    engine.fake_tool("use", lambda x: x)
    run = await engine.start(spec("retry: {max_attempts: 2, initial_delay_ms: 1000}"))
    await engine.resume("T1", {"success": False, "error": "no luck"})
    assert (await engine.resume("T1", 1))["reason"] == "already_resumed"
    await engine.advance(seconds=2)
    await engine.resume("T2", {"success": True})
    assert await engine.finish(run) == {"success": True}


@pytest.mark.parametrize("answer", [{"success": False, "error": "boom"}, {"error": "boom"}])
async def test_a_result_that_is_a_failure_fails_the_step(engine: TestEngine, answer: Any) -> None:
    run = await paused(engine)
    await engine.resume("T1", answer)
    with pytest.raises(RunFailed, match="boom"):
        await run.result()


async def test_a_result_that_could_not_be_written_is_refused_and_may_be_sent_again(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await paused(engine)
    hf = await engine.open()
    store = hf._engine.store
    with monkeypatch.context() as patch:
        patch.setattr(store, "write_now", lambda batch: StoreUnavailable("full"))
        with pytest.raises(StoreUnavailable):
            await hf.resume("T1", 1)
    await engine.advance(seconds=6)
    assert (await engine.resume("T1", 2))["resumed"]
    assert await engine.finish(run) == 2


# ------------------------------------------------------------------------------------------------------- restarts


async def test_a_result_comes_after_the_process_was_killed(engine: TestEngine) -> None:
    run = await paused(engine)
    calls = engine.fake_tool("ask", LATER)
    await engine.restart()
    assert (await engine.resume("T1", "at last"))["resumed"]
    assert await engine.finish(run) == "at last"
    assert calls.calls == []


async def test_a_wait_that_ended_while_nobody_was_there_ends_when_the_file_is_opened(
    engine: TestEngine,
) -> None:
    run = await paused(engine, "pending_ttl_secs: 60", {"pending": True, "task_id": "T1"})
    engine.close()
    engine.clock.seconds += 7200
    await engine.open()
    with pytest.raises(RunFailed, match="resume_timeout"):
        await engine.finish(run)


async def test_a_waiting_run_is_a_row_and_no_memory(engine: TestEngine) -> None:
    run = await paused(engine)
    hf = await engine.open()
    assert not hf._engine.door.residents
    await engine.resume("T9", 1)
    assert not hf._engine.door.residents
    assert (await engine.resume("T1", 1))["resumed"]
    assert await engine.finish(run) == 1


async def test_a_run_that_was_only_looked_at_does_not_sleep_through_its_time(engine: TestEngine) -> None:
    run = await paused(engine, "pending_ttl_secs: 60", {"pending": True, "task_id": "T1"})
    hf = await engine.open()
    await hf._engine.runs.hold(await hf._engine.runs.row_of(run.id))
    await engine.advance(seconds=61)
    with pytest.raises(RunFailed, match="resume_timeout"):
        await run.result()


# ------------------------------------------------------------------------------------------------------ many at once


async def test_items_of_a_loop_are_answered_each_for_itself(engine: TestEngine) -> None:
    engine.fake_tool("ask", lambda n: {"pending": True, "task_id": f"T{n}"} if n else "at once")
    run = await engine.start(
        "{name: l, steps: [{id: f, kind: foreach, items: $.inputs.xs, concurrency: 3, "
        'steps: [{id: s, tool: ask, args: {n: "{{ item }}"}}]}]}',
        {"xs": [1, 0, 2]},
    )
    await engine.resume("T2", "two")
    await engine.restart()
    await engine.resume("T1", "one")
    assert await engine.finish(run) == {"f": {"iterations": [{"s": "one"}, {"s": "at once"}, {"s": "two"}]}}


async def test_branches_wait_side_by_side(engine: TestEngine) -> None:
    engine.fake_tool("ask", lambda n: {"pending": True, "task_id": n})
    run = await engine.start(
        "{name: p, steps: [{id: p, kind: parallel, steps: "
        "[{id: l, tool: ask, args: {n: L}}, {id: r, tool: ask, args: {n: R}}]}]}"
    )
    await engine.resume("R", 2)
    assert await run.status() == "waiting"
    await engine.resume("L", 1)
    branches = (await engine.finish(run))["p"]["branches"]
    assert [branch["steps"] for branch in branches] == [{"l": 1}, {"r": 2}]


async def test_a_thousand_waiting_runs_end_together_when_their_time_is_over(engine: TestEngine) -> None:
    engine.fake_tool("ask", {"pending": True, "task_id": "T"})
    hf = await engine.open()
    definition = "{name: w, steps: [{id: a, tool: ask, pending_ttl_secs: 3600}]}"
    runs = [await hf.start(definition) for _ in range(1_000)]
    await engine.advance(seconds=1)
    assert not hf._engine.door.residents
    await engine.advance(hours=1)
    statuses = {await run.status() for run in runs}
    assert statuses == {"failed"}


# --------------------------------------------------------------------------------------------------- addresses


class Slow:
    """A service that is told where to send its result."""

    def __init__(self, engine: TestEngine) -> None:
        self.told: list[str] = []
        engine.fake_tool("ask", self.ask)
        engine.fake_tool("use", lambda x: x)

    def ask(self, callback_url: str = "", **args: Any) -> dict[str, Any]:
        self.told.append(callback_url)
        return {"pending": True, "task_id": "T1"}


async def public(engine: TestEngine, rules: str = "supports_async_callback: true") -> tuple[Slow, RunHandle]:
    slow = Slow(engine)
    engine.options["public_url"] = "https://flows.example/"
    return slow, await engine.start(spec(rules))


async def resume_by(engine: TestEngine, url: str, answer: Any) -> str:
    hf = await engine.open()
    told = await hf._engine.commands.resume_by(url.rpartition("/")[2], answer)
    await engine.advance(seconds=0.001)
    return told.reason


async def test_a_call_that_asks_for_it_is_told_where_to_send_its_result(engine: TestEngine) -> None:
    slow, run = await public(engine)
    (url,) = slow.told
    assert url.startswith("https://flows.example/workflows/resume/")
    assert await resume_by(engine, url, {"n": 1}) == "resumed"
    assert await resume_by(engine, url, {"n": 2}) == "already_resumed"
    assert await engine.finish(run) == {"n": 1}


async def test_the_address_stands_in_no_row(engine: TestEngine) -> None:
    slow, _ = await public(engine)
    engine.close()
    content = b"".join(file.read_bytes() for file in engine.file.parent.glob("holdfast.db*"))
    assert slow.told[0].rpartition("/")[2].encode() not in content


async def test_without_a_public_address_or_the_wish_nobody_is_told(engine: TestEngine) -> None:
    slow, _ = await public(engine, "retry: {max_attempts: 1}")
    assert slow.told == [""]


async def test_an_address_that_the_author_gave_is_left(engine: TestEngine) -> None:
    slow, _ = await public(engine, "supports_async_callback: true, args: {callback_url: mine}")
    assert slow.told == ["mine"]


async def test_a_tool_may_say_for_itself_that_it_calls_back(engine: TestEngine) -> None:
    told: list[str] = []

    @tool(supports_async_callback=True)
    async def ask(callback_url: str = "") -> dict[str, Any]:
        told.append(callback_url)
        return {"pending": True, "task_id": "T1"}

    engine.tool(ask)
    engine.options["public_url"] = "https://flows.example"
    await engine.start("{name: w, steps: [{id: a, tool: ask}]}")
    assert told[0].startswith("https://flows.example/workflows/resume/")


async def test_a_result_sent_to_the_address_before_the_pause_is_taken_by_it(engine: TestEngine) -> None:
    gate, told = asyncio.Event(), list[str]()

    @tool(supports_async_callback=True)
    async def ask(callback_url: str) -> dict[str, Any]:
        told.append(callback_url)
        await gate.wait()
        return {"pending": True, "task_id": "T1"}

    engine.tool(ask)
    engine.options["public_url"] = "https://flows.example"
    run = await engine.start("{name: w, steps: [{id: a, tool: ask}]}")
    assert await resume_by(engine, told[0], 1) == "parked"
    assert await resume_by(engine, told[0], 2) == "already_resumed"
    gate.set()
    assert await engine.finish(run) == {"a": 1}


@pytest.mark.parametrize("how", ["killed", "closed"])
async def test_a_call_whose_result_came_first_is_not_made_again_after_a_restart(
    engine: TestEngine, how: str
) -> None:
    told: list[str] = []

    @tool(supports_async_callback=True)
    async def ask(callback_url: str) -> None:
        told.append(callback_url)
        await asyncio.Event().wait()

    engine.tool(ask)
    engine.options["public_url"] = "https://flows.example"
    run = await engine.start("{name: w, steps: [{id: a, tool: ask}]}")
    assert await resume_by(engine, told[0], "done") == "parked"
    if how == "closed":
        hf = await engine.open()
        await hf._engine.close()
    await engine.restart()
    assert await engine.finish(run) == {"a": "done"}
    assert len(told) == 1


async def test_an_address_that_we_did_not_give_out_changes_nothing(engine: TestEngine) -> None:
    slow, run = await public(engine)
    hf = await engine.open()
    key = hf._engine.store.server_key
    segment = slow.told[0].rpartition("/")[2]
    good = opened(key, segment, "resume")
    assert good is not None
    forged = [
        segment[:-2] + ("AA" if segment[-2:] != "AA" else "BB"),
        sealed(b"another key", good),
        sealed(key, Capability(good.tenant, good.run_id, good.path, good.attempt, "approve")),
        sealed(key, Capability("other", good.run_id, good.path, good.attempt)),
        sealed(key, Capability(good.tenant, "0190-nobody", good.path, good.attempt)),
        sealed(key, Capability(good.tenant, good.run_id, "elsewhere", good.attempt)),
        "", ".", "a.b", "é.é",
    ]  # fmt: skip
    assert {await resume_by(engine, f"x/{one}", 1) for one in forged} == {"unknown_task"}
    assert await run.status() == "waiting"


async def test_the_key_of_addresses_is_made_once(engine: TestEngine) -> None:
    first = (await engine.open())._engine.store.server_key
    await engine.restart()
    assert (await engine.open())._engine.store.server_key == first and len(first) == 32


# ------------------------------------------------------------------------------------------------------- polling


class Asked:
    """Stands for what is at a poll_url."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: Any) -> None:
        self._answers, self.urls = list(answers), list[str]()
        monkeypatch.setattr(polling, "get", self.get)

    async def get(self, guard: Any, url: str, seconds: float) -> tuple[bytes, str]:
        self.urls.append(url)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return encode(answer), url


async def test_an_address_is_asked_until_it_has_the_result(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(monkeypatch, LATER, ToolError("503", kind="http_5xx"), {"done": 1})
    run = await paused(engine, "poll: {interval_ms: 1000, max_ms: 60000}")
    assert await engine.finish(run) == {"done": 1}
    assert asked.urls == ["http://127.0.0.1:9/t1"] * 3


async def test_a_callback_between_two_looks_wins(engine: TestEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, LATER)
    run = await paused(engine, "poll: {interval_ms: 1000, max_ms: 60000}")
    await engine.advance(seconds=1.5)
    await engine.resume("T1", "called")
    assert await engine.finish(run) == "called"
    assert len(asked.urls) == 1


async def test_after_its_time_the_address_is_asked_once_more(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Asked(monkeypatch, {"late": True})
    run = await paused(engine, "pending_ttl_secs: 60")
    assert await engine.finish(run) == {"late": True}


async def test_if_that_brings_nothing_the_step_fails(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(monkeypatch, LATER)
    run = await paused(engine, "pending_ttl_secs: 60")
    with pytest.raises(RunFailed, match="resume_timeout"):
        await engine.finish(run)
    assert len(asked.urls) == 1


async def test_a_poll_step_calls_until_it_finds_what_it_looks_for(engine: TestEngine) -> None:
    asked = engine.fake_tool("look", side_effect=[{"done": False}, {"done": False}, {"done": True, "n": 3}])
    output = await engine.run(
        "{name: p, steps: [{id: p, kind: poll, tool: look, until: $.done, interval_ms: 1000, max_ms: 4000}]}"
    )
    assert output == {"p": {"done": True, "n": 3}}
    assert len(asked.calls) == 3


# -------------------------------------------------------------------------------------------------------- signals

SIGNAL = '{name: s, steps: [{id: w, kind: wait_event, signal_key: go, RULES}], output: "{{ w }}"}'


async def test_a_signal_ends_a_wait_after_a_restart(engine: TestEngine) -> None:
    run = await engine.start(SIGNAL.replace(", RULES", ""))
    await engine.restart()
    await engine.signal(run, "go", {"n": 1})
    assert await engine.finish(run) == {"n": 1}


async def test_a_signal_that_came_first_survives_and_is_taken_once(engine: TestEngine) -> None:
    engine.fake_tool("t")
    run = await engine.start(
        "{name: s, steps: [{id: z, kind: timer, delay_ms: 60000}, {id: w, kind: wait_event, signal_key: go}, "
        "{id: v, kind: wait_event, signal_key: go}]}"
    )
    await engine.signal(run, "go", 1)
    await engine.restart()
    await engine.advance(seconds=61)
    assert await run.status() == "waiting"
    await engine.signal(run, "go", 2)
    output = await engine.finish(run)
    assert (output["w"], output["v"]) == (1, 2)


async def test_only_the_signal_that_belongs_to_it_ends_a_wait(engine: TestEngine) -> None:
    run = await engine.start(SIGNAL.replace("RULES", 'correlation: "{{ inputs.order }}"'), {"order": "7"})
    await engine.signal(run, "go", "other", correlation="8")
    assert await run.status() == "waiting"
    await engine.signal(run, "go", "mine", correlation="7")
    assert await engine.finish(run) == "mine"


@pytest.mark.parametrize(("limit", "code", "first"), [
    ("signals_max", "signals_max", ["x", "y"]),
    ("signals_of_key_max", "signals_of_key_max", ["x", "x"]),
    ("value_bytes_max", "signals_too_large", ["x"]),
])  # fmt: skip
async def test_kept_signals_have_a_limit_that_an_awaited_signal_passes(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch, limit: str, code: str, first: list[str]
) -> None:
    with_limits(monkeypatch, **{limit: 2})
    run = await engine.start(SIGNAL.replace(", RULES", ""))
    for key in first:
        await engine.signal(run, key, 1)
    with pytest.raises(LimitExceeded, match=code):
        await engine.signal(run, "x", 10)
    await engine.signal(run, "go", 5)
    assert await engine.finish(run) == 5


async def test_the_limit_of_one_key_leaves_room_for_others(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, signals_of_key_max=2)
    run = await engine.start(SIGNAL.replace("RULES", 'correlation: "7"'))
    for key in ("x", "x", "y", "go", "go"):
        await engine.signal(run, key, 1, correlation="8")
    with pytest.raises(LimitExceeded, match="signals_of_key_max"):
        await engine.signal(run, "go", 1, correlation="8")
    await engine.signal(run, "go", 2, correlation="7")
    assert await engine.finish(run) == 2


async def test_a_condition_of_a_graph_is_woken_by_a_signal(engine: TestEngine) -> None:
    node = {"kind": "wait_event", "params": {"signal_key": "$shared.flag"}, "post": {"output_key": "got"}}
    run = await engine.start({"name": "g", "start": "w", "nodes": {"w": node}})
    await engine.restart()
    await engine.signal(run, "flag", "up")
    assert await engine.finish(run) == {"flag": "up", "got": "up"}


# ------------------------------------------------------------------------------------------------------- approvals

GATE = '{name: g, steps: [{id: gate, kind: approve, prompt: "Pay {{ inputs.sum }}?", RULES}], output: "{{ gate }}"}'


async def asked(engine: TestEngine, rules: str = "") -> RunHandle:
    return await engine.start(GATE.replace(", RULES", rules and f", {rules}"), {"sum": 5})


async def test_an_approval_is_answered_after_a_restart(engine: TestEngine) -> None:
    run = await asked(engine)
    await engine.restart()
    assert await engine.approve(run, "gate", by="Ada", reason="fine")
    assert await engine.finish(run) == {"approved": True, "reason": "fine", "by": "Ada", "form": None}


BESIDE = """
name: beside
steps:
  - id: p
    kind: parallel
    branches:
      - [{id: w, kind: wait_event, signal_key: go}]
      - [{id: gate, kind: approve}]
      - [{id: last, kind: approve}]
"""


@pytest.mark.parametrize("given", ["p[2].last", "last"], ids=["path", "id"])
async def test_an_approval_is_answered_however_many_other_waits_the_run_has(
    engine: TestEngine, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setattr(approvals, "WAITS_SHOWN_MAX", 1)
    run = await engine.start(BESIDE)
    assert await engine.approve(run, given)
    with pytest.raises(NotWaiting, match="has already been approved"):
        await engine.approve(run, "p[2].last")


async def test_a_second_answer_is_told_what_was_decided(engine: TestEngine) -> None:
    run = await asked(engine)
    await engine.approve(run, "gate")
    with pytest.raises(NotWaiting, match="has already been approved"):
        await engine.approve(run, "gate", approved=False)


NESTED = """
name: nested
steps:
  - id: each
    kind: foreach
    items: $.inputs.of
    concurrency: 2
    on_any_fail: continue
    steps: [{id: gate, kind: approve, timeout_secs: 60}]
"""


@pytest.mark.parametrize("approved", [True, False])
async def test_a_late_answer_by_the_bare_id_of_a_nested_gate_is_told_what_was_decided(
    engine: TestEngine, approved: bool
) -> None:
    run = await engine.start(NESTED, {"of": [1, 2]})
    await engine.approve(run, "each[0].gate")
    await engine.approve(run, "gate", approved=approved)  # the one that is left
    word = "been approved" if approved else "been denied"
    with pytest.raises(NotWaiting, match=rf"each\[1\]\.gate has already {word}"):
        await engine.approve(run, "gate")
    with pytest.raises(NotWaiting, match=r"each\[0\]\.gate has already been approved"):
        await engine.approve(run, "each[0].gate", approved=False)


@pytest.mark.parametrize(
    ("how", "word"), [("time", "expired without an answer"), ("cancel", "been cancelled")]
)
async def test_a_late_answer_to_a_nested_gate_that_nobody_answered_is_told_how_it_ended(
    engine: TestEngine, how: str, word: str
) -> None:
    run = await engine.start(NESTED, {"of": [1]})
    if how == "time":
        await engine.advance(seconds=61)
    else:
        await (await engine.open()).cancel(run.id)
    with pytest.raises(NotWaiting, match=rf"gate has already {word}"):
        await engine.approve(run, "gate")


async def test_of_many_answers_at_once_one_counts(engine: TestEngine) -> None:
    run = await asked(engine)
    hf = await engine.open()
    told = await asyncio.gather(
        *(hf.approve(run.id, "gate", by=str(n)) for n in range(10)), return_exceptions=True
    )
    assert [type(one) for one in told].count(bool) == 1
    assert [type(one) for one in told].count(NotWaiting) == 9


async def test_an_answer_where_nothing_is_asked_is_refused(engine: TestEngine) -> None:
    engine.fake_tool("t")
    run = await engine.start(
        "{name: n, steps: [{id: z, kind: timer, delay_ms: 60000}, {id: gate, kind: approve}]}"
    )
    with pytest.raises(NotWaiting, match="has no open approval"):
        await engine.approve(run, "gate")


async def test_a_denial_fails_the_step_with_its_reason(engine: TestEngine) -> None:
    run = await asked(engine)
    await engine.approve(run, "gate", approved=False, reason="too much")
    with pytest.raises(RunFailed, match="approval denied: too much"):
        await run.result()
    with pytest.raises(NotWaiting, match="has already been denied"):
        await engine.approve(run, "gate")


async def test_the_form_must_fit(engine: TestEngine) -> None:
    rules = "form: {type: object, required: [n], properties: {n: {type: integer}}}"
    run = await asked(engine, rules)
    with pytest.raises(InvalidInputs, match=r"form.*n: must be integer"):
        await engine.approve(run, "gate", form={"n": "x"})
    await engine.approve(run, "gate", form={"n": 3})
    assert (await engine.finish(run))["form"] == {"n": 3}


async def test_only_those_who_are_named_may_answer_each_once(engine: TestEngine) -> None:
    run = await asked(engine, "quorum: {need: 2, of: [Ada, Bob]}")
    with pytest.raises(Forbidden, match="Eve may not answer"):
        await engine.approve(run, "gate", by="Eve")
    assert not await engine.approve(run, "gate", by="Ada")
    with pytest.raises(NotWaiting, match="answered already"):
        await engine.approve(run, "gate", by="Ada")
    await engine.restart()
    assert await engine.approve(run, "gate", by="Bob")
    assert (await engine.finish(run))["approvers"] == ["Ada", "Bob"]


async def test_an_answer_that_is_neither_yes_nor_no_leaves_the_gate_open(engine: TestEngine) -> None:
    run = await asked(engine, "timeout_secs: 60")
    answer: Any = "no"
    with pytest.raises(InvalidInputs, match="approved must be true or false"):
        await engine.approve(run, "gate", approved=answer)
    assert await engine.approve(run, "gate")


async def test_nobody_in_particular_cannot_count_twice(engine: TestEngine) -> None:
    run = await asked(engine, "quorum: {need: 2}")
    with pytest.raises(InvalidInputs, match="say who answers"):
        await engine.approve(run, "gate")


@by_hand
async def test_a_question_that_is_shown_before_it_is_durable_can_be_answered(tmp_path: Path) -> None:
    begun = asyncio.Event()

    @tool
    async def first() -> None:
        await begun.wait()

    async with bench_opened(tmp_path, [first], clock()) as engine:
        run = await engine.begin("{name: g, steps: [{id: a, tool: first}, {id: gate, kind: approve}]}")
        engine.store.hold = True
        begun.set()
        await settled()
        (resident,) = engine.door.residents.values()
        assert resident.run.steps["gate"].wait is not None
        answering = asyncio.ensure_future(
            engine.approvals.approve("default", run.id, "gate", approved=True, by="Ada")
        )
        await settled()
        assert not answering.done()
        engine.store.let_go()
        assert await answering
        assert (await run.result())["gate"]["by"] == "Ada"


async def test_of_answers_that_come_together_only_the_one_that_decides_is_told_so(engine: TestEngine) -> None:
    run = await asked(engine, "quorum: {need: 2, of: [Ada, Bob]}")
    hf = await engine.open()
    told = await asyncio.gather(*(hf.approve(run.id, "gate", approved=True, by=by) for by in ("Ada", "Bob")))
    assert sorted(told) == [False, True]


async def test_somebody_else_may_answer_once_it_took_too_long(engine: TestEngine) -> None:
    run = await asked(engine, "quorum: {need: 1, of: [Ada]}, escalate: {after_secs: 60, to: Boss}")
    with pytest.raises(Forbidden):
        await engine.approve(run, "gate", by="Boss")
    await engine.advance(seconds=61)
    assert await engine.approve(run, "gate", by="Boss")


async def test_no_answer_in_time_is_a_denial(engine: TestEngine) -> None:
    run = await asked(engine, "timeout_secs: 60")
    with pytest.raises(RunFailed, match="approval denied: timeout"):
        await engine.finish(run)
    with pytest.raises(NotWaiting, match="has already expired without an answer"):
        await engine.approve(run, "gate")


async def test_the_bare_id_of_a_gate_serves_while_there_is_one(engine: TestEngine) -> None:
    run = await engine.start(
        "{name: p, steps: [{id: p, kind: parallel, branches: [[{id: gate, kind: approve}], [{id: gate2, kind: approve}]]}]}"
    )
    assert await engine.approve(run, "gate")
    assert await engine.approve(run, "p[1].gate2")
    await engine.finish(run)


async def test_an_approval_of_a_graph_writes_its_key(engine: TestEngine) -> None:
    graph = {
        "name": "g",
        "start": "w",
        "nodes": {
            "w": {"kind": "approval", "params": {"approval_key": "$shared.ok"}},
            "yes": {"kind": "local", "service": "t"},
        },
        "edges": [{"from": "w", "action": "approved", "to": "yes"}],
    }
    made = engine.fake_tool("t")
    run = await engine.start(graph)
    assert await engine.approve(run, "w")
    assert (await engine.finish(run))["ok"] is True
    assert len(made.calls) == 1


# ------------------------------------------------------------------------------------------------------- what is told


async def test_explain_names_what_would_end_each_wait(engine: TestEngine) -> None:
    engine.fake_tool("ask", LATER)
    run = await engine.start("""
name: e
steps:
  - id: p
    kind: parallel
    steps:
      - {id: call, tool: ask}
      - {id: event, kind: wait_event, any: [go, stop]}
      - {id: gate, kind: approve, prompt: Sure?}
""")
    told = await reasons(engine, run)
    assert "callback" in told["p[0].call"] and "holdfast resume T1" in told["p[0].call"]
    assert "'go' or 'stop'" in told["p[1].event"] and f"holdfast signal {run.id} go" in told["p[1].event"]
    assert f"holdfast approve {run.id} 'p[2].gate'" in told["p[2].gate"]


async def test_explain_names_whom_an_approval_was_escalated_to_once_they_may_answer(
    engine: TestEngine,
) -> None:
    run = await asked(engine, "quorum: {need: 1, of: [Ada]}, escalate: {after_secs: 60, to: Boss}")
    assert "an answer by Ada: " in (await reasons(engine, run))["gate"]
    await engine.advance(seconds=60)
    assert "an answer by Ada or Boss: " in (await reasons(engine, run))["gate"]


async def test_a_time_that_is_over_already_is_not_said_to_be_expected(engine: TestEngine) -> None:
    run = await paused(engine, answer={"pending": True, "task_id": "T1", "estimated_seconds": -5})
    assert (await reasons(engine, run))[
        "a"
    ] == "callback: the result of task 'T1': holdfast resume T1 --result JSON"


async def test_explain_names_the_poll_that_pauses_between_two_calls(engine: TestEngine) -> None:
    engine.fake_tool("ask", {"state": ""})
    run = await engine.start(
        "name: e\nsteps: [{id: w, kind: poll, tool: ask, until: $.state, interval_ms: 60000}]"
    )
    assert await reasons(engine, run) == {"w": "poll: its next call, if the result meets the condition"}


async def test_events_tell_of_pauses_and_of_what_is_asked(engine: TestEngine) -> None:
    run = await asked(engine)
    await engine.approve(run, "gate")
    told = [event["detail"] async for event in run.events()]
    requested = next(detail for detail in told if detail["kind"] == "approve_requested")
    assert (requested["step_id"], requested["prompt"]) == ("gate", "Pay 5?")
    assert [detail["kind"] for detail in told][1:3] == ["step_enter", "approve_requested"]


async def test_events_tell_of_the_task_that_is_waited_for(engine: TestEngine) -> None:
    run = await paused(engine)
    await engine.resume("T1", 1)
    told = [event["detail"] async for event in run.events()]
    (pause,) = [detail for detail in told if detail["kind"] == "step_paused"]
    assert (pause["step_id"], pause["task_id"], pause["waits_for"]) == ("a", "T1", "callback")


async def test_who_waits_for_the_end_is_told_when_only_callbacks_are_open(engine: TestEngine) -> None:
    run = await paused(engine)
    hf = await engine.open()
    await hf._engine.waiters.rests((await hf._engine.runs.row_of(RunId(run.id))).no)
    assert await run.status() == "waiting"


async def test_a_late_result_is_no_row_of_the_journal(engine: TestEngine) -> None:
    run = await paused(engine)
    await engine.resume("T1", 1)
    await engine.resume("T1", 2)
    hf = await engine.open()
    rows = await hf._engine.store.journal((await hf._engine.runs.row_of(run.id)).no, 0, 100)
    assert [kind for _, _, _, kind, _ in rows].count(KINDS[CallbackReceived]) == 1


async def test_what_a_run_waits_for_is_shown_once_it_is_durable(engine: TestEngine) -> None:
    core = (await engine.open())._engine
    submit, held = core.store.submit, list[Any]()

    def ask() -> dict[str, Any]:
        core.store.submit = lambda batch, done: held.append((batch, done))  # type: ignore[method-assign]
        return {"pending": True, "task_id": "T1"}

    engine.fake_tool("ask", side_effect=ask)
    run = await engine.start("{name: n, steps: [{id: a, tool: ask}]}")
    looking = asyncio.ensure_future(core.queries.run(DEFAULT_TENANT, run.id))
    await settled()
    assert held and not looking.done()
    core.store.submit = submit  # type: ignore[method-assign]
    for batch, done in held:
        submit(batch, done)
    view = await looking
    assert (view.status, [wait.name for wait in view.waits]) == ("waiting", ["T1"])
