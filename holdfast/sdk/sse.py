"""Parses server-sent events. Knows only the framing: no sockets, no JSON, no event types."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

# events carry errors and no outputs; a larger message is not from Holdfast
MESSAGE_BYTES_MAX: Final = 4 * 1024 * 1024

_LINE_END = re.compile(rb"\r\n|\n|\r")


class Message(NamedTuple):
    """`id` is None if the message has none. A message without data only moves the position."""

    id: str | None
    event: str
    data: str


class TooLarge(ValueError):
    """A message that never ends."""


class Parser:
    """Takes bytes as they arrive, split anywhere, and returns complete messages."""

    def __init__(self) -> None:
        self._rest = b""
        self._id: str | None = None
        self._event = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[Message]:
        text = self._rest + chunk
        held = b"\r" if text.endswith(b"\r") else b""  # its line feed may still be on its way
        *lines, rest = _LINE_END.split(text.removesuffix(held))
        self._rest = rest + held
        self._size += len(chunk)
        if self._size > MESSAGE_BYTES_MAX:
            raise TooLarge(f"a message of over {MESSAGE_BYTES_MAX:,} bytes")
        return [message for line in lines if (message := self._line(line)) is not None]

    def _line(self, line: bytes) -> Message | None:
        if not line:
            return self._end()
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._data.append(value)
            case "event":
                self._event = value
            case "id" if "\0" not in value:
                self._id = value
        return None  # any other name, and the empty one of a comment, says nothing

    def _end(self) -> Message | None:
        says = self._data or self._id is not None
        message = Message(self._id, self._event or "message", "\n".join(self._data)) if says else None
        self._id, self._event, self._data, self._size = None, "", [], len(self._rest)
        return message
