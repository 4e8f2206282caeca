"""What takes real time under time by hand: processes and sockets. The clock waits for them."""

from __future__ import annotations

import asyncio
import os

import pytest

from holdfast import RunFailed, tool
from holdfast.testing import TestEngine

CALLS = "name: n\nsteps: [{id: a, tool: work, timeout_secs: 3600}]"


@tool(name="work", isolate="process")
def in_a_process() -> int:
    return os.getpid()


@tool(name="work", isolate="process")
def ends_its_process() -> None:
    os._exit(3)


async def test_time_waits_for_a_tool_in_a_process(engine: TestEngine) -> None:
    engine.tool(in_a_process)
    began = engine.now
    assert (await engine.run(CALLS))["a"] != os.getpid()
    assert (engine.now - began).total_seconds() < 1


async def test_a_tool_that_ends_its_process_fails_its_step(engine: TestEngine) -> None:
    engine.tool(ends_its_process)
    with pytest.raises(RunFailed):
        await engine.run(CALLS)


async def test_time_waits_for_a_tool_that_talks_to_somebody(engine: TestEngine) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello " + await reader.readline())
        writer.close()

    @engine.tool
    async def work() -> str:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"you\n")
        said = await reader.read()
        writer.close()
        return said.decode()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        began = engine.now
        assert await engine.run(CALLS) == {"a": "hello you\n"}
        assert (engine.now - began).total_seconds() < 1


async def test_the_engine_takes_the_options_of_a_holdfast(engine: TestEngine) -> None:
    engine.options["secrets"] = [lambda name: "swordfish" if name == "TOKEN" else None]
    work = engine.fake_tool("work")
    await engine.run("name: n\nsteps: [{id: a, tool: work, args: {token: '{{ secrets.TOKEN }}'}}]")
    assert work.calls == [{"token": "swordfish"}]
