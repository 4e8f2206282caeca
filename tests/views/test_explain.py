"""Why a run is not further, said of real runs as another process would see them in the file."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

from holdfast import Context, WorkflowSpec, limits, tool
from holdfast.api.services import Services
from holdfast.embed import RunHandle
from holdfast.runtime.plans import Plans
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing import BEGAN
from holdfast.values import DEFAULT_TENANT, RunId
from holdfast.views.explain import Explanation, Reason, explain
from tests.runtime.bench import Bench, opened
from tests.runtime.manual import by_hand, clock, settled

ONE = "name: n\nsteps: [{id: s, tool: work}]"
HOLDER = {"pid": 4711}


@by_hand
async def test_until_is_the_earliest_end_of_a_wait_and_of_what_stands_around_it(tmp_path: Path) -> None:
    gate = "steps: [{id: g, kind: approve, prompt: p, timeout_secs: %s}]"
    child = "name: child\ntimeout_secs: 50\n" + gate % 1000
    outer = "name: n\ntimeout_secs: %s\nsteps: [{id: c, workflow: child}]"
    async with opened(tmp_path, [], clock()) as engine:
        services = Services(engine)
        await services.commands.publish(DEFAULT_TENANT, child)
        for definition, seconds in [
            ("name: n\ntimeout_secs: 30\n" + gate % 1000, 30),
            ("name: n\ntimeout_secs: 3000\n" + gate % 1000, 1000),
            (outer % 20, 20),
            (outer % 2000, 50),
        ]:
            row, _ = await services.commands.start(DEFAULT_TENANT, WorkflowSpec.from_yaml_str(definition))
            await settled()
            (reason,) = (await services.queries.explain(DEFAULT_TENANT, row.id)).reasons
            (wait,) = (await services.queries.run(DEFAULT_TENANT, row.id)).waits
            assert (reason.reason, reason.until) == ("approval", row.created_at + seconds * 1000)
            assert (wait.kind, wait.until) == (reason.reason, reason.until)


@by_hand
async def test_waits_and_explain_name_a_poll_by_one_word(tmp_path: Path) -> None:
    @tool
    async def look() -> dict[str, bool]:
        return {"done": False}

    poll = (
        "name: n\nsteps: [{id: p, kind: poll, tool: look, until: $.done, interval_ms: 60000, max_ms: 60000}]"
    )
    async with opened(tmp_path, [look], clock()) as engine:
        run, services = await engine.begin(poll), Services(engine)
        await settled()
        (reason,) = (await services.queries.explain(DEFAULT_TENANT, run.id)).reasons
        (wait,) = (await services.queries.run(DEFAULT_TENANT, run.id)).waits
        assert (wait.path, wait.kind, wait.until) == (reason.path, reason.reason, reason.until)
        assert (wait.path, wait.kind) == ("p", "poll")


async def seen(path: Path, run: RunHandle, *, is_held: bool = True) -> Explanation:
    """What a reader of the file finds; the engine's lock is not taken in these tests, so who has it is said."""
    store = SqliteStore(str(path / "h.db"))
    await store.open_to_read()
    try:
        async with store.still():
            row = await store.run_by_id(DEFAULT_TENANT, RunId(run.id))
            assert row is not None
            plan = await Plans(store).of_version(row.tenant, row.version)
            holder = HOLDER if is_held else {}
            return await explain(store, row, plan, holder=holder, epoch=store.epoch_now())
    finally:
        await store.close()


async def only(path: Path, run: RunHandle, **more: Any) -> Reason:
    (reason,) = (await seen(path, run, **more)).reasons
    return reason


@tool(name="work")
async def endless() -> None:
    await asyncio.Event().wait()


@tool(name="work")
async def failing(context: Context) -> int:
    if context.attempt == 1:
        raise OSError("no")
    return context.attempt


async def begun(engine: Bench, definition: str, **inputs: Any) -> RunHandle:
    run = await engine.begin(definition, inputs)
    await settled()
    return run


@by_hand
async def test_a_step_at_work_ends_by_its_time_out_at_the_latest(tmp_path: Path) -> None:
    async with opened(tmp_path, [endless], clock()) as engine:
        run = await begun(engine, "name: n\nsteps: [{id: s, tool: work, timeout_secs: 60}]")
        why = await seen(tmp_path, run)
    assert (why.status, why.driven_by) == ("running", 4711)
    (reason,) = why.reasons
    assert (reason.path, reason.reason, reason.since) == ("s", "at_work", BEGAN)
    assert reason.until == BEGAN + 60_000


@by_hand
async def test_a_step_that_is_tried_again_says_when(tmp_path: Path) -> None:
    async with opened(tmp_path, [failing], clock()) as engine:
        steps = "{id: s, tool: work, retry: {max_attempts: 2, initial_delay_ms: 3000, backoff: fixed}}"
        run = await begun(engine, f"name: n\nsteps: [{steps}]")
        reason = await only(tmp_path, run)
    assert (reason.path, reason.reason, reason.until) == ("s", "retry", BEGAN + 3_000)
    assert "attempt 1 failed" in reason.unblocks


@by_hand
async def test_a_timer_says_when_it_ends(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run = await begun(engine, "name: n\nsteps: [{id: t, kind: timer, delay_ms: 4000}]")
        reason = await only(tmp_path, run)
    assert (reason.path, reason.reason, reason.until) == ("t", "timer", BEGAN + 4_000)


@by_hand
async def test_a_missing_tool_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run = await begun(engine, ONE)
        reason = await only(tmp_path, run)
    assert (reason.path, reason.reason) == ("s", "no_tool")
    assert "'work'" in reason.unblocks


@by_hand
async def test_items_of_a_loop_wait_for_a_place(tmp_path: Path) -> None:
    loop = "{id: loop, kind: foreach, items: $.inputs.of, concurrency: 2, steps: [{id: s, tool: work}]}"
    async with opened(tmp_path, [endless], clock()) as engine:
        run = await begun(engine, f"name: n\nsteps: [{loop}]", of=[1, 2, 3, 4, 5])
        why = await seen(tmp_path, run)
    assert [(one.path, one.reason) for one in why.reasons] == [
        ("loop[0].s", "at_work"),
        ("loop[1].s", "at_work"),
        ("loop", "slot"),
    ]
    assert "3 of 5" in why.reasons[-1].unblocks


@by_hand
async def test_reasons_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    loop = "{id: loop, kind: foreach, items: $.inputs.of, concurrency: 200, steps: [{id: s, tool: work}]}"
    async with opened(tmp_path, [endless], clock()) as engine:
        run = await begun(engine, f"name: n\nsteps: [{loop}]", of=list(range(150)))
        why = await seen(tmp_path, run)
    assert (len(why.reasons), why.more) == (limits.now.explain_reasons_max, 50)


@by_hand
async def test_a_run_whose_process_was_killed_is_driven_by_no_process(tmp_path: Path) -> None:
    async with opened(tmp_path, [endless], clock()) as engine:
        run = await begun(engine, ONE)
        engine.crash()
        why = await seen(tmp_path, run, is_held=False)
    assert why.driven_by is None
    assert [(one.path, one.reason) for one in why.reasons] == [("", "not_driven"), ("s", "lost")]
    assert f"holdfast run --continue {run.id}" in why.reasons[0].unblocks


@by_hand
async def test_a_run_that_another_process_left_out_is_driven_by_no_process(tmp_path: Path) -> None:
    async with opened(tmp_path, [endless], clock()) as engine:
        run = await begun(engine, ONE)
        engine.crash()
    later = SqliteStore(str(tmp_path / "h.db"))
    await later.open()  # the file is another's now, who did not take the run up
    await later.close()
    why = await seen(tmp_path, run)
    assert why.reasons[0].reason == "not_driven"
    assert "once process 4711, which has the file" in why.reasons[0].unblocks


@by_hand
async def test_a_run_that_was_given_back_starts_when_it_goes_on(tmp_path: Path) -> None:
    async with opened(tmp_path, [endless], clock()) as engine:
        run = await begun(engine, ONE)
    why = await seen(tmp_path, run, is_held=False)
    assert [(one.path, one.reason) for one in why.reasons] == [("", "not_driven"), ("s", "stopping")]


@by_hand
async def test_a_suspect_waits_for_its_turn_to_be_alone(tmp_path: Path) -> None:
    both = "{id: par, kind: parallel, steps: [{id: a, tool: work}, {id: b, tool: work}]}"
    async with opened(tmp_path, [endless], clock()) as engine:
        run = await begun(engine, f"name: n\nsteps: [{both}]")
        engine.crash()
    async with opened(tmp_path, [endless], clock()) as engine:
        await settled()
        engine.crash()
    async with opened(tmp_path, [endless], clock()):
        await settled()
        why = await seen(tmp_path, run)
    assert sorted(one.reason for one in why.reasons) == ["at_work", "suspect"]


@by_hand
async def test_a_step_that_waits_for_a_key_names_who_holds_it(tmp_path: Path) -> None:
    keyed = "name: n\nsteps: [{id: s, tool: work, idempotency_key: order-7, idempotency_scope: global}]"
    async with opened(tmp_path, [endless], clock()) as engine:
        holder = await begun(engine, keyed)
        waiter = await begun(engine, keyed)
        reason = await only(tmp_path, waiter)
    assert (reason.path, reason.reason, reason.until) == ("s", "key", None)
    assert reason.unblocks == f"the end of step s of run {holder.id} that holds the key 'order-7'"


@by_hand
async def test_a_finished_run_can_only_be_run_again(tmp_path: Path) -> None:
    async with opened(tmp_path, [failing], clock()) as engine:
        run = await begun(engine, ONE)
        why = await seen(tmp_path, run)
    (reason,) = why.reasons
    assert (why.status, reason.path, reason.reason) == ("failed", "", "failed")
    assert f"holdfast runs rerun {run.id}" in reason.unblocks


@by_hand
async def test_a_run_that_is_being_cancelled_ends_by_the_grace_at_the_latest(tmp_path: Path) -> None:
    over = asyncio.Event()

    @tool(name="work")
    async def deaf() -> None:
        try:
            await over.wait()
        except asyncio.CancelledError:
            await over.wait()

    async with opened(tmp_path, [deaf], clock()) as engine:
        run = await begun(engine, ONE)
        await engine.runs.cancel(RunId(run.id))
        why = await seen(tmp_path, run)
        over.set()
    assert (why.reasons[0].path, why.reasons[0].reason, why.reasons[0].until) == (
        "",
        "cancelling",
        BEGAN + 10_000,
    )


# ----------------------------------------------------------------------------- asked of the engine, and of workers


async def told(engine: Bench, run: RunHandle) -> list[tuple[str, str]]:
    why = await Services(engine).queries.explain(DEFAULT_TENANT, run.id)
    return [(reason.path, reason.reason) for reason in why.reasons]


SERVICE = "name: n\nsteps: [{id: s, kind: service, service: sum, input: 1, retry: {max_attempts: 3, initial_delay_ms: 5000}}]"


@by_hand
async def test_a_start_that_waits_for_a_thread_says_so(tmp_path: Path) -> None:
    begun_work, release = threading.Event(), threading.Event()

    @tool(name="work")
    def blocking() -> None:
        begun_work.set()
        release.wait(60)

    async with opened(tmp_path, [blocking], clock(), threads=1) as engine:
        first, second = await begun(engine, ONE), await begun(engine, ONE)
        try:
            assert await told(engine, first) == [("s", "at_work")]
            assert await told(engine, second) == [("s", "slot")]
            why = await Services(engine).queries.explain(DEFAULT_TENANT, second.id)
            assert why.reasons[0].unblocks == "a free place: 1 are taken (limit threads)"
        finally:
            release.set()


@by_hand
async def test_a_service_without_a_worker_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        run = await begun(engine, SERVICE)
        why = await Services(engine).queries.explain(DEFAULT_TENANT, run.id)
        (reason,) = why.reasons
        assert (reason.path, reason.reason, reason.since, reason.until) == ("s", "no_worker", BEGAN, None)
        assert "'sum'" in reason.unblocks and "holdfast worker" in reason.unblocks
        assert (await only(tmp_path, run)).reason == "no_worker"


@by_hand
async def test_a_job_that_is_offered_and_one_that_a_worker_has_say_so(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        await engine.workers.register(DEFAULT_TENANT, "w1", None, ["sum"], "pull")
        run = await begun(engine, SERVICE)
        assert await told(engine, run) == [("s", "offered")]
        await engine.workers.poll(DEFAULT_TENANT, "w1", ["sum"], 1, 0)
        why = await Services(engine).queries.explain(DEFAULT_TENANT, run.id)
        (reason,) = why.reasons
        assert (reason.path, reason.reason, reason.since) == ("s", "at_worker", BEGAN)
        assert "'w1'" in reason.unblocks
        assert reason.until is not None
        assert (await only(tmp_path, run)).reason == "at_worker"


@by_hand
async def test_a_run_that_was_set_aside_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, [endless], clock()) as engine:
        run = await begun(engine, ONE)
        engine.door.set_aside((await engine.runs.row_of(run.id)).no, ValueError("a defect"))
        assert ("", "set_aside") in await told(engine, run)
