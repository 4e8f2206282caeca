"""Slow destinations: how places are shared, and that polls, callbacks and calls of one hanging server delay no other's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, RunHandle, limits, tool
from holdfast.deliveries import outbox
from holdfast.runtime.places import SLOW_SECONDS, Places, Slow
from holdfast.tools.http import get
from holdfast.waits import polling
from holdfast.workers import push as calls
from tests.runtime.served import Asked, said, served
from tests.small_limits import with_limits

PATIENCE_SECONDS = 60.0

pytestmark = pytest.mark.anyio


async def taken(places: Places, key: str, order: list[str], *, release: asyncio.Event) -> None:
    async with places.at(key):
        order.append(key)
        await release.wait()


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_destination_takes_no_more_than_its_share() -> None:
    places, order, release = Places(4, 2), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(taken(places, key, order, release=release)) for key in "aaaab"]
    await turns()
    assert order == ["a", "a", "b"]
    release.set()
    await asyncio.gather(*tasks)
    assert order == ["a", "a", "b", "a", "a"]


async def test_lines_take_turns() -> None:
    places, order, release = Places(1, 1), list[str](), asyncio.Event()
    tasks = [asyncio.create_task(taken(places, key, order, release=release)) for key in "aaabbc"]
    await turns()
    release.set()
    await asyncio.gather(*tasks)
    assert order == ["a", "a", "b", "c", "a", "b"]


async def test_leaving_a_line_gives_the_place_to_the_next() -> None:
    places, order, release = Places(1, 1), list[str](), asyncio.Event()
    first, second, third = (asyncio.create_task(taken(places, key, order, release=release)) for key in "abc")
    await turns()
    second.cancel()
    release.set()
    await asyncio.gather(first, third)
    assert order == ["a", "c"] and places.has_room("b")


async def test_leaving_in_the_moment_of_ones_turn_gives_the_place_back() -> None:
    places, order, release = Places(1, 1), list[str](), asyncio.Event()
    first = asyncio.create_task(taken(places, "a", order, release=release))
    second = asyncio.create_task(taken(places, "b", order, release=release))
    await turns()
    first.cancel()
    await asyncio.sleep(0)  # its place is the second's now, which does not know it yet
    second.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert places.has_room("a") and order == ["a"]


def test_a_destination_is_slow_until_it_is_quick_again() -> None:
    slow = Slow[str]()
    slow.took("a", SLOW_SECONDS)
    slow.took("b", SLOW_SECONDS / 2)
    assert list(slow) == ["a"]
    slow.took("a", 0.1)
    assert "a" not in slow


# --------------------------------------------------------------------------------------------------- over sockets


async def hangs(asked: Asked) -> bytes | None:
    await asyncio.Event().wait()
    return None


@tool
async def ask(url: str) -> dict[str, Any]:
    return {"pending": True, "task_id": url, "poll_url": url}


STEP = {
    "id": "a",
    "tool": "ask",
    "args": {"url": "{{ inputs.url }}"},
    "poll": {"interval_ms": 50, "max_ms": 50},
}


@asynccontextmanager
async def engine_that_polls(folder: Path, ttl_secs: int) -> AsyncIterator[Any]:
    async with Holdfast(f"sqlite:///{folder}/h.db", tools=[ask]) as hf:

        async def start(url: str) -> RunHandle:
            spec = {"name": "p", "steps": [STEP | {"pending_ttl_secs": ttl_secs}], "output": "{{ a }}"}
            return await hf.start(spec, {"url": url})

        yield start


async def test_hanging_poll_urls_do_not_keep_those_of_other_servers_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "POLL_SECONDS", 3_600.0)  # so that none of those that hang ends
    async with (
        get_server(hangs) as hanging,
        get_server(said({"n": 1})) as good,
        engine_that_polls(tmp_path, 3_600) as start,
    ):
        for number in range(limits.now.polls_max + 20):
            await start(f"{hanging}/{number}")
        run = await start(good)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await run.result() == {"n": 1}


async def test_a_look_that_waits_for_a_place_does_not_count_against_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, polls_max=2)
    monkeypatch.setattr(polling, "POLLS_TO_ONE_MAX", 2, raising=False)
    monkeypatch.setattr(polling, "POLL_SECONDS", 0.4)
    looked: list[str] = []

    async def answer(asked: Asked) -> bytes | None:
        if "/good" not in asked.line:
            return await hangs(asked)
        looked.append(asked.line)
        return await said({"pending": True, "task_id": "t"} if len(looked) < 2 else {"n": 1})(asked)

    async with get_server(answer) as url, engine_that_polls(tmp_path, 1) as start:
        for number in range(20):  # two at a time: four seconds
            await start(f"{url}/{number}")
        run = await start(f"{url}/good")
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await run.result() == {"n": 1}


async def test_a_connection_that_is_closed_without_an_answer_is_one_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[str]()

    async def answer(asked: Asked) -> bytes | None:
        seen.append(asked.line)
        return None if len(seen) < 4 else await said({"n": 1})(asked)

    looks = list[str]()

    async def counted(guard: Any, url: str, seconds: float) -> Any:
        looks.append(url)
        return await get(guard, url, seconds)

    monkeypatch.setattr(polling, "get", counted)
    async with get_server(answer) as url, engine_that_polls(tmp_path, 3_600) as start:
        run = await start(url)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await run.result() == {"n": 1}
    assert len(seen) == len(looks) == 4


async def test_a_hanging_worker_takes_no_places_from_other_workers_and_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "CALLS_MAX", 6)
    monkeypatch.setattr(calls, "CALLS_TO_ONE_MAX", 4)

    @tool
    async def here() -> int:
        return 1

    async with (
        served(hangs) as hanging,
        served(said({"result": 2})) as good,
        Holdfast(f"sqlite:///{tmp_path}/h.db", tools=[here]) as hf,
    ):
        workers = hf._engine.workers
        hf._engine.dispatch.places = 4
        await workers.register("default", "hanging", hanging.url, ["slow"])
        await workers.register("default", "good", good.url, ["quick"])
        for _ in range(20):
            await hf.start({"name": "s", "steps": [{"id": "a", "service": "slow"}]})
        async with asyncio.timeout(PATIENCE_SECONDS):
            steps = [{"id": "a", "service": "quick"}, {"id": "b", "tool": "here"}]
            assert await (await hf.start({"name": "q", "steps": steps})).result() == {"a": 2, "b": 1}
            while hanging.connections < 4:
                await asyncio.sleep(0.01)
        assert hanging.connections == 4


async def test_slow_servers_together_get_the_share_of_one_for_callbacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Holdfast(f"sqlite:///{tmp_path}/h.db") as hf:
        box = hf._engine.outbox
        for number in range(8):
            box._slow.took(f"http://slow-{number}", SLOW_SECONDS)
            box._to[f"http://slow-{number}"] = 2
        assert outbox.SENDING_TO_ONE_MAX == 16
        assert not box._has_room("http://slow-0") and not box._has_room("http://slow-7")
        assert box._has_room("http://quick")
        box._to.clear()
        assert box._has_room("http://slow-0")


@asynccontextmanager
async def get_server(answer: Any) -> AsyncIterator[str]:
    """Like `served`, for requests without a body."""
    serving: set[asyncio.Task[Any]] = set()  # what hangs is referred to here alone

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        task.add_done_callback(serving.discard)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            text = await answer(Asked(head[0], {}, b""))
            writer.write(text or b"")
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort() if writer.is_closing() else writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1_000)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in serving:
            task.cancel()
