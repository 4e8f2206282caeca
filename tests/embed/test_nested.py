"""Workflows within workflows: pinned when the run starts, with inputs, output and time of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, InvalidSpec, NotFound, RunFailed, WorkflowSpec

CHILD = """
name: child
inputs: {n: {type: integer}, by: {type: integer, default: 2}}
steps:
  - {id: s, tool: times, args: {a: "{{inputs.n}}", b: "{{by}}"}}
  - {id: t, tool: times, args: {a: "{{s}}", b: 10}}
"""
PARENT = """
name: parent
inputs: {n: {type: integer}}
steps:
  - {id: s, tool: times, args: {a: "{{inputs.n}}", b: 1}}
  - {id: inner, workflow: child, inputs: {n: "{{s}}"}}
  - {id: last, tool: times, args: {a: "{{inner.t}}", b: 1}}
"""


async def times(a: int, b: int) -> int:
    return a * b


async def _result(hf: Holdfast, spec: Any, **inputs: Any) -> Any:
    return await (await hf.start(spec, inputs)).result(timeout=60)


def test_the_output_of_a_nested_workflow_is_that_of_its_steps(tmp_path: Path) -> None:
    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[times]) as hf:
            await hf.publish(WorkflowSpec.from_yaml_str(CHILD))
            assert await _result(hf, PARENT, n=3) == {"s": 3, "inner": {"s": 6, "t": 60}, "last": 60}

    asyncio.run(main())


def test_a_nested_workflow_with_an_output_gives_that(tmp_path: Path) -> None:
    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[times]) as hf:
            await hf.publish(WorkflowSpec.from_yaml_str(CHILD + 'output: {t: "{{t}}", n: "{{inputs.n}}"}\n'))
            assert (await _result(hf, PARENT, n=3))["inner"] == {"t": 60, "n": 3}

    asyncio.run(main())


def test_a_misfit_of_the_childs_inputs_fails_the_step_with_kind_inputs(tmp_path: Path) -> None:
    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[times]) as hf:
            await hf.publish(WorkflowSpec.from_yaml_str(CHILD))
            with pytest.raises(RunFailed) as failed:
                await _result(hf, PARENT.replace('n: "{{s}}"', 'n: "text"'), n=3)
            assert (failed.value.error.kind, failed.value.error.path) == ("inputs", "inner")

    asyncio.run(main())


def test_a_failure_inside_keeps_its_kind_and_names_the_workflow(tmp_path: Path) -> None:
    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[times]) as hf:
            await hf.publish(WorkflowSpec.from_yaml_str(CHILD.replace("b: 10", 'b: "x"')))
            with pytest.raises(RunFailed) as failed:
                await _result(hf, PARENT, n=3)
            error = failed.value.error
            assert error.path == "inner" and "workflow child failed" in error.message
            assert error.cause is not None and error.cause.path == "inner.t"

    asyncio.run(main())


def test_a_run_keeps_the_version_of_a_nested_workflow_that_it_started_with(tmp_path: Path) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def slow(a: int, b: int) -> int:
            await gate.wait()
            return a * b

        async with Holdfast(str(tmp_path / "a.db")) as hf:
            await hf.publish(WorkflowSpec.from_yaml_str(CHILD))
            run = await hf.start(PARENT, {"n": 3})
            await hf.publish(WorkflowSpec.from_yaml_str(CHILD.replace("b: 10", "b: 1000")))
        async with Holdfast(str(tmp_path / "a.db"), tools=[times]) as hf:
            assert (await (await hf.run(run.id)).result(timeout=60))["last"] == 60
            assert (await _result(hf, PARENT, n=3))["last"] == 6000

    asyncio.run(main())


def test_a_workflow_that_contains_itself_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[times]) as hf:
            await hf.publish(WorkflowSpec.from_yaml_str("name: child\nsteps: [{id: p, workflow: parent}]"))
            await hf.publish(WorkflowSpec.from_yaml_str(PARENT))
            with pytest.raises(InvalidSpec, match="contains itself"):
                await hf.start(PARENT, {"n": 1})

    asyncio.run(main())


def test_a_nested_workflow_that_nobody_published_is_refused_before_a_run_exists(tmp_path: Path) -> None:
    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[times]) as hf:
            with pytest.raises(NotFound, match="child"):
                await hf.start(PARENT, {"n": 1})

    asyncio.run(main())


def test_a_name_means_the_file_beside_the_one_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "child.yaml").write_text(CHILD)
    (tmp_path / "parent.yaml").write_text(PARENT)

    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[times]) as hf:
            assert (await _result(hf, tmp_path / "parent.yaml", n=3))["last"] == 60

    asyncio.run(main())


def test_nested_workflows_stand_in_loops_and_hold_loops(tmp_path: Path) -> None:
    loop = """
    name: loop
    inputs: {ns: {type: array}}
    steps:
      - id: each
        kind: foreach
        items: $.inputs.ns
        as: n
        concurrency: 3
        steps: [{id: inner, workflow: looping, inputs: {ns: ["{{n}}", 5]}}]
    """
    looping = """
    name: looping
    inputs: {ns: {type: array}}
    steps:
      - {id: each, kind: foreach, items: $.inputs.ns, steps: [{id: s, tool: times, args: {a: "{{item}}", b: 2}}]}
    output: "{{each.iterations}}"
    """

    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[times]) as hf:
            await hf.publish(WorkflowSpec.from_yaml_str(looping))
            output = await _result(hf, loop, ns=[1, 2])
            assert [one["inner"] for one in output["each"]["iterations"]] == [
                [{"s": 2}, {"s": 10}],
                [{"s": 4}, {"s": 10}],
            ]

    asyncio.run(main())


def test_the_time_of_a_nested_workflow_is_its_own(tmp_path: Path) -> None:
    slow = "name: child\ntimeout_secs: 0.05\ninputs: {n: {}}\nsteps: [{id: t, kind: timer, delay_ms: 60000}]"

    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[times]) as hf:
            await hf.publish(WorkflowSpec.from_yaml_str(slow))
            with pytest.raises(RunFailed) as failed:
                await _result(hf, PARENT, n=3)
            assert failed.value.error.kind == "run_timeout" and failed.value.error.path == "inner"

    asyncio.run(main())


def test_large_values_pass_into_and_out_of_a_nested_workflow(tmp_path: Path) -> None:
    async def long(n: int) -> str:
        return "x" * n

    child = 'name: child\ninputs: {text: {type: string}}\nsteps: [{id: size, tool: size, args: {text: "{{inputs.text}}"}}]\noutput: {text: "{{inputs.text}}", size: "{{size}}"}'
    parent = 'name: parent\nsteps: [{id: a, tool: long, args: {n: 200000}}, {id: b, workflow: child, inputs: {text: "{{a}}"}}, {id: c, tool: size, args: {text: "{{b.text}}"}}]\noutput: ["{{b.size}}", "{{c}}"]'

    async def size(text: str) -> int:
        return len(text)

    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db"), tools=[long, size]) as hf:
            await hf.publish(WorkflowSpec.from_yaml_str(child))
            assert await _result(hf, parent) == [200000, 200000]

    asyncio.run(main())
