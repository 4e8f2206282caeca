"""Decodes JSON from callers. Stricter than a plain decoder: limited depth, and no duplicate keys.

A decoder keeps the last of two equal keys, but a proxy, log or signature check in front of this server may have used the first, so
such a body is refused. A large body is decoded in another process, by the same functions. Knows no routes and no types.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidRequest, Problem
from holdfast.http.validation import invalid
from holdfast.jsontext import count_members
from holdfast.runtime.apart import LARGE_BYTES, apart, yield_after
from holdfast.values import JSON_DEPTH_MAX, JsonText, decode, is_too_deep, written

Members = dict[str, JsonText]  # of an object

SMALL_BYTES_MAX: Final = 4 * 1024  # up to here it is quicker to check each key
POINTER_BYTES_MAX: Final = 1024 * 1024  # beyond that, the position of a duplicate key is not searched for

_KEYS = re.compile(rb'"([^"]++)"\s*+:|"[^"]*+"')


def read_json(raw: bytes) -> Any:
    """Decode a body. Raise InvalidRequest, or msgspec.DecodeError if it is not JSON."""
    check_depth(raw)
    value = decode(raw)
    if not _is_plain(raw):
        _check_members(raw, value)
    return value


def read_members(raw: bytes) -> Members:
    """Return the members of a body that is an object. Raises as `read_json` does."""
    value = read_json(raw)
    if not isinstance(value, dict):
        raise InvalidRequest("the body must be an object")
    return {key: JsonText(written(part)) for key, part in value.items()}


async def read_large_members(raw: bytes) -> Members:
    """The same for a body of any size, without blocking the event loop."""
    if len(raw) <= LARGE_BYTES:
        return read_members(raw)
    made = await apart(_read_apart, raw)
    end = made.index(b"\n")
    sizes, problem = _heading.decode(made[:end])
    if problem is not None:
        raise InvalidRequest(*problem)
    members, at = Members(), end + 1
    for key, size in sizes:
        members[key] = JsonText(made[at : at + size])
        at += size
    await yield_after(made)
    return members


# In front of the texts: each key with the size of its text, or why the body is refused.
_heading = msgspec.json.Decoder(tuple[list[tuple[str, int]], tuple[str, list[Problem]] | None])


def _read_apart(raw: bytes) -> bytes:
    try:
        members = {key: member.text for key, member in read_members(raw).items()}
    except InvalidRequest as error:
        return written(([], (str(error), error.problems))) + b"\n"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        refusal = invalid(error, "body", Any)
        return written(([], (str(refusal), refusal.problems))) + b"\n"
    sizes = [(key, len(text)) for key, text in members.items()]
    return b"".join((written((sizes, None)), b"\n", *members.values()))


def check_depth(raw: bytes) -> None:
    if is_too_deep(raw):
        raise InvalidRequest(f"the body is nested deeper than {JSON_DEPTH_MAX} levels")


def check_keys(raw: bytes) -> None:
    """Check a body that a typed decoder has read. Raise InvalidRequest if an object has a duplicate key."""
    if not _is_plain(raw):
        _check_members(raw, decode(raw))


def _check_members(raw: bytes, value: Any) -> None:
    """Raise if a key occurs twice: re-encoding keeps each key once, so the number of members differs."""
    if count_members(raw) != count_members(written(value)):
        raise _has_twice(raw)


def _is_plain(raw: bytes) -> bool:
    """Return whether every key occurs only once in a small text, which is true of nearly all bodies."""
    # "a" may be written \u0061, and a key be empty
    if len(raw) > SMALL_BYTES_MAX or raw.find(b"\\") >= 0 or raw.find(b'""') >= 0:
        return False
    keys = [key for key in _KEYS.findall(raw) if key]
    return len(set(keys)) == len(keys)


class _Twice:
    def __init__(self, key: str) -> None:
        self.key = key


def _object(members: list[tuple[str, Any]]) -> Any:
    seen: dict[str, Any] = {}
    for key, value in members:
        if key in seen:
            return _Twice(key)
        seen[key] = value
    return seen


def _has_twice(raw: bytes) -> InvalidRequest:
    if len(raw) > POINTER_BYTES_MAX:
        return InvalidRequest("an object in the body has the same key twice; send each key once")
    pointer, key = _place_of_twice(json.loads(raw, object_pairs_hook=_object))
    problem = Problem("duplicate_key", f"duplicate key {key[:100]!a}", pointer)
    return InvalidRequest(
        f"the body has the same key twice at {pointer[:200]}; send each key once", [problem]
    )


def _place_of_twice(value: Any) -> tuple[str, str]:
    """Return the place of the first duplicate key. The pointer is built only once it is found: building it for every value would repeat a
    long key many times."""
    names: list[str] = []
    inner: list[Iterator[tuple[object, Any]]] = []
    while not isinstance(value, _Twice):
        if isinstance(value, dict | list):
            inner.append(iter(value.items() if isinstance(value, dict) else enumerate(value)))
            names.append("")
        while (member := next(inner[-1], None)) is None:
            inner.pop()
            names.pop()
        names[-1], value = _token(str(member[0])), member[1]
    return "/".join(("", *names, _token(value.key))), value.key


def _token(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
