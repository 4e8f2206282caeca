"""What one connection does with its requests, on a wire that is only remembered and at a time that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from holdfast.http.connections import Connection
from holdfast.http.request import Request
from holdfast.http.responses import encoded, send_answer
from holdfast.http.table import Reply
from tests.runtime.manual import by_hand, clock, settled

KEEP_ALIVE_SECS = 10
GET = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n"


class Wire(asyncio.Transport):
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def write(self, data: Any) -> None:
        self.writes.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...


async def says_its_body(scope: Any, receive: Any, send: Any) -> None:
    request = Request(scope, receive)
    body = await request.body(100)
    await send_answer(encoded(Reply({"body": body.decode()})), request, scope, receive, send)


def connected(app: Callable[..., Awaitable[None]] = says_its_body) -> tuple[Connection, Wire]:
    config = uvicorn.Config(
        app, http=Connection, lifespan="off", log_config=None, timeout_keep_alive=KEEP_ALIVE_SECS
    )
    config.load()
    connection, wire = Connection(config, ServerState(), {}), Wire()
    connection.connection_made(wire)
    return connection, wire


@by_hand
async def test_a_whole_response_is_one_write() -> None:
    connection, wire = connected()
    connection.data_received(POST + b"hi")
    await settled()
    (said,) = wire.writes
    assert said.startswith(b"HTTP/1.1 200 OK\r\n") and said.endswith(b'\r\n\r\n{"body":"hi"}')


@by_hand
async def test_a_body_that_arrives_after_its_request_began_is_waited_for() -> None:
    connection, wire = connected()
    for part in (POST, b"h", b"i"):
        assert wire.writes == []
        connection.data_received(part)
        await settled()
    assert wire.writes[0].endswith(b'{"body":"hi"}')


@by_hand
async def test_requests_that_were_sent_before_the_first_was_answered_are_answered_in_their_order() -> None:
    connection, wire = connected()
    connection.data_received(POST + b"ab" + POST + b"cd" + GET)
    await settled()
    assert [said.partition(b"\r\n\r\n")[2] for said in wire.writes] == [
        b'{"body":"ab"}', b'{"body":"cd"}', b'{"body":""}',
    ]  # fmt: skip


@by_hand
async def test_a_client_that_closes_after_one_request_is_told_that_the_server_closes_too() -> None:
    connection, wire = connected()
    connection.data_received(GET.replace(b"Host", b"Connection: close\r\nHost"))
    await settled()
    assert b"\r\nconnection: close\r\n" in wire.writes[0] and wire.is_closed


@by_hand
async def test_a_connection_is_idle_from_its_last_answer_on() -> None:
    connection, wire = connected()
    for _ in range(3):
        connection.data_received(GET)
        await clock().advance(KEEP_ALIVE_SECS - 1)
    assert not wire.is_closed and len(wire.writes) == 3
    await clock().advance(2)
    assert wire.is_closed


@by_hand
async def test_a_connection_whose_request_takes_long_is_not_idle() -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(3 * KEEP_ALIVE_SECS)
        await says_its_body(scope, receive, send)

    connection, wire = connected(slow)
    connection.data_received(GET)
    await clock().advance(3 * KEEP_ALIVE_SECS + 1)
    connection.data_received(GET)
    await clock().advance(3 * KEEP_ALIVE_SECS + 1)
    assert not wire.is_closed and len(wire.writes) == 2


@by_hand
async def test_a_stream_hears_that_its_client_is_gone_although_a_further_request_waits_behind_it() -> None:
    heard: list[str] = []

    async def streams(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        heard.append((await receive())["type"])

    connection, wire = connected(streams)
    connection.data_received(GET)
    await settled()
    connection.data_received(GET)
    await settled()
    wire.close()
    connection.connection_lost(None)
    await settled()
    assert heard == ["http.disconnect"]
