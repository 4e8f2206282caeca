"""Cursors of lists. A position that counts the work of all tenants is sealed, so that it tells a caller nothing about others."""

from __future__ import annotations

from holdfast.errors import InvalidInputs
from holdfast.signing import hidden_number, shown_number


def cursor_at(key: bytes, which: str, number: int) -> str:
    """Return the cursor for a position in a list of one tenant (`which`). Only this server can read it."""
    return hidden_number(key, which, number)


def at_cursor(key: bytes, which: str, cursor: str) -> int:
    number = shown_number(key, which, cursor)
    if number is None:
        raise _no_cursor(cursor)
    return number


def cursor_of(number: int) -> str:
    """Return the cursor for a position that counts nothing but what the list itself shows."""
    return f"{number:x}"


def number_of(cursor: str) -> int:
    try:
        number = int(cursor, 16)
    except ValueError:
        number = -1
    if not 0 <= number < 2**62 or cursor != cursor_of(number):
        raise _no_cursor(cursor)
    return number


def cursor_of_text(text: str) -> str:
    """Return the cursor for a position by name."""
    return text.encode().hex()


def text_of_cursor(cursor: str) -> str:
    try:
        return bytes.fromhex(cursor).decode()
    except ValueError:
        raise InvalidInputs(
            f"{cursor!a:.50} is not a cursor; use the one that the previous page returned"
        ) from None


def _no_cursor(cursor: str) -> InvalidInputs:
    return InvalidInputs(
        f"{cursor!a:.50} is not a cursor of this list; use the one that the previous page returned, or omit it to start from the beginning"
    )
