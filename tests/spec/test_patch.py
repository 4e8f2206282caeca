"""JSON Patch, as RFC 6902 defines it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.spec.patch import PatchError, applied

DATA: dict[str, Any] = {"a": {"b": [1, 2, 3]}, "x/y": 1, "m~n": 2}


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "add", "path": "/a/c", "value": None}, DATA | {"a": {"b": [1, 2, 3], "c": None}}),
        ({"op": "add", "path": "/a/b/1", "value": 9}, DATA | {"a": {"b": [1, 9, 2, 3]}}),
        ({"op": "add", "path": "/a/b/-", "value": 9}, DATA | {"a": {"b": [1, 2, 3, 9]}}),
        ({"op": "remove", "path": "/a/b/0"}, DATA | {"a": {"b": [2, 3]}}),
        ({"op": "replace", "path": "/a/b/2", "value": {}}, DATA | {"a": {"b": [1, 2, {}]}}),
        ({"op": "replace", "path": "/x~1y", "value": 5}, DATA | {"x/y": 5}),
        ({"op": "replace", "path": "", "value": []}, []),
        ({"op": "copy", "from": "/a/b", "path": "/c"}, DATA | {"c": [1, 2, 3]}),
        ({"op": "test", "path": "/m~0n", "value": 2}, DATA),
    ],
)
def test_an_operation_changes_what_its_pointer_names(operation: dict[str, Any], expected: Any) -> None:
    assert applied(DATA, [operation]) == expected


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/a/z"},
        {"op": "remove", "path": ""},
        {"op": "replace", "path": "/a/b/3", "value": 1},
        {"op": "replace", "path": "/a/b/01", "value": 1},
        {"op": "add", "path": "/a/b/4", "value": 1},
        {"op": "add", "path": "/z/y", "value": 1},
        {"op": "move", "from": "/a", "path": "/a/b"},
        {"op": "test", "path": "/m~0n", "value": 3},
        {"op": "turn", "path": "/a"},
        {"op": "remove", "path": "a"},
    ],
)
def test_a_patch_that_does_not_fit_is_refused_and_changes_nothing(operation: dict[str, Any]) -> None:
    before = repr(DATA)
    with pytest.raises(PatchError):
        applied(DATA, [{"op": "add", "path": "/new", "value": 1}, operation])
    assert repr(DATA) == before


def test_a_renamed_key_stays_in_its_place() -> None:
    renamed = applied({"a": 1, "b": 2, "c": 3}, [{"op": "move", "from": "/b", "path": "/z"}])
    assert list(renamed) == ["a", "z", "c"]


def test_a_key_that_is_moved_onto_another_one_replaces_it() -> None:
    assert applied({"a": 1, "b": 2}, [{"op": "move", "from": "/a", "path": "/b"}]) == {"b": 1}
