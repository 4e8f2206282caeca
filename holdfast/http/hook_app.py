"""The webhooks of a scheduler as an ASGI app, for a program that mounts it in a server of its own.

    app.mount("/", router)          Starlette, FastAPI; under another path the webhooks move with it

Knows what a host may send it: requests, and the beginning and end of a lifespan. Host names, keys and rates are the host's to check.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from holdfast.errors import NotFound
from holdfast.http.request import ClientGone, LargeBodies, Receive, Request, Scope
from holdfast.http.responses import Send, encoded, failure, send_answer
from holdfast.http.table import Reply
from holdfast.http.webhooks import Webhooks
from holdfast.runtime.clock import Clock
from holdfast.triggers.hooks import Hooks
from holdfast.triggers.occurrences import Occurrences


class AdmitsAll:
    """A program that mounts webhooks decides itself who may call."""

    is_guarded = False

    def count_webhook(self, path: str, client: str) -> None:
        pass


class HookApp:
    def __init__(self, hooks: Hooks, events: Occurrences, clock: Clock) -> None:
        self._webhooks = Webhooks(hooks, events, clock, AdmitsAll(), LargeBodies())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _lifespan(receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1000})
        request = Request(_below(scope), partial(_received, receive))
        try:
            answer = encoded(await self._answer(request))
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001  # a bug is answered too
            answer = failure(error, request)
        await send_answer(answer, request, scope, receive, send)

    async def _answer(self, request: Request) -> Reply:
        request.check_head()
        hook = self._webhooks.find(request)
        if hook is None:
            raise NotFound(f"there is no webhook at {request.path[:200]!a}")
        return await self._webhooks.answer(hook, request)


def _below(scope: Scope) -> Scope:
    """The request with its path as it is below the one that the app is mounted at. Not every server gives all keys of a scope."""
    path, root = scope["path"], scope.get("root_path", "").rstrip("/")
    if root and path.startswith(f"{root}/"):
        path = path[len(root) :]
    raw = scope.get("raw_path") or path.encode()
    defaults: dict[str, Any] = {"client": None, "query_string": b""}
    headers = [*scope["headers"]]
    if not any(name in (b"content-length", b"transfer-encoding") for name, _ in headers):
        headers.append((b"transfer-encoding", b"chunked"))  # a body may come unannounced, as in HTTP/2
    return {**defaults, **scope, "path": path, "raw_path": raw, "headers": headers}


async def _received(receive: Receive) -> Any:
    """A message with the keys that a server may leave out."""
    return {"body": b"", "more_body": False, **await receive()}


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = (await receive())["type"].removeprefix("lifespan.")
        await send({"type": f"lifespan.{event}.complete"})
        if event == "shutdown":
            return
