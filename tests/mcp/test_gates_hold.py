"""No plan that may run without more approvals reaches a destructive tool when every approval is denied: tried by running it."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from holdfast.api.services import Services
from holdfast.config import Settings
from holdfast.errors import NotWaiting
from holdfast.http.serve import serving
from holdfast.plan.compile import Resolved
from holdfast.runtime.rights import Rights
from holdfast.runtime.untrusted import refusals
from holdfast.spec.notation import examined
from holdfast.spec.patch import applied
from holdfast.tools.annotations import Annotations
from holdfast.tools.registry import Registry, tool
from holdfast.values import TERMINAL

pytestmark = pytest.mark.anyio

AGENT = Rights(skips_gate=False)
MARKS = {"look": Annotations(read_only=True), "trip": Annotations(), "wipe": Annotations(destructive=True)}
INNER: dict[str, Any] = {"name": "inner", "steps": [{"id": "w", "tool": "wipe"}]}
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
            step["compensate"] = {"tool": self._dice.choice(("look", "wipe"))}
        return step

    def _body(self, depth: int) -> dict[str, Any]:
        simple = ("look", "trip", "wipe", "approve", "approve", "poll", "nested")
        around = ("foreach", "parallel", "branch")
        match self._dice.choice(simple if depth >= DEPTH_MAX else simple + around):
            case "approve":
                return {"kind": "approve", "prompt": "?"}
            case "poll":
                return {"kind": "poll", "tool": "wipe", "until": "$"}
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


async def unapproved_calls(folder: Path, seeds: range) -> tuple[int, list[tuple[int, dict[str, Any]]]]:
    """How many definitions were run with all approvals denied, and those that reached the destructive tool."""
    wiped: list[str] = []

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

    found, count = [], 0
    settings = Settings(db=f"sqlite:///{folder / 'gates.db'}", port=0)
    async with serving(settings, registry=Registry([look, trip, wipe])) as server:
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


@pytest.mark.long
async def test_none_of_many_accepted_plans_does(tmp_path: Path) -> None:
    count, found = await unapproved_calls(tmp_path, range(1_000))
    assert found == [] and count > 500
