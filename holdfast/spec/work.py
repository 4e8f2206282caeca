"""How much work an expression may take, counted in values visited. Knows no clock: the same data costs the same everywhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from msgspec import Raw

from holdfast import limits
from holdfast.errors import ExpressionTooCostly
from holdfast.jsontext import count_commas
from holdfast.values import decode

# One unit is one value visited; comparing its contents costs more. The maximum takes at most about 0.1 s.
COMPARED: Final = 3  # two values compared, without their members
CHARS_OF_A_UNIT: Final = 1_000  # characters compared or searched for one unit of work
READ_OF_A_UNIT: Final = 128  # bytes of JSON decoded for one unit,
MEMBERS_READ_OF_A_UNIT: Final = 3  # and members of it decoded for one unit
WRITTEN_OF_A_UNIT: Final = 200  # bytes encoded as JSON for one unit, when values are compared


class Work:
    """The work that one evaluation may still do. Raises ExpressionTooCostly before the work is done, not after."""

    __slots__ = ("left", "limit")

    def __init__(self, limit: str = "expression_work_max") -> None:
        self.limit = limit
        self.left: int = getattr(limits.now, limit)

    def spend(self, units: int) -> None:
        self.left -= units
        if self.left < 0:
            most = getattr(limits.now, self.limit)
            message = (
                f"the expression takes more than {most:,} units of work; give it a smaller part of the data"
            )
            raise ExpressionTooCostly(message, self.limit)

    @property
    def spent(self) -> int:
        return int(getattr(limits.now, self.limit)) - self.left

    def spend_on_reading(self, text: bytes) -> None:
        """Spend what it costs to decode a JSON text. Commas inside strings cost nothing, but they are only recognised where it matters."""
        by_size = len(text) // READ_OF_A_UNIT
        units = by_size + text.count(b",") // MEMBERS_READ_OF_A_UNIT
        if units > self.left >= by_size:
            most = (self.left - by_size + 1) * MEMBERS_READ_OF_A_UNIT
            units = by_size + count_commas(text, most) // MEMBERS_READ_OF_A_UNIT
        self.spend(units)

    def weigh(self, value: Any) -> None:
        """Spend the cost of writing a whole value."""
        stack = [value]
        while stack:
            top = stack.pop()
            if isinstance(top, str):
                self.spend(1 + len(top) // WRITTEN_OF_A_UNIT)
            elif isinstance(top, dict):
                self.spend(1 + len(top) + _chars(top) // WRITTEN_OF_A_UNIT)
                stack.extend(top.values())
            elif isinstance(top, list):
                self.spend(1 + len(top))
                stack.extend(top)


def read(value: Any, work: Work | None = None) -> Any:
    """Decode a large value that was left as text, if the work budget allows it. Other values are returned as they are."""
    if type(value) is not Raw:
        return value
    text = bytes(value)
    (work or Work()).spend_on_reading(text)
    return decode(text)


def _chars(names: Collection[str]) -> int:
    """The length of all names of an object, which are compared like any text."""
    return sum(map(len, names))


def is_same(left: Any, right: Any, work: Work) -> bool:
    """Return whether two JSON values are equal: numbers by value, and true is not 1. Spends the values compared up to the first difference."""
    pairs: list[Iterator[tuple[Any, Any]]] = [iter([(left, right)])]
    while pairs:
        pair = next(pairs[-1], None)
        if pair is None:
            pairs.pop()
            continue
        one, other = pair
        work.spend(COMPARED)
        if isinstance(one, list) and isinstance(other, list):
            if len(one) != len(other):
                return False
            pairs.append(zip(one, other, strict=True))
        elif isinstance(one, dict) and isinstance(other, dict):
            if len(one) != len(other):
                return False
            work.spend(len(one))
            work.spend(_chars(one) // CHARS_OF_A_UNIT)
            if one.keys() != other.keys():
                return False
            pairs.append(zip(one.values(), map(other.__getitem__, one), strict=True))
        elif isinstance(one, str) and isinstance(other, str):
            work.spend(min(len(one), len(other)) // CHARS_OF_A_UNIT)
            if one != other:
                return False
        elif isinstance(one, bool) is not isinstance(other, bool) or one != other:
            return False
    return True
