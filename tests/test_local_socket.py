"""The local socket of a database: who may use it, and what it replaces."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Client, DatabaseInUse, Holdfast, tool
from holdfast.config import Settings
from holdfast.errors import NotFound, Unauthorised
from holdfast.http.serve import serving
from holdfast.local_socket import PATH_BYTES_MAX, LocalSocket
from holdfast.store.lock import holder_of

pytestmark = pytest.mark.anyio

GATE = {
    "name": "gate",
    "steps": [{"id": "ok", "kind": "approve"}, {"id": "add", "tool": "add", "args": {"a": 2}}],
}


@tool
async def add(a: int) -> int:
    return a + 1


def _socket(database: Path) -> str:
    return f"unix:{database}.sock"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


async def test_another_process_acts_on_an_embedded_engine_through_its_socket(database: Path) -> None:
    async with Holdfast(f"sqlite:///{database}", tools=[add]) as hf, Client(_socket(database)) as client:
        gate = await hf.start(GATE)
        await client.approve(gate.id, "ok")
        assert await gate.result() == {
            "ok": {"approved": True, "reason": None, "by": "local", "form": None},
            "add": 3,
        }
        started = await client.start({"name": "sum", "steps": [{"id": "s", "tool": "add", "args": {"a": 1}}]})
        assert (await client.wait(started.run_id)).output == {"s": 2}
        assert await (await hf.run(started.run_id)).result() == {"s": 2}
        with pytest.raises(NotFound):
            await client.cancel("01900000-0000-7000-8000-000000000000")


async def test_only_the_owner_of_the_file_may_open_the_socket(database: Path) -> None:
    async with Holdfast(f"sqlite:///{database}"):
        found = os.stat(f"{database}.sock")
        assert stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o600
        assert holder_of(str(database)) == {
            "pid": os.getpid(),
            "address": None,
            "socket": f"{database}.sock",
            "executes": "all",
        }
    assert not os.path.exists(f"{database}.sock")


async def test_a_second_engine_is_told_how_to_reach_the_first_from_python(database: Path) -> None:
    async with Holdfast(f"sqlite:///{database}"):
        with pytest.raises(DatabaseInUse) as refused:
            async with Holdfast(f"sqlite:///{database}"):
                pass
        assert f'holdfast.Client("unix:{database}.sock")' in str(refused.value)
        async with Client(_socket(database)) as client:  # the refused engine took nothing away
            assert (await client.runs()).items == []


async def test_the_socket_of_a_killed_process_is_replaced(database: Path) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(f"{database}.sock")
    stale.close()
    async with Holdfast(f"sqlite:///{database}"), Client(_socket(database)) as client:
        assert (await client.runs()).items == []


async def test_a_file_with_the_name_of_the_socket_is_left_alone(database: Path) -> None:
    Path(f"{database}.sock").write_text("mine")
    async with Holdfast(f"sqlite:///{database}", tools=[add]) as hf:
        assert "socket" not in holder_of(str(database))
        run = await hf.start({"name": "sum", "steps": [{"id": "s", "tool": "add", "args": {"a": 1}}]})
        assert await run.result() == {"s": 2}
    assert Path(f"{database}.sock").read_text() == "mine"


async def test_a_path_that_is_too_long_for_a_socket_can_be_used(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 100) / ("b" * 100)
    folder.mkdir(parents=True)
    database = folder / "holdfast.db"
    assert len(f"{database}.sock") > PATH_BYTES_MAX
    async with Holdfast(f"sqlite:///{database}"), Client(_socket(database)) as client:
        assert (await client.runs()).items == []
    assert not os.path.exists(f"{database}.sock")


async def test_an_engine_works_without_a_socket_if_the_name_is_too_long(tmp_path: Path) -> None:
    database = tmp_path / ("n" * 120 + ".db")
    async with Holdfast(f"sqlite:///{database}", tools=[add]) as hf:
        assert "socket" not in holder_of(str(database))
        run = await hf.start({"name": "sum", "steps": [{"id": "s", "tool": "add", "args": {"a": 1}}]})
        assert await run.result() == {"s": 2}


def test_a_process_that_lost_the_file_leaves_the_socket_of_the_next(tmp_path: Path) -> None:
    first, second = LocalSocket(str(tmp_path / "a.db")), LocalSocket(str(tmp_path / "a.db"))
    first.bind()
    second.bind()
    first.close()
    assert os.path.exists(second.path)
    second.close()
    assert not os.path.exists(second.path)


async def test_the_socket_of_a_guarded_server_needs_no_key(database: Path) -> None:
    settings = Settings(db=f"sqlite:///{database}", port=0, key="k" * 32)
    async with serving(settings) as server:
        assert server.mode == "guarded" and server.socket == f"{database}.sock"
        async with Client(server.address, "wrong-key") as stranger:
            with pytest.raises(Unauthorised):
                await stranger.runs()
        async with Client(server.address, socket=server.socket) as owner:
            started = await owner.start({"name": "t", "steps": [{"id": "t", "kind": "timer", "delay_ms": 1}]})
            kinds = [
                event.kind async for event in owner.events(started.run_id)
            ]  # a stream checks its caller again
            assert kinds[-1] == "workflow_terminal"


async def test_requests_that_are_open_when_the_engine_closes_are_ended(database: Path) -> None:
    async with Client(_socket(database), patience=0) as client:
        async with Holdfast(f"sqlite:///{database}", tools=[add]) as hf:
            gate = await hf.start(GATE)
            events = client.events(gate.id)
            assert (await anext(events)).kind == "workflow_started"
        await events.aclose()


@pytest.mark.parametrize("server", ["unix:", "unix://"])
def test_an_address_without_a_socket_is_refused(server: str) -> None:
    with pytest.raises(ValueError, match="names no socket"):
        Client(server)


def test_the_http_server_is_not_loaded_before_a_process_connects(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from holdfast import Client, Holdfast
async def main():
    async with Holdfast("sqlite:///{tmp_path}/a.db"):
        print(any(name in sys.modules for name in ("uvicorn", "starlette", "holdfast.http.serve")))
asyncio.run(main())
"""
    said: Any = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"
