"""Every problem of a definition: how it is found while keys are read, placed in the text, and worded.

Knows places and how to say what is wrong. Must not know what any key means.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from typing import Any, Final

from holdfast.errors import InvalidSpec, Problem
from holdfast.spec.policy import NAME_CHARS_MAX, TIMEOUT_SECS_MAX
from holdfast.spec.read import PROBLEMS_MAX, Document, Key, pointer_to

Where = tuple[Key, ...]

# Finding the nearest of many names takes a while each time, and a text can hold a hundred misspelt ones.
SUGGESTIONS_MAX: Final = 500


class Report:
    """Collects problems, each with the place where it stands in the text."""

    def __init__(self, document: Document | None, source: str) -> None:
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []
        self.document, self.source = document, source
        self.has_holes = False
        self._settled: frozenset[str] = frozenset()

    def add(self, code: str, at: Where, message: str, hint: str = "", *, of_key: bool = False) -> None:
        pointer = pointer_to(at)
        if pointer not in self._settled and not self.is_full:
            self.problems.append(self._problem(code, pointer, message, hint, of_key))

    @property
    def is_full(self) -> bool:
        """Nobody reads more problems than these, so nobody should wait until the rest are found."""
        return len(self.problems) >= PROBLEMS_MAX

    def shape_is_read(self) -> None:
        """From now on contents are judged, but not where the shape was wrong.

        A tool that is missing is not badly named as well, and in a tree with holes many a name would look
        unknown.
        """
        self._settled = frozenset(problem.pointer for problem in self.problems)
        self.has_holes = bool(self.problems)

    def note(self, code: str, at: Where, message: str, hint: str = "") -> None:
        if len(self.notes) < PROBLEMS_MAX:
            self.notes.append(self._problem(code, pointer_to(at), message, hint, False))

    def refusal(self) -> InvalidSpec:
        return InvalidSpec(sorted(self.problems, key=lambda problem: (problem.line, problem.column)))

    def line_of(self, at: Where) -> str:
        return f"line {self.document.mark(pointer_to(at))[0]}" if self.document else pointer_to(at)

    def _problem(self, code: str, pointer: str, message: str, hint: str, of_key: bool) -> Problem:
        line, column = 0, 0
        if self.document:
            line, column = self.document.key_mark(pointer) if of_key else self.document.mark(pointer)
        return Problem(code, message, pointer, line, column, hint, self.source)


class Fields:
    """The keys of one mapping, read one by one. What does not fit is reported and replaced by the default."""

    def __init__(
        self, report: Report, data: dict[str, Any], at: Where, who: str = "", misfit: str = "out_of_range"
    ) -> None:
        self.report, self.data, self.at, self.who = report, data, at, who
        self._misfit = misfit  # the code of a value that has the right type and is wrong all the same

    def expect(self, known: Collection[str], required: Iterable[str] = ()) -> None:
        for key in self.data:
            if key not in known and not self.report.is_full:
                hint = did_you_mean(key, known) or f"known keys are {', '.join(sorted(known))}"
                message = f"{self.who}unknown key {quoted(key)}"
                self.report.add("unknown_key", (*self.at, key), message, hint, of_key=True)
        for key in required:
            if self.data.get(key) is None:
                self.wrong("missing_key", key, f'the key "{key}" is missing')

    def wrong(self, code: str, key: str, message: str, hint: str = "") -> None:
        self.report.add(code, (*self.at, key), self.who + message, hint)

    def get(self, key: str, kind: type[Any] | tuple[type[Any], ...], wanted: str) -> Any:
        """The value of a key if it has the type; None if it has not, is null or is not there."""
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.wrong("wrong_type", key, f"{key} must be {wanted}, not {type_name(value)}")
            return None
        return value

    def text(self, key: str, default: str = "") -> str:
        value = self.get(key, str, "text")
        return default if value is None else str(value)

    def choice(self, key: str, options: tuple[str, ...], default: str) -> Any:
        value = self.text(key, default)
        if value in options:
            return value
        hint = did_you_mean(value, options)
        self.wrong("invalid_choice", key, f"{key} must be {' or '.join(options)}, not {quoted(value)}", hint)
        return default

    def integer(self, key: str, default: int, low: int, high: int) -> int:
        value = self.get(key, int, "a whole number")
        if value is None:
            return default
        if not low <= value <= high:
            self.wrong(self._misfit, key, f"{key} must be from {low:,} to {high:,}, not {value}")
            return default
        return int(value)

    def seconds(self, key: str) -> float | None:
        value = self.get(key, (int, float), "a number of seconds")
        if value is None:
            return None
        if not 0 < value <= TIMEOUT_SECS_MAX:
            message = f"{key} must be more than 0 and at most {TIMEOUT_SECS_MAX:,}, not {value}"
            self.wrong(self._misfit, key, message)
            return None
        return float(value)


def did_you_mean(word: str, known: Collection[str]) -> str:
    if len(known) > SUGGESTIONS_MAX:
        return ""
    near = difflib.get_close_matches(word[:NAME_CHARS_MAX], sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def quoted(text: Any) -> str:
    shown = str(text)
    return f'"{shown}"' if len(shown) <= 60 else f'"{shown[:57]}…"'


def type_name(value: Any) -> str:
    names = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    if value is None:
        return "null"
    return names.get(type(value), "a mapping")
