"""One connection to another MCP server: a command or a URL, held open by a task of its own.

Knows what the end of a connection says about a call that is in progress. Does not know what a call is for, or which server is chosen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Protocol

import msgspec

from holdfast import limits
from holdfast.mcp.child import Flooded, largest, stdio_streams
from holdfast.mcp.remote_errors import RemoteFailure, TaskBegun

TIMEOUT_SECS: Final = 60.0
START_SECONDS: Final = 30.0  # for a server to start and to say which era it speaks; and to list its tools
PAGES_MAX: Final = 100  # of tools/list
TOOLS_MAX: Final = 5_000
LINKS_MAX: Final = 32

log = logging.getLogger("holdfast.mcp")


class Addresses(Protocol):
    """Which addresses may be called."""

    async def targets(self, url: str) -> Any: ...


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


class Link:
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
        except ModuleNotFoundError as error:  # trying again would not help
            raise RemoteFailure(
                f"tools of MCP servers need an extra: pip install 'holdfast-engine[mcp]' ({error.name})",
                "error",
            ) from None
        except Exception as error:  # noqa: BLE001  # whatever kept it from opening, the call was not sent
            raise RemoteFailure(
                f"the server {self.server} cannot be reached: {_said(error)}", "unsent"
            ) from None

    async def tools(self) -> dict[str, Any]:
        """The tools that the server lists, as far as is reasonable, read once for each connection."""
        if self._tools is None:
            try:
                async with asyncio.timeout(START_SECONDS):
                    self._tools = await self._listed()
            except TimeoutError:
                await self.close()
                raise RemoteFailure(
                    f"the server {self.server} did not list its tools within {START_SECONDS:g} s", "unsent"
                ) from None
        return self._tools

    async def _listed(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        cursor: str | None = None
        for page in range(PAGES_MAX):
            answer = await self._asked(self._client.list_tools(cursor=cursor), "unsent")
            found |= {tool.name: tool for tool in answer.tools}
            cursor = answer.next_cursor
            if not cursor or len(found) >= TOOLS_MAX or page + 1 == PAGES_MAX:
                self.is_truncated = bool(cursor)
                break
        return found

    async def lacks(self, tool: str) -> bool:
        """Whether the server, asked again, does not list a tool: tools come, go and are renamed while a connection is open. Of a
        list that was not read to its end this is not known."""
        if self.is_truncated:
            return False
        self._tools = None
        try:
            return tool not in await self.tools() and not self.is_truncated
        except RemoteFailure:
            return False

    async def task(self, method: str, task_id: str, seconds: float) -> Any:
        """The answer to a request about a task. Raise RemoteFailure, of kind `tool` if the server itself refuses."""
        from holdfast.mcp.remote_tasks import State, request

        try:
            async with asyncio.timeout(seconds):
                return await self._asked(
                    self._client.session.send_request(
                        request(method, task_id), State if method == "get" else _empty()
                    ),
                    "unsent",
                )
        except TimeoutError:
            raise RemoteFailure(
                f"the server {self.server} did not answer within {seconds:g} s", "timeout"
            ) from None

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
            if asked.done() and not asked.cancelled() and isinstance(error := asked.exception(), TaskBegun):
                raise error
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
        said = getattr(error, "error", None)
        code, message = getattr(said, "code", None), str(getattr(said, "message", ""))
        is_of_sdk = code in _CONNECTION_WORDS and (
            self.settings.url is not None or message.endswith(_CONNECTION_WORDS[code])
        )
        if not self._ended.is_set() and isinstance(code, int) and not is_of_sdk:
            return RemoteFailure(f"{self.server}: {_said(error)}", "tool")  # the server itself says so
        if not self._ended.is_set() and isinstance(error, ValueError | RuntimeError):
            return RemoteFailure(f"{self.server} sent a result that cannot be used: {_said(error)}", "tool")
        self._ended.set()
        return RemoteFailure(f"the connection to {self.server} ended: {_said(error)}", kind)

    async def close(self) -> None:
        self.is_dead = True
        self._ended.set()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await self._task

    async def _hold(self) -> None:
        try:
            from mcp import Client

            from holdfast.mcp.remote_tasks import Tasks

            transport = self._http() if self.settings.url is not None else self._stdio()
            async with Client(transport, mode="auto", cache=None, extensions=[Tasks()]) as client:
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

        from holdfast.mcp.remote_http import Pinned

        url = str(self.settings.url)
        transport = Pinned(self._guard.targets, largest(), self._sent, self._flooded)
        headers = {name: self._given(value) for name, value in self.settings.headers.items()}
        timeout = httpx2.Timeout(self.settings.timeout_secs, connect=10.0)
        async with (
            httpx2.AsyncClient(
                headers=headers, timeout=timeout, transport=transport, trust_env=False
            ) as http,
            streamable_http_client(url, http_client=http) as streams,
        ):
            yield streams

    def _sent(self) -> None:
        self.posted += 1

    def _flooded(self, error: Flooded) -> None:
        self._failures.append(error)
        self._ended.set()


def _empty() -> Any:
    from mcp import types

    return types.EmptyResult


# What the SDK says, and how that ends, of a connection that closed and of a request that was not answered. Servers use the codes too;
# over HTTP the SDK has many words for these, so there the server is never believed to have said it.
_CONNECTION_WORDS: Final = {-32000: "Connection closed", -32001: "timed out"}


def _said(error: BaseException | None) -> str:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return "no answer came" if error is None else str(error)[:500] or type(error).__name__
