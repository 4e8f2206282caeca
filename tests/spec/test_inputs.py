"""What a run may be given: schemas that can be used, and inputs that fit them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from holdfast.errors import InvalidInputs, InvalidSpec, Problem
from holdfast.spec.workflow import WorkflowSpec, with_defaults


def spec_of(inputs: Any) -> WorkflowSpec:
    spec = WorkflowSpec.from_data({"name": "w", "inputs": inputs, "steps": [{"id": "a", "tool": "t"}]})
    spec.validate()
    return spec


def mismatches(declared: Any, given: Any) -> list[Problem]:
    with pytest.raises(InvalidInputs) as refused:
        with_defaults(spec_of(declared), given)
    return list(refused.value.problems)


def both_forms(rule: Any) -> list[Any]:
    return [{"x": rule}, {"type": "object", "properties": {"x": rule}, "required": ["x"]}]


RULES: list[tuple[dict[str, Any], Any, Any]] = [
    ({"minimum": 3}, 3, 2),
    ({"maximum": 3}, 3, 4),
    ({"exclusiveMinimum": 3}, 4, 3),
    ({"multipleOf": 3}, 9, 10),
    ({"minLength": 2}, "ab", "a"),
    ({"maxLength": 2}, "äö", "äöü"),
    ({"pattern": "^[a-z]+$"}, "abc", "ABC"),
    ({"enum": ["a", 1, None]}, None, "b"),
    ({"const": {"a": 1}}, {"a": 1}, {"a": 2}),
    ({"type": ["string", "null"]}, None, 1),
    ({"items": {"type": "integer"}}, [1, 2], [1, "2"]),
    ({"prefixItems": [{"type": "string"}], "items": False}, ["a"], ["a", 1]),
    ({"contains": {"const": 1}}, [2, 1], [2]),
    ({"minItems": 1}, [1], []),
    ({"uniqueItems": True}, [1, 2], [1, 1]),
    ({"required": ["a"]}, {"a": 1}, {}),
    ({"properties": {"a": {"type": "string"}}}, {"a": ""}, {"a": 1}),
    ({"additionalProperties": False, "properties": {"a": {}}}, {"a": 1}, {"b": 1}),
    ({"patternProperties": {"^n_": {"type": "number"}}}, {"n_x": 1}, {"n_x": "1"}),
    ({"propertyNames": {"maxLength": 1}}, {"a": 1}, {"ab": 1}),
    ({"minProperties": 1}, {"a": 1}, {}),
    ({"dependentRequired": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
    ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, 5, 4),
    ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, 4, 5),
    ({"allOf": [{"minimum": 5}, {"maximum": 6}]}, 5, 7),
    ({"not": {"type": "string"}}, 1, "1"),
    ({"if": {"minimum": 10}, "then": {"multipleOf": 10}, "else": {"multipleOf": 2}}, 20, 3),
    ({"format": "email"}, "a@b.example", "nobody"),
    ({"format": "date-time"}, "2026-01-31T09:00:00Z", "tomorrow"),
    ({"format": "made-up"}, "anything", None),
    ({"$defs": {"n": {"type": "integer"}}, "$ref": "#/properties/x/$defs/n"}, 1, "1"),
]


@pytest.mark.parametrize(("rule", "value"), [(rule, fits) for rule, fits, _ in RULES])
@pytest.mark.parametrize("form", [0, 1], ids=["short form", "schema"])
def test_inputs_that_fit_are_taken(rule: Any, value: Any, form: int) -> None:
    assert with_defaults(spec_of(both_forms(rule)[form]), {"x": value}) == {"x": value}


@pytest.mark.parametrize(
    ("rule", "value"), [(rule, mismatch) for rule, _, mismatch in RULES if mismatch is not None]
)
@pytest.mark.parametrize("form", [0, 1], ids=["short form", "schema"])
def test_inputs_that_do_not_fit_are_refused_at_their_place(rule: Any, value: Any, form: int) -> None:
    problems = mismatches(both_forms(rule)[form], {"x": value})
    assert all(problem.pointer.startswith("/x") and problem.hint for problem in problems)


ORDER = {
    "size": {"type": "integer", "minimum": 1, "description": "how many"},
    "colour": {"enum": ["red", "green"]},
    "to": {
        "type": "object",
        "properties": {"street": {"type": "string"}, "zip": {"type": "string", "pattern": "^[0-9]{5}$"}},
        "required": ["street"],
        "additionalProperties": False,
    },
    "lines": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}


def test_all_validation_errors_are_reported_at_once() -> None:
    given = {
        "size": 0,
        "colour": "rde",
        "to": {"zip": "x", "stret": "y"},
        "lines": [{"n": 1}, {"n": "2"}],
        "sise": 1,
    }
    found = {(problem.code, problem.pointer): problem for problem in mismatches(ORDER, given)}
    assert set(found) == {
        ("invalid_input", "/size"),
        ("invalid_choice", "/colour"),
        ("missing_input", "/to/street"),
        ("invalid_input", "/to/zip"),
        ("unknown_input", "/to/stret"),
        ("wrong_type", "/lines/1/n"),
        ("unknown_input", "/sise"),
    }
    assert found["invalid_input", "/size"].message == 'input "size" is less than the minimum of 1'
    assert found["invalid_input", "/size"].hint == "it is declared as integer: how many"
    assert found["invalid_choice", "/colour"].hint == "did you mean red?"
    assert found["missing_input", "/to/street"].message == 'missing key "to.street"'
    assert found["unknown_input", "/to/stret"].hint == "did you mean street?"
    assert found["wrong_type", "/lines/1/n"].message == 'input "lines[1].n" must be integer, not text'
    assert found["unknown_input", "/sise"].hint == "did you mean size?"


def test_the_text_of_the_error_says_it_all() -> None:
    with pytest.raises(InvalidInputs) as refused:
        with_defaults(spec_of({"n": {"type": "integer"}, "m": {"type": "string"}}), {"n": "1", "k": 1})
    assert str(refused.value) == ('missing input "m"; unknown input "k"; input "n" must be integer, not text')


def test_an_alternative_says_what_each_would_have_taken() -> None:
    (problem,) = mismatches({"x": {"anyOf": [{"type": "string"}, {"minimum": 5}]}}, {"x": 4})
    assert problem.message == (
        'input "x" fits none of the alternatives: must be string, not a number, is less than the minimum of 5'
    )


# ----------------------------------------------------------------------------------------------------- defaults


def test_defaults_inside_objects_are_filled_in_where_the_object_is_given() -> None:
    spec = spec_of(
        {
            "to": {
                "type": "object",
                "properties": {"n": {"default": 3}, "deep": {"properties": {"m": {"default": []}}}},
            }
        }
    )
    given: dict[str, Any] = {"to": {"deep": {}}}
    assert with_defaults(spec, given) == {"to": {"n": 3, "deep": {"m": []}}}
    assert given == {"to": {"deep": {}}}


def test_a_default_is_no_reason_to_give_the_object_around_it() -> None:
    declared = {
        "type": "object",
        "properties": {"to": {"type": "object", "properties": {"n": {"default": 3}}}},
    }
    assert with_defaults(spec_of(declared), {}) == {}


def test_a_given_null_is_not_replaced_by_the_default() -> None:
    assert with_defaults(spec_of({"x": {"default": 3}}), {"x": None}) == {"x": None}


@pytest.mark.parametrize(
    "rule", [{"type": "integer", "default": "a"}, {"minimum": 5, "default": 3}, {"enum": [1], "default": 2}]
)
@pytest.mark.parametrize("form", [0, 1], ids=["short form", "schema"])
def test_a_default_has_to_fit(rule: Any, form: int) -> None:
    with pytest.raises(InvalidSpec) as refused:
        spec_of(both_forms(rule)[form])
    (problem,) = refused.value.problems
    assert problem.code == "invalid_default"
    assert problem.pointer == ("/inputs/x/default", "/inputs/properties/x/default")[form]


# ---------------------------------------------------------------------------------------------- schemas themselves


@pytest.mark.parametrize(
    ("inputs", "code", "pointer"),
    [
        ({"x": {"minimum": "3"}}, "wrong_type", "/inputs/x/minimum"),
        ({"x": {"minLength": -1}}, "wrong_type", "/inputs/x/minLength"),
        ({"x": {"items": [{}]}}, "wrong_type", "/inputs/x/items"),
        ({"x": {"properties": {"y": 5}}}, "wrong_type", "/inputs/x/properties/y"),
        ({"x": {"anyOf": [{"type": "strin"}]}}, "unknown_type", "/inputs/x/anyOf/0/type"),
        ({"x": {"type": []}}, "unknown_type", "/inputs/x/type"),
        ({"x": {"type": 3}}, "unknown_type", "/inputs/x/type"),
        ({"x": {"$dynamicAnchor": "a"}}, "unknown_key", "/inputs/x/$dynamicAnchor"),
        ({"x": {"$id": "https://x.y/z", "$ref": "#"}}, "unknown_key", "/inputs/x/$id"),
        ({"x": {"$ref": "other.json"}}, "remote_reference", "/inputs/x/$ref"),
        ({"$schema": 5, "type": "object"}, "wrong_type", "/inputs/$schema"),
        ({"x": {"$ref": "#name"}}, "unknown_reference", "/inputs/x/$ref"),
        ({"x": {"$ref": "#/properties"}}, "unknown_reference", "/inputs/x/$ref"),
        ({"x": {"$ref": "#/properties/y/default"}, "y": {"default": {"allOf": 5}}}, "unknown_reference", "/inputs/x/$ref"),
        ({"x": {"$ref": "#/properties/y/anyOf/1"}, "y": {"anyOf": [{}]}}, "unknown_reference", "/inputs/x/$ref"),
        ({"x": {"patternProperties": {"(": {}}}}, "invalid_pattern", "/inputs/x/patternProperties/("),
        ({"x": {"pattern": r"(a)\1"}}, "invalid_pattern", "/inputs/x/pattern"),
        ({"x": {"pattern": "(a{1000}){1000}"}}, "invalid_pattern", "/inputs/x/pattern"),
        ({"x": {"multipleOf": 0}}, "invalid_schema", "/inputs/x/multipleOf"),
        ({"type": "object", "properties": {"x": {"multipleOf": 0}}}, "invalid_schema", "/inputs/properties/x/multipleOf"),
        ({"type": "object", "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}, "properties": {"x": {"$ref": "#/$defs/a"}}}, "recursive_schema", "/inputs"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused_at_its_place(inputs: Any, code: str, pointer: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        spec_of(inputs)
    assert [(problem.code, problem.pointer) for problem in refused.value.problems] == [(code, pointer)]


def test_references_may_lead_on() -> None:
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(50)} | {"d50": {"minimum": 3}}
    spec = spec_of({"type": "object", "$defs": chain, "properties": {"x": {"$ref": "#/$defs/d0"}}})
    assert with_defaults(spec, {"x": 3}) == {"x": 3}


@pytest.mark.parametrize("length", [200, 3_000])
def test_references_may_not_lead_on_without_end(length: int) -> None:
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(length)} | {f"d{length}": {}}
    with pytest.raises(InvalidSpec) as refused:
        spec_of({"type": "object", "$defs": chain, "properties": {"x": {"$ref": "#/$defs/d0"}}})
    assert [problem.code for problem in refused.value.problems] == ["invalid_schema"]


def test_words_of_ones_own_start_with_x() -> None:
    assert with_defaults(spec_of({"x": {"x-unit": "mm"}}), {"x": 1}) == {"x": 1}


@pytest.mark.parametrize(
    "dialect", ["https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"]
)
def test_a_schema_may_say_its_dialect_and_name(dialect: str) -> None:
    spec = spec_of(
        {"$schema": dialect, "$id": "https://x.y/z", "type": "object", "properties": {"x": {"minimum": 1}}}
    )
    assert with_defaults(spec, {"x": 1}) == {"x": 1}


def test_the_library_is_loaded_only_where_types_are_not_all() -> None:
    program = """
import sys
from holdfast.spec.workflow import WorkflowSpec, with_defaults
spec = WorkflowSpec.from_data({"name": "w", "inputs": {"x": {"type": "integer", "default": 1}}, "steps": [{"id": "a", "tool": "t"}]})
spec.validate()
with_defaults(spec, {"x": 2})
sys.exit("jsonschema_rs" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
