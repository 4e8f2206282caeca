"""Tools on other machines: what a caller of them must be. Retries, and who is alive, are not known here."""

from __future__ import annotations

from typing import Any, Protocol

from holdfast.tools.context import Context


class RemoteCaller(Protocol):
    """Calls a tool on a server that goes by a name; give one as `Holdfast(..., remote=caller)`.

    What it returns is the tool's result. What it raises fails the attempt; raise `ToolError` with the kind `unsent`
    if the call surely never left, `unknown` if it may have been carried out, and `timeout` if no answer came in time.
    `context.cancelled` is true once the caller no longer waits for the result; the task is cancelled then too.
    """

    async def call(self, server: str, tool: str, args: dict[str, Any], context: Context) -> Any: ...
