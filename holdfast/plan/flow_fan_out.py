"""The items of a graph's fan-out, and the result that is gathered from its children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Raw

from holdfast.plan.flow_values import Resolver
from holdfast.plan.graph import ChildError, Gathered
from holdfast.plan.unread import count_items
from holdfast.plan.view import Evaluate, ItemsOf, View
from holdfast.spec.flow_nodes import FlowNode
from holdfast.spec.work import read
from holdfast.values import Error, NotJson, encode, written

CALL: Final = "call"  # the only step of a child of a fan-out


def results_of(children: list[dict[str, Any]]) -> list[Any]:
    return [child["steps"].get(CALL) for child in children]


def gatherer(node: FlowNode) -> Callable[[list[dict[str, Any]]], Gathered]:
    keeps_holes, ignores = node.failure_strategy == "collect_errors", node.failure_strategy == "ignore_errors"

    def gather(children: list[dict[str, Any]]) -> Gathered:
        results = [
            child["steps"].get(CALL) for child in children if keeps_holes or child["status"] == "completed"
        ]
        errors = [
            ChildError(index, child["error"]["message"])
            for index, child in enumerate(children)
            if child["status"] == "failed"
        ]
        if not errors or ignores:
            return Gathered(results, errors)
        first = children[errors[0].index]["error"]
        message = f"{len(errors)} of {len(children)} calls failed; call {errors[0].index}: {errors[0].error}"
        return Gathered(results, errors, Error(first["kind"], message))

    return gather


def items_of(evaluated: Evaluate) -> ItemsOf:
    def items(view: View) -> tuple[int, bytes]:
        value = evaluated(view)
        if type(value) is Raw and (text := bytes(value))[:1] == b"[":
            return count_items(text), text
        if not isinstance(value, list):
            raise NotJson(f"a foreach needs an array as its input, not {_kind_of(value)}")
        return len(value), written(value)

    return items


def services_of(node: FlowNode, resolver: Resolver) -> ItemsOf:
    value_of = resolver.param("services")

    def items(view: View) -> tuple[int, bytes]:
        services = list(node.parallel_services) if node.parallel_services else read(value_of(view))
        is_list = isinstance(services, list) and all(isinstance(name, str) and name for name in services)
        if not services:
            raise NotJson("no services")
        if not is_list:
            raise NotJson("the services of a parallel node are an array of names")
        return len(services), encode(services)

    return items


def _kind_of(value: Any) -> str:
    names = {dict: "an object", str: "text", bool: "a truth value", int: "a number", float: "a number"}
    return "null" if value is None else names.get(type(value), "another value")
