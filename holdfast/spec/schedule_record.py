"""A schedule as its author wrote it: one record, and back to plain data."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast import values
from holdfast.errors import Problem
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.document import Document, pointer_to
from holdfast.spec.field_types import fields_of
from holdfast.spec.moments import Moment
from holdfast.spec.problems import Where
from holdfast.spec.repairs import Source, patch_for
from holdfast.spec.triggers import Definition, Place


class ScheduleSpec(Definition, frozen=True):
    place: Place = Place()

    def to_data(self) -> dict[str, Any]:
        """The schedule as plain data, without defaults."""
        return {key: value for key, value in data_of(self).items() if key != "place"}

    def canonical(self) -> bytes:
        """One text per schedule, whatever order or explicit defaults it was written with."""
        return values.canonical(self.to_data())

    def problem(self, code: str, keys: Where, message: str, hint: str = "") -> Problem:
        """A problem of this schedule, placed at one of its keys if it was read from a text."""
        pointer = pointer_to((*self.place.at, *keys))
        line, column = self.place.document.mark(pointer) if self.place.document else (0, 0)
        at = (*self.place.at, *keys)
        given = Source(self.place.document.data) if self.place.document else Source()
        patch = patch_for(code, at, UNKNOWN, given)
        return Problem(code, message, pointer, line, column, hint, self.place.source, patch)


def data_of(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ from their defaults, by their names in the notation. Calendars have been written out."""
    fields = ((key, getattr(struct, name), default) for name, key, default in fields_of(type(struct)))
    return {key: _plain(value) for key, value, default in fields if value != default and key != "calendar"}


def _plain(value: Any) -> Any:
    match value:
        case Moment():
            return value.text
        case Document() | Place():
            return None
        case msgspec.Struct():
            kind = getattr(type(value), "kind", None)
            return ({"kind": kind} if kind else {}) | data_of(value)
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value
