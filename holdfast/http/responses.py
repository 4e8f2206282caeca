"""Responses: from a value or an error to the bytes of an HTTP response. Every error has one shape and one table of statuses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.responses import Response

from holdfast.api.types import RETRY_AFTER_SECS, fault_of, status_of
from holdfast.errors import HoldfastError, MethodNotAllowed, TooManyRequests, Unavailable
from holdfast.http.request import AmbiguousHead, Receive, Request, Scope
from holdfast.http.table import Reply

log = logging.getLogger("holdfast.http")

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# In the scope of a request: how its connection sends a whole response by one write, if it can.
WHOLE: Final = "holdfast.whole"
PIECE_BYTES: Final = 1024 * 1024  # a body is sent in pieces of this size

_HEAD: Final = (
    b"content-type: application/json\r\ncontent-length: %d\r\nx-content-type-options: nosniff\r\n"
    b"cache-control: no-store\r\nx-request-id: %b\r\n"
)

_A_BUG: Final = "this is a bug in Holdfast; the log has details under %s"

_encode = msgspec.json.Encoder().encode


def failure(error: Exception, request: Request) -> Reply:
    """The response to a request that raised. An error that is not one of Holdfast's is a bug: the response has only the id of the
    request, because a traceback would reveal too much."""
    shown = error if isinstance(error, HoldfastError) else InternalError(_A_BUG % request.id)
    status = status_of(shown.code)
    if status == 500:
        log.error("request %s %s %a: %s", request.id, request.method, request.path, error, exc_info=error)
    return Reply(_shaped(shown, request), status, _headers_of(shown))


class InternalError(HoldfastError):
    code = "internal_error"


def _shaped(error: HoldfastError, request: Request) -> Any:
    return fault_of(error) if request.fault is None else request.fault(error)


def _headers_of(error: HoldfastError) -> Mapping[str, str]:
    if isinstance(error, TooManyRequests):
        return {"retry-after": str(error.retry_after_secs)}
    if isinstance(error, Unavailable):
        return {"retry-after": str(RETRY_AFTER_SECS)}
    if isinstance(error, MethodNotAllowed):
        return {"allow": ", ".join(error.allowed)}
    if isinstance(error, AmbiguousHead):
        return {"connection": "close"}
    if error.code == "unauthorised":
        return {"www-authenticate": getattr(error, "challenge", "Bearer")}
    return {}


def encoded(answer: Reply | Response) -> Reply | Response:
    """Encode the value of a response to bytes, so that a value that cannot be encoded is found before anything is sent."""
    if isinstance(answer, Response):
        return answer
    return Reply(_encode(answer.value), answer.status, answer.headers)


async def send_answer(
    answer: Reply | Response, request: Request, scope: Scope, receive: Receive, send: Send
) -> int:
    """Send a response and return its status."""
    if isinstance(answer, Response):
        answer.headers["x-request-id"] = request.id
        with suppress(OSError):  # the client disconnected meanwhile
            await answer(scope, receive, send)
        return answer.status_code
    body = answer.value if type(answer.value) is bytes else _encode(answer.value)
    if answer.status == 204:
        body = b""
    whole = scope.get(WHOLE)
    if whole is not None and len(body) <= PIECE_BYTES and not answer.headers and request.method != "HEAD":
        head = _HEAD % (len(body), request.id.encode())
        if whole(answer.status, head, body):
            return answer.status
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
        (b"x-request-id", request.id.encode()),
        *[(name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()],
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    for at in range(
        0, len(body) - PIECE_BYTES, PIECE_BYTES
    ):  # large bodies: other requests get their turns between pieces
        await send({"type": "http.response.body", "body": body[at : at + PIECE_BYTES], "more_body": True})
        await asyncio.sleep(0)
    rest = (len(body) - 1) // PIECE_BYTES * PIECE_BYTES if body else 0
    await send({"type": "http.response.body", "body": body[rest:] if rest else body})
    return answer.status
