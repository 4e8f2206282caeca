"""Compile conditions from syntax trees to closures over the values of a run.

Knows how two values compare. Must not know the text of a condition, or where data is stored.

Numbers, and texts that look like numbers, are compared as numbers; all other values as texts, with null as the text `null` and
lists and objects as their JSON. So values never differ by type alone, and every comparison has a result.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from types import NoneType
from typing import Any, Final, assert_never

from holdfast.plan.expr import truthy
from holdfast.spec.condition import (
    Always,
    Compare,
    CompareWord,
    Every,
    Exists,
    Expr,
    IsTrue,
    Listed,
    Not,
    Operand,
    Path,
    Some,
)
from holdfast.spec.reference import Literal, Reference
from holdfast.spec.work import CHARS_OF_A_UNIT, Work, read
from holdfast.values import canonical

Lookup = Callable[[Any], Any]  # a Place → the current value of a reference; null if there is none
Holds = Callable[[Lookup, Work], bool]  # spends the work, or raises ExpressionTooCostly


class _Evaluation:
    """One evaluation: how references are resolved, and how much of the work budget is left."""

    __slots__ = ("at", "work")

    def __init__(self, lookup: Lookup, work: Work) -> None:
        self.at, self.work = lookup, work


Asked = Callable[[_Evaluation], bool]

NUMBER_CHARS_MAX: Final = 300  # a longer text of digits is a text; Python itself refuses some of them
MEMBERS_OF_A_UNIT: Final = 4  # members compared for one unit when a list is searched
TRIED_OF_A_UNIT: Final = 3_000  # characters that are compared in a search, at worst one by one
SHORT_CHARS, LONG_CHARS, PART_CHARS_MAX = 2_500, 30_000, 100  # where Python changes how it searches
DIGITS_OF_A_UNIT: Final = 50
_NUMBER_BEGINS: Final = frozenset("0123456789+-.")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")


def condition(expr: Expr) -> Holds:
    """Return a closure that evaluates a condition. It raises ExpressionTooCostly before it exceeds the work budget."""
    holds = _asked(expr)
    return lambda lookup, work: holds(_Evaluation(lookup, work))


def _asked(expr: Expr) -> Asked:
    match expr:
        case Every(parts):
            all_parts = [_asked(part) for part in parts]
            return lambda lookup: all(part(lookup) for part in all_parts)
        case Some(parts):
            any_parts = [_asked(part) for part in parts]
            return lambda lookup: any(part(lookup) for part in any_parts)
        case Not(part):
            inner = _asked(part)
            return lambda lookup: not inner(lookup)
        case Exists(what):
            return lambda lookup: lookup.at(what) is not None
        case IsTrue(Path() as path):  # as the condition of a branch: not null, false, 0 or empty
            return lambda lookup: truthy(lookup.at(path))
        case IsTrue(what):
            return lambda lookup: is_equal(read(lookup.at(what), lookup.work), True, lookup.work)
        case Always(value):
            return lambda lookup: value
        case Compare(word, left, right):
            first, second, holds = _value(left), _value(right), _COMPARISONS[word]
            return lambda lookup: holds(first(lookup), second(lookup), lookup.work)
        case _:
            assert_never(expr)


def _value(operand: Operand) -> Callable[[_Evaluation], Any]:
    match operand:
        case Reference() | Path():
            return lambda lookup: read(lookup.at(operand), lookup.work)
        case Literal(value):
            return lambda lookup: value
        case Listed(items):
            members = [_value(item) for item in items]
            return lambda lookup: [member(lookup) for member in members]
        case _:
            assert_never(operand)


# ------------------------------------------------------------------------------------------------- comparing


def is_equal(left: Any, right: Any, work: Work) -> bool:
    return _compared(operator.eq, left, right, work)


def is_within(item: Any, whole: Any, work: Work) -> bool:
    """Return whether a list contains an equal value, or a text contains a part. No text contains null."""
    if isinstance(whole, list):
        return _has(whole, item, work)
    if isinstance(whole, str):
        if item is None:
            return False
        part = _text(item, work)
        work.spend(_searching(len(whole), len(part)))
        return part in whole
    return False


def starts_with(whole: Any, part: Any, work: Work) -> bool:
    """Return whether a text begins with another one. Numbers are compared by their text; null begins with nothing."""
    if whole is None or part is None or isinstance(whole, list | dict):
        return False
    return _text(whole, work).startswith(_text(part, work))


def _searching(whole: int, part: int) -> int:
    """Return the cost of searching for a text in another. For short texts Python compares at every position in the worst case; for
    long ones it uses a faster algorithm."""
    tried = part if whole < SHORT_CHARS else min(part, PART_CHARS_MAX) if whole < LONG_CHARS else 1
    return whole // CHARS_OF_A_UNIT + whole * tried // TRIED_OF_A_UNIT


def _has(items: list[Any], item: Any, work: Work) -> bool:
    """Return the same as `is_equal` for any member, without comparing each: a million members would take seconds."""
    work.spend(len(items) // MEMBERS_OF_A_UNIT)
    number = _number(item)
    if number is not None:  # only numbers can be equal to it
        return any(_is_number(member, number, work) for member in items)
    text = _text(item, work)
    if text in items:
        return True
    others = (list, dict) if text[:1] in ("[", "{") else (bool, NoneType)
    return any(isinstance(member, others) and _text(member, work) == text for member in items)


def _is_number(member: Any, number: float, work: Work) -> bool:
    if type(member) in (int, float):
        return bool(member == number)
    work.spend(1 + (len(member) // DIGITS_OF_A_UNIT if isinstance(member, str) else 0))
    return _number(member) == number


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any, Work], bool]:
    return lambda left, right, work: _compared(compare, left, right, work)


_COMPARISONS: Final[dict[CompareWord, Callable[[Any, Any, Work], bool]]] = {
    "eq": is_equal,
    "ne": _ordered(operator.ne),
    "gt": _ordered(operator.gt),
    "lt": _ordered(operator.lt),
    "ge": _ordered(operator.ge),
    "le": _ordered(operator.le),
    "in": is_within,
    "contains": lambda whole, item, work: is_within(item, whole, work),
    "starts_with": starts_with,
}


def _compared(compare: Callable[[Any, Any], bool], left: Any, right: Any, work: Work) -> bool:
    first = _number(left)
    second = None if first is None else _number(right)
    if first is None or second is None:
        return compare(_text(left, work), _text(right, work))
    return compare(first, second)


def _number(value: Any) -> int | float | None:
    """Return a number, or the number that a text spells, or None. Integers are exact at any size."""
    if isinstance(value, str):
        return _number_in(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number_in(text: str) -> int | float | None:
    if text[:1] not in _NUMBER_BEGINS or len(text) > NUMBER_CHARS_MAX or not _NUMBER.match(text):
        return None
    digits = text[1:] if text[0] in "+-" else text
    number = int(text) if digits.isdecimal() else float(text)
    return number if math.isfinite(number) else None


def _text(value: Any, work: Work) -> str:
    if isinstance(value, str):
        work.spend(len(value) // CHARS_OF_A_UNIT)
        return value
    work.weigh(value)
    text = canonical(value)
    # JSON has one kind of numbers: 1.0 is the same text as 1, inside of lists and objects too.
    return (canonical(_with_whole(value)) if b".0" in text else text).decode()


def _with_whole(value: Any) -> Any:
    """Return the same value with 1 instead of 1.0."""
    match value:
        case float() if value.is_integer() and abs(value) < 2**53:
            return int(value)
        case list():
            return [_with_whole(item) for item in value]
        case dict():
            return {key: _with_whole(member) for key, member in value.items()}
        case _:
            pass
    return value
