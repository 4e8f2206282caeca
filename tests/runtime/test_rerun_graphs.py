"""A rerun of a graph ends as the run before it did, wherever it begins: in a cycle, in a subflow, after signals."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast import Holdfast, RunHandle, ToolError, tool
from holdfast.errors import RunIsOver
from tests.runtime.test_rerun import calls, end_of, graph, local, run

ROUNDS = 2
SUBFLOWS_DEEP = 2


@tool
async def count(n: int | None) -> dict[str, Any]:
    """Goes round a cycle until it has counted far enough."""
    calls.append({"n": n})
    now = (n or 0) + 1
    return {"n": now, "odd": now % 2, "action": "again" if now < ROUNDS else "on"}


class Writer:
    """Writes a random graph whose nodes read what others may have written."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.ids = iter(range(1000))

    def graph(self, depth: int, least: int = 1) -> dict[str, Any]:
        names = [f"n{next(self.ids)}" for _ in range(self.draw(st.integers(least, 4)))]
        nodes = {name: self.node(name, depth) for name in names}
        edges = [edge for at, name in enumerate(names) for edge in self.edges(nodes, names, at)]
        return {"start": names[0], "nodes": nodes, "edges": edges}

    def node(self, name: str, depth: int) -> dict[str, Any]:
        kinds = ["mix", "mix", "moody", "count", "choice", "wait"] + ["subflow"] * (2 * bool(depth))
        kind = self.draw(st.sampled_from(kinds))
        post = {"output_key": self.draw(st.sampled_from("abc"))}
        if kind == "choice":
            odd = {"eq": [f"$shared.{self.draw(st.sampled_from('abc'))}.odd", 1]}
            return {"kind": "choice", "choice_cases": [{"action": "alt", "expr": odd}]}
        if kind == "wait":
            return {"kind": "wait_event", "params": {"signal_key": "$shared.go"}, "post": post}
        if kind == "subflow":
            return {"kind": "subflow", "subflow": self.graph(depth - 1), "post": post}
        if kind == "count":
            own = f"count_{name}"
            post = {"output_key": own, "action_key": "action"}
            return {
                "kind": "local",
                "service": "count",
                "prep": {"input_map": {"n": f"{own}.n"}},
                "post": post,
            }
        reads = {"x": self.draw(st.sampled_from("abc")), "go": "go"}
        return {"kind": "local", "service": kind, "prep": {"input_map": reads}, "post": post}

    def edges(self, nodes: dict[str, Any], names: list[str], at: int) -> list[dict[str, str]]:
        name, later = names[at], names[at + 1 :]
        found = [("default", later[0])] if later else []
        found += [
            (action, self.draw(st.sampled_from(later))) for action in ("alt", "error") if len(later) > 1
        ]
        if nodes[name].get("service") == "count":
            found.append(("again", self.draw(st.sampled_from(names[: at + 1]))))
        return [{"from": name, "action": action, "to": to} for action, to in found]


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, Any]:
    return {"name": "made", **Writer(draw).graph(SUBFLOWS_DEEP, least=2)}


async def answered(hf: Holdfast, handle: RunHandle) -> tuple[str, Any, str | None]:
    """The end of a run that is given the same signal whenever it waits for one."""
    end = asyncio.ensure_future(end_of(handle))
    while not end.done():
        if await handle.status() == "waiting":
            try:
                await hf.signal(handle.id, "go", 7)
            except RunIsOver:
                break
        await asyncio.sleep(0.002)
    return await end


@given(graphs(), st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_a_rerun_from_any_node_of_any_graph_ends_as_the_first_run_did(
    definition: dict[str, Any], chance: Any
) -> None:
    async def work(hf: Holdfast) -> None:
        first = await hf.start(definition)
        expected = await answered(hf, first)
        steps = await first.steps(every=True)
        for path in chance.sample(list(steps), min(len(steps), 4)):
            again = await hf.rerun(first.id, from_step=path)
            assert await answered(hf, again) == expected, path
            inner = await again.steps(every=True)
            chosen = chance.choice(list(inner))
            assert await answered(hf, await hf.rerun(again.id, from_step=chosen)) == expected, (path, chosen)
        if expected[0] == "failed":
            assert await answered(hf, await hf.rerun(first.id, failed=True)) == expected

    run(work, count)


@pytest.mark.parametrize("start", ["sub.late", "sub.wait"])
def test_a_rerun_begins_inside_a_subflow_that_signals_have_reached(start: str) -> None:
    wait = {"kind": "wait_event", "params": {"signal_key": "$shared.go"}, "post": {"output_key": "got"}}
    late = {"kind": "local", "service": "picky", "prep": {"input_map": {"x": "go", "y": "early.n"}}, "post": {"output_key": "late"}}  # fmt: skip
    inner = graph(
        "early",
        {"early": local("early"), "wait": wait, "late": late},
        ("early", "default", "wait"),
        ("wait", "default", "late"),
    )
    del inner["name"]
    sub = {"kind": "subflow", "subflow": inner, "post": {"output_key": "sub"}}
    definition = graph("a", {"a": local("a"), "sub": sub}, ("a", "default", "sub"))
    seen: list[Any] = []

    @tool(name="picky")
    async def picky(**args: Any) -> int:
        seen.append(args)
        if len(seen) == 1:
            raise ToolError("not now")
        return 5

    async def work(hf: Holdfast) -> None:
        first = await hf.start(definition)
        assert (await answered(hf, first))[0] == "failed"
        calls.clear()
        status, output, _ = await answered(hf, await hf.rerun(first.id, from_step=start))
        assert (status, output["sub"]["late"], output["sub"]["go"]) == ("completed", 5, 7)
        assert not calls, "what came before it is not done again"
        assert seen[0] == seen[1], "it was given what it was given before"

    run(work, picky)
