"""Estimates the work of a schema's expensive rules. Knows which rules are expensive, and their cost in the library.

The library compares numbers digit by digit, unless both are small and whole: that takes a hundred times as long as a plain
rule, and grows with the square of the digits. Some formats take long too. So these are counted apart. One unit is
what a plain rule costs for one value, about 10 ns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import frexp
from typing import Any, Final, NamedTuple

COMPARISON: Final = 150  # units, measured
DIGITS_SQUARED: Final = 200  # squared number of digits of a large number that counts as one unit
FORMAT: Final = 30
FORMATS: Final = ("email", "idn-email", "idn-hostname")
SMALL: Final = 2**63
SHORT_LIST_MAX: Final = 16  # members of a list that are compared one by one, if they must differ
BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

PartsOf = Callable[[dict[str, Any]], Iterable[tuple[str, Any]]]  # keyword and schema


class Held(NamedTuple):
    """The parts of a value that are expensive to check."""

    numbers: int
    paired: int  # how often numbers are compared with each other if the members of every list must differ
    wide: int  # units that numbers with many digits take in each comparison
    texts: int


class DearRules:
    """The expensive rules of a schema."""

    def __init__(self, schema: Any, parts_of: PartsOf) -> None:
        self._compared = _most_met(schema, parts_of, _compared)
        self._bounded = _most_met(schema, parts_of, lambda part: sum(word in part for word in BOUNDS))
        self._unique = _most_met(schema, parts_of, lambda part: part.get("uniqueItems") is True)
        self._formats = _most_met(schema, parts_of, lambda part: part.get("format") in FORMATS)

    def work(self, value: Any) -> int:
        """The units that they take for a value at most."""
        met = self._compared + self._bounded + self._unique
        if not met and not self._formats:
            return 0
        held = _held(value)
        comparisons = self._compared * held.numbers + self._unique * held.paired
        return COMPARISON * comparisons + met * held.wide + FORMAT * self._formats * held.texts


def _most_met(root: Any, parts_of: PartsOf, own: Callable[[dict[str, Any]], int]) -> int:
    """The most that `own` gives for all schemas together that one value can meet. Of the schemas of names, and of places in
    a list, it meets one."""
    known: dict[int, int] = {}

    def met(schema: Any) -> int:
        if not isinstance(schema, dict):
            return 0
        if id(schema) not in known:
            one_of, all_of = [0], own(schema)
            for keyword, part in parts_of(schema):
                if keyword in ("properties", "prefixItems"):
                    one_of.append(met(part))
                else:
                    all_of += met(part)
            known[id(schema)] = all_of + max(one_of)
        return known[id(schema)]

    return met(root)


def _compared(schema: dict[str, Any]) -> int:
    """How many comparisons a schema makes with each number, without bounds that are small whole numbers."""
    bounds = [schema[word] for word in BOUNDS if word in schema and not _is_small(schema[word])]
    others = [schema[word] for word in ("multipleOf", "const") if word in schema]
    options = schema.get("enum", ())
    if all(_is_word(option) for option in options) or all(_is_small(option) for option in options):
        options = ()  # these are found by hash
    return len(options) + sum(_comparisons(value) for value in (*bounds, *others, *options))


def _comparisons(held: Any) -> int:
    """How many a value that a schema holds is worth: none if it holds no number, more if it has many digits."""
    numbers, _, wide, _ = _held(held)
    return bool(numbers) + wide // COMPARISON


def _held(value: Any) -> Held:
    stack: list[tuple[Any, int]] = [(value, 0)]
    numbers = paired = wide = texts = 0
    while stack:
        top, pairs = stack.pop()
        if isinstance(top, dict):
            stack.extend((part, pairs) for part in top.values())
        elif isinstance(top, list):
            if 1 < len(top) <= SHORT_LIST_MAX:
                pairs = max(pairs, len(top) // 2)
            stack.extend((part, pairs) for part in top)
        elif isinstance(top, int | float):
            numbers += 1
            paired += pairs
            wide += _wide(top)
        else:
            texts += 1
    return Held(numbers, paired, wide, texts)


def _wide(number: Any) -> int:
    if _is_small(number):
        return 0
    bits = abs(frexp(number)[1]) if isinstance(number, float) else number.bit_length()
    digits = bits * 3 // 10
    return digits * digits // DIGITS_SQUARED


def _is_small(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -SMALL <= value < SMALL


def _is_word(value: Any) -> bool:
    return value is None or isinstance(value, str | bool)
