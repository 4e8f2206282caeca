"""Values that stay JSON text because they are large, and how a part of one is found without decoding the rest.

Decoding 24 MiB takes up to two seconds and a gigabyte; scanning the same text for one name takes less than 0.1 s and no memory.
Knows JSON text and what scanning and decoding it cost. Does not know where a value is stored or what its part is used for.

An expression gives a decoded value, or `msgspec.Raw` if the value is larger than TEXT_BYTES_MIN: it is written as it is, and
`spec/work.read` decodes it where the value itself is needed, within a work budget.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast import limits
from holdfast.errors import ExpressionTooCostly, LimitExceeded
from holdfast.jsontext import cuts, has_few_members
from holdfast.values import decode

Members = tuple[str | int, ...]

TEXT_BYTES_MIN: Final = (
    256 * 1024
)  # a larger value stays text; a smaller one is decoded in about 10 ms at most
INDEXED_MEMBERS_MAX: Final = 500_000  # members of an array or object that one scan locates: 0.1 s
PIECE_BYTES: Final = 256 * 1024  # an array is scanned in pieces of this size
NAMES_IN_A_SCAN: Final = 16
SCANNED_OF_A_UNIT: Final = 170  # bytes scanned in the time of one unit of work
SCANS_MAX: Final = 2  # budgets of one expression that one decision may spend on scanning
FOUND_MAX: Final = 1_000  # parts of one value that are remembered
FOUND_BYTES_MAX: Final = 1024 * 1024


class Meter:
    """Counts the scans of one decision. A run keeps it with the values that were scanned, so it refers to nothing: a cycle with the
    draft of the decision would never be freed, because the garbage collector does not track drafts."""

    __slots__ = ("worked",)

    def __init__(self) -> None:
        self.worked = 0  # in units of spec/work.py


def value_in(text: bytes | Raw) -> Any:
    """Return the value of a JSON text: decoded, or as text if it is large."""
    if len(text) <= TEXT_BYTES_MIN:
        return decode(text)
    return text if type(text) is Raw else Raw(text)


def members_in(value: Any) -> Mapping[str, Any]:
    """Return the members of an object; those that are large as text. Any other value has none."""
    if type(value) is not Raw:
        return value if isinstance(value, dict) else {}
    if _begins(value) != b"{":
        return {}
    return {name: value_in(raw) for name, raw in _few_members(value).items()}


def opened(text: Raw) -> Any:
    """Return the value of a JSON text whose parts are looked up: decoded, or unread if it is large."""
    return decode(text) if len(text) <= TEXT_BYTES_MIN else Unread(text)


class Unread:
    """A large value of a run. Parts that were looked up are remembered; from the second lookup on, the members of an object are
    found by an index."""

    __slots__ = ("_bytes", "_found", "_index", "_inner", "_is_scanned", "meter", "raw")

    def __init__(self, raw: Raw, meter: Meter | None = None) -> None:
        self.raw, self.meter = raw, meter
        self._found: dict[tuple[Members, bool], Any] = {}
        self._bytes = 0
        self._is_scanned = False
        self._index: dict[str, Raw] | None = None
        self._inner: dict[str, Unread] = {}

    def get(self, name: str) -> Any:
        return self.at((name,))

    def at(self, members: Members, *, strict: bool = False) -> Any:
        """Return the value at a place, or null. Raises ExpressionTooCostly if finding it takes too long."""
        if not members:
            return self.raw
        key = (members, strict)
        if key in self._found:
            return self._found[key]
        raw = self.text_at(members, strict=strict)
        value = None if raw is None else value_in(raw)
        self._bytes += 0 if raw is None or type(value) is Raw else len(raw)
        if len(self._found) >= FOUND_MAX or self._bytes > FOUND_BYTES_MAX:
            self._found, self._bytes = {}, 0
        self._found[key] = value
        return value

    def text_at(self, members: Members, *, strict: bool = False) -> Raw | None:
        """Return the text at a place; None if there is none."""
        if self._index is None and not (self._is_scanned and self._make_index()):
            self._is_scanned = True
            return locate(self.raw, members, strict=strict, meter=self.meter)
        assert self._index is not None
        name, rest = str(members[0]), members[1:]
        raw = None if strict and not isinstance(members[0], str) else self._index.get(name)
        if raw is None or not rest:
            return raw
        if len(raw) <= TEXT_BYTES_MIN:
            return locate(raw, rest, strict=strict)
        if name not in self._inner:
            self._inner[name] = Unread(raw)
        self._inner[name].meter = self.meter
        return self._inner[name].text_at(rest, strict=strict)

    def _make_index(self) -> bool:
        if _begins(self.raw) != b"{":
            return False
        _spend(self.meter, 2 * len(self.raw))
        if not has_few_members(bytes(self.raw), INDEXED_MEMBERS_MAX):
            return False
        self._index = _OBJECT(self.raw)
        return True


def _begins(text: Raw) -> bytes:
    return bytes(memoryview(text)[:1])


def _spend(meter: Meter | None, size: int) -> None:
    """Count a scan of a text before it is made."""
    if meter is not None:
        meter.worked += size // SCANNED_OF_A_UNIT
        if meter.worked > SCANS_MAX * limits.now.expression_work_max:
            raise _too_costly()


def _too_costly() -> ExpressionTooCostly:
    return ExpressionTooCostly(
        "finding the parts of a large value takes too much work; pass on the value, or refer to fewer parts of it"
    )


# --------------------------------------------------------------------------------------------------------- locating

_ODD: Final = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')  # in names that a scan cannot be made for
_OBJECT: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_ARRAY: Final = msgspec.json.Decoder(list[Raw]).decode


def locate(
    text: bytes | Raw, members: Members, *, strict: bool = False, meter: Meter | None = None
) -> Raw | None:
    """Return the JSON text at a place within a JSON text, without building the values around it."""
    found: Raw | None = text if type(text) is Raw else Raw(text)
    at = 0
    while at < len(members) and found is not None:
        if len(found) > TEXT_BYTES_MIN:
            _spend(meter, len(found))
        begins = _begins(found)
        if strict and begins != (b"{" if isinstance(members[at], str) else b"["):
            return None
        if begins == b"{" and _ODD.search(str(members[at])):
            found = _few_members(found).get(str(members[at]))
            at += 1
        elif begins == b"{":
            names = _names(members[at : at + NAMES_IN_A_SCAN]) or (str(members[at]),)
            found = _named(names)(found)
            at += len(names)
        else:
            found = _indexed(found, members[at]) if begins == b"[" else None
            at += 1
    return found


def _names(members: Members) -> tuple[str, ...]:
    """Return the leading members that can only be names."""
    return tuple(str(member) for member in takewhile(_is_name, members))


def _is_name(member: str | int) -> bool:
    return _index_in(member) is None and not _ODD.search(str(member))


def _index_in(member: str | int) -> int | None:
    """Return which member of an array a name or number means."""
    if isinstance(member, int):
        return member
    return int(member) if member.removeprefix("-").isdecimal() else None


def _few_members(text: Raw) -> dict[str, Raw]:
    if len(text) > TEXT_BYTES_MIN and not has_few_members(bytes(text), INDEXED_MEMBERS_MAX):
        raise _too_costly()
    return _OBJECT(text)


@lru_cache(maxsize=256)
def _named(names: tuple[str, ...]) -> Callable[[Raw], Raw | None]:
    """Find nested members by name in one scan: members that are not asked for are passed over and not built."""
    inner: Any = Raw
    for name in reversed(names):
        inner = msgspec.defstruct("_Place", [("at", inner | UnsetType, UNSET)], rename={"at": name})
    decoder = msgspec.json.Decoder(inner).decode

    def find(text: Raw) -> Raw | None:
        try:
            found = decoder(text)
        except msgspec.ValidationError:
            return None  # something on the way is not an object
        for _ in names:
            if (found := found.at) is UNSET:
                return None
        return found  # type: ignore[no-any-return]  # the innermost is a Raw

    return find


def _indexed(text: Raw, member: str | int) -> Raw | None:
    number = _index_in(member)
    if number is None:
        return None
    if number >= 0:
        for piece in pieces_of(bytes(text)):
            listed = _ARRAY(piece)
            if number < len(listed):
                return listed[number]
            number -= len(listed)
        return None
    for piece in reversed(list(pieces_of(bytes(text)))):
        listed = _ARRAY(piece)
        if -number <= len(listed):
            return listed[number]
        number += len(listed)
    return None


# ----------------------------------------------------------------------------------------------------------- arrays


def pieces_of(text: bytes) -> Iterator[bytes]:
    """Yield an array or object as shorter ones with some of its members each, so that only a piece of it is decoded at a time."""
    if len(text) <= PIECE_BYTES:
        yield text
        return
    begin, opens, closes = 1, text[:1], text[-1:]
    for cut in cuts(text, PIECE_BYTES):
        yield opens + text[begin:cut] + closes
        begin = cut + 1
    yield opens + text[begin:]


def count_items(array: bytes) -> int:
    """Return the number of members of an array, if there are not too many for a fan-out."""
    count, most = 0, limits.now.items_max
    for piece in pieces_of(array):
        count += _count(piece)
        if count > most:
            raise LimitExceeded("items_max", f"a list of items has at most {most:,} members")
    return count


def _count(array: bytes) -> int:
    if array == b"[]":
        return 0
    return array.count(b",") + 1 if _is_flat(array) else len(_ARRAY(array))


def _is_flat(array: bytes) -> bool:
    """Return whether an array contains no strings and no nested values, so that every comma separates two members."""
    return b'"' not in array and array.rfind(b"[") == 0 and b"{" not in array


class Items:
    """The members of a JSON array, as texts by their number. Those of one piece at a time are located, as they are asked for."""

    __slots__ = ("_begins", "_listed", "_number", "_pieces", "_unseen")

    def __init__(self, array: bytes) -> None:
        self._unseen = pieces_of(array)
        self._pieces: list[bytes] = []
        self._begins: list[int] = [0]  # the number of the first member of each piece, and of the next one
        self._number = -1
        self._listed: list[Raw] = []

    def text(self, index: int) -> bytes:
        while index >= self._begins[-1]:
            self._take(next(self._unseen))
        number = bisect_right(self._begins, index) - 1
        if number != self._number:
            self._listed, self._number = _ARRAY(self._pieces[number]), number
        return bytes(self._listed[index - self._begins[number]])

    def _take(self, piece: bytes) -> None:
        self._listed, self._number = _ARRAY(piece), len(self._pieces)
        self._pieces.append(piece)
        self._begins.append(self._begins[-1] + len(self._listed))


# ------------------------------------------------------------------------------------------------ decoding in pieces


def decoded_in_pieces(text: bytes) -> Any:
    """Decode a large text by many short calls of C code, so that other threads get their turns between them."""
    begins = text[:1]
    if len(text) <= PIECE_BYTES or begins not in (b"[", b"{"):
        return decode(text)
    if begins == b"[":
        listed: list[Any] = []
        for piece in pieces_of(text):
            if len(piece) <= 2 * PIECE_BYTES:
                listed += decode(piece)
            else:
                listed += [decoded_in_pieces(bytes(member)) for member in _ARRAY(piece)]
        return listed
    found: dict[str, Any] = {}
    for piece in pieces_of(text):
        if len(piece) <= 2 * PIECE_BYTES:
            found |= decode(piece)
        else:
            found |= {name: decoded_in_pieces(bytes(member)) for name, member in _OBJECT(piece).items()}
    return found
