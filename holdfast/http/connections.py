"""Connections to clients: limits for the time of a request, the size of its head, and the number of connections.

uvicorn reads heads without a limit of time or size, and closes a connection whose client does not read by waiting for
it. Here both are limited, so slow or broken clients do not affect other clients, however many there are. A request that has arrived as a
whole is read, and answered by one write, without the events and timers that uvicorn makes for each.
"""

from __future__ import annotations

import asyncio
import resource
from functools import cached_property
from typing import Any, Final
from urllib.parse import unquote

import httptools
import msgspec
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from holdfast import limits
from holdfast.api.types import Fault, status_of
from holdfast.http.responses import WHOLE

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


def config_of(app: Any, **more: Any) -> uvicorn.Config:
    """uvicorn's settings for connections of this kind: everything that it would do beside answering is left out."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the client is the peer of the connection; a header could be forged
        **more,
    )


class Exchange(RequestResponseCycle):
    """One request and its response. Nothing is made to wait with before something has to wait."""

    def __init__(self, connection: Connection, scope: dict[str, Any], *, keep_alive: bool) -> None:
        self._connection, self.scope = connection, scope  # type: ignore[assignment]
        self.transport, self.flow, self.logger = connection.transport, connection.flow, connection.logger
        self.access_log, self.default_headers = False, connection.server_state.default_headers
        self.on_response = connection.on_response_complete
        self.keep_alive = keep_alive
        self.waiting_for_100_continue = connection.expect_100_continue
        self.body, self.more_body = bytearray(), True
        self.disconnected = self.response_started = self.response_complete = self._is_read = False
        self.chunked_encoding: bool | None = None
        self.expected_content_length = 0
        scope[WHOLE] = self.answer

    @cached_property
    def message_event(self) -> asyncio.Event:  # type: ignore[override]
        event = asyncio.Event()
        if not self._is_read and (self.body or not self.more_body):
            event.set()
        return event

    def arrived(self) -> None:
        """More of the body is here, or its end."""
        if "message_event" in self.__dict__:
            self.message_event.set()

    async def receive(self) -> Any:
        is_whole = not (self.more_body or self._is_read or self.disconnected or self.response_complete)
        if not is_whole or "message_event" in self.__dict__:
            return await super().receive()
        self._is_read = True
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": False}

    def answer(self, status: int, head: bytes, body: bytes) -> bool:
        """Send a whole response; `head` has lines for all headers that are not the server's own. False if it cannot be sent at once."""
        if self.response_started or self.flow.write_paused:
            return False
        if self.disconnected:
            return True
        self.response_started = self.response_complete = True
        self.waiting_for_100_continue = False
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        own = b"".join([b"%b: %b\r\n" % header for header in self.default_headers])
        self.transport.write(b"".join((STATUS_LINE[status], own, head, end, body)))
        self.arrived()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()
        return True


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
        self._idle_since = 0.0
        self._idle_check: asyncio.TimerHandle | None = None
        self._at_work: RequestResponseCycle | None = (
            None  # what is answered while further requests wait in line
        )

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.since = self.loop.time()
        if len(self.connections) > self.max and not self._make_room():
            self._refuse(
                "too_many_connections",
                f"there are {self.max:,} connections already; try again ({limits.met('connections_max')})",
            )

    def connection_lost(self, exc: Exception | None) -> None:
        if (at_work := self._at_work) is not None and not at_work.response_complete:
            at_work.disconnected = True  # uvicorn tells only the last request
            at_work.message_event.set()
        super().connection_lost(exc)
        if self._idle_check is not None:
            self._idle_check.cancel()

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
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self.since, self.is_in_head = self.loop.time(), True

    def on_headers_complete(self) -> None:
        self.is_in_head = False
        version, url = self.parser.get_http_version(), httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": "",
            "headers": self.headers,
            "state": {},
            "method": self.parser.get_method().decode("ascii"),
            "path": unquote(path) if "%" in path else path,
            "raw_path": url.path,
            "query_string": url.query or b"",
        }
        before: RequestResponseCycle | None = self.cycle
        self.cycle = Exchange(self, scope, keep_alive=version != "1.0" and self.parser.should_keep_alive())
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, self.app)
        else:  # requests that are sent before the last one was answered wait in line
            self.flow.pause_reading()
            if not self.pipeline:
                self._at_work = before
            self.pipeline.appendleft((self.cycle, self.app))

    def on_body(self, body: bytes) -> None:
        exchange: Exchange = self.cycle  # type: ignore[assignment]
        if exchange.response_complete:
            return
        exchange.body += body
        if len(exchange.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        exchange.arrived()

    def on_message_complete(self) -> None:
        exchange: Exchange = self.cycle  # type: ignore[assignment]
        if not exchange.response_complete:
            exchange.more_body = False
            exchange.arrived()
        self.since, self.is_in_head, self._head_bytes = None, True, 0

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._at_work, app = self.pipeline.pop()
            self._start_asgi_task(self._at_work, app)
            return
        self._idle_since = self.loop.time()
        if self._idle_check is None:
            self._check_idle_in(self.timeout_keep_alive)

    def _check_idle_in(self, seconds: float) -> None:
        self._idle_check = self.loop.call_later(seconds, self._end_if_idle, self._idle_since)

    def _end_if_idle(self, idle_since: float) -> None:
        """Close an idle connection. One timer is kept through many requests, which only note when they ended."""
        self._idle_check = None
        if self.transport.is_closing():
            return
        if self.since is not None or not self._is_idle:
            return self._check_idle_in(self.timeout_keep_alive)
        left = self._idle_since + self.timeout_keep_alive - self.loop.time()
        if self._idle_since == idle_since and left <= -LAST_CHECK_SECS:
            self.transport.close()
        else:  # at last, once more: the loop runs timers before it reads sockets, and a request may be there
            self._check_idle_in(max(left, 0) + LAST_CHECK_SECS)

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
