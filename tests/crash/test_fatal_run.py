"""A run that kills the process while it is decided, among healthy ones: three deaths set it aside, and the rest goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests import forks
from tests.ports import free_port

pytestmark = pytest.mark.anyio

HEALTHY = 50
DEATHS = 3
FLOW = {
    "name": "slow",
    "steps": [
        {"id": "a", "kind": "timer", "delay_ms": 1_500},
        {"id": "b", "tool": "echo", "args": {"value": 1}},
    ],
}


class Mortal:
    def __init__(self, database: Path) -> None:
        self.database, self._port = database, free_port()
        self.process: forks.Program

    async def live(self, *fatal: str) -> bool:
        """Start it; gives whether it lived to say where it is."""
        args = [str(self.database), str(self._port), *fatal]
        folder = self.database.parent
        self.process = forks.Program("tests.crash.mortal_server", args, cwd=folder, env=dict(os.environ))
        return bool(await asyncio.to_thread(self.process.stdout.readline))

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        async with (
            aiohttp.ClientSession(f"http://127.0.0.1:{self._port}") as session,
            session.request(method, f"/api/v1{path}", json=body) as answer,
        ):
            return answer.status, await answer.json()

    async def start(self) -> str:
        status, answer = await self.ask("POST", "/runs", {"workflow": "slow"})
        assert status == 202, answer
        return str(answer["run_id"])

    async def end(self) -> None:
        self.process.terminate()
        await asyncio.to_thread(self.process.communicate, 60)

    async def dies(self) -> None:
        await asyncio.to_thread(self.process.communicate, 60)
        assert self.process.wait() == -signal.SIGKILL

    async def is_killed(self) -> None:
        self.process.kill()
        await self.dies()


async def status_of(server: Mortal, run_id: str) -> str:
    return str((await server.ask("GET", f"/runs/{run_id}"))[1]["status"])


def holdfast(database: Path, *words: str) -> subprocess.CompletedProcess[str]:
    args = [*words, "--db", f"sqlite:///{database}"]
    return forks.run("holdfast", args, cwd=database.parent, env=dict(os.environ))


@pytest.mark.parametrize("when", ["adopted", "timer_fired", "step_succeeded", "load"])
async def test_after_three_deaths_a_run_is_set_aside_and_the_others_complete(
    tmp_path: Path, when: str
) -> None:
    server = Mortal(tmp_path / "h.db")
    await server.live()
    await server.ask("POST", "/workflows", FLOW)
    healthy = [await server.start() for _ in range(HEALTHY // 2)]
    bad = await server.start()
    healthy += [await server.start() for _ in range(HEALTHY // 2)]
    await server.is_killed()

    for _ in range(DEATHS):
        await server.live(when, bad)
        await server.dies()

    assert await server.live(when, bad), "it still dies of the run"
    try:
        async with asyncio.timeout(60):
            while any([await status_of(server, run) != "completed" for run in healthy]):
                await asyncio.sleep(0.1)
        status, shown = await server.ask("GET", f"/runs/{bad}")
        assert status == 200
        assert "3 processes crashed" in shown["set_aside"]["reason"]
        assert f"--retry-run {bad}" in shown["set_aside"]["retry"]
        _, explained = await server.ask("GET", f"/runs/{bad}/explain")
        assert [reason["reason"] for reason in explained["reasons"]] == ["set_aside"]
        status, refused = await server.ask("POST", f"/runs/{bad}/cancel", {})
        assert (status, refused["error"]) == (409, "run_set_aside")
    finally:
        await server.end()

    told = holdfast(server.database, "runs", "show", bad).stdout
    assert "set aside: 3 processes crashed" in told and f"--retry-run {bad}" in told
    assert holdfast(server.database, "doctor", "--retry-run", bad).returncode == 0
    await server.live()  # one without the defect
    try:
        async with asyncio.timeout(60):
            while await status_of(server, bad) != "completed":
                await asyncio.sleep(0.1)
    finally:
        await server.end()


async def test_a_run_that_was_being_decided_when_the_process_was_killed_by_chance_goes_on(
    tmp_path: Path,
) -> None:
    server = Mortal(tmp_path / "h.db")
    await server.live()
    await server.ask("POST", "/workflows", FLOW)
    run = await server.start()
    await server.is_killed()
    for _ in range(DEATHS - 1):
        await server.live("adopted", run)
        await server.dies()
    await server.live()
    try:
        async with asyncio.timeout(60):
            while await status_of(server, run) != "completed":
                await asyncio.sleep(0.1)
        assert (await server.ask("GET", f"/runs/{run}"))[1]["set_aside"] is None
    finally:
        await server.end()


async def test_a_server_that_runs_takes_up_a_run_that_was_set_aside_when_it_is_asked_to(
    tmp_path: Path,
) -> None:
    server = Mortal(tmp_path / "h.db")
    await server.live()
    await server.ask("POST", "/workflows", FLOW)
    bad = await server.start()
    await server.is_killed()
    for _ in range(DEATHS):
        await server.live("adopted", bad)
        await server.dies()
    await server.live()  # one without the defect
    try:
        assert (await server.ask("GET", f"/runs/{bad}"))[1]["set_aside"] is not None
        asked = await asyncio.to_thread(holdfast, server.database, "doctor", "--retry-run", bad[-12:])
        assert (asked.returncode, asked.stdout + asked.stderr) == (0, f"run {bad} is retried now\n")
        async with asyncio.timeout(60):
            while await status_of(server, bad) != "completed":
                await asyncio.sleep(0.1)
        asked = await asyncio.to_thread(holdfast, server.database, "doctor", "--retry-run", bad)
        assert (asked.returncode, "was not set aside" in asked.stderr) == (2, True), asked
    finally:
        await server.end()
    await server.live()  # and the deaths are forgotten
    assert (await server.ask("GET", f"/runs/{bad}"))[1]["set_aside"] is None
    await server.end()
