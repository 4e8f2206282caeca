"""A worker's own small server: `POST /exec/{service}` with `{"input", "params"}`, answered with `{"result", "error"}`.

Knows the protocol of push workers. A caller that disconnects before the response cancels the call: an async tool is
cancelled, a process killed, and a sync tool can see it in its Context.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

import msgspec
import uvicorn

from holdfast.errors import InvalidInputs
from holdfast.listening import Listener
from holdfast.sdk.hearing import Heard
from holdfast.sdk.perform import Performer, answer, failed, refusal
from holdfast.tools.context import Context
from holdfast.values import VALUE_BYTES_MAX, RunId

BODY_BYTES_MAX: Final = VALUE_BYTES_MAX + 64 * 1024
BACKLOG: Final = 1_024
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class Call(msgspec.Struct):
    input: Any = None
    params: Any = {}


class Push:
    """An ASGI application, and the server around it."""

    def __init__(self, performer: Performer, url: str, stop_secs: float) -> None:
        self._performer = performer
        parts, host, port = _place(url)
        self._listener, port = _bound(host, port)
        name = f"[{host}]" if ":" in host else host
        self._base = parts.path.rstrip("/")
        self.url = f"http://{name}:{port}{self._base}"  # where it is really reached
        config = uvicorn.Config(
            self,
            lifespan="off",
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # the caller's address is not used
            backlog=BACKLOG,
            timeout_graceful_shutdown=max(1, int(stop_secs)),
        )
        self._server = Listener(config)

    async def serve(self) -> None:
        """Serve until `stop`; calls in progress then get the drain time to finish."""
        await self._server.serve([self._listener])

    async def is_up(self) -> None:
        await self._server.is_up.wait()

    def stop(self) -> None:
        self._server.stop()

    def close(self) -> None:
        self._listener.close()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        prefix = f"{self._base}/exec/"
        if scope["method"] != "POST" or not scope["path"].startswith(prefix):
            return await _say(send, 404, refusal("this is a worker: POST /exec/{service}", "not_found"))
        try:
            call = msgspec.json.decode(await _body(receive), type=Call)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return await _say(send, 400, refusal("bad request", "bad_request"))
        headers = dict(scope["headers"])
        key = headers.get(b"idempotency-key", b"").decode("latin-1")
        heard = Heard()
        context = Context(RunId(""), "", 0, key, emit=heard.emit)
        service = unquote(scope["path"][len(prefix) :])
        work = asyncio.ensure_future(
            self._performer.perform(service, call.input, call.params, context, heard)
        )
        if not await _done(work, receive, context):
            return
        error, logs = failed(work), heard.taken(is_end=True)
        if error is None:
            return await _say(send, 200, answer(work.result(), logs))
        said = {"logs": logs} if logs else {}
        await _say(send, 200, refusal(error.pop("error"), error.pop("error_kind"), **error, **said))


async def _done(work: asyncio.Future[bytes], receive: Any, context: Context) -> bool:
    """Whether the caller is still connected. Most calls finish before it is worth checking."""
    await asyncio.sleep(0)
    if work.done():
        return True
    leaving = asyncio.ensure_future(receive())
    try:
        await asyncio.wait([work, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            context.cancel()
            work.cancel()
            await asyncio.wait([work])
            return False
    finally:
        leaving.cancel()
    return True


async def _body(receive: Any) -> bytes:
    pieces, size = [], 0
    while True:
        message = await receive()
        piece = message.get("body", b"")
        pieces.append(piece)
        size += len(piece)
        if size > BODY_BYTES_MAX:
            raise msgspec.DecodeError("the request is too large")
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return b"".join(pieces)


async def _say(send: Any, status: int, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _place(url: str) -> tuple[SplitResult, str, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInputs(f"the url of a worker cannot be read: {error}") from None
    if parts.scheme != "http" or not parts.hostname:
        raise InvalidInputs(f"the url of a worker begins with http:// and a host, not as {url!r:.100}")
    return parts, parts.hostname, port


def _bound(host: str, port: int | None) -> tuple[socket.socket, int]:
    """Bind the requested port, or a free one; only on loopback if the worker's URL says so."""
    # a worker with a public URL must be reachable from outside
    place = "127.0.0.1" if host in LOOPBACK else "0.0.0.0"
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((place, port or 0))
    except OSError:
        listener.bind((place, 0))
    listener.setblocking(False)
    return listener, listener.getsockname()[1]
