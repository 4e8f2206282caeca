"""The notations as JSON Schemas (draft 2020-12), by which editors complete and check definitions.

Knows how to express the tables of the notation in JSON Schema. Must not know any key by name beyond those that
identify the kind of a step or node. What depends on names (references, unique ids, paths that parse) is beyond it.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast.spec.field_types import Schema, Table, fields_of, key_schema, object_schema, required_in
from holdfast.spec.flow_keys import FLOW_KEYS, FLOW_KINDS, GRAPH_KEYS, NODE_KEYS, FlowKind, condition_schema
from holdfast.spec.flow_nodes import FlowDefinition, FlowNode, Graph
from holdfast.spec.policy import StepPolicy
from holdfast.spec.step_keys import ANSWER_KEYS, CALL_KEYS, POLICY_KEYS, SPEC_KEYS, STEP_KEYS
from holdfast.spec.step_kinds import IMPLIED_KINDS, KINDS, Kind
from holdfast.spec.step_types import step_condition_schema
from holdfast.spec.steps import Answer, Definition

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def schema() -> Schema:
    """The whole, as plain data."""
    return {
        "$schema": DIALECT,
        "title": "Holdfast workflow",
        "description": "A workflow of Holdfast in the steps notation.",
        **object_schema(SPEC_KEYS, _defaults(Definition)),
        "$defs": {
            "step": _step(),
            "condition": step_condition_schema(),
            **{f"step_{name}": _kind(name, kind) for name, kind in KINDS.items()},
        },
    }


def _defaults(record: Any) -> dict[str, Any]:
    return {key: default for _, key, default in fields_of(record)}


def _step() -> Schema:
    kinds = {
        "description": STEP_KEYS["kind"].says,
        "anyOf": [
            *({"const": name, "description": kind.says} for name, kind in KINDS.items()),
            {"type": "null"},
        ],
    }
    return {
        "type": "object",
        "description": "A step.",
        "properties": {"kind": kinds, "id": key_schema(STEP_KEYS["id"])},
        "required": required_in(STEP_KEYS),
        "anyOf": [_says("kind"), *(_says(words[0]) for words in IMPLIED_KINDS.values())],
        "allOf": [{"if": _is_of(name), "then": {"$ref": f"#/$defs/step_{name}"}} for name in KINDS],
    }


def _is_of(name: str) -> Schema:
    """Match steps of a kind: the one that the step states, or else the first whose keys it has."""
    said: Schema = {"required": ["kind"], "properties": {"kind": {"const": name}}}
    words = IMPLIED_KINDS
    if name not in words:
        return said
    earlier = list(words)[: list(words).index(name)]
    rules = [{"not": _says("kind")}, _has(words[name]), *({"not": _has(words[other])} for other in earlier)]
    return {"anyOf": [said, {"allOf": rules}]}


def _says(key: str) -> Schema:
    """Match a key that is present and not null; null means absent."""
    return {"required": [key], "properties": {key: {"not": {"type": "null"}}}}


def _has(words: tuple[str, ...]) -> Schema:
    first, *others = words
    return {"required": [first]} | ({"anyOf": [{"required": [other]} for other in others]} if others else {})


def _kind(name: str, kind: Kind) -> Schema:
    common = {
        key: rule for key, rule in (POLICY_KEYS | ANSWER_KEYS | CALL_KEYS).items() if key in kind.common
    }
    table: Table = {**STEP_KEYS, **kind.keys, **common}
    defaults = _defaults(kind.record) | {
        key: default for key, default in (_defaults(StepPolicy) | _defaults(Answer)).items() if key in common
    }
    schema = {"description": kind.says, **object_schema(table, defaults)}
    schema["properties"] = schema["properties"] | {"kind": {"enum": [name, None]}}
    if kind.one_of:
        schema["oneOf"] = [_only(key, kind.one_of) for key in kind.one_of]
        if not kind.one_of_is_required:
            schema["oneOf"].append({"not": {"anyOf": [_says(key) for key in kind.one_of]}})
    return schema


def _only(key: str, among: tuple[str, ...]) -> Schema:
    others = [_says(other) for other in among if other != key]
    return {**_says(key), "not": {"anyOf": others}}


# ------------------------------------------------------------------------------------------------- the graph notation

# the type of a key that belongs to another kind
_NOTHING: Final[Schema] = {"enum": [None, "", 0, False, [], {}]}


def flow_schema() -> Schema:
    """The graph notation, as plain data."""
    return {
        "$schema": DIALECT,
        "title": "Holdfast graph",
        "description": "A workflow of Holdfast in the graph notation.",
        **object_schema(FLOW_KEYS, _defaults(FlowDefinition)),
        "$defs": {
            "graph": object_schema(GRAPH_KEYS, _defaults(Graph)),
            "condition": condition_schema(),
            "node": _node(),
            **{f"node_{name}": _flow_kind(name, kind) for name, kind in FLOW_KINDS.items()},
        },
    }


def _node() -> Schema:
    kinds = [{"const": name, "description": kind.says} for name, kind in FLOW_KINDS.items()]
    return {
        "type": "object",
        "description": "A node.",
        "properties": {
            "kind": {"description": NODE_KEYS["kind"].says, "anyOf": [*kinds, {"enum": [None, ""]}]}
        },
        "anyOf": [_says_kind(), _says("service")],
        "allOf": [{"if": _is_node_of(name), "then": {"$ref": f"#/$defs/node_{name}"}} for name in FLOW_KINDS],
    }


def _is_node_of(name: str) -> Schema:
    """Match nodes of a kind: the one that the node names, or else executor."""
    said: Schema = {"required": ["kind"], "properties": {"kind": {"const": name}}}
    return {"anyOf": [said, {"not": _says_kind()}]} if name == "executor" else said


def _says_kind() -> Schema:
    return {"required": ["kind"], "properties": {"kind": {"not": {"enum": [None, ""]}}}}


def _flow_kind(name: str, kind: FlowKind) -> Schema:
    schema = {"description": kind.says, **object_schema({**NODE_KEYS, **kind.keys}, _defaults(FlowNode))}
    others = {key for rules in FLOW_KINDS.values() for key in rules.keys} - {*NODE_KEYS, *kind.keys}
    own = {"params": _with_own_params(schema["properties"]["params"], kind)} if kind.own_params else {}
    schema["properties"] |= {
        "kind": {"enum": [name, None, ""]},
        **own,
        **dict.fromkeys(sorted(others), _NOTHING),
    }
    if kind.needed_params:
        schema["required"] = [*schema.get("required", ()), "params"]
    return schema


def _with_own_params(params: Schema, kind: FlowKind) -> Schema:
    schema = params | {"properties": dict(kind.own_params)}
    return schema | {"type": "object", "required": list(kind.needed_params)} if kind.needed_params else schema
