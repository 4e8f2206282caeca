"""Connections to clients: limits for the time of a request, the size of its head, and the number of connections.

uvicorn reads heads without a limit of time or size, and closes a connection whose client does not read by waiting for
it. Here both are limited, so slow or broken clients do not affect other clients, however many there are.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, Final

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from holdfast import limits
from holdfast.api.types import Fault, status_of

FILES_KEPT: Final = 200  # for the database, artefacts and calls of our own
CHECK_SECS: Final = 1.0
PAUSE_SECS: Final = 0.5  # a check that is late by this much means that this process itself was blocked
LAST_CHECK_SECS: Final = 0.1  # at a kept connection before it is closed: a request may be there already


def connections_max() -> int:
    """Return the limit for connections, given the limit for open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limits.now.connections_max
    wanted = most + FILES_KEPT if hard == resource.RLIM_INFINITY else min(most + FILES_KEPT, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft - FILES_KEPT))


class Connection(HttpToolsProtocol):
    """`since` is when the current request started to arrive, or the connection if none did; None once the request is read."""

    max: int = limits.DEFAULTS.connections_max

    def __init__(self, *args: Any, **rest: Any) -> None:
        super().__init__(*args, **rest)
        self.since: float | None = None
        self.is_in_head = True
        self._head_bytes = 0
        self._unread = 0  # response bytes that the client had not read at the last check
        self._unread_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        if len(self.connections) > self.max and not self._make_room():
            self._refuse(
                "too_many_connections",
                f"there are {self.max:,} connections already; try again ({limits.met('connections_max')})",
            )

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return  # it was refused
        self._head_bytes += len(data)
        super().data_received(data)
        # A body may have arrived with its head, so a head is too large only if it is incomplete.
        if (
            self.is_in_head
            and self._head_bytes > limits.now.head_bytes_max
            and not self.transport.is_closing()
        ):
            self._refuse(
                "headers_too_large",
                f"the head of a request has at most {limits.size(limits.now.head_bytes_max)} ({limits.met('head_bytes_max')})",
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.since, self.is_in_head = self.loop.time(), True

    def on_headers_complete(self) -> None:
        self.is_in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.since, self.is_in_head, self._head_bytes = None, True, 0

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, unless a request has arrived: the loop runs timers before it reads sockets."""
        self.timeout_keep_alive_task = self.loop.call_later(
            LAST_CHECK_SECS, super().timeout_keep_alive_handler
        )

    def shutdown(self) -> None:
        """The server stops. A connection that it has accepted may have a request on it that was not read yet: it gets a response."""
        self.loop.call_later(LAST_CHECK_SECS, super().shutdown)

    def forgive(self, seconds: float) -> None:
        """Do not count time in which this process was paused: the client was not slow."""
        self.since = None if self.since is None else self.since + seconds
        self._unread_since += seconds

    def send_400_response(self, msg: str) -> None:
        self._refuse("invalid_request", "this is not HTTP/1.1")

    def check(self, now: float) -> None:
        """Close the connection if its client takes too long to send a request or to read a response."""
        if self._is_stalled(now) or self._is_late(now):
            self.transport.abort()

    def _is_late(self, now: float) -> bool:
        if self.since is None:
            return False
        # Data after the response is discarded: the body of a refused request.
        is_read = not self.is_in_head and not self._is_idle
        return now - self.since > (limits.now.request_secs_max if is_read else limits.now.head_secs_max)

    def _is_stalled(self, now: float) -> bool:
        unread = self.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._unread, self._unread_since = unread, now
            return False
        return now - self._unread_since > limits.now.stalled_secs_max

    def _make_room(self) -> bool:
        """Close another connection that waits for no response: an idle one, or the slowest at sending its head."""
        others: list[Connection] = [
            one for one in self.connections if isinstance(one, Connection) and one is not self
        ]
        idle = [one for one in others if one._is_idle]
        if not idle:
            return False
        slowest = min(idle, key=lambda one: one.since or 0.0)
        self.connections.discard(slowest)
        slowest.transport.abort()
        return True

    @property
    def _is_idle(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request
        return cycle is None or cycle.response_complete

    def _refuse(self, code: str, message: str) -> None:
        body = msgspec.json.encode(Fault(code, message))
        head = b"content-type: application/json\r\ncontent-length: %d\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
        self.transport.write(STATUS_LINE[status_of(code)] + head % len(body) + body)
        self.transport.close()


async def watch(connections: set[Any]) -> None:
    """Check every connection periodically, until cancelled."""
    loop = asyncio.get_running_loop()
    checked_at = loop.time()
    while True:
        await asyncio.sleep(CHECK_SECS)
        now = loop.time()
        late, checked_at = now - checked_at - CHECK_SECS, now
        for connection in list(connections):
            if late > PAUSE_SECS:
                connection.forgive(late)
            connection.check(now)
