"""Expressions over large data: each step fails with `expression_too_costly`, and the engine goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, RunFailed, tool

pytestmark = pytest.mark.anyio

ROWS = [list(range(600)) for _ in range(600)]
COSTLY = "$..*..*..*..*"


@tool
def rows() -> dict[str, Any]:
    return {"rows": ROWS}


@tool
def echo(value: Any = None) -> Any:
    return value


def graph(expression: Any) -> dict[str, Any]:
    return {
        "name": "graph",
        "start": "get",
        "nodes": {
            "get": {"kind": "local", "service": "rows", "post": {"output_key": "got"}},
            "choose": {"kind": "choice", "choice_cases": [{"action": "yes", "expr": expression}]},
        },
        "edges": [{"from": "get", "action": "default", "to": "choose"}],
    }


COSTLY_SPECS: dict[str, dict[str, Any]] = {
    "items": {
        "name": "w",
        "inputs": {"a": {"type": "array"}},
        "steps": [{"id": "each", "kind": "foreach", "items": COSTLY, "steps": [{"id": "s", "tool": "echo"}]}],
    },
    "branch": {
        "name": "w",
        "inputs": {"a": {"type": "array"}},
        "steps": [
            {"id": "br", "kind": "branch", "on": "$.a[?@ == $.a[0]]", "then": [{"id": "s", "tool": "echo"}]}
        ],
    },
    "select": {
        "name": "w",
        "steps": [{"id": "s", "tool": "rows", "result": {"select": COSTLY}}],
    },
    "until": {
        "name": "w",
        "steps": [
            {"id": "p", "kind": "poll", "tool": "rows", "until": COSTLY, "interval_ms": 1, "max_ms": 1}
        ],
    },
    "equal": graph({"eq": ["$shared.got", "$shared.got"]}),
    "contains": graph({"contains": ["$shared.got.rows", "$shared.got.rows"]}),
    "in": graph({"in": ["$shared.got.rows", ["$shared.got.rows", "$shared.got.rows"]]}),
}


@pytest.mark.parametrize("name", COSTLY_SPECS)
async def test_a_step_whose_expression_is_too_costly_fails_and_says_so(name: str, tmp_path: Path) -> None:
    spec = COSTLY_SPECS[name]
    inputs = {"a": ROWS} if "inputs" in spec else {}
    async with Holdfast(f"sqlite:///{tmp_path / 'test.db'}", tools=[rows, echo]) as hf:
        run = await hf.start(spec, inputs)
        with pytest.raises(RunFailed) as failed:
            await run.result(timeout=60)
        assert failed.value.error.kind == "expression_too_costly", failed.value.error
        assert "units of work" in failed.value.error.message
        follows = await hf.start({"name": "next", "steps": [{"id": "s", "tool": "echo"}]})
        assert await follows.result(timeout=60) == {"s": None}


async def test_the_transform_tool_stops_a_path_that_is_too_costly(tmp_path: Path) -> None:
    args = {"value": ROWS, "select": COSTLY}
    async with Holdfast(f"sqlite:///{tmp_path / 'test.db'}") as hf:
        run = await hf.start({"name": "w", "steps": [{"id": "s", "tool": "transform", "args": args}]})
        with pytest.raises(RunFailed) as failed:
            await run.result(timeout=60)
        assert failed.value.error.kind == "expression_too_costly"


SEARCHES: list[tuple[str, list[Any]]] = [
    ("$..id", [1, 2, 4, 3]),
    ("$.inputs..id", [1, 2, 4]),
    ("$.a..id", [1, 2]),
    ("$.steps..id", [3]),
    ("$.s..id", [3]),
    ("$.one.id", [4]),
    ("$.item.id", [4]),
    ("$..[?@.id == 3].id", [3]),
    ("$.*..id", [1, 2, 4, 3]),
    ("$..path", ["f"]),
]


@pytest.mark.parametrize(("path", "found"), SEARCHES)
async def test_a_search_finds_each_value_once_inputs_first_and_then_steps(
    path: str, found: list[Any], tmp_path: Path
) -> None:
    """Bare names find their values too, and are not searched a second time."""
    value = {"id": 3, "notes": [{"path": "f"}]}
    inner = {
        "id": "in",
        "kind": "foreach",
        "items": path,
        "as": "hit",
        "steps": [{"id": "e", "tool": "echo", "args": {"value": "{{hit}}"}}],
    }
    spec = {
        "name": "w",
        "inputs": {"a": {"type": "array"}},
        "steps": [
            {"id": "s", "tool": "echo", "args": {"value": value}},
            {"id": "out", "kind": "foreach", "items": "$.b", "as": "one", "steps": [inner]},
        ],
    }
    spec["inputs"]["b"] = {"type": "array"}  # type: ignore[index]
    async with Holdfast(f"sqlite:///{tmp_path / 'test.db'}", tools=[echo]) as hf:
        run = await hf.start(spec, {"a": [{"id": 1}, {"id": 2}], "b": [{"id": 4}]})
        output = await run.result(timeout=60)
    hits = [iteration["e"] for iteration in output["out"]["iterations"][0]["in"]["iterations"]]
    assert hits == found
