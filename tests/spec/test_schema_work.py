"""Schemas whose rules cost more than others: they are counted before a value is judged, so no request is held up by them."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.spec.jsonschema import Judge, count_rules

FLOATS = [number + 0.5 for number in range(1_000)]
WIDE = 10**1_000


def asked(rule: dict[str, Any], times: int = 1_000) -> dict[str, Any]:
    """Each member of a list is asked the same rule many times."""
    return {"items": {"allOf": [rule] * times}}


def codes(schema: dict[str, Any], value: Any) -> list[str]:
    return [mismatch.code for mismatch in Judge(schema, count_rules(schema)).mismatches(value)]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"enum": FLOATS}}, [FLOATS[-1]] * 1_000),
        ({"items": {"enum": [[number] for number in range(1_000)]}}, [[999]] * 1_000),
        ({"items": {"enum": [*range(1_000), "a", None]}}, [999] * 1_000),
        (asked({"minimum": 0.5}), FLOATS),
        (asked({"multipleOf": 0.5}), FLOATS),
        (asked({"const": 1.5}), [1.5] * 1_000),
        (asked({"uniqueItems": True}, 100), [FLOATS[:15]] * 100),
        (asked({"maximum": WIDE}, 100), [WIDE] * 200),
        (asked({"minimum": 0}, 100), [WIDE] * 300),
        (asked({"format": "idn-email"}, 2_000), ["ada@example.org"] * 2_000),
        ({"$defs": {"a": {"enum": FLOATS}}, "items": {"$ref": "#/$defs/a"}}, [FLOATS[-1]] * 1_000),
    ],
    ids=[
        "floats",
        "lists",
        "mixed",
        "bound",
        "multiple",
        "constant",
        "unique",
        "wide-bound",
        "wide-value",
        "format",
        "reference",
    ],
)
def test_dear_rules_for_many_values_are_refused(schema: dict[str, Any], value: Any) -> None:
    assert codes(schema, value) == ["too_large"]


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"items": {"type": "number", "minimum": 0}}, FLOATS * 500),
        ({"items": {"enum": [f"name{i}" for i in range(5_000)]}}, ["name4999"] * 10_000),
        ({"items": {"enum": list(range(5_000))}}, [4_999] * 10_000),
        ({"uniqueItems": True}, list(range(100_000))),
        ({"items": {"properties": {f"p{i}": {"minimum": 0.5} for i in range(50)}}},
         [{f"p{i}": 1.5 for i in range(50)}] * 1_000),
    ],
    ids=["bounds", "names", "whole numbers", "unique", "one rule for each property"],
)  # fmt: skip
def test_plain_rules_for_many_values_are_judged(schema: dict[str, Any], value: Any) -> None:
    assert codes(schema, value) == []
