"""References of a graph node: to shared state, params, its result and its task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.plan import expr, templates
from holdfast.plan.expr import Merged, Source
from holdfast.plan.unread import value_in
from holdfast.plan.view import Evaluate, View
from holdfast.spec.flow_nodes import FlowNode
from holdfast.spec.reference import Literal, Reference, given, is_reference, reference
from holdfast.spec.scope import OUTPUT


class Resolver:
    """Resolves the references of one node."""

    def __init__(self, node: FlowNode, depth: int, task: Source) -> None:
        self._node, self.depth, self._task = node, depth, task
        self._own = {name: self._param(value) for name, value in node.params.items()}
        self.params = Merged(task, self._own)
        self.prep = self._prep(node)

    def _param(self, value: Any) -> Any:
        """Return a param as written, with `$params.x` taken from the task."""
        if isinstance(value, str) and is_reference(value):
            found = reference(value)
            return self._of_task(found.members) if found.root == "params" else value
        if isinstance(value, dict):
            return {name: self._param(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self._param(member) for member in value]
        return value

    def of_undo(self, params: Mapping[str, Any]) -> Merged:
        """Return the params of a compensation: references to params, to shared state, and to the result as `$input`."""
        return Merged(self._task, {name: self._of_result(value) for name, value in params.items()})

    def _of_result(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._of_result(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self._of_result(member) for member in value]
        if not (isinstance(value, str) and is_reference(value)):
            return value
        found = reference(value)
        if found.root == "params":
            return self._of_task(found.members)
        return Source(
            "vars", found.members if found.root == "shared" else (OUTPUT, *found.members), self.depth
        )

    def _of_task(self, members: tuple[str | int, ...]) -> Source:
        return Source(self._task.kind, members, self._task.depth)

    def _prep(self, node: FlowNode) -> Any:
        if node.prep.input_map is not None:
            return {to: self._given(value) for to, value in node.prep.input_map.items()}
        return None if node.prep.input_key is None else self._given(node.prep.input_key)

    def _given(self, value: Any) -> Any:
        """Compile a template for the values that prep names. The node has no input yet, so `$input` is null."""
        found = given(value)
        if isinstance(found, Literal):
            return found.value
        if found.root == "shared":
            return Source("vars", found.members, self.depth)
        if found.root == "input":
            return None
        return self._of_params(found.members)

    def _of_params(self, members: tuple[str | int, ...]) -> Any:
        """Return a place in the node's own params."""
        if not members:
            return self.params
        if members[0] not in self._own:
            return self._of_task(members)
        own = self._own[str(members[0])]
        if isinstance(own, Source):
            return Source(own.kind, (*own.members, *members[1:]), own.depth)
        return expr.walk(own, members[1:]) if members[1:] else own

    def value(self, found: Reference) -> Callable[[View, Any], Any]:
        """Return the value of a reference, given the node's input or result."""
        if found.root == "input":
            return lambda view, value: expr.walk(value, found.members)
        if found.root == "shared":
            of_vars = expr.evaluate(Source("vars", found.members, self.depth))
            return lambda view, value: of_vars(view)
        of_params = expr_of(self._of_params(found.members))
        return lambda view, value: of_params(view)

    def param(self, name: str) -> Evaluate:
        """Return a param that configures the node itself; it may be any reference."""
        written = self._node.params.get(name)
        if not (isinstance(written, str) and is_reference(written)):
            return expr_of(self._of_params((name,)))
        value_of, given_of = self.value(reference(written)), expr_of(self.prep)
        return lambda view: value_of(view, given_of(view))


def expr_of(template: Any) -> Evaluate:
    """Evaluate a template to a value. A composed value is rendered to text first, so that its size is counted: the same variable in a
    thousand places is a thousand copies."""
    if isinstance(template, Source):
        return expr.evaluate(template)
    if isinstance(template, Merged | dict | list):
        text = templates.render(template, refers=False)
        return lambda view: value_in(text(view))
    return lambda view: template
