"""Commits that fail in a real server: what it does is the same, whichever part of it asked for the commit."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.ports import free_port

pytestmark = pytest.mark.anyio

FLOW = {"name": "one", "steps": [{"id": "a", "tool": "echo", "args": {"value": 1}}]}
EXIT_AFTER_FAILED_SYNC = 70
EXIT_AFTER_LATE_STOP = 75


class Faulty:
    """A server whose disk does what it is told."""

    def __init__(self, process: Process, session: aiohttp.ClientSession) -> None:
        self.process, self.session = process, session

    async def disk(self, instruction: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{instruction}\n".encode())
        await self.says("done")

    async def says(self, word: str) -> None:
        """Wait for its next word."""
        assert self.process.stdout is not None
        assert (await asyncio.wait_for(self.process.stdout.readline(), 60)).decode() == f"{word}\n"

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        async with self.session.request(method, path, json=body, headers=headers) as answer:
            return answer.status, await answer.json()

    async def publish(self, key: str) -> tuple[int, Any]:
        return await self.ask("POST", "/api/v1/workflows", FLOW, **{"Idempotency-Key": key})

    async def start(self) -> tuple[int, Any]:
        return await self.ask("POST", "/api/v1/runs", {"workflow": "one"})

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), 60)


@asynccontextmanager
async def faulty(folder: Path, *more: str) -> AsyncIterator[Faulty]:
    port = free_port()
    command = [sys.executable, "-m", "tests.crash.faulty_server", str(folder / "h.db"), str(port), *more]
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        assert process.stdout is not None
        address = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        async with aiohttp.ClientSession(address, timeout=aiohttp.ClientTimeout(60)) as session:
            yield Faulty(process, session)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


REQUESTS = {
    "a start of a run": ("POST", "/api/v1/runs", {"workflow": "one"}),
    "a publication": ("POST", "/api/v1/workflows", FLOW | {"name": "other"}),
    "the answer that is kept for a key": ("POST", "/api/v1/workflows", FLOW),
    "a worker": ("POST", "/api/v1/workers", {"id": "w", "kind": "pull", "services": ["s"]}),
    "a look whether the server is ready": ("GET", "/readyz", None),
}


@pytest.mark.parametrize("what", REQUESTS)
async def test_a_failed_sync_ends_the_process_whichever_request_asked_for_the_commit(
    tmp_path: Path, what: str
) -> None:
    async with faulty(tmp_path) as server:
        assert (await server.publish("first"))[0] == 200
        await server.disk("sync fails")
        method, path, body = REQUESTS[what]
        with pytest.raises(aiohttp.ClientError):  # nothing is acknowledged
            await server.ask(method, path, body, **{"Idempotency-Key": "second"})
        assert await server.ended() == EXIT_AFTER_FAILED_SYNC


async def test_a_server_whose_disk_is_full_is_not_ready_and_refuses_until_there_is_room(
    tmp_path: Path,
) -> None:
    async with faulty(tmp_path) as server:
        await server.publish("first")
        assert await server.ask("GET", "/readyz") == (200, {"ready": True, "reasons": []})
        await server.disk("full")
        assert (await server.start())[0] == 503
        for _ in range(20):  # through several probes: it does not flicker
            status, answer = await server.ask("GET", "/readyz")
            assert (status, answer["reasons"]) == (503, ["store_stalled"])
            assert (await server.start())[0] == 503
            await asyncio.sleep(0.05)
        await server.disk("sound")
        async with asyncio.timeout(60):
            while (await server.ask("GET", "/readyz"))[0] != 200:
                await asyncio.sleep(0.05)
        assert (await server.start())[0] == 202


async def test_an_idle_server_finds_out_that_its_disk_is_full_by_being_asked(tmp_path: Path) -> None:
    async with faulty(tmp_path) as server:
        await server.disk("full")
        assert (await server.ask("GET", "/readyz"))[0] == 503


async def test_a_sync_that_hangs_stops_commits_and_nothing_else(tmp_path: Path) -> None:
    async with faulty(tmp_path) as server:
        await server.publish("first")
        await server.disk("sync hangs")
        started = asyncio.create_task(server.start())
        await server.says("hangs")
        for _ in range(5):
            assert await server.ask("GET", "/healthz") == (200, {"status": "ok"})
        assert not started.done(), "it was acknowledged before it was durable"
        await server.disk("sound")
        assert (await started)[0] == 202


async def test_a_server_that_is_asked_to_stop_ends_by_its_limit_while_a_sync_hangs(tmp_path: Path) -> None:
    """The sync never ends, so the process can only have ended by its limit."""
    async with faulty(tmp_path, "2") as server:
        await server.publish("first")
        _, acknowledged = await server.start()
        await server.disk("sync hangs")
        hanging = asyncio.create_task(server.start())
        await server.says("hangs")
        server.process.send_signal(signal.SIGTERM)
        assert await server.ended() == EXIT_AFTER_LATE_STOP
        await asyncio.wait([hanging])
        assert hanging.exception() is not None or hanging.result()[0] >= 500, "it was acknowledged"
    async with faulty(tmp_path) as server:
        status, run = await server.ask("GET", f"/api/v1/runs/{acknowledged['run_id']}")
        assert (status, run["run_id"]) == (200, acknowledged["run_id"])
