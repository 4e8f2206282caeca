"""Conditions of the graph notation: data → syntax tree, and back.

    {"and": [{"gt": ["$shared.total", 100]}, {"not": "$params.is_draft"}]}
        ──► Every((Compare("gt", Reference(…), Literal(100)), Not(IsTrue(Reference(…)))))

Knows the operators and what each of them takes. Must not know what a reference holds, or how two values compare.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeAlias
from typing import Literal as OneOf

import msgspec

from holdfast.spec import foreign
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.expr import ExprError, Member
from holdfast.spec.patch import NO_PATCH, replace
from holdfast.spec.problems import Report, Where, did_you_mean, meant, quoted, type_name
from holdfast.spec.reference import ROOTS, Literal, Reference, is_reference, reference, reference_like
from holdfast.values import decode

CompareWord = OneOf["eq", "ne", "gt", "lt", "ge", "le", "in", "contains"]

COMPARE_WORDS: Final[tuple[CompareWord, ...]] = ("eq", "ne", "gt", "lt", "ge", "le", "in", "contains")
OPERATORS: Final = ("and", "or", "not", *COMPARE_WORDS[:6], "exists", *COMPARE_WORDS[6:])


class Listed(msgspec.Struct, frozen=True):
    """A list with references in it."""

    items: tuple[Operand, ...]


Operand: TypeAlias = Reference | Literal | Listed


class Compare(msgspec.Struct, frozen=True):
    word: CompareWord
    left: Operand
    right: Operand


class Exists(msgspec.Struct, frozen=True):
    what: Reference


class IsTrue(msgspec.Struct, frozen=True):
    """A reference by itself."""

    what: Reference


class Always(msgspec.Struct, frozen=True):
    """`true` or `false` by itself."""

    value: bool


class Not(msgspec.Struct, frozen=True):
    part: Expr


class Every(msgspec.Struct, frozen=True):
    parts: tuple[Expr, ...]


class Some(msgspec.Struct, frozen=True):
    parts: tuple[Expr, ...]


Expr: TypeAlias = Compare | Exists | IsTrue | Always | Not | Every | Some

_WORD = re.compile(r"\$(\w+)")

HOLE: Final = Always(False)  # holds the place of a condition that cannot be read


# ---------------------------------------------------------------------------------------------------- reading


def condition_from(data: Any, report: Report, at: Where, who: str = "") -> Expr:
    """The condition that plain data spell; whatever is wrong with it is reported."""
    if isinstance(data, bool):
        return Always(data)
    if isinstance(data, str):
        return _bare(data, report, at, who)
    if not isinstance(data, dict):
        message = f"{who}a condition must be a mapping, not {type_name(data)}"
        report.add("wrong_type", at, message, 'write {"eq": ["$shared.name", 1]}')
        return HOLE
    if len(data) != 1:
        _report_operators(data, report, at, who)
        return HOLE
    ((word, operands),) = data.items()
    return _operation(word, operands, report, at, who)


def _report_operators(data: dict[str, Any], report: Report, at: Where, who: str) -> None:
    if not data:
        hint = f"the operators are {', '.join(OPERATORS)}"
        return report.add("invalid_condition", at, f"{who}a condition must not be empty", hint, near=True)
    words = " and ".join(quoted(word) for word in list(data)[:3])
    message = f"{who}a condition has one operator, and here are {len(data)}: {words}"
    near = {"and": [{word: operands} for word, operands in data.items()]}
    report.add("invalid_condition", at, message, 'join them: {"and": [{…}, {…}]}', near=near)
    for word, operands in data.items():  # what else is wrong should not have to wait for the next try
        _operation(word, operands, report, at, who)


def _operation(word: str, operands: Any, report: Report, at: Where, who: str) -> Expr:
    inside = (*at, word)
    if word == "not":
        return Not(condition_from(operands, report, inside, who))
    if word in ("and", "or"):
        parts = _parts(word, operands, report, inside, who)
        return Every(parts) if word == "and" else Some(parts)
    if word == "exists":
        return _exists(operands, report, inside, who)
    for known in COMPARE_WORDS:
        if word == known:
            return _comparison(known, operands, report, inside, who)
    near = meant("operator", word, OPERATORS)
    hint = did_you_mean(word, OPERATORS) or f"the operators are {', '.join(OPERATORS)}"
    message = f"{who}unknown operator {quoted(word)}"
    patch = replace(at, reference_like(word)) if near is UNKNOWN else NO_PATCH
    report.add("unknown_operator", inside, message, hint, of_key=True, near=near, patch=patch)
    return HOLE


def _parts(word: str, operands: Any, report: Report, at: Where, who: str) -> tuple[Expr, ...]:
    if not isinstance(operands, list):
        message = f"{who}{word} takes a list of conditions, not {type_name(operands)}"
        hint = f'write {{"{word}": [{{…}}, {{…}}]}}'
        report.add("wrong_type", at, message, hint, near=[operands])
        return ()
    return tuple(condition_from(part, report, (*at, i), who) for i, part in enumerate(operands))


def _bare(text: str, report: Report, at: Where, who: str) -> Expr:
    found = _reference(text, report, at, who)
    return HOLE if found is None else IsTrue(found)


def _exists(operand: Any, report: Report, at: Where, who: str) -> Expr:
    if not isinstance(operand, str):
        message = f"{who}exists takes a reference, not {type_name(operand)}"
        report.add("wrong_type", at, message, 'write {"exists": "$shared.name"}')
        return HOLE
    found = _reference(operand, report, at, who)
    return HOLE if found is None else Exists(found)


def _comparison(word: CompareWord, operands: Any, report: Report, at: Where, who: str) -> Expr:
    if not isinstance(operands, list) or len(operands) != 2:
        hint = f'write {{"{word}": [{"a list, a value" if word == "contains" else "a, b"}]}}'
        message = f"{who}{word} takes a list of two values"
        near = (
            next(map(_compared, operands.items()))
            if isinstance(operands, dict) and len(operands) == 1
            else UNKNOWN
        )
        report.add("wrong_type", at, message, hint, near=near)
        return HOLE
    left, right = (_operand(value, report, (*at, i), who) for i, value in enumerate(operands))
    return Compare(word, left, right)


def _operand(value: Any, report: Report, at: Where, who: str) -> Operand:
    if isinstance(value, str):
        return _text(value, report, at, who)
    if isinstance(value, list):
        items = tuple(_operand(item, report, (*at, i), who) for i, item in enumerate(value))
        return Literal(value) if all(isinstance(item, Literal) for item in items) else Listed(items)
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in OPERATORS:
        message = f"{who}a condition cannot be compared"
        report.add("invalid_condition", at, message, "join conditions by and, or and not")
    return Literal(value)


def _text(text: str, report: Report, at: Where, who: str) -> Operand:
    """A text that begins like a reference is one; any other, `$5` too, stands for itself."""
    if is_reference(text):
        return _reference(text, report, at, who) or Literal(None)
    word = _WORD.match(text)
    if word and not report.has_notes_enough and (near := did_you_mean(word[1], ROOTS)):
        message = f"{who}{quoted(text)} is not a reference, and is compared as text"
        report.note("no_reference", at, message, near.replace("mean ", "mean $"))
    return Literal(text)


def _reference(text: str, report: Report, at: Where, who: str) -> Reference | None:
    try:
        if is_reference(text):
            return reference(text)
        problem = ExprError(
            f"{quoted(text)} is not a reference", 0, "write $params.name, $shared.name or $input"
        )
    except ExprError as error:
        problem = error
    near = comparison_of(text)
    near = reference_like(text) if near is UNKNOWN else near
    report.add("invalid_reference", at, f"{who}{problem}", problem.hint, near=near)
    return None


_INFIX = re.compile(r"\s*(\S+)\s*(==|!=|>=|<=|>|<|=|\beq\b|\bne\b|\bgt\b|\blt\b)\s*(.+?)\s*", re.DOTALL)


def comparison_of(text: str) -> Any:
    """The condition that a text such as `$shared.x > 3` means, or UNKNOWN."""
    found = _INFIX.fullmatch(text) if len(text) <= 500 else None
    if not found:
        return UNKNOWN
    left, operator, right = found.groups()
    word = operator if operator in OPERATORS else foreign.ours("operator", operator, OPERATORS)
    return {word: [left if is_reference(left) else reference_like(left), _literal(right)]}


def _literal(text: str) -> Any:
    if is_reference(text):
        return text
    try:
        return decode(text.encode())
    except ValueError:
        return text.strip("'\"")


def _compared(pair: tuple[str, Any]) -> list[Any]:
    left, right = pair
    return [left if is_reference(left) else reference_like(left), right]


# ---------------------------------------------------------------------------------------------------- writing


def condition_data(expr: Expr) -> Any:
    """The condition as plain data, as it is read."""
    match expr:
        case Every(parts):
            return {"and": [condition_data(part) for part in parts]}
        case Some(parts):
            return {"or": [condition_data(part) for part in parts]}
        case Not(part):
            return {"not": condition_data(part)}
        case Exists(what):
            return {"exists": reference_text(what)}
        case IsTrue(what):
            return reference_text(what)
        case Always(value):
            return value
        case Compare(word, left, right):
            return {word: [_operand_data(left), _operand_data(right)]}


def _operand_data(operand: Operand) -> Any:
    match operand:
        case Reference():
            return reference_text(operand)
        case Literal(value):
            return value
        case Listed(items):
            return [_operand_data(item) for item in items]


def reference_text(found: Reference) -> str:
    return f"${found.root}" + "".join(_member_text(member) for member in found.members)


def _member_text(member: Member) -> str:
    if isinstance(member, int):
        return f"[{member}]"
    if not any(letter in member for letter in ".[]"):
        return f".{member}"
    escaped = member.replace("\\", "\\\\").replace('"', '\\"')
    return f'["{escaped}"]'
