"""Graphs with mistakes: each is refused with its code at its place, and with a hint that helps; all of them at once."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from holdfast.errors import InvalidSpec, Problem
from holdfast.spec.document import pointer_to
from holdfast.spec.flow import FlowSpec
from holdfast.spec.flow_keys import FLOW_KINDS
from tests.spec.flows import CALL, FULL, choice, flow


def problems_of(data: Any) -> list[Problem]:
    with pytest.raises(InvalidSpec) as refused:
        FlowSpec.from_data(data).validate()
    return list(refused.value.problems)


def told(data: Any) -> list[tuple[str, str]]:
    return sorted((problem.pointer, problem.code) for problem in problems_of(data))


class Broken(NamedTuple):
    data: Any
    code: str
    pointer: str
    hint: str  # a part of it


def node(node: Any, code: str, pointer: str, hint: str) -> Broken:
    """A graph of one node, where the pointer is one within it."""
    return Broken(flow({"a": node}), code, f"/nodes/a{pointer}", hint)


def call(key: str, value: Any, code: str, hint: str, at: str = "") -> Broken:
    """An executor with one key that is wrong."""
    return node({**CALL, key: value}, code, f"/{key}{at}", hint)


def expr(data: Any, code: str, at: str, hint: str) -> Broken:
    return Broken(choice(data), code, f"/nodes/a/choice_cases/0/expr{at}", hint)


def kind(name: str, **keys: Any) -> dict[str, Any]:
    return {"kind": name, **keys}


def edge(edges: list[Any], code: str, at: str, hint: str) -> Broken:
    return Broken(flow({"a": CALL, "b": CALL}, edges), code, f"/edges{at}", hint)


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in flow().items() if name != key}


def nested(levels: int) -> dict[str, Any]:
    inner: dict[str, Any] = CALL
    for _ in range(levels):
        inner = kind("subflow", subflow={"start": "a", "nodes": {"a": inner}})
    return flow({"a": inner})


ONE_MISTAKE: dict[str, Broken] = {
    # the whole
    "no mapping": Broken([], "wrong_type", "", "`start:`"),
    "null": Broken(None, "wrong_type", "", "`start:`"),
    "no name": Broken(without("name"), "missing_key", "/name", "add `name"),
    "an empty name": Broken(flow(name=" "), "empty_name", "/name", "give it one"),
    "a name that is a number": Broken(flow(name=5), "wrong_type", "/name", "quotation marks"),
    "a long name": Broken(flow(name="n" * 201), "name_too_long", "/name", "shorten"),
    "no start": Broken(without("start"), "missing_key", "/start", "add `start"),
    "a start that is null": Broken(flow(start=None), "missing_key", "/start", "add `start"),
    "a start that is empty": Broken(flow(start=""), "missing_key", "/start", "add `start"),
    "a start that is nowhere": Broken(flow(start="zzz"), "unknown_node", "/start", "the nodes are a"),
    "a misspelt start": Broken(
        flow({"first": CALL}, start="frist"), "unknown_node", "/start", "did you mean first?"
    ),
    "a start that is a number": Broken(flow(start=1), "wrong_type", "/start", "quotation marks"),
    "no nodes": Broken(without("nodes"), "missing_key", "/nodes", "add `nodes"),
    "nodes that are none": Broken(flow({}), "no_nodes", "/nodes", "add `nodes"),
    "nodes in a list": Broken(flow(nodes=None) | {"nodes": [CALL]}, "wrong_type", "/nodes", "key: value"),
    "edges that are a mapping": Broken(flow() | {"edges": {}}, "wrong_type", "/edges", "on its own line"),
    "an unknown key": Broken(flow(edge=[]), "unknown_key", "/edge", "did you mean edges?"),
    "a key of the steps notation": Broken(flow(steps=[]), "unknown_key", "/steps", "known keys are"),
    "an input of an unknown type": Broken(
        flow(inputs={"x": {"type": "nubmer"}}), "unknown_type", "/inputs/x/type", "number"
    ),
    "a label that is a number": Broken(flow(labels={"a": 1}), "wrong_type", "/labels/a", "quotation marks"),
    "no time at all": Broken(flow(timeout_secs=0), "out_of_range", "/timeout_secs", "leave it out"),
    "a restart of no kind": Broken(flow(on_restart="again"), "invalid_choice", "/on_restart", "write resume"),
    # edges
    "an edge to nowhere": edge([{"from": "a", "to": "c"}], "unknown_node", "/0/to", "the nodes are a, b"),
    "an edge from nowhere": edge([{"from": "c", "to": "a"}], "unknown_node", "/0/from", "the nodes are a, b"),
    "an edge from nothing": edge([{"to": "a"}], "missing_key", "/0/from", "add `from"),
    "an edge from an empty text": edge([{"from": "", "to": "a"}], "unknown_node", "/0/from", "the nodes are"),
    "an edge that is a text": edge(["a -> b"], "wrong_type", "/0", "write {from: a"),
    "an edge with a key too many": edge(
        [{"from": "a", "too": "b"}], "unknown_key", "/0/too", "did you mean to?"
    ),
    "an edge with a list of targets": edge([{"from": "a", "to": ["b"]}], "wrong_type", "/0/to", "one text"),
    "an edge with a numeric action": edge(
        [{"from": "a", "action": 1}], "wrong_type", "/0/action", "quotation"
    ),
    "two edges with one action": edge(
        [{"from": "a", "action": "x", "to": "b"}, {"from": "a", "action": "x"}],
        "duplicate_edge",
        "/1",
        "the first is in /edges/0",
    ),
    "two default edges, said in two ways": edge(
        [{"from": "a", "action": "default", "to": "b"}, {"from": "a", "action": "", "to": "a"}],
        "duplicate_edge",
        "/1",
        "the first is in",
    ),
    # nodes
    "a node that is a text": node("transform", "wrong_type", "", "write {kind"),
    "a node with an empty key": Broken(flow({"a": CALL, "": CALL}), "empty_id", "/nodes/", "give it a key"),
    "a node with a blank key": Broken(flow({" ": CALL}), "empty_id", "/nodes/ ", "give it a key"),
    "a node with a long key": Broken(
        flow({"k" * 201: CALL}), "name_too_long", f"/nodes/{'k' * 201}", "shorten it"
    ),
    "a node whose key breaks a line": Broken(
        flow({"a\nb": CALL}), "invalid_name", "/nodes/a\nb", "take out U+000A"
    ),
    "a service that rings a bell": call("service", "s\a", "invalid_name", "take out U+0007"),
    "a workflow that turns what follows it round": Broken(
        flow(name="n\u202e"), "invalid_name", "/name", "take out U+202E"
    ),
    "a node without a kind": node({}, "missing_key", "/kind", "the kinds are executor"),
    "a node without a kind that tells it": node(
        {"flow": "x"}, "missing_key", "/kind", "did you mean kind: flow_ref?"
    ),
    "an unknown kind": node(kind("script"), "unknown_kind", "/kind", "choose one of them"),
    "a misspelt kind": node(kind("executer", service="s"), "unknown_kind", "/kind", "did you mean executor?"),
    "a misspelt kind without what it needs": node(
        kind("executer"), "unknown_kind", "/kind", "did you mean executor?"
    ),
    "a kind that is a number": node(kind(1), "wrong_type", "/kind", "quotation marks"),  # type: ignore[arg-type]
    "an unknown key of a node": call("retries", 3, "unknown_key", "did you mean max_retries?"),
    "a misspelt service": node({"servise": "s"}, "unknown_key", "/servise", "did you mean service?"),
    "cases of a call": call("choice_cases", [1], "misplaced_key", "it belongs to the kinds choice"),
    "a strategy of a call": call(
        "failure_strategy", "fail_fast", "misplaced_key", "it belongs to the kinds parallel, foreach"
    ),
    "a service of a timer": node(kind("timer", service="s"), "misplaced_key", "/service", "executor"),
    "a time limit of a choice": node(
        kind("choice", choice_cases=[{"action": "x", "expr": True}], timeout_ms=5),
        "misplaced_key",
        "/timeout_ms",
        "it belongs to the kinds executor",
    ),
    "a strategy of a subflow": node(
        kind("subflow", subflow={"start": "x", "nodes": {"x": CALL}}, failure_strategy="retry"),
        "misplaced_key",
        "/failure_strategy",
        "parallel, foreach",
    ),
    # calls
    "an executor without a service": node(kind("executor"), "missing_key", "/service", "add `service"),
    "a foreach without a service": node(kind("foreach"), "missing_key", "/service", "add `service"),
    "a local node without a tool": node(kind("local"), "missing_key", "/service", "add `service"),
    "an empty service": node(kind("executor", service=""), "invalid_name", "/service", "name it"),
    "a service that is an address": call("service", "http://x/y", "invalid_name", "not an address"),
    "a service that is a list": call("service", ["s"], "wrong_type", "one text"),
    "a tool with a bad name": node(
        kind("local", service="a b"), "invalid_tool_name", "/service", "name a tool"
    ),
    "a negative number of retries": call("max_retries", -1, "out_of_range", "from 0"),
    "half a retry": call("max_retries", 0.5, "wrong_type", "round it"),
    "retries in a text": call("max_retries", "3", "wrong_type", "without quotation marks"),
    "retries that are true": call("max_retries", True, "wrong_type", "a number"),
    "retries without end": call("max_retries", 10**9, "out_of_range", "from 0"),
    "a negative wait": call("wait_ms", -1, "out_of_range", "from 0"),
    "a wait of ages": call("wait_ms", 10**15, "out_of_range", "from 0"),
    "a negative number of workers": call("max_attempts", -1, "out_of_range", "from 0"),
    "a negative delay": call("attempt_delay_ms", -1, "out_of_range", "from 0"),
    "a load that is no flag": call("weighted_by_load", 1, "wrong_type", "true or false"),
    "a negative time limit": call("timeout_ms", -1, "out_of_range", "from 0"),
    "params in a list": call("params", [1], "wrong_type", "key: value"),
    "params that are an empty list": call("params", [], "wrong_type", "key: value"),
    "a prep that is a text": call("prep", "$shared.x", "wrong_type", "key: value"),
    "an unknown key of prep": call(
        "prep", {"inputkey": "x"}, "unknown_key", "did you mean input_key?", "/inputkey"
    ),
    "a post that is a list": call("post", [], "wrong_type", "key: value"),
    "an unknown key of post": call(
        "post", {"action": "x"}, "unknown_key", "did you mean action_key?", "/action"
    ),
    "an input from an unknown place": call(
        "prep", {"input_key": "$foo"}, "invalid_reference", "write $params.name", "/input_key"
    ),
    "an input from a broken place": call(
        "prep", {"input_key": "$shared.a[x]"}, "invalid_reference", "$shared.name", "/input_key"
    ),
    "an input from a number": call("prep", {"input_key": 5}, "wrong_type", "quotation", "/input_key"),
    "a mapped input from an unknown place": call(
        "prep", {"input_map": {"a": "$env.HOME"}}, "invalid_reference", "$params.name", "/input_map/a"
    ),
    "a mapped input from an empty text": call(
        "prep", {"input_map": {"a": ""}}, "invalid_reference", "$params.name", "/input_map/a"
    ),
    "an output map in a list": call("post", {"output_map": ["a"]}, "wrong_type", "key: value", "/output_map"),
    "an output of a numbered field": call(
        "post", {"output_map": {"a": 1}}, "wrong_type", "quotation marks", "/output_map/a"
    ),
    "an output of an empty field": call(
        "post", {"output_map": {"a": ""}}, "invalid_reference", "$shared.name", "/output_map/a"
    ),
    "an output of a broken path": call(
        "post", {"output_map": {"a": "b["}}, "invalid_reference", "$shared.name", "/output_map/a"
    ),
    "an output from elsewhere": call(
        "post", {"output_map": {"a": "$params.x"}}, "invalid_reference", "without $", "/output_map/a"
    ),
    "an action at an unknown place": call(
        "post", {"action_key": "$foo"}, "invalid_reference", "$params.name", "/action_key"
    ),
    "an action at a broken place": call(
        "post", {"action_key": "a..b"}, "invalid_reference", "$params.name", "/action_key"
    ),
    "a param from a broken place": call(
        "params", {"x": [{"y": "$params."}]}, "invalid_reference", "$params.name", "/x/0/y"
    ),
    "a wait for a broken place": node(
        kind("wait_event", params={"signal_key": "$shared..x"}),
        "invalid_reference",
        "/params/signal_key",
        "$shared.name",
    ),
    "an action that is a flag": call(
        "post", {"action_static": True}, "wrong_type", "quotation", "/action_static"
    ),
    "an empty idempotency key": call("idempotency_key", "", "invalid_name", "leave it out"),
    "an idempotency key of unknown parts": call(
        "idempotency_key", "{{ inputs.x }}", "invalid_reference", "{{ params.name }}"
    ),
    "an idempotency key with a broken reference": call(
        "idempotency_key", "$params.", "invalid_reference", "$params.name"
    ),
    "an idempotency key that is not closed": call(
        "idempotency_key", "{{ params.x", "invalid_reference", "close it"
    ),
    "a key for many calls": node(
        kind("foreach", service="s", idempotency_key="k"),
        "misplaced_key",
        "/idempotency_key",
        "executor, local",
    ),
    "a selection that is no path": call("result", {"select": "data"}, "invalid_jsonpath", "$", "/select"),
    "a poll that slows down to faster": call(
        "poll", {"interval_ms": 10, "max_ms": 5}, "invalid_policy", "no larger", "/max_ms"
    ),
    # parallel and foreach
    "an unknown mode": node(
        kind("foreach", service="s", parallel_mode="parallel"),
        "invalid_choice",
        "/parallel_mode",
        "sequential",
    ),
    "an unknown strategy": node(
        kind("foreach", service="s", failure_strategy="retry"),
        "invalid_choice",
        "/failure_strategy",
        "write fail_fast",
    ),
    "the strategy that others call continue": node(
        kind("parallel", parallel_services=["s"], failure_strategy="continue"),
        "invalid_choice",
        "/failure_strategy",
        "write fail_fast",
    ),
    "a misspelt strategy": node(
        kind("parallel", parallel_services=["s"], failure_strategy="ignore_error"),
        "invalid_choice",
        "/failure_strategy",
        "did you mean ignore_errors?",
    ),
    "too many at once": node(
        kind("foreach", service="s", max_parallel=10_001), "out_of_range", "/max_parallel", "10,000"
    ),
    "less than none at once": node(
        kind("foreach", service="s", max_parallel=-1), "out_of_range", "/max_parallel", "from 0"
    ),
    "a service among others that is a number": node(
        kind("parallel", parallel_services=["s", 1]), "wrong_type", "/parallel_services/1", "quotation"
    ),
    "a service among others that is empty": node(
        kind("parallel", parallel_services=["s", ""]), "invalid_name", "/parallel_services/1", "name it"
    ),
    "services that are a text": node(
        kind("parallel", parallel_services="s"), "wrong_type", "/parallel_services", "`- `"
    ),
    "services in params that are a text": node(
        kind("parallel", params={"services": "s"}), "wrong_type", "/params/services", "`- `"
    ),
    "a service in params that is a number": node(
        kind("parallel", params={"services": [1]}), "wrong_type", "/params/services/0", "quotation"
    ),
    "services in params of a broken reference": node(
        kind("parallel", params={"services": "$params."}),
        "invalid_reference",
        "/params/services",
        "$params.name",
    ),
    # timer, wait_event, approval
    "a delay that is a text": node(
        kind("timer", params={"delay_ms": "5s"}), "wrong_type", "/params/delay_ms", "5000"
    ),
    "a delay that is a flag": node(
        kind("timer", params={"delay_ms": True}), "wrong_type", "/params/delay_ms", "5000"
    ),
    "a delay of ages": node(
        kind("timer", params={"delay_ms": 10**15}), "out_of_range", "/params/delay_ms", "milliseconds"
    ),
    "a delay from an unknown place": node(
        kind("timer", params={"delay_ms": "$foo"}), "invalid_reference", "/params/delay_ms", "$params.name"
    ),
    "a wait for nothing": node(kind("wait_event"), "missing_key", "/params/signal_key", "$shared.name"),
    "a wait for an empty text": node(
        kind("wait_event", params={"signal_key": ""}), "missing_key", "/params/signal_key", "$shared.name"
    ),
    "a wait for a number": node(
        kind("wait_event", params={"signal_key": 5}), "wrong_type", "/params/signal_key", "quotation"
    ),
    "a wait for an unknown place": node(
        kind("wait_event", params={"signal_key": "$foo.x"}),
        "invalid_reference",
        "/params/signal_key",
        "$shared",
    ),
    "a wait that ends before it begins": node(
        kind("wait_event", params={"signal_key": "x", "timeout_ms": -1}),
        "out_of_range",
        "/params/timeout_ms",
        "milliseconds",
    ),
    "a wait with two ends": node(
        kind("wait_event", params={"signal_key": "x", "timeout_ms": 5}, timeout_ms=5),
        "exclusive_keys",
        "/timeout_ms",
        "keep one",
    ),
    "an approval of nothing": node(kind("approval"), "missing_key", "/params/approval_key", "$shared.name"),
    "an approval with two ends": node(
        kind("approval", params={"approval_key": "x", "timeout_ms": 5}, timeout_ms=0),
        "exclusive_keys",
        "/timeout_ms",
        "keep one",
    ),
    # subflow and flow_ref
    "a subflow without a graph": node(kind("subflow"), "missing_key", "/subflow", "add `subflow"),
    "a subflow that is a name": node(kind("subflow", subflow="x"), "wrong_type", "/subflow", "key: value"),
    "a subflow without a start": node(
        kind("subflow", subflow={"nodes": {"x": CALL}}), "missing_key", "/subflow/start", "add `start"
    ),
    "a subflow that starts nowhere": node(
        kind("subflow", subflow={"start": "y", "nodes": {"x": CALL}}),
        "unknown_node",
        "/subflow/start",
        "the nodes are x",
    ),
    "a subflow that leads out": node(
        kind("subflow", subflow={"start": "x", "nodes": {"x": CALL}, "edges": [{"from": "x", "to": "a"}]}),
        "unknown_node",
        "/subflow/edges/0/to",
        "the nodes are x",
    ),
    "a subflow with a name": node(
        kind("subflow", subflow={"name": "s", "start": "x", "nodes": {"x": CALL}}),
        "unknown_key",
        "/subflow/name",
        "known keys are edges, finally, nodes, start",
    ),
    "a mistake in a subflow of a subflow": node(
        kind(
            "subflow",
            subflow={
                "start": "x",
                "nodes": {"x": kind("subflow", subflow={"start": "y", "nodes": {"y": kind("executor")}})},
            },
        ),
        "missing_key",
        "/subflow/nodes/x/subflow/nodes/y/service",
        "add `service",
    ),
    "subflows without end": Broken(
        nested(17), "nested_too_deep", "/nodes/a" + "/subflow/nodes/a" * 16 + "/subflow", "flow_ref"
    ),
    "a flow_ref without a flow": node(kind("flow_ref"), "missing_key", "/flow", "add `flow"),
    "a flow_ref to an empty name": node(kind("flow_ref", flow=" "), "invalid_name", "/flow", "name it"),
    # choice
    "a case that is a text": node(
        kind("choice", choice_cases=["x"]), "wrong_type", "/choice_cases/0", '"action": "go"'
    ),
    "a case without an action": node(
        kind("choice", choice_cases=[{"expr": True}]), "missing_key", "/choice_cases/0/action", "add `action"
    ),
    "a case without a condition": node(
        kind("choice", choice_cases=[{"action": "x"}]), "missing_key", "/choice_cases/0/expr", "add `expr"
    ),
    "a case with a key too many": node(
        kind("choice", choice_cases=[{"action": "x", "expr": True, "to": "b"}]),
        "unknown_key",
        "/choice_cases/0/to",
        "known keys are action, expr",
    ),
    "a case with a numeric action": node(
        kind("choice", choice_cases=[{"action": 1, "expr": True}]),
        "wrong_type",
        "/choice_cases/0/action",
        "quotation",
    ),
    # conditions
    "an empty condition": expr({}, "invalid_condition", "", "the operators are and, or"),
    "a condition with two operators": expr(
        {"eq": [1, 1], "ne": [1, 2]}, "invalid_condition", "", 'join them: {"and"'
    ),
    "an unknown operator": expr({"regex": ["a", "b"]}, "unknown_operator", "/regex", "the operators are"),
    "a misspelt operator": expr({"exist": "$input"}, "unknown_operator", "/exist", "did you mean exists?"),
    "an operator in capitals": expr({"AND": []}, "unknown_operator", "/AND", "did you mean and?"),
    "a condition that is a list": expr([True], "wrong_type", "", '{"eq"'),
    "a condition that is a number": expr(1, "wrong_type", "", '{"eq"'),
    "a condition that is a plain text": expr("yes", "invalid_reference", "", "write $params.name"),
    "a condition on an unknown place": expr("$foo.x", "invalid_reference", "", "write $params.name"),
    "and of a mapping": expr({"and": {"eq": [1, 1]}}, "wrong_type", "/and", '{"and": ['),
    "or of a text": expr({"or": "$input"}, "wrong_type", "/or", '{"or": ['),
    "an empty part": expr({"or": [True, {}]}, "invalid_condition", "/or/1", "the operators are"),
    "not of null": expr({"not": None}, "wrong_type", "/not", '{"eq"'),
    "not of a list": expr({"not": [True]}, "wrong_type", "/not", '{"eq"'),
    "a comparison of one": expr({"eq": [1]}, "wrong_type", "/eq", '{"eq": [a, b]}'),
    "a comparison of three": expr({"lt": [1, 2, 3]}, "wrong_type", "/lt", '{"lt": [a, b]}'),
    "a comparison of a text": expr({"eq": "$input"}, "wrong_type", "/eq", '{"eq": [a, b]}'),
    "contains of one": expr({"contains": ["$input"]}, "wrong_type", "/contains", "a list, a value"),
    "a comparison of a condition": expr(
        {"eq": [{"exists": "$input"}, True]}, "invalid_condition", "/eq/0", "join conditions"
    ),
    "a comparison with a broken reference": expr(
        {"eq": [1, "$shared."]}, "invalid_reference", "/eq/1", "$params.name"
    ),
    "a list with a broken reference": expr(
        {"in": [1, ["$shared.["]]}, "invalid_reference", "/in/1/0", "$params.name"
    ),
    "exists of a plain text": expr({"exists": "flag"}, "invalid_reference", "/exists", "$shared.name"),
    "exists of an unknown place": expr({"exists": "$foo"}, "invalid_reference", "/exists", "$shared.name"),
    "exists of a list": expr({"exists": ["$input"]}, "wrong_type", "/exists", "$shared.name"),
}


@pytest.mark.parametrize("broken", ONE_MISTAKE.values(), ids=ONE_MISTAKE)
def test_a_mistake_is_told_once_at_its_place_with_a_hint(broken: Broken) -> None:
    (problem,) = problems_of(broken.data)
    assert (problem.code, problem.pointer) == (broken.code, broken.pointer)
    assert broken.hint in problem.hint


@pytest.mark.parametrize("name", FLOW_KINDS)
def test_a_key_that_no_kind_has_is_unknown_on_every_kind(name: str) -> None:
    full = next(node for node in FULL["nodes"].values() if node["kind"] == name)
    (problem,) = problems_of(flow({"a": full | {"log_path": "x"}}))
    assert (problem.code, problem.pointer) == ("unknown_key", "/nodes/a/log_path")


def test_all_mistakes_are_reported_at_once() -> None:
    data = {
        "start": "q",
        "nodes": {
            "a": kind("executer"),
            "b": kind("timer", choice_cases=[1], params={"delay_ms": "x"}),
            "c": 5,
            "d": kind(
                "choice", choice_cases=[{"action": "x", "expr": {"eq": [1, 2], "foo": 1}}, {"expr": {}}, 5]
            ),
            "e": kind("subflow", subflow={"start": 1, "nodes": {"x": kind("executor", wait_ms=-1)}}),
            "f": {"service": "s", "max_retries": -1, "prep": {"input_key": "$foo"}},
        },
        "edges": [{"from": "a", "to": "z"}, {"from": "a", "to": "b"}, {}, 3],
        "color": 1,
    }
    assert told(data) == sorted(
        [
            ("/color", "unknown_key"),
            ("/edges/0/to", "unknown_node"),
            ("/edges/1", "duplicate_edge"),
            ("/edges/2/from", "missing_key"),
            ("/edges/3", "wrong_type"),
            ("/name", "missing_key"),
            ("/nodes/a/kind", "unknown_kind"),
            ("/nodes/b/choice_cases", "misplaced_key"),
            ("/nodes/b/params/delay_ms", "wrong_type"),
            ("/nodes/c", "wrong_type"),
            ("/nodes/d/choice_cases/0/expr", "invalid_condition"),
            ("/nodes/d/choice_cases/0/expr/foo", "unknown_operator"),
            ("/nodes/d/choice_cases/1/action", "missing_key"),
            ("/nodes/d/choice_cases/1/expr", "invalid_condition"),
            ("/nodes/d/choice_cases/2", "wrong_type"),
            ("/nodes/e/subflow/nodes/x/service", "missing_key"),
            ("/nodes/e/subflow/nodes/x/wait_ms", "out_of_range"),
            ("/nodes/e/subflow/start", "wrong_type"),
            ("/nodes/f/max_retries", "out_of_range"),
            ("/nodes/f/prep/input_key", "invalid_reference"),
            ("/start", "unknown_node"),
        ]
    )


def test_a_problem_in_a_text_has_its_line_and_column() -> None:
    text = """\
name: f
start: a
nodes:
  a:
    service: s
    retries: 3
  b: {kind: choice, choice_cases: [{action: x, expr: {eq: [$params.]}}]}
edges:
  - {from: a, to: c}
"""
    with pytest.raises(InvalidSpec) as refused:
        FlowSpec.from_yaml_str(text, "f.yaml")
    assert [
        (problem.line, problem.column, problem.code, problem.source) for problem in refused.value.problems
    ] == [
        (6, 5, "unknown_key", "f.yaml"),
        (7, 59, "wrong_type", "f.yaml"),
        (9, 19, "unknown_node", "f.yaml"),
    ]


def test_places_in_json_are_reported_too() -> None:
    text = json.dumps(flow({"a": kind("executor")}), indent=2)
    with pytest.raises(InvalidSpec) as refused:
        FlowSpec.from_yaml_str(text)
    (problem,) = refused.value.problems
    assert (problem.line, problem.pointer) == (5, "/nodes/a/service")


def test_a_duplicate_key_in_json_is_reported() -> None:
    text = '{"name": "f", "start": "a", "nodes": {"a": {"service": "s"}, "a": {"service": "t"}}}'
    with pytest.raises(InvalidSpec) as refused:
        FlowSpec.from_yaml_str(text)
    assert [(problem.code, problem.pointer) for problem in refused.value.problems] == [
        ("duplicate_key", "/nodes/a")
    ]


def test_pointers_quote_the_keys_of_nodes() -> None:
    (problem,) = problems_of(flow({"a/b~c": kind("executor")}))
    assert problem.pointer == pointer_to(("nodes", "a/b~c", "service")) == "/nodes/a~1b~0c/service"
