"""Definitions of agents and of limited keys: what they may call, see and start, over MCP and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from holdfast.config import Mcp, Settings
from holdfast.runtime.rights import Rights
from holdfast.spec.patch import applied
from holdfast.tools.registry import tool
from tests.mcp.conftest import HELLO, Asker, asked
from tests.mcp.test_guard import key_of

pytestmark = pytest.mark.anyio

WIPE = {"name": "wiping", "steps": [{"id": "w", "tool": "wipe"}]}
WIPED: list[str] = []


@tool(destructive=True)
def wipe() -> str:
    WIPED.append("wiped")
    return "wiped"


@pytest.fixture
async def ask(settings: Settings) -> AsyncIterator[Asker]:
    WIPED.clear()
    async with asked(settings) as asker:
        asker.server.services.engine.registry.add(wipe)
        yield asker


async def over_http(
    ask: Asker, method: str, path: str, body: Any = None, key: Mapping[str, str] | None = None
) -> Any:
    url = f"{ask.server.address}{path}"
    async with ask.session.request(method, url, json=body, headers=key or {}) as answer:
        return answer.status, await answer.json()


def limited(tools: list[str] | None = None, workflows: list[str] | None = None) -> Rights:
    return Rights(
        None if tools is None else frozenset(tools),
        None if workflows is None else frozenset(workflows),
        skips_gate=False,
    )


async def test_a_refused_plan_runs_once_it_is_patched_and_approved(ask: Asker) -> None:
    """The whole way: refused with a patch, patched, waiting, not decided by the key that runs, decided by one that may."""
    agent, person = await key_of(ask, "read", "run"), await key_of(ask, "read", "approve")
    said = await ask.tool("workflows_run", {"spec": WIPE}, headers=agent)
    problem = said["structuredContent"]["details"][0]
    assert (said["isError"], said["structuredContent"]["error"]) == (True, "plan_refused")
    assert problem["code"] == "approval_missing" and WIPED == []
    spec = applied(WIPE, problem["patch"])
    run_id = (await ask.tool("workflows_run", {"spec": spec}, headers=agent))["structuredContent"]["run_id"]
    answer = {"run_id": run_id, "path": "approve", "approved": True}
    assert (await ask.tool("workflows_approve", answer, headers=agent))["isError"] is True
    assert WIPED == []
    assert (await ask.tool("workflows_approve", answer, headers=person))["isError"] is False
    view = await ask.server.services.queries.wait_for("default", run_id, 30)
    assert (view.status, WIPED) == ("completed", ["wiped"])


async def test_validate_and_plan_report_what_a_start_would_refuse(ask: Asker) -> None:
    agent = await key_of(ask, "read", "run")
    found = (await ask.tool("workflows_validate", {"spec": WIPE}, headers=agent))["structuredContent"]
    assert (found["valid"], found["left"]) == (False, [])
    assert found["repaired"] == applied(WIPE, found["patch"])
    after = (await ask.tool("workflows_validate", {"spec": found["repaired"]}, headers=agent))[
        "structuredContent"
    ]
    assert after["valid"] is True
    plan = (await ask.tool("workflows_plan", {"spec": WIPE}, headers=agent))["structuredContent"]
    assert plan["destructive"] is True and plan["problems"][0]["code"] == "approval_missing"


@pytest.mark.parametrize(("written", "meant", "steps"), [("ecko", "echo", 1), ("wip", "wipe", 2)])
async def test_a_misspelt_tool_is_renamed_before_it_is_asked_whether_it_needs_an_approval(
    ask: Asker, written: str, meant: str, steps: int
) -> None:
    spec = {"name": "n", "steps": [{"id": "a", "tool": written}]}
    found = (await ask.tool("workflows_validate", {"spec": spec}))["structuredContent"]
    assert not found["valid"] and f"{written}, which is not known here" in found["problems"][0]["message"]
    assert found["repaired"] == applied(spec, found["patch"])
    assert (found["repaired"]["steps"][-1]["tool"], len(found["repaired"]["steps"])) == (meant, steps)
    again = (await ask.tool("workflows_validate", {"spec": found["repaired"]}))["structuredContent"]
    assert again["valid"] and again["notes"] == []


@pytest.mark.parametrize("body", [{"spec": WIPE}, {"spec": "name: w\nsteps:\n- {id: w, tool: wipe}\n"}])
async def test_a_start_over_http_is_refused_alike(ask: Asker, body: dict[str, Any]) -> None:
    agent = await key_of(ask, "read", "run")
    status, said = await over_http(ask, "POST", "/api/v1/runs", body, agent)
    assert (status, said["error"], said["details"][0]["code"]) == (403, "plan_refused", "approval_missing")
    assert said["details"][0]["patch"][0]["path"] == "/steps/0"


async def test_a_limited_key_can_publish_nothing_that_it_could_not_run(ask: Asker) -> None:
    agent = await key_of(ask, "read", "run", rights=limited(tools=["echo"], workflows=["own_*"]))
    for name, tool_name, error in (("own_a", "sleep", "plan_refused"), ("hello", "echo", "forbidden")):
        spec = {"name": name, "steps": [{"id": "a", "tool": tool_name}]}
        status, said = await over_http(ask, "POST", "/api/v1/workflows", spec, agent)
        assert (status, said["error"]) == (403, error)
    flow = await over_http(ask, "POST", "/flows", {"Name": "hello"}, agent)
    assert flow[0] == 403
    spec = {"name": "own_a", "steps": [{"id": "a", "tool": "echo"}]}
    assert (await over_http(ask, "POST", "/api/v1/workflows", spec, agent))[0] == 200


@pytest.mark.parametrize("key", ["local", "admin"])
async def test_an_administrator_needs_the_gate_over_mcp_only(ask: Asker, key: str) -> None:
    headers = {} if key == "local" else await key_of(ask, "admin")
    said = await ask.tool("workflows_run", {"spec": WIPE}, headers=headers)
    assert said["structuredContent"]["error"] == "plan_refused"
    status, run = await over_http(ask, "POST", "/api/v1/runs", {"spec": WIPE, "wait_secs": 30}, headers)
    assert (status, run["status"], WIPED) == (200, "completed", ["wiped"])


async def test_a_key_that_may_skip_the_gate_needs_none(ask: Asker) -> None:
    agent = await key_of(ask, "read", "run", rights=Rights(skips_gate=True))
    assert (await ask.tool("workflows_run", {"spec": WIPE}, headers=agent))["isError"] is False


async def test_the_settings_let_callers_without_a_key_skip_the_gate(settings: Settings) -> None:
    own = msgspec.structs.replace(settings, mcp=Mcp(wait_secs=60, skip_gate=True))
    async with asked(own) as ask:
        ask.server.services.engine.registry.add(wipe)
        assert (await ask.tool("workflows_run", {"spec": WIPE}))["isError"] is False
        agent = await key_of(ask, "read", "run")
        said = await ask.tool("workflows_run", {"spec": WIPE}, headers=agent)
        assert said["structuredContent"]["error"] == "plan_refused"


async def test_tools_that_a_key_does_not_name_are_refused(ask: Asker) -> None:
    agent = await key_of(ask, "read", "run", rights=limited(tools=["echo"]))
    spec = {"name": "n", "steps": [{"id": "a", "tool": "sleep", "args": {"seconds": 0}}]}
    said = await ask.tool("workflows_run", {"spec": spec}, headers=agent)
    assert said["structuredContent"]["details"][0]["code"] == "tool_not_allowed"
    inputs = {"spec": HELLO, "inputs": {"name": "Ada"}}
    assert (await ask.tool("workflows_run", inputs, headers=agent))["isError"] is False


async def test_a_nested_workflow_is_no_way_around(ask: Asker) -> None:
    await ask.server.services.commands.publish("default", WIPE)
    spec = {"name": "n", "steps": [{"id": "c", "workflow": "wiping"}]}
    agent = await key_of(ask, "read", "run")
    said = (await ask.tool("workflows_run", {"spec": spec}, headers=agent))["structuredContent"]
    assert said["details"][0]["code"] == "approval_missing"
    narrow = await key_of(ask, "read", "run", rights=limited(workflows=["hello"]))
    said = (await ask.tool("workflows_run", {"spec": spec}, headers=narrow))["structuredContent"]
    assert said["details"][0]["code"] == "workflow_not_allowed"


async def test_a_part_of_a_run_cannot_be_repeated_without_its_approvals(ask: Asker) -> None:
    services = ask.server.services
    spec = {"name": "n", "steps": [{"id": "ok", "kind": "approve"}, *WIPE["steps"]]}
    agent = await key_of(ask, "read", "run")
    row, _ = await services.commands.start("default", spec)
    await services.asking.wait_for("default", row.id, 30)
    await services.commands.approve("default", row.id, "ok", approved=True)
    await services.queries.wait_for("default", row.id, 30)
    for body in ({"from_step": "w"}, {"failed": True}, {"paths": ["w"]}):
        status, said = await over_http(ask, "POST", f"/api/v1/runs/{row.id}/rerun", body, agent)
        assert (status, said["error"]) == (403, "forbidden")
    said = await ask.tool("workflows_rerun", {"run_id": row.id, "from_step": "w"}, headers=agent)
    assert said["structuredContent"]["error"] == "forbidden"
    again = await ask.tool("workflows_rerun", {"run_id": row.id}, headers=agent)
    assert again["structuredContent"]["waits"][0]["path"] == "ok"
    assert WIPED == ["wiped"]


async def test_a_run_of_a_foreign_definition_cannot_be_repeated_by_a_key_that_may_not_give_it(
    ask: Asker,
) -> None:
    services = ask.server.services
    row, _ = await services.commands.start("default", WIPE)
    await services.queries.wait_for("default", row.id, 30)
    agent = await key_of(ask, "read", "run")
    status, said = await over_http(ask, "POST", f"/api/v1/runs/{row.id}/rerun", {}, agent)
    assert (status, said["error"]) == (403, "plan_refused")
    narrow = await key_of(ask, "read", "run", rights=Rights(workflows=frozenset({"hello"})))
    published, _ = await services.commands.start("default", "held")
    ask.holds.free.set()
    await services.queries.wait_for("default", published.id, 30)
    status, _ = await over_http(ask, "POST", f"/api/v1/runs/{published.id}/rerun", {}, narrow)
    assert status == 404


async def test_a_key_sees_and_starts_only_its_workflows_over_both_doors(ask: Asker) -> None:
    agent = await key_of(ask, "read", "run", rights=Rights(workflows=frozenset({"hel*"})))
    gate = (await ask.server.services.queries.catalog.workflow("default", "gate")).workflow.id
    _, found = await over_http(ask, "GET", "/api/v1/workflows", None, agent)
    assert [one["name"] for one in found["items"]] == ["held", "hello"]
    for path in ("gate", "gate/versions", "gate/versions/1", "gate/diff?from=1&to=1", gate):
        status, _ = await over_http(ask, "GET", f"/api/v1/workflows/{path}", None, agent)
        assert status == 404, path
    assert (await over_http(ask, "GET", "/api/v1/workflows/hello", None, agent))[0] == 200
    tools = [one["name"] for one in (await ask("tools/list", headers=agent)).result["tools"]]
    assert "hello" in tools and "gate" not in tools
    starts: list[tuple[str, dict[str, Any]]] = [
        ("/api/v1/runs", {"workflow": "gate"}), ("/api/v1/plan", {"workflow": "gate"}),
        ("/tasks", {"FlowID": gate}), ("/api/v1/workflows/gate/rollback", {"number": 1}),
    ]  # fmt: skip
    for path, body in starts:
        assert (await over_http(ask, "POST", path, body, agent))[0] == 404, path
    assert (await ask("tools/call", {"name": "gate", "arguments": {}}, headers=agent)).code == -32602
    for arguments in ({"workflow": "gate"}, {"workflow": gate}):
        answer = await ask("tools/call", {"name": "workflows_run", "arguments": arguments}, headers=agent)
        assert answer.code == -32602 and "did you mean gate" not in answer.body["error"]["message"]


async def test_a_schedule_of_a_hidden_workflow_is_not_there(ask: Asker) -> None:
    text = "id: nightly\nworkflow: gate\ntrigger: {kind: cron, expression: '0 0 3 * * *'}\n"
    await ask.server.services.schedule_commands.put_text("default", "nightly", text)
    agent = await key_of(ask, "read", "run", rights=Rights(workflows=frozenset({"hello"})))
    assert (await over_http(ask, "POST", "/api/v1/schedules/nightly/fire", {}, agent))[0] == 404
    assert (await over_http(ask, "GET", "/api/v1/schedules", None, agent))[1]["items"] == []
    said = await ask.tool("schedules_fire", {"schedule_id": "nightly"}, headers=agent)
    assert said["structuredContent"]["error"] == "not_found"
    assert (await ask.tool("schedules_list", headers=agent))["structuredContent"]["schedules"] == []


async def test_keys_are_made_and_shown_with_their_limits_over_http(ask: Asker) -> None:
    body = {"name": "a", "scopes": ["run"], "tools": ["mail/*"], "workflows": [], "skip_gate": True}
    status, made = await over_http(ask, "POST", "/api/v1/keys", body)
    assert (status, made["tools"], made["workflows"], made["skip_gate"]) == (201, ["mail/*"], [], True)
    admin = await key_of(ask, "admin")
    _, found = await over_http(ask, "GET", "/api/v1/keys", None, admin)
    # By name: keys of the same millisecond are listed by their random ids.
    listed = {one["name"]: (one["tools"], one["workflows"], one["skip_gate"]) for one in found["items"]}
    assert listed.pop("a") == (["mail/*"], [], True)
    assert list(listed.values()) == [(None, None, True)]
    own = {"authorization": f"Bearer {made['key']}"}
    assert (await over_http(ask, "POST", "/api/v1/runs", {"workflow": "hello"}, own))[0] == 404


@pytest.mark.parametrize(
    ("more", "status"),
    [
        ({"tools": [""]}, 400), ({"tools": "echo"}, 400), ({"tools": ["x"] * 1_001}, 400), ({"tools": ["a\nb"]}, 422),
        ({"tools": [f"t{n}" for n in range(101)]}, 422), ({"workflows": [f"t{n}" for n in range(101)]}, 422),
        ({"scopes": ["admin"], "tools": ["echo"]}, 422), ({"scopes": ["admin"], "workflows": ["a"]}, 422),
        ({"skip_gate": "yes"}, 400),
    ],
)  # fmt: skip
async def test_limits_that_make_no_sense_are_refused(ask: Asker, more: dict[str, Any], status: int) -> None:
    found, _ = await over_http(ask, "POST", "/api/v1/keys", {"name": "a", "scopes": ["run"], **more})
    assert found == status
