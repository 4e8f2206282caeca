"""References of the graph notation: text → where a value is found.

    "$params.order.items[0]"  ──► Reference("params", ("order", "items", 0))
    "order.items[0]"          ──► Reference("shared", ("order", "items", 0))     in prep, where a plain text is a path
    "'hello"                  ──► Literal("hello")                               in prep, where a path would be meant

Knows the grammar. Must not know what a run holds there.
"""

from __future__ import annotations

import re
from typing import Any, Final
from typing import Literal as OneOf

import msgspec

from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.expr import ExprError, Member, Ref, Text, parse_template

Root = OneOf["params", "shared", "input"]

ROOTS: Final[tuple[Root, ...]] = ("params", "shared", "input")
REFERENCE_CHARS_MAX: Final = 1024  # longer ones are made by programs, and every message repeats them


class Reference(msgspec.Struct, frozen=True):
    """A path from a root. Dotted members are texts, even if they look like numbers: whether one is an index depends on the data."""

    root: Root
    members: tuple[Member, ...] = ()


class Literal(msgspec.Struct, frozen=True):
    """A literal value."""

    value: Any


_ROOT = re.compile(r"\$(params|shared|input)(?=[.\[]|\Z)")
_PART = re.compile(r"""\.([^.\[\]]+)|\[\s*([0-9]{1,15})\s*\]|\["((?:[^"\\]|\\.)*)"\]""", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_HINT: Final = "write $params.name, $shared.name or $input, with members such as .list[0]"


def is_reference(text: str) -> bool:
    """Return whether a text begins like a reference. Any other text, `$5` included, is a literal."""
    return _ROOT.match(text) is not None


def reference(text: str) -> Reference:
    """A reference, or a path in shared state where the text has no `$`; raises ExprError."""
    if len(text) > REFERENCE_CHARS_MAX:
        raise ExprError(f"the reference is longer than {REFERENCE_CHARS_MAX} characters", 0, "shorten it")
    found = _ROOT.match(text)
    if found:
        root: Any = found[1]
        return Reference(root, _members(text, text[found.end() :]))
    if not text or text.startswith("$"):
        raise ExprError(f"`{text[:40]}` is not a reference", 0, _HINT)
    return Reference("shared", _members(text, text if text.startswith("[") else f".{text}"))


def reference_like(value: Any) -> Any:
    """The reference that a text was meant to be, or UNKNOWN."""
    if not isinstance(value, str) or len(value) > REFERENCE_CHARS_MAX:
        return UNKNOWN
    inner = re.sub(r"^\$?\{\{?\s*|\s*\}?\}$", "", value.strip())
    words = [part for part in re.split(r"[^\w-]+", inner) if part]
    if not words:
        return UNKNOWN
    root, *members = words
    meant = _ROOT_WORDS.get(root, "shared")
    return ".".join([f"${meant}", *(members if root in _ROOT_WORDS else words)])


# Names of the three roots in other systems.
_ROOT_WORDS: Final = {
    **dict.fromkeys(("params", "param", "inputs", "args"), "params"),
    **dict.fromkeys(("shared", "state", "ctx", "context", "steps", "vars"), "shared"),
    **dict.fromkeys(("input", "item", "data"), "input"),
}


def given(value: Any) -> Reference | Literal:
    """A value of prep: a text is a reference, unless it begins with `'`; anything else is a literal."""
    if not isinstance(value, str):
        return Literal(value)
    return Literal(value[1:]) if value.startswith("'") else reference(value)


def key_parts(text: str) -> tuple[str | Reference, ...]:
    """The parts of an idempotency key: one reference, or a text with placeholders such as {{ params.order }}."""
    if is_reference(text):
        return (reference(text),)
    template = parse_template(text)
    parts = template.parts if isinstance(template, Text) else (template,)
    return tuple(_placed(part) if isinstance(part, Ref) else part for part in parts)


def _placed(ref: Ref) -> Reference:
    if ref.root not in ROOTS:
        hint = "placeholders are {{ params.name }}, {{ shared.name }} and {{ input.name }}"
        raise ExprError(f"references unknown identifier `{ref.root}`", 0, hint)
    return Reference(ref.root, ref.parts)


def _members(text: str, rest: str) -> tuple[Member, ...]:
    members: list[Member] = []
    at = 0
    while at < len(rest):
        part = _PART.match(rest, at)
        if part is None:
            raise ExprError(f"`{text[:40]}` is not a reference", len(text) - len(rest) + at, _HINT)
        name, index, quoted = part.groups()
        members.append(int(index) if index is not None else name or _ESCAPE.sub(r"\1", quoted))
        at = part.end()
    return tuple(members)
