"""A rerun ends as the run before it would have: what it does not do again, it takes over."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import FlowSpec, Holdfast, RunFailed, RunHandle, ToolError, tool
from holdfast.errors import InvalidInputs, NotFound
from holdfast.runtime.rerun import Again
from holdfast.runtime.starts import RerunRun
from holdfast.values import RunId
from tests.runtime.bench import opened, started
from tests.runtime.manual import by_hand, clock, settled

calls: list[Any] = []


@tool
async def mix(**args: Any) -> dict[str, int]:
    """The same for the same arguments, and other for others."""
    calls.append(args)
    number = sum(map(ord, json.dumps(_timeless(args), sort_keys=True)))
    return {"n": number, "odd": number % 2}


@tool
async def moody(**args: Any) -> dict[str, int]:
    """Fails for some arguments, always for the same ones."""
    made: dict[str, int] = await mix(**args)
    if made["n"] % 3 == 0:
        raise ToolError("not this one")
    return made


def run(work: Callable[[Holdfast], Any], *more: Any) -> Any:
    async def main() -> Any:
        with tempfile.TemporaryDirectory() as folder:
            file = f"sqlite:///{Path(folder) / 'r.db'}"
            async with Holdfast(file, tools=[mix, moody, *more], durability="relaxed") as hf:
                return await work(hf)

    calls.clear()
    return asyncio.run(main())


async def end_of(handle: RunHandle) -> tuple[str, Any, str | None]:
    """Status, output and the kind of the error: which of several failures comes first is not promised."""
    try:
        output = await handle.result(timeout=20)
    except RunFailed as failed:
        return "failed", None, failed.error.kind
    return "completed", _timeless(output), None


def _timeless(value: Any) -> Any:
    """Without the moments at which timers fired: those are of the run that waited for them."""
    if isinstance(value, dict):
        return {key: _timeless(member) for key, member in value.items() if key != "fired_at"}
    return [_timeless(member) for member in value] if isinstance(value, list) else value


# ---------------------------------------------------------------------------------------------- any workflow at all


class Writer:
    """Writes a random definition whose steps name what they can see."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.ids = iter(range(1000))

    def block(self, seen: list[str], depth: int, least: int = 1) -> list[dict[str, Any]]:
        return [self.step(seen, depth) for _ in range(self.draw(st.integers(least, 3)))]

    def step(self, seen: list[str], depth: int) -> dict[str, Any]:
        """One step; what can be named after it is added to `seen`."""
        kinds = ["tool", "tool", "timer", "child"] + ["foreach", "parallel", "branch"] * (2 if depth else 0)
        kind, name = self.draw(st.sampled_from(kinds)), f"s{next(self.ids)}"
        made: dict[str, Any] = {"id": name, "kind": kind}
        if kind == "tool":
            made |= {"tool": self.draw(st.sampled_from(["mix", "mix", "moody"])), "args": self.args(seen)}
        elif kind == "child":
            made = {"id": name, "workflow": "child", "inputs": {"x": self.value(seen)}}
        elif kind == "timer":
            return made | {"delay_ms": self.draw(st.sampled_from([0, 1]))}
        elif kind == "branch":
            arms = [list(seen), list(seen)]
            made |= {
                "on": self.path(seen),
                "then": self.block(arms[0], depth - 1),
                "else": self.block(arms[1], depth - 1),
            }
            seen += [*arms[0][len(seen) :], *arms[1][len(seen) :]]
        elif kind == "parallel":
            inner = [list(seen) for _ in range(self.draw(st.integers(1, 3)))]
            made["branches"] = [self.block(each, depth - 1) for each in inner]
            made["on_any_fail"] = self.draw(st.sampled_from(["abort", "continue"]))
            before = len(seen)
            for each in inner:
                seen += each[before:]
        else:
            made |= {
                "items": self.draw(st.sampled_from(["$.inputs.three", "$.inputs.none"])),
                "steps": self.block([*seen, "item"], depth - 1),
                "concurrency": self.draw(st.integers(1, 3)),
                "on_any_fail": self.draw(st.sampled_from(["abort", "continue"])),
                "collect": self.draw(st.sampled_from(["outputs", "none"])),
            }
        seen.append(name)
        return made

    def args(self, seen: list[str]) -> dict[str, Any]:
        return {name: self.value(seen) for name in self.draw(st.sampled_from([[], ["a"], ["a", "b"]]))}

    def value(self, seen: list[str]) -> str:
        return "{{ " + self.draw(st.sampled_from(["inputs.one", *seen])) + " }}"

    def path(self, seen: list[str]) -> str:
        steps = [f"$.steps.{name}.output.odd" for name in seen if name != "item"]
        return self.draw(st.sampled_from(["$.inputs.one", "$.inputs.none", *steps, *steps]))


CHILD = {
    "name": "child",
    "inputs": {"x": {}},
    "steps": [
        {"id": "c1", "tool": "mix", "args": {"x": "{{ inputs.x }}"}},
        {"id": "c2", "tool": "moody", "args": {"x": "{{ c1 }}"}},
        {"id": "c3", "tool": "mix", "args": {"a": "{{ c1 }}", "b": "{{ c2 }}"}},
    ],
}
INPUTS = {"one": 1, "none": [], "three": [1, {"two": 2}, "three"]}


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    writer, seen = Writer(draw), list[str]()
    steps = [*writer.block(seen, depth=2), {"id": "last", "tool": "mix", "args": {}}]
    steps[-1]["args"] = {name: "{{ " + name + " }}" for name in seen[-6:]}
    made = {"name": "made", "inputs": {name: {} for name in INPUTS}, "steps": steps}
    return made | ({"output": {"all": "{{ last }}"}} if draw(st.booleans()) else {})


@given(definitions(), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_rerun_from_any_step_of_any_workflow_ends_as_the_first_run_did(
    definition: dict[str, Any], chance: Any
) -> None:
    async def work(hf: Holdfast) -> None:
        await hf.publish(CHILD)
        first = await hf.start(definition, INPUTS)
        expected = await end_of(first)
        steps = await first.steps(every=True)
        starts = [path for path, step in steps.items() if step.status != "cancelled"]
        for path in chance.sample(starts, min(len(starts), 4)):
            again = await hf.rerun(first.id, from_step=path)
            assert await end_of(again) == expected, path
        if any(step.status == "failed" for step in steps.values()):
            assert await end_of(await hf.rerun(first.id, failed=True)) == expected

    run(work)


# ------------------------------------------------------------------------------------------------ parallel, branch

SEEN_LATER = {
    "name": "n",
    "steps": [
        {"id": "par", "kind": "parallel", "branches": [
            [{"id": "a", "tool": "mix", "args": {"x": 1}}],
            [{"id": "b", "tool": "mix", "args": {"x": 2}}]]},
        {"id": "br", "kind": "branch", "on": "$.steps.a.output.n", "then": [{"id": "c", "tool": "mix", "args": {"x": 3}}]},
        {"id": "d", "tool": "mix", "args": {"a": "{{ a }}", "b": "{{ b }}", "c": "{{ c }}"}},
        {"id": "e", "kind": "branch", "on": "$.steps.c.output.n",
         "then": [{"id": "yes", "tool": "mix"}], "else": [{"id": "no", "tool": "mix"}]},
    ],
}  # fmt: skip


@pytest.mark.parametrize(("start", "done"), [
    ("d", 2), ("e", 1), ("br", 3), ("par", 5), ("br.c", 3), ("par[1].b", 4), ("par[1]", 4), ("e.yes", 1),
])  # fmt: skip
def test_a_rerun_sees_what_steps_inside_parallel_and_branch_gave(start: str, done: int) -> None:
    async def work(hf: Holdfast) -> None:
        first = await hf.start(SEEN_LATER)
        expected = await first.result(timeout=10)
        calls.clear()
        again = await hf.rerun(first.id, from_step=start)
        assert await again.result(timeout=10) == expected
        assert len(calls) == done
        assert (await again.steps(every=True)).keys() == (await first.steps(every=True)).keys()

    run(work)


def test_a_rerun_of_a_rerun_takes_over_what_the_first_run_gave() -> None:
    async def work(hf: Holdfast) -> None:
        first = await hf.start(SEEN_LATER)
        expected = await first.result(timeout=10)
        again = first
        for start in ("br.c", "d", "e"):
            again = await hf.rerun(again.id, from_step=start)
            assert await again.result(timeout=10) == expected

    run(work)


def test_large_outputs_inside_a_parallel_are_taken_over_and_outlive_a_restart(tmp_path: Path) -> None:
    @tool
    async def large(n: int) -> str:
        return str(n) * 100_000

    @tool
    async def short(a: str, b: str) -> str:
        return a[:3] + b[:3]

    definition = {"name": "n", "steps": [
        {"id": "par", "kind": "parallel", "branches": [[{"id": "a", "tool": "large", "args": {"n": 1}}], [{"id": "b", "tool": "large", "args": {"n": 2}}]]},
        {"id": "s", "tool": "short", "args": {"a": "{{ a }}", "b": "{{ b }}"}}], "output": "{{ s }}"}  # fmt: skip
    file = f"sqlite:///{tmp_path / 'r.db'}"

    async def main() -> None:
        async with Holdfast(file, tools=[large, short]) as hf:
            first = await hf.start(definition)
            assert await first.result(timeout=10) == "111222"
        async with Holdfast(file, tools=[large, short]) as hf:
            again = await hf.rerun(first.id, from_step="s")
            assert await again.result(timeout=10) == "111222"
        async with Holdfast(file, tools=[large, short]) as hf:
            steps = await (await hf.run(again.id)).steps(every=True)
            assert steps["par[1].b"].output == "2" * 100_000

    asyncio.run(main())


# ---------------------------------------------------------------------------------------------------- failed items


def looping(**more: Any) -> dict[str, Any]:
    return {"name": "n", "inputs": {"items": {"default": [1, 2, 3, 4]}}, "steps": [
        {"id": "loop", "kind": "foreach", "items": "$.inputs.items", **more, "steps": [
            {"id": "a", "tool": "mix", "args": {"x": "{{ item }}"}},
            {"id": "b", "tool": "picky", "args": {"x": "{{ item }}"}}]},
        {"id": "after", "tool": "mix", "args": {"all": "{{ loop }}"}}]}  # fmt: skip


class Picky:
    """A tool that refuses some values until it is told not to."""

    def __init__(self, *bad: int) -> None:
        self.bad, self.seen = set(bad), list[int]()

        @tool(name="picky")
        async def picky(x: int) -> int:
            self.seen.append(x)
            if x in self.bad:
                raise ToolError(f"not {x}")
            return x * 10

        self.tool = picky

    def mended(self) -> None:
        self.bad.clear()
        self.seen.clear()
        calls.clear()


def test_only_the_failed_items_of_a_foreach_that_went_on_are_done_again() -> None:
    picky = Picky(2, 4)

    async def work(hf: Holdfast) -> None:
        first = await hf.start(looping(on_any_fail="continue"))
        await first.result(timeout=10)
        picky.mended()
        again = await hf.rerun(first.id, failed=True)
        output = await again.result(timeout=10)
        assert sorted(picky.seen) == [2, 4]
        assert len(calls) == 1  # the step after the loop; the first step of each item had completed
        assert [each["b"] for each in output["loop"]["iterations"]] == [10, 20, 30, 40]

    run(work, picky.tool)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_failed_items_of_a_foreach_that_aborted_are_done_again_with_those_that_never_began(
    concurrency: int,
) -> None:
    picky = Picky(2)

    async def work(hf: Holdfast) -> None:
        first = await hf.start(looping(concurrency=concurrency))
        with pytest.raises(RunFailed):
            await first.result(timeout=10)
        picky.mended()
        output = await (await hf.rerun(first.id, failed=True)).result(timeout=10)
        assert 2 in picky.seen and 1 not in picky.seen
        assert [each["b"] for each in output["loop"]["iterations"]] == [10, 20, 30, 40]

    run(work, picky.tool)


def test_named_items_are_done_again_and_failed_ones_that_were_not_named_stay_failed() -> None:
    picky = Picky(2, 4)

    async def work(hf: Holdfast) -> None:
        first = await hf.start(looping(on_any_fail="continue"))
        await first.result(timeout=10)
        picky.mended()
        output = await (await hf.rerun(first.id, paths=["loop[1].b", "loop[2]"])).result(timeout=10)
        assert sorted(picky.seen) == [2, 3]
        assert [each.get("b") for each in output["loop"]["iterations"]] == [10, 20, 30, None]
        assert output["loop"]["iterations"][3]["error"]["message"] == "not 4"

    run(work, picky.tool)


def test_failed_within_a_step_leaves_failures_elsewhere_alone() -> None:
    picky = Picky(2)
    definition = looping(on_any_fail="continue")
    definition["steps"].insert(
        1,
        json.loads(
            json.dumps(definition["steps"][0])
            .replace('"loop"', '"loop2"')
            .replace('"a"', '"a2"')
            .replace('"b"', '"b2"')
        ),
    )

    async def work(hf: Holdfast) -> None:
        first = await hf.start(definition)
        await first.result(timeout=10)
        picky.mended()
        output = await (await hf.rerun(first.id, from_step="loop2", failed=True)).result(timeout=10)
        assert picky.seen == [2]
        assert "error" in output["loop"]["iterations"][1] and output["loop2"]["iterations"][1]["b2"] == 20

    run(work, picky.tool)


def test_a_nested_workflow_goes_on_at_the_step_that_failed() -> None:
    picky = Picky(1)
    child = {"name": "child", "inputs": {"x": {}}, "steps": [
        {"id": "a", "tool": "mix", "args": {"x": "{{ inputs.x }}"}}, {"id": "b", "tool": "picky", "args": {"x": "{{ inputs.x }}"}}]}  # fmt: skip

    async def work(hf: Holdfast) -> None:
        await hf.publish(child)
        first = await hf.start({"name": "n", "steps": [{"id": "c", "workflow": "child", "inputs": {"x": 1}}]})
        with pytest.raises(RunFailed):
            await first.result(timeout=10)
        for again in ({"failed": True}, {"from_step": "c.b"}):
            picky.mended()
            output = await (await hf.rerun(first.id, **again)).result(timeout=10)
            assert (calls, picky.seen, output["c"]["b"]) == ([], [1], 10)

    run(work, picky.tool)


# ------------------------------------------------------------------------------------------------------ the inputs


def test_edited_inputs_replace_those_of_the_same_name_and_what_came_before_stays_done() -> None:
    definition = {"name": "n", "inputs": {"flag": {"type": "boolean"}, "x": {"default": 1}}, "steps": [
        {"id": "br", "kind": "branch", "on": "$.inputs.flag", "then": [{"id": "yes", "tool": "mix"}], "else": [{"id": "no", "tool": "mix"}]},
        {"id": "last", "tool": "mix", "args": {"x": "{{ inputs.x }}", "flag": "{{ inputs.flag }}"}}]}  # fmt: skip

    async def work(hf: Holdfast) -> None:
        first = await hf.start(definition, {"flag": True, "x": 7})
        await first.result(timeout=10)
        calls.clear()
        again = await hf.rerun(first.id, from_step="last", inputs={"flag": False})
        output = await again.result(timeout=10)
        assert calls == [{"x": 7, "flag": False}]
        assert output["br"]["taken"] == "then"
        with pytest.raises(InvalidInputs):
            await hf.rerun(first.id, inputs={"flag": "maybe"})

    run(work)


# -------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(("path", "error", "says"), [
    ("nowhere", NotFound, "has no step"),
    ("loop[9]", InvalidInputs, "never reached it"),
    ("loop[0].z", NotFound, "has no step"),
    ("after.x", NotFound, "has no step"),
    ("after[1]", NotFound, "has no step"),
    ("loop[x]", NotFound, "has no step"),
    ("]]", NotFound, "has no step"),
    ("after", InvalidInputs, "'loop' before it did not complete"),
])  # fmt: skip
def test_a_step_that_cannot_be_the_first_is_refused_with_the_reason(path: str, error: Any, says: str) -> None:
    picky = Picky(2)

    async def work(hf: Holdfast) -> None:
        first = await hf.start(looping())
        with pytest.raises(RunFailed):
            await first.result(timeout=10)
        with pytest.raises(error, match=says):
            await hf.rerun(first.id, from_step=path)
        assert len(await hf.runs()) == 1

    run(work, picky.tool)


def test_a_rerun_takes_over_the_same_outcomes_when_it_is_begun_by_another_process(tmp_path: Path) -> None:
    """Accepted and not begun yet: what it takes over stands in its first row."""
    file = f"sqlite:///{tmp_path / 'r.db'}"

    async def main() -> None:
        async with Holdfast(file, tools=[mix]) as hf:
            first = await hf.start(SEEN_LATER)
            expected = await first.result(timeout=10)
            calls.clear()
            hf._engine.starts.resident_max = 0
            again = await hf.rerun(first.id, from_step="d")
            assert await again.status() == "pending" and calls == []
        async with Holdfast(file, tools=[mix]) as hf:
            assert await (await hf.run(again.id)).result(timeout=10) == expected
            assert len(calls) == 2

    asyncio.run(main())


def test_a_run_without_a_failed_step_has_nothing_failed_to_do_again() -> None:
    async def work(hf: Holdfast) -> None:
        first = await hf.start(SEEN_LATER)
        await first.result(timeout=10)
        with pytest.raises(InvalidInputs, match=r"no step of run .* failed"):
            await hf.rerun(first.id, failed=True)

    run(work)


# ---------------------------------------------------------------------------------------------------------- graphs


def graph(start: str, nodes: dict[str, Any], *edges: tuple[str, str, str]) -> dict[str, Any]:
    drawn = [{"from": source, "action": action, "to": to} for source, action, to in edges]
    return {"name": "g", "start": start, "nodes": nodes, "edges": drawn}


def local(key: str, service: str = "mix", **more: Any) -> dict[str, Any]:
    return {"kind": "local", "service": service, "prep": {"input_map": {"x": "a", "y": "b"}}, "post": {"output_key": key}, **more}  # fmt: skip


@pytest.mark.parametrize("start", ["a", "b", "c"])
def test_a_graph_begins_again_at_any_node_with_its_shared_state(start: str) -> None:
    definition = graph(
        "a", {name: local(name) for name in "abc"}, ("a", "default", "b"), ("b", "default", "c")
    )

    async def work(hf: Holdfast) -> None:
        first = await hf.start(definition)
        expected = await first.result(timeout=10)
        assert await (await hf.rerun(first.id, from_step=start)).result(timeout=10) == expected

    run(work)


def test_a_graph_begins_again_inside_a_subflow() -> None:
    inner = graph(
        "x",
        {"x": local("a"), "y": local("b", "picky", prep={"input_map": {"x": "'1"}})},
        ("x", "default", "y"),
    )
    del inner["name"]
    sub = {"kind": "subflow", "subflow": inner, "post": {"output_key": "sub", "action_static": "on"}}
    definition = graph("a", {"a": local("a"), "sub": sub, "c": local("c")}, ("a", "default", "sub"), ("sub", "on", "c"))  # fmt: skip
    bad = True
    seen: list[Any] = []

    @tool(name="picky")
    async def picky(**args: Any) -> int:
        seen.append(args)
        if bad:
            raise ToolError("not now")
        return 5

    async def work(hf: Holdfast) -> None:
        nonlocal bad
        first = await hf.start(definition)
        with pytest.raises(RunFailed):
            await first.result(timeout=10)
        bad = False
        for again in ({"failed": True}, {"from_step": "sub.y"}):
            calls.clear()
            seen.clear()
            output = await (await hf.rerun(first.id, **again)).result(timeout=10)
            assert len(seen) == 1 and len(calls) == 1
            assert output["sub"]["b"] == 5 and output["a"] == output["sub"]["a"]

    run(work, picky)


@by_hand
async def test_only_the_failed_calls_of_a_graphs_foreach_are_made_again(tmp_path: Path) -> None:
    each = {"kind": "foreach", "service": "work", "prep": {"input_key": "$params.items"}, "post": {"output_key": "out"},
            "parallel_mode": "concurrent", "failure_strategy": "collect_errors"}  # fmt: skip
    definition = FlowSpec.from_data(graph("each", {"each": each}))
    async with opened(tmp_path, [], clock()) as engine:
        await engine.workers.register("default", "w", None, ["work"], "pull")
        begun = await started(engine, definition, {"items": [1, 2, 3]})
        first = RunHandle(engine, begun.run.no, begun.run.id)
        await _answer_all(engine, bad=2)
        with pytest.raises(RunFailed):
            await first.result()
        again = await engine.starts.rerun(RerunRun(run_id=RunId(first.id), again=Again(failed=True)))
        assert await _answer_all(engine) == [2]
        handle = RunHandle(engine, again.no, again.run_id)
        assert await handle.result() == {"out": [10, 20, 30]}


async def _answer_all(engine: Any, bad: int | None = None) -> list[int]:
    """Let a worker answer every job that there is; gives what it was asked."""
    await settled()
    asked = []
    while offers := (await clock().until(engine.workers.poll("default", "w", limit=10))).assignments:
        for offer in offers:
            item = json.loads(bytes(offer.input))
            asked.append(item)
            failure = {"error": "no"} if item == bad else {}
            await engine.workers.complete("default", offer.id, offer.token, item * 10, **failure)
        await settled()
    return asked
