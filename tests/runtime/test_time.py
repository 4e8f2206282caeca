"""Time in a real engine: timers, runs that wait as rows, back-offs, time-outs and deadlines, all on time by hand."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, RunCancelled, RunFailed, tool
from holdfast.engine.events import Event
from holdfast.values import RunNo
from tests.runtime.bench import Bench, opened, rows
from tests.runtime.manual import by_hand, clock, settled

HOUR = "name: n\nsteps: [{id: w, kind: timer, delay_ms: 3600000}, {id: a, tool: note}]"


class Notes:
    """A tool that writes down when it was called."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, str]] = []

        @tool(name="note")
        async def note(ctx: Context, **more: Any) -> str:
            self.seen.append((clock().seconds, ctx.path))
            return ctx.path

        self.tool = note


# -------------------------------------------------------------------------------------------------------- timers


@by_hand
async def test_a_run_that_waits_for_an_hour_is_a_row_and_not_memory(tmp_path: Path) -> None:
    async with opened(tmp_path, [Notes().tool], clock()) as engine:
        run = await engine.begin(HOUR)
        await settled()
        assert engine.door.residents == {}
        assert rows(tmp_path, "SELECT status, owner, wake_at FROM run") == [
            ("waiting", None, clock().now() + 3_600_000)
        ]
        assert await run.status() == "waiting"


@by_hand
async def test_a_parked_run_wakes_on_time_and_not_before(tmp_path: Path) -> None:
    notes = Notes()
    async with opened(tmp_path, [notes.tool], clock()) as engine:
        run = await engine.begin(HOUR)
        began = clock().seconds
        await clock().advance(3_599.9)
        assert notes.seen == []
        await clock().advance(1.1)
        assert (await run.result())["a"] == "a"
        assert 3_600 <= notes.seen[0][0] - began <= 3_601


@by_hand
async def test_many_parked_runs_all_wake_each_at_its_moment(tmp_path: Path) -> None:
    notes = Notes()
    definition = "name: n\nsteps: [{id: w, kind: timer, delay_ms: '{{ inputs.d }}'}, {id: a, tool: note}]"
    async with opened(tmp_path, [notes.tool], clock()) as engine:
        began = clock().seconds
        runs = [await engine.begin(definition, {"d": 10_000 + 37 * n}) for n in range(300)]
        await settled()
        assert engine.door.residents == {}
        await clock().advance(60)
        assert [await run.status() for run in runs] == ["completed"] * 300
        late = [at - began - (10_000 + 37 * n) / 1000 for n, (at, _) in enumerate(sorted(notes.seen))]
        assert min(late) >= 0 and max(late) <= 0.01


@by_hand
async def test_a_short_wait_stays_in_memory(tmp_path: Path) -> None:
    notes = Notes()
    async with opened(tmp_path, [notes.tool], clock()) as engine:
        run = await engine.begin(HOUR.replace("3600000", "2000"))
        await settled()
        assert len(engine.door.residents) == 1
        await clock().until(run.result(), at_most=3)


@pytest.mark.parametrize(
    "definition",
    [
        "name: n\nsteps: [{id: v, kind: timer, delay_ms: 1000}, {id: w, kind: timer, delay_ms: 3600000}]",
        "name: n\nsteps: [{id: p, kind: parallel, steps: [{id: v, kind: timer, delay_ms: 1000}, {id: w, kind: timer, delay_ms: 3600000}]}]",
    ],
    ids=["one after another", "side by side"],
)
@by_hand
async def test_a_run_is_parked_too_when_a_short_wait_is_followed_by_a_long_one(
    tmp_path: Path, definition: str
) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await engine.begin(definition)
        await clock().advance(2)
        assert engine.door.residents == {}
        assert rows(tmp_path, "SELECT owner FROM run") == [(None,)]


@by_hand
async def test_looking_at_a_parked_run_does_not_keep_it_in_memory(tmp_path: Path) -> None:
    async with opened(tmp_path, [Notes().tool], clock()) as engine:
        run = await engine.begin(HOUR)
        await settled()
        again = await engine.attach(run.id)
        assert await again.status() == "waiting"
        waiting = asyncio.ensure_future(again.result())
        await settled()
        assert engine.door.residents == {}
        await clock().advance(3_601)
        assert (await waiting)["a"] == "a"


@by_hand
async def test_a_parked_run_can_be_cancelled(tmp_path: Path) -> None:
    async with opened(tmp_path, [Notes().tool], clock()) as engine:
        run = await engine.begin(HOUR)
        await settled()
        await engine.runs.cancel(run.id, "not needed")
        with pytest.raises(RunCancelled, match="not needed"):
            await run.result()
        assert rows(tmp_path, "SELECT status, owner, wake_at FROM run") == [("cancelled", None, None)]


@by_hand
async def test_a_clock_set_forward_wakes_what_is_due_within_a_second(tmp_path: Path) -> None:
    notes = Notes()
    async with opened(tmp_path, [notes.tool], clock()) as engine:
        run = await engine.begin(HOUR)
        await settled()
        clock().wall_offset_ms += 3_600_000
        await clock().advance(1.0)
        assert await run.status() == "completed"


@by_hand
async def test_a_clock_set_back_does_not_turn_a_journal_around(tmp_path: Path) -> None:
    notes = Notes()
    gate = asyncio.Event()

    @tool
    async def hold() -> None:
        await gate.wait()

    async with opened(tmp_path, [notes.tool, hold], clock()) as engine:
        run = await engine.begin("name: n\nsteps: [{id: a, tool: hold}, {id: b, tool: note}]")
        await settled()
        clock().wall_offset_ms -= 86_400_000
        gate.set()
        await run.result()
        times = [at for (at,) in rows(tmp_path, "SELECT at FROM journal ORDER BY seq")]
        assert times == sorted(times)


@by_hand
async def test_a_timer_that_is_due_while_the_process_is_away_fires_when_it_is_back(tmp_path: Path) -> None:
    notes = Notes()
    async with opened(tmp_path, [notes.tool], clock()) as engine:
        run = await engine.begin(HOUR)
        await settled()
        engine.crash()
    await clock().advance(10_000)
    async with opened(tmp_path, [notes.tool], clock()) as engine:
        await clock().advance(1)
        assert (await (await engine.attach(run.id)).result())["a"] == "a"
    assert len(notes.seen) == 1


# ------------------------------------------------------------------------------------------------------ back-off


@by_hand
async def test_retries_start_after_exactly_their_delays(tmp_path: Path) -> None:
    seen: list[float] = []

    @tool
    async def fails() -> None:
        seen.append(clock().seconds)
        raise OSError("no")

    definition = "name: n\nsteps: [{id: a, tool: fails, retry: {max_attempts: 7}}]"
    async with opened(tmp_path, [fails], clock()) as engine:
        run = await engine.begin(definition)
        with pytest.raises(RunFailed, match="no"):
            await clock().until(run.result())
    delays = [round(after - before, 3) for before, after in pairwise(seen)]
    assert delays == [0.5, 1, 2, 4, 8, 10]


@by_hand
async def test_a_run_that_backs_off_for_long_is_a_row_and_keeps_counting(tmp_path: Path) -> None:
    attempts: list[int] = []

    @tool
    async def fails(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise OSError("no")

    definition = "name: n\nsteps: [{id: a, tool: fails, retry: {max_attempts: 3, backoff: fixed, initial_delay_ms: 10000}}]"
    async with opened(tmp_path, [fails], clock()) as engine:
        run = await engine.begin(definition)
        await settled()
        assert engine.door.residents == {}
        await clock().advance(12)
        assert (attempts, engine.door.residents) == ([1, 2], {})
        await clock().advance(12)
        with pytest.raises(RunFailed):
            await run.result()
    assert attempts == [1, 2, 3]


# ------------------------------------------------------------------------------------------------------ time-outs


@by_hand
async def test_an_async_tool_is_cancelled_when_its_time_is_over(tmp_path: Path) -> None:
    ended: list[float] = []

    @tool
    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(clock().seconds)

    async with opened(tmp_path, [hangs], clock()) as engine:
        began = clock().seconds
        run = await engine.begin("name: n\nsteps: [{id: a, tool: hangs, timeout_secs: 2.5}]")
        with pytest.raises(RunFailed, match=r"timed out after 2\.5 s") as caught:
            await clock().until(run.result(), at_most=5)
        assert caught.value.error.kind == "timeout"
        assert [round(at - began, 3) for at in ended] == [2.5]


@by_hand
async def test_each_attempt_has_its_own_time(tmp_path: Path) -> None:
    seen: list[float] = []

    @tool
    async def hangs() -> None:
        seen.append(clock().seconds)
        await asyncio.Event().wait()

    definition = "name: n\nsteps: [{id: a, tool: hangs, timeout_secs: 3, retry: {max_attempts: 3, backoff: fixed, initial_delay_ms: 1000}}]"
    async with opened(tmp_path, [hangs], clock()) as engine:
        run = await engine.begin(definition)
        with pytest.raises(RunFailed):
            await clock().until(run.result())
    assert [round(at - seen[0], 3) for at in seen] == [0, 4, 8]


class Stubborn:
    """A sync tool that returns when the test lets it, whatever its Context says."""

    def __init__(self) -> None:
        self.gates: dict[int, threading.Event] = {}
        self.began: asyncio.Queue[int] = asyncio.Queue()
        self.contexts: dict[int, Context] = {}
        loop = asyncio.get_running_loop()

        @tool(name="stubborn")
        def stubborn(ctx: Context) -> str:
            gate = self.gates[ctx.attempt] = threading.Event()
            self.contexts[ctx.attempt] = ctx
            loop.call_soon_threadsafe(self.began.put_nowait, ctx.attempt)
            assert gate.wait(120)
            return f"attempt {ctx.attempt}"

        self.tool = stubborn


def next_answer(engine: Bench) -> asyncio.Event:
    """Set when the next outcome of an attempt has come to the door: a thread's answer takes its time."""
    heard, deliver = asyncio.Event(), engine.door.deliver

    def listen(no: RunNo, event: Event, reply: asyncio.Future[None] | None = None) -> None:
        deliver(no, event, reply)
        heard.set()

    engine.door.deliver = listen  # type: ignore[method-assign]
    return heard


STUBBORN = "name: n\nsteps: [{id: a, tool: stubborn, timeout_secs: 5, retry: {max_attempts: 2, initial_delay_ms: 0}}]"


@by_hand
async def test_a_sync_tool_whose_time_is_over_sees_it_in_its_context(tmp_path: Path) -> None:
    stubborn = Stubborn()
    async with opened(tmp_path, [stubborn.tool], clock()) as engine:
        await engine.begin(STUBBORN)
        await stubborn.began.get()
        assert not stubborn.contexts[1].cancelled
        await clock().advance(5.5)
        assert stubborn.contexts[1].cancelled
        stubborn.gates[1].set()


@by_hand
async def test_a_sync_tool_that_outlives_its_grace_is_left_and_its_successor_marked(tmp_path: Path) -> None:
    stubborn = Stubborn()
    async with opened(tmp_path, [stubborn.tool], clock()) as engine:
        run = await engine.begin(STUBBORN)
        await stubborn.began.get()
        await clock().advance(15.5)
        assert await stubborn.began.get() == 2
        bodies = [body for (body,) in rows(tmp_path, "SELECT body FROM journal WHERE kind = 'timer_fired'")]
        assert '["start","a",2,null,' in bodies[0] and bodies[0].endswith(",true]]]")
        stubborn.gates[2].set()
        assert await run.result() == {"a": "attempt 2"}
        stubborn.gates[1].set()


@by_hand
async def test_the_late_answer_of_an_overlapping_attempt_leaves_its_successor_alone(tmp_path: Path) -> None:
    """Its time limit must still hold: the second attempt is told to stop when its own time is over."""
    stubborn = Stubborn()
    async with opened(tmp_path, [stubborn.tool], clock()) as engine:
        run = await engine.begin(STUBBORN)
        await stubborn.began.get()
        await clock().advance(15.5)
        await stubborn.began.get()
        first = {attempt.number for attempt in engine.dispatch.attempts.values()}
        heard = next_answer(engine)
        stubborn.gates[1].set()
        await heard.wait()
        assert 2 in first and {attempt.number for attempt in engine.dispatch.attempts.values()} == {2}
        await clock().advance(5.5)
        assert stubborn.contexts[2].cancelled
        stubborn.gates[2].set()
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert caught.value.error.kind == "timeout"


@by_hand
async def test_a_late_answer_to_a_run_that_is_over_is_not_kept(tmp_path: Path) -> None:
    stubborn = Stubborn()
    async with opened(tmp_path, [stubborn.tool], clock()) as engine:
        run = await engine.begin(STUBBORN.replace("timeout_secs: 5, ", ""))
        await stubborn.began.get()
        await engine.runs.cancel(run.id)
        await clock().advance(11)
        assert await run.status() == "cancelled"
        heard = next_answer(engine)
        stubborn.gates[1].set()
        await heard.wait()
        assert engine.door.again == []


# ------------------------------------------------------------------------------------------------------- deadlines


@by_hand
async def test_a_run_past_its_deadline_fails_with_kind_run_timeout(tmp_path: Path) -> None:
    @tool
    async def hangs() -> None:
        await asyncio.Event().wait()

    async with opened(tmp_path, [hangs], clock()) as engine:
        run = await engine.begin(
            "name: n\ntimeout_secs: 30\nsteps: [{id: a, tool: hangs, retry: {max_attempts: 9}}]"
        )
        with pytest.raises(RunFailed, match="not finish within 30 s") as caught:
            await clock().until(run.result(), at_most=32)
        assert caught.value.error.kind == "run_timeout"


@by_hand
async def test_a_deadline_ends_a_run_that_waits_as_a_row(tmp_path: Path) -> None:
    async with opened(tmp_path, [Notes().tool], clock()) as engine:
        run = await engine.begin("name: n\ntimeout_secs: 60\n" + HOUR.removeprefix("name: n\n"))
        await settled()
        assert engine.door.residents == {}
        await clock().advance(61)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert caught.value.error.kind == "run_timeout"


@by_hand
async def test_a_deadline_and_a_timer_in_the_same_moment_leave_the_engine_whole(tmp_path: Path) -> None:
    @tool
    async def hangs() -> None:
        await asyncio.Event().wait()

    definition = """
    name: n
    timeout_secs: 10
    steps: [{id: p, kind: parallel, steps: [{id: w, kind: timer, delay_ms: 10000}, {id: a, tool: hangs}]}]
    """
    async with opened(tmp_path, [hangs], clock()) as engine:
        run = await engine.begin(definition)
        with pytest.raises(RunFailed):
            await clock().until(run.result(), at_most=12)
        assert engine.door.quarantined == {}


# --------------------------------------------------------------------------------------------------------- cancel


@by_hand
async def test_cancelling_reaches_an_async_tool_at_once(tmp_path: Path) -> None:
    reached = asyncio.Event()

    @tool
    async def hangs(ctx: Context) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            assert ctx.cancelled
            reached.set()

    async with opened(tmp_path, [hangs], clock()) as engine:
        run = await engine.begin("name: n\nsteps: [{id: a, tool: hangs}, {id: b, tool: hangs}]")
        await settled()
        await engine.runs.cancel(run.id, "enough")
        await reached.wait()
        with pytest.raises(RunCancelled, match="enough") as caught:
            await run.result()
        assert caught.value.error.kind == "cancelled"


@by_hand
async def test_a_tool_that_swallows_its_cancellation_and_returns_is_cancelled_all_the_same(
    tmp_path: Path,
) -> None:
    @tool
    async def swallows() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "I went on"
        return "never"

    async with opened(tmp_path, [swallows, Notes().tool], clock()) as engine:
        run = await engine.begin("name: n\nsteps: [{id: a, tool: swallows}, {id: b, tool: note}]")
        await settled()
        await engine.runs.cancel(run.id)
        with pytest.raises(RunCancelled):
            await run.result()
        assert (await (await engine.begin("name: n\nsteps: [{id: a, tool: note}]")).result()) == {"a": "a"}


@by_hand
async def test_a_tool_that_ignores_its_cancellation_holds_the_run_for_its_grace_only(tmp_path: Path) -> None:
    gate = asyncio.Event()

    @tool
    async def ignores() -> None:
        while not gate.is_set():
            try:
                await gate.wait()
            except asyncio.CancelledError:
                continue

    async with opened(tmp_path, [ignores], clock()) as engine:
        run = await engine.begin("name: n\nsteps: [{id: a, tool: ignores}]")
        await settled()
        await engine.runs.cancel(run.id)
        await clock().advance(9.9)
        assert await run.status() == "cancelling"
        await clock().advance(0.2)
        assert await run.status() == "cancelled"
        gate.set()
        await settled()


@by_hand
async def test_a_cancelled_tool_that_was_still_to_be_called_is_never_called(tmp_path: Path) -> None:
    called: list[str] = []
    gate = asyncio.Event()

    @tool
    async def hold(name: str) -> None:
        called.append(name)
        await gate.wait()

    definition = "name: n\nsteps: [{id: p, kind: parallel, steps: [{id: a, tool: hold, args: {name: a}}, {id: b, tool: hold, args: {name: b}}]}]"
    async with opened(tmp_path, [hold], clock(), attempts_max=1) as engine:
        run = await engine.begin(definition)
        await settled()
        await engine.runs.cancel(run.id)
        with pytest.raises(RunCancelled):
            await run.result()
    assert called == ["a"]
