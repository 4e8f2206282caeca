"""Graphs for tests: one with everything in it, small ones to be bent, and the strategies that make many."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from holdfast.spec.condition import COMPARE_WORDS

CALL = {"kind": "executor", "service": "s"}

# Every kind and every key of the notation, none with its default.
FULL: dict[str, Any] = {
    "name": "full",
    "description": "all there is",
    "inputs": {"items": {"type": "array"}},
    "start": "first",
    "nodes": {
        "first": {
            "kind": "executor",
            "description": "calls",
            "service": "transform",
            "params": {"op": "upper", "mul": 2.5, "of": "$params.items"},
            "prep": {"input_map": {"a": "$params.items[0]", "b": "'literal", "c": 3, "d": "x.y"}},
            "post": {"output_key": "out", "output_map": {"k": "field"}, "action_key": "action"},
            "default_action": "on",
            "max_retries": 2,
            "wait_ms": 10,
            "max_attempts": 3,
            "attempt_delay_ms": 20,
            "weighted_by_load": True,
            "timeout_ms": 500,
            "idempotency_key": "order-{{ params.items }}",
            "pending_ttl_secs": 60.0,
            "poll": {"interval_ms": 100, "max_ms": 1000},
            "result": {"envelope": True, "select": "$.data", "parse": "json"},
            "supports_async_callback": True,
            "compensate": {"service": "undo", "params": {"of": "$input.id", "list": ["$shared.out"]}},
        },
        "tidy": {"kind": "local", "service": "echo"},
        "here": {"kind": "local", "service": "echo", "prep": {"input_key": "$shared.out"}, "timeout_ms": 0},
        "which": {
            "kind": "choice",
            "choice_cases": [
                {
                    "action": "go",
                    "expr": {
                        "and": [
                            {"or": [{"eq": ["$shared.a", 1]}, {"ne": ["$params.b.c[0]", None]}]},
                            {"not": {"exists": '$input["a.b"]'}},
                            {"in": ["$shared.a", ["x", "$params.y", 3]]},
                            {"contains": ["$shared.text", "part"]},
                            "$params.flag",
                            True,
                        ]
                    },
                },
                {"action": "", "expr": {"gt": [1, "$input"]}},
            ],
        },
        "each": {
            "kind": "foreach",
            "service": "transform",
            "prep": {"input_key": "items"},
            "parallel_mode": "concurrent",
            "max_parallel": 8,
            "failure_strategy": "fail_fast",
        },
        "all": {
            "kind": "parallel",
            "parallel_services": ["a", "b", "a"],
            "failure_strategy": "ignore_errors",
        },
        "some": {"kind": "parallel", "params": {"services": ["a", "b"]}},
        "inner": {
            "kind": "subflow",
            "subflow": {
                "start": "x",
                "nodes": {
                    "x": {"kind": "flow_ref", "flow": "deep"},
                    "y": {"kind": "subflow", "subflow": {"start": "z", "nodes": {"z": CALL}}},
                },
                "edges": [{"from": "x", "action": "default", "to": "y"}],
            },
            "timeout_ms": 1000,
        },
        "other": {"kind": "flow_ref", "flow": "another"},
        "later": {"kind": "timer", "params": {"delay_ms": 1.5}, "post": {"action_static": "due"}},
        "signal": {"kind": "wait_event", "params": {"signal_key": "$shared.flag", "timeout_ms": 60000}},
        "ask": {"kind": "approval", "params": {"approval_key": "$shared.approval"}, "timeout_ms": 1},
    },
    "edges": [
        {"from": "first", "action": "on", "to": "here"},
        {"from": "first", "action": "error", "to": "ask"},
        {"from": "first", "action": "timeout", "to": "ask"},
        {"from": "here", "action": "default", "to": "which"},
        {"from": "which", "action": "go", "to": "each"},
        {"from": "which", "action": "default", "to": "first"},
        {"from": "each", "action": "default", "to": "all"},
        {"from": "all", "action": "default", "to": "some"},
        {"from": "some", "action": "default", "to": "inner"},
        {"from": "inner", "action": "default", "to": "other"},
        {"from": "other", "action": "default", "to": "later"},
        {"from": "later", "action": "due", "to": "signal"},
        {"from": "signal", "action": "default", "to": ""},
    ],
    "on_restart": "interrupt",
    "finally": "tidy",
    "timeout_secs": 3600.0,
    "labels": {"team": "x"},
}


def flow(nodes: dict[str, Any] | None = None, edges: Any = (), **top: Any) -> dict[str, Any]:
    """A graph that starts at its first node."""
    nodes = {"a": CALL} if nodes is None else nodes
    return {"name": "f", "start": next(iter(nodes), "a"), "nodes": nodes, "edges": list(edges), **top}


def choice(expr: Any) -> dict[str, Any]:
    return flow({"a": {"kind": "choice", "choice_cases": [{"action": "go", "expr": expr}]}})


# ------------------------------------------------------------------------------------------------------ strategies

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS  # fmt: skip
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
MEMBERS = st.text(st.characters(codec="ascii", categories=["L", "Nd"]), min_size=1, max_size=4)
REFERENCES = st.builds(
    lambda root, members: "".join([f"${root}", *members]),
    st.sampled_from(["params", "shared", "input"]),
    st.lists(MEMBERS.map(lambda name: f".{name}") | st.integers(0, 9).map(lambda i: f"[{i}]"), max_size=3),
)
OPERANDS = REFERENCES | SCALARS | st.lists(REFERENCES | SCALARS, max_size=3)


def _joined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    many = st.lists(inner, max_size=3)
    return st.one_of(
        st.builds(lambda parts: {"and": parts}, many),
        st.builds(lambda parts: {"or": parts}, many),
        st.builds(lambda part: {"not": part}, inner),
    )


CONDITIONS = st.recursive(
    st.one_of(
        st.builds(lambda word, a, b: {word: [a, b]}, st.sampled_from(COMPARE_WORDS), OPERANDS, OPERANDS),
        st.builds(lambda what: {"exists": what}, REFERENCES),
        REFERENCES,
        st.booleans(),
    ),
    _joined,
    max_leaves=8,
)
