"""Every key of the graph notation: what it may hold, which kinds of nodes have it, and a sentence about each.

These tables define how graphs are read and the JSON Schema for editors. Knows the keys and their types. Must not know how a tree
of graphs is read, or whether a name leads somewhere.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple, get_args

from holdfast.spec.condition import COMPARE_WORDS, HOLE, condition_from
from holdfast.spec.conversions import UNKNOWN, by_name
from holdfast.spec.field_types import (
    Choice,
    Flag,
    Key,
    Mapped,
    Nested,
    Schema,
    Table,
    Text,
    Texts,
    Whole,
    make,
    object_schema,
    read_table,
    required_in,
)
from holdfast.spec.flow_nodes import (
    Case,
    Edge,
    FailureStrategy,
    NodeCompensation,
    NodeKind,
    ParallelMode,
    Post,
    Prep,
)
from holdfast.spec.policy import ATTEMPTS_MAX, CONCURRENCY_MAX, DELAY_MS_MAX, NAME_CHARS_MAX, TIMEOUT_SECS_MAX
from holdfast.spec.problems import Fields, Where, type_name
from holdfast.spec.step_keys import ANSWER_KEYS, SPEC_KEYS
from holdfast.spec.step_types import operators_schema

TIMEOUT_MS_MAX: Final = TIMEOUT_SECS_MAX * 1_000

# ---------------------------------------------------------------------------------- shapes of this notation alone


class Word(NamedTuple):
    """A text. An empty one counts as absent, because programs with a field for every key write empty texts."""

    chars_max: int = 0

    def read(self, fields: Fields, key: str) -> str | None:
        return Text().read(fields, key) or None

    def schema(self) -> Schema:
        return Text(chars_max=self.chars_max).schema()


class Option(NamedTuple):
    """One of a few words. An empty text counts as absent."""

    options: tuple[str, ...]

    def read(self, fields: Fields, key: str) -> str | None:
        return None if fields.data[key] == "" else Choice(self.options).read(fields, key)

    def schema(self) -> Schema:
        return Choice((*self.options, "")).schema()


class Members(NamedTuple):
    """A mapping. An empty one counts as absent."""

    def read(self, fields: Fields, key: str) -> dict[str, Any] | None:
        return Mapped().read(fields, key) or None

    def schema(self) -> Schema:
        return Mapped().schema()


class FieldMap(NamedTuple):
    """A mapping to the names of fields."""

    def read(self, fields: Fields, key: str) -> dict[str, str] | None:
        found = Mapped().read(fields, key)
        if not found:
            return None
        inner = Fields(fields.report, found, (*fields.at, key), f"{fields.who}{key}: ")
        return {name: inner.get(name, str, "the name of a field") or "" for name in found}

    def schema(self) -> Schema:
        return {"type": "object", "additionalProperties": {"type": "string"}}


class Services(NamedTuple):
    """A list of names. An empty one counts as absent."""

    def read(self, fields: Fields, key: str) -> tuple[str, ...] | None:
        return Texts("service").read(fields, key) or None

    def schema(self) -> Schema:
        return Texts("service").schema()


class Cases(NamedTuple):
    """The cases of a choice, each with its condition."""

    def read(self, fields: Fields, key: str) -> tuple[Case, ...] | None:
        items = fields.get(key, list, "a list of cases")
        if items is None:
            return None
        return tuple(self._one(fields, (*fields.at, key, i), item) for i, item in enumerate(items))

    def _one(self, fields: Fields, at: Where, item: Any) -> Case:
        inner = entry(fields, at, item, CASE_KEYS, 'write {"action": "go", "expr": {…}}')
        expr = inner.data.get("expr")
        return Case(
            CASE_KEYS["action"].shape.read(inner, "action") or "",
            HOLE if expr is None else condition_from(expr, fields.report, (*at, "expr"), fields.who),
        )

    def schema(self) -> Schema:
        return {"type": "array", "minItems": 1, "items": object_schema(CASE_KEYS, {})}


class Condition(NamedTuple):
    """A condition, parsed by the reader of the record that contains it."""

    def read(self, fields: Fields, key: str) -> Any:
        return fields.data[key]

    def schema(self) -> Schema:
        return {"$ref": "#/$defs/condition"}


class Nodes(NamedTuple):
    """Nodes by their keys, unread: another module reads the tree."""

    def read(self, fields: Fields, key: str) -> dict[str, Any] | None:
        near = by_name(fields.data.get(key))
        found: dict[str, Any] | None = fields.get(key, dict, "a mapping of nodes by their keys", near)
        return found

    def schema(self) -> Schema:
        names = {"minLength": 1, "maxLength": NAME_CHARS_MAX}
        node = {"$ref": "#/$defs/node"}
        return {"type": "object", "minProperties": 1, "propertyNames": names, "additionalProperties": node}


def edges_of(value: Any) -> Any:
    """Convert a mapping that was written instead of a list of edges (node → next node, or node → {action: node}); UNKNOWN for
    any other value."""
    if not isinstance(value, dict):
        return UNKNOWN
    edges: list[dict[str, Any]] = []
    for source, target in value.items():
        if isinstance(target, dict):
            edges += [{"from": source, "action": action, "to": to} for action, to in target.items()]
        else:
            edges += [{"from": source, "to": to} for to in (target if isinstance(target, list) else [target])]
    return edges


def edge_of(item: Any) -> Any:
    """The edge that a list of nodes or a text `a -> b` means, or UNKNOWN."""
    ends = (
        re.split(r"\s*(?:-+>|=+>|→)\s*", item.strip()) if isinstance(item, str) and len(item) < 500 else item
    )
    if not isinstance(ends, list) or not all(isinstance(end, str) for end in ends):
        return UNKNOWN
    match ends:
        case [source, target]:
            return {"from": source, "to": target}
        case [source, action, target]:
            return {"from": source, "action": action, "to": target}
        case _:
            pass
    return UNKNOWN


class Edges(NamedTuple):
    """The edges. One without an action, or with an empty one, is the default."""

    def read(self, fields: Fields, key: str) -> tuple[Edge, ...] | None:
        items = fields.get(key, list, "a list of edges", edges_of(fields.data.get(key)))
        if items is None:
            return None
        return tuple(self._one(fields, (*fields.at, key, i), item) for i, item in enumerate(items))

    def _one(self, fields: Fields, at: Where, item: Any) -> Edge:
        inner = entry(fields, at, item, EDGE_KEYS, "write {from: a, action: default, to: b}")
        return make(Edge, read_table(EDGE_KEYS, inner))

    def schema(self) -> Schema:
        return {"type": "array", "items": object_schema(EDGE_KEYS, {})}


class Subflow(NamedTuple):
    """A graph inside a node, unread."""

    def read(self, fields: Fields, key: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = fields.get(key, dict, "a graph: a mapping")
        return found

    def schema(self) -> Schema:
        return {"$ref": "#/$defs/graph"}


def entry(fields: Fields, at: Where, item: Any, table: Table, hint: str) -> Fields:
    """The keys of one mapping in a list. An entry that is not a mapping is reported, and has none."""
    if isinstance(item, dict):
        inner = Fields(fields.report, item, at, fields.who, fields.wrong_code)
        inner.expect(table, required_in(table))
        return inner
    message = f"{fields.who}each entry must be a mapping, not {type_name(item)}"
    near = edge_of(item) if table is EDGE_KEYS else UNKNOWN
    fields.report.add("wrong_type", at, message, hint, near=near)
    for name in table:
        fields.report.settle((*at, name))
    return Fields(fields.report, {}, at)


# -------------------------------------------------------------------------------------------------- the tables

_NAME: Final = Text(r"\S", NAME_CHARS_MAX)

EDGE_KEYS: Final[Table] = {
    "from": Key(Text(), "The node from which the edge leads.", required=True),
    "action": Key(
        Word(),
        "The action that follows this edge. Default: `default`, which is followed if no other edge matches.",
    ),
    "to": Key(Text(), "The node to which the edge leads. Left out or empty: the end of the run."),
}

CASE_KEYS: Final[Table] = {
    "action": Key(Text(), "The action if the condition is true.", required=True),
    "expr": Key(Condition(), "The condition: an operator with its operands.", required=True),
}

GRAPH_KEYS: Final[Table] = {
    "start": Key(Text(r"\S"), "The key of the first node.", required=True),
    "nodes": Key(Nodes(), "The nodes, by their keys.", required=True),
    "edges": Key(Edges(), "The edges: which node follows which, depending on the action."),
    "finally": Key(
        Text(), "The key of the first node that runs however the others ended, with the nodes that follow it."
    ),
}

FLOW_KEYS: Final[Table] = {
    "name": Key(_NAME, "The name of the workflow. Default in a file: the name of the file."),
    **{key: SPEC_KEYS[key] for key in ("description", "inputs")},
    **GRAPH_KEYS,
    **{key: SPEC_KEYS[key] for key in ("on_restart", "timeout_secs", "labels")},
}

_PREP: Final = Nested(
    Prep,
    {
        "input_key": Key(
            Word(), "The input of the node: $params.name, $shared.name, or a path in shared state."
        ),
        "input_map": Key(
            Members(),
            "An input made of several values: name → reference. A string that starts with ', and any other value, is literal.",
        ),
    },
)
_POST: Final = Nested(
    Post,
    {
        "output_key": Key(Word(), "The key in shared state to which the result is written."),
        "output_map": Key(FieldMap(), "Fields of the result to write: key in shared state → field."),
        "action_static": Key(Word(), "A fixed action."),
        "action_key": Key(Word(), "Where to find the action: a key of the result, or else of shared state."),
    },
)

# Keys that every node may have. Keys about calls have no effect on nodes that make none.
NODE_KEYS: Final[dict[str, Key]] = {
    "kind": Key(Word(), "The kind of the node. Default if `service` is given: executor."),
    "description": Key(Text(), "The purpose of the node."),
    "params": Key(
        Mapped(),
        "Parameters, which take precedence over those of the run; $params.name refers to one of the run.",
    ),
    "prep": Key(_PREP, "How the input of the node is built."),
    "post": Key(_POST, "Where the result is written, and which action follows."),
    "default_action": Key(Word(), "The action if `post` gives none."),
    "max_retries": Key(Whole(0, ATTEMPTS_MAX - 1), "How often a failed call is retried."),
    "wait_ms": Key(Whole(0, DELAY_MS_MAX), "The delay before a retry."),
    "max_attempts": Key(
        Whole(0, ATTEMPTS_MAX, "step_attempts_max"), "How many workers are tried; 0 means all."
    ),
    "attempt_delay_ms": Key(Whole(0, DELAY_MS_MAX), "The delay before the next worker is tried."),
    "weighted_by_load": Key(Flag(), "Whether the least busy worker is tried first."),
}
CALL_ONLY: Final = ("max_retries", "wait_ms", "max_attempts", "attempt_delay_ms", "weighted_by_load")

_TIMEOUT: Final = Key(
    Whole(0, TIMEOUT_MS_MAX),
    "How long the call to one worker may take, in milliseconds; 0 means no limit. Default: 10 seconds.",
)
_TOOL_TIMEOUT: Final = Key(
    Whole(0, TIMEOUT_MS_MAX), "How long an attempt may take, in milliseconds; 0 means no limit."
)
_WHOLE_TIMEOUT: Final = Key(
    Whole(0, TIMEOUT_MS_MAX), "How long the whole node may take, in milliseconds; 0 means no limit."
)
_WAIT: Final = Key(Whole(0, TIMEOUT_MS_MAX), "How long to wait, in milliseconds; 0 means forever.")
_SERVICE: Final = Key(_NAME, "The name of the service.", required=True)
_KEY: Final = Key(
    Text(r"\S"),
    "$params.name, or a string with placeholders such as {{ params.order }}. If an output is already stored under this key, "
    "it is used and the call is not made.",
)
_UNDO: Final = Key(
    Nested(
        NodeCompensation,
        {
            "service": Key(
                _NAME, "The service that undoes the call; of a local node, the tool.", required=True
            ),
            "params": Key(Mapped(), "Its parameters. $input refers to the result of the node."),
        },
    ),
    "The call that undoes this one if the run fails or is cancelled later. Its input is the result of the node.",
)
_GROUP: Final[dict[str, Key]] = {
    "parallel_mode": Key(
        Option(get_args(ParallelMode)), "Whether the calls are made one after another or at the same time."
    ),
    "max_parallel": Key(
        Whole(0, CONCURRENCY_MAX, "concurrency_max"), "How many calls are made at the same time; 0 means all."
    ),
    "failure_strategy": Key(
        Option(get_args(FailureStrategy)),
        "What happens when a call fails: no further calls start; all calls are made and errors are collected; errors are ignored.",
    ),
}
_NUMBER_OR_TEXT: Final[Schema] = {"type": ["number", "string", "null"]}
_REFERENCE: Final[Schema] = {"type": "string", "minLength": 1}


class FlowKind(NamedTuple):
    """The keys of a kind of node, besides those of every node. `makes_calls` if workers or tools do the work."""

    says: str
    keys: Table
    makes_calls: bool = False
    own_params: tuple[tuple[str, Schema], ...] = ()  # parameters that the node itself reads
    needed_params: tuple[str, ...] = ()


FLOW_KINDS: Final[dict[NodeKind, FlowKind]] = {
    "executor": FlowKind(
        "Calls a service that workers provide.",
        {
            "service": _SERVICE,
            "timeout_ms": _TIMEOUT,
            "idempotency_key": _KEY,
            "compensate": _UNDO,
            **ANSWER_KEYS,
        },
        makes_calls=True,
    ),
    "local": FlowKind(
        "Calls a tool in the engine's process.",
        {
            "service": Key(_NAME, "The name of the tool.", required=True),
            "timeout_ms": _TOOL_TIMEOUT,
            "idempotency_key": _KEY,
            "compensate": _UNDO,
            **ANSWER_KEYS,
        },
        makes_calls=True,
    ),
    "choice": FlowKind(
        "Takes the action of the first case whose condition is true, or else the action that any other node would take.",
        {"choice_cases": Key(Cases(), "The cases, tried in this order.")},
    ),
    "parallel": FlowKind(
        "Calls several services with the same input.",
        {
            "parallel_services": Key(Services(), "The services. Default: params.services, a list of names."),
            **_GROUP,
            "timeout_ms": _TIMEOUT,
            **ANSWER_KEYS,
        },
        makes_calls=True,
        own_params=(
            (
                "services",
                {
                    "type": ["array", "string", "null"],
                    "items": {"type": "string"},
                    "description": "The services if parallel_services is not given: a list, or a reference to one.",
                },
            ),
        ),
    ),
    "foreach": FlowKind(
        "Calls a service for each item of its input, which is a list.",
        {"service": _SERVICE, **_GROUP, "timeout_ms": _TIMEOUT, **ANSWER_KEYS},
        makes_calls=True,
    ),
    "subflow": FlowKind(
        "Runs a graph inside this one, with its own shared state.",
        {"subflow": Key(Subflow(), "The inner graph.", required=True), "timeout_ms": _WHOLE_TIMEOUT},
    ),
    "flow_ref": FlowKind(
        "Runs another workflow by its name.",
        {"flow": Key(_NAME, "The name of the workflow.", required=True), "timeout_ms": _WHOLE_TIMEOUT},
    ),
    "timer": FlowKind(
        "Waits for a time.",
        {},
        own_params=(
            (
                "delay_ms",
                _NUMBER_OR_TEXT | {"description": "How long to wait: milliseconds, or a reference."},
            ),
        ),
    ),
    "wait_event": FlowKind(
        "Waits until a value is set: not null, not false, not an empty string.",
        {"timeout_ms": _WAIT},
        own_params=(
            ("signal_key", _REFERENCE | {"description": "Where the value is: $shared.name"}),
            ("timeout_ms", _NUMBER_OR_TEXT | {"description": "How long to wait, in milliseconds."}),
        ),
        needed_params=("signal_key",),
    ),
    "approval": FlowKind(
        "Waits until shared state contains a decision: approved or rejected.",
        {"timeout_ms": _WAIT},
        own_params=(
            ("approval_key", _REFERENCE | {"description": "Where the decision is: $shared.name"}),
            ("timeout_ms", _NUMBER_OR_TEXT | {"description": "How long to wait, in milliseconds."}),
        ),
        needed_params=("approval_key",),
    ),
}

assert set(FLOW_KINDS) == set(get_args(NodeKind))


def condition_schema() -> Schema:
    """A condition as JSON Schema: one operator with its operands, a reference, or true or false."""
    condition: Schema = {"$ref": "#/$defs/condition"}
    many: Schema = {"type": "array", "items": condition}
    two: Schema = {"type": "array", "minItems": 2, "maxItems": 2}
    reference: Schema = {"type": "string", "pattern": r"^\$(params|shared|input)([.\[]|$)"}
    operands: dict[str, Schema] = {"and": many, "or": many, "not": condition, "exists": reference}
    operands |= dict.fromkeys(COMPARE_WORDS, two)
    return operators_schema(operands, reference)
