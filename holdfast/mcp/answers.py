"""Answers of tools: JSON as text and as structured content, within a limit of tokens; errors with their problems.

A token is counted as four bytes. An answer that is larger is cut into parts of its JSON text, each with the cursor of the next.
Knows what the wire looks like, not what any tool does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast.api.types import fault_of
from holdfast.errors import HoldfastError, InvalidRequest

BYTES_PER_TOKEN: Final = 4
PIECE_BYTES_MIN: Final = 4  # of a part, so that every part gets further: no character is longer
CURSOR_PREFIX: Final = "at-"

_encode = msgspec.json.Encoder().encode


class Result(msgspec.Struct, frozen=True):
    """What a tool answers. `text` stands for the content if it is given; else the data itself, as JSON."""

    data: Any
    is_error: bool = False


def budget_of(max_tokens: int) -> int:
    """The bytes of an answer of this many tokens."""
    return max_tokens * BYTES_PER_TOKEN


def shown(
    result: Result, max_tokens: int, cursor: str | None = None, page: str | None = None
) -> dict[str, Any]:
    """The result of a tools/call."""
    text, data = fitted(result.data, max_tokens, cursor, page)
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": data,
        "isError": result.is_error,
    }


def fitted(data: Any, max_tokens: int, cursor: str | None = None, page: str | None = None) -> tuple[str, Any]:
    """Data as JSON text and as data, or the part of it that a cursor names. `page` is the cursor of a page of a list."""
    raw = _encode(data)
    if cursor is None and len(raw) <= budget_of(max_tokens):
        return raw.decode(), msgspec.json.decode(raw)  # parts of it may be JSON text already
    part = part_of(raw, _place(cursor)[0], budget_of(max_tokens), page=page or "")
    return _encode(part).decode(), part


def page_of(cursor: str | None) -> str | None:
    """The cursor of the page of a list that an answer shows, also where that answer was cut."""
    is_cut = cursor is not None and cursor.startswith(CURSOR_PREFIX)
    return cursor if not is_cut else _place(cursor)[1] or None


def part_of(
    raw: bytes,
    start: int,
    bytes_max: int,
    around: Callable[[str, str | None], dict[str, Any]] | None = None,
    page: str = "",
) -> dict[str, Any]:
    """A part of a text, with the members around it in at most `bytes_max` of JSON. Put one after the other, the parts are the
    whole text. `page` is the cursor that led to the text, if it is a page of a list."""

    def plain(piece: str, cursor: str | None) -> dict[str, Any]:
        note = (
            None
            if cursor is None
            else "a part of the JSON text; call again with the cursor for the next part"
        )
        return {"part": piece, "cursor": cursor, "bytes_total": len(raw), "note": note}

    size = bytes_max
    while True:
        piece = _text(raw, start, start + size)
        end = start + len(piece.encode())
        following = f"{CURSOR_PREFIX}{end}{':' if page else ''}{page}"
        part = (around or plain)(piece, following if end < len(raw) else None)
        over = len(_encode(part)) - bytes_max
        if over <= 0 or size <= PIECE_BYTES_MIN:
            return part
        # Quotes and backslashes take two bytes each once the part is written as JSON text again, so half may be enough.
        size = max(PIECE_BYTES_MIN, size - (over + 1) // 2)


def _text(raw: bytes, start: int, end: int) -> str:
    """The characters that begin between two bytes."""
    while start < len(raw) and start > 0 and raw[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(raw) and end > start and raw[end] & 0xC0 == 0x80:
        end -= 1
    return raw[start:end].decode(errors="replace")


def _place(cursor: str | None) -> tuple[int, str]:
    """Where a part begins, and the cursor of the page that it is a part of."""
    if cursor is None:
        return 0, ""
    digits, _, page = cursor.removeprefix(CURSOR_PREFIX).partition(":")
    if not cursor.startswith(CURSOR_PREFIX) or not digits.isdecimal() or len(digits) > 12:
        raise InvalidRequest("this cursor is not one of an answer that was cut; send it as it came")
    return int(digits), page


def refused(error: HoldfastError, text: str = "", **more: Any) -> Result:
    """An error as the result of a tool: code, message, and every problem with its pointer and patch."""
    fault: Mapping[str, Any] = msgspec.to_builtins(fault_of(error))
    said = {**fault, "message": text} if text else dict(fault)
    return Result({**said, **more}, is_error=True)
