"""Readers of events while their server is killed under load, again and again: each hears every event exactly once."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.forks import Program
from tests.http.sse import Heard, listening
from tests.ports import free_port

pytestmark = pytest.mark.anyio

RUNS, LIVES, READERS = 60, 5, 20
STEPS = [{"id": f"s{number}", "tool": "pause", "args": {"secs": 0.01}} for number in range(4)]
LONG = {"name": "long", "steps": STEPS}
EVENTS_OF_RUN_MIN = 2 + 2 * len(STEPS)
AWAY = (aiohttp.ClientError, ConnectionError, TimeoutError)


class Mortal:
    """A server at one address, whatever process it is at the moment."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._port = free_port()
        self.address = f"http://127.0.0.1:{self._port}"
        self._process: Program | None = None

    async def live(self, *until: str) -> None:
        """Until it is killed, or an event of this kind is durable."""
        args = [str(self._database), str(self._port), *until]
        folder = self._database.parent
        self._process = Program("tests.http.server_process", args, cwd=folder, env=dict(os.environ))
        assert await asyncio.to_thread(self._process.stdout.readline), "the server did not come up"

    async def die(self, number: int = signal.SIGKILL) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        await asyncio.to_thread(self._process.communicate, 120)
        return self._process.wait()


class Follower:
    """Reads one stream over any number of connections, and comes back with the last id that it heard."""

    def __init__(self, session: aiohttp.ClientSession, address: str, ends: int) -> None:
        self._session, self._address, self._ends = session, address, ends
        self.heard: list[Heard] = []
        self.connections = 0
        self._last_id = ""

    async def follow(self) -> None:
        while self._ends:
            try:
                await self._listen()
            except AWAY:
                await asyncio.sleep(0.02)

    async def _listen(self) -> None:
        async with listening(self._session, self._address, self._last_id) as reader:
            assert reader.response.status in (200, 204)
            self.connections += 1
            if reader.response.status == 204:
                self._ends = 0
            try:
                async for heard in reader.events():
                    self.heard.append(heard)
                    self._ends -= heard.kind == "workflow_terminal"
                    if not self._ends:
                        return
            finally:
                self._last_id = reader.last_id


async def start(session: aiohttp.ClientSession, address: str, number: int) -> str:
    """One run, however often it takes to be told that it is there."""
    while True:
        try:
            body = {"spec": LONG, "request_id": f"run-{number}"}
            async with session.post(f"{address}/api/v1/runs", json=body) as answer:
                if answer.status == 202:
                    return str((await answer.json())["run_id"])
        except AWAY:
            pass
        await asyncio.sleep(0.02)


async def test_readers_hear_every_event_once_whatever_becomes_of_their_server(tmp_path: Path) -> None:
    server = Mortal(tmp_path / "h.db")
    await server.live()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.timeout(200):
        everything = f"{server.address}/api/v1/events"
        of_all = [Follower(session, f"{everything}?from=0", RUNS) for _ in range(READERS // 2)]
        tasks = [asyncio.create_task(one.follow()) for one in of_all]
        runs: list[str] = []
        of_one: list[Follower] = []
        for life in range(LIVES):
            batch = range(RUNS * life // LIVES, RUNS * (life + 1) // LIVES)
            # In the middle of what those runs do, and when every reader is there.
            wanted = len(of_all[0].heard) + EVENTS_OF_RUN_MIN * len(batch) // 3
            runs += await asyncio.gather(*(start(session, server.address, number) for number in batch))
            new = [
                Follower(session, f"{server.address}/api/v1/runs/{run_id}/events", 1) for run_id in runs[-2:]
            ]
            tasks += [asyncio.create_task(one.follow()) for one in new]
            of_one += new
            if life < LIVES - 1:
                while len(of_all[0].heard) < wanted or any(one.connections <= life for one in of_all):
                    await asyncio.sleep(0.005)
                await server.die()
                await server.live()
        await asyncio.gather(*tasks)
        assert len(of_all) + len(of_one) == READERS

        whole = Follower(session, f"{everything}?from=0", RUNS)
        await whole.follow()
        assert len({one.id for one in whole.heard}) == len(whole.heard)
        assert {one.data["workflow_id"] for one in whole.heard} == set(runs)
        for reader in of_all:
            assert reader.connections >= LIVES
            assert reader.heard == whole.heard
        for reader, run_id in zip(
            of_one, [run for life in range(LIVES) for run in _last_two(runs, life)], strict=True
        ):
            alone = [_of_one(one.data) for one in whole.heard if one.data["workflow_id"] == run_id]
            assert [_of_one(one.data) for one in reader.heard] == alone
    assert await server.die(signal.SIGTERM) == 0


def _last_two(runs: list[str], life: int) -> list[str]:
    end = RUNS * (life + 1) // LIVES
    return runs[end - 2 : end]


def _of_one(event: dict[str, Any]) -> dict[str, Any]:
    """An event as the stream of its run has it: the events of all runs name their workflow too."""
    return {name: value for name, value in event.items() if name != "workflow"}
