"""What a step or a workflow that leaves something out was probably meant to say.

Knows the keys of the notation. Must not know how the tree of steps is read.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import PurePath
from typing import Any, Final

from holdfast.spec import foreign
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.inputs import declared_inputs
from holdfast.spec.patch import NO_PATCH, Patch, Where, put
from holdfast.spec.problems import Fields
from holdfast.spec.read import SPEC_SUFFIXES
from holdfast.spec.repairs import Source, name_from
from holdfast.spec.repairs import step_id_for as id_for
from holdfast.spec.step_kinds import KINDS

_NAMED_AFTER_ID: Final = frozenset({"tool", "service", "workflow", "signal_key"})
_BLANKS: Final[dict[str, Any]] = {"delay_ms": 1_000, "until": "$.done", "prompt": "Continue?"}


def default_name(source: str) -> str:
    """The name of a workflow that has none: that of its file."""
    file = PurePath(source)
    return name_from(file.stem) or "workflow" if file.suffix in SPEC_SUFFIXES else "workflow"


def unwrapped(data: dict[str, Any], key: str, mark: str) -> Patch:
    """The patch for a definition that stands under one more key, as in `workflow: {name: …, steps: …}`."""
    inner = data[key]
    if not isinstance(inner, dict) or mark in data or mark not in inner:
        return NO_PATCH
    return put((), {name: value for name, value in data.items() if name != key} | inner)


def wrapped_step(data: dict[str, Any], known: Collection[str]) -> dict[str, Any] | None:
    """The step that stands under its name, as in `- fetch: {tool: get}`."""
    if len(data) != 1:
        return None
    ((name, inner),) = data.items()
    if name in known or not isinstance(inner, dict) or inner.keys().isdisjoint(known):
        return None
    return {"id": name, **inner}


_NAMED_CALLS: Final = ("tool", "service", "workflow")
_ALONE: Final = {
    "approve": "prompt",
    "wait_event": "signal_key",
    "parallel": "steps",
}  # what a kind's name alone holds


def nested_step(data: dict[str, Any], known: Collection[str]) -> tuple[str, dict[str, Any]] | None:
    """The key of a step that holds more of it than it may, and the step that was meant: `tool: {name: fetch, args: …}` names the tool
    and has its arguments, and `timer: {delay_ms: 5}` the kind and its keys."""
    for key, value in data.items():
        if key in _NAMED_CALLS:
            if isinstance(value, dict) and isinstance(value.get("name"), str) and _may_join(data, value):
                return key, {**_without(data, key), key: value["name"], **_without(value, "name")}
        elif key in KINDS and key not in known and "kind" not in data:
            main = "branches" if key == "parallel" and _are_lists(value) else _ALONE.get(key)
            has_keys = isinstance(value, dict) and any(foreign.is_key(name, known) for name in value)
            if has_keys and _may_join(data, value):
                return key, {**_without(data, key), "kind": key, **value}
            if (
                main is not None
                and main not in data
                and (isinstance(value, str | list) or main == "branches")
            ):
                return key, {**_without(data, key), "kind": key, main: value}
    return None


def _are_lists(value: Any) -> bool:
    """Whether a value is branches, with names or without."""
    branches = list(value.values()) if isinstance(value, dict) else value
    return isinstance(branches, list) and branches != [] and all(isinstance(one, list) for one in branches)


def _may_join(data: dict[str, Any], inner: dict[str, Any]) -> bool:
    """Whether nothing is lost: no key stands twice, and `workflow` holds no definition of its own."""
    return not data.keys() & inner.keys() and ("steps" not in inner or "workflow" not in data)


def _without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in data.items() if name != key}


def step_of_text(data: Any) -> Any:
    """The step that a single text names, or UNKNOWN."""
    name = name_from(data) if isinstance(data, str) and len(data) <= 64 else ""
    return {"id": name, "tool": name} if name else UNKNOWN


def kind_named_by(keys: Collection[str]) -> str | None:
    """The kind that the keys of a step belong to."""
    told = [kind for kind, rules in KINDS.items() if rules.is_identified_by(keys)]
    return next(
        iter([*told, *(kind for kind, rules in KINDS.items() if any(key in rules.keys for key in keys))]),
        None,
    )


def default_kind(keys: Collection[str]) -> str:
    return kind_named_by(keys) or "tool"


def step_id_for(fields: Fields) -> str:
    return id_for(fields.data, fields.at, fields.report.given)


def blank_of(fields: Fields, key: str) -> Any:
    """What a required key of a step could hold; UNKNOWN where any value would be made up."""
    if key == "id":
        return step_id_for(fields)
    if key in _NAMED_AFTER_ID:
        return name_from(str(fields.data.get("id") or "")[:64]) or UNKNOWN
    if key in ("items", "on"):
        return _path_at_hand(fields.report.given, fields.at)
    if key == "until" and fields.data.get("kind") == "timer":
        return UNKNOWN
    return _BLANKS.get(key, UNKNOWN)


def _path_at_hand(given: Source, at: Where) -> Any:
    """A path to what a step can read: an input that is a list, the output of the step before it, or any input."""
    declared = given.at(("inputs",))
    names = sorted(declared_inputs(declared)) if isinstance(declared, dict) else []
    lists = [name for name in names if _is_list(declared, name)]
    before = given.at((*at[:-1], at[-1] - 1, "id")) if at and isinstance(at[-1], int) and at[-1] else UNKNOWN
    if not lists and isinstance(before, str) and before:
        return f"$.steps{_member(before)}.output"
    found = next(iter([*lists, *names]), None)
    return UNKNOWN if found is None else f"$.inputs{_member(found)}"


def _is_list(declared: dict[str, Any], name: str) -> bool:
    properties = declared.get("properties")
    rule = declared.get(name, properties.get(name) if isinstance(properties, dict) else None)
    return isinstance(rule, dict) and rule.get("type") == "array"


def _member(name: str) -> str:
    return f".{name}" if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"['{name}']"


def first_node(graph: Any) -> Any:
    """The node of a graph to which no edge leads: the start."""
    nodes, edges = (graph.get("nodes"), graph.get("edges")) if isinstance(graph, dict) else (None, None)
    if not isinstance(nodes, dict) or not nodes:
        return UNKNOWN
    targets = {
        str(edge.get("to")) for edge in (edges if isinstance(edges, list) else ()) if isinstance(edge, dict)
    }
    return next((key for key in nodes if key not in targets), next(iter(nodes)))
