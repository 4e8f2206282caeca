"""Making the JSON text of large results while the event loop goes on.

Knows where such work is done: what a tool returned as objects in a thread, piece by piece; what came from outside as bytes in
another process. Does not know what the result is for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.plan.answers import head_of
from holdfast.runtime.apart import LARGE_BYTES, apart, in_turns
from holdfast.tools.results import Unread, text_in_pieces
from holdfast.values import NotJson, decode, encode, is_too_deep, written


async def large_text(value: Any) -> bytes:
    """The text of a result for which `small_text` has none. Raises NotJson or OutputTooLarge."""
    if type(value) is Unread and len(value.content) > LARGE_BYTES:
        return await _read_apart(value.read, value.content)
    return await in_turns(lambda: text_in_pieces(value))


async def compact(content: bytes) -> bytes:
    """JSON that came from outside, as our own text of it. Raises NotJson."""
    return await _read_apart(_compact, content) if len(content) > LARGE_BYTES else _compact(content)


async def large_head_of(text: bytes) -> dict[str, Any] | None:
    """`head_of` for a text of any size."""
    if len(text) <= LARGE_BYTES or not text.startswith(b"{"):
        return head_of(text)
    if all(text.find(name) < 0 for name in _SAYING):
        return {}
    return decode(await apart(_head_text, text))  # type: ignore[no-any-return]  # made below


_SAYING: Final = (b'"pending"', b'"success"', b'"error"')  # without these, the rest of a head says nothing


def _head_text(text: bytes) -> bytes:
    return written(head_of(text))


def _compact(content: bytes) -> bytes:
    if is_too_deep(content):
        raise NotJson("it is nested too deeply")
    try:
        return encode(decode(content))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotJson("it is not JSON") from error


class _Order(msgspec.Struct):
    """In front of the content: which function reads it, and the limits in force."""

    module: str
    function: str
    limits: dict[str, int]


async def _read_apart(read: Callable[[bytes], bytes], content: bytes) -> bytes:
    head = written(_Order(read.__module__, read.__qualname__, limits.differing()))
    made = await apart(_read_by_order, head + b"\n" + content)
    end = made.index(b"\n")
    if end:
        raise NotJson(decode(made[:end]))
    return made[1:]


def _read_by_order(given: bytes) -> bytes:
    end = given.index(b"\n")
    order = msgspec.json.decode(given[:end], type=_Order)
    limits.put_in_force(limits.chosen(order.limits))
    read: Callable[[bytes], bytes] = getattr(importlib.import_module(order.module), order.function)
    try:
        return b"\n" + read(given[end + 1 :])
    except NotJson as error:
        return written(str(error)) + b"\n"
