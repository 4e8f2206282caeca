"""Records → plain data, without defaults: what `to_yaml` writes and versions are hashed from.

Knows the keys of records. Must not know which values are valid.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.spec.condition import CONDITIONS, condition_data
from holdfast.spec.field_types import fields_of
from holdfast.spec.flow_nodes import Case, Edge, FlowDefinition, FlowNode
from holdfast.spec.policy import BackoffKind
from holdfast.spec.step_kinds import implied_kind
from holdfast.spec.steps import Body, Definition, OnError, ParallelBody, WorkflowStep


def data_of(definition: Definition) -> dict[str, Any]:
    return {key: value for key, value in _struct_data(definition).items() if key != "origin"}


def flow_data_of(definition: FlowDefinition) -> dict[str, Any]:
    return {key: value for key, value in _struct_data(definition).items() if key != "origin"}


def _node_data(node: FlowNode) -> dict[str, Any]:
    return {key: value for key, value in _struct_data(node).items() if key != "key"}


def _step_data(step: WorkflowStep) -> dict[str, Any]:
    data: dict[str, Any] = {"id": step.id}
    body = _body_data(step.body)
    if implied_kind(body) != step.kind:
        data["kind"] = step.kind
    if step.description:
        data["description"] = step.description
    if step.when is not None:
        data["when"] = _plain(step.when)
    handling = {"on_error": step.on_error, "finally": step.finally_, "compensate": step.compensate}
    return (
        data
        | body
        | _struct_data(step.policy)
        | _struct_data(step.answer)
        | {key: _plain(value) for key, value in handling.items() if value}
    )


def _body_data(body: Body) -> dict[str, Any]:
    if not isinstance(body, ParallelBody):
        return _struct_data(body)
    data: dict[str, Any] = {}
    if body.form == "branches" or any(len(branch) != 1 for branch in body.branches):
        data["branches"] = _plain(body.branches)
    elif body.branches:
        data["steps"] = [_step_data(step) for (step,) in body.branches]
    if body.on_any_fail != "abort":
        data["on_any_fail"] = body.on_any_fail
    return data


def _struct_data(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ from their defaults, in their order, by their names in the notation."""
    fields = ((key, getattr(struct, name), default) for name, key, default in fields_of(type(struct)))
    return {key: _plain(value) for key, value, default in fields if value != default}


def _plain(value: Any) -> Any:
    if isinstance(value, CONDITIONS):
        return condition_data(value)
    match value:
        case WorkflowStep():
            return _step_data(value)
        case FlowNode():
            return _node_data(value)
        case Edge(source, action, target):  # written in full, so that readers need not know the defaults
            return {"from": source, "action": action, "to": target}
        case Case(action, expr):
            return {"action": action, "expr": condition_data(expr)}
        case OnError():
            return _struct_data(value) | {"steps": _plain(value.steps)}
        case msgspec.Struct():
            return _struct_data(value)
        case tuple() | list():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(member) for key, member in value.items()}
        case BackoffKind():
            return value.value
        case _:
            return value
