"""Opening large arguments for a tool while the event loop goes on.

Knows which built-in tools can work on the text of their arguments. Does not know where the arguments come from.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.jsontext import few_members
from holdfast.plan.unread import decoded_in_pieces
from holdfast.runtime.apart import LARGE_BYTES, apart, in_turns
from holdfast.tools import builtin
from holdfast.tools.failures import ArgumentMismatch, ToolError, described
from holdfast.tools.registry import Tool
from holdfast.values import decode, encode, written

ARGUMENTS_MAX: Final = 100  # of a tool that takes some of them as text


async def opened(text: bytes, bind: Callable[[Any], Any], unread: frozenset[str] = frozenset()) -> Any:
    """Return the arguments in a text, as a tool takes them. Large ones are decoded in a thread, piece by piece; those that the tool
    takes as text are not decoded."""
    if len(text) <= LARGE_BYTES:
        return bind(decode(text))
    return await in_turns(lambda: bind(_decoded(text, unread)))


def _decoded(text: bytes, unread: frozenset[str]) -> Any:
    members = few_members(text, ARGUMENTS_MAX) if unread else None
    if members is None:
        return decoded_in_pieces(text)
    return {
        name: msgspec.Raw(member) if name in unread else decoded_in_pieces(member)
        for name, member in members.items()
    }


def on_text(tool: Tool) -> Callable[[bytes], Awaitable[bytes]] | None:
    """Return how a built-in tool makes its result from the text of its arguments, if it need not decode them here."""
    return _ON_TEXT.get(tool.fn)


class _Given(msgspec.Struct, forbid_unknown_fields=True):
    value: msgspec.Raw = msgspec.Raw(b"null")


_given: Final = msgspec.json.Decoder(_Given).decode


async def _echo(text: bytes) -> bytes:
    try:
        return bytes(_given(text).value)
    except msgspec.ValidationError as error:
        raise ArgumentMismatch(f"the arguments do not fit the tool 'echo': {error}") from None


class _Made(msgspec.Struct, omit_defaults=True):
    """In front of the result: why there is none."""

    failed: str | None = None
    kind: str = ""


async def _transform(text: bytes) -> bytes:
    made = await apart(_transform_apart, written(limits.differing()) + b"\n" + text)
    end = made.index(b"\n")
    said = msgspec.json.decode(made[:end], type=_Made)
    if said.failed is not None:
        raise ToolError(said.failed, kind=said.kind)
    return made[end + 1 :]


def _transform_apart(given: bytes) -> bytes:
    end = given.index(b"\n")
    limits.put_in_force(limits.chosen(decode(given[:end])))
    tool = Tool(builtin.transform, "transform")
    said, text = _Made(), b""
    try:
        text = encode(asyncio.run(builtin.transform(**tool.bind(decode(given[end + 1 :])))))
    except (ToolError, ValueError, RecursionError) as error:
        kind, message = described(error)
        said = _Made(message, kind)
    return written(said) + b"\n" + text


_ON_TEXT: Final[dict[Callable[..., Any], Callable[[bytes], Awaitable[bytes]]]] = {
    builtin.echo: _echo,
    builtin.transform: _transform,
}
