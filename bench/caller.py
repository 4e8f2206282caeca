"""Somebody who asks over HTTP as fast as one process can: bytes that are ready, on connections that stay open.

Knows as much of HTTP as it needs for answers with a length. A client library would cost more than what it measures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    body: bytes

    def encoded(self, host: str, port: int) -> bytes:
        head = (
            f"{self.method} {self.path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        )
        return f"{head}Content-Length: {len(self.body)}\r\n\r\n".encode() + self.body


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of many requests: how long each took, and the answers' bodies."""

    seconds: float
    cpu_seconds: float  # of whoever asked: near `seconds`, it would have measured itself
    latencies: list[float]
    bodies: list[bytes]

    @property
    def per_second(self) -> float:
        return len(self.bodies) / self.seconds

    @property
    def busy(self) -> float:
        """The part of the time that asking itself took."""
        return round(self.cpu_seconds / self.seconds, 2)


async def ask(host: str, port: int, requests: list[Request], *, connections: int) -> Asked:
    """Every request once, on so many connections, each with the next one as soon as it has its answer."""
    loop = asyncio.get_running_loop()
    encoded = iter([request.encoded(host, port) for request in requests])
    latencies: list[float] = []
    bodies: list[bytes] = []
    callers = []
    for _ in range(connections):
        transport, caller = await loop.create_connection(
            lambda: _Caller(encoded, latencies, bodies), host, port
        )
        caller.transport = transport
        callers.append(caller)
    began, cpu_began = time.perf_counter(), time.process_time()
    for caller in callers:
        caller.go_on()
    await asyncio.gather(*[caller.done for caller in callers])
    took, cpu_took = time.perf_counter() - began, time.process_time() - cpu_began
    for caller in callers:
        caller.transport.close()
    return Asked(took, cpu_took, latencies, bodies)


class _Caller(asyncio.Protocol):
    def __init__(self, requests: Iterator[bytes], latencies: list[float], bodies: list[bytes]) -> None:
        self._requests, self._latencies, self._bodies = requests, latencies, bodies
        self._buffer = b""
        self._asked_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport  # given by whoever made the connection

    def go_on(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self.done.set_result(None)
            return
        self._asked_at = time.perf_counter()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(self._buffer) < end + 4 + length:
            return
        self._latencies.append(time.perf_counter() - self._asked_at)
        if not head.startswith(b"http/1.1 2"):
            self._fail(RuntimeError(f"an answer of the bench was {self._buffer[:500]!r}"))
            return
        self._bodies.append(self._buffer[end + 4 :])
        self._buffer = b""
        self.go_on()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self._fail(error or RuntimeError("a connection of the bench was closed"))

    def _fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


def post(path: str, body: object) -> Request:
    return Request("POST", path, msgspec.json.encode(body))
