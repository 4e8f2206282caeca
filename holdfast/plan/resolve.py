"""References, secrets and escaped keys in rendered text: how user data is told apart from them, and how they are filled in.

    {"$of": path, "at": pointer}   an existing value        {"$secret": name}        a secret
    {"$text": [part, …]}           text around secrets      a user's key `$x`        is written `$$x`

Works on the compact JSON text that rendering makes, because a rendered value can be large. Does not know where values are stored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from holdfast.errors import ExpressionTooCostly
from holdfast.plan import composed
from holdfast.plan.composed import TooLarge
from holdfast.plan.unread import Members
from holdfast.values import decode, encode, written

MARKS_MAX: Final = 250_000  # strings in one value that begin with `$`; escaping this many takes 0.1 s

# An unescaped quote after `{` or `,` begins a string, and one that ends before a colon is a key. Patterns begin with a fixed
# text, for which the interpreter searches much faster.
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_USER_KEY: Final = re.compile(rb'"\$(?<=[{,]"\$)(?=[^"\\]*+(?:\\.[^"\\]*+)*+":)')
_SECRET: Final = rb'\{"\$secret":' + _STRING + rb"\}"
_MARK: Final = re.compile(
    rb'"\$(?<=[{,]"\$)(?:(?<=\{"\$)(?:'
    rb'of":(?P<of>' + _STRING + rb'),"at":(?P<at>' + _STRING + rb")\}"
    rb'|secret":(?P<secret>' + _STRING + rb")\}"
    rb'|text":(?P<text>\[(?:' + _STRING + rb"|" + _SECRET + rb"|,)*+\])\}"
    rb')|\$(?=[^"\\]*+(?:\\.[^"\\]*+)*+":))'
)


class SecretMissing(ValueError):
    kind = "secret"


TextAt = Callable[[str, Members], bytes]
SecretOf = Callable[[str], str]


def pointer_of(members: Members) -> str:
    return "".join("/" + str(member).replace("~", "~0").replace("/", "~1") for member in members)


def members_of(pointer: str) -> Members:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:])


def reference_to(path: str, members: Members) -> bytes:
    return encode({"$of": path, "at": pointer_of(members)})


def escaped_key(key: str) -> str:
    return "$" + key if key.startswith("$") else key


def escaped(text: bytes) -> bytes:
    """Escape a user's keys that begin with `$` by a second one, so that user data is never taken for a reference."""
    _check_marks(text)
    return _USER_KEY.sub(b'"$$', text)


def _check_marks(text: bytes) -> None:
    if len(text) > MARKS_MAX and text.count(b'"$') > MARKS_MAX:
        raise ExpressionTooCostly(f"the value has more than {MARKS_MAX:,} texts that begin with `$`")


def _no_secrets(name: str) -> str:
    raise SecretMissing(f"the secret {name!r} stands where none can be filled in")


def resolved(text: bytes, text_at: TextAt, secret_of: SecretOf = _no_secrets) -> bytes:
    """Resolve rendered JSON text for a call: follow references, insert secrets, undo escapes.

    The size is counted here too, because an earlier release did not count it when rendering. Raises TooLarge.
    """
    _check_marks(text)
    parts, size = list[bytes](), 0
    for part in _filled(text, text_at, secret_of):
        size += len(part)
        if size > composed.LIMIT:
            raise TooLarge
        parts.append(part)
    return b"".join(parts)


def resolved_bytes(text: bytes, bytes_at: Callable[[str, Members], int]) -> int:
    """Return about how large a rendered text is with its references followed, without following them."""
    size = len(text)
    for mark in _MARK.finditer(text):
        if mark["of"] is not None:
            size += bytes_at(decode(mark["of"]), members_of(decode(mark["at"])))
    return size


def _filled(text: bytes, text_at: TextAt, secret_of: SecretOf) -> Iterator[bytes]:
    done = 0
    for mark in _MARK.finditer(text):
        if mark["of"] is not None:
            yield text[done : mark.start() - 1]
            yield text_at(decode(mark["of"]), members_of(decode(mark["at"])))
        elif mark["secret"] is not None:
            yield text[done : mark.start() - 1]
            yield written(secret_of(decode(mark["secret"])))
        elif mark["text"] is not None:
            yield text[done : mark.start() - 1]
            yield from _text(decode(mark["text"]), secret_of)
        else:
            yield text[done : mark.end() - 1]  # without the second `$`
        done = mark.end()
    yield text[done:]


def _text(parts: list[Any], secret_of: SecretOf) -> Iterator[bytes]:
    yield b'"'
    for part in parts:
        yield written(part if isinstance(part, str) else secret_of(part["$secret"]))[1:-1]
    yield b'"'
