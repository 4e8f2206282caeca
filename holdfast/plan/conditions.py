"""Conditions: syntax trees → closures over what a run holds.

Knows how two values compare. Must not know text, or where the data is stored.

Two values that are numbers, or texts that look like numbers, compare as numbers; any others as texts, null being the
text `null` and lists and objects their JSON. So nothing is unlike by its type alone, and every condition has an answer.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from types import NoneType
from typing import Any, Final

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
    Some,
)
from holdfast.spec.reference import Literal, Reference
from holdfast.values import canonical

Look = Callable[[Reference], Any]  # what a reference holds now; null where there is nothing
Condition = Callable[[Look], bool]

NUMBER_CHARS_MAX: Final = 300  # a longer text of digits is a text; Python itself refuses some of them
_NUMBER_BEGINS: Final = frozenset("0123456789+-.")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")


def condition(expr: Expr) -> Condition:
    """What answers whether a condition holds."""
    match expr:
        case Every(parts):
            all_parts = [condition(part) for part in parts]
            return lambda look: all(part(look) for part in all_parts)
        case Some(parts):
            any_parts = [condition(part) for part in parts]
            return lambda look: any(part(look) for part in any_parts)
        case Not(part):
            inner = condition(part)
            return lambda look: not inner(look)
        case Exists(what):
            return lambda look: look(what) is not None
        case IsTrue(what):
            return lambda look: is_equal(look(what), True)
        case Always(value):
            return lambda look: value
        case Compare(word, left, right):
            first, second, holds = _value(left), _value(right), _COMPARISONS[word]
            return lambda look: holds(first(look), second(look))


def _value(operand: Operand) -> Callable[[Look], Any]:
    match operand:
        case Reference():
            return lambda look: look(operand)
        case Literal(value):
            return lambda look: value
        case Listed(items):
            members = [_value(item) for item in items]
            return lambda look: [member(look) for member in members]


# ------------------------------------------------------------------------------------------------- comparing


def is_equal(left: Any, right: Any) -> bool:
    return _compared(operator.eq, left, right)


def is_within(item: Any, whole: Any) -> bool:
    """Whether a list has a value that is equal, or a text a part. Null is a part of no text."""
    if isinstance(whole, list):
        return _has(whole, item)
    if isinstance(whole, str):
        return item is not None and _text(item) in whole
    return False


def _has(items: list[Any], item: Any) -> bool:
    """The same as asking `is_equal` of each, which would take seconds for a million of them."""
    number = _number(item)
    if number is not None:  # which only numbers can be equal to
        return any(
            member == number if type(member) in (int, float) else _number(member) == number
            for member in items
        )
    text = _text(item)
    if text in items:
        return True
    others = (list, dict) if text[:1] in ("[", "{") else (bool, NoneType)
    return any(isinstance(member, others) and _text(member) == text for member in items)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    return lambda left, right: _compared(compare, left, right)


_COMPARISONS: Final[dict[CompareWord, Callable[[Any, Any], bool]]] = {
    "eq": is_equal,
    "ne": _ordered(operator.ne),
    "gt": _ordered(operator.gt),
    "lt": _ordered(operator.lt),
    "ge": _ordered(operator.ge),
    "le": _ordered(operator.le),
    "in": is_within,
    "contains": lambda whole, item: is_within(item, whole),
}


def _compared(compare: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
    first = _number(left)
    second = None if first is None else _number(right)
    if first is None or second is None:
        return compare(_text(left), _text(right))
    return compare(first, second)


def _number(value: Any) -> int | float | None:
    """A number, or what a text that looks like one stands for. Whole ones are exact, whatever their size."""
    if isinstance(value, str):
        return _number_in(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _number_in(text: str) -> int | float | None:
    if text[:1] not in _NUMBER_BEGINS or len(text) > NUMBER_CHARS_MAX or not _NUMBER.match(text):
        return None
    digits = text[1:] if text[0] in "+-" else text
    number = int(text) if digits.isdecimal() else float(text)
    return number if math.isfinite(number) else None


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    text = canonical(value)
    # JSON has one kind of numbers: 1.0 is the same text as 1, inside of lists and objects too.
    return (canonical(_with_whole(value)) if b".0" in text else text).decode()


def _with_whole(value: Any) -> Any:
    """The same value with 1 for 1.0."""
    match value:
        case float() if value.is_integer() and abs(value) < 2**53:
            return int(value)
        case list():
            return [_with_whole(item) for item in value]
        case dict():
            return {key: _with_whole(member) for key, member in value.items()}
    return value
