"""Decodes the query of a URL into the type of its route. Knows how numbers and booleans are written, but no route.

Only fields of these types are converted: a workflow may have the name `null` or `1`. A name that takes a list is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect

from holdfast import limits
from holdfast.errors import InvalidRequest
from holdfast.http.validation import invalid

_WRITTEN: Final = (inspect.IntType, inspect.FloatType, inspect.BoolType)


@cache
def reader(wanted: type) -> Callable[[bytes], Any]:
    """Return a function that decodes a query into this type. It raises InvalidRequest. Inspecting the types of all routes
    takes a third of the time in which a server starts, so each is inspected once per process."""
    found = inspect.type_info(wanted)
    assert isinstance(found, inspect.StructType)
    written = frozenset(field.encode_name for field in found.fields if _is_written(field.type))
    lists = {
        field.encode_name: isinstance(field.type.item_type, inspect.LiteralType)
        for field in found.fields
        if isinstance(field.type, inspect.ListType)
    }

    def read(text: bytes) -> Any:
        given: dict[str, Any] = _words(text, lists) if text else {}
        for name in written & given.keys():
            given[name] = _value(given[name])
        try:
            return msgspec.convert(given, wanted)
        except msgspec.ValidationError as error:
            raise invalid(error, "query", wanted) from None

    return read


def _is_written(kind: inspect.Type) -> bool:
    """Return whether a type is a number, a boolean or null."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return any(isinstance(one, _WRITTEN) for one in kinds)


def _value(text: str) -> Any:
    """Decode a number or boolean as in JSON; anything else stays text, which is then refused."""
    try:
        value = msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    return text if value is None else value


def _words(text: bytes, lists: Mapping[str, bool]) -> dict[str, Any]:
    """The names and values of a query. A name of `lists` may be repeated; where it is true, a value may also be several with
    commas between them."""
    try:
        if text.count(b"&") >= limits.now.query_names_max:
            most = f"{limits.now.query_names_max:,} names ({limits.met('query_names_max')})"
            raise ValueError(f"it has more than {most}")
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError as error:  # that it is not ASCII or UTF-8 too
        raise InvalidRequest(f"the query cannot be read: {error}") from None
    words: dict[str, Any] = {name: [] for name, _ in pairs if name in lists}
    for name, value in pairs:
        if name in lists:
            words[name] += value.split(",") if lists[name] else [value]
        elif name in words:
            raise InvalidRequest("the query has the same name twice")
        else:
            words[name] = value
    return words
