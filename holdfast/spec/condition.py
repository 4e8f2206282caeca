"""Conditions of both notations: data → syntax tree, and back.

    {"and": [{"gt": ["$shared.total", 100]}, {"not": "$params.is_draft"}]}
        ──► Every((Compare("gt", Reference(…), Literal(100)), Not(IsTrue(Reference(…)))))

The notations share the operators. A graph refers to values as `$shared.total`, steps by a JSONPath, `$.inputs.total`. Knows the
operators and what each of them takes. Must not know what a reference holds, or how two values compare.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias
from typing import Literal as OneOf

import msgspec

from holdfast.nearest import did_you_mean
from holdfast.spec import foreign
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.expr import ExprError, Member
from holdfast.spec.patch import NO_PATCH, replace
from holdfast.spec.problems import Report, Where, is_certain, meant, quoted, type_name
from holdfast.spec.reference import ROOTS, Literal, Reference, is_reference, reference, reference_like
from holdfast.values import canonical, decode

CompareWord = OneOf["eq", "ne", "gt", "lt", "ge", "le", "in", "contains", "starts_with"]

COMPARE_WORDS: Final[tuple[CompareWord, ...]] = (
    "eq", "ne", "gt", "lt", "ge", "le", "in", "contains", "starts_with",
)  # fmt: skip
OPERATORS: Final = ("and", "or", "not", *COMPARE_WORDS[:6], "exists", *COMPARE_WORDS[6:])


class Path(msgspec.Struct, frozen=True):
    """A JSONPath, by which steps refer to values. Whether it can be read is checked with the other paths of a definition."""

    text: str


class Listed(msgspec.Struct, frozen=True):
    """A list with references in it."""

    items: tuple[Operand, ...]


Place: TypeAlias = Reference | Path
Operand: TypeAlias = Place | Literal | Listed


class Compare(msgspec.Struct, frozen=True):
    word: CompareWord
    left: Operand
    right: Operand


class Exists(msgspec.Struct, frozen=True):
    what: Place


class IsTrue(msgspec.Struct, frozen=True):
    """A reference by itself."""

    what: Place


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

CONDITIONS: Final = (Compare, Exists, IsTrue, Always, Not, Every, Some)

_WORD = re.compile(r"\$(\w+)")

MEANT_CHARS_MAX: Final = 500  # of a text that may have been meant as a condition

HOLE: Final = Always(False)  # stands in for a condition that cannot be read


class Refers(NamedTuple):
    """How a notation writes a reference to a value."""

    begins: Callable[[str], bool]  # whether a text begins like a reference; any other text is a literal
    read: Callable[[str], Place]  # raises ExprError
    like: Callable[[Any], Any]  # the reference that a value was probably meant to be, or UNKNOWN
    odd: Callable[[str], str]  # a hint about a text that may have been meant as a reference, or nothing
    example: str
    hint: str


def _begins_like_a_path(text: str) -> bool:
    return text == "$" or text.startswith(("$.", "$["))


def _path_like(value: Any) -> Any:
    """The JSONPath that a placeholder or a dotted name was meant to be, or UNKNOWN."""
    if not isinstance(value, str) or len(value) > MEANT_CHARS_MAX:
        return UNKNOWN
    inner = re.sub(r"^\$?\{\{?\s*|\s*\}?\}$", "", value.strip()).removeprefix("$")
    return f"$.{inner}" if re.fullmatch(r"[^\W\d][\w-]*(\.[\w-]+|\[\d+\])*", inner) else UNKNOWN


def _odd_operand(text: str) -> str:
    if "{{" in text or text.startswith(("inputs.", "steps.")):
        like = _path_like(text)
        return "write a JSONPath" + ("" if like is UNKNOWN else f": {like}")
    return ""


def _odd_reference(text: str) -> str:
    word = _WORD.match(text)
    near = did_you_mean(word[1], ROOTS) if word else ""
    return near.replace("mean ", "mean $")


OF_GRAPHS: Final = Refers(
    is_reference,
    reference,
    reference_like,
    _odd_reference,
    "$shared.name",
    "write $params.name, $shared.name or $input",
)
OF_STEPS: Final = Refers(
    _begins_like_a_path, Path, _path_like, _odd_operand, "$.inputs.name", "write a JSONPath: $.inputs.name"
)


# ---------------------------------------------------------------------------------------------------- reading


def condition_from(data: Any, report: Report, at: Where, who: str = "", refers: Refers = OF_GRAPHS) -> Expr:
    """Build a condition from plain data; every problem in it is reported."""
    return _Reader(report, who, refers).condition(data, at)


class _Reader(NamedTuple):
    report: Report
    who: str
    refers: Refers

    def condition(self, data: Any, at: Where) -> Expr:
        if isinstance(data, bool):
            return Always(data)
        if isinstance(data, str):
            found = self._reference(data, at)
            return HOLE if found is None else IsTrue(found)
        if not isinstance(data, dict):
            message = f"{self.who}a condition must be a mapping, not {type_name(data)}"
            self.report.add("wrong_type", at, message, f'write {{"eq": ["{self.refers.example}", 1]}}')
            return HOLE
        if len(data) != 1:
            self._report_operators(data, at)
            return HOLE
        ((word, operands),) = data.items()
        return self._operation(word, operands, at)

    def _report_operators(self, data: dict[str, Any], at: Where) -> None:
        if not data:
            hint, message = (
                f"the operators are {', '.join(OPERATORS)}",
                f"{self.who}a condition must not be empty",
            )
            return self.report.add("invalid_condition", at, message, hint, near=True)
        words = " and ".join(quoted(word) for word in list(data)[:3])
        message = f"{self.who}a condition has one operator, and here are {len(data)}: {words}"
        near = {"and": [{word: operands} for word, operands in data.items()]}
        self.report.add("invalid_condition", at, message, 'join them: {"and": [{…}, {…}]}', near=near)
        for word, operands in data.items():  # report all other problems in the same pass
            self._operation(word, operands, at)

    def _operation(self, word: str, operands: Any, at: Where) -> Expr:
        inside = (*at, word)
        if word == "not":
            return Not(self.condition(operands, inside))
        if word in ("and", "or"):
            parts = self._parts(word, operands, inside)
            return Every(parts) if word == "and" else Some(parts)
        if word == "exists":
            return self._exists(operands, inside)
        for known in COMPARE_WORDS:
            if word == known:
                return self._comparison(known, operands, inside)
        self._report_unknown(word, operands, at)
        return HOLE

    def _report_unknown(self, word: str, operands: Any, at: Where) -> None:
        near, hint = meant_operator(word), f"the operators are {', '.join(OPERATORS)}"
        like: Any = UNKNOWN  # of the whole condition
        if near is not UNKNOWN:
            hint = f"did you mean {near}?"
        elif (opposite := _negated_operator(word)) is not None:
            hint, like = f'write {{"not": {{"{opposite}": …}}}}', {"not": {opposite: operands}}
        elif operands is None:  # as YAML reads `{{ inputs.ok }}`
            like = self.refers.like(word)
        patch = NO_PATCH if like is UNKNOWN else replace(at, like)
        message = f"{self.who}unknown operator {quoted(word)}"
        self.report.add("unknown_operator", (*at, word), message, hint, of_key=True, near=near, patch=patch)

    def _parts(self, word: str, operands: Any, at: Where) -> tuple[Expr, ...]:
        if not isinstance(operands, list):
            message = f"{self.who}{word} takes a list of conditions, not {type_name(operands)}"
            hint = f'write {{"{word}": [{{…}}, {{…}}]}}'
            self.report.add("wrong_type", at, message, hint, near=[operands])
            return ()
        return tuple(self.condition(part, (*at, i)) for i, part in enumerate(operands))

    def _exists(self, operand: Any, at: Where) -> Expr:
        if not isinstance(operand, str):
            message = f"{self.who}exists takes a reference, not {type_name(operand)}"
            self.report.add("wrong_type", at, message, f'write {{"exists": "{self.refers.example}"}}')
            return HOLE
        found = self._reference(operand, at)
        return HOLE if found is None else Exists(found)

    def _comparison(self, word: CompareWord, operands: Any, at: Where) -> Expr:
        if not isinstance(operands, list) or len(operands) != 2:
            hint = f'write {{"{word}": [{"a list, a value" if word == "contains" else "a, b"}]}}'
            message = f"{self.who}{word} takes a list of two values"
            near = (
                self._compared(*next(iter(operands.items())))
                if isinstance(operands, dict) and len(operands) == 1
                else [operands[0], operands[1:]]
                if word == "in" and isinstance(operands, list) and len(operands) > 2
                else UNKNOWN
            )
            self.report.add("wrong_type", at, message, hint, near=near)
            return HOLE
        left, right = (self._operand(value, (*at, i)) for i, value in enumerate(operands))
        return Compare(word, left, right)

    def _operand(self, value: Any, at: Where) -> Operand:
        if isinstance(value, str):
            return self._text(value, at)
        if isinstance(value, list):
            items = tuple(self._operand(item, (*at, i)) for i, item in enumerate(value))
            return Literal(value) if all(isinstance(item, Literal) for item in items) else Listed(items)
        if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in OPERATORS:
            message = f"{self.who}a condition cannot be compared"
            self.report.add("invalid_condition", at, message, "join conditions by and, or and not")
        return Literal(value)

    def _text(self, text: str, at: Where) -> Operand:
        """A text that begins like a reference is one. Any other text, `$5` included, is a literal."""
        if self.refers.begins(text):
            return self._reference(text, at) or Literal(None)
        if "{{" in text and self.refers is OF_STEPS:
            message = f"{self.who}a condition takes no placeholders"
            near = self.refers.like(text)
            self.report.add("invalid_reference", at, message, self.refers.odd(text), near=near)
        elif not self.report.has_notes_enough and (hint := self.refers.odd(text)):
            message = f"{self.who}{quoted(text)} is not a reference, and is compared as text"
            self.report.note("no_reference", at, message, hint)
        return Literal(text)

    def _reference(self, text: str, at: Where) -> Place | None:
        try:
            if self.refers.begins(text):
                return self.refers.read(text)
            problem = ExprError(f"{quoted(text)} is not a reference", 0, self.refers.hint)
        except ExprError as error:
            problem = error
        near = comparison_of(text, self.refers)
        if near is UNKNOWN and len(text) <= MEANT_CHARS_MAX and _PLACE.fullmatch(_without_braces(text)):
            near = self.refers.like(text)
        self.report.add("invalid_reference", at, f"{self.who}{problem}", problem.hint, near=near)
        return None

    def _compared(self, left: str, right: Any) -> list[Any]:
        return [left if self.refers.begins(left) else self.refers.like(left), right]


_UNQUOTED = r"""(?=(?:[^'"]*(?:'[^']*'|"[^"]*"))*[^'"]*$)"""
_JOINS = (
    ("or", re.compile(rf"\s+or\s+{_UNQUOTED}|\s*\|\|\s*{_UNQUOTED}")),
    ("and", re.compile(rf"\s+and\s+{_UNQUOTED}|\s*&&\s*{_UNQUOTED}")),
)
_BRACES = re.compile(r"\$?\{\{?\s*([^{}]*?)\s*\}\}?")
_NEGATED = re.compile(r"(?:not\s+|!\s*)(?!not\s|!)(.+)", re.DOTALL)
_INFIX = re.compile(
    r"(\S+?)(?:\s*(==|!=|>=|<=|>|<|=)\s*|\s+(eq|ne|gt|ge|lt|le|is\s+not|is|in)\s+)(.+)", re.DOTALL
)
# A reference without blanks or operators. What has them is read as a comparison, or not at all: a part of it means something else.
_PLACE = re.compile(r"""(?:\$|\$?\.?[^\W\d][\w-]*)(?:\.[\w-]+|\[(?:\d+|'[^']*'|"[^"]*")\])*""")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*\"""")
_NEGATION = re.compile(r"(?:not|!)[ _-]?(\w+)|n(in)", re.IGNORECASE)
_CONSTANTS: Final = {"true": True, "false": False, "none": None, "null": None}


def comparison_of(text: str, refers: Refers = OF_GRAPHS) -> Any:
    """The condition that a text such as `$shared.x > 3` means, or UNKNOWN; also UNKNOWN for a reference by itself."""
    if len(text) > MEANT_CHARS_MAX:
        return UNKNOWN
    found = _meant(_without_braces(text), refers)
    return UNKNOWN if isinstance(found, str) else found


def meant_operator(word: str) -> Any:
    """The operator that an unknown one certainly is: `ends_with` is almost `starts_with`, and means something else."""
    near = meant("operator", word, OPERATORS)
    is_foreign = foreign.ours("operator", word, OPERATORS) == near
    return near if near is UNKNOWN or is_foreign or is_certain(word, near) else UNKNOWN


def _negated_operator(word: str) -> str | None:
    """The operator in one such as `not_in`."""
    found = _NEGATION.fullmatch(word)
    inner = (found[1] or found[2]).lower() if found else ""
    return inner if inner in OPERATORS else foreign.ours("operator", inner, OPERATORS)


def _without_braces(text: str) -> str:
    return _BRACES.sub(r"\1", text).strip()


def _meant(text: str, refers: Refers) -> Any:
    if text.lower() in ("true", "false"):
        return _CONSTANTS[text.lower()]
    for word, join in _JOINS:
        parts = join.split(text)
        if len(parts) > 1:
            found = [_meant(part.strip(), refers) for part in parts]
            return UNKNOWN if UNKNOWN in found else {word: found}
    if (negated := _NEGATED.fullmatch(text)) is not None:
        inner = _meant(negated[1], refers)
        return UNKNOWN if inner is UNKNOWN else {"not": inner}
    if (infix := _INFIX.fullmatch(text)) is None:
        return _place(text, refers)
    left, sign, name, right = infix.groups()
    operator = sign or re.sub(r"\s+", "_", name)
    compare = operator if operator in OPERATORS else foreign.ours("operator", operator, OPERATORS)
    operands = [_place(left, refers), _operand(right, refers)]
    return UNKNOWN if UNKNOWN in operands else {compare: operands}


def _place(text: str, refers: Refers) -> Any:
    if not _PLACE.fullmatch(text):
        return UNKNOWN
    return text if refers.begins(text) else refers.like(text)


def flow_text(condition: Any) -> str:
    """A condition as an author writes it in YAML."""
    if isinstance(condition, str | bool):
        return condition if isinstance(condition, str) else str(condition).lower()
    ((word, operands),) = condition.items()
    match word:
        case "not":
            return f"{{not: {flow_text(operands)}}}"
        case "and" | "or":
            return f"{{{word}: [{', '.join(map(flow_text, operands))}]}}"
        case _:
            left, right = operands
            return f"{{{word}: [{left}, {canonical(right).decode()}]}}"


def _operand(text: str, refers: Refers) -> Any:
    """The right side of a comparison: a literal, a word without quotation marks, or a reference."""
    if text.lower() in _CONSTANTS:
        return _CONSTANTS[text.lower()]
    for plain in (text, text.replace("'", '"')):
        with contextlib.suppress(ValueError):
            return decode(plain.encode())
    if _QUOTED.fullmatch(text):
        return text[1:-1]
    return text if re.fullmatch(r"[^\W\d][\w-]*", text) else _place(text, refers)


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
        case Reference() | Path():
            return reference_text(operand)
        case Literal(value):
            return value
        case Listed(items):
            return [_operand_data(item) for item in items]


def reference_text(found: Place) -> str:
    if isinstance(found, Path):
        return found.text
    return f"${found.root}" + "".join(_member_text(member) for member in found.members)


def _member_text(member: Member) -> str:
    if isinstance(member, int):
        return f"[{member}]"
    if not any(letter in member for letter in ".[]"):
        return f".{member}"
    escaped = member.replace("\\", "\\\\").replace('"', '\\"')
    return f'["{escaped}"]'


# ------------------------------------------------------------------------------------------------- what it refers to


def paths_in(expr: Expr, at: Where) -> Iterator[tuple[Where, str]]:
    """Every JSONPath of a condition of the steps notation, with its place in the data."""
    match expr:
        case Every(parts) | Some(parts):
            word = "and" if isinstance(expr, Every) else "or"
            for i, part in enumerate(parts):
                yield from paths_in(part, (*at, word, i))
        case Not(part):
            yield from paths_in(part, (*at, "not"))
        case Exists(what):
            yield from _paths_of(what, (*at, "exists"))
        case IsTrue(what):
            yield from _paths_of(what, at)
        case Compare(word, left, right):
            yield from _paths_of(left, (*at, word, 0))
            yield from _paths_of(right, (*at, word, 1))
        case _:
            pass


def _paths_of(operand: Operand, at: Where) -> Iterator[tuple[Where, str]]:
    match operand:
        case Path(text):
            yield at, text
        case Listed(items):
            for i, item in enumerate(items):
                yield from _paths_of(item, (*at, i))
        case _:
            pass
