"""Graphs are started in every form in which workflows are, and found again by name and after a restart."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import FlowSpec, Holdfast, InvalidSpec, tool

DOUBLE: dict[str, Any] = {
    "name": "double",
    "start": "a",
    "nodes": {"a": {"kind": "local", "service": "twice", "prep": {"input_key": "$params.of"}, "post": {"output_key": "out"}}},
}  # fmt: skip


@tool
async def twice(input: int) -> int:  # noqa: A002  # the name under which a graph handler it over
    return 2 * input


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'h.db'}"


def forms(folder: Path) -> list[Any]:
    spec = FlowSpec.from_data(DOUBLE)
    path = folder / "double.yaml"
    path.write_text(spec.to_yaml())
    return [DOUBLE, spec, spec.to_yaml(), path, str(path)]


def test_a_graph_is_started_in_every_form(url: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with Holdfast(url, tools=[twice]) as hf:
            for form in forms(tmp_path):
                run = await hf.start(form, {"of": 4})
                assert await run.result(timeout=120) == {"out": 8}

    asyncio.run(main())


def test_a_graph_is_published_and_started_by_name_after_a_restart(url: str) -> None:
    async def main() -> None:
        async with Holdfast(url) as hf:
            version = await hf.publish(DOUBLE)
        async with Holdfast(url, tools=[twice]) as hf:
            run = await hf.start("double", {"of": 5})
            assert await run.result(timeout=120) == {"out": 10}
            assert [one.version for one in await hf.runs()] == [version]

    asyncio.run(main())


def test_a_graph_is_nested_in_steps_and_steps_in_a_graph(url: str) -> None:
    steps = {"name": "steps", "inputs": {"n": {}}, "steps": [{"id": "g", "workflow": "double", "inputs": {"of": "{{ n }}"}}]}  # fmt: skip
    graph = {
        "name": "graph",
        "start": "a",
        "nodes": {"a": {"kind": "flow_ref", "flow": "steps", "prep": {"input_map": {"n": 6}}, "post": {"output_key": "r"}}},
    }  # fmt: skip

    async def main() -> None:
        async with Holdfast(url, tools=[twice]) as hf:
            await hf.publish(DOUBLE)
            await hf.publish(steps)
            assert await (await hf.start("steps", {"n": 3})).result(timeout=120) == {"g": {"out": 6}}
            run = await hf.start(graph, {"n": 6})
            assert await run.result(timeout=120) == {"r": {"g": {"out": 12}}}

    asyncio.run(main())


def test_a_graph_that_names_itself_is_refused(url: str) -> None:
    graph = {"name": "graph", "start": "a", "nodes": {"a": {"kind": "flow_ref", "flow": "graph"}}}

    async def main() -> None:
        async with Holdfast(url) as hf:
            with pytest.raises(InvalidSpec, match="contains itself"):
                await hf.start(graph)

    asyncio.run(main())


def test_a_graph_that_is_wrong_is_refused_before_anything_is_stored(url: str) -> None:
    async def main() -> None:
        async with Holdfast(url) as hf:
            with pytest.raises(InvalidSpec):
                await hf.start(DOUBLE | {"start": "z"})
            assert await hf.runs() == []

    asyncio.run(main())
