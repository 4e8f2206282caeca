"""The interface for calling tools on other machines. Does not know retries or which servers are alive."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.tools.context import Context


class RemoteCaller(Protocol):
    """Calls tools on other servers, which are known by a name; pass one as `Holdfast(..., remote=caller)`.

    The return value is the tool's result. An exception fails the attempt; raise `ToolError` with the kind `unsent`
    if the call was certainly not sent, `unknown` if it may have been carried out, and `timeout` if no response came in time.
    `context.cancelled` is true once the caller no longer waits for the result; the task is cancelled then too.
    """

    async def call(self, server: str, tool: str, args: dict[str, Any], context: Context) -> Any: ...
