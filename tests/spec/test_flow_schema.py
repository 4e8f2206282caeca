"""The graph notation as a JSON Schema: it takes what is valid and flags what has the wrong shape."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from holdfast.spec.flow_keys import FLOW_KEYS, FLOW_KINDS, NODE_KEYS
from holdfast.spec.read import read
from holdfast.spec.schema import flow_schema
from tests.spec.flows import CALL, CONDITIONS, FULL, choice, flow
from tests.spec.test_flow import EXAMPLES, graphs
from tests.spec.test_flow_broken import ONE_MISTAKE, Broken

VALIDATOR = jsonschema_rs.Draft202012Validator(flow_schema(), offline=True)

# What only the contents tell: names that lead somewhere, texts that parse, keys that must agree.
BEYOND = {
    "duplicate_edge",
    "exclusive_keys",
    "invalid_condition",
    "invalid_jsonpath",
    "invalid_name",
    "invalid_policy",
    "invalid_reference",
    "invalid_tool_name",
    "nested_too_deep",
    "out_of_range",
    "unknown_node",
}
# The name may be that of the file, a key in blanks is a text, and what params hold is hardly described.
ALSO_BEYOND = {"/name", "/start", "/nodes/ ", "/nodes/a/params/delay_ms", "/nodes/a/params/services"}


def errors_in(data: Any) -> list[str]:
    return [f"{error.instance_path}: {error.message}" for error in VALIDATOR.iter_errors(data)]


def test_it_is_a_json_schema() -> None:
    jsonschema_rs.meta.validate(flow_schema())


def test_what_says_everything_passes() -> None:
    assert errors_in(FULL) == []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_pass(path: Any) -> None:
    assert errors_in(read(path.read_bytes()).data) == []


@given(graphs())
def test_every_graph_passes(data: dict[str, Any]) -> None:
    assert errors_in(data) == []


@given(CONDITIONS)
def test_every_condition_passes(expr: Any) -> None:
    assert errors_in(choice(expr)) == []


def test_what_says_nothing_may_stand_on_every_node() -> None:
    keys = {key for kind in FLOW_KINDS.values() for key in kind.keys} - set(FLOW_KINDS["executor"].keys)
    nothings: tuple[Any, ...] = (None, "", 0, False, [], {})
    for nothing in nothings:
        assert errors_in(flow({"a": {**CALL, **dict.fromkeys(keys, nothing)}})) == []


def is_misshapen(broken: Broken) -> bool:
    return broken.code not in BEYOND and broken.pointer not in ALSO_BEYOND


@pytest.mark.parametrize(
    "broken",
    [broken for broken in ONE_MISTAKE.values() if is_misshapen(broken)],
    ids=[name for name, broken in ONE_MISTAKE.items() if is_misshapen(broken)],
)
def test_a_wrong_shape_is_flagged(broken: Broken) -> None:
    assert errors_in(broken.data) != []


@pytest.mark.parametrize("key", ["max_retries", "wait_ms", "max_attempts", "timeout_ms"])
def test_a_negative_number_is_flagged(key: str) -> None:
    assert errors_in(flow({"a": {**CALL, key: -1}})) != []


@pytest.mark.parametrize("expr", [{}, {"eq": [1, 1], "ne": [1, 2]}, {"and": [{}]}])
def test_a_condition_of_no_or_many_operators_is_flagged(expr: Any) -> None:
    assert errors_in(choice(expr)) != []


def test_every_key_of_the_tables_is_described() -> None:
    told = flow_schema()
    for name, kind in FLOW_KINDS.items():
        keys = told["$defs"][f"node_{name}"]["properties"]
        assert all(keys[key]["description"] for key in ({*NODE_KEYS, *kind.keys} - {"kind"}))
        assert set(kind.needed_params) <= {param for param, _ in kind.own_params}
    assert all(told["properties"][key]["description"] for key in FLOW_KEYS)


def test_defaults_are_those_of_the_records() -> None:
    told = flow_schema()["$defs"]["node_foreach"]["properties"]
    assert told["failure_strategy"]["default"] == "collect_errors"
    assert told["parallel_mode"]["default"] == "sequential"
