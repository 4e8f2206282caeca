"""Graphs that mean harm: each ends in a clear error or in a graph, soon and in little memory.

All of them are offered to one small process with a limit on its memory and on its processor time, so that none can
stall or swell it: the tests look at what it said.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidSpec
from holdfast.spec.flow import FlowSpec
from holdfast.spec.notation import definition_from
from tests.spec.flows import CALL, FULL, JSON, choice, flow

MEMORY_MAX = 1 << 30
CPU_SECONDS_MAX = 60  # for all of them together, on a slow machine

PROGRAM = f"""
import json, resource
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY_MAX}, {MEMORY_MAX}))
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS_MAX}, {CPU_SECONDS_MAX}))
from holdfast.errors import InvalidSpec
from holdfast.spec.flow import FlowSpec
from tests.spec.test_flow_hostile import HOSTILE

def outcome(given):
    try:
        spec = FlowSpec.from_yaml_str(given) if isinstance(given, str | bytes) else FlowSpec.from_data(given)
        spec.validate()
        assert len(spec.notes) <= 100
        return "valid"
    except InvalidSpec as refused:
        if len(str(refused)) > 100_000:
            return "too many words"
        if not all(problem.message and problem.hint for problem in refused.problems):
            return "a problem without a hint"
        return " ".join(sorted({{problem.code for problem in refused.problems}}))

print(json.dumps({{name: outcome(make()) for name, (make, _) in HOSTILE.items()}}))
"""


def deep(levels: int, inner: Any, around: Any) -> Any:
    for _ in range(levels):
        inner = around(inner)
    return inner


def circle() -> dict[str, Any]:
    nodes: dict[str, Any] = {}
    nodes["a"] = {"kind": "subflow", "subflow": {"start": "a", "nodes": nodes}}
    return flow(nodes)


def chain(count: int) -> dict[str, Any]:
    nodes = {f"n{i}": {"service": "s"} for i in range(count)}
    return flow(nodes, [{"from": f"n{i}", "to": f"n{i + 1}"} for i in range(count - 1)])


def not_not(inner: Any) -> Any:
    return {"not": inner}


HOSTILE: dict[str, tuple[Any, str]] = {
    "50 KB of brackets": (lambda: '{"start": ' + "[" * 50_000, "too_deep"),
    "a condition of 30 levels": (lambda: choice(deep(30, True, not_not)), "valid"),
    "a condition of 100 levels": (lambda: choice(deep(100, True, not_not)), "not_json"),
    "a condition of 100,000 levels": (lambda: choice(deep(100_000, True, not_not)), "not_json"),
    "a condition of 1,000 levels in a text": (
        lambda: json.dumps(choice(0)).replace('"expr": 0', '"expr": ' + '{"not": ' * 900 + "true" + "}" * 900),
        "too_deep",
    ),
    "a graph that holds itself": (circle, "not_json"),
    "a text of 10 MB": (lambda: json.dumps(flow(description="x" * 10_000_000)), "too_large"),
    "data of 10 MB": (lambda: flow(description="x" * 10_000_000), "too_large"),
    "10,000 nodes": (lambda: chain(10_000), "valid"),
    "10,001 nodes": (lambda: chain(10_001), "too_many_nodes"),
    "10,001 nodes in subflows": (
        lambda: flow({f"n{i}": {"kind": "subflow", "subflow": {"start": "a", "nodes": {"a": {"service": "s"}}}} for i in range(5_001)}),
        "too_many_nodes",
    ),
    "60,000 edges to nowhere": (
        lambda: chain(3_000) | {"edges": [{"from": "n0", "action": str(i), "to": "x"} for i in range(45_000)]},
        "unknown_node",
    ),
    "20,000 edges that are one": (
        lambda: flow(edges=[{"from": "a", "to": "a"}] * 20_000),
        "duplicate_edge",
    ),
    "100,000 unknown keys of a node": (
        lambda: flow({"a": {f"k{i}": 1 for i in range(100_000)}}), "missing_key unknown_key",
    ),
    "10,000 unknown kinds": (lambda: flow({f"n{i}": {"kind": f"k{i}"} for i in range(10_000)}), "unknown_kind"),
    "10,000 nodes that are none": (lambda: flow({f"n{i}": i for i in range(10_000)}), "wrong_type"),
    "20,000 cases without an edge": (
        lambda: flow(
            {"a": {"kind": "choice", "choice_cases": [{"action": f"go{i}", "expr": True} for i in range(20_000)]}},
            [{"from": "a", "action": f"no{i}", "to": ""} for i in range(400)],
        ),
        "valid",
    ),
    "50,000 texts that are nearly references": (
        lambda: choice({"in": ["$params.x", [f"$param.{i}" for i in range(50_000)]]}), "valid",
    ),
    "a wide condition": (lambda: choice({"or": [{"eq": ["$input", i]} for i in range(50_000)]}), "valid"),
    "a reference of 100 KB": (
        lambda: flow({"a": {**CALL, "prep": {"input_key": "$shared" + ".a" * 50_000}}}), "invalid_reference",
    ),
    "a reference with many quotes": (
        lambda: flow({"a": {**CALL, "prep": {"input_key": '$shared["' + '\\\\"' * 400}}}), "invalid_reference",
    ),
    "an idempotency key with many braces": (
        lambda: flow({"a": {**CALL, "idempotency_key": "{{ params" * 20_000}}), "invalid_reference",
    ),
    "a key of 100 KB": (lambda: flow({"k" * 100_000: CALL}), "name_too_long"),
    "half a character": (lambda: flow({"\ud800": CALL}), "not_json"),
    "no number": (lambda: flow({"a": {**CALL, "max_retries": float("nan")}}), "not_json"),
    "a number of 300 digits": (lambda: flow({"a": {**CALL, "max_retries": 10**300}}), "out_of_range"),
    "a delay of 300 digits": (lambda: flow({"a": {"kind": "timer", "params": {"delay_ms": 10**300}}}), "out_of_range"),
    "something that is no data": (lambda: flow({"a": {**CALL, "params": {"x": object()}}}), "not_json"),
    "a set": (lambda: flow({"a": {**CALL, "params": {1, 2}}}), "wrong_type"),
    "nothing": (lambda: "", "wrong_type"),
    "an alias": (lambda: "start: &a x\nnodes: {x: {service: *a}}\nname: f\n", "anchor"),
    "a duplicate key": (lambda: '{"name": "f", "start": "a", "start": "b", "nodes": {"a": {"service": "s"}}}', "duplicate_key"),
    "bytes that are not UTF-8": (lambda: b'{"start": "\xc3\x28"}', "not_utf8"),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(("name", "codes"), [(name, codes) for name, (_, codes) in HOSTILE.items()])
def test_a_hostile_graph_ends_in_a_clear_error_or_in_a_graph(
    outcomes: dict[str, str], name: str, codes: str
) -> None:
    assert set(codes.split()) <= set(outcomes[name].split())


def told_or_read(data: Any) -> None:
    """Whatever is offered, there is a graph or a refusal whose every problem has words, a place and a hint."""
    try:
        definition_from(data).validate()
    except InvalidSpec as refused:
        assert refused.problems
        for problem in refused.problems:
            assert problem.code and problem.message and problem.hint, problem
            assert problem.pointer == "" or problem.pointer.startswith("/")


@given(JSON)
def test_any_data_is_reported_or_read(data: Any) -> None:
    told_or_read(data)


@given(JSON, JSON, JSON)
def test_any_data_in_the_places_of_a_graph_is_reported_or_read(start: Any, nodes: Any, edges: Any) -> None:
    told_or_read({"name": "f", "start": start, "nodes": nodes, "edges": edges})


PLACES: list[tuple[Any, ...]] = []


def _walk(value: Any, at: tuple[Any, ...]) -> None:
    PLACES.append(at)
    members = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, member in members:
        _walk(member, (*at, key))


_walk(FULL, ())


def with_other(value: Any, at: tuple[Any, ...], put: Any) -> Any:
    """A copy of data with something else at one place."""
    if not at:
        return put
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[at[0]] = with_other(value[at[0]], at[1:], put)
    return copy


@given(st.sampled_from(PLACES), JSON)
def test_any_data_at_any_place_of_a_graph_is_reported_or_read(at: tuple[Any, ...], put: Any) -> None:
    told_or_read(with_other(FULL, at, put))


@pytest.mark.parametrize("put", [None, True, 0, -1, 1.5, "", "x", "$foo", [], [None], {}, {"x": 1}], ids=repr)
def test_each_kind_of_value_at_each_place_is_reported_or_read(put: Any) -> None:
    for at in PLACES:
        told_or_read(with_other(FULL, at, put))


def test_what_is_said_of_a_graph_is_the_same_in_a_text_and_in_data() -> None:
    for at in PLACES[1:]:
        data = with_other(FULL, at, ["x"])
        found = [_told(FlowSpec.from_data, data), _told(FlowSpec.from_yaml_str, json.dumps(data))]
        assert found[0] == found[1]


def _told(read: Any, given: Any) -> list[tuple[str, str]]:
    try:
        read(given).validate()
    except InvalidSpec as refused:
        return sorted((problem.code, problem.pointer) for problem in refused.problems)
    return []
