"""Templates and JSONPaths: text → syntax trees.

    "{{ steps.a.output.files[0] }}"  ──► Ref("steps", ("a", "output", "files", 0))
    "from {{ inputs.x }}"            ──► Text(("from ", Ref("inputs", ("x",))))
    "$.list.files[*]"                ──► JsonPath(…, singular=("list", "files"), star=True)

Knows the two grammars. Must not know which names exist, what a path yields in a run, or when it is evaluated.
Templates have paths and nothing else: no operators, no calls, no filters, so nothing in a text can ever be
executed.

Nearly every JSONPath that people write names one value. Those are recognised here and need no library; the
other paths are parsed, and on request evaluated, by the library behind jsonpath.py, which is imported when the
first of them is used.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from holdfast.spec.work import Work

# Longer paths are made by programs, and a parser's work grows with them.
JSONPATH_BYTES_MAX: Final = 1024

Member: TypeAlias = str | int


class ExprError(ValueError):
    """A text that is not a valid template or path. `offset` counts characters from the start of the text."""

    def __init__(self, message: str, offset: int = 0, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.offset, self.hint = message, offset, hint


# -------------------------------------------------------------------------------------------------- templates


class Ref(msgspec.Struct, frozen=True):
    """A path from a root. Dotted members are texts, even if they look like numbers: whether one is an index depends on the data."""

    root: str
    parts: tuple[Member, ...] = ()


class Text(msgspec.Struct, frozen=True):
    """Text with placeholders in it; always at least one."""

    parts: tuple[str | Ref, ...]


Template: TypeAlias = str | Ref | Text

_ROOT = re.compile(r"\s*([^\W\d][\w-]*)")
_PART = re.compile(
    r"""\.([\w-]+)
      | \[\s*([0-9]{1,15})\s*\]
      | \[\s*"((?:[^"\\]|\\.)*)"\s*\]
      | \[\s*'((?:[^'\\]|\\.)*)'\s*\]""",
    re.VERBOSE | re.DOTALL,
)
_CLOSE = re.compile(r"\s*\}\}")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_SHAPE: Final = (
    "a placeholder is a path such as {{ steps.a.output.files[0] }}; it has no operators, calls or filters"
)


def parse_template(text: str) -> Template:
    """Parse a template. A text without placeholders is returned unchanged; a text that is a single placeholder, apart from blanks, is a
    Ref."""
    if "{{" not in text:
        return text
    parts: list[str | Ref] = []
    at = 0
    while (start := text.find("{{", at)) >= 0:
        if start > at:
            parts.append(text[at:start])
        ref, at = _placeholder(text, start)
        parts.append(ref)
    if at < len(text):
        parts.append(text[at:])
    filled = [part for part in parts if isinstance(part, Ref) or part.strip()]
    if len(filled) == 1 and isinstance(filled[0], Ref):
        return filled[0]
    return Text(tuple(parts))


def refs_in(template: Template) -> tuple[Ref, ...]:
    match template:
        case Ref():
            return (template,)
        case Text(parts):
            return tuple(part for part in parts if isinstance(part, Ref))
        case _:
            return ()


def _placeholder(text: str, start: int) -> tuple[Ref, int]:
    root = _ROOT.match(text, start + 2)
    if not root:
        raise _broken(text, start, start + 2)
    parts: list[Member] = []
    at = root.end()
    while part := _PART.match(text, at):
        parts.append(_member(part))
        at = part.end()
    close = _CLOSE.match(text, at)
    if not close:
        raise _broken(text, start, at)
    return Ref(root[1], tuple(parts)), close.end()


def _member(part: re.Match[str]) -> Member:
    dotted, index, double, single = part.groups()
    if index is not None:
        return int(index)
    if dotted is not None:
        return str(dotted)
    return _ESCAPE.sub(r"\1", double if double is not None else single)


def _broken(text: str, start: int, at: int) -> ExprError:
    end = text.find("}}", start)
    if end < 0:
        return ExprError("unterminated placeholder: `{{` without `}}`", start, "close it with }}")
    if not text[start + 2 : end].strip():
        return ExprError("empty placeholder `{{}}`", start, "name a value, as in {{ inputs.x }}")
    at += len(text[at:]) - len(text[at:].lstrip())
    return ExprError(f"unexpected {_excerpt(text[at:end] or '}}')} in a placeholder", at, _SHAPE)


def _excerpt(text: str) -> str:
    text = text.strip()
    return f"`{text}`" if len(text) <= 30 else f"`{text[:29]}…`"


# --------------------------------------------------------------------------------------------------- JSONPath


class JsonPath(msgspec.Struct, frozen=True):
    """A path that is known to be well formed.

    `singular` holds the members of a path that is made of names and indices only, or of one that goes on with
    a single `[*]` (`star`); else it is None and `compiled` evaluates the path. `reads` holds the leading
    members, as far as they are fixed, of the path and of each `$` inside its filters: what the path can touch
    at all.
    """

    text: str
    singular: tuple[Member, ...] | None
    star: bool
    reads: tuple[tuple[Member, ...], ...]


_NAME: Final = "[A-Za-z_][0-9A-Za-z_]*"  # other letters are for the library: large sets are slow to compile
_INDEX: Final = r"0|-?[1-9][0-9]{0,14}"  # fifteen digits are within the 2⁵³ that the grammar sets
_STEP: Final = rf"""\.({_NAME})|\[({_INDEX})\]|\['([^'\\\x00-\x1f]*)'\]|\["([^"\\\x00-\x1f]*)"\]"""
_SIMPLE_STEP = re.compile(_STEP)
_SIMPLE_PATH = re.compile(rf"\$(?:{_STEP})*(?P<star>\.\*|\[\*\])?\Z")


@lru_cache(maxsize=4096)  # the same path is parsed to be checked and to be compiled
def parse_jsonpath(text: str) -> JsonPath:
    """Read a path as RFC 9535 defines it, without its two functions that take regular expressions."""
    if len(text.encode("utf-8", "replace")) > JSONPATH_BYTES_MAX:
        raise ExprError(f"the path is longer than {JSONPATH_BYTES_MAX} bytes", 0, "shorten it")
    found = _SIMPLE_PATH.match(text)
    if found:
        end = found.start("star") if found["star"] else len(text)
        members = tuple(_simple_member(step) for step in _SIMPLE_STEP.finditer(text, 1, end))
        return JsonPath(text, members, bool(found["star"]), (members,))
    return _parse_with_library(text)


class Find(Protocol):
    """All values that a path names in the data, or ExpressionTooCostly if it needs more work than is left."""

    def __call__(self, data: Any, work: Work | None = None) -> list[Any]: ...


def compiled(path: JsonPath) -> Find:
    from holdfast.spec.jsonpath import Query

    return Query(path.text).find


def _simple_member(step: re.Match[str]) -> Member:
    name, index, single, double = step.groups()
    if index is not None:
        return int(index)
    return next(str(text) for text in (name, single, double) if text is not None)


def _parse_with_library(text: str) -> JsonPath:
    from holdfast.spec.jsonpath import NotAPath, Query

    try:
        query = Query(text)
    except NotAPath as error:
        raise ExprError(error.message, error.offset, _jsonpath_hint(text)) from None
    return JsonPath(text, query.singular, query.star, query.reads)


def _jsonpath_hint(text: str) -> str:
    if "{{" in text:
        return "a path stands by itself, without braces: $.inputs.files"
    if not text.startswith("$"):
        return (
            f"a path starts with $: $.{text}" if re.match(r"[\w.\[\]]+\Z", text) else "a path starts with $"
        )
    if re.search(r"\b(?:match|search)\s*\(", text):
        return "match and search are not available: there are no regular expressions in definitions"
    if re.search(r"\.\w+-\w", text):
        return "a name with a hyphen is written in brackets: $['my-step']"
    return "paths look like $.list.files[0].name"
