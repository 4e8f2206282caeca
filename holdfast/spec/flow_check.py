"""Checks that each name and reference of a graph is valid, and warns about what is probably not intended.

Knows which nodes may be named where, and what a kind reads from its params. Must not know which services exist, or the
values of a run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, assert_never

from holdfast import limits
from holdfast.nearest import did_you_mean, nearest
from holdfast.spec.conversions import UNKNOWN, converted, number_of
from holdfast.spec.expr import ExprError, parse_jsonpath
from holdfast.spec.field_types import quoted_number
from holdfast.spec.flow_keys import CALL_ONLY, FLOW_KINDS, TIMEOUT_MS_MAX
from holdfast.spec.flow_nodes import (
    DEFAULT_ACTION,
    END,
    FlowDefinition,
    FlowNode,
    Graph,
    graphs,
    placed,
    reached_from,
)
from holdfast.spec.foreign import END_WORDS
from holdfast.spec.inputs import check_inputs
from holdfast.spec.names import check_name
from holdfast.spec.patch import NO_PATCH, Patch, drop, put, rename, replace
from holdfast.spec.policy import DELAY_MS_MAX
from holdfast.spec.problems import Report, Where, hint_for_type, one_of, quoted, type_name
from holdfast.spec.reference import given, is_reference, key_parts, reference, reference_like
from holdfast.spec.repairs import name_from
from holdfast.spec.step_blanks import first_node
from holdfast.spec.step_keys import TOOL_NAME

_TOOL_NAME = re.compile(TOOL_NAME)


def check_flow(spec: FlowDefinition, report: Report) -> None:
    """Report every name and reference that cannot be used."""
    if not spec.name.strip():
        report.add("empty_name", ("name",), "the name of a workflow must not be empty", "give it one")
    check_name(report, ("name",), spec.name)
    check_inputs(spec.inputs, report)
    if sum(1 for _ in placed(spec.graph)) > limits.now.spec_steps_max:
        message = (
            f"the graph has more than {limits.now.spec_steps_max:,} nodes ({limits.met('spec_steps_max')})"
        )
        return report.add("too_many_nodes", ("nodes",), message, "use a foreach, or several workflows")
    for at, graph in graphs(spec.graph):
        _Checker(report, graph, at).check()


class _Checker:
    """Checks one graph: its edges and each of its nodes."""

    def __init__(self, report: Report, graph: Graph, at: Where) -> None:
        self._report, self._graph, self._at = report, graph, at

    def check(self) -> None:
        depth = self._at.count("subflow")
        if depth > limits.now.nesting_max:
            message = (
                f"subflows are nested deeper than {limits.now.nesting_max} ({limits.met('nesting_max')})"
            )
            return self._report.add("nested_too_deep", self._at, message, "use a flow_ref for the inner part")
        if self._graph.nodes:  # otherwise there is no target, which has been reported
            self._start()
            self._edges()
            if self._graph.finally_:
                self._finally()
        for key, node in self._graph.nodes.items():
            self._node(node, (*self._at, "nodes", key))

    def _start(self) -> None:
        at = (*self._at, "start")
        if not self._graph.start:
            near = first_node(self._report.given.at(self._at))
            self._report.add("missing_key", at, 'the key "start" is missing', "add `start: …`", near=near)
        else:
            self._leads_to(at, "start", self._graph.start)

    def _finally(self) -> None:
        """Check that no node is both in the `finally` chain and in the rest of the graph."""
        at, first = (*self._at, "finally"), self._graph.finally_
        self._leads_to(at, "finally", first)
        both = reached_from(self._graph, first) & reached_from(self._graph, self._graph.start)
        if both:
            message = f"finally leads to {quoted(min(both))}, which the other nodes lead to as well"
            hint = "use nodes of their own for what runs at the end"
            self._report.add("shared_node", at, message, hint)

    def _leads_to(self, at: Where, word: str, key: str) -> None:
        nodes = self._graph.nodes
        if key not in nodes and not self._report.is_full:
            hint = did_you_mean(key, nodes) or f"the nodes are {one_of(nodes)}"
            message = f"{word} names an unknown node: {quoted(key)}"
            self._report.add("unknown_node", at, message, hint, patch=lambda: self._led(at, word, key))

    def _led(self, at: Where, word: str, key: str) -> Patch:
        """The node with the most similar name. Without one, an edge to an unknown node leads to the end, and an edge from one is left out."""
        near = nearest(key, self._graph.nodes)
        if word == "to" and (near is None or key.lower() in END_WORDS):
            return replace(at, END)
        if near is None and word == "from":
            return self._edges_without(lambda edge: edge.get("from") == key)
        return replace(at, near or first_node(self._report.given.at(self._at)))

    def _edges_without(self, is_out: Callable[[dict[str, Any]], bool]) -> Patch:
        edges = self._report.given.at((*self._at, "edges"))
        if not isinstance(edges, list):
            return NO_PATCH
        kept = [edge for edge in edges if not (isinstance(edge, dict) and is_out(edge))]
        return replace((*self._at, "edges"), kept)

    def _edges(self) -> None:
        first: dict[tuple[str, str], Where] = {}
        for i, edge in enumerate(self._graph.edges):
            at = (*self._at, "edges", i)
            self._leads_to((*at, "from"), "from", edge.source)
            if edge.target != END:
                self._leads_to((*at, "to"), "to", edge.target)
            earlier = first.setdefault((edge.source, edge.action), at)
            if earlier != at:
                message = f"two edges lead from {quoted(edge.source)} by the action {quoted(edge.action)}"
                hint = f"the first is in {self._report.line_of(earlier)}"
                self._report.add("duplicate_edge", at, message, hint, patch=self._first_edges)

    def _first_edges(self) -> Patch:
        seen: set[tuple[str, str]] = set()

        def is_repeated(edge: dict[str, Any]) -> bool:
            name = (str(edge.get("from")), str(edge.get("action") or DEFAULT_ACTION))
            is_known = name in seen
            seen.add(name)
            return is_known

        return self._edges_without(is_repeated)

    def _node(self, node: FlowNode, at: Where) -> None:
        if not node.key.strip():
            hint = "give it a key that is not empty"
            patch = rename(at[:-1], node.key, "node") if "node" not in self._graph.nodes else NO_PATCH
            message = "the key of a node must not be empty"
            self._report.add("empty_id", at, message, hint, of_key=True, patch=patch)
        check_name(self._report, at, node.key, of_key=True)
        who = f"node {quoted(node.key)}: "
        self._names(node, at, who)
        self._prep_and_post(node, at, who)
        self._params(node, at, who)
        self._rules(node, at, who)

    def _names(self, node: FlowNode, at: Where, who: str) -> None:
        match node.kind:
            case "executor" | "foreach":
                self._name(who, "service", node.service or "", (*at, "service"))
            case "local":
                self._tool_name(who, node.service or "", (*at, "service"))
            case "flow_ref":
                self._name(who, "workflow", node.flow or "", (*at, "flow"), forbidden="")
            case "parallel":
                for i, service in enumerate(node.parallel_services or ()):
                    self._name(who, "service", service, (*at, "parallel_services", i))
            case "choice" | "timer" | "subflow" | "wait_event" | "approval":
                pass  # these name nothing outside the graph
            case _:
                assert_never(node.kind)

    def _name(self, who: str, noun: str, name: str, at: Where, forbidden: str = "/") -> None:
        if not name.strip():
            near = at[-2] if isinstance(at[-1], str) else UNKNOWN
            message = f"{who}the name of a {noun} must not be empty"
            self._report.add("invalid_name", at, message, "name it", near=near)
        elif any(letter in name for letter in forbidden):
            hint = "it is a name, not an address or a path"
            self._report.add("invalid_name", at, f"{who}{quoted(name)} cannot be the name of a {noun}", hint)
        check_name(self._report, at, name)

    def _tool_name(self, who: str, name: str, at: Where) -> None:
        if not _TOOL_NAME.fullmatch(name):
            message = f"{who}invalid tool name {quoted(name)}: use 1 to 64 letters, digits, _ and -"
            near = name_from(name) or name_from(str(at[-2])) or UNKNOWN
            self._report.add("invalid_tool_name", at, message, "name a tool", near=near)

    def _prep_and_post(self, node: FlowNode, at: Where, who: str) -> None:
        if node.prep.input_key is not None:
            self._readable(given, node.prep.input_key, (*at, "prep", "input_key"), who)
        for key, value in (node.prep.input_map or {}).items():
            self._readable(given, value, (*at, "prep", "input_map", key), who)
        if node.post.action_key is not None:
            self._readable(reference, node.post.action_key, (*at, "post", "action_key"), who)
        for key, field in (node.post.output_map or {}).items():
            self._field(field, (*at, "post", "output_map", key), who)

    def _field(self, field: str, at: Where, who: str) -> None:
        """Check a path within the result of a node."""
        if field.startswith("$"):
            message = f"{who}{quoted(field)} is no field of the result"
            near = field.removeprefix("$result.").removeprefix("$output.").lstrip("$.")
            hint = "write it without $, as in order.id"
            self._report.add("invalid_reference", at, message, hint, near=near or UNKNOWN)
        else:
            self._readable(reference, field, at, who)

    def _readable(self, read: Callable[[Any], object], value: Any, at: Where, who: str) -> None:
        try:
            read(value)
        except ExprError as error:
            near = reference_like(value)
            self._report.add("invalid_reference", at, f"{who}{error}", error.hint, near=near)

    def _rules(self, node: FlowNode, at: Where, who: str) -> None:
        """Check the rules for the response of a call."""
        if node.idempotency_key is not None:
            where = (*at, "idempotency_key")
            if not node.idempotency_key.strip():
                message = f"{who}idempotency_key must not be empty"
                self._report.add("invalid_name", where, message, "leave it out", patch=drop(where))
            self._readable(key_parts, node.idempotency_key, where, who)
        if node.result is not None and node.result.select is not None:
            try:
                parse_jsonpath(node.result.select)
            except ExprError as error:
                message = f"{who}invalid JSONPath expression {quoted(node.result.select)}: {error}"
                self._report.add("invalid_jsonpath", (*at, "result", "select"), message, error.hint)

    # -------------------------------------------------------------------------- what a kind reads from its params

    def _params(self, node: FlowNode, at: Where, who: str) -> None:
        inside = (*at, "params")
        for where, text in _references(node.params, inside):
            self._readable(reference, text, where, who)
        for name in FLOW_KINDS[node.kind].needed_params:
            self._needed(node.params, name, inside, who)
        match node.kind:
            case "timer":
                # A time in the past fires at once, so negative numbers are allowed.
                self._millis(node.params, "delay_ms", inside, who, -DELAY_MS_MAX, DELAY_MS_MAX)
            case "wait_event" | "approval":
                self._millis(node.params, "timeout_ms", inside, who, 0, TIMEOUT_MS_MAX)
                if node.timeout_ms is not None and node.params.get("timeout_ms") is not None:
                    message = f"{who}timeout_ms stands both on the node and in its params"
                    self._report.add("exclusive_keys", (*at, "timeout_ms"), message, "keep one of them")
            case "parallel" if node.parallel_services is None:
                self._services(node.params.get("services"), (*inside, "services"), who)

    def _needed(self, params: dict[str, Any], name: str, at: Where, who: str) -> None:
        """Check a reference that the node requires."""
        value = params.get(name)
        if value is None or value == "":
            message = f'{who}the key "{name}" is missing in params'
            near = f"$shared.{name_from(str(at[-2])) or 'name'}"
            patch = put((*at, name), near) if params else put(at, {name: near})
            hint = f'add "{name}": "$shared.name"'
            self._report.add("missing_key", (*at, name), message, hint, patch=patch)
        elif not isinstance(value, str):
            message = f"{who}{name} must be text, not {type_name(value)}"
            near = converted(value, (str,), name)
            self._report.add("wrong_type", (*at, name), message, hint_for_type(str, value), near=near)
        elif not is_reference(value):  # it is a path in shared state, or not a reference
            self._readable(reference, value, (*at, name), who)

    def _millis(self, params: dict[str, Any], name: str, at: Where, who: str, low: int, high: int) -> None:
        value, where = params.get(name), (*at, name)
        if value is None or (isinstance(value, str) and is_reference(value)):
            return
        if isinstance(value, str) and value.startswith("$"):
            self._readable(reference, value, where, who)
        elif isinstance(value, bool) or not isinstance(value, int | float):
            message = (
                f"{who}{name} must be a number of milliseconds or a reference, not {_shown_value(value)}"
            )
            hint, near = "write 5000 for five seconds, or $params.name", number_of(value, name)
            self._report.add("wrong_type", where, message, hint, near=near)
        elif not low <= value <= high:
            message = f"{who}{name} must be from {low:,} to {high:,}, not {quoted_number(value)}"
            near = min(max(value, low), high)
            self._report.add("out_of_range", where, message, "write milliseconds", near=near)

    def _services(self, services: Any, at: Where, who: str) -> None:
        """The services of a parallel that its params name; if they name none, the params of a run may."""
        if services is None or (isinstance(services, str) and is_reference(services)):
            return
        if not isinstance(services, list):
            message = f"{who}services must be a list of names or a reference, not {type_name(services)}"
            near = converted(services, (list,), "services")
            self._report.add("wrong_type", at, message, hint_for_type(list, services), near=near)
            return
        for i, service in enumerate(services):
            if isinstance(service, str):
                self._name(who, "service", service, (*at, i))
            else:
                message = f"{who}each service must be text, not {type_name(service)}"
                near = converted(service, (str,), "service")
                self._report.add("wrong_type", (*at, i), message, hint_for_type(str, service), near=near)


def _references(value: Any, at: Where) -> Iterator[tuple[Where, str]]:
    """The texts in params that begin like references, with their places."""
    if isinstance(value, str):
        if is_reference(value):
            yield at, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _references(member, (*at, key))
    elif isinstance(value, list):
        for i, member in enumerate(value):
            yield from _references(member, (*at, i))


def _shown_value(value: Any) -> str:
    return quoted(value) if isinstance(value, str) else type_name(value)


# --------------------------------------------------------------------------------------------------------- oddities


def note_flow_oddities(spec: FlowDefinition, report: Report) -> None:
    """Warn about things that are valid but probably not intended."""
    for at, graph in graphs(spec.graph):
        _note_unreachable(graph, report, at)
        _note_dead_ends(graph, report, at)
    for at, node in placed(spec.graph):
        _note_without_effect(node, report, at)


def _note_unreachable(graph: Graph, report: Report, at: Where) -> None:
    reached = reached_from(graph, graph.start) | reached_from(graph, graph.finally_)
    for key in graph.nodes:
        if key not in reached:
            message = f"no edge leads to node {quoted(key)} from the start"
            report.note("unreachable", (*at, "nodes", key), message, "add an edge, or remove it")


def _note_dead_ends(graph: Graph, report: Report, at: Where) -> None:
    """If a node names an action that has no edge, the run ends there, while a `default` edge would continue it."""
    actions: dict[str, set[str]] = {}
    for edge in graph.edges:
        actions.setdefault(edge.source, set()).add(edge.action)
    for key, node in graph.nodes.items():
        known = actions.get(key, set())
        if not known or DEFAULT_ACTION in known:
            continue
        for where, action in _actions_named(node):
            if action not in known and not report.has_notes_enough:
                message = f"node {quoted(key)}: no edge has the action {quoted(action)}: it leads to the end"
                hint = did_you_mean(action, known) or "add an edge with it, or one with the action default"
                report.note("no_edge", (*at, "nodes", key, *where), message, hint)


def _actions_named(node: FlowNode) -> Iterator[tuple[Where, str]]:
    for i, case in enumerate(node.choice_cases):
        yield ("choice_cases", i, "action"), case.action
    if node.post.action_static is not None:
        yield ("post", "action_static"), node.post.action_static
    elif node.default_action is not None:
        yield ("default_action",), node.default_action


def _note_without_effect(node: FlowNode, report: Report, at: Where) -> None:
    who = f"node {quoted(node.key)}: "

    def note(keys: Iterable[str], where: Where, reason: str, hint: str) -> None:
        for key in keys:
            report.note("without_effect", (*where, key), f"{who}{key} has no effect {reason}", hint)

    if not FLOW_KINDS[node.kind].makes_calls:
        said = (key for key in CALL_ONLY if getattr(node, key))
        note(said, at, f"on a node of kind {node.kind}, which makes no calls", "remove it")
    if node.prep.input_key is not None and node.prep.input_map is not None:
        note(("input_key",), (*at, "prep"), "beside input_map, which wins", "remove one of them")
    if node.kind == "foreach" and node.prep.input_key is None and node.prep.input_map is None:
        hint = "say which by prep.input_key"
        report.note("no_items", at, f"{who}a foreach without an input has no list to go through", hint)
