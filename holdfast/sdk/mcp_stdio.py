"""MCP on standard input and output, for a server that speaks it over HTTP: each line is one message, both ways.

    client ──stdin──► line ──► POST /mcp ──► answer, or a stream of messages ──stdout──► client

Knows the framing of both sides and the headers that a message needs. Does not know what any method means, and needs no MCP SDK.
A line that cannot be read is answered with an error, and the next one is read as if nothing had happened.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp
import msgspec

from holdfast.sdk.sse import Parser

LINE_BYTES_MAX: Final = 1024 * 1024  # of one message, as over HTTP
AT_ONCE_MAX: Final = (
    100  # requests that the server has; further ones wait for their turn, and what is no request does not
)
OPEN_MAX: Final = 1_000  # messages without an answer; further ones are refused, so that a cancellation is read whatever is open
LISTEN: Final = "subscriptions/listen"  # a stream that stays open takes no turn
# A message is taken when the one before it was answered, or has had this long: a hundred that arrive together would otherwise be handled
# in one turn of the loop, if the server is in this process.
PACE_SECONDS: Final = 0.005
ENDING_SECONDS: Final = 60.0  # for calls that are open when the input ends
RETRIES: Final = 25  # while no server answers: a restart takes a moment
RETRY_SECONDS: Final = 0.2
PARSE_ERROR, INVALID_REQUEST, UNREACHABLE = -32700, -32600, -32000
VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
NAMED_BY: Final = {
    "tools/call": "name", "prompts/get": "name", "resources/read": "uri",
    "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
}  # fmt: skip

Write = Callable[[bytes], None]
Find = Callable[[], Awaitable[str]]  # the address of the server, as it is now


class Bridge:
    """`find` gives the address of the server; it is asked again when no server answers there."""

    def __init__(self, find: Find, write: Write, key: str | None = None) -> None:
        self._find, self._write = find, write
        self._address = ""
        self._session: str | None = None  # of the older era
        self._version: str | None = None
        self._first: dict[str, Any] | None = None  # the message that opened the session
        self._standing: asyncio.Task[None] | None = None
        self._open: dict[Any, asyncio.Task[None]] = {}  # by request id
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)
        self._in_line: set[asyncio.Task[None] | None] = set()  # tasks that wait for their turn
        self._headers = {"accept": "application/json, text/event-stream", "holdfast-stdio": "1"}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"

    async def run(self, lines: AsyncIterator[bytes | None]) -> None:
        """Carry messages until the input ends. A line of None was too long."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10)
        connector = aiohttp.TCPConnector(limit=OPEN_MAX + AT_ONCE_MAX)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as self._http:
            self._address = await self._find()
            try:
                async for line in lines:
                    await self._take(line)
            finally:
                await self._end()

    async def _take(self, line: bytes | None) -> None:
        if line is None:
            return self._fail(None, INVALID_REQUEST, f"a message has at most {LINE_BYTES_MAX:,} bytes")
        if not line.strip():
            return
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            return self._fail(None, PARSE_ERROR, f"Parse error: {error}")
        if not isinstance(message, dict):
            return self._fail(
                None, INVALID_REQUEST, "Invalid request: a line is one JSON-RPC message, not a batch"
            )
        if message.get("method") in ("initialize", "notifications/initialized"):
            return await self._carry(message)  # what follows needs the session
        if message.get("method") == "notifications/cancelled" and self._cancels(message):
            return None
        request_id = message.get("id") if "method" in message else None
        if request_id is not None and len(self._tasks) >= OPEN_MAX:
            return self._fail(
                request_id, UNREACHABLE, f"{OPEN_MAX:,} messages wait for an answer; send it again later"
            )
        takes_turn = request_id is not None and message.get("method") != LISTEN
        task = self._spawn(self._carry_in_turn(message) if takes_turn else self._carry(message), request_id)
        await asyncio.wait([task], timeout=PACE_SECONDS)

    def _spawn(self, work: Any, request_id: Any = None) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if isinstance(request_id, str | int):
            self._open[request_id] = task
            task.add_done_callback(lambda _: self._open.pop(request_id, None))
        return task

    def _cancels(self, message: Mapping[str, Any]) -> bool:
        """Whether a cancellation ends here. In the newer era, closing the connection of a request cancels it; and the server does not
        know a request that waits for its turn."""
        params = message.get("params")
        wanted = params.get("requestId") if isinstance(params, dict) else None
        task = self._open.get(wanted) if isinstance(wanted, str | int) else None
        ends_here = self._session is None or task in self._in_line
        if ends_here and task is not None:
            task.cancel()
        return ends_here

    async def _end(self) -> None:
        if self._standing is not None:
            self._standing.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=ENDING_SECONDS)
            for task in late:
                task.cancel()

    # -------------------------------------------------------------------------------------------- one message

    async def _carry_in_turn(self, message: dict[str, Any]) -> None:
        task = asyncio.current_task()
        self._in_line.add(task)
        try:
            await self._turns.acquire()
        finally:
            self._in_line.discard(task)
        try:
            await self._carry(message)
        finally:
            self._turns.release()

    async def _carry(self, message: dict[str, Any]) -> None:
        try:
            await self._sent(message)
        except (aiohttp.ClientError, OSError) as error:
            if "method" in message and "id" in message:
                self._fail(
                    message["id"], UNREACHABLE, f"the server at {self._address} does not answer: {error}"
                )

    async def _sent(self, message: dict[str, Any], *, is_repeated: bool = False) -> None:
        async with contextlib.AsyncExitStack() as stack:
            response = await self._posted(stack, message)
            if response.status == 404 and self._first is not None and not is_repeated and self._session:
                await stack.aclose()
                await self._open_again()
                return await self._sent(message, is_repeated=True)
            if message.get("method") == "initialize":
                self._first, self._session = message, response.headers.get("mcp-session-id")
            await self._received(message, response)
        if message.get("method") == "notifications/initialized" and self._session:
            self._standing = asyncio.create_task(self._listen())

    async def _posted(
        self, stack: contextlib.AsyncExitStack, message: dict[str, Any]
    ) -> aiohttp.ClientResponse:
        """Send a message. A connection that is refused has carried nothing, so it is tried again, wherever the server is by then."""
        raw = msgspec.json.encode(message)
        headers = {**self._headers, "content-type": "application/json", **self._headers_of(message)}
        for left in range(RETRIES, -1, -1):
            try:
                request = self._http.post(f"{self._address}/mcp", data=raw, headers=headers)
                return await stack.enter_async_context(request)
            except aiohttp.ClientConnectorError:
                if not left:
                    raise
                await asyncio.sleep(RETRY_SECONDS)
                self._address = await self._find()
        raise AssertionError("the last try returns or raises")

    def _headers_of(self, message: Mapping[str, Any]) -> dict[str, str]:
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        version = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
        method = message.get("method")
        if isinstance(version, str) and isinstance(method, str) and method != "initialize":
            named = params.get(NAMED_BY.get(method, ""))
            own = {"mcp-protocol-version": version, "mcp-method": _safe(method)}
            return {**own, "mcp-name": _safe(named)} if isinstance(named, str) else own
        found = {} if self._session is None else {"mcp-session-id": self._session}
        if self._version is not None and method != "initialize":
            found["mcp-protocol-version"] = self._version
        return found

    async def _received(self, message: Mapping[str, Any], response: aiohttp.ClientResponse) -> None:
        if response.content_type == "text/event-stream":
            return await self._streamed(response)
        raw = await response.read()
        if not raw or "method" not in message or "id" not in message:
            return
        try:
            said = msgspec.json.decode(raw)
        except msgspec.DecodeError:
            said = None
        if not isinstance(said, dict):
            return self._fail(message["id"], UNREACHABLE, f"the server answered with HTTP {response.status}")
        if message.get("method") == "initialize" and isinstance(said.get("result"), dict):
            self._version = said["result"].get("protocolVersion")
        if said.get("id") is None:
            said["id"] = message["id"]  # refused before the message was read
        self._put(said)

    async def _streamed(self, response: aiohttp.ClientResponse) -> None:
        parser = Parser()
        async for chunk in response.content.iter_any():
            for one in parser.feed(chunk):
                if one.data:
                    said = msgspec.json.decode(one.data)
                    if self._version is None and isinstance(said.get("result"), dict):
                        self._version = said["result"].get("protocolVersion")
                    self._put(said)

    async def _open_again(self) -> None:
        """The server was restarted and does not know the session any more: open a new one, without telling the client."""
        assert self._first is not None
        self._session = None
        headers = {**self._headers, "content-type": "application/json"}
        async with self._http.post(f"{self._address}/mcp", json=self._first, headers=headers) as response:
            self._session = response.headers.get("mcp-session-id")
            await response.read()
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        async with self._http.post(
            f"{self._address}/mcp", json=ready, headers={**headers, **self._headers_of(ready)}
        ) as response:
            await response.read()

    async def _listen(self) -> None:
        """The standing stream of the older era, on which the server tells of changes."""
        headers = {**self._headers, "accept": "text/event-stream", **self._headers_of({})}
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with self._http.get(f"{self._address}/mcp", headers=headers) as response:
                if response.status == 200:
                    await self._streamed(response)

    def _fail(self, request_id: Any, code: int, text: str) -> None:
        self._put({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}})

    def _put(self, message: Any) -> None:
        self._write(msgspec.json.encode(message) + b"\n")


def _safe(value: str) -> str:
    """A value as a header carries it: what does not survive there is base64."""
    if value.isascii() and value.isprintable() and value == value.strip():
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


async def lines_of(reader: asyncio.StreamReader) -> AsyncIterator[bytes | None]:
    """The lines of the input; None for one that is too long, whatever its length."""
    while True:
        try:
            line = await reader.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            if error.partial:
                yield error.partial
            return
        except asyncio.LimitOverrunError:
            yield None
            if not await _skip_line(reader):
                return
            continue
        yield line


async def _skip_line(reader: asyncio.StreamReader) -> bool:
    """Read past the end of a line; whether there may be another."""
    while True:
        try:
            await reader.readuntil(b"\n")
        except asyncio.LimitOverrunError as error:
            await reader.readexactly(error.consumed)
        except asyncio.IncompleteReadError:
            return False
        else:
            return True
