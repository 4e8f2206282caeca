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
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.errors import LimitExceeded
from holdfast.spec.placeholders import placeholders
from holdfast.values import encode

_MISSING: Final = object()


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
        whole = text.strip()
        if not (whole.startswith("{{") and whole.find("}}", 2) == len(whole) - 2):
            return "".join(self._pieces(text))
        path = whole[2:-2].strip()
        value = self._value(path)
        if value is _MISSING:
            return text
        self._text(path, value)
        return value

    def _pieces(self, text: str) -> Iterator[str]:
        """The text with each placeholder written out."""
        at = 0
        for start, end, path in placeholders(text):
            value = self._value(path)
            yield text[at:start]
            yield "{{" + path + "}}" if value is _MISSING else self._text(path, value)
            at = end
        yield text[at:]

    def _value(self, path: str) -> Any:
        root, *segments = path.split(".")
        value: Any = self._trigger if root == "trigger" and segments else _MISSING
        for segment in segments:
            value = _member(value, segment)
        if value is _MISSING:
            self.unresolved[path] = None
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


def _member(value: Any, segment: str) -> Any:
    """A numeric segment is an index of a list, or a key of an object."""
    if isinstance(value, Mapping):
        return value.get(segment, _MISSING)
    if isinstance(value, list) and segment.isascii() and segment.isdigit() and len(segment) < 10:
        return value[int(segment)] if int(segment) < len(value) else _MISSING
    return _MISSING
