"""MCP on standard input and output: the process reads on, however many messages are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from holdfast.sdk.mcp_stdio import AT_ONCE_MAX, OPEN_MAX, Bridge

pytestmark = pytest.mark.anyio


class Talk:
    """A client with lines in and out, and a server that answers `initialize`, `ping` and notifications, and leaves every other method open
    until `finish`."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.reached: asyncio.Queue[str] = asyncio.Queue()
        self.left: asyncio.Queue[str] = asyncio.Queue()
        self.session: str | None = None  # which the server gives
        self.finish = asyncio.Event()

    def send(self, method: str, request_id: int | None = None, **params: Any) -> None:
        own = {} if request_id is None else {"id": request_id}
        self.lines.put_nowait(
            msgspec.json.encode({"jsonrpc": "2.0", "method": method, "params": params, **own})
        )

    async def answered(self, request_id: int) -> dict[str, Any]:
        async with asyncio.timeout(30):
            while (said := await self.said.get())["id"] != request_id:
                pass
        return said

    async def serve(self, request: web.Request) -> web.Response:
        message = await request.json()
        self.reached.put_nowait(message["method"])
        if message["method"] not in ("initialize", "ping") and "id" in message:
            try:
                await self.finish.wait()
            finally:
                self.left.put_nowait(message["method"])
        headers = {} if self.session is None else {"mcp-session-id": self.session}
        return web.json_response({"jsonrpc": "2.0", "id": message.get("id"), "result": {}}, headers=headers)

    async def given(self) -> AsyncIterator[bytes | None]:
        while (line := await self.lines.get()) is not None:
            yield line

    def write(self, line: bytes) -> None:
        self.said.put_nowait(msgspec.json.decode(line))


@pytest.fixture
async def talk() -> AsyncIterator[Talk]:
    talk, app = Talk(), web.Application()
    app.router.add_post("/mcp", talk.serve)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0]

    async def find() -> str:
        return f"http://{host}:{port}"

    running = asyncio.create_task(Bridge(find, talk.write).run(talk.given()))
    yield talk
    talk.finish.set()  # it ends at once, as no call is open
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await runner.cleanup()


async def test_streams_that_stay_open_keep_no_request_waiting(talk: Talk) -> None:
    for number in range(AT_ONCE_MAX + 20):
        talk.send("subscriptions/listen", number)
    talk.send("ping", 999)
    assert (await talk.answered(999))["result"] == {}


async def test_a_cancellation_is_read_while_as_many_calls_are_open_as_may_be(talk: Talk) -> None:
    for number in range(AT_ONCE_MAX):
        talk.send("tools/call", number)
    talk.send("ping", 999)
    talk.send("notifications/cancelled", requestId=5)
    assert await asyncio.wait_for(talk.left.get(), 30) == "tools/call"
    assert (await talk.answered(999))["result"] == {}


async def test_a_request_that_is_cancelled_before_its_turn_never_reaches_the_server_of_a_session(
    talk: Talk,
) -> None:
    talk.session = "s1"
    talk.send("initialize", 1_000)
    for number in range(AT_ONCE_MAX):
        talk.send("resources/read", number)
    talk.send("tools/call", 998)
    talk.send("notifications/cancelled", requestId=998)
    talk.send("ping", 999)
    for _ in range(1 + AT_ONCE_MAX):
        await asyncio.wait_for(talk.reached.get(), 30)
    talk.send("notifications/last")
    async with asyncio.timeout(30):  # a notification needs no turn, so whatever came before it has been read
        while (method := await talk.reached.get()) != "notifications/last":
            assert method != "tools/call"
    talk.finish.set()
    await talk.answered(999)
    assert "tools/call" not in [talk.reached.get_nowait() for _ in range(talk.reached.qsize())]


async def test_more_requests_than_may_be_open_are_refused(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.sdk.mcp_stdio.OPEN_MAX", 3)
    assert OPEN_MAX > AT_ONCE_MAX
    for number in range(3):
        talk.send("tools/call", number)
    talk.send("ping", 999)
    assert "3 messages wait for an answer" in (await talk.answered(999))["error"]["message"]
