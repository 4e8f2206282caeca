"""The server as a process: it says where it is, leaves in order, and nothing that was accepted is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from holdfast.config import Settings
from holdfast.errors import DatabaseInUse, KeyNeeded
from holdfast.http.serve import serving
from holdfast.store.lock import holder_of, read_lock
from tests.http.conftest import Asker

pytestmark = pytest.mark.anyio

SERVER = """
import asyncio, sys, uvloop
from holdfast import tool
from holdfast.config import Settings
from holdfast.http.serve import serve
from holdfast.tools.registry import Registry

@tool
async def hold(release: bool = False):
    print("began", flush=True)
    await asyncio.sleep(0 if release else 3600)
    return "done"

def ready(at):
    print(at.address, flush=True)

uvloop.run(serve(Settings(db=sys.argv[1], port=0), registry=Registry([hold]), ready=ready))
"""
HELD = {"name": "held", "steps": [{"id": "s", "tool": "hold"}]}


class Process:
    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.process, self.address = process, address

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    async def stopped(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return await self.process.wait()


@asynccontextmanager
async def server_process(db: Path) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVER, f"sqlite:///{db}", stdout=asyncio.subprocess.PIPE
    )
    try:
        made = Process(process, "")
        made.address = await made.line()
        yield made
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        process._transport.close()  # type: ignore[attr-defined]  # else it warns that nobody did


async def asked(session: aiohttp.ClientSession, url: str, body: Any = None) -> tuple[int, Any]:
    method = "GET" if body is None else "POST"
    async with session.request(method, url, json=body) as answer:
        return answer.status, msgspec.json.decode(await answer.read())


async def test_the_lock_file_says_where_the_server_is(ask: Asker, settings: Settings) -> None:
    database = settings.db.removeprefix("sqlite:///")
    assert holder_of(database) == {
        "pid": os.getpid(),
        "address": ask.serving.address,
        "socket": f"{database}.sock",
        "executes": "all",
    }


async def test_a_second_server_on_the_same_file_is_refused_with_the_address_of_the_first(
    ask: Asker, settings: Settings
) -> None:
    with pytest.raises(DatabaseInUse, match=ask.serving.address):
        async with serving(settings):
            pass


async def test_after_leaving_no_process_has_the_file(settings: Settings) -> None:
    async with serving(settings) as server:
        assert server.mode == "local" and server.taken_up == 0
    assert read_lock(f"{settings.db.removeprefix('sqlite:///')}.lock") == {}


async def test_a_server_that_stops_names_no_address_while_it_still_has_the_file(settings: Settings) -> None:
    database = settings.db.removeprefix("sqlite:///")
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(serving(settings))
        stopping = asyncio.create_task(stack.pop_all().aclose())
        while holder_of(database).get("address"):
            await asyncio.sleep(0)
        assert holder_of(database) == {"pid": os.getpid(), "address": None}
        await stopping
    assert holder_of(database) == {}


async def test_a_server_that_others_can_reach_needs_a_key(settings: Settings) -> None:
    with pytest.raises(KeyNeeded):
        async with serving(msgspec.structs.replace(settings, host="0.0.0.0")):
            pass
    assert read_lock(f"{settings.db.removeprefix('sqlite:///')}.lock") == {}


async def test_with_a_key_others_can_reach_it_and_are_guarded(settings: Settings) -> None:
    reachable = msgspec.structs.replace(settings, host="0.0.0.0", key="k" * 32)
    async with serving(reachable) as server, aiohttp.ClientSession() as session:
        assert server.mode == "guarded" and server.address.startswith("http://127.0.0.1:")
        assert (await asked(session, f"{server.address}/api/v1/runs"))[0] == 401
        headers = {"Authorization": f"Bearer {'k' * 32}"}
        async with session.get(f"{server.address}/api/v1/runs", headers=headers) as answer:
            assert answer.status == 200


async def test_what_was_answered_under_a_key_is_answered_again_after_a_restart(settings: Settings) -> None:
    headers = {"Idempotency-Key": "once"}
    answers = []
    for definition in (HELD, HELD, {**HELD, "description": "other"}):
        async with serving(settings) as server, aiohttp.ClientSession(headers=headers) as session:
            answers.append(await asked(session, f"{server.address}/api/v1/workflows", definition))
    assert answers[0] == answers[1] and answers[0][0] == 200
    assert answers[2][0] == 422 and answers[2][1]["error"] == "request_conflict"


async def test_a_start_under_a_key_is_answered_byte_for_byte_after_a_restart(settings: Settings) -> None:
    headers, answers = {"Idempotency-Key": "once"}, []
    for wait in (0, 0, 5):
        async with serving(settings) as server, aiohttp.ClientSession(headers=headers) as session:
            body = {"spec": HELD, "inputs": {}, **({"wait_secs": wait} if wait else {})}
            async with session.post(f"{server.address}/api/v1/runs", json=body) as answer:
                answers.append((answer.status, await answer.read()))
            async with session.get(f"{server.address}/api/v1/runs") as listed:
                assert len((await listed.json())["items"]) == 1
    assert answers[0] == answers[1] and answers[0][0] == 202
    assert answers[2][0] == 422


async def test_the_first_request_finds_the_folder_published(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "held.json").write_bytes(msgspec.json.encode(HELD))
    with_flows = msgspec.structs.replace(settings, flows=str(tmp_path / "flows"))
    async with serving(with_flows) as server, aiohttp.ClientSession() as session:
        status, found = await asked(session, f"{server.address}/api/v1/workflows/held")
        assert (status, found["number"]) == (200, 1)


async def test_callers_that_wait_for_a_run_are_answered_when_the_server_leaves(tmp_path: Path) -> None:
    async with server_process(tmp_path / "test.db") as server, aiohttp.ClientSession() as session:
        body = {"spec": HELD, "wait_secs": 60}
        waits = asyncio.ensure_future(asked(session, f"{server.address}/api/v1/runs", body))
        assert await server.line() == "began"
        code = await server.stopped(signal.SIGTERM)
        status, answer = await waits
        assert (code, status) == (0, 202) and answer["run_id"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_what_was_accepted_goes_on_after_a_restart(tmp_path: Path, number: signal.Signals) -> None:
    async with server_process(tmp_path / "test.db") as server, aiohttp.ClientSession() as session:
        _, started = await asked(session, f"{server.address}/api/v1/runs", {"spec": HELD})
        assert await server.line() == "began"
        assert await server.stopped(number) == (-9 if number == signal.SIGKILL else 0)
    async with server_process(tmp_path / "test.db") as server, aiohttp.ClientSession() as session:
        assert await server.line() == "began"
        status, run = await asked(session, f"{server.address}/api/v1/runs/{started['run_id']}")
        assert status == 200 and run["status"] == "running"
