"""Answers of tools: JSON as text and as structured content, within a limit of tokens; errors with their problems.

A token is counted as four bytes. An answer that is larger is cut into parts of its JSON text, each with the cursor of the next.
Knows what the wire looks like, not what any tool does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.api.types import fault_of
from holdfast.errors import HoldfastError, InvalidRequest

BYTES_PER_TOKEN: Final = 4
AROUND_BYTES: Final = 400  # of a part: the members around its text
CURSOR_PREFIX: Final = "at-"

_encode = msgspec.json.Encoder().encode


class Result(msgspec.Struct, frozen=True):
    """What a tool answers. `text` stands for the content if it is given; else the data itself, as JSON."""

    data: Any
    is_error: bool = False


def budget_of(max_tokens: int) -> int:
    """The bytes of an answer of this many tokens."""
    return max_tokens * BYTES_PER_TOKEN


def shown(result: Result, max_tokens: int, cursor: str | None = None) -> dict[str, Any]:
    """The result of a tools/call."""
    text, data = fitted(result.data, max_tokens, cursor)
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": data,
        "isError": result.is_error,
    }


def fitted(data: Any, max_tokens: int, cursor: str | None = None) -> tuple[str, Any]:
    """Data as JSON text and as data, or the part of it that a cursor names."""
    raw = _encode(data)
    if cursor is None and len(raw) <= budget_of(max_tokens):
        return raw.decode(), msgspec.json.decode(raw)  # parts of it may be JSON text already
    part = part_of(raw, _offset(cursor), max(BYTES_PER_TOKEN, budget_of(max_tokens) - AROUND_BYTES))
    return _encode(part).decode(), part


def part_of(raw: bytes, start: int, size: int) -> dict[str, Any]:
    """A part of a text. Put one after the other, the parts are the whole text."""
    # Quotes and backslashes take two bytes each once the part is written as JSON text again.
    while size > BYTES_PER_TOKEN and len(_encode(_text(raw, start, start + size))) > size + AROUND_BYTES // 2:
        size = size * 3 // 4
    piece = _text(raw, start, start + size)
    end = start + len(piece.encode())
    return {
        "part": piece,
        "cursor": f"{CURSOR_PREFIX}{end}" if end < len(raw) else None,
        "bytes_total": len(raw),
        "note": "a part of the answer as JSON text; call again with the cursor for the next part",
    }


def _text(raw: bytes, start: int, end: int) -> str:
    """The characters that begin between two bytes."""
    while start < len(raw) and start > 0 and raw[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(raw) and end > start and raw[end] & 0xC0 == 0x80:
        end -= 1
    return raw[start:end].decode(errors="replace")


def _offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    digits = cursor.removeprefix(CURSOR_PREFIX)
    if digits == cursor or not digits.isdecimal() or len(digits) > 12:
        raise InvalidRequest("this cursor is not one of an answer that was cut; send it as it came")
    return int(digits)


def refused(error: HoldfastError, text: str = "", **more: Any) -> Result:
    """An error as the result of a tool: code, message, and every problem with its pointer and patch."""
    fault: Mapping[str, Any] = msgspec.to_builtins(fault_of(error))
    said = {**fault, "message": text} if text else dict(fault)
    return Result({**said, **more}, is_error=True)
