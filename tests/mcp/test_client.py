"""Tools on other MCP servers, of both eras, over stdio and HTTP: real servers, killed in the middle of a call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast import Holdfast
from holdfast.config import Settings
from holdfast.http.serve import serving
from holdfast.mcp import link
from holdfast.mcp.client import Servers
from holdfast.mcp.remote_errors import RemoteFailure
from holdfast.tools.guard import Guard, Target
from holdfast.tools.registry import Registry
from tests.mcp import suite
from tests.mcp.conftest import Asker, Holds

pytestmark = pytest.mark.anyio

PROGRAM = str(Path(__file__).parent / "one_server.py")


@pytest.fixture(params=["newer", "older"])
def env(request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment in which a server finds the SDK of an era."""
    if request.param == "newer":
        return {}
    try:
        return {"PYTHONPATH": str(suite.older_sdk())}
    except suite.NoRegistry as error:
        pytest.skip(f"the SDK of the older era could not be fetched: {error}")


@contextlib.asynccontextmanager
async def over_stdio(env: dict[str, str]) -> AsyncIterator[Servers]:
    servers = Servers({"one": {"command": sys.executable, "args": [PROGRAM], "env": env}}, Guard())
    yield servers
    await servers.stop()


@contextlib.asynccontextmanager
async def over_http(env: dict[str, str]) -> AsyncIterator[Servers]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, PROGRAM, "http", env={**os.environ, **env}, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    servers = Servers({"one": {"url": f"http://127.0.0.1:{port}/mcp"}}, Guard())
    yield servers
    await servers.stop()
    if process.returncode is None:
        process.kill()
    await process.wait()


@pytest.fixture
async def stdio(env: dict[str, str]) -> AsyncIterator[Servers]:
    async with over_stdio(env) as servers:
        yield servers


@pytest.fixture
async def http(env: dict[str, str]) -> AsyncIterator[Servers]:
    async with over_http(env) as servers:
        yield servers


@pytest.fixture(params=[over_stdio, over_http])
async def servers(request: pytest.FixtureRequest, env: dict[str, str]) -> AsyncIterator[Servers]:
    async with request.param(env) as found:
        yield found


async def kind_of(servers: Servers, tool: str, args: dict[str, Any] | None = None) -> str:
    with pytest.raises(RemoteFailure) as failure:
        await servers.call("one", tool, args or {}, None)
    return failure.value.kind


async def test_a_tool_of_either_era_is_called(servers: Servers) -> None:
    assert await servers.call("one", "add", {"a": 1, "b": 2}, None) == 3


async def test_calls_at_the_same_time_each_get_their_own_answer(servers: Servers) -> None:
    calls = [servers.call("one", "add", {"a": i, "b": 1}, None) for i in range(20)]
    assert await asyncio.gather(*calls) == [i + 1 for i in range(20)]


async def test_an_error_of_the_tool_is_of_kind_tool(servers: Servers) -> None:
    assert await kind_of(servers, "refuse", {"why": "no"}) == "tool"


async def test_a_tool_that_the_server_does_not_list_is_not_called(servers: Servers) -> None:
    assert await kind_of(servers, "subtract") == "no_tool"


async def test_a_server_killed_in_the_middle_of_a_call_leaves_it_unknown_and_is_started_again(
    stdio: Servers, tmp_path: Path
) -> None:
    os.mkfifo(beacon := tmp_path / "beacon")
    call = asyncio.create_task(kind_of(stdio, "hang", {"beacon": str(beacon)}))
    pid = int(await asyncio.to_thread(beacon.read_text))
    os.kill(pid, signal.SIGKILL)
    assert await call == "unknown"
    assert await stdio.call("one", "pid", {}, None) != pid


async def test_an_http_server_killed_in_the_middle_of_a_call_leaves_it_unknown_and_later_calls_unsent(
    http: Servers, tmp_path: Path
) -> None:
    os.mkfifo(beacon := tmp_path / "beacon")
    call = asyncio.create_task(kind_of(http, "hang", {"beacon": str(beacon)}))
    os.kill(int(await asyncio.to_thread(beacon.read_text)), signal.SIGKILL)
    assert await call == "unknown"
    assert await kind_of(http, "add", {"a": 1, "b": 2}) == "unsent"


async def test_a_cancelled_call_is_cancelled_at_the_server(servers: Servers, tmp_path: Path) -> None:
    os.mkfifo(beacon := tmp_path / "beacon")
    os.mkfifo(heard := tmp_path / "beacon.cancelled")
    call = asyncio.create_task(servers.call("one", "hang", {"beacon": str(beacon)}, None))
    await asyncio.to_thread(beacon.read_text)
    call.cancel()
    async with asyncio.timeout(60):
        assert await asyncio.to_thread(heard.read_text) == "cancelled"
    assert await servers.call("one", "add", {"a": 1, "b": 2}, None) == 3


async def test_a_call_that_is_not_answered_in_time_is_a_timeout(env: dict[str, str], tmp_path: Path) -> None:
    table = {"command": [sys.executable, PROGRAM], "env": env, "timeout_secs": 2}
    servers = Servers({"one": table}, Guard())
    assert await kind_of(servers, "hang", {"beacon": str(tmp_path / "beacon")}) == "timeout"
    await servers.stop()


@pytest.mark.parametrize(
    "table",
    [
        {"command": "/no/such/program"},
        {"command": [sys.executable, "-c", ""]},
        {"url": "http://127.0.0.1:1/mcp"},
    ],
)
async def test_a_server_that_cannot_be_reached_leaves_the_call_unsent(table: dict[str, Any]) -> None:
    servers = Servers({"one": table}, Guard())
    assert await kind_of(servers, "add") == "unsent"
    await servers.stop()


async def test_an_address_that_the_guard_refuses_is_not_called() -> None:
    servers = Servers({"one": {"url": "http://127.0.0.1:1/mcp"}}, Guard(guarded=True))
    with pytest.raises(RemoteFailure, match="not a public address"):
        await servers.call("one", "add", {}, None)
    await servers.stop()


async def test_a_server_gets_its_own_environment_and_nothing_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_TOKEN", "very-secret")
    monkeypatch.setenv("HOLDFAST_DB", "sqlite:///x.db")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    env = {"TOKEN": "Bearer {{secrets.TOKEN}}"}
    servers = Servers({"one": {"command": [sys.executable, PROGRAM], "env": env}}, Guard())
    found = await servers.call("one", "environment", {}, None)
    await servers.stop()
    assert found["TOKEN"] == "Bearer very-secret"
    assert (
        not [name for name in found if name.startswith("HOLDFAST_")] and "AWS_SECRET_ACCESS_KEY" not in found
    )


@pytest.mark.parametrize("era", [over_stdio, over_http])
async def test_a_message_over_the_limit_ends_the_connection_and_not_the_engine(era: Any) -> None:
    async with era({}) as servers:
        assert await kind_of(servers, "flood", {"size": 27 * 1024 * 1024}) == "output_too_large"
        assert await servers.call("one", "add", {"a": 1, "b": 2}, None) == 3


async def test_a_tool_that_is_renamed_while_the_connection_lives_is_no_tool(servers: Servers) -> None:
    assert await servers.call("one", "add", {"a": 1, "b": 2}, None) == 3
    await servers.call("one", "forget", {"name": "add"}, None)
    assert await kind_of(servers, "add", {"a": 1, "b": 2}) == "no_tool"
    assert isinstance(await servers.call("one", "pid", {}, None), int)


async def test_a_tool_that_a_server_adds_while_the_connection_lives_is_called(servers: Servers) -> None:
    before = await servers.call("one", "pid", {}, None)
    await servers.call("one", "offer", {"name": "plus"}, None)
    assert await servers.call("one", "plus", {"a": 1, "b": 2}, None) == 3
    assert await servers.call("one", "pid", {}, None) == before


async def test_a_missing_tool_is_named_by_explain(tmp_path: Path) -> None:
    spec = {"name": "w", "steps": [{"id": "a", "kind": "tool_remote", "server": "one", "tool": "subtract"}]}
    registry = Registry(remote=Servers({"one": {"command": [sys.executable, PROGRAM]}}, Guard()))
    async with serving(Settings(db=f"sqlite:///{tmp_path / 'x.db'}", port=0), registry=registry) as server:
        row, _ = await server.services.commands.start("default", spec)
        await server.services.queries.wait_for("default", row.id, 60)
        async with aiohttp.ClientSession() as session:
            why = await Asker(server, session, Holds()).tool("workflows_explain", {"run_id": row.id})
    (step,) = why["structuredContent"]["failed_steps"]
    assert (step["error"]["kind"], "subtract" in step["error"]["message"]) == ("no_tool", True)


RAW = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    method, result = asked["method"], {}
    if method == "server/discover":
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "?"}}), flush=True)
        continue
    if method == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "1"}}
    if method == "tools/list":
        if MODE == "hangs":
            continue
        first = int((asked.get("params") or {}).get("cursor") or 0)
        tools = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(first, first + SIZE)]
        result = {"tools": tools, "nextCursor": str(first + SIZE)}
    if method == "tools/call":
        result = {"content": [{"type": "text", "text": asked["params"]["name"]}]}
    if MODE == "babbles":
        print("not a message\\n" * 1000, flush=True)
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def raw(mode: str, size: int = 100) -> Servers:
    text = f"MODE, SIZE = {mode!r}, {size}\n{RAW}"
    return Servers({"one": {"command": [sys.executable, "-c", text], "timeout_secs": 20}}, Guard())


@pytest.mark.parametrize("size", [1, 100, 10_000])
async def test_a_server_that_lists_tools_without_end_is_read_up_to_a_limit(size: int) -> None:
    servers = raw("lists", size)
    assert await servers.call("one", "t3", {}, None) == "t3"
    assert (
        await servers.call("one", "t999999", {}, None) == "t999999"
    )  # beyond what was read: the server decides
    await servers.stop()


async def test_a_server_that_never_lists_its_tools_leaves_the_call_unsent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link, "START_SECONDS", 3.0)
    servers = raw("hangs")
    assert await kind_of(servers, "t1") == "unsent"
    await servers.stop()


async def test_a_server_that_sends_other_lines_than_messages_is_left() -> None:
    servers = raw("babbles")
    assert await kind_of(servers, "t1") in ("unsent", "output_too_large")
    await servers.stop()


class OneAddress:
    """Finds this machine under every name, as a name server of an attacker could do later."""

    async def targets(self, url: str) -> list[Target]:
        return [Target(socket.AF_INET, "127.0.0.1", int(url.rsplit(":", 1)[1].partition("/")[0]))]


async def test_a_request_goes_to_the_address_that_was_checked() -> None:
    """The name does not exist, so a second lookup would find nothing."""
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        servers = Servers({"one": {"url": f"http://tools.invalid:{port}/mcp"}}, OneAddress())
        assert await kind_of(servers, "add") == "unsent"
        await servers.stop()
    assert f"host: tools.invalid:{port}".encode() in heads[0].lower()


async def test_the_process_of_a_server_ends_with_the_connections() -> None:
    servers = Servers({"one": {"command": [sys.executable, PROGRAM]}}, Guard())
    pid = await servers.call("one", "pid", {}, None)
    await servers.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"command": "x", "url": "http://x"},
        {"command": "x", "timeout_secs": 0},
        {"command": "x", "conn": 2},
    ],
)
def test_a_table_that_cannot_be_used_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\[servers.one\]"):
        Servers({"one": table}, Guard())


async def test_a_step_calls_a_tool_of_a_server_and_the_server_ends_with_the_engine(tmp_path: Path) -> None:
    spec = {
        "name": "w",
        "steps": [
            {"id": "a", "kind": "tool_remote", "dcc": "one", "tool": "add", "args": {"a": 1, "b": 2}},
            {"id": "p", "kind": "tool_remote", "server": "one", "tool": "pid"},
        ],
    }
    servers = Servers({"one": {"command": [sys.executable, PROGRAM]}}, Guard())
    async with Holdfast(f"sqlite:///{tmp_path / 'x.db'}", remote=servers) as hf:
        output = await (await hf.start(spec)).result()
    assert output["a"] == 3
    with pytest.raises(ProcessLookupError):
        os.kill(output["p"], 0)


async def test_without_the_extra_a_call_says_at_once_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    servers = Servers({"one": {"command": sys.executable, "args": [PROGRAM]}}, Guard())
    with pytest.raises(RemoteFailure, match=r"pip install 'holdfast-engine\[mcp\]'") as caught:
        await servers.call("one", "add", {}, None)
    assert caught.value.kind == "error"  # which no policy tries again
    await servers.stop()


REFUSING = """\
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    number, method = asked.get("id"), asked.get("method")
    answer = {"error": {"code": -32601, "message": "no such method"}}
    if method == "initialize":
        answer = {"result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "r", "version": "1"}}}
    if method == "tools/list":
        answer = {"result": {"tools": [{"name": "no", "inputSchema": {"type": "object"}}]}}
    if method == "tools/call":
        answer = {"error": {"code": -32000, "message": "the vault is locked"}}
    if number is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": number, **answer}), flush=True)
"""


async def test_an_error_that_a_server_numbers_like_a_closed_connection_is_its_own(tmp_path: Path) -> None:
    """Servers number their errors from -32000 on, and the SDK calls a closed connection the same."""
    (tmp_path / "refusing.py").write_text(REFUSING)
    servers = Servers({"one": {"command": sys.executable, "args": [str(tmp_path / "refusing.py")]}}, Guard())
    try:
        for _ in range(2):  # the connection lives on
            with pytest.raises(RemoteFailure, match="the vault is locked") as caught:
                await servers.call("one", "no", {}, None)
            assert caught.value.kind == "tool"
    finally:
        await servers.stop()
