"""Large work is done in pieces, and the event loop gets its turns between them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from holdfast import tool
from holdfast.engine.events import AttemptReleased, Continued, StepSucceeded, TimerFired
from holdfast.engine.state import Run
from holdfast.errors import RunSetAside
from holdfast.execution.dispatcher import ATTEMPTS_MAX, RELEASED_AT_ONCE
from holdfast.runtime.clock import SystemClock
from holdfast.runtime.later import HELD_AT_ONCE, TURNS_BETWEEN, HeldOutcomes
from holdfast.runtime.load import load_run
from holdfast.runtime.resident_run import EVICT_MS, may_evict
from holdfast.runtime.starts import _checked
from holdfast.runtime.timers import WOKEN_AT_ONCE
from holdfast.spec.inputs import Inputs
from holdfast.values import DEFAULT_TENANT, Millis, RunId, RunNo, sha256
from tests.runtime.bench import opened
from tests.runtime.manual import by_hand, clock, settled

T = TypeVar("T")
ITEMS = 3_000
WIDE = f"""
name: wide
steps:
  - {{id: loop, kind: foreach, items: $.inputs.xs, concurrency: {ITEMS}, steps: [{{id: s, tool: work, args: {{x: "{{{{ item }}}}"}}}}]}}
"""


QUIET = "{name: quiet, steps: [{id: t, kind: timer, delay_ms: 60000}]}"


async def with_turns(work: Awaitable[T]) -> tuple[T, int]:
    """What comes of some work, and how often other tasks had their turn meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.ensure_future(count())
    await asyncio.sleep(0)
    before = turns
    try:
        return await work, turns - before
    finally:
        counting.cancel()


@by_hand
async def test_a_commit_continues_a_wide_fan_out_once_however_many_children_end(tmp_path: Path) -> None:
    @tool
    async def work(x: Any) -> Any:
        return x

    most: Counter[int] = Counter()
    async with opened(tmp_path, [work], clock()) as engine:
        engine.door.watchers.append(
            lambda batch, entries, seconds: most.update(
                [sum(isinstance(event, Continued) for _, event, _, _ in entries)]
            )
        )
        run = await engine.begin(WIDE, {"xs": list(range(ITEMS))})
        result = await run.result()
        assert [one["s"] for one in result["loop"]["iterations"]] == list(range(ITEMS))
    # None, where the children that end take up the rest of the fan-out before the loop has taken its turns.
    assert max(most) <= 1


@by_hand
async def test_other_tasks_have_their_turns_between_the_split_decisions_of_several_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them can take 0.1 s of expressions: three in one turn, and a new connection waits for all of them."""
    turns, continued = 0, list[int]()

    @tool
    async def work(x: Any) -> Any:
        await asyncio.Event().wait()

    async with opened(tmp_path, [work], clock()) as engine:
        apply = engine.door.apply

        def seen(resident: Any, event: Any, *more: Any, **how: Any) -> Any:
            if isinstance(event, Continued):
                continued.append(turns)
            return apply(resident, event, *more, **how)

        monkeypatch.setattr(engine.door, "apply", seen)
        runs = [asyncio.ensure_future(engine.begin(WIDE, {"xs": list(range(ITEMS))})) for _ in range(3)]
        while len(continued) < 3:
            await asyncio.sleep(0)
            turns += 1
        await asyncio.gather(*runs)
    assert min(later - earlier for earlier, later in pairwise(continued[:3])) >= TURNS_BETWEEN


@by_hand
async def test_outcomes_that_were_let_go_are_not_held_again() -> None:
    applied: list[tuple[int, bool]] = []
    held = HeldOutcomes(lambda outcomes: applied.append((len(outcomes), held.holds)))
    held.hold()
    for no in range(HELD_AT_ONCE + 1):
        held.put(RunNo(no), StepSucceeded("s", 1, msgspec.Raw(b"1")))
    held.let_go()
    held.hold()  # for the next schedules that are due
    await asyncio.sleep(0)
    assert applied == [(HELD_AT_ONCE, False), (1, False)]
    assert held.holds


@by_hand
async def test_a_wide_run_is_loaded_in_pieces_and_is_the_same_run(tmp_path: Path) -> None:
    @tool
    async def work(x: Any) -> Any:
        await asyncio.Event().wait()

    pieces = 0

    async def give_way() -> None:
        nonlocal pieces
        pieces += 1
        await asyncio.sleep(0)

    async with opened(tmp_path, [work], clock()) as engine:
        await engine.begin(WIDE, {"xs": [{"y": "z" * 500}] * ITEMS})
        await settled()
        (resident,) = engine.door.residents.values()
        stored = await engine.store.load(resident.run.no)
        assert stored is not None
        loaded = await load_run(engine.store, stored, give_way)
        assert (loaded.frames, loaded.steps, loaded.scopes) == (
            resident.run.frames,
            resident.run.steps,
            resident.run.scopes,
        )
    assert pieces >= 1


def test_a_large_value_is_read_while_other_tasks_have_their_turn(tmp_path: Path) -> None:
    asyncio.run(_reads_a_large_value(tmp_path))


async def _reads_a_large_value(folder: Path) -> None:
    @tool
    async def work() -> str:
        return "y" * 3_000_000

    async with opened(folder, [work], SystemClock()) as engine:
        run = await engine.begin("name: n\nsteps: [{id: a, tool: work}]")
        await run.result()
        text = b'"' + b"y" * 3_000_000 + b'"'
        row = await engine.store.run_by_id("default", run.id)
        assert row is not None
        body, turns = await with_turns(engine.store.blob(row.no, sha256(text)))
    assert body == text
    assert turns > 0


def test_many_inputs_are_checked_against_a_schema_while_other_tasks_have_their_turn() -> None:
    declared = Inputs({"n": {"type": "array", "items": {"type": "integer", "minimum": 0}}})
    inputs = {"n": list(range(100_000))}
    filled, turns = asyncio.run(with_turns(_checked(declared, inputs)))
    assert filled == inputs
    assert turns > 0


@by_hand
async def test_starts_that_arrive_one_turn_after_another_share_a_commit(tmp_path: Path) -> None:
    commits: list[int] = []
    async with opened(tmp_path, [], clock()) as engine:
        engine.door.watchers.append(lambda batch, entries, seconds: commits.append(len(batch.new_runs)))

        async def start(after: int) -> None:
            for _ in range(after):
                await asyncio.sleep(0)
            await engine.begin(QUIET)

        # the first five at once, then three in each turn
        await asyncio.gather(*[start(max(0, (number - 2) // 3)) for number in range(20)])
    assert max(commits) == 20


@by_hand
async def test_a_start_that_arrives_alone_waits_for_no_other(tmp_path: Path) -> None:
    commits: list[int] = []
    async with opened(tmp_path, [], clock()) as engine:
        engine.door.watchers.append(lambda batch, entries, seconds: commits.append(len(batch.new_runs)))

        async def start(after: int) -> None:
            for _ in range(after):
                await asyncio.sleep(0)
            await engine.begin(QUIET)

        await asyncio.gather(start(0), start(5))
    assert max(commits) == 1


SIGNALLED = "{name: signalled, steps: [{id: w, kind: wait_event, signal_key: go}]}"


async def evicted(engine: Any, count: int) -> list[Any]:
    runs = [await engine.begin(SIGNALLED) for _ in range(count)]
    await settled()
    assert not engine.door.residents
    return runs


@by_hand
async def test_runs_that_are_asked_for_in_one_turn_are_read_together_after_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        runs, asked = await evicted(engine, 10), list[list[int]]()
        load, load_many = engine.store.load, engine.store.load_many
        numbers = [(await engine.runs.row_of(run.id)).no for run in runs]

        async def counted_one(one: Any) -> Any:
            asked.append([one])
            return await load(one)

        async def counted(several: Any) -> Any:
            asked.append(list(several))
            return await load_many(several)

        monkeypatch.setattr(engine.store, "load", counted_one)
        monkeypatch.setattr(engine.store, "load_many", counted)
        found = await asyncio.gather(*[engine.runs._residents.stored(no) for no in numbers])
    assert sorted(asked) == [numbers[:1], numbers[1:]]
    assert [resident is not None and resident.run.no for resident in found] == numbers


@by_hand
async def test_a_run_that_cannot_be_read_does_not_keep_those_back_that_are_read_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        runs, load, load_many = await evicted(engine, 3), engine.store.load, engine.store.load_many
        broken = (await engine.runs.row_of(runs[1].id)).no

        async def breaks_alone(no: Any) -> Any:
            if no == broken:
                raise ValueError("not a row")
            return await load(no)

        async def breaks(numbers: Any) -> Any:
            if broken in numbers:
                raise ValueError("not a row")
            return await load_many(numbers)

        monkeypatch.setattr(engine.store, "load", breaks_alone)
        monkeypatch.setattr(engine.store, "load_many", breaks)
        outcomes = await asyncio.gather(
            *[engine.runs.signal(run.id, "go", 1) for run in runs], return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [str, RunSetAside, str]
        assert [await runs[0].result(), await runs[2].result()] == [{"w": 1}, {"w": 1}]


@by_hand
async def test_two_callers_that_ask_for_the_same_run_in_one_turn_both_get_it(tmp_path: Path) -> None:
    async with opened(tmp_path, [], clock()) as engine:
        (run,) = await evicted(engine, 1)
        found = await asyncio.gather(engine.runs.find(run.id), engine.runs.find(run.id))
        assert [resident.run.status for resident in found] == ["waiting", "waiting"]


@by_hand
async def test_starts_of_a_cancelled_run_that_wait_for_a_slot_are_released_in_several_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is an event. All of them in one turn, and nobody is answered meanwhile."""
    turns, released = 0, Counter[int]()

    @tool
    async def work(x: Any) -> Any:
        await asyncio.Event().wait()

    async with opened(tmp_path, [work], clock()) as engine:
        deliver = engine.door.deliver

        def seen(no: Any, event: Any, *more: Any) -> Any:
            released[turns] += isinstance(event, AttemptReleased) and event.path in waiting
            return deliver(no, event, *more)

        run = await engine.begin(WIDE, {"xs": list(range(ATTEMPTS_MAX + 250))})
        await settled()
        waiting = {start[1] for start in engine.dispatch.queues}
        assert len(waiting) == 250

        monkeypatch.setattr(engine.door, "deliver", seen)
        cancelling = asyncio.ensure_future(engine.commands.cancel(DEFAULT_TENANT, run.id))
        while released.total() < 250:
            await asyncio.sleep(0)
            turns += 1
        await cancelling
    assert max(released.values()) <= RELEASED_AT_ONCE


TIMERS = f"""
name: timers
steps:
  - {{id: loop, kind: foreach, items: $.inputs.xs, concurrency: {ITEMS}, steps: [{{id: t, kind: timer, delay_ms: 3000}}]}}
"""


@by_hand
async def test_of_many_timers_of_a_run_that_are_due_at_once_some_fire_in_one_turn(tmp_path: Path) -> None:
    fired: list[int] = []
    async with opened(tmp_path, [], clock()) as engine:
        engine.door.watchers.append(
            lambda batch, entries, seconds: fired.append(
                sum(isinstance(event, TimerFired) for _, event, _, _ in entries)
            )
        )
        run = await engine.begin(TIMERS, {"xs": list(range(ITEMS))})
        result = await clock().until(run.result())
        assert len(result["loop"]["iterations"]) == ITEMS
    assert sum(fired) == ITEMS
    assert max(fired) <= WOKEN_AT_ONCE


def test_whether_a_run_may_be_evicted_is_known_from_its_first_timer_that_is_due_soon() -> None:
    read: list[int] = []

    class Timers(dict[str, Millis]):
        def values(self) -> Any:
            for at in super().values():
                read.append(at)
                yield at

    due, soon, later = Millis(1_000), Millis(1_000 + EVICT_MS), Millis(1_001 + EVICT_MS)
    run = Run(RunNo(1), RunId(""), "", status="waiting")
    for timers, may, looks in (
        ((later, later), True, 2),
        ((later, soon, due, due), False, 2),
        ((due,) * 100, False, 1),
    ):
        read.clear()
        run.timers = Timers((str(index), at) for index, at in enumerate(timers))
        assert (may_evict(run, due), len(read)) == (may, looks)


@by_hand
async def test_limits_that_starts_wait_for_are_looked_up_together(tmp_path: Path) -> None:
    @tool
    async def work(x: Any) -> Any:
        await asyncio.Event().wait()

    async with opened(tmp_path, [work], clock()) as engine:
        await engine.begin(WIDE, {"xs": list(range(ATTEMPTS_MAX + 2))})
        await settled()
        (resident,) = engine.door.residents.values()
        found = engine.dispatch.queues.limits_of(resident.run.no)
        assert {path: limit for path, (limit, _) in found.items()} == {
            f"loop[{index}].s": "attempts_max" for index in (ATTEMPTS_MAX, ATTEMPTS_MAX + 1)
        }
