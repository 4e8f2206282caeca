"""The store cannot write for a while, or refuses one run: callers are told, no stimulus is lost, the rest goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self

import apsw
import pytest

from holdfast import Context, HoldfastError, RunCancelled, StoreUnavailable, tool
from holdfast.embed import RunHandle
from holdfast.errors import NodeIsOver
from holdfast.store.batch import Batch
from tests.runtime.bench import Bench, bench, opened, rows
from tests.runtime.manual import by_hand, clock, settled

CHAIN = "name: n\nsteps: [{id: a, tool: step}, {id: b, tool: step}, {id: c, tool: step}]"


def away(batch: Batch) -> BaseException | None:
    return StoreUnavailable("the disk is full")


def back(batch: Batch) -> BaseException | None:
    return None


class Gated:
    """A tool whose calls wait for a gate each, by path, where one was set up."""

    def __init__(self, *paths: str) -> None:
        self.calls: list[str] = []
        self.gates = {path: asyncio.Event() for path in paths}

        @tool(name="step")
        async def step(ctx: Context) -> str:
            self.calls.append(ctx.path)
            if ctx.path in self.gates:
                await self.gates[ctx.path].wait()
            return ctx.path

        self.tool = step


@asynccontextmanager
async def running(tmp_path: Path, steps: Gated) -> AsyncIterator[tuple[Bench, RunHandle]]:
    """An engine, and a run of CHAIN that has come as far as its gates let it."""
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        run = await engine.begin(CHAIN)
        await settled()
        yield engine, run


@by_hand
async def test_a_start_is_refused_and_leaves_no_run(tmp_path: Path) -> None:
    steps = Gated()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        engine.store.refuse = away
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await engine.begin(CHAIN)
        with pytest.raises(StoreUnavailable):
            await engine.begin(CHAIN)  # and at once while it is known to be away
        assert (steps.calls, rows(tmp_path, "SELECT count(*) FROM run")) == ([], [(0,)])
        engine.store.refuse = back
        await clock().advance(1)
        assert await (await engine.begin(CHAIN)).result() == {"a": "a", "b": "b", "c": "c"}


@by_hand
async def test_an_answer_that_could_not_be_written_is_written_later_and_its_tool_is_not_called_again(
    tmp_path: Path,
) -> None:
    steps = Gated("b")
    async with running(tmp_path, steps) as (engine, run):
        engine.store.refuse = away
        steps.gates["b"].set()
        await clock().advance(30)
        assert steps.calls == ["a", "b"]  # nothing starts that is not durable
        engine.store.refuse = back
        await clock().advance(6)
        assert await run.result() == {"a": "a", "b": "b", "c": "c"}
    assert steps.calls == ["a", "b", "c"]


@by_hand
async def test_the_store_is_looked_for_ever_more_slowly_up_to_five_seconds(tmp_path: Path) -> None:
    probes: list[float] = []

    def refuse(batch: Batch) -> BaseException | None:
        if batch.is_probe:
            probes.append(clock().seconds)
        return away(batch)

    async with opened(tmp_path, [Gated().tool], clock()) as engine:
        engine.store.refuse = refuse
        began = clock().seconds
        with pytest.raises(StoreUnavailable):
            await engine.begin(CHAIN)
        await clock().advance(30)
        gaps = [round(after - before, 1) for before, after in zip([began, *probes], probes, strict=False)]
        assert gaps[:9] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
        engine.store.refuse = back
        await clock().advance(6)


@by_hand
async def test_a_cancel_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    steps = Gated("b")
    async with running(tmp_path, steps) as (engine, run):
        engine.store.refuse = away
        with pytest.raises(StoreUnavailable):
            await engine.runs.cancel(run.id)
        engine.store.refuse = back
        await clock().advance(1)
        steps.gates["b"].set()
        assert await run.result() == {"a": "a", "b": "b", "c": "c"}


@by_hand
async def test_timers_that_fire_meanwhile_fire_afterwards(tmp_path: Path) -> None:
    definition = "name: n\nsteps: [{id: w, kind: timer, delay_ms: '{{ inputs.d }}'}, {id: a, tool: step}]"
    steps = Gated()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        runs = [await engine.begin(definition, {"d": d}) for d in (1_000, 3_000, 20_000)]
        await settled()
        engine.store.refuse = away
        await clock().advance(30)
        assert steps.calls == []
        engine.store.refuse = back
        await clock().advance(10)
        assert [await run.status() for run in runs] == ["completed"] * 3


@by_hand
async def test_a_time_out_that_comes_meanwhile_counts_afterwards(tmp_path: Path) -> None:
    steps = Gated("a")
    definition = "name: n\nsteps: [{id: a, tool: step, timeout_secs: 2, retry: {max_attempts: 2, initial_delay_ms: 0}}]"
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        run = await engine.begin(definition)
        await settled()
        engine.store.refuse = away
        await clock().advance(4)
        engine.store.refuse = back
        del steps.gates["a"]
        await clock().advance(10)
        assert await run.result() == {"a": "a"}
    assert steps.calls == ["a", "a"]


@by_hand
async def test_many_runs_in_a_store_that_comes_and_goes_all_end_with_every_step_done_once(
    tmp_path: Path,
) -> None:
    steps = Gated()
    count = 0

    def now_and_then(batch: Batch) -> BaseException | None:
        nonlocal count
        count += 1
        return away(batch) if count % 4 == 0 and not batch.is_probe else None

    async with opened(tmp_path, [steps.tool], clock()) as engine:
        runs = [await engine.begin(CHAIN) for _ in range(20)]
        engine.store.refuse = now_and_then
        waiting = asyncio.gather(*(run.result() for run in runs))
        results = await clock().until(waiting, at_most=600)
        engine.store.refuse = back
    assert results == [{"a": "a", "b": "b", "c": "c"}] * 20
    assert sorted(steps.calls) == sorted(["a", "b", "c"] * 20)


@by_hand
async def test_starts_that_wait_for_a_place_are_not_forgotten(tmp_path: Path) -> None:
    """Run B waits for a place; a refused cancel drops its state; the place gets free while the store is away."""
    steps = Gated("a", "p[0].b1")
    side = "name: m\nsteps: [{id: p, kind: parallel, steps: [{id: b1, tool: step}, {id: b2, tool: step}]}]"
    async with opened(tmp_path, [steps.tool], clock(), attempts_max=2) as engine:
        first = await engine.begin("name: n\nsteps: [{id: a, tool: step}]")
        second = await engine.begin(side)
        await settled()
        assert steps.calls == ["a", "p[0].b1"]
        engine.store.refuse = away
        with pytest.raises(StoreUnavailable):
            await engine.runs.cancel(second.id)
        steps.gates["a"].set()
        await clock().advance(3)
        engine.store.refuse = back
        steps.gates["p[0].b1"].set()
        await clock().advance(10)
        assert await first.status() == "completed"
        assert await second.status() == "completed"


@by_hand
async def test_a_suspect_whose_turn_comes_meanwhile_gets_it_afterwards(tmp_path: Path) -> None:
    steps = Gated("p[0].a", "p[1].b")
    definition = (
        "name: n\nsteps: [{id: p, kind: parallel, steps: [{id: a, tool: step}, {id: b, tool: step}]}]"
    )
    for _ in range(2):
        async with opened(tmp_path, [steps.tool], clock()) as engine:
            if not rows(tmp_path, "SELECT 1 FROM run"):
                await engine.begin(definition)
            await settled()
            engine.crash()
    steps.calls.clear()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        await settled()
        assert steps.calls == ["p[0].a"]
        engine.store.refuse = away
        steps.gates["p[0].a"].set()
        await clock().advance(6)
        engine.store.refuse = back
        steps.gates["p[1].b"].set()
        await clock().advance(20)
        assert rows(tmp_path, "SELECT status FROM run") == [("completed",)]


# --------------------------------------------------------------------------------------- nothing before it is durable


@by_hand
async def test_no_result_is_returned_before_it_is_durable(tmp_path: Path) -> None:
    steps = Gated("c")
    async with running(tmp_path, steps) as (engine, run):
        engine.store.hold = True
        steps.gates["c"].set()
        await settled()
        early = asyncio.ensure_future(run.result())
        await settled()
        assert not early.done()
        assert await run.status() == "running"
        engine.store.let_go()
        assert await early == {"a": "a", "b": "b", "c": "c"}


@by_hand
async def test_no_tool_is_called_before_its_start_is_durable(tmp_path: Path) -> None:
    steps = Gated()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        engine.store.hold = True
        starting = asyncio.ensure_future(engine.begin(CHAIN))
        await settled()
        assert (steps.calls, starting.done()) == ([], False)
        engine.store.let_go()
        await (await starting).result()


@by_hand
async def test_a_cancel_that_meets_an_end_which_is_not_durable_is_not_told_that_the_run_is_over(
    tmp_path: Path,
) -> None:
    """The commit of the end fails: what counts is the cancel, or a refusal, but no word of an end that never was."""
    steps = Gated("c")
    async with running(tmp_path, steps) as (engine, run):
        engine.store.hold = True
        steps.gates["c"].set()
        await settled()
        cancelling = asyncio.ensure_future(engine.runs.cancel(run.id))
        await settled()
        assert not cancelling.done()
        engine.store.refuse = away
        engine.store.let_go()
        await settled()
        engine.store.refuse = back
        with pytest.raises(StoreUnavailable):
            await cancelling
        await clock().advance(2)
        assert await run.result() == {"a": "a", "b": "b", "c": "c"}


# ------------------------------------------------------------------------------------------------- one bad run


def refuse_run(no: int) -> Any:
    def refuse(batch: Batch) -> BaseException | None:
        return RuntimeError("a row that cannot be") if any(row[0] == no for row in batch.rows) else None

    return refuse


@by_hand
async def test_a_batch_that_is_refused_for_no_known_reason_sets_only_its_own_run_aside(
    tmp_path: Path,
) -> None:
    steps = Gated("b")
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        runs = [await engine.begin(CHAIN) for _ in range(5)]
        await settled()
        engine.store.refuse = refuse_run(3)
        steps.gates["b"].set()
        await clock().advance(5)
        assert [await run.status() for run in runs] == [
            "completed",
            "completed",
            "running",
            "completed",
            "completed",
        ]
        assert list(engine.door.quarantined) == [3]


@by_hand
async def test_callers_that_wait_for_a_quarantined_run_get_an_error(tmp_path: Path) -> None:
    steps = Gated("b")
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        run = await engine.begin(CHAIN)
        waiting = asyncio.ensure_future(run.result())
        await settled()
        engine.store.refuse = refuse_run(1)
        steps.gates["b"].set()
        await settled()
        with pytest.raises(HoldfastError, match="set aside"):
            await waiting
        with pytest.raises(HoldfastError, match="set aside"):
            await run.result()
        with pytest.raises(HoldfastError, match="set aside"):
            await (await engine.attach(run.id)).result()
        with pytest.raises(HoldfastError, match="set aside"):
            await engine.runs.cancel(run.id)


@by_hand
async def test_a_run_that_was_set_aside_goes_on_in_the_next_process(tmp_path: Path) -> None:
    steps = Gated("b")
    async with running(tmp_path, steps) as (engine, run):
        engine.store.refuse = refuse_run(1)
        steps.gates["b"].set()
        await settled()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        await clock().advance(2)
        assert await (await engine.attach(run.id)).result() == {"a": "a", "b": "b", "c": "c"}


# ----------------------------------------------------------------------------------------------- another process


@by_hand
async def test_a_process_whose_file_was_taken_over_writes_nothing_and_says_so(tmp_path: Path) -> None:
    steps = Gated("b")
    async with opened(tmp_path, [steps.tool], clock()) as old:
        run = await old.begin(CHAIN)
        waiting = asyncio.ensure_future(run.result())
        await settled()
        steps_of_new = Gated()
        async with opened(tmp_path, [steps_of_new.tool], clock()) as new:
            steps.gates["b"].set()
            await settled()
            with pytest.raises(NodeIsOver):
                await waiting
            with pytest.raises(NodeIsOver):
                await old.begin(CHAIN)
            with pytest.raises(NodeIsOver):
                await asyncio.wait_for(run.result(), 1)
            assert (await (await new.attach(run.id)).result())["c"] == "c"
    assert steps_of_new.calls == ["b", "c"]


@by_hand
async def test_an_engine_can_be_closed_while_the_store_is_away(tmp_path: Path) -> None:
    steps = Gated("b")
    async with running(tmp_path, steps) as (engine, run):
        engine.store.refuse = away
        with pytest.raises(StoreUnavailable):
            await engine.begin(CHAIN)
    await clock().advance(60)  # a probe that is still scheduled must not stumble over the closed file
    async with opened(tmp_path, [Gated().tool], clock()) as engine:
        assert (await (await engine.attach(run.id)).result())["c"] == "c"


@by_hand
async def test_a_run_cancelled_after_the_store_is_back_is_cancelled(tmp_path: Path) -> None:
    steps = Gated("b")
    async with running(tmp_path, steps) as (engine, run):
        engine.store.refuse = away
        with pytest.raises(StoreUnavailable):
            await engine.runs.cancel(run.id)
        engine.store.refuse = back
        await clock().advance(1)
        await engine.runs.cancel(run.id)
        with pytest.raises(RunCancelled):
            await run.result()


class Unreadable:
    """While it is entered, every question to the store fails as on a disk that is away."""

    def __init__(self, store: Any) -> None:
        self._store, self._ask = store, store._ask
        self.asked = 0

    def __enter__(self) -> Self:
        self._store._ask = self._fail
        return self

    def __exit__(self, *error: object) -> None:
        self._store._ask = self._ask

    def _fail(self, name: str, args: Any = ()) -> Any:
        self.asked += 1
        raise apsw.IOError("disk I/O error")


@by_hand
async def test_a_parked_run_that_cannot_be_read_when_it_is_due_is_read_later(tmp_path: Path) -> None:
    steps = Gated()
    definition = "name: n\nsteps: [{id: a, kind: timer, delay_ms: 60000}, {id: b, tool: step}]"
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        run = await engine.begin(definition)
        await clock().advance(30)
        with Unreadable(engine.store) as away_for_a_while:
            await clock().advance(60)
            assert away_for_a_while.asked > 1, "it was not tried again"
            with pytest.raises(StoreUnavailable, match="cannot be read now"):
                await engine.runs.cancel(run.id)
        assert engine.door.quarantined == {}
        await clock().advance(5)
        assert (await run.result())["b"] == "b"


@by_hand
async def test_runs_that_cannot_be_read_when_commits_work_again_are_restored_later(tmp_path: Path) -> None:
    steps = Gated("b")
    async with running(tmp_path, steps) as (engine, run):
        engine.store.refuse = away
        steps.gates["b"].set()
        await clock().advance(1)
        with Unreadable(engine.store):
            engine.store.refuse = back
            await clock().advance(10)
        assert engine.door.quarantined == {}
        await clock().advance(10)
        assert await run.result() == {"a": "a", "b": "b", "c": "c"}
    assert steps.calls == ["a", "b", "c"]


@by_hand
async def test_runs_that_cannot_be_read_at_a_takeover_are_taken_up_later(tmp_path: Path) -> None:
    steps = Gated("b")
    engine = bench(tmp_path, [steps.tool], clock())
    await engine.open()
    runs = [await engine.begin(CHAIN) for _ in range(3)]
    await settled()
    engine.crash()
    steps.gates["b"].set()
    async with opened(tmp_path, [steps.tool], clock()) as second:
        with Unreadable(second.store):  # what was left behind is taken up in the background
            await clock().advance(5)
        assert second.door.quarantined == {}
        await clock().advance(5)
        for run in runs:
            assert await (await second.attach(run.id)).result() == {"a": "a", "b": "b", "c": "c"}


@by_hand
async def test_a_commit_that_the_store_cannot_even_take_has_failed(tmp_path: Path) -> None:
    async with opened(tmp_path, [Gated().tool], clock()) as engine:

        def cannot(batch: Batch) -> BaseException | None:
            raise RuntimeError("can't start new thread")

        engine.store.refuse = cannot
        with pytest.raises(StoreUnavailable, match="can't start new thread"):
            await engine.begin(CHAIN)
        engine.store.refuse = back
        await clock().advance(1)
        assert await (await engine.begin(CHAIN)).result() == {"a": "a", "b": "b", "c": "c"}


@by_hand
async def test_a_commit_of_another_part_that_fails_stops_the_door_too(tmp_path: Path) -> None:
    steps = Gated("b")
    async with running(tmp_path, steps) as (engine, run):
        engine.store.refuse = away
        batch = Batch()
        batch.fatal_runs = "[]"
        with pytest.raises(StoreUnavailable):
            await engine.gate.commit(batch)
        steps.gates["b"].set()
        with pytest.raises(StoreUnavailable):
            await engine.begin(CHAIN)
        engine.store.refuse = back
        await clock().advance(6)
        assert await run.result() == {"a": "a", "b": "b", "c": "c"}
    assert steps.calls == ["a", "b", "c"]
