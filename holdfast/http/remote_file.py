"""A file that is on another machine, sent to a client in pieces as it is read there: whole, or one range of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PIECE_BYTES: Final = 4 * 1024 * 1024  # of one request to the other machine, and in memory
DIGITS_MAX: Final = 18  # of a number in a range


class File(Protocol):
    size: int

    async def read(self, start: int, end: int) -> bytes: ...


class RemoteFile(Response):
    """`etag` names the content. A request for several ranges gets the whole file, as RFC 9110 allows."""

    media_type = "application/octet-stream"

    def __init__(
        self, file: File, asked: Mapping[str, str], etag: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._file, self.background = file, None
        self.status_code, self._start, self._end = _part(asked, etag, file.size)
        self.init_headers({**(headers or {}), "accept-ranges": "bytes", "etag": etag})
        self.headers["content-length"] = str(self._end - self._start)
        if self.status_code == 206:
            self.headers["content-range"] = f"bytes {self._start}-{self._end - 1}/{file.size}"
        elif self.status_code == 416:
            self.headers["content-range"] = f"bytes */{file.size}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        at = self._start
        is_head = scope["method"] == "HEAD"
        # The first piece is read before the status is sent: a bucket that is away is an error of its own.
        piece = b"" if is_head else await self._read(at)
        head: dict[str, Any] = {
            "type": "http.response.start",
            "status": self.status_code,
            "headers": self.raw_headers,
        }
        await send(head)
        while not is_head and at + len(piece) < self._end:
            at += len(piece)
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            piece = await self._read(at)
        await send({"type": "http.response.body", "body": piece})

    async def _read(self, at: int) -> bytes:
        return await self._file.read(at, min(at + PIECE_BYTES, self._end))


def _part(asked: Mapping[str, str], etag: str, size: int) -> tuple[int, int, int]:
    """The status of the answer, and which bytes it has."""
    text = asked.get("range", "")
    unit, separator, rest = text.partition("=")
    first, dash, last = (part.strip() for part in rest.partition("-"))
    numbers = [one for one in (first, last) if one]
    is_one = bool(separator and dash and numbers) and unit.strip().lower() == "bytes"
    if not is_one or not all(one.isascii() and one.isdigit() and len(one) <= DIGITS_MAX for one in numbers):
        return 200, 0, size
    if asked.get("if-range", etag) != etag:
        return 200, 0, size
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= size:
        return 416, 0, 0
    return (206, start, end) if start < end else (200, 0, size)
