"""How the input and the params of a service become the arguments of a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Context
from holdfast.tools.registry import Tool


def both(input: Any, params: dict[str, Any]) -> None: ...  # noqa: A002
def only_input(input: Any, op: str = "upper") -> None: ...  # noqa: A002
def only_params(x: int, params: dict[str, Any]) -> None: ...
def two(a: int, b: int = 0) -> None: ...
def one(order: dict[str, Any]) -> None: ...
def scaled(x: float, mul: float = 1.0) -> None: ...
def anything(**more: Any) -> None: ...
def nothing() -> None: ...
def told(x: int, context: Context) -> None: ...


@pytest.mark.parametrize(
    ("fn", "given", "params", "args"),
    [
        (both, [1], {"k": 2}, {"input": [1], "params": {"k": 2}}),
        (both, None, {}, {"input": None, "params": {}}),
        (only_input, "x", {"op": "lower", "foreign": 1}, {"input": "x", "op": "lower"}),
        (only_params, 3, {"k": 2}, {"x": 3, "params": {"k": 2}}),
        (two, {"a": 1}, {"a": 9, "b": 2, "foreign": 3}, {"a": 1, "b": 2}),
        (two, {"a": 1, "c": 2}, {}, {"a": 1, "c": 2}),  # a mistake in the input is told by `bind`
        (one, {"sku": "x"}, {}, {"order": {"sku": "x"}}),
        (one, {"order": {"sku": "x"}}, {}, {"order": {"sku": "x"}}),
        (scaled, 4, {"mul": 2}, {"x": 4, "mul": 2}),
        (anything, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
        (nothing, None, {"foreign": 1}, {}),
        (told, 5, {}, {"x": 5}),
    ],
)
def test_an_input_and_params_are_spread_over_the_parameters(
    fn: Callable[..., Any], given: Any, params: dict[str, Any], args: dict[str, Any]
) -> None:
    assert Tool(fn, "t").spread(given, params) == args
