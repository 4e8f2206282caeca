"""What tools of a worker log, print and raise is kept with the attempt at the server, without secrets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Client, Context, tool
from holdfast.api.types import LogLine
from holdfast.config import Settings
from holdfast.http.serve import serving
from holdfast.sdk.worker import Worker

pytestmark = pytest.mark.anyio

CANARY = "canary-4711-of-the-mine"
log = logging.getLogger("their.program")


@tool
async def talks(context: Context) -> str:
    context.log("counted", apples=3)
    log.warning("the %s is low", "oil")
    print("printed")
    print("without an end", end="", file=sys.stderr)
    return "done"


@tool
def talks_in_a_thread() -> str:
    print("from a thread")
    log.error("also from there")
    return "done"


@tool
async def spills() -> str:
    print(f"password={CANARY}")
    print(f"half: {CANARY[:12]}")
    print(CANARY[12:])
    log.warning("logged %s", CANARY[:12])
    log.warning(CANARY[12:])
    raise LookupError(f"no door for {CANARY}")


@tool
def closes() -> str:
    sys.stdout.close()
    print("still open")
    return "done"


@tool
def fails_in_a_thread() -> str:
    raise LookupError("no door")


@tool
async def chatters() -> str:
    for number in range(3_000):
        print(number)
    return "done"


@pytest.fixture(params=[False, True], ids=["push", "pull"])
def pull(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setenv("HOLDFAST_SECRET_CANARY", CANARY)
    return bool(request.param)


@contextlib.asynccontextmanager
async def working(folder: Path, *, pull: bool) -> AsyncIterator[Client]:
    """A server and a worker. Not a fixture: pytest replaces the standard streams between a fixture and its test."""
    settings = Settings(db=f"sqlite:///{folder / 'holdfast.db'}", port=0)
    async with serving(settings) as server, Client(server.address) as client:
        worker = Worker(
            [talks, talks_in_a_thread, closes, fails_in_a_thread, spills, chatters], server.address, pull=pull
        )
        work = asyncio.create_task(worker.run())
        await worker.is_registered.wait()
        yield client
        worker.stop()
        await work


async def ran(client: Client, service: str) -> tuple[str, list[LogLine]]:
    spec: dict[str, Any] = {"name": "flow", "steps": [{"id": "s", "service": service}]}
    run = await client.wait((await client.start(spec)).run_id)
    return run.run_id, (await client.logs(run.run_id)).items


async def test_lines_of_a_worker_are_kept(tmp_path: Path, pull: bool) -> None:
    async with working(tmp_path, pull=pull) as client:
        _, lines = await ran(client, "talks")
    assert [(line.path, line.attempt, line.level, line.text) for line in lines] == [
        ("s", 1, "info", "counted apples=3"),
        ("s", 1, "warning", "the oil is low"),
        ("s", 1, "stdout", "printed"),
        ("s", 1, "stderr", "without an end"),
    ]


async def test_lines_of_a_tool_in_a_thread_are_kept(tmp_path: Path, pull: bool) -> None:
    async with working(tmp_path, pull=pull) as client:
        _, lines = await ran(client, "talks_in_a_thread")
    assert [(line.level, line.text) for line in lines] == [
        ("stdout", "from a thread"),
        ("error", "also from there"),
    ]


async def test_a_tool_of_a_worker_cannot_close_its_standard_output(tmp_path: Path, pull: bool) -> None:
    async with working(tmp_path, pull=pull) as client:
        _, lines = await ran(client, "closes")
    assert [line.text for line in lines] == ["still open"]


async def test_the_traceback_of_a_worker_is_kept_and_no_line_shows_a_secret(
    tmp_path: Path, pull: bool
) -> None:
    async with working(tmp_path, pull=pull) as client:
        run_id, lines = await ran(client, "spills")
        shown = "\n".join(line.text for line in lines) + str(await client.run(run_id))
    trace = [line.text for line in lines if line.level == "traceback"]
    assert len(trace) == 1 and "in spills" in trace[0] and "LookupError" in trace[0]
    assert CANARY not in shown and CANARY[12:] not in shown
    assert len(lines) == 6


async def test_the_traceback_of_a_worker_has_only_frames_of_the_tool(tmp_path: Path, pull: bool) -> None:
    async with working(tmp_path, pull=pull) as client:
        _, (line,) = await ran(client, "fails_in_a_thread")
    assert line.text.count('  File "') == 1 and "in fails_in_a_thread" in line.text


async def test_what_a_worker_says_is_limited(tmp_path: Path, pull: bool) -> None:
    async with working(tmp_path, pull=pull) as client:
        run_id, _ = await ran(client, "chatters")
        first = await client.logs(run_id, limit=500)
        second = await client.logs(run_id, cursor=first.cursor, limit=500)
    assert len(first.items) + len(second.items) == 1_000 and second.cursor is None
    assert "further lines were dropped" in second.items[-1].text


async def test_a_program_keeps_its_standard_output_when_the_worker_ends(tmp_path: Path) -> None:
    before = sys.stdout, sys.stderr, logging.getLogRecordFactory()
    settings = Settings(db=f"sqlite:///{tmp_path / 'holdfast.db'}", port=0)
    async with serving(settings) as server:
        worker = Worker([talks], server.address)
        work = asyncio.create_task(worker.run())
        await worker.is_registered.wait()
        worker.stop()
        await work
    assert (sys.stdout, sys.stderr, logging.getLogRecordFactory()) == before
