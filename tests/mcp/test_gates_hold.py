"""No plan that may run without more approvals reaches a destructive tool when every approval is denied: tried by running it."""

from __future__ import annotations

import contextlib
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from holdfast.api.services import Services
from holdfast.config import Settings
from holdfast.errors import NotWaiting, PlanRefused
from holdfast.http.serve import serving
from holdfast.plan.compile import Resolved
from holdfast.runtime.rights import Rights
from holdfast.runtime.untrusted import refusals
from holdfast.spec.notation import examined
from holdfast.spec.patch import applied
from holdfast.tools.annotations import Annotations
from holdfast.tools.context import Context
from holdfast.tools.registry import Registry, tool
from holdfast.values import TERMINAL

pytestmark = pytest.mark.anyio

AGENT = Rights(skips_gate=False)
MARKS = {
    "look": Annotations(read_only=True),
    "trip": Annotations(),
    "wipe": Annotations(destructive=True),
    "far/look": Annotations(read_only=True),
    "far/wipe": Annotations(destructive=True),
    "far/unsaid": Annotations(destructive=True),  # of which its server says nothing
}
FAR = tuple(name for name in MARKS if name.startswith("far/"))
INNER: dict[str, Any] = {"name": "inner", "steps": [{"id": "w", "tool": "wipe"}]}
GATED: dict[str, Any] = {
    "name": "gated",
    "steps": [{"id": "ok", "kind": "approve"}, {"id": "w", "tool": "wipe"}],
}
DEPTH_MAX = 3


class Plans:
    """Random definitions around a destructive tool."""

    def __init__(self, dice: random.Random) -> None:
        self._dice, self._count = dice, 0

    def made(self) -> dict[str, Any]:
        own: dict[str, Any] = {"name": "plan", "steps": self._steps(0)}
        if self._dice.random() < 0.3:
            own["on_error"] = {"steps": self._steps(2)}
        if self._dice.random() < 0.3:
            own["finally"] = self._steps(2)
        return own

    def _steps(self, depth: int) -> list[dict[str, Any]]:
        return [self._step(depth) for _ in range(self._dice.choice((1, 2, 3)))]

    def _step(self, depth: int) -> dict[str, Any]:
        self._count += 1
        step: dict[str, Any] = {"id": f"s{self._count}", **self._body(depth)}
        if self._dice.random() < 0.15:
            step["when"] = {"eq": [1, self._dice.choice((1, 2))]}
        if self._dice.random() < 0.2 and depth < DEPTH_MAX:
            step["on_error"] = {"steps": self._steps(depth + 1)}
        if self._dice.random() < 0.15 and depth < DEPTH_MAX:
            step["finally"] = self._steps(depth + 1)
        if "tool" in step and step.get("kind") != "poll" and self._dice.random() < 0.2:
            step["compensate"] = {"tool": self._dice.choice(("look", "wipe", *FAR))}
        return step

    def _body(self, depth: int) -> dict[str, Any]:
        simple = ("look", "trip", "wipe", "approve", "approve", "poll", "nested", "far", "far")
        around = ("foreach", "parallel", "branch")
        match self._dice.choice(simple if depth >= DEPTH_MAX else simple + around):
            case "approve":
                return {"kind": "approve", "prompt": "?"}
            case "poll":
                return {"kind": "poll", "tool": self._dice.choice(("wipe", "far/wipe")), "until": "$"}
            case "far":
                name = self._dice.choice(FAR)
                return {"tool": name} if self._dice.random() < 0.5 else {"dcc": "far", "tool": name[4:]}
            case "nested":
                return {"workflow": "inner"}
            case "foreach":
                fails = self._dice.choice(("abort", "continue"))
                return {
                    "kind": "foreach",
                    "items": "$.steps",
                    "on_any_fail": fails,
                    "steps": self._steps(depth + 1),
                }
            case "parallel":
                fails = self._dice.choice(("abort", "continue"))
                branches = [self._steps(depth + 1) for _ in range(2)]
                return {"kind": "parallel", "on_any_fail": fails, "branches": branches}
            case "branch":
                then, other = self._steps(depth + 1), self._steps(depth + 1)
                return {
                    "kind": "branch",
                    "on": self._dice.choice(("$.steps", "$.nope")),
                    "then": then,
                    "else": other,
                }
            case name:
                return {"tool": name}


class Graphs:
    """Random graphs around a destructive tool: the approval of a graph is a condition, which is no approval."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def made(self) -> dict[str, Any]:
        names = [f"n{number}" for number in range(self._dice.choice((1, 2, 4)))]
        nodes = {name: self._node() for name in names}
        edges = [{"from": one, "to": other, "action": "default"} for one, other in itertools.pairwise(names)]
        own: dict[str, Any] = {"name": "graph", "start": names[0], "nodes": nodes, "edges": edges}
        if self._dice.random() < 0.2:
            nodes["last"], own["finally"] = {"kind": "local", "service": self._tool()}, "last"
        return own

    def _node(self) -> dict[str, Any]:
        match self._dice.choice(("call", "call", "call", "inner", "gated", "approval")):
            case "inner" | "gated" as name:
                return {"kind": "flow_ref", "flow": name}
            case "approval":
                return {"kind": "approval", "params": {"approval_key": "$params.go"}}
            case _:
                node: dict[str, Any] = {"kind": "local", "service": self._tool()}
                if self._dice.random() < 0.2:
                    node["compensate"] = {"service": self._tool()}
                return node

    def _tool(self) -> str:
        return self._dice.choice(("look", "look", "look", "trip", "wipe"))


@pytest.fixture(autouse=True)
def a_server_of_other_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.spec.remotes.now", frozenset({"far"}))


def accepted(data: dict[str, Any]) -> dict[str, Any] | None:
    """A definition that an agent may run, with the approvals that the refusal offers if it needs them."""
    inner = Resolved(examined(INNER).spec, {})  # type: ignore[arg-type]
    for _ in range(2):
        spec = examined(data).spec
        if spec is None:
            return None
        problems = refusals(Resolved(spec, {"inner": inner}), AGENT, MARKS.get)
        if not problems:
            return data
        data = applied(data, problems[0].patch)
    raise AssertionError(f"the offered approvals are not enough: {data}")


class Far:
    """A server of other people's tools, of which one does not say that it is destructive."""

    servers = ("far",)

    def __init__(self, wiped: list[str]) -> None:
        self._wiped = wiped

    async def call(self, server: str, name: str, args: dict[str, Any], context: Context) -> str:
        if name != "look":
            self._wiped.append(f"{server}/{name}")
        return name

    async def learn(self, server: str) -> None:
        """Its marks are known from the beginning."""

    def marks_of(self, server: str, name: str) -> tuple[bool | None, bool | None, bool | None]:
        said = MARKS[f"{server}/{name}"]
        return said.destructive, said.read_only, said.idempotent


def registry_that(wiped: list[str]) -> Registry:
    return Registry(tools_that(wiped), remote=Far(wiped))


def tools_that(wiped: list[str]) -> list[Any]:
    @tool(read_only=True)
    async def look() -> str:
        return "seen"

    @tool
    async def trip() -> str:
        raise ValueError("tripped")

    @tool(destructive=True)
    async def wipe() -> str:
        wiped.append("wiped")
        return "wiped"

    return [look, trip, wipe]


async def unapproved_calls(folder: Path, seeds: range) -> tuple[int, list[tuple[int, dict[str, Any]]]]:
    """How many definitions were run with all approvals denied, and those that reached the destructive tool."""
    wiped: list[str] = []
    found, count = [], 0
    settings = Settings(db=f"sqlite:///{folder / 'gates.db'}", port=0)
    async with serving(settings, registry=registry_that(wiped)) as server:
        services = server.services
        await services.commands.publish("default", INNER)
        for seed in seeds:
            data = accepted(Plans(random.Random(seed)).made())
            if data is None:
                continue
            wiped.clear()
            count += 1
            run, _ = await services.commands.start("default", data, rights=AGENT)
            await denied_to_its_end(services, run.id)
            if wiped:
                found.append((seed, data))
    return count, found


async def denied_to_its_end(services: Services, run_id: str) -> None:
    """Deny every approval of a run until it has ended."""
    for _ in range(1_000):
        view = await services.asking.wait_for("default", run_id, 60)
        if view.status in TERMINAL:
            return
        for wait in view.waits:
            with contextlib.suppress(NotWaiting):  # the denial of another one has ended it
                await services.commands.approve("default", run_id, wait.path, approved=False)
    raise AssertionError("the run does not end")


async def test_no_accepted_plan_reaches_a_destructive_tool_without_an_approval(tmp_path: Path) -> None:
    count, found = await unapproved_calls(tmp_path, range(60))
    assert found == [] and count > 40


async def test_no_published_graph_of_an_agent_reaches_a_destructive_tool_without_an_approval(
    tmp_path: Path,
) -> None:
    """A graph that may be published may be started by name, so the gate must hold where it is published."""
    wiped: list[str] = []
    settings = Settings(db=f"sqlite:///{tmp_path / 'gates.db'}", port=0)
    ran, refused = 0, 0
    async with serving(settings, registry=registry_that(wiped)) as server:
        commands = server.services.commands
        for one in (INNER, GATED):
            await commands.publish("default", one)
        for seed in range(120):
            data = Graphs(random.Random(seed)).made()
            try:
                await commands.publish("default", data, rights=AGENT)
            except PlanRefused:
                with pytest.raises(PlanRefused):
                    await commands.start("default", data, rights=AGENT)
                refused += 1
                continue
            run, _ = await commands.start("default", "graph", {"go": True}, rights=AGENT)
            await denied_to_its_end(server.services, run.id)
            assert wiped == [], (seed, data)
            ran += 1
    assert ran > 20 and refused > 20


ALLOWED = Rights(frozenset({"look", "trip", "far/l*"}), skips_gate=True)


class Mild(Plans):
    """Random definitions of which many call nothing but what ALLOWED names."""

    def _body(self, depth: int) -> dict[str, Any]:
        if self._dice.random() < 0.2:
            return super()._body(depth)
        mild = ({"tool": "look"}, {"tool": "far/look"}, {"dcc": "far", "tool": "look"}, {"tool": "trip"})
        return dict(self._dice.choice(mild))


class Noting(Registry):
    """Tools of here and of another server, each call of which is noted."""

    def __init__(self, called: list[str]) -> None:
        def noting(name: str) -> Any:
            async def note() -> str:
                called.append(name)
                return name

            return tool(name=name)(note)

        class Others(Far):
            async def call(self, server: str, name: str, args: dict[str, Any], context: Context) -> str:
                called.append(f"{server}/{name}")
                return name

        super().__init__([noting(name) for name in MARKS if name not in FAR], remote=Others([]))


async def test_no_accepted_plan_calls_a_tool_here_or_elsewhere_that_its_key_does_not_name(
    tmp_path: Path,
) -> None:
    called: list[str] = []
    seen, ran, refused = set[str](), 0, 0
    settings = Settings(db=f"sqlite:///{tmp_path / 'tools.db'}", port=0)
    async with serving(settings, registry=Noting(called)) as server:
        commands = server.services.commands
        await commands.publish("default", INNER)
        for seed in range(60):
            data = Mild(random.Random(seed)).made()
            if examined(data).spec is None:
                continue
            try:
                run, _ = await commands.start("default", data, rights=ALLOWED)
            except PlanRefused as error:
                assert all(one.code == "tool_not_allowed" for one in error.problems)
                refused += 1
                continue
            await denied_to_its_end(server.services, run.id)
            assert all(map(ALLOWED.allows, called)), (seed, data)
            seen |= set(called)
            ran += 1
    assert seen == {"look", "trip", "far/look"} and ran > 10 and refused > 10


@pytest.mark.long
async def test_none_of_many_accepted_plans_does(tmp_path: Path) -> None:
    count, found = await unapproved_calls(tmp_path, range(1_000))
    assert found == [] and count > 500
