"""The position of an event reader, from which it can continue: the `id` of a server-sent event.

    41      all events of row 41 were sent
    41.1    and one event of the next row

The part before the point is the number of a row, for the events of one run, or a cursor of the store, for those of all runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from holdfast.store.feed import Cursor

_ROW: Final = re.compile(r"[0-9]{1,18}")
_SENT: Final = re.compile(r"[0-9]{1,9}")

EventT = TypeVar("EventT")
At = TypeVar("At", int, Cursor)  # the number of a row in one run, or a place among the rows of all runs


class Position(msgspec.Struct, Generic[At], frozen=True):
    """The position of a reader: all rows up to `after` were sent, and `sent` events of the next row.

    As text `7`, or `6.1` within a row. Resuming from the part before the point misses nothing.
    """

    after: At
    sent: int = 0

    def __str__(self) -> str:
        return f"{self.after}.{self.sent}" if self.sent else str(self.after)

    def has_sent(self, before: At, row: At, nth: int) -> bool:
        """Return whether event number n, counted from 1, of the row between `before` and `row` was sent."""
        return row <= self.after or before == self.after and nth <= self.sent


BEGINNING: Final[Position[int]] = Position(0)  # of the events of one run


def position_of(text: str, after_of: Callable[[str], At]) -> Position[At]:
    """Parse a position; `after_of` parses the part before the point. Raise ValueError if the text is not a position."""
    after, point, sent = text.partition(".")
    if point and not _SENT.fullmatch(sent):
        raise ValueError(f"behind the point of a position is a number, not {sent[:50]!r}")
    return Position(after_of(after), int(sent or 0))


def row_of(text: str) -> int:
    """Parse the number of a row of one run."""
    if not _ROW.fullmatch(text):
        raise ValueError(f"a position is a number, or two with a point between them, not {text[:50]!r}")
    return int(text)


def numbered(before: At, row: At, events: list[EventT]) -> list[tuple[Position[At], EventT]]:
    """Yield the events of a row, each with the position of a reader that has received it."""
    last = len(events)
    return [
        (Position(row) if nth == last else Position(before, nth), event)
        for nth, event in enumerate(events, 1)
    ]
