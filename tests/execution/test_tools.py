"""Whatever a tool does, its step gets a clear outcome and the engine goes on."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Context, RunFailed, ToolError, tool
from holdfast.execution.dispatcher import TURN_SECONDS
from holdfast.execution.runner import TURN_TASKS
from holdfast.runtime.clock import SystemClock
from tests.runtime.bench import opened
from tests.runtime.manual import by_hand, clock, settled

CALL = "name: n\nsteps: [{id: a, tool: odd}]"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Silent(Exception):
    def __str__(self) -> str:
        return ""


class Mute(Exception):
    def __str__(self) -> str:
        return None  # type: ignore[return-value]  # noqa: PLE0307


class RudeKind(Exception):
    @property
    def kind(self) -> str:
        raise RuntimeError("no kind")


class BrokenKind(Exception):
    kind = "half a pair \ud800"


class NoTextKind(Exception):
    kind = 7


def circle() -> Any:
    around: list[Any] = []
    around.append(around)
    return around


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


RAISES: list[tuple[BaseException, str, str]] = [
    (ValueError("plain"), "error", "plain"),
    (SystemExit("bye"), "error", "bye"),
    (KeyboardInterrupt(), "error", "KeyboardInterrupt"),
    (GeneratorExit(), "error", "GeneratorExit"),
    (StopIteration(3), "error", "StopIteration"),
    (StopAsyncIteration(), "error", "StopAsyncIteration"),
    (asyncio.CancelledError(), "cancelled", "cancelled"),
    (Unprintable(), "error", "cannot be printed"),
    (Silent(), "error", "Silent"),
    (Mute(), "error", "cannot be printed"),
    (RudeKind("hm"), "error", "hm"),
    (NoTextKind("hm"), "error", "hm"),
    (TimeoutError("slow"), "timeout", "slow"),
    (TimeoutError(), "timeout", "TimeoutError"),
    (OSError("connection timeout"), "timeout", "connection timeout"),
    (OSError("a Transient thing"), "transient", "a Transient thing"),
    (ToolError("mine", kind="quota"), "quota", "mine"),
    (MemoryError(), "error", "MemoryError"),
    (RecursionError("deep"), "error", "deep"),
    (ExceptionGroup("many", [ValueError("x")]), "error", "many"),
    (ValueError("half a pair \ud800"), "error", "half a pair"),
]


def sync_raiser(error: BaseException) -> Callable[[], Any]:
    @tool(name="odd")
    def odd() -> Any:
        raise error

    return odd


def async_raiser(error: BaseException) -> Callable[[], Any]:
    @tool(name="odd")
    async def odd() -> Any:
        raise error

    return odd


def waiting_raiser(error: BaseException) -> Callable[[], Any]:
    @tool(name="odd")
    async def odd() -> Any:
        await asyncio.sleep(0)
        raise error

    return odd


@pytest.mark.parametrize("make", [sync_raiser, async_raiser, waiting_raiser])
@pytest.mark.parametrize(
    ("error", "kind", "words"), RAISES, ids=[type(error).__name__ for error, _, _ in RAISES]
)
@by_hand
async def test_whatever_a_tool_raises_fails_its_step_and_nothing_else(
    tmp_path: Path, make: Callable[..., Any], error: BaseException, kind: str, words: str
) -> None:
    async with opened(tmp_path, [make(error), sane], clock()) as engine:
        run = await engine.begin(CALL)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert (caught.value.error.kind, caught.value.error.path) == (kind, "a")
        assert words in caught.value.error.message
        assert await (await engine.begin(SANE)).result() == {"a": "fine"}


@tool
async def sane() -> str:
    return "fine"


SANE = "name: n\nsteps: [{id: a, tool: sane}]"


@by_hand
async def test_a_kind_that_is_no_text_for_a_journal_still_fails_its_step(tmp_path: Path) -> None:
    async with opened(tmp_path, [async_raiser(BrokenKind("hm")), sane], clock()) as engine:
        run = await engine.begin(CALL)
        with pytest.raises(RunFailed):
            await run.result()
        assert await (await engine.begin(SANE)).result() == {"a": "fine"}


RETURNS: list[tuple[str, Callable[[], Any], str]] = [
    ("nan", lambda: float("nan"), "NaN"),
    ("infinity", lambda: {"deep": [float("-inf")]}, "NaN and infinity"),
    ("circle", circle, "circular"),
    ("object", object, "not JSON"),
    ("lambda", lambda: {"f": print}, "not JSON"),
    ("deep", lambda: deep(65), "deeper than 64"),
    ("very deep", lambda: deep(100_000), "nested deeper than 64 levels"),
    ("surrogate", lambda: "\ud800", "not JSON"),
    ("tuple keys", lambda: {(1, 2): 3}, "not JSON"),
]


@pytest.mark.parametrize("make", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize(
    ("value", "words"), [case[1:] for case in RETURNS], ids=[case[0] for case in RETURNS]
)
@by_hand
async def test_an_output_without_a_json_form_is_a_clear_failure(
    tmp_path: Path, make: bool, value: Callable[[], Any], words: str
) -> None:
    async def odd() -> Any:
        return value()

    def odd_sync() -> Any:
        return value()

    chosen: Any = odd if make else odd_sync
    async with opened(tmp_path, [tool(name="odd")(chosen)], clock()) as engine:
        run = await engine.begin(CALL)
        with pytest.raises(RunFailed) as caught:
            await run.result()
        assert words in caught.value.error.message
        assert (caught.value.error.kind, caught.value.error.attempt) == ("error", 1)


@dataclasses.dataclass
class Point:
    x: int
    label: str = "p"


class Record(msgspec.Struct):
    n: float


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, None),
        (Point(3), {"x": 3, "label": "p"}),
        (Record(0.5), {"n": 0.5}),
        ((1, 2), [1, 2]),
        ({1: "one"}, {"1": "one"}),
        ("é\x00\U0001f600", "é\x00\U0001f600"),
        (2**63, 2**63),
        (-(2**70), -(2**70)),
        ({"$of": "x", "$$": 1, "$blob": "y"}, {"$of": "x", "$$": 1, "$blob": "y"}),
        ({"$blob": "0" * 64}, {"$blob": "0" * 64}),
        ("{{ inputs.secret }}", "{{ inputs.secret }}"),  # what a tool says is data and is never rendered
    ],
    ids=str,
)
@by_hand
async def test_an_output_comes_back_as_its_json_form(tmp_path: Path, value: Any, read: Any) -> None:
    @tool
    async def odd() -> Any:
        return value

    @tool
    async def echo(x: Any) -> Any:
        return x

    definition = "name: n\nsteps: [{id: a, tool: odd}, {id: b, tool: echo, args: {x: '{{ a }}'}}]"
    async with opened(tmp_path, [odd, echo], clock()) as engine:
        assert await (await engine.begin(definition)).result() == {"a": read, "b": read}


@by_hand
async def test_an_output_of_20_mb_is_stored_and_read_back(tmp_path: Path) -> None:
    @tool
    async def odd() -> str:
        return "x" * 20_000_000

    async with opened(tmp_path, [odd], clock()) as engine:
        run = await engine.begin(CALL)
        assert await run.result() == {"a": "x" * 20_000_000}


@pytest.mark.parametrize("sync", [True, False])
@by_hand
async def test_an_output_of_30_mb_fails_with_kind_output_too_large_and_a_hint(
    tmp_path: Path, sync: bool
) -> None:
    def large_sync() -> str:
        return "x" * 30_000_000

    async def large() -> str:
        return "x" * 30_000_000

    chosen: Any = large_sync if sync else large
    async with opened(tmp_path, [tool(name="odd")(chosen)], clock()) as engine:
        with pytest.raises(RunFailed, match="file_refs") as caught:
            await (await engine.begin(CALL)).result()
        assert caught.value.error.kind == "output_too_large"


@by_hand
async def test_an_error_message_of_a_megabyte_is_cut(tmp_path: Path) -> None:
    async with opened(tmp_path, [async_raiser(ValueError("x" * 1_000_000))], clock()) as engine:
        with pytest.raises(RunFailed) as caught:
            await (await engine.begin(CALL)).result()
        assert len(caught.value.error.message) < 10_000


@pytest.mark.parametrize("args", ["{}", "{x: 1, y: 2}", "{z: 1}"])
@by_hand
async def test_arguments_that_do_not_fit_fail_the_step(tmp_path: Path, args: str) -> None:
    @tool
    async def odd(x: int) -> int:
        return x

    async with opened(tmp_path, [odd], clock()) as engine:
        with pytest.raises(RunFailed, match="odd"):
            await (await engine.begin(f"name: n\nsteps: [{{id: a, tool: odd, args: {args}}}]")).result()


@by_hand
async def test_sync_tools_run_in_threads_beside_each_other(tmp_path: Path) -> None:
    together = threading.Barrier(5, timeout=60)  # it breaks if they ran one after another

    @tool
    def odd() -> str:
        together.wait()
        return str(threading.get_ident())

    steps = ", ".join(f"{{id: s{n}, tool: odd}}" for n in range(5))
    async with opened(tmp_path, [odd], clock()) as engine:
        run = await engine.begin(f"name: n\nsteps: [{{id: p, kind: parallel, steps: [{steps}]}}]")
        result = await run.result()
        threads = {next(iter(branch["steps"].values())) for branch in result["p"]["branches"]}
        assert len(threads) == 5


@by_hand
async def test_a_value_that_a_tool_changes_is_its_own(tmp_path: Path) -> None:
    """Two steps are handed the same output; what one does to it the other does not see."""

    @tool
    async def give() -> dict[str, Any]:
        return {"list": [1], "long": "x" * 3_000}

    @tool
    async def spoil(x: dict[str, Any]) -> list[Any]:
        x["list"].append("spoilt")
        return list(x["list"])

    definition = """
    name: n
    steps:
      - {id: a, tool: give}
      - {id: b, tool: spoil, args: {x: "{{ a }}"}}
      - {id: c, tool: spoil, args: {x: "{{ a }}"}}
    """
    async with opened(tmp_path, [give, spoil], clock()) as engine:
        result = await (await engine.begin(definition)).result()
        assert (result["b"], result["c"], result["a"]["list"]) == ([1, "spoilt"], [1, "spoilt"], [1])


@by_hand
async def test_a_context_tells_run_path_and_attempt_and_the_same_key_to_all_attempts(tmp_path: Path) -> None:
    seen: list[tuple[str, str, int, str]] = []

    @tool
    async def odd(ctx: Context) -> None:
        seen.append((ctx.run_id, ctx.path, ctx.attempt, ctx.idempotency_key))
        if ctx.attempt < 3:
            raise OSError("again")

    definition = """
    name: n
    steps:
      - id: loop
        kind: foreach
        items: $.inputs.xs
        retry: {max_attempts: 3, initial_delay_ms: 0}
        steps: [{id: s, tool: odd}]
    """
    async with opened(tmp_path, [odd], clock()) as engine:
        run = await engine.begin(definition, {"xs": [1, 2]})
        await run.result()
        again = await engine.begin(definition, {"xs": [1]})
        await again.result()
    assert [(path, attempt) for _, path, attempt, _ in seen[:6]] == [
        (f"loop[{i}].s", n) for i in (0, 1) for n in (1, 2, 3)
    ]
    assert {run_id for run_id, *_ in seen} == {run.id, again.id}
    assert len({key for *_, key in seen}) == 3  # one per step instance


@by_hand
async def test_a_thousand_tools_that_wait_are_at_work_at_once(tmp_path: Path) -> None:
    count, all_there = 0, asyncio.Event()

    @tool
    async def odd() -> None:
        nonlocal count
        count += 1
        if count == 1_000:
            all_there.set()
        await all_there.wait()

    definition = "name: n\nsteps: [{id: l, kind: foreach, items: $.inputs.xs, concurrency: 1000, collect: none, steps: [{id: s, tool: odd}]}]"
    async with opened(tmp_path, [odd], clock()) as engine:
        run = await engine.begin(definition, {"xs": list(range(1_000))})
        assert (await run.result())["l"] == {"count": 1_000, "failed": 0}


@by_hand
async def test_a_tool_that_waits_does_not_hold_up_the_others_behind_it(tmp_path: Path) -> None:
    gate = asyncio.Event()
    order: list[str] = []

    @tool
    async def odd(name: str) -> None:
        if name == "a":
            await gate.wait()
        order.append(name)

    definition = "name: n\nsteps: [{id: p, kind: parallel, steps: [{id: a, tool: odd, args: {name: a}}, {id: b, tool: odd, args: {name: b}}]}]"
    async with opened(tmp_path, [odd], clock()) as engine:
        run = await engine.begin(definition)
        await settled()
        assert order == ["b"]
        gate.set()
        await run.result()


@by_hand
async def test_a_secret_that_is_missing_fails_the_step_and_its_placeholder_is_never_handed_over(
    tmp_path: Path,
) -> None:
    handed: list[Any] = []

    @tool
    async def odd(x: Any) -> None:
        handed.append(x)

    definition = "name: n\nsteps: [{id: a, tool: odd, args: {x: 'Bearer {{ secrets.NOWHERE }}'}, retry: {max_attempts: 3}}]"
    async with opened(tmp_path, [odd], clock()) as engine:
        with pytest.raises(RunFailed) as caught:
            await (await engine.begin(definition)).result()
        assert (caught.value.error.kind, handed) == ("secret", [])


def test_calls_that_never_wait_let_the_event_loop_take_its_turn(tmp_path: Path) -> None:
    turns, seen = 0, []

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    @tool
    async def odd() -> None:
        seen.append(turns)
        time.sleep(2 * TURN_SECONDS)  # noqa: ASYNC251  # a large value keeps the loop as busy

    definition = "name: n\nsteps: [{id: f, kind: foreach, items: $.inputs.list, concurrency: 8, steps: [{id: a, tool: odd}]}]"

    async def main() -> None:
        async with opened(tmp_path, [odd], SystemClock()) as engine:
            counting = asyncio.create_task(count())
            await (await engine.begin(definition, {"list": list(range(8))})).result()
            counting.cancel()

    asyncio.run(main())
    assert len(set(seen)) == 4  # a turn ends when the time is up as the next call begins: two calls to each


def test_calls_of_a_tool_that_waits_are_begun_in_several_turns_of_the_loop(tmp_path: Path) -> None:
    turns, seen = 0, list[int]()

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    @tool
    async def odd() -> None:
        seen.append(turns)
        await asyncio.sleep(0)

    definition = "name: n\nsteps: [{id: f, kind: foreach, items: $.inputs.list, concurrency: 90, steps: [{id: a, tool: odd}]}]"

    async def main() -> None:
        async with opened(tmp_path, [odd], SystemClock(), turn_seconds=60.0) as engine:
            await (await engine.begin(CALL)).result()  # from now on it is known that it waits
            counting = asyncio.create_task(count())
            await (await engine.begin(definition, {"list": list(range(90))})).result()
            counting.cancel()

    asyncio.run(main())
    assert max(map(seen.count, seen)) == TURN_TASKS
