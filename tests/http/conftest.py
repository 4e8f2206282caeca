"""A real server on a loopback port, and somebody who asks it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
import pytest

from holdfast import tool
from holdfast.config import Settings
from holdfast.http.serve import Serving, serving
from holdfast.tools.registry import Registry

ADD = {
    "name": "sum",
    "inputs": {"a": {"type": "integer"}},
    "steps": [{"id": "s", "tool": "add", "args": {"a": "{{inputs.a}}", "b": 2}}],
    "output": "{{steps.s.output}}",
}
HOLD = {"name": "held", "steps": [{"id": "wait", "tool": "hold"}]}


class Answer(NamedTuple):
    status: int
    body: Any
    headers: Any

    @property
    def code(self) -> str:
        """Of an error."""
        assert set(self.body) == {"error", "message", "details"}, self.body
        return str(self.body["error"])


class Asker:
    """Asks one server, and reads JSON."""

    def __init__(self, serving: Serving, session: aiohttp.ClientSession, holds: Holds) -> None:
        self.serving, self.session, self.holds = serving, session, holds
        self.host, _, port = serving.address.removeprefix("http://").rpartition(":")
        self.port = int(port)

    async def __call__(self, method: str, path: str, body: Any = None, **rest: Any) -> Answer:
        given = rest if body is None else {"json": body, **rest}
        async with self.session.request(method, self.serving.address + path, **given) as answer:
            raw = await answer.read()
            value = msgspec.json.decode(raw) if raw and answer.content_type == "application/json" else raw
            return Answer(answer.status, value, answer.headers)

    async def start(self, **body: Any) -> str:
        answer = await self("POST", "/api/v1/runs", body)
        assert answer.status == 202, answer.body
        return str(answer.body["run_id"])

    async def done(self, **body: Any) -> dict[str, Any]:
        """A run from its start to its end."""
        answer = await self("POST", "/api/v1/runs", {"wait_secs": 60, **body})
        assert answer.status == 200, answer.body
        return dict(answer.body)


class Holds:
    """The tool `hold` waits for `free`, and says when it has begun."""

    def __init__(self) -> None:
        self.began, self.free = asyncio.Event(), asyncio.Event()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Workers say once that they are there, and are believed for as long as a test may take."""
    return Settings(
        db=f"sqlite:///{tmp_path / 'test.db'}", port=0, worker_ttl_secs=600, worker_lease_secs=600
    )


@pytest.fixture
async def ask(settings: Settings) -> AsyncIterator[Asker]:
    """A server with the workflows `sum` and `held`."""
    holds = Holds()

    @tool
    async def add(a: int, b: int) -> int:
        return a + b

    @tool
    async def fail(n: int) -> None:
        raise ValueError(f"{n} is refused")

    @tool
    async def hold() -> str:
        holds.began.set()
        await holds.free.wait()
        return "let go"

    async with (
        serving(settings, registry=Registry([add, fail, hold])) as server,
        aiohttp.ClientSession() as session,
    ):
        for definition in (ADD, HOLD):
            await server.services.commands.publish("default", definition)
        yield Asker(server, session, holds)
