"""Results of tools as JSON text: values without a JSON form are refused, with their type and place.

A result of a few megabytes takes seconds to examine and encode, so a large one is written in pieces: many short calls of C code,
between which other threads get their turns. Knows msgspec's types, and pydantic's without importing pydantic. Must not know
where a tool runs.
"""

from __future__ import annotations

import inspect
import math
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.errors import InvalidInputs, LimitExceeded
from holdfast.tools.failures import OutputTooLarge
from holdfast.tools.forms import ACCEPTED, is_pydantic
from holdfast.values import JSON_DEPTH_MAX, NotJson, encode, is_too_deep

PIECE_BYTES: Final = 256 * 1024  # a larger result is written in pieces
MEMBERS_OF_A_PIECE: Final = 1_000


class Unread:
    """A large result in bytes. `read` is a module-level function that turns them into JSON text, possibly
    in another process. It raises NotJson if that is impossible."""

    __slots__ = ("content", "read")

    def __init__(self, read: Callable[[bytes], bytes], content: bytes) -> None:
        self.read, self.content = read, content


def result_text(value: Any) -> bytes:
    """Return the JSON text of a tool's result. Raise NotJson with the type and place of a part that has no JSON form.

    Raise OutputTooLarge before the text is built: a value that contains one part many times needs little memory, but its text
    may need all of it.
    """
    text = small_text(value)
    return text_in_pieces(value) if text is None else text


def small_text(value: Any) -> bytes | None:
    """Return the same for a result that is quickly examined and written; None for a larger one."""
    kind = type(value)
    if kind in _LEAVES:
        return None if kind is str and len(value) > PIECE_BYTES else _text(value)
    if kind is Unread:
        return None
    try:
        is_bent = _is_bent(value, PIECE_BYTES)
    except OutputTooLarge:
        return None
    return _text(value, is_bent=is_bent)


def _text(value: Any, *, is_bent: bool = False) -> bytes:
    try:
        text = encode(value)
    except NotJson as error:
        first = error
    else:
        if is_bent:
            raise NotJson(_bent_at(value))
        return text
    _refuse_unfinished(value)
    if mismatch := _bent_at(value):
        raise NotJson(mismatch)
    try:
        text = encode(msgspec.to_builtins(value, str_keys=True, enc_hook=_to_json))
    except RecursionError:
        raise NotJson("the value is circular or nested too deeply") from None
    except Exception:
        raise NotJson(_mismatch_in(value) or str(first)) from None
    if text.find(b"null") >= 0 and (mismatch := _mismatch_in(value)):  # pydantic too writes NaN as null
        raise NotJson(mismatch)
    return text


def text_in_pieces(value: Any) -> bytes:
    """Return the JSON text of a large result, for a thread beside the event loop."""
    if type(value) is Unread:
        return value.read(value.content)
    pieces = _Pieces()
    try:
        pieces.write(value, 1)
        text = b"".join(pieces.made)
        if is_too_deep(text):
            raise NotJson("")
    except OutputTooLarge:
        if _is_too_deep(value):
            raise NotJson(_CIRCULAR) from None
        raise
    except NotJson as error:  # it names a place within its piece
        place = _bent_at(value) or _mismatch_in(value)
        raise NotJson(place or str(error) or _CIRCULAR) from None
    return text


class _Pieces:
    """The text of a large value while it is written, and its size."""

    def __init__(self) -> None:
        self.made: list[bytes] = []
        self._size = 0

    def write(self, value: Any, depth: int) -> None:
        if depth > JSON_DEPTH_MAX + 1:
            raise NotJson("")
        kind = type(value)
        if (text := small_text(value)) is not None:
            self._add(text)
        elif kind is list or kind is tuple:
            self._write_list(value, depth)
        elif kind is dict:
            self._write_dict(value, depth)
        elif kind is str:
            self._write_str(value)
        else:  # an object of another class decides itself how it is written
            self._add(_text(value, is_bent=_is_bent(value)))

    def _add(self, text: bytes) -> None:
        self._size += len(text)
        if self._size > limits.now.value_bytes_max:
            raise OutputTooLarge
        self.made.append(text)

    def _write_list(self, value: Any, depth: int) -> None:
        mark = b"["
        for at in range(0, len(value), MEMBERS_OF_A_PIECE):
            part = value[at : at + MEMBERS_OF_A_PIECE]
            if (text := small_text(part)) is not None:
                self._add(mark + text[1:-1])
            else:
                for member in part:
                    self._add(mark)
                    self.write(member, depth + 1)
                    mark = b","
            mark = b","
        self._add(b"]")

    def _write_dict(self, value: dict[Any, Any], depth: int) -> None:
        mark, keys = b"{", list(value)
        for at in range(0, len(keys), MEMBERS_OF_A_PIECE):
            part = {key: value[key] for key in keys[at : at + MEMBERS_OF_A_PIECE]}
            if (text := small_text(part)) is not None:
                self._add(mark + text[1:-1])
            else:
                for key, member in part.items():
                    only_key = {key: None}
                    self._add(mark + _text(only_key, is_bent=_is_bent(only_key))[1 : -len("null}")])
                    self.write(member, depth + 1)
                    mark = b","
            mark = b","
        self._add(b"}")

    def _write_str(self, value: str) -> None:
        self._add(b'"')
        for at in range(0, len(value), PIECE_BYTES):
            self._add(_text(value[at : at + PIECE_BYTES])[1:-1])
        self._add(b'"')


def refuse_bent(value: Any, what: str) -> None:
    """Raise InvalidInputs if JSON would change the type of a part of a given value, such as a set."""
    kind = type(value)
    if kind in _LEAVES:
        return
    if kind is dict:  # most inputs are flat, and this runs at every start
        for key, member in value.items():
            if type(member) not in _LEAVES or type(key) not in _LEAVES:
                break
        else:
            return
    try:
        is_bent = _is_bent(value)
    except NotJson as error:
        raise InvalidInputs(f"{what}: {error}") from None
    except OutputTooLarge:
        most = limits.size(limits.now.value_bytes_max)
        message = f"{what}: over {most}; pass a path or a reference instead"
        raise LimitExceeded("input_too_large", message, "value_bytes_max") from None
    if is_bent:
        raise InvalidInputs(f"{what}: {_bent_at(value, 'pass', 'text')}")


def _refuse_unfinished(value: Any) -> None:
    if inspect.iscoroutine(value):
        value.close()  # or Python would warn that it was never awaited
        raise NotJson("a coroutine that was never awaited; make the tool `async def` and await it there")
    if inspect.isgenerator(value) or inspect.isasyncgen(value):
        raise NotJson(f"{_a(value)}; return a list of its items")


def _to_json(value: Any) -> Any:
    if isinstance(value, pathlib.PurePath):
        return str(value)
    if is_pydantic(type(value)):
        return sys.modules["pydantic"].TypeAdapter(type(value)).dump_python(value, mode="json")
    return _plain(value)


def _plain(value: Any) -> Any:
    """Convert subclasses of text and numbers, as HTML and numeric libraries return them."""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    raise NotImplementedError


def _mismatch_in(value: Any) -> str:
    """Describe the first part of a value that has no JSON form; empty if it cannot be found."""
    stack: list[tuple[Any, str, int]] = [(value, "$", 0)]
    while stack:
        top, where, depth = stack.pop()
        if depth > JSON_DEPTH_MAX:
            return _CIRCULAR
        if isinstance(top, float) and not math.isfinite(top):
            return f"{top} at {where}: NaN and infinity have no JSON form"
        if isinstance(top, str) and not _has_text(top):
            return f"text with half of a surrogate pair at {where}, which cannot be written"
        parts = _parts(top)
        if parts is not None:
            stack.extend((part, where + step, depth + 1) for step, part in parts)
        elif not _has_text(top):
            return f"{_a(top)} at {where}; return {ACCEPTED}"
    return ""


_CIRCULAR: Final = f"the value is circular or nested deeper than {JSON_DEPTH_MAX} levels"
# msgspec writes a set as a list and bytes as base64, which would be read back as another type.
_BENT: Final = (set, frozenset, bytes, bytearray, memoryview)
# Levels of nesting: few values have this many, and each level of a circular value may be twice as wide.
CIRCLES_SEARCHED_FROM: Final = 12
_LEAVES: Final = frozenset({str, int, bool, float, type(None)})


def _is_bent(value: Any, most: int | None = None) -> bool:
    """Return whether JSON would change the type of a part of a value. Visits a whole level at once, and stops when it has seen more
    than `most` bytes, or than a value may contain."""
    level, size, is_piece = [value], 0, most is not None
    most = limits.now.value_bytes_max if most is None else most
    for depth in range(JSON_DEPTH_MAX + 1):
        kinds = set(map(type, level))
        if str in kinds:
            size += sum([len(part) for part in level if type(part) is str])
        if kinds := kinds - _LEAVES:
            if any(issubclass(kind, _BENT) for kind in kinds | _kinds_of_keys(level, kinds)):
                return True
            size += sum([_width(part) for part in level if type(part) in kinds])
        is_large = size > most
        if is_large and is_piece:
            raise OutputTooLarge
        if (is_large or depth == CIRCLES_SEARCHED_FROM) and _is_too_deep(value):
            break
        if is_large:
            raise OutputTooLarge
        if not kinds:
            return False
        level = [part for one in level if type(one) in kinds for part in _members(one)]
    raise NotJson(_CIRCULAR)


def _kinds_of_keys(level: list[Any], kinds: set[type]) -> set[type]:
    if not any(issubclass(kind, dict) for kind in kinds):
        return set()
    return {type(key) for part in level if isinstance(part, dict) for key in part}


def _is_too_deep(value: Any) -> bool:
    """Return whether a value nests too deeply. It may contain one part many times, so each part of a level is visited once."""
    level = [value]
    for _ in range(JSON_DEPTH_MAX + 1):
        parts = (part for one in level for part in _members(one) if type(part) not in _LEAVES)
        if not (level := list({id(part): part for part in parts}.values())):
            return False
    return True


def _width(value: Any) -> int:
    """Return the least size of the members as text, without their contents: keys, a comma and one more character."""
    if type(value) is dict:
        return 4 * len(value) + sum([len(key) for key in value if type(key) is str])
    return 2 * len(value) if type(value) is list or type(value) is tuple else 0


def _members(value: Any) -> Iterable[Any]:
    if type(value) is dict:
        return value.values()
    if type(value) is list:
        return value
    return [part for _, part in _parts(value) or ()]


def _bent_at(value: Any, do: str = "return", files: str = "text, or a file in file_refs") -> str:
    """Describe the first part of a value whose type JSON would change, and what to `do` instead."""
    stack: list[tuple[Any, str, int]] = [(value, "$", 0)]
    while stack:
        top, where, depth = stack.pop()
        if isinstance(top, _BENT):
            other = "a list" if isinstance(top, set | frozenset) else files
            return f"{_a(top)} at {where} has no JSON form; {do} {other}"
        if isinstance(top, dict) and (keys := [key for key in top if isinstance(key, _BENT)]):
            return f"{_a(keys[0])} as a key of the object at {where} has no JSON form; use text"
        if depth > JSON_DEPTH_MAX:
            return ""  # circular or too deep, which is reported elsewhere
        stack.extend((part, where + step, depth + 1) for step, part in _parts(top) or ())
    return ""


def _parts(value: Any) -> Iterator[tuple[str, Any]] | None:
    if isinstance(value, dict):
        return ((f".{key}", part) for key, part in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ((f"[{index}]", part) for index, part in enumerate(value))
    kind = type(value)  # not the value itself, whose attributes may do anything
    names = getattr(kind, "__struct_fields__", None) or getattr(kind, "__dataclass_fields__", None)
    if names is None and is_pydantic(kind):
        names = getattr(kind, "model_fields", None)
    return None if names is None else ((f".{name}", getattr(value, name, None)) for name in names)


def _has_text(value: Any) -> bool:
    try:
        msgspec.json.encode(value, enc_hook=_to_json)
    except Exception:
        return False
    return True


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
