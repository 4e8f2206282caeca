"""A process ends, gracefully or not, and the next one goes on: nothing is lost, nothing finished is done twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import Context, RunFailed, RunInterrupted, tool
from holdfast.engine.codec import decode_row
from holdfast.runtime import ownership as owners
from holdfast.runtime.load import load_run
from tests.runtime.bench import bench, opened, rows
from tests.runtime.manual import by_hand, clock, settled

CHAIN = "name: n\nsteps: [{id: a, tool: step}, {id: b, tool: step}, {id: c, tool: step}]"


SLEEPS = "name: n\nsteps: [{id: a, kind: timer, delay_ms: 3600000}]"


class Steps:
    """A tool that notes its calls and, where told to, hangs until its process ends."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int]] = []
        self.hang: set[str] = set()
        self.began = asyncio.Event()

        @tool(name="step")
        async def step(ctx: Context, **more: Any) -> str:
            self.calls.append((ctx.path, ctx.attempt))
            if ctx.path in self.hang:
                self.began.set()
                await asyncio.Event().wait()
            return ctx.path

        self.tool = step


# -------------------------------------------------------------------------------------------------------- crashes


@by_hand
async def test_a_run_goes_on_where_its_process_ended(tmp_path: Path) -> None:
    steps = Steps()
    steps.hang = {"b"}
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        run = await engine.begin(CHAIN)
        await steps.began.wait()
        engine.crash()
    steps.hang = set()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        assert await (await engine.attach(run.id)).result() == {"a": "a", "b": "b", "c": "c"}
    assert steps.calls == [("a", 1), ("b", 1), ("b", 2), ("c", 1)]


@by_hand
async def test_the_log_names_ten_lost_attempts_of_a_run_and_counts_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps = Steps()
    steps.hang = {f"loop[{index}].s" for index in range(30)}
    wide = "name: n\ninputs: {xs: {type: array}}\nsteps: [{id: loop, kind: foreach, items: $.inputs.xs, concurrency: 30, steps: [{id: s, tool: step}]}]"
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        run = await engine.begin(wide, {"xs": list(range(30))})
        await steps.began.wait()
        engine.crash()
    steps.hang = set()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        await (await engine.attach(run.id)).result()
    lost = [record.getMessage() for record in caplog.records if " lost with " in record.getMessage()]
    assert len(lost) == owners.LOSSES_LOGGED_MAX + 1
    assert lost[-1] == f"run {run.id}: 30 attempts were lost with their process"
    assert len([call for call in steps.calls if call[1] == 2]) == 30


@by_hand
async def test_a_run_that_is_over_is_read_back_after_a_crash(tmp_path: Path) -> None:
    steps = Steps()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        run = await engine.begin(CHAIN)
        await run.result()
        engine.crash()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        again = await engine.attach(run.id)
        assert (await again.status(), await again.result()) == ("completed", {"a": "a", "b": "b", "c": "c"})
    assert len(steps.calls) == 3


@by_hand
async def test_retries_keep_counting_over_a_crash(tmp_path: Path) -> None:
    attempts: list[int] = []
    hang = True

    @tool
    async def fails(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        if hang and ctx.attempt == 2:
            await asyncio.Event().wait()
        raise OSError("no")

    definition = "name: n\nsteps: [{id: a, tool: fails, retry: {max_attempts: 3, initial_delay_ms: 0}}]"
    async with opened(tmp_path, [fails], clock()) as engine:
        run = await engine.begin(definition)
        await settled()
        engine.crash()
    hang = False
    async with opened(tmp_path, [fails], clock()) as engine:
        with pytest.raises(RunFailed):
            await (await engine.attach(run.id)).result()
    assert attempts == [1, 2, 3, 4]  # three that count, and the lost one


@by_hand
async def test_the_key_of_a_step_is_the_same_in_the_next_process(tmp_path: Path) -> None:
    keys: list[str] = []
    hang = True

    @tool
    async def keyed(ctx: Context) -> None:
        keys.append(ctx.idempotency_key)
        if hang:
            await asyncio.Event().wait()

    async with opened(tmp_path, [keyed], clock()) as engine:
        run = await engine.begin("name: n\nsteps: [{id: a, tool: keyed}]")
        await settled()
        engine.crash()
    hang = False
    async with opened(tmp_path, [keyed], clock()) as engine:
        await (await engine.attach(run.id)).result()
    assert len(keys) == 2 and len(set(keys)) == 1


@by_hand
async def test_on_crash_fail_is_at_most_once(tmp_path: Path) -> None:
    steps = Steps()
    steps.hang = {"a"}
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        run = await engine.begin("name: n\nsteps: [{id: a, tool: step, on_crash: fail}]")
        await steps.began.wait()
        engine.crash()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        with pytest.raises(RunFailed) as caught:
            await (await engine.attach(run.id)).result()
    assert (caught.value.error.kind, steps.calls) == ("lost", [("a", 1)])


@by_hand
async def test_a_step_that_kills_its_process_fails_after_three_losses_alone_and_its_neighbour_does_not(
    tmp_path: Path,
) -> None:
    """The killer is the only one at work in its lane when the process ends."""
    steps = Steps()
    steps.hang = {"p[0].killer"}
    definition = "name: n\nsteps: [{id: p, kind: parallel, on_any_fail: continue, steps: [{id: killer, tool: step}, {id: good, tool: step}]}]"
    run_id = None
    for _ in range(5):
        steps.began.clear()
        async with opened(tmp_path, [steps.tool], clock()) as engine:
            if run_id is None:
                run_id = (await engine.begin(definition)).id
            await clock().until(steps.began.wait(), at_most=70)
            await settled()
            engine.crash()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        assert run_id is not None
        result = await (await engine.attach(run_id)).result()
    failed, good = result["p"]["branches"]
    assert (failed["error"]["kind"], good["steps"]) == ("lost", {"good": "p[1].good"})
    assert len([path for path, _ in steps.calls if path == "p[0].killer"]) == 5


@by_hand
async def test_the_lane_is_free_again_once_its_suspect_has_answered(tmp_path: Path) -> None:
    steps = Steps()
    steps.hang = {"a"}
    for _ in range(2):
        steps.began.clear()
        async with opened(tmp_path, [steps.tool], clock()) as engine:
            if not rows(tmp_path, "SELECT 1 FROM run"):
                await engine.begin(CHAIN)
            await steps.began.wait()
            engine.crash()
    steps.hang = set()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        await clock().advance(1)
        assert rows(tmp_path, "SELECT status FROM run") == [("completed",)]
        assert rows(tmp_path, "SELECT lane FROM node") == [(None,)]
        assert [kind for (kind,) in rows(tmp_path, "SELECT kind FROM journal")].count("suspects_turn") == 1


@by_hand
async def test_a_suspect_that_has_lived_five_seconds_lets_the_next_one_in(tmp_path: Path) -> None:
    steps = Steps()
    steps.hang = {"p[0].a", "p[1].b"}
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
        assert [path for path, _ in steps.calls] == ["p[0].a"]
        await clock().advance(4.9)
        assert len(steps.calls) == 1
        await clock().advance(0.2)
        assert [path for path, _ in steps.calls] == ["p[0].a", "p[1].b"]
        engine.crash()


@by_hand
async def test_every_takeover_raises_the_epoch_of_a_run(tmp_path: Path) -> None:
    steps = Steps()
    steps.hang = {"a"}
    for _ in range(3):
        async with opened(tmp_path, [steps.tool], clock()) as engine:
            if not rows(tmp_path, "SELECT 1 FROM run"):
                await engine.begin(CHAIN)
            await settled()
            engine.crash()
    found = rows(tmp_path, "SELECT epoch, kind FROM journal ORDER BY seq")
    assert [epoch for epoch, kind in found if kind in ("run_started", "adopted")] == [0, 1, 2]


@by_hand
async def test_one_run_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    steps = Steps()
    steps.hang = {"b"}
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        runs = [await engine.begin(CHAIN) for _ in range(5)]
        await settled()
        engine.crash()
    db = apsw.Connection(str(tmp_path / "h.db"))
    db.execute("DELETE FROM journal WHERE run = 2 AND seq = 1")
    db.close()
    steps.hang = set()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        await clock().advance(5)
        assert [await run_status(engine, run.id) for run in runs] == [
            "completed",
            "running",
            "completed",
            "completed",
            "completed",
        ]
        assert list(engine.door.quarantined) == [2]


@by_hand
async def test_one_run_that_is_due_and_does_not_fold_does_not_stop_the_others(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        runs = [await engine.begin(SLEEPS) for _ in range(5)]
        await settled()
    db = apsw.Connection(str(tmp_path / "h.db"))
    db.execute("UPDATE journal SET body = 'broken' WHERE run = 2")
    db.close()
    async with opened(tmp_path, [], clock()) as engine:
        await clock().advance(7200)
        statuses = [await run_status(engine, run.id) for run in runs]
        assert statuses == ["completed", "waiting", "completed", "completed", "completed"]
        assert list(engine.door.quarantined) == [2]


@by_hand
async def test_runs_with_long_journals_that_are_due_at_once_are_woken_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "LOADED_AT_ONCE", 2)
    monkeypatch.setattr(owners, "WOKEN_BYTES_MAX", 100)  # less than one of them
    async with opened(tmp_path, [], clock()) as engine:
        runs = [await engine.begin(SLEEPS) for _ in range(7)]
        await settled()
        await clock().advance(7200)
        assert {await run_status(engine, run.id) for run in runs} == {"completed"}
    woken = rows(tmp_path, "SELECT count(*) FROM journal WHERE kind = 'timer_fired'")
    assert woken == [(7,)]


async def run_status(engine: Any, run_id: str) -> str:
    row = await engine.store.run_by_id("default", run_id)
    return str(row.status)


# -------------------------------------------------------------------------------------------------- graceful stops


@by_hand
async def test_a_graceful_stop_gives_attempts_back_and_counts_nothing(tmp_path: Path) -> None:
    steps = Steps()
    steps.hang = {"a"}
    definition = "name: n\nsteps: [{id: a, tool: step}]"
    for _ in range(4):  # more often than losses would be forgiven
        async with opened(tmp_path, [steps.tool], clock()) as engine:
            if not rows(tmp_path, "SELECT 1 FROM run"):
                run = await engine.begin(definition)
            await settled()
    steps.hang = set()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        assert await (await engine.attach(run.id)).result() == {"a": "a"}
    assert "adopted" in [kind for (kind,) in rows(tmp_path, "SELECT kind FROM journal")]


@by_hand
async def test_a_step_that_must_not_be_done_twice_is_lost_by_a_graceful_stop_once_it_has_begun(
    tmp_path: Path,
) -> None:
    steps = Steps()
    steps.hang = {"a"}
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        run = await engine.begin("name: n\nsteps: [{id: a, tool: step, on_crash: fail}]")
        await settled()
    steps.hang = set()
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        with pytest.raises(RunFailed, match="must not be done twice"):
            await (await engine.attach(run.id)).result()
    assert len(steps.calls) == 1


@by_hand
async def test_a_stop_between_two_steps_loses_nothing_of_the_second(tmp_path: Path) -> None:
    """The start of b is on its way to disk when the engine is told to stop; b never began, so nothing was lost."""
    steps = Steps()
    done = asyncio.Event()

    @tool
    async def first() -> None:
        done.set()

    definition = "name: n\nsteps: [{id: a, tool: first}, {id: b, tool: step, on_crash: fail}]"
    async with opened(tmp_path, [steps.tool, first], clock()) as engine:
        run = await engine.begin(definition)
        await done.wait()
    async with opened(tmp_path, [steps.tool, first], clock()) as engine:
        assert (await (await engine.attach(run.id)).result())["b"] == "b"


@by_hand
async def test_a_stop_frees_every_run_of_this_process(tmp_path: Path) -> None:
    steps = Steps()
    steps.hang = {"a", "b"}
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        for definition in [CHAIN, "name: w\nsteps: [{id: w, kind: timer, delay_ms: 2000}]"]:
            await engine.begin(definition)
        await settled()
    found = rows(tmp_path, "SELECT owner, wake_at IS NOT NULL FROM run")
    assert found == [(None, 1), (None, 1)]


# ------------------------------------------------------------------------------------------------- missing tools


@by_hand
async def test_a_step_whose_tool_is_missing_waits_and_the_run_says_what_it_needs(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run = await engine.begin(CHAIN)
        await settled()
        assert await run.status() == "waiting"
        assert engine.door.residents == {}
    assert rows(tmp_path, "SELECT needs, owner FROM run") == [('{"step":[1,1700000000000]}', None)]


@by_hand
async def test_the_next_process_that_has_the_tool_goes_on(tmp_path: Path) -> None:
    steps = Steps()
    async with opened(tmp_path, [], clock()) as engine:
        run = await engine.begin(CHAIN)
    async with opened(tmp_path, [], clock()) as engine:
        await settled()
        assert engine.door.residents == {}  # it lacks the tool too, and leaves the run where it is
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        assert (await (await engine.attach(run.id)).result())["c"] == "c"
    assert steps.calls[0][0] == "a"
    assert rows(tmp_path, "SELECT needs FROM run") == [(None,)]


@by_hand
async def test_a_missing_tool_beside_a_slow_step_is_reported_when_that_one_ends(tmp_path: Path) -> None:
    gate = asyncio.Event()

    @tool
    async def slow() -> None:
        await gate.wait()

    definition = (
        "name: n\nsteps: [{id: p, kind: parallel, steps: [{id: a, tool: absent}, {id: b, tool: slow}]}]"
    )
    async with opened(tmp_path, [slow], clock()) as engine:
        await engine.begin(definition)
        await settled()
        gate.set()
        await settled()
        assert rows(tmp_path, "SELECT needs, owner FROM run") == [('{"absent":[1,1700000000000]}', None)]
        assert engine.door.residents == {}


@by_hand
async def test_a_run_that_lacks_a_tool_can_be_cancelled(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run = await engine.begin(CHAIN)
        await settled()
        await engine.runs.cancel(run.id)
        assert await run.status() == "cancelled"


# --------------------------------------------------------------------------------------------------- on_restart


@pytest.mark.parametrize("delay_ms", [2_000, 3_600_000])
@by_hand
async def test_runs_that_ask_for_it_are_interrupted_by_a_restart_parked_or_not(
    tmp_path: Path, delay_ms: int
) -> None:
    definition = f"name: n\non_restart: interrupt\nsteps: [{{id: w, kind: timer, delay_ms: {delay_ms}}}]"
    async with opened(tmp_path, [], clock()) as engine:
        run = await engine.begin(definition)
        await settled()
        engine.crash()
    async with opened(tmp_path, [], clock()) as engine:
        again = await engine.attach(run.id)
        with pytest.raises(RunInterrupted):
            await again.result()
        assert await again.status() == "interrupted"


# ------------------------------------------------------------------------------------------------- long histories


@by_hand
async def test_a_loop_of_thirty_thousand_survives_two_crashes_in_flat_memory(tmp_path: Path) -> None:
    definition = """
    name: n
    steps:
      - {id: loop, kind: foreach, items: $.inputs.xs, concurrency: 50, collect: none, steps: [{id: s, tool: count, args: {x: "{{ item }}"}}]}
      - {id: after, tool: count, args: {x: -1}}
    """
    done: set[int] = set()
    doubled = 0
    stop_at = [10_000, 20_000]
    enough = asyncio.Event()

    @tool
    async def count(x: int) -> str:
        nonlocal doubled
        doubled += x in done
        done.add(x)
        if stop_at and len(done) >= stop_at[0]:
            enough.set()
            await asyncio.Event().wait()
        return "x" * 60  # enough for a snapshot every few thousand rows

    run_id = None
    while stop_at:
        async with opened(tmp_path, [count], clock()) as engine:
            if run_id is None:
                run_id = (await engine.begin(definition, {"xs": list(range(30_000))})).id
            await enough.wait()
            await settled()
            (resident,) = engine.door.residents.values()
            assert len(resident.run.frames) <= 51
            engine.crash()
            stop_at.pop(0)
            enough.clear()
    parts = rows(tmp_path, "SELECT part, seq, length(body) FROM snapshot")
    assert [part for part, _, _ in parts] == [0]
    assert parts[0][1] > 5_000
    async with opened(tmp_path, [count], clock()) as engine:
        assert run_id is not None
        again = await engine.attach(run_id)
        assert (await again.result())["loop"] == {"count": 30_000, "failed": 0}
    assert len(done) == 30_001
    assert doubled <= 100  # only what was open when its process ended


@by_hand
async def test_a_snapshot_and_the_rows_after_it_give_the_state_of_all_rows(tmp_path: Path) -> None:
    definition = """
    name: n
    steps:
      - {id: loop, kind: foreach, items: $.inputs.xs, concurrency: 3, steps: [{id: s, tool: big, args: {x: "{{ item }}"}}]}
      - {id: after, tool: big, args: {x: "{{ loop.iterations[0].s }}"}}
    """
    hang = True

    @tool
    async def big(x: Any) -> str:
        if hang and x == 250:
            await asyncio.Event().wait()
        return f"{x}" + "y" * 8_000

    async with opened(tmp_path, [big], clock()) as engine:
        run = await engine.begin(definition, {"xs": list(range(300))})
        await settled()
        (resident,) = engine.door.residents.values()
        stored = await engine.store.load(resident.run.no)
        assert stored is not None and stored.snapshot_seq > 100
        loaded = await load_run(engine.store, stored)
        assert (loaded.frames, loaded.steps, loaded.kept_bytes) == (
            resident.run.frames,
            resident.run.steps,
            resident.run.kept_bytes,
        )
        engine.crash()
    hang = False
    async with opened(tmp_path, [big], clock()) as engine:
        result = await (await engine.attach(run.id)).result()
        assert [row["s"][:3] for row in result["loop"]["iterations"]] == [f"{n}yyy"[:3] for n in range(300)]


@by_hand
async def test_a_value_that_looks_like_a_reference_survives_a_snapshot(tmp_path: Path) -> None:
    definition = """
    name: n
    steps:
      - {id: a, tool: odd}
      - {id: loop, kind: foreach, items: $.inputs.xs, steps: [{id: s, tool: fill}]}
      - {id: b, tool: echo, args: {x: "{{ a }}"}}
    """
    hang = True

    @tool
    async def odd() -> dict[str, str]:
        return {"$blob": "mine"}

    @tool
    async def fill(ctx: Context) -> str:
        if hang and ctx.path == "loop[90].s":
            await asyncio.Event().wait()
        return "x" * 30_000

    @tool
    async def echo(x: Any) -> Any:
        return x

    tools = [odd, fill, echo]
    async with opened(tmp_path, tools, clock()) as engine:
        run = await engine.begin(definition, {"xs": list(range(100))})
        await settled()
        assert rows(tmp_path, "SELECT count(*) FROM snapshot")[0][0] > 0
        engine.crash()
    hang = False
    async with opened(tmp_path, tools, clock()) as engine:
        assert (await (await engine.attach(run.id)).result())["b"] == {"$blob": "mine"}


@by_hand
async def test_a_journal_is_without_gap_and_ends_once(tmp_path: Path) -> None:
    steps = Steps()
    steps.hang = {"b"}
    async with opened(tmp_path, [steps.tool], clock()) as engine:
        for _ in range(20):
            await engine.begin(CHAIN)
        await settled()
        engine.crash()
    steps.hang = set()
    engine = bench(tmp_path, [steps.tool], clock())
    await engine.open()
    await clock().advance(3)
    await engine.close()
    for (no,) in rows(tmp_path, "SELECT no FROM run"):
        found = rows(tmp_path, "SELECT seq, body FROM journal WHERE run = ? ORDER BY seq", no)
        assert [seq for seq, _ in found] == list(range(1, len(found) + 1))
        ends = [
            seq
            for seq, body in found
            if any(type(one).__name__ == "FinishRun" for one in decode_row(body)[1])
        ]
        assert ends == [len(found)]
