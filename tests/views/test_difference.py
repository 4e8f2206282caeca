"""The difference between two definitions stays small, however large the definitions are."""

from __future__ import annotations

import difflib
from typing import Any

from holdfast import WorkflowSpec
from holdfast.views.difference import POINTER_CHARS_MAX, POINTERS_MAX, pointers_between, text_between

NAMES = ("n 1", "n 2")


def flow(value: Any) -> WorkflowSpec:
    return WorkflowSpec.from_data(
        {"name": "n", "steps": [{"id": "a", "tool": "echo", "args": {"value": value}}]}
    )


def test_places_that_differ_are_named_one_by_one() -> None:
    before, after = flow({"a": 1, "b": [1, 2], "c/d": 1}), flow({"a": 2, "b": [1, 2, 3], "c/d": 2})
    at = "/steps/0/args/value"
    assert pointers_between(before, after) == [f"{at}/a", f"{at}/b/2", f"{at}/c~1d"]


def test_pointers_that_would_be_long_name_the_value_around() -> None:
    def deep(leaf: int) -> Any:
        value: Any = {f"leaf{number}": leaf for number in range(200)}
        for level in range(20):
            value = {f"{level:02}" + "k" * 400: value}
        return flow(value)

    found = pointers_between(deep(1), deep(2))
    assert found == ["/steps/0/args/value/19" + "k" * 400]
    assert all(len(pointer) <= POINTER_CHARS_MAX for pointer in found)


def test_many_places_that_differ_are_named_together() -> None:
    count = POINTERS_MAX + 1
    found = pointers_between(flow([{"x": 1}] * count), flow([{"x": 2}] * count))
    assert found == ["/steps/0/args/value"]


def test_a_text_with_few_equal_lines_is_the_usual_diff() -> None:
    before, after = flow({"a": 1}), flow({"a": 2})
    old, new = (spec.to_yaml().splitlines(keepends=True) for spec in (before, after))
    assert text_between(before, after, NAMES) == "".join(difflib.unified_diff(old, new, *NAMES))


def test_texts_with_too_many_equal_lines_are_shown_as_replaced() -> None:
    words = [f"w{number % 150}" for number in range(6_000)]
    text = text_between(flow(words), flow(words[::-1]), NAMES).splitlines()
    assert text[:2] == ["--- n 1", "+++ n 2"] and text[2].startswith("@@ -")
    assert sum(line.startswith("-") for line in text[3:]) == sum(line.startswith("+") for line in text[3:])
