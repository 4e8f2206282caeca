"""A reader of server-sent events, as the specification has it: an id without data only moves the reader on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp
import msgspec

PATIENCE_SECS = 120


class Heard(NamedTuple):
    id: str  # "" if the event brought none
    data: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.data["detail"]["kind"])

    @property
    def words(self) -> str:
        return f"{self.kind} {self.data['current_step_id'] or ''}".strip()


class Reader:
    """One connection. `last_id` is what an EventSource would come back with."""

    def __init__(self, response: aiohttp.ClientResponse, last_id: str) -> None:
        self.response, self.last_id = response, last_id
        self.comments: list[str] = []
        self.names: list[str] = []  # of the events, as they came
        self.retry_ms = 0

    async def events(self) -> AsyncIterator[Heard]:
        own = ""
        data: list[str] = []
        async for raw in self.response.content:
            line = raw.decode().removesuffix("\n")
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                self.last_id = own or self.last_id
                if data:
                    yield Heard(own, msgspec.json.decode("\n".join(data)))
                own, data = "", []
            elif not name:
                self.comments.append(value)
            elif name == "id":
                own = value
            elif name == "data":
                data.append(value)
            elif name == "event":
                self.names.append(value)
            elif name == "retry":
                self.retry_ms = int(value)

    async def take(self, count: int) -> list[Heard]:
        """The next so many."""
        found: list[Heard] = []
        async with asyncio.timeout(PATIENCE_SECS):
            async for heard in self.events():
                found.append(heard)
                if len(found) == count:
                    break
        return found

    async def rest(self) -> list[Heard]:
        async with asyncio.timeout(PATIENCE_SECS):
            return [heard async for heard in self.events()]

    async def until(self, kind: str, run_id: str = "") -> list[Heard]:
        found: list[Heard] = []
        async with asyncio.timeout(PATIENCE_SECS):
            async for heard in self.events():
                found.append(heard)
                if heard.kind == kind and run_id in ("", heard.data["workflow_id"]):
                    break
        return found


@asynccontextmanager
async def listening(
    session: aiohttp.ClientSession, address: str, last_id: str = "", **rest: Any
) -> AsyncIterator[Reader]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    timeout = aiohttp.ClientTimeout(total=None)
    async with session.get(address, headers=headers, timeout=timeout, **rest) as response:
        yield Reader(response, last_id)
