"""The inputs of a run that a trigger starts: `{{trigger.…}}` is filled in.

    {{trigger.payload.items.0.name}}   a dotted path through objects and lists
    {{trigger.schedule_id}} workflow, kind, scheduled_at, fired_at, is_catchup

A text that is one placeholder becomes the value, of whatever type. Within a longer text a value is written out: texts as they
are, anything else as compact JSON, null as `null`. A placeholder that leads nowhere stays as it is, and is reported. These
differ from the templates of workflows (spec/expr.py) on purpose: a payload is another system's, and what it lacks is not a
mistake of the author. Text that was filled in is never parsed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from holdfast import limits
from holdfast.errors import LimitExceeded
from holdfast.spec.placeholders import placeholders
from holdfast.values import encode

_MISSING: Final = object()
# Texts that are kept with their placeholders found: those of schedules that fire again and again.
TEXTS_MAX: Final = 4_096
# A longer text is parsed at each fire: kept texts of any length could fill the memory.
KEPT_CHARS_MAX: Final = 1_024


class Path(NamedTuple):
    """A placeholder. `segments` are the names that follow `trigger`; none if it cannot lead anywhere."""

    text: str
    segments: tuple[str, ...]


class Parsed(NamedTuple):
    """A text, with its placeholders found. `whole` is the one that makes up all of it."""

    whole: Path | None
    pieces: tuple[str | Path, ...]


class Rendered(msgspec.Struct, frozen=True):
    """`unresolved` are the placeholders that led nowhere, each once."""

    value: Any
    unresolved: tuple[str, ...] = ()


def render(inputs: Any, trigger: Mapping[str, Any]) -> Rendered:
    """Fill in the placeholders of all texts in `inputs`; keys stay as they are.

    Raises LimitExceeded if the result is larger than a run's inputs may be.
    """
    rendering = _Rendering(trigger)
    value = rendering.of(inputs)
    return Rendered(value, tuple(rendering.unresolved))


class _Rendering:
    def __init__(self, trigger: Mapping[str, Any]) -> None:
        self._trigger = trigger
        self._texts: dict[str, str] = {}  # of values that are not texts, by their placeholder
        self._left = limits.now.value_bytes_max
        self.unresolved: dict[str, None] = {}

    def of(self, value: Any) -> Any:
        match value:
            case str():
                return self._filled(value) if "{{" in value else value
            case dict():
                return {key: self.of(member) for key, member in value.items()}
            case list():
                return [self.of(item) for item in value]
            case _:
                return value

    def _filled(self, text: str) -> Any:
        whole, pieces = (parsed_once if len(text) <= KEPT_CHARS_MAX else _parsed)(text)
        if whole is None:
            return "".join(self._written(pieces))
        value = self._value(whole)
        if value is _MISSING:
            return text
        self._text(whole.text, value)
        return value

    def _written(self, pieces: tuple[str | Path, ...]) -> Iterator[str]:
        for piece in pieces:
            if isinstance(piece, str):
                yield piece
                continue
            value = self._value(piece)
            yield "{{" + piece.text + "}}" if value is _MISSING else self._text(piece.text, value)

    def _value(self, path: Path) -> Any:
        value: Any = self._trigger if path.segments else _MISSING
        for segment in path.segments:
            value = _member(value, segment)
        if value is _MISSING:
            self.unresolved[path.text] = None
        return value

    def _text(self, path: str, value: Any) -> str:
        """A value as text. Its size counts each time it is filled in: a few placeholders could stand for gigabytes."""
        text = value if isinstance(value, str) else self._texts.get(path)
        if text is None:
            text = self._texts[path] = encode(value).decode()
        self._left -= len(text)
        if self._left < 0:
            raise too_large()
        return text


def too_large() -> LimitExceeded:
    message = (
        f"the inputs are larger than {limits.size(limits.now.value_bytes_max)} once the trigger is filled in"
    )
    return LimitExceeded("value_bytes_max", message)


def _parsed(text: str) -> Parsed:
    found = text.strip()
    if found.startswith("{{") and found.find("}}", 2) == len(found) - 2:
        return Parsed(_path(found[2:-2].strip()), ())
    pieces: list[str | Path] = []
    at = 0
    for start, end, path in placeholders(text):
        pieces += (text[at:start], _path(path))
        at = end
    return Parsed(None, (*pieces, text[at:]))


parsed_once = lru_cache(TEXTS_MAX)(_parsed)


def _path(text: str) -> Path:
    root, *segments = text.split(".")
    return Path(text, tuple(segments) if root == "trigger" else ())


def _member(value: Any, segment: str) -> Any:
    """A numeric segment is an index of a list, or a key of an object."""
    # The first test settles nearly every case, at a tenth of the cost.
    if type(value) is dict or isinstance(value, Mapping):
        return value.get(segment, _MISSING)
    if isinstance(value, list) and segment.isascii() and segment.isdigit() and len(segment) < 10:
        return value[int(segment)] if int(segment) < len(value) else _MISSING
    return _MISSING
