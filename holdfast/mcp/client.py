"""Calls tools on other MCP servers: those that the settings name, over stdio or streamable HTTP, of both protocol eras.

    tool_remote, tool: server/name ──► Servers.call ──► a link (connection) of that server ──► tools/call

A link is started when it is first needed, and again after it has died. Knows what a failure says about the call: `unsent` (it
certainly did not arrive), `unknown` (it may have been carried out), `timeout`, `tool` (the tool reported an error), `no_tool`. The
SDK is imported at the first call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from holdfast import limits
from holdfast.mcp.child import Flooded, stdio_streams
from holdfast.values import decode

TIMEOUT_SECS: Final = 60.0
START_SECONDS: Final = 30.0  # for a server to start and to say which era it speaks
PAGES_MAX: Final = 100  # of tools/list
TOOLS_MAX: Final = 5_000
LINKS_MAX: Final = 32
MESSAGE_CHARS_MAX: Final = 2_000

log = logging.getLogger("holdfast.mcp")

_SECRET: Final = re.compile(r"\{\{\s*secrets\.(\w+)\s*\}\}")


class Addresses(Protocol):
    """Which addresses may be called."""

    async def targets(self, url: str) -> Any: ...


class RemoteFailure(Exception):
    """A call of a tool on another server failed; `kind` says what is known of it."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message[:MESSAGE_CHARS_MAX])
        self.kind = kind


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One table `[servers.<name>]`: a command or a URL, never both."""

    command: str | list[str] | None = None
    args: list[str] = []
    url: str | None = None
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    timeout_secs: float = TIMEOUT_SECS
    connections: int = 1

    def __post_init__(self) -> None:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either `command` or `url`")
        if not 0 < self.timeout_secs <= limits.now.timeout_secs_max:
            raise ValueError("timeout_secs must be more than 0")
        if not 1 <= self.connections <= LINKS_MAX:
            raise ValueError(f"connections must be from 1 to {LINKS_MAX}")

    @property
    def words(self) -> list[str]:
        """The command and its arguments."""
        return [*([self.command] if isinstance(self.command, str) else self.command or []), *self.args]


def from_environment(name: str) -> str | None:
    return os.environ.get(f"HOLDFAST_SECRET_{name}")


class Servers:
    """The MCP servers of the settings. `servers` are their names: no other can be called."""

    def __init__(
        self,
        tables: Mapping[str, Mapping[str, Any]],
        guard: Addresses,
        secret: Callable[[str], str | None] = from_environment,
    ) -> None:
        self._settings = {name: _read(name, table) for name, table in tables.items()}
        self._guard, self._secret = guard, secret
        self._links: dict[str, list[_Link]] = {name: [] for name in self._settings}
        self._listed: dict[str, dict[str, Any]] = {}

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(self._settings)

    async def call(self, server: str, tool: str, args: dict[str, Any], context: Any) -> Any:
        """The result of a tool; raises RemoteFailure."""
        settings = self._settings[server]
        link = self._link(server, settings)
        async with link.used():
            await link.started()
            listed = await link.tools()
            self._listed[server] = listed
            if tool not in listed and not link.is_truncated:
                raise RemoteFailure(f"the server {server} has no tool {tool!a}", "no_tool")
            result = await link.call(tool, args, settings.timeout_secs)
        return _output(result, listed.get(tool))

    def marks_of(self, server: str, tool: str) -> tuple[bool | None, bool | None, bool | None]:
        """Whether a tool is destructive, read-only and idempotent, as its server says. Until its tools have been listed, and
        where it says nothing, MCP counts a tool as destructive."""
        said = getattr(self._listed.get(server, {}).get(tool), "annotations", None)
        read_only = getattr(said, "read_only_hint", None)
        destructive = getattr(said, "destructive_hint", None)
        is_destructive = (destructive is not False) if not read_only else None
        return is_destructive, read_only, getattr(said, "idempotent_hint", None)

    async def stop(self) -> None:
        """End all connections, and the processes of those that are commands."""
        links = [link for some in self._links.values() for link in some]
        await asyncio.gather(*(link.close() for link in links), return_exceptions=True)

    def _link(self, server: str, settings: ServerSettings) -> _Link:
        """The least busy connection that lives, or a new one."""
        links = self._links[server] = [link for link in self._links[server] if link.is_alive]
        idle = [link for link in links if not link.users]
        if idle:
            return idle[0]
        if len(links) < settings.connections:
            links.append(_Link(server, settings, self._guard, self._given))
            return links[-1]
        return min(links, key=lambda link: link.users)

    def _given(self, text: str) -> str:
        """A value of the settings with the secrets that it refers to."""

        def value(found: re.Match[str]) -> str:
            secret = self._secret(found[1])
            if secret is None:
                raise RemoteFailure(f"the secret {found[1]} is not set", "secret")
            return secret

        return _SECRET.sub(value, text)


def _read(name: str, table: Mapping[str, Any]) -> ServerSettings:
    try:
        return msgspec.convert(table, ServerSettings)
    except (msgspec.ValidationError, ValueError) as error:
        raise ValueError(f"[servers.{name}]: {error}") from None


class _Link:
    """One connection. A task of its own holds it open: the SDK wants it closed where it was opened."""

    def __init__(
        self, server: str, settings: ServerSettings, guard: Addresses, given: Callable[[str], str]
    ) -> None:
        self.server, self.settings, self._guard, self._given = server, settings, guard, given
        self.users, self.is_dead, self.is_truncated = 0, False, False
        self._client: Any = None
        self._tools: dict[str, Any] | None = None
        self._failures: list[Exception] = []
        self.posted = 0  # requests that were handed to the network
        self._ended, self._ready = asyncio.Event(), asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold())

    @property
    def is_alive(self) -> bool:
        return not self.is_dead and not self._ended.is_set()

    @contextlib.asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1

    async def started(self) -> None:
        """Wait until the connection is open. If it cannot be opened, nothing was sent."""
        try:
            async with asyncio.timeout(START_SECONDS):
                await asyncio.shield(self._ready)
        except TimeoutError:
            await self.close()
            raise RemoteFailure(
                f"the server {self.server} did not start within {START_SECONDS:g} s", "unsent"
            ) from None
        except RemoteFailure:
            raise
        except Exception as error:  # noqa: BLE001  # whatever kept it from opening, the call was not sent
            raise RemoteFailure(
                f"the server {self.server} cannot be reached: {_said(error)}", "unsent"
            ) from None

    async def tools(self) -> dict[str, Any]:
        """The tools that the server lists, as far as is reasonable, read once for each connection."""
        if self._tools is None:
            found: dict[str, Any] = {}
            cursor: str | None = None
            for page in range(PAGES_MAX):
                answer = await self._asked(self._client.list_tools(cursor=cursor), "unsent")
                found |= {tool.name: tool for tool in answer.tools}
                cursor = answer.next_cursor
                if not cursor or len(found) >= TOOLS_MAX or page + 1 == PAGES_MAX:
                    self.is_truncated = bool(cursor)
                    break
            self._tools = found
        return self._tools

    async def call(self, tool: str, args: dict[str, Any], timeout_secs: float) -> Any:
        before = self.posted
        try:
            async with asyncio.timeout(timeout_secs):
                return await self._asked(self._client.call_tool(tool, args), "unknown")
        except TimeoutError:
            message = f"the server {self.server} did not answer within {timeout_secs:g} s"
            raise RemoteFailure(message, "timeout") from None
        except RemoteFailure as failure:
            if self.settings.url is not None and failure.kind == "unknown" and self.posted == before:
                failure.kind = "unsent"  # no request reached the network
            raise

    async def _asked(self, request: Any, kind: str) -> Any:
        """The answer to a request, or the failure if the connection ends before it comes."""
        if self._ended.is_set():
            request.close()
            raise RemoteFailure(f"the server {self.server} has ended", "unsent")
        asked = asyncio.ensure_future(request)
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait([asked, ended], return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                await asyncio.wait([asked], timeout=1)  # an answer may be on its way
            if asked.done() and not asked.cancelled() and asked.exception() is None:
                return asked.result()
            raise self._failure(asked.exception() if asked.done() and not asked.cancelled() else None, kind)
        finally:
            ended.cancel()
            asked.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await asked

    def _failure(self, error: BaseException | None, kind: str) -> RemoteFailure:
        flooded = next((one for one in self._failures if isinstance(one, Flooded)), None)
        if flooded is not None:
            return RemoteFailure(f"{self.server}: {flooded}", "output_too_large")
        code = getattr(getattr(error, "error", None), "code", None)
        if not self._ended.is_set() and isinstance(code, int) and code not in _CONNECTION_CODES:
            return RemoteFailure(f"{self.server}: {_said(error)}", "tool")  # the server itself says so
        self._ended.set()
        return RemoteFailure(f"the connection to {self.server} ended: {_said(error)}", kind)

    async def close(self) -> None:
        self.is_dead = True
        self._ended.set()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._task

    async def _hold(self) -> None:
        from mcp import Client

        try:
            transport = self._http() if self.settings.url is not None else self._stdio()
            async with Client(transport, mode="auto", cache=None) as client:
                self._client = client
                self._ready.set_result(None)
                await self._ended.wait()
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(
                    error if isinstance(error, Exception) else ConnectionError("it was closed")
                )
                self._ready.exception()  # read by the callers that wait, if any do
            if isinstance(error, asyncio.CancelledError):
                raise
            log.info("the connection to the MCP server %s ended: %s", self.server, _said(error))
        finally:
            self.is_dead = True
            self._ended.set()

    def _stdio(self) -> Any:
        env = {name: self._given(value) for name, value in self.settings.env.items()}
        return stdio_streams(self.settings.words, env, self._ended, self._failures)

    @contextlib.asynccontextmanager
    async def _http(self) -> AsyncIterator[Any]:
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        url = str(self.settings.url)
        link = self

        class Guarded(httpx2.AsyncHTTPTransport):
            """Checks the address of each request, and notes those that were sent."""

            async def handle_async_request(self, request: Any) -> Any:
                await link._guard.targets(str(request.url))
                try:
                    answer = await super().handle_async_request(request)
                except httpx2.ConnectError:
                    raise
                except Exception:
                    link.posted += 1
                    raise
                link.posted += 1
                return answer

        headers = {name: self._given(value) for name, value in self.settings.headers.items()}
        timeout = httpx2.Timeout(self.settings.timeout_secs, connect=10.0)
        async with (
            httpx2.AsyncClient(
                headers=headers, timeout=timeout, transport=Guarded(), trust_env=False
            ) as http,
            streamable_http_client(url, http_client=http) as streams,
        ):
            yield streams


# What the SDK calls a connection that ended, or a request that was not answered: the server did not say it.
_CONNECTION_CODES: Final = frozenset({-32000, -32001})


def _said(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return "no answer came" if error is None else str(error)[:500] or type(error).__name__


def _output(result: Any, tool: Any) -> Any:
    """What a tool returned: its structured content, or the text of its blocks."""
    blocks = [block.model_dump(mode="json", by_alias=True, exclude_none=True) for block in result.content]
    texts = [block["text"] for block in blocks if block.get("type") == "text"]
    if result.is_error:
        raise RemoteFailure("\n".join(texts) or "the tool reported an error", "tool")
    if result.structured_content is not None:
        schema = getattr(tool, "output_schema", None) or {}
        is_wrapped = schema.get("x-fastmcp-wrap-result") or result.structured_content.keys() == {"result"}
        return result.structured_content["result"] if is_wrapped else result.structured_content
    if len(texts) == len(blocks) == 1:
        return _value_of(texts[0])
    return blocks


def _value_of(text: str) -> Any:
    """A text that is a JSON object or list is that; any other text is itself."""
    if not text.startswith(("{", "[")):
        return text
    try:
        return decode(text.encode())
    except ValueError:
        return text
