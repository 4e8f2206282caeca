"""A small request that would build a huge value is refused while the value is built, and memory stays flat."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, RunFailed, tool
from holdfast.plan import composed

pytestmark = pytest.mark.anyio

MANY = 10_000
TEXT = "{{inputs.a}}"
NESTED_DEEP = {"b": {"c": {"d": {"e": ["x" * 400_000] * 20}}}}


@tool
async def ignore(value: Any = None) -> None:
    pass


@tool
async def text(size: int) -> str:
    return "x" * size


@tool
async def echo(value: Any) -> Any:
    return value


def steps(*listed: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "n", "steps": list(listed), **more}


def call(**more: Any) -> dict[str, Any]:
    return {"id": "s", "tool": "ignore", **more}


def graph(*nodes: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in nodes]
    edges = [{"from": a, "action": "default", "to": b} for a, b in itertools.pairwise(names)]
    return {"name": "g", "start": names[0], "nodes": dict(nodes), "edges": edges}


KEPT = (
    "keep",
    {"kind": "local", "service": "echo", "params": {"value": "$params.a"}, "post": {"output_key": "x"}},
)
LOOP = {"kind": "foreach", "items": "$.inputs.xs", "id": "loop"}
SIZED = {"id": "one", "tool": "text", "args": {"size": 1_000_000}}

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "arguments in a list": (steps(call(args={"value": [TEXT] * MANY})), "input_too_large"),
    "arguments in text": (steps(call(args={"value": TEXT * MANY})), "input_too_large"),
    "an explicit output": (steps(call(), output=[TEXT] * MANY), "output_too_large"),
    "an idempotency key": (steps(call(idempotency_key=TEXT * MANY)), "input_too_large"),
    "a prompt": (steps({"id": "s", "kind": "approve", "prompt": TEXT * MANY}), "input_too_large"),
    "names of signals": (steps({"id": "s", "kind": "wait_event", "any": [TEXT] * 1_000}), "input_too_large"),
    "a timer": (steps({"id": "s", "kind": "timer", "until": TEXT * MANY}), "input_too_large"),
    "items that are found": (
        steps({**LOOP, "items": "$.inputs.deep..*", "steps": [call()]}),
        "input_too_large",
    ),
    "a condition": (
        steps({"id": "b", "kind": "branch", "on": "$.inputs.deep..*", "then": [call()]}),
        "input_too_large",
    ),
    "a selection of an answer": (
        steps(
            {"id": "s", "tool": "echo", "args": {"value": "{{inputs.deep}}"}, "result": {"select": "$..*"}}
        ),
        "output_too_large",
    ),
    "outputs of a loop": (steps({**LOOP, "steps": [SIZED]}), "output_too_large"),
    "outputs of a loop at once": (steps({**LOOP, "concurrency": 50, "steps": [SIZED]}), "output_too_large"),
    "outputs of a loop in a loop": (
        steps({**LOOP, "steps": [{**LOOP, "id": "inner", "steps": [SIZED]}]}),
        "output_too_large",
    ),
    "outputs of branches": (
        steps({"id": "p", "kind": "parallel", "steps": [{**SIZED, "id": f"s{n}"} for n in range(30)]}),
        "output_too_large",
    ),
    "outputs of the run": (steps(*({**SIZED, "id": f"s{n}"} for n in range(30))), "output_too_large"),
    "a variable in many places": (
        graph(
            KEPT,
            ("c", {"kind": "choice", "prep": {"input_map": {f"k{n}": "$shared.x" for n in range(MANY)}}}),
        ),
        "input_too_large",
    ),
    "a variable in many params": (
        graph(("n", {"kind": "local", "service": "ignore", "params": {"value": ["$params.a"] * MANY}})),
        "input_too_large",
    ),
    "one result in many variables": (
        graph(
            (
                "n",
                {
                    "kind": "local",
                    "service": "echo",
                    "params": {"value": {"r": "$params.a"}},
                    "post": {"output_map": {f"k{n}": "r" for n in range(MANY)}},
                },
            )
        ),
        "output_too_large",
    ),
}


def inputs_of(definition: dict[str, Any]) -> dict[str, Any]:
    deep = {"deep": NESTED_DEEP} if "deep" in str(definition) else {}
    return {"a": "x" * 500_000, "xs": list(range(200)), **deep}


@pytest.mark.parametrize("name", CASES)
async def test_a_value_that_would_be_too_large_is_refused(tmp_path: Path, name: str) -> None:
    definition, kind = CASES[name]
    async with Holdfast(f"sqlite:///{tmp_path / 'f.db'}", tools=[ignore, text, echo]) as hf:
        run = await hf.start(definition, inputs_of(definition))
        with pytest.raises(RunFailed) as caught:
            await run.result(timeout=60)
    assert caught.value.error.kind == kind, caught.value.error


MEASURED = """
import asyncio, resource, sys
from holdfast import Holdfast, RunFailed
from tests.regressions.test_large_values import CASES, echo, ignore, inputs_of, text

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

async def main(file, name):
    definition, _ = CASES[name]
    async with Holdfast("sqlite:///" + file, tools=[ignore, text, echo]) as hf:
        given = inputs_of(definition)
        warm = await hf.start({"name": "w", "steps": [{"id": "s", "tool": "ignore"}]}, given)
        await warm.result()
        before = peak()
        try:
            await (await hf.start(definition, given)).result(timeout=60)
        except RunFailed:
            print(peak() - before)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(
    "name",
    [
        "arguments in a list",
        "arguments in text",
        "an explicit output",
        "a prompt",
        "outputs of branches",
        "a variable in many places",
    ],
)
def test_memory_stays_under_about_twice_the_limit_while_it_is_refused(tmp_path: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path / "f.db"), name],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert int(done.stdout) < 60


async def test_references_that_an_earlier_release_made_durable_fail_their_step_when_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, definition = f"sqlite:///{tmp_path / 'f.db'}", CASES["arguments in a list"][0]
    async with Holdfast(file, tools=[text]) as hf:
        with monkeypatch.context() as earlier:
            earlier.setattr(composed, "LIMIT", 10**12)
            run = await hf.start(definition, inputs_of(definition))
            await until(run.steps, "waiting")
    async with Holdfast(file, tools=[ignore]) as hf:
        with pytest.raises(RunFailed) as caught:
            await (await hf.run(run.id)).result(timeout=60)
    assert caught.value.error.kind == "input_too_large"


async def until(steps_of: Callable[[], Any], status: str) -> None:
    for _ in range(1_000):
        found = await steps_of()
        if "s" in found and found["s"].status == status:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"the step was never {status}: {found}")
