"""A key that is limited to certain workflows finds no run of another: on every route of the table, and with every tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from holdfast.config import Settings
from holdfast.http.serve import ROUTES
from holdfast.http.table import Route
from holdfast.mcp.tools import TOOLS
from holdfast.runtime.rights import Rights
from holdfast.spec.patch import applied
from tests.http.sse import Reader
from tests.mcp.conftest import TASKS, Asker, asked
from tests.mcp.test_guard import key_of

pytestmark = pytest.mark.anyio

OWN = Rights(workflows=frozenset({"hello", "own_*"}))
MARKS = ('"gate"', "Go on?")  # what an answer about the hidden workflow would have
CALLING = {"name": "calling", "steps": [{"id": "c", "tool": "later", "pending_ttl_secs": 3600}]}


class Scene(msgspec.Struct):
    """A server with a run of `gate`, which is hidden, a run of `calling`, hidden too, and one of `hello`, which is seen."""

    ask: Asker
    hidden: str
    pending: str
    seen: str
    key: dict[str, str]

    async def http(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        url = f"{self.ask.server.address}{path}"
        sent = {} if body is None else {"json": body}
        async with self.ask.session.request(method, url, headers=self.key, **sent) as answer:
            return answer.status, await answer.text()

    async def rows(self) -> list[int]:
        queries = self.ask.server.services.queries
        return [(await queries.run("default", run_id)).seq for run_id in (self.hidden, self.pending)]


@pytest.fixture
async def scene(settings: Settings) -> AsyncIterator[Scene]:
    async with asked(settings) as ask:
        services = ask.server.services

        def later() -> dict[str, Any]:
            return {"pending": True, "task_id": "T1"}

        services.engine.registry.add(later)
        hidden, _ = await services.commands.start("default", "gate")
        await services.asking.wait_for("default", hidden.id, 60)
        pending, _ = await services.commands.start("default", CALLING)
        await services.queries.wait_for("default", pending.id, 60, or_pause=True)
        seen, _ = await services.commands.start("default", "hello", {"name": "Ada"})
        await services.queries.wait_for("default", seen.id, 60)
        key = await key_of(ask, "read", "run", "approve", "resume", "worker", rights=OWN)
        yield Scene(ask, hidden.id, pending.id, seen.id, key)


def is_asked(route: Route) -> bool:
    is_stream = route.answer_media == "text/event-stream"
    return route.scope in ("read", "run", "approve", "resume") and not is_stream and route.path != "/mcp"


def address(route: Route, scene: Scene, version: str) -> str:
    said = {
        "id": scene.hidden,
        "path": "ok",
        "name": "gate",
        "number": "1",
        "hash": version,
        "sha256": "0" * 64,
    }
    path = route.path
    for name, value in said.items():
        path = path.replace(f"{{{name}}}", value)
    if path.endswith("/get"):
        return f"{path}?id={scene.hidden}"
    if path.endswith("/runs") and "task" in path:
        return f"{path}?task_id={scene.hidden}"
    return f"{path}?from=1&to=1" if path.endswith("/diff") else path


BODIES: dict[str, Any] = {
    "/api/v1/runs/{id}/signals": {"key": "k", "value": 1},
    "/api/v1/runs/{id}/approvals/{path}": {"approved": True},
    "/api/v1/workflows/{name}/rollback": {"number": 1},
    "/api/v1/runs": {"workflow": "gate"},
    "/api/v1/plan": {"workflow": "gate"},
    "/api/v1/workflows": {"name": "gate", "steps": [{"id": "a", "tool": "echo"}]},
    "/flows": {"Name": "gate"},
    "/flows/version": {"FlowID": "gate", "Definition": {"steps": [{"id": "a", "tool": "echo"}]}},
    "/tasks": {"FlowID": "gate"},
}


def body_of(route: Route, scene: Scene) -> Any:
    path = route.path.removeprefix("/api") if not route.path.startswith("/api/v1") else route.path
    if path == "/api/v1/runs/bulk":
        return {"action": "cancel", "filter": {"ids": [scene.hidden]}}
    if path in ("/tasks/cancel", "/tasks/signal"):
        return {"task_id": scene.hidden, "key": "k", "value": 1}
    return BODIES.get(path, {})


async def test_no_route_tells_of_a_hidden_run_or_acts_on_it(scene: Scene) -> None:
    row = await scene.ask.server.services.queries.row("default", scene.hidden)
    before = await scene.rows()
    for route in filter(is_asked, ROUTES):
        body = None if route.method == "GET" else body_of(route, scene)
        status, text = await scene.http(route.method, address(route, scene, row.version), body)
        where = f"{route.method} {route.path}: {status} {text[:300]}"
        if status >= 400:
            assert "approve" not in text or "waiting" not in text, where
            continue
        if route.path == "/api/v1/runs/bulk":
            assert '"matched":0' in text and '"not_found"' in text, where
            continue
        assert not any(mark in text for mark in (*MARKS, '"calling"')), where
        if route.method == "GET":
            assert scene.hidden not in text and scene.pending not in text, where
    assert await scene.rows() == before


async def test_every_run_route_answers_as_for_an_unknown_run(scene: Scene) -> None:
    unknown = "0190a0a0-0000-7000-8000-000000000000"
    for route in ROUTES:
        if not route.path.startswith("/api/v1/runs/{id}") or route.scope == "admin":
            continue
        body = None if route.method == "GET" else body_of(route, scene)
        path = address(route, scene, "")
        status, text = await scene.http(route.method, path, body)
        other = await scene.http(route.method, path.replace(scene.hidden, unknown), body)
        assert (status, text.replace(scene.hidden, unknown)) == other, route.path
        assert status == 404, route.path


async def test_lists_and_counts_have_the_seen_runs_alone(scene: Scene) -> None:
    _, text = await scene.http("GET", "/api/v1/runs")
    assert [one["run_id"] for one in msgspec.json.decode(text)["items"]] == [scene.seen]
    counts = msgspec.json.decode((await scene.http("GET", "/api/v1/runs/counts?by=workflow"))[1])
    assert (counts["total"], [one["workflow"] for one in counts["items"]]) == (1, ["hello"])
    assert msgspec.json.decode((await scene.http("GET", "/api/v1/runs/pulse"))[1])["total"]["started"] == 1
    waits = msgspec.json.decode((await scene.http("GET", "/api/v1/waits"))[1])
    assert waits["items"] == [] and set(waits["counts"].values()) == {0}
    page = msgspec.json.decode((await scene.http("GET", "/api/tasks"))[1])
    assert (page["total"], [one["flow_name"] for one in page["data"]]) == (1, ["hello"])
    part = scene.hidden[-6:]
    assert msgspec.json.decode((await scene.http("GET", f"/api/v1/runs?id={part}"))[1])["items"] == []
    assert (await scene.http("GET", "/metrics"))[0] == 403


async def test_the_events_of_all_runs_are_those_of_seen_ones(scene: Scene) -> None:
    url = f"{scene.ask.server.address}/api/v1/events?from=0"
    async with scene.ask.session.get(url, headers=scene.key) as answer:
        async for heard in Reader(answer, "").events():
            assert heard.data["run_id"] == scene.seen
            if heard.kind == "workflow_terminal":
                break
    async with scene.ask.session.get(
        f"{scene.ask.server.address}/api/v1/runs/{scene.hidden}/events", headers=scene.key
    ) as answer:
        assert answer.status == 404


async def test_no_tool_tells_of_a_hidden_run_or_acts_on_it(scene: Scene) -> None:
    before = await scene.rows()
    given: dict[str, Any] = {
        "workflows_run": {"workflow": "gate"}, "workflows_plan": {"workflow": "gate"},
        "workflows_validate": {"spec": {"name": "own_a", "steps": [{"id": "a", "tool": "echo"}]}},
        "workflows_lookup": {}, "runs_list": {}, "schedules_list": {}, "schedules_fire": {"schedule_id": "x"},
        "workflows_publish": {"spec": {"name": "gate", "steps": [{"id": "a", "tool": "echo"}]}}, "workflows_help": {},
        "tools_list": {}, "schedules_put": {"schedule_id": "x", "schedule": {"workflow": "gate"}},
        **{f"schedules_{act}": {"schedule_id": "x"} for act in ("why", "pause", "resume", "delete")},
        "workflows_approve": {"run_id": scene.hidden, "path": "ok", "approved": True},
        "workflows_signal": {"run_id": scene.hidden, "key": "k"},
        "workflows_resume": {"task_id": "T1", "result": {"success": True}},
    }  # fmt: skip
    for tool in TOOLS:
        arguments = given.get(tool.name, {"run_id": scene.hidden})
        reply = await scene.ask("tools/call", {"name": tool.name, "arguments": arguments}, headers=scene.key)
        text = msgspec.json.encode(reply.body).decode()
        is_refused = "error" in reply.body or reply.body["result"]["isError"]
        is_refused = is_refused or tool.name == "workflows_cancel" and '"cancelled":false' in text
        assert is_refused or not any(mark in text for mark in (*MARKS, scene.hidden)), (tool.name, text)
        assert "Go on?" not in text, (tool.name, text)
    assert await scene.rows() == before


async def test_tasks_and_resources_of_hidden_runs_are_not_there(scene: Scene) -> None:
    capabilities: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {}}
    for method in ("get", "update", "cancel"):
        params = {"taskId": scene.hidden, "inputResponses": {"ok": {"action": "accept"}}}
        reply = await scene.ask(f"tasks/{method}", params, capabilities=capabilities, headers=scene.key)
        assert reply.code == -32602, method
    for uri in (f"run://{scene.hidden}", f"run://{scene.hidden}/output"):
        assert (await scene.ask("resources/read", {"uri": uri}, headers=scene.key)).code == -32602
    read = await scene.ask("resources/read", {"uri": f"run://{scene.seen}"}, headers=scene.key)
    assert "hello" in read.result["contents"][0]["text"]
    reference = {
        "ref": {"type": "ref/resource", "uri": "run://{id}"},
        "argument": {"name": "id", "value": ""},
    }
    found = await scene.ask("completion/complete", reference, headers=scene.key)
    assert found.result["completion"]["values"] == [scene.seen]


async def test_a_callback_of_a_hidden_run_is_unknown(scene: Scene) -> None:
    for body in ({"task_id": "T1", "result": {"success": True}}, {"task_id": "T2"}):
        for run in ({}, {"run_id": scene.pending}):
            status, text = await scene.http("POST", "/workflows/resume", {**body, **run})
            assert (status, msgspec.json.decode(text)) == (200, {"resumed": False, "reason": "unknown_task"})


async def test_a_definition_needs_a_name_that_the_key_sees(scene: Scene) -> None:
    spec = {"name": "gate", "steps": [{"id": "a", "tool": "echo", "args": {"value": 1}}]}
    status, text = await scene.http("POST", "/api/v1/runs", {"spec": spec})
    problem = msgspec.json.decode(text)["details"][0]
    assert (status, problem["code"], problem["pointer"]) == (403, "workflow_not_allowed", "/name")
    fixed = applied(spec, problem["patch"])
    status, text = await scene.http("POST", "/api/v1/runs", {"spec": fixed, "wait_secs": 30})
    assert (status, msgspec.json.decode(text)["workflow"]) == (200, "own_gate")


async def test_a_file_of_a_hidden_run_is_not_given_because_a_seen_run_names_it(scene: Scene) -> None:
    """A caller that knows the hash could give it to a run of its own, as an input or in its definition."""
    services = scene.ask.server.services
    making = {"name": "making", "steps": [{"id": "f", "tool": "text_file", "args": {"text": "hidden words"}}]}
    made, _ = await services.commands.start("default", making)
    output = (await services.queries.wait_for("default", made.id, 60)).output
    uri = output["f"]["file_refs"][0]["uri"]
    spec = {
        "name": "own_trick",
        "inputs": {"uri": {"type": "string"}},
        "steps": [{"id": "e", "tool": "echo", "args": {"value": "{{inputs.uri}}"}}],
        "output": {"file_refs": [{"uri": "{{steps.e.output}}", "mime_type": "text/plain"}]},
    }
    tried = await scene.ask.tool("workflows_run", {"spec": spec, "inputs": {"uri": uri}}, headers=scene.key)
    assert [block["type"] for block in tried["content"]] == ["resource_link"]
    read = await scene.ask("resources/read", {"uri": uri}, headers=scene.key)
    assert read.code == -32602
    assert (await scene.http("GET", f"/api/v1/artefacts/{uri.rpartition('/')[2]}"))[0] == 404
    own = {"name": "own_file", "steps": [{"id": "f", "tool": "text_file", "args": {"text": "own words"}}]}
    given = await scene.ask.tool("workflows_run", {"spec": own}, headers=scene.key)
    assert "own words" in str(given["content"])
