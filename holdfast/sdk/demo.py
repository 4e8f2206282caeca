"""Three small services to try a server with: transform, sum and route. `holdfast worker holdfast.sdk.demo` serves them.

Numbers are added as floating point and written as integers where they are whole.
"""

from __future__ import annotations

from typing import Any

from holdfast.tools.failures import ToolError
from holdfast.tools.registry import tool


@tool
async def transform(input: Any, params: dict[str, Any]) -> Any:  # noqa: A002  # that is what a service is given
    """Text in upper or lower case (`params.op`); a number times `params.mul`, or 1."""
    if isinstance(input, str):
        match params.get("op"):
            case "upper":
                return input.upper()
            case "lower":
                return input.lower()
            case _:
                pass
        raise ToolError("unsupported op", kind="bad_input")
    if _is_number(input):
        mul = params.get("mul", 1)
        return _written(float(input) * (float(mul) if _is_number(mul) else 1.0))
    raise ToolError("bad input", kind="bad_input")


@tool(name="sum")
async def total(input: Any, params: dict[str, Any]) -> float:  # noqa: A002
    """The sum of the numbers in an array, including numbers written as text; other values are ignored."""
    if not isinstance(input, list):
        raise ToolError("bad input", kind="bad_input")
    return _written(sum((_number(value) for value in input), 0.0))


@tool
async def route(input: Any, params: dict[str, Any]) -> dict[str, str]:  # noqa: A002
    """Where to go: `params.action`, or goB."""
    action = params.get("action")
    return {"action": action if isinstance(action, str) and action else "goB"}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _number(value: Any) -> float:
    if _is_number(value):
        return float(value)
    try:
        return float(value) if isinstance(value, str) and value == value.strip() and "_" not in value else 0.0
    except ValueError:
        return 0.0


def _written(value: float) -> float:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value
