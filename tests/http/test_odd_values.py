"""What a commit accepted can be read back at every door: deep results, and outputs that an earlier release let grow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from holdfast import tool
from holdfast.config import Settings
from holdfast.deliveries import message
from holdfast.engine.draft import Draft
from holdfast.http.serve import serving
from holdfast.plan import composed
from holdfast.tools.registry import Registry
from holdfast.values import JSON_DEPTH_MAX, decode
from tests.http.conftest import Asker, Holds

pytestmark = pytest.mark.anyio


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.fixture
async def ask(settings: Settings) -> AsyncIterator[Asker]:
    @tool
    async def deep(levels: int, width: int = 0) -> Any:
        return [nested(levels - 1), "x" * width]

    @tool
    async def echo(value: Any) -> Any:
        return value

    async with (
        serving(settings, registry=Registry([deep, echo])) as server,
        aiohttp.ClientSession() as session,
    ):
        yield Asker(server, session, Holds())


DEEP = {"id": "s", "tool": "deep", "args": {"levels": JSON_DEPTH_MAX}}
WIDE = {**DEEP, "args": {"levels": JSON_DEPTH_MAX, "width": 50_000}}


def loop(*steps: dict[str, Any], name: str = "loop") -> dict[str, Any]:
    return {"id": name, "kind": "foreach", "items": "$.inputs.xs", "steps": list(steps)}


SCOPES: dict[str, list[dict[str, Any]]] = {
    "a loop": [loop(DEEP)],
    "a loop with large outputs": [loop(WIDE)],
    "a parallel": [{"id": "p", "kind": "parallel", "steps": [DEEP, {**DEEP, "id": "t"}]}],
    "loops in loops": [loop(loop(loop(DEEP, name="c"), name="b"), name="a")],
    "a step": [DEEP],
    "a branch": [{"id": "b", "kind": "branch", "on": "$.inputs.xs", "then": [DEEP]}],
}


@pytest.mark.parametrize("steps", SCOPES.values(), ids=SCOPES)
async def test_a_result_of_full_depth_is_read_back_from_every_place(
    ask: Asker, steps: list[dict[str, Any]]
) -> None:
    run = await ask.done(spec={"name": "n", "steps": steps}, inputs={"xs": [1, 2]})
    assert run["status"] == "completed", run["error"]
    reads = [
        f"/api/v1/runs/{run['run_id']}{rest}"
        for rest in ("", "/steps", "/steps?every=true", "/journal", "/explain")
    ]
    for path in [
        *reads,
        "/api/v1/runs",
        "/tasks",
        "/api/tasks",
        f"/tasks/get?id={run['run_id']}",
        f"/tasks/runs?task_id={run['run_id']}",
    ]:
        answer = await ask("GET", path)
        assert answer.status == 200, (path, answer.body)
    shown = await ask("GET", f"/api/v1/runs/{run['run_id']}/steps")
    assert [step["status"] for step in shown.body["items"]] == ["completed"] * len(shown.body["items"])
    view = await ask.serving.services.queries.run("default", run["run_id"])
    assert decode(message.text_of(view))["output"] == run["output"]


async def test_the_steps_after_a_loop_can_be_given_what_it_collected(ask: Asker) -> None:
    steps = [loop(DEEP), {"id": "n", "tool": "echo", "args": {"value": "{{steps.loop.output.iterations}}"}}]
    run = await ask.done(spec={"name": "n", "steps": steps}, inputs={"xs": [1]})
    # What is handed over is whole. What a tool returns may be 64 levels deep, as ever.
    assert run["status"] == "failed" and "deeper than 64" in run["error"]["message"]
    assert run["error"]["path"] == "n" and run["error"]["attempt"] == 1


async def test_what_is_given_may_be_64_levels_deep_and_no_more(ask: Asker) -> None:
    run = await ask.done(spec={"name": "n", "steps": [{**DEEP, "args": {"levels": JSON_DEPTH_MAX + 1}}]})
    assert run["status"] == "failed" and "deeper than 64" in run["error"]["message"]


async def test_an_output_that_an_earlier_release_let_grow_is_told_as_too_large(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"name": "n", "steps": [{**DEEP, "args": {"levels": 1}}], "output": ["{{inputs.a}}"] * 100}
    run = await ask.done(spec=spec, inputs={"a": "x" * 5_000})
    assert len(run["output"]) == 100
    monkeypatch.setattr(composed, "LIMIT", 100_000)
    answer = await ask("GET", f"/api/v1/runs/{run['run_id']}")
    assert answer.status == 200 and answer.body["status"] == "completed" and answer.body["output"] is None
    assert answer.body["error"]["kind"] == "output_too_large"
    assert (await ask("GET", "/tasks")).status == 200


async def test_a_callback_over_the_limit_leaves_out_the_inputs_and_says_so(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = {"name": "n", "steps": [{**DEEP, "args": {"levels": 1}}], "output": "{{inputs.a}}"}
    run = await ask.done(spec=spec, inputs={"a": "x" * 100_000})
    view = await ask.serving.services.queries.run("default", run["run_id"])
    monkeypatch.setattr(composed, "LIMIT", 200_000)
    told = decode(message.text_of(view))
    assert told["inputs"] is None and told["output"] == "x" * 100_000 and told["omitted"] == ["inputs"]
    monkeypatch.setattr(composed, "LIMIT", 90_000)
    told = decode(message.text_of(view))
    assert told["output"] is None and told["omitted"] == ["inputs", "output"]
    assert told["status"] == "completed"


async def test_a_scope_whose_output_is_too_large_to_be_shown_does_not_hide_the_other_steps(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await ask.done(
        spec={"name": "n", "steps": [loop(WIDE), {**DEEP, "id": "after"}]}, inputs={"xs": [1, 2]}
    )
    whole = Draft.gathered
    monkeypatch.setattr(Draft, "gathered", lambda self, path, bytes_max=None: whole(self, path, 1_000))
    shown = (await ask("GET", f"/api/v1/runs/{run['run_id']}/steps")).body["items"]
    assert [(step["path"], step["output"] is None) for step in shown] == [("loop", True), ("after", False)]
    assert shown[0]["error"]["kind"] == "output_too_large"
