"""A worker as small as can be, on a real socket: it notes what it is asked and answers, or misbehaves, as it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"


class Asked(msgspec.Struct):
    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def service(self) -> str:
        return self.line.split()[1].rpartition("/")[2]

    @property
    def data(self) -> Any:
        return msgspec.json.decode(self.body)


Answer = Callable[[Asked], Awaitable[bytes | None]]


class Served:
    """`answer` gives the bytes of an answer, or None to close the connection without one."""

    def __init__(self, answer: Answer) -> None:
        self.answer, self.asked = answer, list[Asked]()
        self.is_asked = asyncio.Event()
        self.is_left = asyncio.Event()  # somebody gave up waiting for an answer
        self.connections = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        try:
            while await self._answered(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
        }
        asked = Asked(head[0], headers, await reader.readexactly(int(headers["content-length"])))
        self.asked.append(asked)
        self.is_asked.set()
        answering = asyncio.ensure_future(self.answer(asked))
        leaving = asyncio.ensure_future(reader.read(1))
        await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            answering.cancel()
            self.is_left.set()
            return False
        leaving.cancel()
        await asyncio.wait([leaving])
        answer = answering.result()
        if answer is None:
            return False
        writer.write(answer)
        await writer.drain()
        return True


@asynccontextmanager
async def served(answer: Answer) -> AsyncIterator[Served]:
    worker = Served(answer)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


def said(body: bytes | str | dict[str, Any], *, status: int = 200) -> Answer:
    """A worker that always says the same."""
    text = (
        msgspec.json.encode(body)
        if isinstance(body, dict)
        else body.encode()
        if isinstance(body, str)
        else body
    )
    whole = b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(text), text)

    async def answer(asked: Asked) -> bytes:
        return whole

    return answer


def raw(answer_bytes: bytes | None) -> Answer:
    async def answer(asked: Asked) -> bytes | None:
        return answer_bytes

    return answer


async def silent(asked: Asked) -> bytes:
    """A worker that hangs."""
    await asyncio.Event().wait()
    raise AssertionError


def failing(error: str = "boom", kind: str | None = None) -> Answer:
    return said({"result": None, "error": error, **({"error_kind": kind} if kind else {})})
