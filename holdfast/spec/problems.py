"""Collects the problems of a definition while its keys are read, with their position in the text and their wording.

Knows positions and wording. Must not know what a key means.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from holdfast.errors import InvalidSpec, Problem
from holdfast.nearest import likeness, nearest
from holdfast.spec import foreign
from holdfast.spec.conversions import UNKNOWN, converted
from holdfast.spec.document import Document, Key, pointer_to
from holdfast.spec.patch import NO_PATCH, Patch
from holdfast.spec.read import PROBLEMS_MAX
from holdfast.spec.repairs import Source, patch_for
from holdfast.values import written

Where = tuple[Key, ...]

NAMES_SHOWN_MAX: Final = 12  # in a hint
ORDER_HINT: Final = "steps run in the order in which they are written, and nodes in that of the edges"
PATCH_BYTES_MAX: Final = 256 * 1024  # for the patches of all problems of a definition together
# Similarity above which a misspelt word is certain: `retires` can only mean `retries`. Of three letters, one is too much: `gte`.
CERTAIN_LIKENESS: Final = 0.8
CERTAIN_CHARS_MIN: Final = 4


class Report:
    """Collects problems, each with the place where it stands in the text."""

    def __init__(
        self, document: Document | None, source: str, *, is_stored: bool = False, data: Any = UNKNOWN
    ) -> None:
        self.is_stored = is_stored  # accepted by an earlier release: newer rules do not apply
        self.given = Source(document.data if document else data)  # the data that patches apply to
        self.problems: list[Problem] = list(document.problems) if document else []
        self.notes: list[Problem] = []
        self.document, self.source = document, source
        self.unread: set[str] = set()
        self._unread_places = frozenset(problem.pointer for problem in self.problems)
        self._settled: set[str] = set()
        self._patch_bytes = 0
        self._is_shape_read = False

    def add(
        self,
        code: str,
        at: Where,
        message: str,
        hint: str = "",
        *,
        of_key: bool = False,
        near: Any = UNKNOWN,
        patch: Patch | Callable[[], Patch] = NO_PATCH,
    ) -> None:
        """Report a problem. `near` is the word or value that was probably meant; `patch`, if given, is the repair, or
        makes it: a text can have more problems than are reported."""
        pointer = pointer_to(at)
        if pointer in self._unread_places or (self._is_shape_read and pointer in self._settled):
            return
        if not self._is_shape_read:
            self._settled.add(pointer)
        if not self.is_full:
            made = self._within_budget(lambda: self._repair(code, at, near, patch))
            self.problems.append(self._problem(code, pointer, message, hint, of_key, made))

    def _repair(self, code: str, at: Where, near: Any, patch: Patch | Callable[[], Patch]) -> Patch:
        given = patch() if callable(patch) else patch
        return given or patch_for(code, at, near, self.given)

    def _within_budget(self, make: Callable[[], Patch]) -> Patch:
        """A patch, unless it is for a stored definition, which no one can change, or all patches become too large."""
        if self.is_stored or self._patch_bytes > PATCH_BYTES_MAX:
            return NO_PATCH
        patch = make()
        self._patch_bytes += len(written(patch))
        return patch if self._patch_bytes <= PATCH_BYTES_MAX else NO_PATCH

    @property
    def is_full(self) -> bool:
        """Limits the number of problems that are reported, and the time spent on finding them."""
        return len(self.problems) >= PROBLEMS_MAX

    @property
    def has_notes_enough(self) -> bool:
        """Limits the number of notes likewise."""
        return len(self.notes) >= PROBLEMS_MAX

    def shape_is_read(self) -> None:
        """From now on contents are checked, except where the shape was wrong: a missing tool name is not also
        reported as invalid."""
        self._is_shape_read = True

    def settle(self, at: Where) -> None:
        """Report nothing about the contents of a place."""
        self._settled.add(pointer_to(at))

    def cannot_read(self, value: Any) -> None:
        """Remember the texts in a part that has the wrong shape: a reference may mean a name that it would declare."""
        stack = [value]
        while stack:
            match stack.pop():
                case str() as text:
                    self.unread.add(text)
                case dict() as mapping:
                    self.unread.update(mapping)
                    stack.extend(mapping.values())
                case list() as items:
                    stack.extend(items)
                case _:
                    pass

    def note(self, code: str, at: Where, message: str, hint: str = "", *, near: Any = UNKNOWN) -> None:
        if not self.has_notes_enough:
            patch = NO_PATCH if near is UNKNOWN else patch_for(code, at, near, self.given)
            self.notes.append(self._problem(code, pointer_to(at), message, hint, False, patch))

    def refusal(self) -> InvalidSpec:
        return InvalidSpec(sorted(self.problems, key=lambda problem: (problem.line, problem.column)))

    def line_of(self, at: Where) -> str:
        return f"line {self.document.mark(pointer_to(at))[0]}" if self.document else pointer_to(at)

    def _problem(
        self, code: str, pointer: str, message: str, hint: str, of_key: bool, patch: Patch = NO_PATCH
    ) -> Problem:
        line, column = 0, 0
        if self.document:
            line, column = self.document.key_mark(pointer) if of_key else self.document.mark(pointer)
        return Problem(code, message, pointer, line, column, hint, self.source, patch)


class Fields:
    """The keys of one mapping, read one by one. An invalid value is reported and replaced by the default."""

    def __init__(
        self, report: Report, data: dict[str, Any], at: Where, who: str = "", wrong_code: str = "out_of_range"
    ) -> None:
        self.report, self.data, self.at, self.who = report, data, at, who
        self.wrong_code = wrong_code  # the error code for a value that has the right type but is not allowed

    def expect(
        self,
        known: Collection[str],
        required: Iterable[str] = (),
        near: Collection[str] | None = None,
        hint_of: Callable[[str], str] | None = None,
        elsewhere: Callable[[str], Patch] | None = None,
        blanks: Callable[[str], Any] | None = None,
        certain: bool = True,
    ) -> None:
        """Report keys that are unknown or missing. `near` are the keys that an unknown one could have been, `hint_of`
        says where else it is known, and `elsewhere` moves it there; `blanks` has what a missing one could hold. A key is not taken out
        unless it is `certain` that it does not belong here."""
        near = known if near is None else near
        misspelt: set[str] = set()
        claimed: set[str] = set()
        for key in self.data:
            if key not in known and not self.report.is_full:
                claimed.add(self._unknown(key, near, hint_of, elsewhere, certain))
                if (word := nearest(key, near)) is not None:
                    misspelt.add(word)
                    self.report.settle((*self.at, word))  # a misspelt key is not also reported as missing
        for key in required:
            if self.data.get(key) is None and key not in misspelt | claimed:
                blank = blanks(key) if blanks else UNKNOWN
                self.wrong("missing_key", key, f'the key "{key}" is missing', f"add `{key}: …`", near=blank)

    def _unknown(
        self,
        key: str,
        near: Collection[str],
        hint_of: Callable[[str], str] | None,
        elsewhere: Callable[[str], Patch] | None,
        certain: bool,
    ) -> str:
        """Report an unknown key, and return the key that was meant."""
        word = self.meant_key(key, near)
        guess = f"did you mean {word}?" if word else ""
        if not nearest(key, near):  # its place is more certain than its meaning in another system
            guess = (hint_of(key) if hint_of else "") or guess
        known = ORDER_HINT if foreign.is_order(key) else f"known keys are {', '.join(sorted(near))}"
        hint = guess or known
        patch = elsewhere(key) if elsewhere and word is None else NO_PATCH
        message, at = f"{self.who}unknown key {quoted(key)}", (*self.at, key)
        meant_word = word or (UNKNOWN if certain else key)
        self.report.add("unknown_key", at, message, hint, of_key=True, near=meant_word, patch=patch)
        self.report.cannot_read(self.data[key])
        return word or ""

    def meant_key(self, key: str, near: Collection[str]) -> str | None:
        """The key that was meant by an unknown one: the most similar one, or our name for a word of another system."""
        return _closest(key, near, foreign.ours("key", key, near, self.data, self.data[key]))

    def wrong(
        self,
        code: str,
        key: str,
        message: str,
        hint: str = "",
        near: Any = UNKNOWN,
        patch: Patch | Callable[[], Patch] = NO_PATCH,
    ) -> None:
        self.report.add(code, (*self.at, key), self.who + message, hint, near=near, patch=patch)

    def get(self, key: str, kind: type[Any] | tuple[type[Any], ...], wanted: str, near: Any = UNKNOWN) -> Any:
        """The value of a key if it has the type; None if it has another type, is null or is missing. `near` is what
        a value of another type was meant to be, where its type alone does not say it."""
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            message = f"{key} must be {wanted}, not {value if isinstance(value, float) else type_name(value)}"
            kinds = kind if isinstance(kind, tuple) else (kind,)
            near = converted(value, kinds, key) if near is UNKNOWN else near
            self.wrong("wrong_type", key, message, hint_for_type(kind, value), near)
            self.report.cannot_read(value)
            return None
        return value


def meant(what: str, word: Any, known: Collection[str], value: Any = None) -> Any:
    """The word that was meant by an unknown one, or UNKNOWN. `what` names the table of words (foreign.py), and `value` is that of a key."""
    if not isinstance(word, str):
        return UNKNOWN
    found = _closest(word, known, foreign.ours(what, word, known, (), value))
    near = nearest(word, foreign.vocabulary(what)) if found is None else None
    if near is not None and is_certain(word, near):
        found = foreign.ours(what, near, known, (), value)
    return found or UNKNOWN


def _closest(word: str, known: Collection[str], foreign_word: str | None) -> str | None:
    """The name that a word certainly misspells; else our name for a word of another system; else the most similar name."""
    near = nearest(word, known)
    if near is None or foreign_word is None:
        return near or foreign_word
    return near if is_certain(word, near) else foreign_word


def is_certain(word: str, name: str) -> bool:
    """Whether a word is so like a name that it can only be a misspelling of it."""
    is_long = len(word) >= CERTAIN_CHARS_MIN or word.casefold() == name
    return is_long and likeness(word, name) >= CERTAIN_LIKENESS


def one_of(names: Collection[str]) -> str:
    """A short list of the possible names, when no close match exists."""
    shown = sorted(names)[:NAMES_SHOWN_MAX]
    return ", ".join(shown) + (", …" if len(names) > len(shown) else "")


def hint_for_type(kind: type[Any] | tuple[type[Any], ...], value: Any) -> str:
    """How to write a value of the wrong type correctly."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if str in kinds and not isinstance(value, dict | list):
        return "put it in quotation marks"
    if bool in kinds:
        return "write true or false"
    if int in kinds:
        if isinstance(value, float):
            return "round it"
        is_number = isinstance(value, str) and value.replace(".", "", 1).isdecimal()
        return "write it without quotation marks" if is_number else "write a number, without a unit"
    if list in kinds:
        return "write each entry on its own line, starting with `- `"
    return "write `key: value`, each on its own line" if dict in kinds else "write one text"


def quoted(text: Any) -> str:
    shown = str(text)
    return f'"{shown}"' if len(shown) <= 60 else f'"{shown[:57]}…"'


def type_name(value: Any) -> str:
    names = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list"}
    if value is None:
        return "null"
    return names.get(type(value), "a mapping")
