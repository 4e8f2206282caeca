"""POST requests over kept-alive connections, which report whether the server can have received a request that failed.

Knows HTTP/1.1 and which addresses may be called, but not what is sent or what follows a failure. A connection carries one request at
a time; a caller that stops waiting closes it, so that the server sees the disconnect. No redirects, proxies or cookies; the size
of a response is limited, and its status is left to the caller.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any, Final
from urllib.parse import urlsplit

import httptools

from holdfast import limits
from holdfast.tools.failures import ToolError
from holdfast.tools.guard import Guard

ENVELOPE_BYTES: Final = 64 * 1024  # of a response, around its value
HEAD_BYTES_MAX: Final = 64 * 1024  # of a response, chunk sizes included
KEPT_MAX: Final = 100  # idle connections to one address
QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)  # Linux


class Unsent(ToolError):
    """The request was not sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="unsent")


class Broken(ToolError):
    """The request was sent, or may have been, and no complete response arrived."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="unknown")


class _Stale(Exception):
    """The server closed a kept-alive connection, as it may at any time, without a response."""


class Address:
    """The parsed target of requests."""

    __slots__ = ("authority", "base", "host", "idle", "port", "tls", "url")

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ToolError(f"the address cannot be read: {error}", kind="inputs") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.query:
            raise ToolError("an address is http:// or https://, a host, and perhaps a path", kind="inputs")
        if not url.isascii() or not url.isprintable() or " " in url:
            raise ToolError(
                "an address has no spaces, no control characters, and none beyond ASCII", kind="inputs"
            )
        self.url = url
        self.host, self.tls = parts.hostname, parts.scheme == "https"
        self.port = port or (443 if self.tls else 80)
        self.authority, self.base = parts.netloc, parts.path.rstrip("/")
        self.idle: list[_Connection] = []

    def head(self, path: str) -> bytes:
        """The head that all requests to one path share."""
        lines = (
            f"POST {self.base}{path} HTTP/1.1",
            f"Host: {self.authority}",
            "Content-Type: application/json",
        )
        return "".join(f"{line}\r\n" for line in lines).encode()

    def close(self) -> None:
        while self.idle:
            self.idle.pop().end()


class Poster:
    """Sends requests. The connections of an address are closed with it."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._tls: ssl.SSLContext | None = None

    async def post(self, to: Address, head: bytes, body: bytes, *, fresh: bool = False) -> bytes:
        """Send a request and return the body of the response. `fresh`: use a new connection, because a kept-alive one may have been closed."""
        request = b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
        if to.idle and self._guard.guarded and not to.idle[-1].is_judged:
            to.close()  # opened before outgoing calls were guarded
        if to.idle and not fresh:
            try:
                return await self._ask(to, to.idle.pop(), request)
            except _Stale:
                pass
        return await self._ask(to, await self._connect(to), request)

    async def _ask(self, to: Address, connection: _Connection, request: bytes) -> bytes:
        try:
            answer = await connection.ask(request)
        except asyncio.CancelledError:
            connection.end()
            raise
        if connection.is_reusable and len(to.idle) < KEPT_MAX:
            to.idle.append(connection)
        else:
            connection.end()
        return answer

    async def _connect(self, to: Address) -> _Connection:
        """Connect; in guarded mode only to an address that the guard has checked."""
        loop, tls = asyncio.get_running_loop(), self._tls_for(to)
        is_judged = self._guard.guarded
        hosts = [target.host for target in await self._guard.targets(to.url)]
        error: Exception = OSError("it has no address")
        for host in hosts:
            try:
                async with asyncio.timeout(limits.now.connect_secs_max):
                    _, connection = await loop.create_connection(
                        lambda: _Connection(to, is_judged=is_judged),
                        host,
                        to.port,
                        ssl=tls,
                        server_hostname=to.host if tls else None,
                    )
                    return connection
            except TimeoutError:
                which = limits.met("connect_secs_max")
                error = OSError(f"no connection within {limits.now.connect_secs_max} s ({which})")
            except (OSError, UnicodeError, ssl.SSLError) as failed:
                error = failed
        raise Unsent(f"no connection to {to.authority}: {error}")

    def _tls_for(self, to: Address) -> ssl.SSLContext | None:
        if to.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls if to.tls else None


class _Connection(asyncio.Protocol):
    """One connection, with at most one request on it. The parser calls the methods that begin with on_."""

    def __init__(self, to: Address, *, is_judged: bool) -> None:
        self._to, self.is_judged = to, is_judged
        self._transport: asyncio.Transport | None = None
        self._waiter: asyncio.Future[bytes] | None = None
        self._asked = 0
        self.is_reusable = False
        self._parser = httptools.HttpResponseParser(self)
        self._begin()

    def _begin(self) -> None:
        self._pieces: list[bytes] = []
        self._received = self._size = 0
        self._has_head = self._has_length = False

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        waiter: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        if self._transport is None:
            waiter.set_exception(_Stale() if self._asked else Broken("the connection was closed"))
            return waiter
        self._waiter, self._asked, self.is_reusable = waiter, self._asked + 1, False
        self._transport.write(request)
        return waiter

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ----------------------------------------------------------------------------------------- from the loop

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._waiter is None:
            return self.end()  # no request is waiting for it
        if self._received - self._size > HEAD_BYTES_MAX + len(data):
            return self._fail(Broken("the head of the answer is too long"))
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(Broken(f"the response is not HTTP: {error}"))
        if self._waiter is not None:
            self._acknowledge()

    def _acknowledge(self) -> None:
        """Acknowledge received bytes at once: servers that send head and body separately delay the body until then (40 ms)."""
        found = None if self._transport is None else self._transport.get_extra_info("socket")
        if found is not None and QUICK_ACK is not None:
            found.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport, self.is_reusable = None, False
        if self in self._to.idle:
            self._to.idle.remove(self)
        if self._waiter is None:
            return
        if self._has_head and not self._has_length and error is None:
            self._give()  # the body ends with the connection
        elif self._asked > 1 and not self._received:
            self._fail(_Stale())
        else:
            self._fail(Broken("the connection ended before a whole answer came"))

    # --------------------------------------------------------------------------------------- from the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._has_length = True

    def on_headers_complete(self) -> None:
        self._has_head = True

    def on_body(self, body: bytes) -> None:
        self._size += len(body)
        most = limits.now.value_bytes_max
        if self._size > most + ENVELOPE_BYTES:
            self._fail(
                Broken(f"the response is larger than {limits.size(most)} ({limits.met('value_bytes_max')})")
            )
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # an interim response
            self._has_head = self._has_length = False
            return
        self.is_reusable = self._parser.should_keep_alive() and self._transport is not None
        self._give()

    def _give(self) -> None:
        waiter, self._waiter = self._waiter, None
        answer = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._begin()
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)

    def _fail(self, error: Exception) -> None:
        waiter, self._waiter, self._pieces = self._waiter, None, []
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)
        self.end()
