"""A real server on a loopback port, and clients of both eras that speak MCP to it."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from mcp import Client, types

from holdfast.config import Mcp, Settings
from holdfast.http.serve import Serving, serving
from tests.mcp.fixtures import Publisher, registry_of

VERSION = "2026-07-28"
META = "io.modelcontextprotocol/"
TASKS = "io.modelcontextprotocol/tasks"
NAMED_BY = {
    "tools/call": "name", "prompts/get": "name", "resources/read": "uri",
    "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
}  # fmt: skip

HELLO = {
    "name": "hello",
    "description": "Greets someone.",
    "inputs": {"name": {"type": "string"}},
    "steps": [{"id": "say", "tool": "echo", "args": {"value": "Hello, {{inputs.name}}!"}}],
    "output": "{{steps.say.output}}",
}
GATE = {
    "name": "gate",
    "steps": [{"id": "ok", "kind": "approve", "prompt": "Go on?"}],
    "output": {"by": "{{steps.ok.output.by}}", "approved": "{{steps.ok.output.approved}}"},
}
HELD = {"name": "held", "steps": [{"id": "wait", "tool": "hold"}]}


class Holds:
    """The tool `hold` waits for `free`, and says when it has begun."""

    def __init__(self) -> None:
        self.began, self.free = asyncio.Event(), asyncio.Event()


class Reply(msgspec.Struct):
    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def result(self) -> Any:
        assert "error" not in self.body, self.body
        return self.body["result"]

    @property
    def code(self) -> int:
        return int(self.body["error"]["code"])


class Asker:
    """A client of the newer era, as raw as the wire."""

    def __init__(self, server: Serving, session: aiohttp.ClientSession, holds: Holds) -> None:
        self.server, self.session, self.holds = server, session, holds
        self.url = f"{server.address}/mcp"
        self._ids = itertools.count(1)

    async def __call__(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        capabilities: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Reply:
        given = dict(params or {})
        said = {
            f"{META}protocolVersion": VERSION,
            f"{META}clientCapabilities": dict(capabilities or {}),
            **(meta or {}),
        }
        own = {"mcp-protocol-version": VERSION, "mcp-method": method}
        if method in NAMED_BY:
            own["mcp-name"] = str(given[NAMED_BY[method]])
        message = {
            "jsonrpc": "2.0",
            "id": next(self._ids),
            "method": method,
            "params": {**given, "_meta": said},
        }
        return await self.raw(msgspec.json.encode(message), {**own, **(headers or {})})

    async def raw(self, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        own = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **(headers or {}),
        }
        async with self.session.post(self.url, data=io.BytesIO(body), headers=own) as answer:
            raw = await answer.read()
            if answer.content_type == "text/event-stream":
                last = [line for line in raw.decode().splitlines() if line.startswith("data:")][-1]
                raw = last.removeprefix("data:").encode()
            return Reply(answer.status, msgspec.json.decode(raw) if raw else None, answer.headers)

    async def tool(self, name: str, arguments: Mapping[str, Any] | None = None, **rest: Any) -> Any:
        """The result of a tool."""
        return (await self("tools/call", {"name": name, "arguments": dict(arguments or {})}, **rest)).result

    async def task(self, name: str, arguments: Mapping[str, Any] | None = None, **capabilities: Any) -> str:
        """Call a tool that becomes a task."""
        given = {"extensions": {TASKS: {}}, **capabilities}
        result = await self.tool(name, arguments, capabilities=given)
        assert result["resultType"] == "task", result
        return str(result["taskId"])

    async def tasks(self, method: str, task_id: str, **params: Any) -> Reply:
        capabilities: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {}}
        return await self(f"tasks/{method}", {"taskId": task_id, **params}, capabilities=capabilities)

    async def ended(self, task_id: str) -> Any:
        """A task once its run has finished."""
        await self.server.services.queries.wait_for("default", task_id, 60)
        return (await self.tasks("get", task_id)).result

    async def asking(self, task_id: str) -> Any:
        """A task once its run asks for something."""
        await self.server.services.asking.wait_for("default", task_id, 60)
        return (await self.tasks("get", task_id)).result


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A call waits for its run as long as a busy machine may take."""
    return Settings(db=f"sqlite:///{tmp_path / 'test.db'}", port=0, mcp=Mcp(wait_secs=60))


@contextlib.asynccontextmanager
async def asked(settings: Settings) -> AsyncIterator[Asker]:
    holds = Holds()

    async def hold() -> str:
        holds.began.set()
        await holds.free.wait()
        return "freed"

    registry = registry_of(Publisher())
    registry.add(hold)
    async with serving(settings, registry=registry) as server, aiohttp.ClientSession() as session:
        for one in (HELLO, GATE, HELD):
            await server.services.commands.publish("default", one)
        yield Asker(server, session, holds)
        holds.free.set()


@pytest.fixture
async def ask(settings: Settings) -> AsyncIterator[Asker]:
    """A server with the workflows `hello`, `gate` and `held`."""
    async with asked(settings) as asker:
        yield asker


@contextlib.asynccontextmanager
async def client_of(ask: Asker, era: str, **rest: Any) -> AsyncIterator[Client]:
    async with Client(ask.url, mode="legacy" if era == "2025-11-25" else "auto", **rest) as client:
        yield client


def text_of(result: Any) -> str:
    """The text of a result, of the SDK or of the wire."""
    if isinstance(result, types.CallToolResult):
        block = result.content[0]
        assert isinstance(block, types.TextContent)
        return block.text
    return str(result["content"][0]["text"])
