"""After a graph node: what it writes, and which action follows from its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.plan import composed, expr
from holdfast.plan.composed import TooLarge
from holdfast.plan.conditions import Holds, Lookup, condition
from holdfast.plan.flow_values import Resolver
from holdfast.plan.graph import ChildError, Post
from holdfast.plan.view import View
from holdfast.spec.flow_nodes import FlowNode
from holdfast.spec.reference import Reference, reference
from holdfast.spec.work import Work
from holdfast.values import written


def post_of(node: FlowNode, edges: Mapping[str, str], resolver: Resolver) -> Post:
    return Post(_writes(node), _action(node, resolver), edges)


def _writes(node: FlowNode) -> Callable[[View, Any, Sequence[ChildError]], Mapping[str, bytes]]:
    key = node.post.output_key
    fields = {to: reference(field).members for to, field in (node.post.output_map or {}).items()}
    collects = node.failure_strategy == "collect_errors"

    def writes(view: View, value: Any, errors: Sequence[ChildError]) -> Mapping[str, bytes]:
        texts = dict[str, bytes]()
        left = composed.LIMIT
        for to, members in fields.items():
            texts[to] = written(expr.walk(value, members))
            left -= len(texts[to])
            if left < 0:
                raise TooLarge
        if key is not None:
            texts[key] = written(expr.walk(value, ()))
            if errors and collects:
                texts[f"{key}_errors"] = written(list(errors))
        return texts

    return writes


def _action(node: FlowNode, resolver: Resolver) -> Callable[[View, Any], str]:
    """Return the action of a node: `choice_cases`, `action_static`, `action_key` in the result and then in shared state, `default_action`."""
    if node.kind == "approval":
        return _decided(node, resolver)
    cases = [(case.action, condition(case.expr)) for case in node.choice_cases]
    static, default = node.post.action_static, node.default_action or ""
    named = None if node.post.action_key is None else reference(node.post.action_key)
    elsewhere = None if named is None else resolver.value(named)
    places = [] if named is None or named.root != "shared" else [named.members]
    if node.kind == "wait_event" and places and places[0][0] == "signal":
        places.insert(0, places[0][1:])
    values: dict[Reference, Callable[[View, Any], Any]] = {}

    def action(view: View, value: Any) -> str:
        def found_at(found: Reference) -> Any:
            if found not in values:
                values[found] = resolver.value(found)
            return values[found](view, value)

        if (name := _first_that_holds(cases, found_at, view)) is not None:
            return name
        if static:
            return static
        if named is not None and elsewhere is not None:
            in_result = [expr.walk(value, place) for place in places]
            for said in (*in_result, elsewhere(view, value)):
                if isinstance(said, str) and said:
                    return said
        return default

    return action


def _first_that_holds(cases: list[tuple[str, Holds]], resolver: Lookup, view: View) -> str | None:
    """The action of the first case whose condition holds. All cases of a node share one budget of work: a node may have
    thousands of them, and they are decided in one turn of the event loop."""
    work = Work()
    try:
        return next((name for name, holds in cases if holds(resolver, work)), None)
    finally:
        view.worked += work.spent


def _decided(node: FlowNode, resolver: Resolver) -> Callable[[View, Any], str]:
    """Return the action of an approval: `approved`, `rejected`, or the text of the decision."""
    static, default, key = node.post.action_static, node.default_action or "", node.post.action_key
    elsewhere = None if key in (None, "approval") else resolver.value(reference(key))

    def action(view: View, value: Any) -> str:
        said = value if elsewhere is None else elsewhere(view, value)
        if isinstance(said, bool):
            said = "approved" if said else "rejected"
        return static or (said if isinstance(said, str) and said else default)

    return action
