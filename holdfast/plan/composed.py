"""Texts composed from values. Their size is counted as they grow, so a text above the limit is never built.

Knows sizes and JSON text. Does not know where the parts come from or what the value is for: a caller that composes arguments
reports `input_too_large`, a caller that composes an output reports `output_too_large`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Raw

from holdfast import limits
from holdfast.values import decode, written

LIMIT = limits.now.value_bytes_max  # bytes of a composed value, with every reference followed
# gathered bytes below which sizes are not added up; about a hundredth of the limit
COUNTED_FROM: Final = 256 * 1024
SPACES: Final = (b"\n", b"\r", b"\t")  # the only control characters that a JSON text can contain
CHUNK_CHARS: Final = 1024 * 1024  # long text is escaped piece by piece, so that no second copy of it is made


def _adopt(chosen: limits.Limits) -> None:
    """Keep a copy of the limit as a plain number, because rendering reads it for every piece."""
    global LIMIT  # noqa: PLW0603
    LIMIT = chosen.value_bytes_max


limits.follow(_adopt)


class TooLarge(ValueError):
    """A composed value exceeds the limit. `kind` is the error kind that dispatch reports for the arguments of a call."""

    kind = "input_too_large"

    def __init__(self) -> None:
        super().__init__(
            f"the value is over {limits.size(LIMIT)} with its references followed ({limits.met('value_bytes_max')})"
        )


def printed(value: Any) -> str:
    """Format a value inside text: strings as they are, null as empty text, anything else as JSON."""
    if isinstance(value, str):
        return value
    if type(value) is Raw and _is_string(value):
        return str(decode(value))
    return "" if value is None else written(value).decode()


def _is_string(text: Raw) -> bool:
    return bytes(memoryview(text)[:1]) == b'"'


def escaped_text(value: Any) -> Iterator[bytes]:
    """Yield a value inside text, as escaped between the quotes of a JSON string. A large string is its own text."""
    if type(value) is Raw and _is_string(value):
        yield bytes(memoryview(value)[1:-1])
        return
    if type(value) is not Raw:
        yield from escaped_chunks(printed(value))
        return
    text = bytes(value)
    _refuse_escaped(text)
    if any(text.find(each) >= 0 for each in SPACES):
        yield from escaped_chunks(text.decode())
    else:  # one call for the whole of it, not one for each character
        yield text.replace(b"\\", b"\\\\").replace(b'"', b'\\"')


def _refuse_escaped(text: bytes) -> None:
    """Raise TooLarge if a text is too large once its quotes are escaped: it is found out faster than by escaping them."""
    if len(text) + text.count(b'"') + text.count(b"\\") > LIMIT:
        raise TooLarge


def escaped_chunks(text: str) -> Iterator[bytes]:
    """Yield a text as escaped between the quotes of a JSON string."""
    if len(text) <= CHUNK_CHARS:
        yield written(text)[1:-1]
        return
    for at in range(0, len(text), CHUNK_CHARS):
        yield written(text[at : at + CHUNK_CHARS])[1:-1]


def refuse_large(hits: Iterable[Any]) -> None:
    """Raise TooLarge if the values that a search found are too large together. It may find the same value many times."""
    size = 0
    for hit in hits:
        size += len(written(hit)) + 1
        if size > LIMIT:
            raise TooLarge
