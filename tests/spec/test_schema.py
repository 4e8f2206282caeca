"""The notation as a JSON Schema: it takes what is valid and flags what has the wrong shape."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given

from holdfast.errors import InvalidSpec
from holdfast.spec.read import read
from holdfast.spec.schema import schema
from holdfast.spec.step_keys import ANSWER_KEYS, POLICY_KEYS, SPEC_KEYS, STEP_KEYS
from holdfast.spec.step_kinds import KINDS
from holdfast.spec.workflow import WorkflowSpec
from tests.spec import test_workflow
from tests.spec.test_broken import ONE_MISTAKE, problems_of
from tests.spec.test_kinds import BODIES
from tests.spec.test_workflow import BROKEN, FULL, VISIBLE, workflow

VALIDATOR = jsonschema_rs.Draft202012Validator(schema(), offline=True)

# What only the contents tell: names that lead somewhere, texts that parse, keys that must agree.
BEYOND = {
    "duplicate_id",
    "exclusive_keys",
    "invalid_default",
    "invalid_jsonpath",
    "invalid_name",
    "invalid_pattern",
    "invalid_schema",
    "invalid_template",
    "misplaced_secret",
    "out_of_range",
    "out_of_scope",
    "recursive_schema",
    "remote_reference",
    "reserved_name",
    "unknown_input",
    "unknown_key",
    "unknown_reference",
    "unknown_root",
    "unknown_step",
    "unknown_type",
    "wrong_type",
}


def errors_in(data: Any) -> list[str]:
    return [f"{error.instance_path}: {error.message}" for error in VALIDATOR.iter_errors(data)]


def test_it_is_a_json_schema() -> None:
    jsonschema_rs.meta.validate(schema())


VALID = [FULL, *(workflow(steps) for steps in VISIBLE)]


@pytest.mark.parametrize("text", VALID)
def test_valid_definitions_pass(text: str) -> None:
    assert errors_in(read(text).data) == []


@pytest.mark.parametrize("keys", [keys for keys, _, _ in BODIES])
def test_a_step_of_any_kind_passes(keys: dict[str, Any]) -> None:
    assert errors_in({"name": "w", "steps": [{"id": "a", **keys}]}) == []


def test_null_means_the_same_as_a_key_left_out() -> None:
    step = dict.fromkeys([*STEP_KEYS, *POLICY_KEYS, *ANSWER_KEYS]) | {"id": "a", "tool": "t", "args": None}
    top = dict.fromkeys(SPEC_KEYS) | {"name": "w", "steps": [step]}
    WorkflowSpec.from_data(top).validate()
    assert errors_in(top) == []


@given(test_workflow.specs)
def test_whatever_can_be_written_passes(spec: WorkflowSpec) -> None:
    if spec.steps:
        blank = {"name", "id", "dcc", "service", "workflow"}
        errors = VALIDATOR.iter_errors(spec.to_data())
        assert [error.message for error in errors if error.instance_path[-1] not in blank] == []


def is_misshapen(text: str) -> bool:
    """Whether something other than the contents is wrong with a text."""
    return any(
        problem.code not in BEYOND and "exceeds" not in problem.message for problem in problems_of(text)
    )


ALL_BROKEN = [*(text for text, _, _ in BROKEN), *(one.text for one in ONE_MISTAKE)]


@pytest.mark.parametrize("text", [text for text in ALL_BROKEN if is_misshapen(text)])
def test_a_wrong_shape_is_flagged(text: str) -> None:
    assert errors_in(read(text).data) != []


SHAPES = [
    {"name": "w", "steps": [{"id": "a", "tool": "t", "arg": 1}]},
    {"name": "w", "steps": [{"id": "a", "tool": "t", "retry": {}}]},
    {"name": "w", "steps": [{"id": "a", "tool": "t", "retry": {"max_attempts": 0}}]},
    {"name": "w", "steps": [{"id": "a", "tool": "t", "retry": {"max_attempts": 2, "retry_on": ["lost"]}}]},
    {"name": "w", "steps": [{"id": "a", "tool": "t", "timeout_secs": 0}]},
    {"name": "w", "steps": [{"id": "a", "tool": "t", "on_crash": "explode"}]},
    {"name": "w", "steps": [{"id": "a", "tool": "bad/tool"}]},
    {"name": "w", "steps": [{"id": "a", "tool": "t", "dcc": "x", "server": "y"}]},
    {"name": "w", "steps": [{"id": "a", "kind": "tool_remote", "tool": "t"}]},
    {"name": "w", "steps": [{"id": "a", "kind": "tool", "tool": "t", "dcc": "x"}]},
    {"name": "w", "steps": [{"id": "a", "kind": "tol", "tool": "t"}]},
    {"name": "w", "steps": [{"id": "a"}]},
    {"name": "w", "steps": [{"tool": "t"}]},
    {"name": "w", "steps": [{"id": "a", "kind": "foreach"}]},
    {"name": "w", "steps": [{"id": "a", "kind": "foreach", "items": "$.x", "idempotency_key": "k"}]},
    {"name": "w", "steps": [{"id": "a", "kind": "foreach", "items": "files"}]},
    {"name": "w", "steps": [{"id": "a", "kind": "parallel", "steps": [], "branches": []}]},
    {"name": "w", "steps": [{"id": "a", "kind": "parallel", "branches": [{"id": "b", "tool": "t"}]}]},
    {"name": "w", "steps": [{"id": "a", "kind": "parallel", "steps": [{"id": "b", "tool": "t", "arg": 1}]}]},
    {"name": "w", "steps": [{"id": "a", "kind": "branch", "on": "$.x", "retry": {"max_attempts": 2}}]},
    {"name": "w", "steps": [{"id": "a", "kind": "branch", "on": "$.x", "then": [{"id": "b", "kind": "x"}]}]},
    {"name": "w", "steps": [{"id": "a", "kind": "timer"}]},
    {"name": "w", "steps": [{"id": "a", "kind": "timer", "delay_ms": 1, "until": 2}]},
    {"name": "w", "steps": [{"id": "a", "kind": "wait_event", "any": ["x"], "all": ["y"]}]},
    {"name": "w", "steps": [{"id": "a", "kind": "poll", "until": "$.x"}]},
    {"name": "w", "steps": [{"id": "a", "kind": "approve", "quorum": {}}]},
    {"name": "w", "steps": [{"id": "a", "workflow": "other", "inputs": [1]}]},
    {"name": "w", "steps": [{"id": "a", "service": "s", "args": {}}]},
    {"name": "w", "steps": [{"id": "a", "tool": "t", "result": {"parse": "xml"}}]},
    {"name": "w", "steps": [{"id": "a", "tool": "t", "poll": {"interval_ms": 0}}]},
    {"name": "w", "steps": []},
    {"name": "w"},
    {"steps": [{"id": "a", "tool": "t"}]},
    {"name": "w", "steps": [{"id": "a", "tool": "t"}], "stepz": 1},
    {"name": "w", "steps": [{"id": "a", "tool": "t"}], "labels": {"a": 1}},
    {"name": "w", "steps": [{"id": "a", "tool": "t"}], "on_complete": [{"url": "file:///x"}]},
    {"name": "w", "steps": [{"id": "a", "tool": "t"}], "inputs": {"x": {"type": "strin"}}},
    {"name": "w", "steps": [{"id": "a", "tool": "t"}], "inputs": {"x": {"typ": "string"}}},
    {"name": "w", "steps": [{"id": "a", "tool": "t"}], "inputs": {"x": "string"}},
]


@pytest.mark.parametrize("data", SHAPES)
def test_what_is_flagged_is_refused_by_the_reader_too(data: dict[str, Any]) -> None:
    assert errors_in(data) != []
    with pytest.raises(InvalidSpec):
        WorkflowSpec.from_data(data).validate()


def test_an_unknown_key_is_flagged_at_its_step_and_nothing_else_is() -> None:
    found = errors_in({"name": "w", "steps": [{"id": "a", "tool": "t"}, {"id": "b", "tool": "t", "arg": 1}]})
    assert found == ["['steps', 1]: Additional properties are not allowed ('arg' was unexpected)"]


def test_every_key_of_the_tables_is_described() -> None:
    steps = schema()["$defs"]
    for name, kind in KINDS.items():
        told = steps[f"step_{name}"]["properties"]
        assert set(told) == {*STEP_KEYS, *kind.keys, *kind.common}
        assert all(told[key]["description"] for key in (*kind.keys, *kind.common))
    assert all(schema()["properties"][key]["description"] for key in SPEC_KEYS)


def test_defaults_are_those_of_the_records() -> None:
    told = schema()["$defs"]["step_foreach"]["properties"]
    assert (told["as"]["default"], told["concurrency"]["default"], told["collect"]["default"]) == (
        "item",
        1,
        "outputs",
    )
