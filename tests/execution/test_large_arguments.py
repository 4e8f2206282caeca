"""Large arguments: few of them are in memory at a time, and tools get them as they get small ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, RunFailed, tool
from holdfast.execution import large_arguments, large_results
from holdfast.runtime.large_arguments import LargeArguments
from holdfast.tools.results import text_in_pieces
from holdfast.values import RunNo
from tests.runtime.served import said, served
from tests.small_limits import defaults_before_and_after, with_limits

pytestmark = pytest.mark.anyio

SIZE = 100_000  # of one argument: over what is not counted


@pytest.fixture
def own_limits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with defaults_before_and_after(monkeypatch):
        yield


class Watched:
    """A tool that notes how many of its calls are in progress at the same time."""

    def __init__(self) -> None:
        self.now = self.most = self.calls = 0

    def tool(self) -> Any:
        @tool(name="watched")
        async def watched(value: str) -> int:
            self.now += 1
            self.calls += 1
            self.most = max(self.most, self.now)
            for _ in range(20):
                await asyncio.sleep(0)
            self.now -= 1
            return len(value)

        return watched


FAN_OUT = {
    "name": "wide",
    "inputs": {"text": {"type": "string"}, "count": {"type": "array"}},
    "steps": [
        {
            "id": "each",
            "kind": "foreach",
            "items": "$.inputs.count",
            "concurrency": 50,
            "steps": [{"id": "s", "tool": "watched", "args": {"value": "{{inputs.text}}"}}],
        }
    ],
    "output": {"each": "{{each}}"},
}


@pytest.mark.usefixtures("own_limits")
async def test_a_fan_out_of_large_arguments_has_few_of_them_in_progress(tmp_path: Path) -> None:
    seen = Watched()
    limits = {"arguments_bytes_max": 3 * SIZE + 1_000}
    async with Holdfast(f"sqlite:///{tmp_path}/h.db", tools=[seen.tool()], limits=limits) as hf:
        run = await hf.start(FAN_OUT, {"text": "x" * SIZE, "count": list(range(40))})
        output = await run.result(timeout=60)
    assert [one["s"] for one in output["each"]["iterations"]] == [SIZE] * 40
    assert seen.calls == 40 and seen.most <= 3


@pytest.mark.usefixtures("own_limits")
async def test_arguments_over_the_whole_budget_are_given_one_at_a_time(tmp_path: Path) -> None:
    seen = Watched()
    async with Holdfast(
        f"sqlite:///{tmp_path}/h.db", tools=[seen.tool()], limits={"arguments_bytes_max": 1_024}
    ) as hf:
        run = await hf.start(FAN_OUT, {"text": "x" * SIZE, "count": [1, 2, 3]})
        await run.result(timeout=60)
    assert (seen.calls, seen.most) == (3, 1)


@pytest.mark.usefixtures("own_limits")
async def test_a_run_that_waits_for_room_can_be_cancelled(tmp_path: Path) -> None:
    begun = asyncio.Event()

    @tool(name="watched")
    async def held(value: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Holdfast(
        f"sqlite:///{tmp_path}/h.db", tools=[held], limits={"arguments_bytes_max": 1_024}
    ) as hf:
        run = await hf.start(FAN_OUT, {"text": "x" * SIZE, "count": [1, 2, 3]})
        await begun.wait()
        await hf.cancel(run.id)
        with pytest.raises(Exception, match="cancel"):
            await run.result(timeout=60)


@tool(isolate="process")
def apart_length(value: list[int]) -> int:
    return len(value)


@tool
def thread_length(value: list[int]) -> int:
    return len(value)


@tool
async def loop_length(value: list[int], scale: int = 1) -> int:
    return scale * len(value)


LENGTHS = {
    "name": "lengths",
    "inputs": {"list": {"type": "array"}},
    "steps": [
        {"id": "p", "tool": "apart_length", "args": {"value": "{{inputs.list}}"}},
        {"id": "t", "tool": "thread_length", "args": {"value": "{{inputs.list}}"}},
        {"id": "l", "tool": "loop_length", "args": {"value": "{{inputs.list}}", "scale": 2}},
        {"id": "e", "tool": "echo", "args": {"value": "{{inputs.list}}"}},
        {"id": "x", "tool": "transform", "args": {"value": "{{e}}", "select": "$[-1]"}},
    ],
    "output": {"p": "{{p}}", "t": "{{t}}", "l": "{{l}}", "x": "{{x}}"},
}


@pytest.mark.parametrize("large_bytes", [1_000, 10_000_000])
async def test_every_kind_of_tool_gets_large_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large_bytes: int
) -> None:
    monkeypatch.setattr(large_arguments, "LARGE_BYTES", large_bytes)
    tools = [apart_length, thread_length, loop_length]
    async with Holdfast(f"sqlite:///{tmp_path}/h.db", tools=tools) as hf:
        run = await hf.start(LENGTHS, {"list": list(range(50_000))})
        assert await run.result(timeout=60) == {"p": 50_000, "t": 50_000, "l": 100_000, "x": 49_999}


@pytest.mark.parametrize(
    ("name", "args", "kind"),
    [
        ("echo", {"value": 1, "unknown": "{{inputs.list}}"}, "inputs"),
        ("transform", {"value": "{{inputs.list}}", "select": "no path"}, "inputs"),
        ("loop_length", {"value": 1, "scale": "{{inputs.list}}"}, "inputs"),
    ],
)
async def test_large_arguments_that_do_not_fit_fail_the_step(
    tmp_path: Path, name: str, args: dict[str, Any], kind: str
) -> None:
    spec = {"name": "n", "inputs": {"list": {}}, "steps": [{"id": "s", "tool": name, "args": args}]}
    async with Holdfast(f"sqlite:///{tmp_path}/h.db", tools=[loop_length]) as hf:
        run = await hf.start(spec, {"list": list(range(50_000))})
        with pytest.raises(RunFailed) as failed:
            await run.result(timeout=60)
    assert failed.value.error.kind == kind


async def test_large_results_are_written_beside_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[int]()

    def noted(value: Any) -> bytes:
        threads.append(threading.get_ident())
        return text_in_pieces(value)

    @tool
    async def wide(count: int) -> list[int]:
        return list(range(count))

    @tool
    def thread_wide(count: int) -> list[int]:
        return list(range(count))

    monkeypatch.setattr(large_results, "text_in_pieces", noted)
    steps = [{"id": name, "tool": name, "args": {"count": 200_000}} for name in ("wide", "thread_wide")]
    async with Holdfast(f"sqlite:///{tmp_path}/h.db", tools=[wide, thread_wide]) as hf:
        output = await (await hf.start({"name": "n", "steps": steps}, {})).result(timeout=60)
    assert output == {"wide": list(range(200_000)), "thread_wide": list(range(200_000))}
    assert len(threads) == 2 and threading.get_ident() not in threads


async def test_large_json_is_sent_as_it_was_given(tmp_path: Path) -> None:
    args = {
        "url": "{{inputs.url}}",
        "method": "POST",
        "json": {"rows": "{{inputs.rows}}", "a": "{{inputs.url}}"},
    }
    spec = {
        "name": "n",
        "inputs": {"rows": {}, "url": {}},
        "steps": [{"id": "s", "tool": "http_request", "args": args}],
    }
    async with served(said("taken")) as server, Holdfast(f"sqlite:///{tmp_path}/h.db") as hf:
        rows = [[number] for number in range(300_000)]
        run = await hf.start(spec, {"rows": rows, "url": server.url})
        assert (await run.result(timeout=60))["s"]["status"] == 200
    assert server.asked[0].data == {"rows": rows, "a": server.url}
    assert server.asked[0].headers["content-type"] == "application/json"


# ------------------------------------------------------------------------------------------------------------- room


async def test_a_call_waits_for_room_and_a_cancelled_one_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(monkeypatch, arguments_bytes_max=200_000)
    room, order, release = LargeArguments(), list[int](), asyncio.Event()

    async def call(number: int) -> None:
        async with room.room_for(150_000):
            order.append(number)
            await release.wait()

    calls = [asyncio.create_task(call(number)) for number in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    await asyncio.sleep(0)
    assert order == [0] and not room.take(150_000, (RunNo(1), "a", 1)) and not room.has_room()
    release.set()
    await asyncio.gather(calls[0], calls[2])
    assert order == [0, 2] and room.has_room()
