"""Idempotency keys at the door: verdicts come after their commit, and no turn is lost between two rows, runs or processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, RunFailed, StoreUnavailable, tool
from holdfast.embed import RunHandle
from holdfast.engine import draft
from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.batch import Batch
from holdfast.tools.registry import Registry
from tests.runtime.bench import Bench, Store, bench, engine_on, opened, rows
from tests.runtime.manual import by_hand, clock

ONE = """
name: one
steps:
  - {id: s, tool: step, idempotency_key: k, idempotency_scope: global}
output: "{{s}}"
"""
LOOP = """
name: loop
inputs: {xs: {type: array}}
steps:
  - id: loop
    kind: foreach
    items: $.inputs.xs
    concurrency: 50
    steps: [{id: s, tool: step, idempotency_key: "{{item}}"}]
"""


class Desk:
    """A tool whose executions wait to be let go: with a result, or with an error."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.gates: list[asyncio.Future[Any]] = []

        @tool(name="step")
        async def step(ctx: Context) -> Any:
            self.calls.append(ctx.run_id)
            gate = asyncio.get_running_loop().create_future()
            self.gates.append(gate)
            return await gate

        self.tool = step

    def fail(self) -> None:
        self.gates.pop(0).set_exception(RuntimeError("no luck"))

    def give(self, value: Any) -> None:
        self.gates.pop(0).set_result(value)


def away(batch: Batch) -> BaseException | None:
    return StoreUnavailable("the disk is full")


def back(batch: Batch) -> BaseException | None:
    return None


def line(path: Path) -> list[tuple[Any, ...]]:
    return rows(path, "SELECT run FROM wait ORDER BY pos")


def held(path: Path) -> list[tuple[Any, ...]]:
    return rows(path, "SELECT run FROM key WHERE output IS NULL")


async def settled() -> None:
    """Until all that can happen now has happened, what is due at once included."""
    await clock().advance(0.001)


async def waiting(engine: Bench, count: int) -> list[RunHandle]:
    """The first one has the key, the others are parked."""
    runs = [await engine.begin(ONE) for _ in range(count)]
    await settled()
    assert list(engine.door.residents) == [runs[0]._no]
    return runs


@by_hand
async def test_a_run_that_waits_for_a_key_is_a_row_and_no_memory(tmp_path: Path) -> None:
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        runs = await waiting(engine, 3)
        assert (
            rows(tmp_path, "SELECT status, owner, wake_at FROM run WHERE no > 1")
            == [("waiting", None, None)] * 2
        )
        desk.give(7)
        assert [await run.result() for run in runs] == [7, 7, 7]
        assert len(desk.calls) == 1


@by_hand
async def test_the_next_in_line_begins_when_the_holder_fails(tmp_path: Path) -> None:
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        runs = await waiting(engine, 3)
        desk.fail()
        with pytest.raises(RunFailed):
            await runs[0].result()
        await settled()
        assert desk.calls == [runs[0].id, runs[1].id]
        desk.give(7)
        assert [await run.result() for run in runs[1:]] == [7, 7]


@by_hand
async def test_a_turn_that_comes_in_the_commit_that_parks_its_run_is_not_lost(tmp_path: Path) -> None:
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        first = await engine.begin(ONE)
        await settled()
        engine.store.hold = True
        second = asyncio.ensure_future(engine.begin(ONE))
        await settled()  # its asking is on its way; what it is told, and the failure, will be in one commit
        desk.fail()
        await settled()
        engine.store.let_go()
        await settled()
        with pytest.raises(RunFailed):
            await first.result()
        desk.give(7)
        assert await (await second).result() == 7


@by_hand
async def test_a_turn_whose_row_was_in_a_commit_that_failed_is_taken_again(tmp_path: Path) -> None:
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        engine.store.refuse = lambda batch: away(batch) if _has(batch, "key_granted") else None
        run = await engine.begin(ONE)
        await settled()
        assert (desk.calls, held(tmp_path)) == ([], [(1,)])
        engine.store.refuse = back
        await clock().advance(1)
        desk.give(7)
        assert await run.result() == 7


@by_hand
async def test_turns_in_a_commit_that_failed_are_taken_again_where_work_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft, "DECISIONS_MAX", 3)
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        engine.store.refuse = lambda batch: away(batch) if _has(batch, "key_granted") else None
        run = await engine.begin(LOOP, {"xs": [f"x{n}" for n in range(12)]})
        await settled()
        engine.store.refuse = back
        await clock().advance(1)
        await settled()
        assert len(desk.calls) == 12
        for _ in range(12):
            desk.give(7)
        assert len((await run.result())["loop"]["iterations"]) == 12


def _has(batch: Batch, kind: str) -> bool:
    return any(row[4] == kind for row in batch.rows)


@by_hand
async def test_an_output_in_a_failed_commit_answers_no_key_until_it_is_durable(tmp_path: Path) -> None:
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        runs = await waiting(engine, 2)
        engine.store.refuse = away
        desk.give(7)
        await settled()
        assert (held(tmp_path), line(tmp_path)) == ([(1,)], [(2,)])
        engine.store.refuse = back
        await clock().advance(1)
        assert [await run.result() for run in runs] == [7, 7]
        assert len(desk.calls) == 1


@by_hand
async def test_a_refused_batch_that_is_sent_run_by_run_loses_no_turn(tmp_path: Path) -> None:
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        runs = await waiting(engine, 3)
        refusals = iter([RuntimeError("nobody knows why")])
        engine.store.refuse = lambda batch: next(refusals, None)
        desk.fail()
        await settled()
        desk.give(7)
        assert [await run.result() for run in runs[1:]] == [7, 7]
        assert desk.calls == [runs[0].id, runs[1].id]


@by_hand
async def test_a_parked_waiter_outlives_a_graceful_end_and_gets_its_turn_in_the_next_process(
    tmp_path: Path,
) -> None:
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        runs = await waiting(engine, 2)
    assert (held(tmp_path), line(tmp_path)) == ([(1,)], [(2,)])
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        await settled()
        desk.fail()
        await settled()
        desk.give(7)
        assert await (await engine.attach(runs[1].id)).result() == 7


@by_hand
async def test_a_turn_that_comes_while_the_engine_closes_is_there_for_the_next_process(
    tmp_path: Path,
) -> None:
    desk = Desk()
    engine = bench(tmp_path, [desk.tool], clock())
    await engine.open()
    runs = await waiting(engine, 2)
    engine.store.hold = True
    desk.fail()
    await settled()  # the failure, which handler the key on, is on its way to disk
    closing = asyncio.ensure_future(engine.close())
    await settled()
    engine.store.let_go()
    await closing
    assert rows(tmp_path, "SELECT status FROM run WHERE no = 1") == [("failed",)]
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        await settled()
        desk.give(7)
        assert await (await engine.attach(runs[1].id)).result() == 7


@by_hand
async def test_a_turn_given_by_a_process_that_dies_at_once_is_taken_by_the_next(tmp_path: Path) -> None:
    desk = Desk()
    engine = bench(tmp_path, [desk.tool], clock())
    await engine.open()
    runs = await waiting(engine, 2)
    desk.fail()
    engine.store.lag = lambda: 0.0
    while held(tmp_path) != [(2,)]:
        await asyncio.sleep(0)
    engine.crash()
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        await settled()
        desk.give(7)
        assert await (await engine.attach(runs[1].id)).result() == 7


async def visited(tmp_path: Path, run: RunHandle) -> None:
    """Cancel a run in a process that drives nothing."""
    visitor = engine_on(Store(tmp_path / "h.db"), Registry([]), clock())
    await visitor.open(drive=False)
    await visitor.runs.cancel(run.id)
    await visitor.close()


async def check_that_the_second_holds_the_key(tmp_path: Path, run: RunHandle) -> None:
    """And that it executes when a process drives its run again."""
    assert (held(tmp_path), line(tmp_path)) == ([(2,)], [])
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        await settled()
        desk.give(7)
        assert await (await engine.attach(run.id)).result() == 7


@by_hand
async def test_a_holder_cancelled_while_no_engine_drives_hands_its_key_on(tmp_path: Path) -> None:
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        runs = await waiting(engine, 2)
    await visited(tmp_path, runs[0])
    await check_that_the_second_holds_the_key(tmp_path, runs[1])


@by_hand
async def test_a_waiter_cancelled_while_no_engine_drives_leaves_the_line(tmp_path: Path) -> None:
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        runs = await waiting(engine, 3)
    await visited(tmp_path, runs[1])
    assert (held(tmp_path), line(tmp_path)) == ([(1,)], [(3,)])
    assert rows(tmp_path, "SELECT status FROM run WHERE no = 2") == [("cancelled",)]


@by_hand
async def test_a_crashed_holder_cancelled_while_no_engine_drives_hands_its_key_on(tmp_path: Path) -> None:
    desk = Desk()
    engine = bench(tmp_path, [desk.tool], clock())
    await engine.open()
    runs = await waiting(engine, 2)
    engine.crash()
    await visited(tmp_path, runs[0])
    await check_that_the_second_holds_the_key(tmp_path, runs[1])


@by_hand
async def test_a_waiter_with_a_deadline_of_its_run_ends_in_time_and_leaves_the_line(tmp_path: Path) -> None:
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        await engine.begin(ONE)
        late = await engine.begin(f"timeout_secs: 30\n{ONE}")
        await settled()
        assert line(tmp_path) == [(late._no,)]
        await clock().advance(31)
        with pytest.raises(RunFailed, match="30 s"):
            await late.result()
        assert line(tmp_path) == []


@by_hand
async def test_an_answer_expires_by_the_wall_clock(tmp_path: Path) -> None:
    brief = ONE.replace("idempotency_scope: global}", "idempotency_scope: global, idempotency_ttl_secs: 60}")
    desk = Desk()
    async with opened(tmp_path, [desk.tool], clock()) as engine:
        first = await engine.begin(brief)
        await settled()
        desk.give(1)
        assert await first.result() == 1
        await clock().advance(59)
        assert await (await engine.begin(brief)).result() == 1
        await clock().advance(2)
        again = await engine.begin(brief)
        await settled()
        desk.give(2)
        assert await again.result() == 2


@by_hand
async def test_a_late_success_of_a_timed_out_step_answers_no_key(tmp_path: Path) -> None:
    @tool(name="step")
    async def step(ctx: Context) -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "too late"
        return "never"

    limited = ONE.replace("idempotency_scope: global}", "idempotency_scope: global, timeout_secs: 1}")
    async with opened(tmp_path, [step], clock()) as engine:
        runs = [await engine.begin(limited) for _ in range(2)]
        await clock().advance(1.5)
        with pytest.raises(RunFailed, match="timed out"):
            await runs[0].result()
        assert await runs[1].status() == "running"
        await clock().advance(2)
        assert rows(tmp_path, "SELECT * FROM key") == []


@by_hand
async def test_artefacts_of_a_commit_that_failed_are_named_when_it_is_made_good(tmp_path: Path) -> None:
    @tool(name="step")
    async def step(ctx: Context) -> dict[str, Any]:
        return {"file_refs": [{"inline_b64": "aGVsbG8="}]}

    engine = bench(tmp_path, [step], clock(), artefacts=ArtefactFiles(tmp_path / "artefacts"))
    await engine.open()
    engine.store.refuse = lambda batch: away(batch) if _has(batch, "step_succeeded") else None
    run = await engine.begin("name: n\nsteps: [{id: s, tool: step}]")
    while not engine.door.is_stalled:  # a thread stores the file
        await asyncio.to_thread(time.sleep, 0.001)
    engine.store.refuse = back
    await clock().advance(1)
    ref = (await run.result())["s"]["file_refs"][0]
    assert rows(tmp_path, "SELECT run, sha256, size FROM artefact") == [(run._no, ref["uri"][-64:], 5)]
    await engine.close()


@by_hand
async def test_a_process_that_drives_only_its_own_run_takes_a_lost_turn_again(tmp_path: Path) -> None:
    desk = Desk()
    engine = bench(tmp_path, [desk.tool], clock())
    await engine.open(drive=False)
    engine.store.refuse = lambda batch: away(batch) if _has(batch, "key_granted") else None
    run = await engine.begin(ONE)
    await settled()
    engine.store.refuse = back
    await clock().advance(1)
    desk.give(7)
    assert await run.result() == 7
    await engine.close()
