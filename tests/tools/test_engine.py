"""Tools as a run meets them: checked arguments, processes that can be killed, contexts and the built-in tools."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psutil
import pydantic
import pytest

from holdfast import Context, RunCancelled, RunFailed, limits, tool
from holdfast.embed import RunHandle
from holdfast.runtime.clock import SystemClock
from tests.runtime.bench import Bench, opened
from tests.tools import isolated
from tests.tools.test_processes import ended, patient, written

__all__ = ["patient"]


def in_real_time(test: Callable[[Path], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    run.__name__ = test.__name__
    return run


@asynccontextmanager
async def engine(path: Path, *tools: Any) -> AsyncIterator[Bench]:
    async with opened(path, tools, SystemClock()) as made:
        yield made


def one_step(name: str, args: dict[str, Any] | None = None, **more: Any) -> str:
    return json.dumps({"name": "n", "steps": [{"id": "a", "tool": name, "args": args or {}, **more}]})


async def failure(run: RunHandle) -> Any:
    with pytest.raises(RunFailed) as caught:
        await run.result()
    return caught.value.error


@dataclasses.dataclass
class Line:
    sku: str
    price: Decimal
    due: dt.date


class Bill(pydantic.BaseModel):
    total: Decimal
    lines: list[Line]


@tool
async def bill(lines: list[Line]) -> Bill:
    return Bill(total=sum((line.price for line in lines), Decimal()), lines=lines)


@tool
def paid(bill: Bill) -> str:
    return f"{bill.total} for {bill.lines[0].due.year}"


@in_real_time
async def test_typed_arguments_and_results_go_from_step_to_step(tmp_path: Path) -> None:
    lines = [{"sku": "x", "price": "1.50", "due": "2026-05-01"}]
    steps = [
        {"id": "a", "tool": "bill", "args": {"lines": lines}},
        {"id": "b", "tool": "paid", "args": {"bill": "{{steps.a.output}}"}},
    ]
    async with engine(tmp_path, bill, paid) as hf:
        run = await hf.begin(json.dumps({"name": "n", "steps": steps}))
        assert await run.result() == {"a": {"total": "1.50", "lines": lines}, "b": "1.50 for 2026"}


@in_real_time
async def test_misfitting_arguments_fail_the_step_with_kind_inputs_and_are_not_tried_again(
    tmp_path: Path,
) -> None:
    async with engine(tmp_path, bill) as hf:
        run = await hf.begin(one_step("bill", {"lines": [{"sku": 1}]}, retry={"max_attempts": 3}))
        error = await failure(run)
    assert (error.kind, error.attempt) == ("inputs", 1)
    assert "lines[0].sku: expected str, got int" in error.message


@in_real_time
async def test_a_process_that_loops_for_ever_is_timed_out_and_killed(tmp_path: Path) -> None:
    async with engine(tmp_path, isolated.spin, isolated.whoami) as hf:
        beacon = tmp_path / "pid"
        beacon.touch()
        while not beacon.read_text():  # on a busy machine its time may be over before it has begun
            run = await hf.begin(one_step("spin", {"beacon": str(beacon)}, timeout_secs=1))
            assert (await failure(run)).kind == "timeout"
        pid = int(beacon.read_text())
        await ended(pid)
        assert (await (await hf.begin(one_step("whoami"))).result())["a"] != pid


@in_real_time
async def test_a_process_at_work_is_killed_when_its_run_is_cancelled(tmp_path: Path) -> None:
    async with engine(tmp_path, isolated.spin) as hf:
        run = await hf.begin(one_step("spin", {"beacon": str(tmp_path / "pid")}))
        pid = int(await written(tmp_path / "pid"))
        await hf.runs.cancel(run.id, "enough")
        with pytest.raises(RunCancelled):
            await run.result()
        await ended(pid)


@in_real_time
async def test_a_crash_is_a_failed_attempt_and_the_next_one_may_succeed(tmp_path: Path) -> None:
    async with engine(tmp_path, isolated.crash_once) as hf:
        run = await hf.begin(one_step("crash_once", retry={"max_attempts": 2, "initial_delay_ms": 1}))
        assert await run.result() == {"a": 2}
        run = await hf.begin(one_step("crash_once"))
        assert (await failure(run)).kind == "crashed"


@in_real_time
async def test_more_starts_than_processes_wait_their_turn(tmp_path: Path) -> None:
    steps = [{"id": "loop", "kind": "foreach", "items": "$.inputs.n", "concurrency": 20,
              "steps": [{"id": "s", "tool": "whoami"}]}]  # fmt: skip
    async with engine(tmp_path, isolated.whoami) as hf:
        run = await hf.begin(
            json.dumps({"name": "n", "inputs": {"n": {"type": "array"}}, "steps": steps}),
            {"n": list(range(20))},
        )
        found = (await run.result())["loop"]["iterations"]
    assert len(found) == 20
    assert len({one["s"] for one in found}) <= (os.cpu_count() or 1)


@in_real_time
async def test_a_run_cancelled_while_its_start_waits_for_a_process_ends(tmp_path: Path) -> None:
    async with engine(tmp_path, isolated.spin, isolated.whoami) as hf:
        beacons = [tmp_path / f"pid{n}" for n in range(os.cpu_count() or 1)]
        busy = [await hf.begin(one_step("spin", {"beacon": str(beacon)})) for beacon in beacons]
        for beacon in beacons:
            await written(beacon)
        waiting = await hf.begin(one_step("whoami"))
        for run in (waiting, *busy):
            await hf.runs.cancel(run.id)
            with pytest.raises(RunCancelled):
                await run.result()


@in_real_time
async def test_closing_the_engine_ends_its_processes_and_the_run_goes_on_later(tmp_path: Path) -> None:
    async with engine(tmp_path, isolated.spin_once) as hf:
        run = await hf.begin(one_step("spin_once", {"beacon": str(tmp_path / "pid")}))
        pid = int(await written(tmp_path / "pid"))
    assert not psutil.pid_exists(pid)
    async with engine(tmp_path, isolated.spin_once) as hf:
        assert await (await hf.attach(run.id)).result() == {"a": "done"}


@in_real_time
async def test_what_a_tool_says_is_told_with_its_run_and_path(tmp_path: Path) -> None:
    told: list[Any] = []

    @tool
    def talk(ctx: Context) -> str:
        ctx.log("hello", n=1)
        ctx.progress(0.5)
        return str(ctx.workdir)

    async with engine(tmp_path, talk, isolated.about) as hf:
        hf.dispatch.contexts.hearers.append(
            lambda no, path, attempt, kind, data: told.append((path, attempt, kind))
        )
        here = (await (await hf.begin(one_step("talk"))).result())["a"]
        there = (await (await hf.begin(one_step("about"))).result())["a"]["workdir"]
    assert told == [("a", 1, "log"), ("a", 1, "progress")] * 2
    assert not Path(here).exists()
    assert not Path(there).exists()


@in_real_time
async def test_the_built_in_tools_need_no_registration(tmp_path: Path) -> None:
    steps = [
        {"id": "a", "tool": "echo", "args": {"value": [{"n": 1, "m": 2}]}},
        {"id": "b", "tool": "transform", "args": {"value": "{{steps.a.output}}", "select": "$[*].n"}},
        {"id": "c", "tool": "log", "args": {"message": "half way"}},
        {"id": "d", "tool": "fail", "args": {"message": "on purpose", "kind": "quota"}},
    ]
    async with engine(tmp_path) as hf:
        error = await failure(await hf.begin(json.dumps({"name": "n", "steps": steps})))
    assert (error.kind, error.message, error.path) == ("quota", "on purpose", "d")


@dataclasses.dataclass
class Leaving:
    n: int

    def __post_init__(self) -> None:
        raise SystemExit("while being made")


@tool
async def take_leaving(it: Leaving) -> None: ...


@in_real_time
async def test_a_class_that_leaves_while_it_is_made_fails_its_step_alone(tmp_path: Path) -> None:
    async with engine(tmp_path, take_leaving) as hf:
        error = await failure(await hf.begin(one_step("take_leaving", {"it": {"n": 1}})))
        assert error.kind == "inputs"
        assert await (await hf.begin(one_step("echo", {"value": 1}))).result() == {"a": 1}


@tool
async def blurt(size: int) -> None:
    raise ValueError("x" * size + "hunter2hunter2")


@pytest.mark.parametrize("name", ["blurt", "long_words"])
def test_a_secret_at_the_end_of_a_long_message_is_not_cut_in_half(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_WORD", "hunter2hunter2")

    async def run() -> None:
        async with engine(tmp_path, blurt, isolated.long_words) as hf:
            hf.dispatch.secrets.require("WORD")
            error = await failure(
                await hf.begin(one_step(name, {"size": limits.DEFAULTS.error_chars_max - 7}))
            )
            assert error.message.endswith("xxx***")

    asyncio.run(run())


def returning(value: Any) -> Any:
    @tool(name="odd")
    def odd() -> Any:
        return value() if callable(value) else value

    return odd


async def _later() -> int:
    return 1


ODD: list[tuple[str, Any, str]] = [
    ("coroutine", _later, "make the tool `async def`"),
    ("generator", lambda: (n for n in [1]), "return a list"),
    ("object", lambda: {"a": [object()]}, "an object at $.a[0]"),
    ("nan", lambda: {"a": float("nan")}, "nan at $.a"),
]


@pytest.mark.parametrize(("value", "words"), [odd[1:] for odd in ODD], ids=[odd[0] for odd in ODD])
def test_an_odd_result_fails_its_step_and_says_what_it_was(tmp_path: Path, value: Any, words: str) -> None:
    async def run() -> None:
        async with engine(tmp_path, returning(value)) as hf:
            error = await failure(await hf.begin(one_step("odd")))
            assert error.kind == "error"
            assert words in error.message

    asyncio.run(run())
