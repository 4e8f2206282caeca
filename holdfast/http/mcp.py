"""`/mcp`: where the MCP server is mounted. Its code is imported with the first request, and serves until the process stops.

A request has passed the guard like any other: Host, Origin, key, rate, size and depth of its body. Knows how a foreign ASGI app is
given a request whose body was read; does not know the protocol beyond the shape of its errors.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from starlette.responses import Response

from holdfast.api.principal import Principal
from holdfast.api.services import Services
from holdfast.api.types import fault_of
from holdfast.errors import HoldfastError, InvalidRequest, NotFound, Unauthorised
from holdfast.http.auth import ANONYMOUS, LOCAL
from holdfast.http.request import Receive, Scope
from holdfast.http.table import SCOPES, Ask, Method, Route
from holdfast.runtime import collector
from holdfast.threads import in_thread

if TYPE_CHECKING:
    from holdfast.mcp.oauth import Tokens
    from holdfast.mcp.server import McpServer

PATH: Final = "/mcp"
MODULE: Final = "holdfast.mcp.server"
PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
INTERNAL_ERROR: Final = -32603
METADATA_PATHS: Final = ("/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource")
STDIO: Final = "holdfast-stdio"


class NotJson(InvalidRequest):
    """The body of a request to /mcp is not JSON."""


class NotInstalled(NotFound):
    """The extra that serves MCP is not installed."""


class Mount:
    """The MCP server of one process. Nothing of it is imported or started before the first request."""

    def __init__(self, services: Services, leaving: asyncio.Event) -> None:
        self._services, self._leaving = services, leaving
        self._oauth = services.settings.mcp.oauth
        self._tokens: Tokens | None = None
        self._server: asyncio.Future[McpServer] | None = None
        self._stop = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop.set()
        if self._work is not None:
            await asyncio.wait([self._work])

    @property
    def routes(self) -> tuple[Route, ...]:
        own = tuple(self._route(method) for method in _METHODS)
        return (
            own if self._oauth is None else (*own, *(self._metadata_route(path) for path in METADATA_PATHS))
        )

    def _metadata_route(self, path: str) -> Route:
        return Route(
            "GET", path, None, self._metadata, "How to get a token for /mcp.", "mcp", is_listed=False
        )

    async def _metadata(self, ask: Ask) -> dict[str, Any]:
        """Protected-resource metadata (RFC 9728): which issuer's tokens are accepted here."""
        assert self._oauth is not None
        return {
            "resource": self._oauth.audience,
            "authorization_servers": [self._oauth.issuer],
            "scopes_supported": sorted({*self._oauth.scopes, *SCOPES}),
            "bearer_methods_supported": ["header"],
        }

    @property
    def _challenge(self) -> str:
        base = self._services.settings.public_url or self._services.address or ""
        return f'Bearer resource_metadata="{base.rstrip("/")}{METADATA_PATHS[0]}"'

    async def _holder(self, token: str) -> Principal:
        """The holder of a token of the issuer."""
        if self._tokens is None:
            from holdfast.mcp.oauth import Tokens

            assert self._oauth is not None
            self._tokens = Tokens(self._oauth)
        return await self._tokens.principal_of(token)

    def _admits(self, ask: Ask) -> None:
        """Every caller of a guarded server has a key, and where an issuer is configured, a token; which scope it needs is known
        once the method is."""
        if ask.principal is ANONYMOUS or self._oauth is not None and ask.principal is LOCAL:
            raise Unauthorised("a key is needed here; send it as `Authorization: Bearer hf_…`")

    def _route(self, method: Method) -> Route:
        return Route(
            method,
            PATH,
            None,
            self._answer,
            "Speak MCP.",
            "mcp",
            body=dict[str, Any],
            reads=_read,
            admits=self._admits,
            tokens=None if self._oauth is None else self._holder,
            challenge="" if self._oauth is None else self._challenge,
            body_optional=method != "POST",
            replies="none",
            fault=fault,
            is_listed=False,
        )

    async def _answer(self, ask: Ask) -> Response:
        return Mounted(await self._started(), ask, self._leaving)

    async def _started(self) -> McpServer:
        """The server; of the first callers, one starts it and the others wait for that."""
        if self._server is None:
            self._server = asyncio.get_running_loop().create_future()
            self._work = asyncio.create_task(self._serve(self._server))
        return await asyncio.shield(self._server)

    async def _serve(self, started: asyncio.Future[McpServer]) -> None:
        """Entered and left by one task, as the task groups of the SDK need it."""
        try:
            try:
                # It takes a second, in which other requests must be answered.
                is_first = MODULE not in sys.modules
                module = await in_thread(import_module, MODULE)
                if is_first:
                    collector.expect_cycles()
            except ModuleNotFoundError as error:
                raise NotInstalled(
                    f"MCP needs an extra: pip install 'holdfast-engine[mcp]' ({error.name})"
                ) from None
            server: McpServer = module.McpServer(self._services, self._leaving)
            async with server.serving():
                started.set_result(server)
                await self._stop.wait()
        except Exception as error:
            if started.done():
                raise
            self._server = None  # the next request tries again
            started.set_exception(error)


class Mounted(Response):
    """A response that the MCP server writes itself."""

    def __init__(self, server: McpServer, ask: Ask, leaving: asyncio.Event) -> None:
        super().__init__()
        self._server, self._ask, self._leaving = server, ask, leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Any) -> None:
        from holdfast.mcp.talk import Caller

        ask, request_id = self._ask, self.headers["x-request-id"]
        name = ask.services.api_keys.name_of(ask.tenant, ask.principal.key_id)
        caller = Caller(ask.principal, name, request_id, ask.headers.get("traceparent"))
        # Blanks around a value do not belong to it (RFC 9110), and the parser leaves those at its end.
        own = {**scope, "headers": [(name, value.strip(b" \t")) for name, value in scope["headers"]]}
        # Over standard input and output there are no headers that could repeat the inputs of a tool.
        message = None if STDIO in ask.headers else ask.body
        app = self._server.handle(caller, message, own, self._body(receive), self._sender(send))
        work, leaving = asyncio.ensure_future(app), asyncio.ensure_future(self._leaving.wait())
        try:
            await asyncio.wait([work, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not work.done():  # a stream, or a call that is about to be answered
                await asyncio.wait([work], timeout=LEAVING_SECONDS)
            if work.done():
                work.result()
        finally:
            leaving.cancel()
            work.cancel()

    def _body(self, receive: Receive) -> Receive:
        """The body again, which was read, and after it what the connection says."""
        left = [self._ask.raw]

        async def again() -> Any:
            if left:
                return {"type": "http.request", "body": left.pop(), "more_body": False}
            return await receive()

        return again

    def _sender(self, send: Any) -> Any:
        request_id = self.headers["x-request-id"].encode("latin-1")

        async def forward(message: Any) -> None:
            if message["type"] == "http.response.start":
                self.status_code = message["status"]
                own = [(b"x-request-id", request_id), (b"x-content-type-options", b"nosniff")]
                message = {**message, "headers": [*message.get("headers", ()), *own]}
            await send(message)

        return forward


LEAVING_SECONDS: Final = 1.0
_METHODS: Final[tuple[Method, ...]] = ("POST", "GET", "DELETE")


def _read(raw: bytes, media: str) -> Any:
    try:
        message = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson(f"Parse error: the body is not JSON: {error}") from None
    if not isinstance(message, dict):
        raise InvalidRequest(
            "Invalid request: the body must be one JSON-RPC message; batches are not part of MCP"
        )
    if (wrong := _wrong_in(message)) is not None:
        raise InvalidRequest(f"Invalid request: {wrong}")
    return message


def _wrong_in(message: dict[str, Any]) -> str | None:
    """What keeps an object from being a message of JSON-RPC 2.0 as MCP speaks it."""
    if message.get("jsonrpc") != "2.0":
        return '`jsonrpc` must be "2.0"'
    number = message.get("id")
    if "id" in message and (isinstance(number, bool) or not isinstance(number, str | int)):
        return "`id` must be text or a whole number"
    if "method" not in message:
        is_answer = "id" in message and ("result" in message) != ("error" in message)
        return None if is_answer else "it needs a `method`, or an `id` with a `result` or an `error`"
    if not isinstance(message["method"], str):
        return "`method` must be text"
    return None if isinstance(message.get("params", {}), dict) else "`params` must be an object"


def fault(error: HoldfastError) -> dict[str, Any]:
    """An error before the protocol is spoken, in the shape of JSON-RPC."""
    code = PARSE_ERROR if isinstance(error, NotJson) else INVALID_REQUEST
    said = {"code": code, "message": str(error), "data": msgspec.to_builtins(fault_of(error))}
    return {"jsonrpc": "2.0", "id": None, "error": said}
