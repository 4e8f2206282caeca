"""`holdfast mcp`: a client of the server that has the file, or that server itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.mcp.conftest import Asker, text_of

pytestmark = pytest.mark.anyio
HOLDFAST = Path(sys.executable).with_name("holdfast")
FLOWS = Path(__file__).parent / "workflows"


def command(*words: str, cwd: Path = FLOWS) -> StdioServerParameters:
    return StdioServerParameters(command=str(HOLDFAST), args=["mcp", *words], cwd=cwd, env=dict(os.environ))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_it_serves_a_file_that_no_server_has(tmp_path: Path, mode: Any) -> None:
    (tmp_path / "holdfast.toml").write_text("[mcp]\nwait_secs = 60\n")
    words = ("--db", f"sqlite:///{tmp_path / 'own.db'}", "--flows", str(FLOWS))
    async with Client(stdio_client(command(*words, cwd=tmp_path)), mode=mode) as client:
        assert text_of(await client.call_tool("greet", {"name": "Ada"})) == "Hello, Ada!"
        assert text_of(await client.call_tool("test_custom_header", {"region": "eu"})) == "eu"


async def test_it_is_a_client_of_the_server_that_has_the_file(ask: Asker) -> None:
    db = ask.server.services.settings.db
    async with Client(stdio_client(command("--db", db))) as client:
        result = await client.call_tool("gate", {})
        assert isinstance(result.structured_content, dict)
        run_id = result.structured_content["run_id"]
    view = await ask.server.services.queries.run("default", run_id)
    assert view.status == "waiting"


class Pipe:
    """The program with its pipes, for lines that no client would send."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line)
        await self.process.stdin.drain()

    async def said(self) -> Any:
        assert self.process.stdout is not None
        return msgspec.json.decode(await self.process.stdout.readline())


@contextlib.asynccontextmanager
async def piped(ask: Asker) -> AsyncIterator[Pipe]:
    process = await asyncio.create_subprocess_exec(
        str(HOLDFAST), "mcp", "--db", ask.server.services.settings.db,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=4 * 1024 * 1024,
    )  # fmt: skip
    try:
        yield Pipe(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, "meth\n', -32700),
        (b"\xff\xff\n", -32700),
        (b"[]\n", -32600),
        (b"3\n", -32600),
        (b'{"pad": "' + b"x" * (1024 * 1024) + b'"}\n', -32600),
    ],
)
async def test_a_line_that_is_no_message_is_answered_and_the_process_lives(
    ask: Asker, line: bytes, code: int
) -> None:
    async with piped(ask) as pipe:
        await pipe.send(line)
        assert (await pipe.said())["error"]["code"] == code
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        message = {"jsonrpc": "2.0", "id": 7, "method": "server/discover", "params": {"_meta": meta}}
        await pipe.send(msgspec.json.encode(message) + b"\n")
        answer = await pipe.said()
        assert answer["id"] == 7 and answer["result"]["capabilities"]
    assert pipe.process.returncode == 0


async def test_half_a_line_at_the_end_of_the_input_is_answered(ask: Asker) -> None:
    async with piped(ask) as pipe:
        await pipe.send(b'{"jsonrpc": "2.0"')
        assert pipe.process.stdin is not None
        pipe.process.stdin.close()
        assert (await pipe.said())["error"]["code"] == -32700
