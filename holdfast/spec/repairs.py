"""The change that repairs a problem of a definition, as a JSON Patch.

    problem (code, place) + what was probably meant + the data ──► patch, or nothing

Knows the codes of problems and the form of a repair. The code that finds the problem passes the word or value that was meant.
A repair is offered, never applied unasked. Where nothing better is known, it removes the part without a meaning, but no part
that says what runs or when.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import count
from typing import Any, Final, NamedTuple

from holdfast.spec import foreign
from holdfast.spec.conversions import UNKNOWN, in_unit_of, interval_text, unit_of
from holdfast.spec.expr import ExprError, parse_jsonpath, parse_template
from holdfast.spec.patch import NO_PATCH, Patch, Where, drop, put, rename, replace
from holdfast.spec.policy import NAME_CHARS_MAX

# Longer texts are left alone: looking for a repair must not take longer than reading them did.
TEXT_CHARS_MAX: Final = 2_000


class Source:
    """The data of a definition, as it was given."""

    def __init__(self, data: Any = UNKNOWN) -> None:
        self.data = data
        self.declares_inputs = False  # does a repair declare the first inputs?

    @cached_property
    def ids(self) -> set[str]:
        """All ids, at any depth, and those that repairs have given."""
        return {item["id"] for item in _mappings(self.data) if isinstance(item.get("id"), str)}

    @cached_property
    def words(self) -> Counter[str]:
        """How many steps without an id would get each name."""
        nameless = (item for item in _mappings(self.data) if not item.get("id"))
        return Counter(word for item in nameless if (word := _word_of(item)) is not None)

    def at(self, where: Where) -> Any:
        """The value at a place, or UNKNOWN."""
        found = self.data
        for key in where:
            if isinstance(found, list):
                found = found[key] if isinstance(key, int) and key < len(found) else UNKNOWN
            elif isinstance(found, dict):
                found = found.get(key, UNKNOWN)
            else:
                return UNKNOWN
        return found


class Wrong(NamedTuple):
    """A problem and its details. `near` is the word or value that was probably meant."""

    code: str
    at: Where
    near: Any
    source: Source

    @property
    def value(self) -> Any:
        return self.source.at(self.at)

    @property
    def text(self) -> str | None:
        value = self.value
        return value if isinstance(value, str) and len(value) <= TEXT_CHARS_MAX else None

    @property
    def parent(self) -> Any:
        return self.source.at(self.at[:-1])

    @property
    def key(self) -> Any:
        return self.at[-1] if self.at else ""


def patch_for(code: str, at: Where, near: Any, source: Source) -> Patch:
    """The patch for a problem; empty if no repair is known."""
    wrong = Wrong(code, at, near, source)
    repair = _REPAIRS.get(code)
    patch = repair(wrong) if repair else NO_PATCH
    return patch if repair in (_unknown_key, _unknown_operator) else patch or _as_meant(wrong)


def _as_meant(wrong: Wrong) -> Patch:
    """Replace the value with the one that was meant."""
    if wrong.near is UNKNOWN:
        return NO_PATCH
    is_element = bool(wrong.at) and isinstance(wrong.parent, list)
    return replace(wrong.at, wrong.near) if is_element else put(wrong.at, wrong.near)


# --------------------------------------------------------------------------------------------------------- keys


def _unknown_key(wrong: Wrong) -> Patch:
    if not wrong.at or not isinstance(wrong.parent, dict) or wrong.key not in wrong.parent:
        return NO_PATCH
    old, new = wrong.key, wrong.near
    if new == old:
        return NO_PATCH
    is_known = new is not UNKNOWN and wrong.parent.get(new) is None
    if foreign.is_telling(old) and not (is_known and _is_meant_by(new, wrong)):
        return NO_PATCH if wrong.value and not _is_after_all(wrong) else drop(wrong.at)
    if not is_known:
        return drop(wrong.at)
    value = _under(old, new, wrong.value)
    renamed = rename(wrong.at[:-1], old, new)
    return renamed if value == wrong.value else (*renamed, *replace((*wrong.at[:-1], new), value))


def _unknown_operator(wrong: Wrong) -> Patch:
    return NO_PATCH if wrong.near is UNKNOWN else _unknown_key(wrong)


def _under(old: str, new: str, value: Any) -> Any:
    """The value of a key under another name: in the unit of that name, or as a policy."""
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if new == "max_retries" and isinstance(value, dict):
        attempts = value.get("max_attempts", value.get("attempts"))
        return attempts - 1 if isinstance(attempts, int) and attempts > 0 else value
    if new == "when" and foreign.is_negation(old):
        return {"not": value}
    if new == "retry" and is_count:
        return {"max_attempts": max(value, 0) + ("retr" in old)}
    if new == "max_attempts" and is_count and "retr" in old:
        return value + 1
    if new == "on_any_fail" and isinstance(value, bool):
        return "continue" if value == ("continue" in old or "ignore" in old) else "abort"
    if new == "every" and is_count:
        return interval_text(in_unit_of(value, old if unit_of(old) else "secs", "every_ms"))
    return in_unit_of(value, old, new)


def _is_meant_by(new: str, wrong: Wrong) -> bool:
    """Whether a key may have the value under the new name. The action of a case leads to the node that it names only by an edge."""
    if new != "action" or "nodes" not in wrong.at:
        return foreign.may_hold(new, wrong.value)
    place = wrong.at.index("nodes")
    edges = wrong.source.at((*wrong.at[:place], "edges"))
    wanted = {"from": wrong.at[place + 1], "action": wrong.value}
    return isinstance(edges, list) and any(
        isinstance(one, dict) and wanted.items() <= one.items() for one in edges
    )


def _is_after_all(wrong: Wrong) -> bool:
    """Whether a top-level step comes after all the steps that it names, because of their order alone."""
    if not foreign.is_order(wrong.key) or wrong.at[:-2] != ("steps",):
        return False
    names = wrong.value if isinstance(wrong.value, list) else [wrong.value]
    steps = wrong.source.at(("steps",))[: wrong.at[1]]
    before = {step["id"] for step in steps if isinstance(step, dict) and isinstance(step.get("id"), str)}
    return all(isinstance(name, str) and name in before for name in names)


def _drop(wrong: Wrong) -> Patch:
    return drop(wrong.at) if isinstance(wrong.parent, dict) and wrong.key in wrong.parent else NO_PATCH


def _duplicate_key(wrong: Wrong) -> Patch:
    """Keep the last value of a duplicate key, which is the one that was read."""
    return NO_PATCH if wrong.value is UNKNOWN else replace(wrong.at, wrong.value)


# -------------------------------------------------------------------------------------------------------- names


def name_from(text: str, allowed: str = r"[^A-Za-z0-9_-]+") -> str:
    """Turn a text into a valid name."""
    return re.sub(allowed, "_", text, flags=re.ASCII).strip("_")[:64]


def unique(name: str, taken: set[str]) -> str:
    """Make a name unique by adding a number, and reserve it."""
    found = next(found for n in count(2) if (found := f"{name}_{n}") not in taken)
    taken.add(found)
    return found


def _mappings(root: Any) -> Iterator[dict[str, Any]]:
    stack = [root]
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            yield value
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(value)


def _duplicate_id(wrong: Wrong) -> Patch:
    return replace(wrong.at, unique(wrong.text, wrong.source.ids)) if wrong.text else NO_PATCH


def _duplicate_path(wrong: Wrong) -> Patch:
    return replace(wrong.at, f"{wrong.value}-2") if isinstance(wrong.value, str) else NO_PATCH


def _empty_id(wrong: Wrong) -> Patch:
    """Name a step without an id after what it does."""
    if not isinstance(wrong.parent, dict) or wrong.key != "id":
        return NO_PATCH
    return put(wrong.at, step_id_for(wrong.parent, wrong.at, wrong.source))


def step_id_for(step: dict[str, Any], at: Where, source: Source) -> str:
    word = _word_of(step)
    numbers = [str(part + 1) for part in at if isinstance(part, int)]
    base = word if word is not None and source.words[word] < 2 else "_".join([word or "step", *numbers])
    if base in source.ids:
        return unique(base, source.ids)
    source.ids.add(base)
    return base


_NAMING_KEYS: Final = ("name", "tool", "service", "workflow", "kind", "type", "uses", "action")


def _word_of(step: dict[str, Any]) -> str | None:
    words = (step.get(key) for key in _NAMING_KEYS)
    return next((found for word in words if isinstance(word, str) and (found := name_from(word[:200]))), None)


def _invalid_name(wrong: Wrong) -> Patch:
    if not wrong.text or wrong.near is not UNKNOWN:
        return NO_PATCH
    shown = re.sub(r"\{\{.*?\}\}", "", wrong.text)
    clean = "".join(letter for letter in shown if letter.isprintable())
    better = clean.strip()[:NAME_CHARS_MAX]
    if better == wrong.text.strip() or not better:
        better = name_from(clean) or ("name" if wrong.key != "as" else "item")
    return replace(wrong.at, better)


def _name_too_long(wrong: Wrong) -> Patch:
    return replace(wrong.at, wrong.value[:NAME_CHARS_MAX]) if isinstance(wrong.value, str) else NO_PATCH


def _invalid_url(wrong: Wrong) -> Patch:
    if not wrong.text:
        return NO_PATCH
    text = re.sub(r"\{\{.*?\}\}", "", wrong.text).strip()
    scheme, _, rest = text.rpartition("://")
    rest = re.sub(r"^[^/@]*@", "", rest)
    return (
        replace(wrong.at, f"{scheme if scheme in ('http', 'https') else 'https'}://{rest}")
        if rest
        else NO_PATCH
    )


# -------------------------------------------------------------------------------------------- templates and paths

_PLACEHOLDER: Final = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
_REFERENCE: Final = re.compile(
    r"""[^\W\d][\w-]*(?:\.[\w-]+|\[\s*[0-9]{1,15}\s*\]|\[\s*"[^"\\]*"\s*\]|\[\s*'[^'\\]*'\s*\])*"""
)
_HYPHENED: Final = re.compile(r"\.([A-Za-z_]\w*(?:-\w+)+)")


def _invalid_template(wrong: Wrong) -> Patch:
    if not wrong.text:
        return NO_PATCH
    text = wrong.text
    if text.count("{{") > text.count("}}"):
        text = re.sub(r"\{\{\s*([^\s{}]*)(?![^{]*\}\})\}?", r"{{ \1 }}", text)
    better = _PLACEHOLDER.sub(lambda found: _placeholder(found[1]), text)
    if wrong.key == "idempotency_key":
        better = re.sub(r"""\[\s*["']?([\w-]+)["']?\s*\]""", r".\1", better)
    return replace(wrong.at, better) if better != wrong.value and _is_template(better) else NO_PATCH


def _placeholder(inside: str) -> str:
    """The reference in a placeholder, without operators, calls and filters."""
    found = _REFERENCE.search(re.sub(r"^\s*\$?\.?", "", inside))
    return f"{{{{ {found[0]} }}}}" if found else ""


def _is_template(text: str) -> bool:
    try:
        parse_template(text)
    except ExprError:
        return False
    return True


def _invalid_jsonpath(wrong: Wrong) -> Patch:
    if not wrong.text or wrong.near is not UNKNOWN:  # a comparison is better than the path in it
        return NO_PATCH
    for better in _paths_like(wrong.text.strip()):
        if better != wrong.text and _is_path(better):
            return replace(wrong.at, better)
    return NO_PATCH


def _paths_like(text: str) -> Iterator[str]:
    inner = _PLACEHOLDER.fullmatch(text)
    text = re.sub(r"^\$\{(.*)\}$", r"\1", inner[1] if inner else text).strip()
    path = text if text.startswith("$") else f"$.{text.lstrip('.')}"
    yield path
    path = _HYPHENED.sub(r"['\1']", path)
    yield path
    # What follows the path is left out only if it says nothing: a comparison or a call is more than the path in it.
    if (found := re.fullmatch(r"(\$(?:\.\w+|\['[^']*'\]|\[\d+\])+)[\s.\[\]]*", path)) is not None:
        yield found[1]


def _is_path(text: str) -> bool:
    try:
        parse_jsonpath(text)
    except ExprError:
        return False
    return True


def in_text(text: str, old: str, new: str) -> str:
    """A text in which the name of a reference has been replaced."""
    return re.sub(rf"(?<![\w.-])((?:\$\.)?){re.escape(old)}(?![\w-])", lambda found: found[1] + new, text)


def _misplaced_secret(wrong: Wrong) -> Patch:
    if not wrong.text:
        return NO_PATCH
    return replace(wrong.at, re.sub(r"\{\{\s*secrets\b.*?\}\}", "", wrong.text))


_REPAIRS: Final[dict[str, Callable[[Wrong], Patch]]] = {
    "unknown_key": _unknown_key,
    "unknown_operator": _unknown_operator,
    "unknown_argument": _unknown_key,
    "misplaced_key": _drop,
    "exclusive_keys": _drop,
    "duplicate_key": _duplicate_key,
    "anchor": _duplicate_key,
    "tag": _duplicate_key,
    "duplicate_id": _duplicate_id,
    "duplicate_path": _duplicate_path,
    "empty_id": _empty_id,
    "invalid_name": _invalid_name,
    "name_too_long": _name_too_long,
    "invalid_url": _invalid_url,
    "invalid_template": _invalid_template,
    "invalid_jsonpath": _invalid_jsonpath,
    "misplaced_secret": _misplaced_secret,
}
