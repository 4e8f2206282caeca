"""Plain data → records: the tree of graphs is read by the tables of the notation.

Knows how the kind of a node is determined and how a misplaced key is reported. Must not know what a key may
hold, or whether a name is defined: that is checked on the records.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from holdfast.nearest import did_you_mean, nearest
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.field_types import Table, make, read_table, required_in
from holdfast.spec.flow_keys import FLOW_KEYS, FLOW_KINDS, GRAPH_KEYS, NODE_KEYS, edges_of
from holdfast.spec.flow_nodes import FlowDefinition, FlowNode, Graph, NodeKind
from holdfast.spec.foreign import NEXT_WORDS
from holdfast.spec.patch import NO_PATCH, Patch, drop, put
from holdfast.spec.problems import Fields, Report, Where, meant, quoted, type_name
from holdfast.spec.read import PROBLEMS_MAX
from holdfast.spec.step_blanks import default_name, first_node
from holdfast.spec.steps import Origin

AnyFlow = TypeVar("AnyFlow", bound=FlowDefinition)


def flow_from(data: Any, report: Report, record: type[AnyFlow]) -> AnyFlow:
    """Build the graph that plain data describe. Parts with problems are left out or replaced by placeholders."""
    if not isinstance(data, dict):
        hint = "it starts with `start:` and `nodes:`"
        report.add("wrong_type", (), f"a graph must be a mapping, not {type_name(data)}", hint)
        raise report.refusal()
    found = _read_graph(FLOW_KEYS, Fields(report, data, ()))
    found["inputs"] = found.get("inputs") or None  # an empty declaration is the same as none
    if data.get("name") is None:  # a file may leave it out, so the table does not require it
        near = default_name(report.source)
        report.add("missing_key", ("name",), 'the key "name" is missing', "add `name: …`", near=near)
    origin = Origin(
        report.document, report.source, tuple(report.notes), report.given, is_stored=report.is_stored
    )
    return make(record, found | {"origin": origin})


def _read_graph(table: Table, fields: Fields) -> dict[str, Any]:
    fields.expect(
        table, required_in(table), blanks=lambda key: first_node(fields.data) if key == "start" else UNKNOWN
    )
    found = read_table(table, fields)
    at = (*fields.at, "nodes")
    nodes = found.get("nodes", {})
    if isinstance(fields.data.get("nodes"), dict) and not nodes:
        hint = "add `nodes: {first: {kind: executor, service: name}}`"
        fields.wrong("no_nodes", "nodes", "a graph must have at least one node", hint)
    found["nodes"] = {key: _read_node(fields.report, key, node, (*at, key)) for key, node in nodes.items()}
    return found


def _read_node(report: Report, key: str, data: Any, at: Where) -> FlowNode:
    if not isinstance(data, dict):
        message = f"node {quoted(key)} must be a mapping, not {type_name(data)}"
        near = {"kind": "executor", "service": data or key} if isinstance(data, str) else UNKNOWN
        report.add("wrong_type", at, message, "write {kind: executor, service: name}", near=near)
        return _hole(key)
    fields = Fields(report, data, at, f"node {quoted(key)}: ")
    kind, certain = _kind_of(fields)
    if kind is None:
        fields.expect(_keys_of_all())
        return _hole(key)
    table = {**NODE_KEYS, **FLOW_KINDS[kind].keys}
    _expect_keys(fields, kind, table, certain)
    found = read_table(table, fields)
    if "subflow" in found:
        inner = Fields(report, found["subflow"], (*at, "subflow"), fields.who)
        found["subflow"] = make(Graph, _read_graph(GRAPH_KEYS, inner))
    return make(FlowNode, found | {"key": key, "kind": kind})


def _hole(key: str) -> FlowNode:
    """A placeholder for a node that cannot be read: edges may name it, and it causes no further problems."""
    return FlowNode(key, "timer")


def _kind_of(fields: Fields) -> tuple[NodeKind | None, bool]:
    """The kind of a node, and whether it was stated or guessed from a misspelt word."""
    said = fields.data.get("kind")
    if said is None or said == "":
        return _silent_kind(fields), True
    kind = fields.get("kind", str, "text")
    for known in FLOW_KINDS:
        if kind == known:
            return known, True
    if kind is None:
        return None, True
    message = f"unknown kind {quoted(kind)}; the kinds are {', '.join(FLOW_KINDS)}"
    near = UNKNOWN if fields.report.is_full else meant("kind", kind, FLOW_KINDS)
    hint = did_you_mean(kind, FLOW_KINDS) or "choose one of them"
    fields.wrong("unknown_kind", "kind", message, hint, _owner(fields.data) if near is UNKNOWN else near)
    near = nearest(kind, FLOW_KINDS)
    return next((known for known in FLOW_KINDS if known == near), None), False


def _silent_kind(fields: Fields) -> NodeKind | None:
    """The kind of a node that does not state it: one that names a service is an executor."""
    if "service" in fields.data:
        return "executor"
    unknown = list(islice((key for key in fields.data if key not in _keys_of_all()), PROBLEMS_MAX))
    if any(nearest(key, ("kind", "service")) for key in unknown):
        return None  # reported as misspelt
    owners = [kind for kind, rules in FLOW_KINDS.items() if any(key in fields.data for key in rules.keys)]
    hint = f"did you mean kind: {owners[0]}?" if owners else f"the kinds are {', '.join(FLOW_KINDS)}"
    message = 'the key "kind" or "service" is missing'
    claimed = any(fields.meant_key(key, _keys_of_all()) in ("kind", "service") for key in unknown)
    fields.wrong("missing_key", "kind", message, hint, UNKNOWN if claimed else _owner(fields.data))
    return None


def _owner(keys: Collection[str]) -> NodeKind:
    """The kind that the keys of a node belong to."""
    owners = (kind for kind, rules in FLOW_KINDS.items() if any(key in keys for key in rules.keys))
    return next(owners, "executor")


def _expect_keys(fields: Fields, kind: NodeKind, table: Table, certain: bool) -> None:
    required = required_in(table)
    if not certain:  # keys that another kind would require are not missing
        for name in required:
            fields.report.settle((*fields.at, name))
        required = []
    fields.expect(
        _keys_of_all(),
        required,
        near=table,
        elsewhere=lambda key: _as_edges(fields, key),
        blanks=lambda key: _named_after(fields, key),
    )
    for key, value in fields.data.items():
        if key in _keys_of_all() and key not in table and _says_something(value) and certain:
            owners = [name for name, rules in FLOW_KINDS.items() if key in rules.keys]
            message = f"{fields.who}{key} has no meaning on a node of kind {kind}"
            hint = f"it belongs to the kinds {', '.join(owners)}"
            fields.report.add("misplaced_key", (*fields.at, key), message, hint, of_key=True)


def _as_edges(fields: Fields, key: str) -> Patch:
    """The edges that a node names itself. Those of all nodes at once, so that the patches of several nodes agree."""
    *graph, _, _ = fields.at
    given = fields.report.given.at(tuple(graph))
    if key not in NEXT_WORDS or not isinstance(given, dict) or not _names_one(fields.data[key]):
        return NO_PATCH
    edges = list(found) if isinstance(found := given.get("edges"), list) else []
    for name, node in given["nodes"].items():
        for word in NEXT_WORDS if isinstance(node, dict) else ():
            if _names_one(node.get(word)):
                edges += edges_of({name: node[word]})
    return NO_PATCH if _disagree(edges) else (*put((*graph, "edges"), edges), *drop((*fields.at, key)))


def _disagree(edges: list[Any]) -> bool:
    """Whether two edges lead from one node by one action to different nodes."""
    ends = dict[tuple[str, str], str]()
    for edge in edges:
        match edge:
            case {"from": str() as source, "to": str() as target}:
                by = str(edge.get("action") or "default")
                if ends.setdefault((source, by), target) != target:
                    return True
            case _:
                pass
    return False


def _names_one(following: Any) -> bool:
    """Whether at most one node follows each action: an edge has one end."""
    targets = list(following.values()) if isinstance(following, dict) else [following]
    return all(isinstance(one, str) or (isinstance(one, list) and len(one) == 1) for one in targets)


def _named_after(fields: Fields, key: str) -> Any:
    """A service, tool or workflow without a name has the name of its node."""
    if key == "subflow" and isinstance(fields.data.get("flow"), dict):
        return fields.data["flow"]
    return fields.at[-1] if key in ("service", "flow") else UNKNOWN


def _says_something(value: Any) -> bool:
    """Return whether a value is not empty. Programs with a field for every key also write keys of other kinds, with empty values."""
    return value is not None and value is not False and value not in ("", 0, [], {})


@cache
def _keys_of_all() -> frozenset[str]:
    """The keys of all kinds."""
    return frozenset({*NODE_KEYS, *(key for rules in FLOW_KINDS.values() for key in rules.keys)})
