"""One request of an MCP client: who asks, what its client can do, and what can be said to it while the request is open.

Knows the two eras of the protocol: up to 2025-11-25 a client opens a session and can be asked while a call is open; from
2026-07-28 each request stands alone, and questions are returned as results.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from holdfast.api.principal import Principal
from holdfast.errors import Forbidden, InvalidRequest

TASKS: Final = "io.modelcontextprotocol/tasks"
CALLER: Final = "holdfast.caller"  # the key in the scope of a request
# Names of the idempotency key of a call in its _meta. The first is ours; clients and proxies also send the others.
REQUEST_KEYS: Final = ("holdfast/idempotencyKey", "idempotencyKey", "idempotency_key", "request_id")
KEY_CHARS_MAX: Final = 200
Context = ServerRequestContext[Any, Any]


class Caller(msgspec.Struct, frozen=True):
    """Who sends a request to /mcp. `name` is that of the API key, which answers approvals."""

    principal: Principal
    name: str
    request_id: str = ""
    traceparent: str | None = None

    @property
    def tenant(self) -> str:
        return self.principal.tenant


class Talk:
    """A request that is being answered."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.caller: Caller = context.request.scope[CALLER]  # type: ignore[union-attr]

    @property
    def tenant(self) -> str:
        return self.caller.tenant

    def may(self, scope: str) -> bool:
        return self.caller.principal.may(scope)

    def need(self, scope: str) -> None:
        """Raise an error of the protocol unless the caller has this scope. For methods that are not tools."""
        try:
            self.caller.principal.need(scope)
        except Forbidden as error:
            raise MCPError(types.INVALID_REQUEST, str(error), {"error": error.code}) from None

    @property
    def is_modern(self) -> bool:
        return self.context.protocol_version in MODERN_PROTOCOL_VERSIONS

    @property
    def capabilities(self) -> types.ClientCapabilities:
        return self.context.session.client_capabilities or types.ClientCapabilities()

    @property
    def has_tasks(self) -> bool:
        return self.is_modern and TASKS in (self.capabilities.extensions or {})

    @property
    def can_be_asked(self) -> bool:
        """Whether the client can put a form to its user."""
        return self.capabilities.elicitation is not None

    @property
    def can_open_urls(self) -> bool:
        elicitation = self.capabilities.elicitation
        return elicitation is not None and elicitation.url is not None

    def require(self, capability: str) -> None:
        """Raise the error of the protocol for a capability that the client has not declared."""
        if capability == TASKS:
            if self.has_tasks:
                return
            needed: dict[str, Any] = {"extensions": {TASKS: {}}}
        else:
            if getattr(self.capabilities, capability, None) is not None:
                return
            needed = {capability: {}}
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"this call needs the client capability {capability}",
            {"requiredCapabilities": needed},
        )

    @property
    def meta(self) -> Mapping[str, Any]:
        return self.context.meta or {}

    @property
    def idempotency_key(self) -> str | None:
        """The caller's own id of this call: the same one again means the same run. Raise InvalidRequest if it cannot be one."""
        name = next((key for key in REQUEST_KEYS if self.meta.get(key) is not None), None)
        if name is None:
            return None
        key = self.meta[name]
        if not isinstance(key, str) or not 1 <= len(key) <= KEY_CHARS_MAX or not key.isprintable():
            raise InvalidRequest(f"{name} in _meta must be text of 1 to {KEY_CHARS_MAX} printable characters")
        return key

    # ------------------------------------------------------------------------------------ while it is open

    @property
    def hears_progress(self) -> bool:
        return self.meta.get("progress_token") is not None or not self.is_modern

    async def progress(self, done: float, total: float, message: str | None = None) -> None:
        token = self.meta.get("progress_token")
        if token is not None:
            await self.context.session.send_progress_notification(
                token, done, total, message, related_request_id=self._related
            )

    async def notify(self, method: str, params: dict[str, Any]) -> None:
        """Send a notification that is not one of the protocol, in the stream of this request."""
        told: Any = types.Notification[dict[str, Any], str](method=method, params=params)
        await self.context.session.send_notification(told, related_request_id=self._related)

    async def elicit(self, params: Mapping[str, Any]) -> types.ElicitResult:
        """Ask the user of a client of the older era, and wait for the answer."""
        session = self.context.session
        if params["mode"] == "url":
            return await session.elicit_url(
                params["message"], params["url"], params["elicitationId"], self.context.request_id
            )
        return await session.elicit_form(
            params["message"], params["requestedSchema"], self.context.request_id
        )

    @property
    def _related(self) -> Any:
        return self.context.request_id


def invalid_params(message: str, **data: Any) -> MCPError:
    return MCPError(types.INVALID_PARAMS, message, data or None)
