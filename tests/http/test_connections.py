"""Clients that are slow, broken or too many: each has an end, and the others are answered meanwhile."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader as Reader
from asyncio import StreamWriter as Writer
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from holdfast import limits
from holdfast.http import connections
from holdfast.http.connections import Connection
from tests.http.conftest import Asker
from tests.small_limits import with_limits

pytestmark = pytest.mark.anyio

CLIENTS = 200


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits of time that are over at the next look, and a look at every turn of the loop."""
    with_limits(monkeypatch, head_secs_max=0, request_secs_max=0, stalled_secs_max=0)
    monkeypatch.setattr(connections, "CHECK_SECS", 0.001)


async def sent(ask: Asker, data: bytes) -> tuple[Reader, Writer]:
    reader, writer = await asyncio.open_connection(ask.host, ask.port)
    writer.write(data)
    await writer.drain()
    return reader, writer


async def end_of(reader: Reader, writer: Writer) -> bytes:
    """All that a connection still says before the server ends it."""
    try:
        said = await reader.read()
    except ConnectionError:
        said = b""
    writer.close()
    return said


def head(ask: Asker, rest: str = "") -> bytes:
    return f"POST /api/v1/runs HTTP/1.1\r\nHost: {ask.host}:{ask.port}\r\n{rest}".encode()


JSON_OF_100 = "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("part", ["nothing", "half a head", "half a body"])
async def test_a_client_that_does_not_finish_a_request_is_cut_off(ask: Asker, part: str) -> None:
    said = {"nothing": b"", "half a head": head(ask), "half a body": head(ask, JSON_OF_100) + b"{"}[part]
    assert await end_of(*await sent(ask, said)) == b""


async def test_a_head_that_does_not_end_is_refused(ask: Asker) -> None:
    endless = head(ask, "X: ").ljust(limits.now.head_bytes_max + 1, b"x")
    said = await end_of(*await sent(ask, endless))
    assert said.startswith(b"HTTP/1.1 431") and msgspec.json.decode(said.split(b"\r\n\r\n")[1])["error"]


async def test_what_is_no_http_is_refused_in_the_shape_of_every_error(ask: Asker) -> None:
    said = await end_of(*await sent(ask, b"\x16\x03\x01 hello\r\n\r\n"))
    assert said.startswith(b"HTTP/1.1 400")
    assert msgspec.json.decode(said.split(b"\r\n\r\n")[1])["error"] == "invalid_request"


async def test_two_requests_in_one_packet_get_two_answers(ask: Asker) -> None:
    one = f"GET /healthz HTTP/1.1\r\nHost: {ask.host}:{ask.port}\r\n"
    reader, writer = await sent(ask, f"{one}\r\n{one}Connection: close\r\n\r\n".encode())
    assert (await end_of(reader, writer)).count(b"HTTP/1.1 200") == 2


async def test_when_all_places_are_taken_an_idle_client_makes_room(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "max", 5)
    slow = [await sent(ask, head(ask)) for _ in range(20)]
    assert (await ask("GET", "/api/v1/runs")).status == 200
    ended = [asyncio.ensure_future(end_of(*one)) for one in slow[:10]]
    assert await asyncio.gather(*ended) == [b""] * 10
    for _, writer in slow[10:]:
        writer.close()


async def test_when_all_places_are_taken_the_next_request_is_asked_to_come_back(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await ask.start(workflow="held")
    await ask.holds.began.wait()
    waits = asyncio.ensure_future(ask("POST", "/api/v1/runs", {"workflow": "held", "wait_secs": 60}))
    while len((await ask("GET", "/api/v1/runs")).body["items"]) < 2:
        await asyncio.sleep(0)
    with_limits(monkeypatch, head_secs_max=0.1)  # for whoever comes first and says nothing
    monkeypatch.setattr(Connection, "max", 0)  # the one that waits, and an idle one that makes room
    refused = [await end_of(*await sent(ask, b"")) for _ in range(2)]
    assert refused[-1].startswith(b"HTTP/1.1 503") and b"retry-after: 1" in refused[-1]
    ask.holds.free.set()
    assert (await waits).status == 200 and run_id


# ----------------------------------------------------------------------------------------- many at the same time


async def half_a_head(ask: Asker) -> Writer:
    return (await sent(ask, head(ask)))[1]


async def half_a_body(ask: Asker) -> Writer:
    return (await sent(ask, head(ask, JSON_OF_100) + b"{"))[1]


async def no_http(ask: Asker) -> Writer:
    return (await sent(ask, b"\x00\xff" * 100))[1]


async def nothing_at_all(ask: Asker) -> Writer:
    return (await sent(ask, b""))[1]


async def never_reads(ask: Asker) -> Writer:
    one = f"GET /openapi.json HTTP/1.1\r\nHost: {ask.host}:{ask.port}\r\n\r\n".encode()
    return (await sent(ask, one * 20))[1]


async def gives_up(ask: Asker) -> Writer:
    writer = (await sent(ask, head(ask, JSON_OF_100)))[1]
    writer.transport.abort()
    return writer


KINDS: list[Callable[[Asker], Awaitable[Writer]]] = [
    half_a_head,
    half_a_body,
    no_http,
    nothing_at_all,
    never_reads,
    gives_up,
]


async def test_beside_200_slow_and_broken_clients_others_are_answered(ask: Asker) -> None:
    writers = [await KINDS[number % len(KINDS)](ask) for number in range(CLIENTS)]
    answers = await asyncio.gather(
        *[
            ask("POST", "/api/v1/runs", {"workflow": "sum", "inputs": {"a": n}, "wait_secs": 30})
            for n in range(50)
        ]
    )
    assert [answer.body["output"] for answer in answers] == [n + 2 for n in range(50)]
    for writer in writers:
        writer.transport.abort()


@pytest.mark.usefixtures("hurried")
async def test_a_client_that_does_not_read_a_response_is_cut_off(ask: Asker) -> None:
    one = f"GET /openapi.json HTTP/1.1\r\nHost: {ask.host}:{ask.port}\r\n\r\n".encode()
    _, writer = await asyncio.open_connection(ask.host, ask.port, limit=1024)
    writer.write(one * 500)  # more than the buffers between us hold
    with pytest.raises(ConnectionError):
        await _send_for_ever(writer, one)
    writer.transport.abort()


async def _send_for_ever(writer: Writer, data: bytes) -> None:
    while True:
        writer.write(data)
        await writer.drain()
        await asyncio.sleep(0)
