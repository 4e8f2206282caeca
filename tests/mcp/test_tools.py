"""The table of tools, and what each of them answers."""

from __future__ import annotations

from typing import Any, get_args

import jsonschema_rs
import msgspec
import pytest
from mcp import Client

from holdfast.api.types import Scope
from holdfast.mcp.tools import ALIASES, BY_NAME, TOOLS, tool_of
from tests.mcp.conftest import Asker, client_of, text_of

pytestmark = pytest.mark.anyio
ERAS = ("2025-11-25", "2026-07-28")
ADD = {
    "name": "x",
    "steps": [{"id": "a", "tool": "echo", "args": {"value": 7}}],
    "output": {"a": "{{steps.a.output}}"},
}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_every_tool_has_a_scope_annotations_and_a_schema(tool: Any) -> None:
    assert tool.scope in get_args(Scope)
    said = tool.data()
    assert set(said["annotations"]) == {
        "title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint",
    }  # fmt: skip
    assert said["description"] and said["inputSchema"]["type"] == "object"
    jsonschema_rs.validator_for(said["inputSchema"])
    assert tool.hints.read_only == (tool.scope == "read")


def test_the_tools_have_the_agreed_names() -> None:
    assert set(BY_NAME) >= {
        "workflows_run", "workflows_get_status", "workflows_cancel", "workflows_lookup", "workflows_resume",
        "workflows_rerun", "workflows_approve", "workflows_signal", "workflows_validate", "workflows_explain", "workflows_plan",
        "runs_list", "schedules_list", "schedules_fire",
    }  # fmt: skip


def test_dotted_names_mean_the_same_tools() -> None:
    assert ALIASES["workflows.run"] == "workflows_run"
    assert tool_of("workflows.get_status") is BY_NAME["workflows_get_status"]


@pytest.mark.parametrize("era", ERAS)
async def test_clients_of_both_eras_run_a_workflow_that_they_bring(ask: Asker, era: str) -> None:
    async with client_of(ask, era) as client:
        assert client.protocol_version == era
        result = await client.call_tool("workflows_run", {"spec": ADD})
        assert (result.structured_content, result.is_error) == ({"a": 7}, False)
        yaml = "name: y\nsteps:\n  - {id: a, tool: echo, args: {value: 8}}\n"
        assert (await client.call_tool("workflows.run", {"spec": yaml})).structured_content == {"a": 8}


@pytest.mark.parametrize("era", ERAS)
async def test_a_published_workflow_is_a_tool_with_its_schema(ask: Asker, era: str) -> None:
    async with client_of(ask, era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["hello"].input_schema["required"] == ["name"]
        assert tools["hello"].description == "Greets someone."
        result = await client.call_tool("hello", {"name": "Ada"})
        assert text_of(result) == "Hello, Ada!"
        assert result.structured_content == {"output": "Hello, Ada!"}


async def test_the_order_of_tools_is_fixed_and_pages_have_a_hundred(ask: Asker) -> None:
    publish = ask.server.services.commands.publish
    for nth in range(105):
        await publish("default", {**ADD, "name": f"w{nth:03}"})
    first = (await ask("tools/list")).result
    again = (await ask("tools/list")).result
    assert first["tools"] == again["tools"]
    assert len(first["tools"]) == 100
    assert first["ttlMs"] > 0
    rest = (await ask("tools/list", {"cursor": first["nextCursor"]})).result
    assert "nextCursor" not in rest
    names = [one["name"] for one in (*first["tools"], *rest["tools"])]
    assert len(names) == len(set(names)) == len(TOOLS) + 108


@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list"])
async def test_a_cursor_of_a_list_that_was_made_up_is_invalid_params(ask: Asker, method: str) -> None:
    assert (await ask(method, {"cursor": "w050"})).code == -32602
    assert (await ask(method, {"cursor": ""})).code == -32602


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "missing required field: spec"),
        ({"spec": 5}, "spec must be a YAML string or JSON object, got number"),
        ({"spec": None}, "missing required field: spec"),
        ({"spec": [1]}, "spec must be a YAML string or JSON object, got array"),
    ],
)
async def test_a_spec_that_is_missing_or_no_spec_gets_the_known_text(
    ask: Asker, spec: Any, message: str
) -> None:
    result = await ask.tool("workflows_run", spec)
    assert result["isError"] is True
    assert result["structuredContent"]["message"] == message


async def test_an_invalid_spec_gets_every_problem_with_its_pointer(ask: Asker) -> None:
    spec = "name: x\nsteps:\n  - {id: a, tool: 'bad/tool'}\n  - {id: a, tool: echo}\n"
    said = (await ask.tool("workflows_run", {"spec": spec}))["structuredContent"]
    assert said["message"].startswith("workflow start failed: validation failed: ")
    assert {one["code"] for one in said["details"]} >= {"duplicate_id"}
    assert all(one["line"] for one in said["details"])


async def test_inputs_that_do_not_fit_start_nothing(ask: Asker) -> None:
    result = await ask.tool("hello", {"name": 5, "other": 1})
    said = result["structuredContent"]
    assert result["isError"] is True and said["error"] == "invalid_inputs"
    assert {one["pointer"] for one in said["details"]} == {"/name", "/other"}
    assert (await ask.tool("runs_list"))["structuredContent"]["runs"] == []


async def test_an_unknown_tool_is_invalid_params_with_the_nearest_name(ask: Asker) -> None:
    answer = await ask("tools/call", {"name": "helo", "arguments": {}})
    assert answer.code == -32602
    assert "hello" in answer.body["error"]["message"]


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("workflows_run", {"workflow": "helo"}),
        ("workflows_run", {"name": "helo"}),
        ("workflows.run", {"skill": "greetings", "name": "hello"}),
        ("workflows_plan", {"workflow": "helo"}),
    ],
)
async def test_an_unknown_workflow_is_invalid_params_with_the_nearest_name(
    ask: Asker, tool: str, arguments: dict[str, str]
) -> None:
    await ask.server.services.commands.publish("default", {**ADD, "name": "greeting::hello"})
    answer = await ask("tools/call", {"name": tool, "arguments": arguments})
    assert answer.code == -32602
    assert "did you mean" in answer.body["error"]["message"]


async def test_an_argument_that_a_tool_does_not_have_is_named_with_the_one_that_was_meant(ask: Asker) -> None:
    near = (await ask.tool("schedules_fire", {"schedule": "nightly"}))["structuredContent"]
    assert near["message"] == "schedules_fire has no argument 'schedule' (did you mean schedule_id?)"
    assert near["details"][0]["pointer"] == "/schedule"
    far = (await ask.tool("schedules_fire", {"id": "nightly"}))["structuredContent"]
    assert far["details"][0]["hint"] == "the arguments are cursor, max_tokens, payload, schedule_id"


async def test_the_explanation_of_a_failed_run_does_not_lead_back_to_itself(ask: Asker) -> None:
    failing = {"name": "x", "steps": [{"id": "a", "tool": "fail", "args": {"message": "broken"}}]}
    failed = (await ask.tool("workflows_run", {"spec": failing}))["structuredContent"]
    assert failed["next"].startswith("workflows_explain")
    explained = (await ask.tool("workflows_explain", {"run_id": failed["run_id"]}))["structuredContent"]
    assert explained["next"].startswith("workflows_rerun")


async def test_an_argument_of_the_wrong_type_is_named(ask: Asker) -> None:
    result = await ask.tool("runs_list", {"limit": "many"})
    assert result["structuredContent"]["details"][0]["pointer"] == "/limit"
    result = await ask.tool("runs_list", {"limits": 3})
    assert result["isError"] is True


@pytest.mark.parametrize("tool", ["workflows_get_status", "workflows_explain"])
async def test_an_unknown_run_gets_the_known_texts(ask: Asker, tool: str) -> None:
    said = (await ask.tool(tool, {"workflow_id": "nonsense"}))["structuredContent"]
    assert said["message"].startswith("invalid workflow_id: ")
    run_id = "01999999-9999-7999-8999-999999999999"
    said = (await ask.tool(tool, {"workflow_id": run_id}))["structuredContent"]
    assert said["message"] == f"no workflow run tracked for id={run_id}"


async def test_status_has_progress_output_and_waits(ask: Asker) -> None:
    run_id = (await ask.tool("gate"))["structuredContent"]["run_id"]
    said = (await ask.tool("workflows_get_status", {"run_id": run_id}))["structuredContent"]
    assert (said["status"], said["state"], said["terminal"]) == ("running", "waiting", False)
    assert said["progress"] == {"completed_steps": 0, "total_steps": 1}
    assert said["waits"][0]["path"] == "ok" and said["waits"][0]["detail"]["prompt"] == "Go on?"
    decided = await ask.tool("workflows_approve", {"run_id": run_id, "path": "ok", "approved": True})
    assert decided["structuredContent"]["decided"] is True
    await ask.server.services.queries.wait_for("default", run_id, 60)
    said = (await ask.tool("workflows_get_status", {"workflow_id": run_id}))["structuredContent"]
    assert (said["status"], said["output"]["approved"]) == ("completed", True)


async def test_cancelling_an_unknown_or_finished_run_is_no_error(ask: Asker) -> None:
    unknown = "01999999-9999-7999-8999-999999999999"
    said = (await ask.tool("workflows_cancel", {"workflow_id": unknown}))["structuredContent"]
    assert said["cancelled"] is False
    run_id = (await ask.tool("gate"))["structuredContent"]["run_id"]
    said = (await ask.tool("workflows_cancel", {"workflow_id": run_id}))["structuredContent"]
    assert (said["cancelled"], said["status"]) == (True, "cancelled")
    said = (await ask.tool("workflows_cancel", {"workflow_id": run_id}))["structuredContent"]
    assert (said["cancelled"], said["status"]) == (False, "cancelled")


async def test_the_same_key_in_meta_is_the_same_run(ask: Asker) -> None:
    first, second = [
        (await ask.tool("hello", {"name": "Ada"}, meta={"holdfast/idempotencyKey": "order-7"}))["_meta"]
        for _ in range(2)
    ]
    assert first["holdfast/run_id"] == second["holdfast/run_id"]
    other = await ask.tool("hello", {"name": "Ada"}, meta={"holdfast/idempotencyKey": "order-8"})
    assert other["_meta"]["holdfast/run_id"] != first["holdfast/run_id"]
    conflict = await ask.tool("hello", {"name": "Bob"}, meta={"holdfast/idempotencyKey": "order-7"})
    assert conflict["structuredContent"]["error"] == "request_conflict"


async def test_a_failed_run_can_be_explained_and_run_again(ask: Asker) -> None:
    spec = {
        "name": "f",
        "steps": [{"id": "b", "tool": "fail", "args": {"message": "no disk", "kind": "disk"}}],
    }
    result = await ask.tool("workflows_run", {"spec": spec})
    assert result["isError"] is True and result["structuredContent"]["message"] == "no disk"
    run_id = result["structuredContent"]["run_id"]
    why = (await ask.tool("workflows_explain", {"run_id": run_id}))["structuredContent"]
    assert why["error"]["kind"] == "disk" and why["failed_steps"][0]["path"] == "b"
    again = await ask.tool("workflows_rerun", {"run_id": run_id})
    assert again["structuredContent"]["run_id"] != run_id


async def test_a_run_that_takes_long_gives_its_id_to_a_client_without_tasks(ask: Asker) -> None:
    said = await ask.tool("workflows_run", {"workflow": "held", "wait_secs": 0})
    run_id = said["structuredContent"]["run_id"]
    assert said["structuredContent"]["status"] in ("pending", "running")
    assert "workflows_get_status" in said["structuredContent"]["next"]
    ask.holds.free.set()
    view = await ask.server.services.queries.wait_for("default", run_id, 60)
    assert view.status == "completed"


async def test_workflows_are_found_by_name_and_text(ask: Asker) -> None:
    found = (await ask.tool("workflows_lookup", {"query": "GREETS"}))["structuredContent"]["workflows"]
    assert [one["name"] for one in found] == ["hello"]
    assert found[0]["inputs"]["required"] == ["name"] and found[0]["skill"] is None
    assert (await ask.tool("workflows_lookup", {"name": "nothing"}))["structuredContent"]["workflows"] == []


async def test_a_skill_and_a_name_are_a_workflow(ask: Asker) -> None:
    await ask.server.services.commands.publish("default", {**ADD, "name": "maya::clean up"})
    result = await ask.tool("workflows_run", {"skill": "maya", "name": "clean up"})
    assert result["structuredContent"] == {"a": 7}
    found = (await ask.tool("workflows_lookup", {"skill": "maya"}))["structuredContent"]["workflows"]
    assert [one["name"] for one in found] == ["clean up"]
    assert (await ask.tool(found[0]["tool"]))["structuredContent"] == {"a": 7}


async def test_a_signal_reaches_the_step_that_waits_for_it(ask: Asker) -> None:
    spec = {"name": "s", "steps": [{"id": "w", "kind": "wait_event", "signal_key": "go"}]}
    run_id = (await ask.tool("workflows_run", {"spec": spec}))["structuredContent"]["run_id"]
    await ask.tool("workflows_signal", {"run_id": run_id, "key": "go", "value": {"n": 1}})
    view = await ask.server.services.queries.wait_for("default", run_id, 60)
    assert view.output == {"w": {"n": 1}}


async def test_validation_reports_problems_or_says_valid(ask: Asker) -> None:
    good = (await ask.tool("workflows_validate", {"spec": ADD}))["structuredContent"]
    assert good["valid"] is True and good["plan_hash"]
    bad = (await ask.tool("workflows_validate", {"spec": "name: x\nsteps: []\n"}))["structuredContent"]
    assert bad["valid"] is False and bad["problems"]


async def test_problems_come_with_the_patch_that_repairs_them(ask: Asker) -> None:
    broken = {"name": "x", "steps": [{"id": "a", "tool": "echo", "argz": {"value": 7}}]}
    said = (await ask.tool("workflows_validate", {"spec": broken}))["structuredContent"]
    assert said["valid"] is False and said["patch"] and said["left"] == []
    assert (await ask.tool("workflows_run", {"spec": said["repaired"]}))["structuredContent"] == {"a": 7}
    refused = (await ask.tool("workflows_run", {"spec": broken}))["structuredContent"]
    assert refused["details"][0]["patch"]


async def test_a_plan_runs_nothing_and_its_hash_can_be_required(ask: Asker) -> None:
    plan = (await ask.tool("workflows_plan", {"spec": ADD}))["structuredContent"]
    assert [one["name"] for one in plan["tools"]] == ["echo"]
    assert (await ask.tool("runs_list"))["structuredContent"]["runs"] == []
    given = {"spec": ADD, "plan_hash": plan["plan_hash"]}
    assert (await ask.tool("workflows_run", given))["structuredContent"] == {"a": 7}
    result = await ask.tool("workflows_run", {**given, "plan_hash": "0" * 64})
    assert result["isError"] is True
    assert len((await ask.tool("runs_list"))["structuredContent"]["runs"]) == 1
    published = (await ask.tool("workflows_plan", {"workflow": "hello"}))["structuredContent"]
    assert published["workflow"] == "hello"


async def test_large_answers_come_in_parts(ask: Asker) -> None:
    spec = {"name": "big", "steps": [{"id": "a", "tool": "echo", "args": {"value": "x" * 50_000}}]}
    result = await ask.tool("workflows_run", {"spec": spec})
    assert len(text_of(result)) <= 8_000
    run_id = result["structuredContent"]["run_id"]
    cursor, parts = None, ""
    while True:
        given = {"run_id": run_id, "max_tokens": 5_000, **({"cursor": cursor} if cursor else {})}
        said = (await ask.tool("workflows_get_status", given))["structuredContent"]
        assert len(said["part"]) <= 20_000
        parts, cursor = parts + said["part"], said["cursor"]
        if cursor is None:
            break
    assert parts.count("x") >= 50_000


async def test_a_run_gives_no_more_than_the_caller_wants(ask: Asker) -> None:
    spec = {"name": "big", "steps": [{"id": "a", "tool": "echo", "args": {"value": 'x"' * 2_000}}]}
    result = await ask.tool("workflows_run", {"spec": spec, "max_tokens": 200})
    assert 400 < len(text_of(result)) <= 800


async def test_a_list_whose_lines_are_larger_than_an_answer_comes_in_parts_too(ask: Asker) -> None:
    runs = {(await ask.tool("hello", {"name": name}))["_meta"]["holdfast/run_id"] for name in "ab"}
    found, cursor = set[str](), None
    while True:
        text, page = "", cursor
        while True:
            given = {"limit": 1, "max_tokens": 100, **({"cursor": page} if page else {})}
            said = (await ask.tool("runs_list", given))["structuredContent"]
            text, page = text + said["part"], said["cursor"]
            if page is None:
                break
        whole = msgspec.json.decode(text)
        found |= {one["run_id"] for one in whole["runs"]}
        cursor = whole["cursor"]
        if cursor is None:
            break
    assert found == runs


async def test_a_change_of_what_is_published_is_told_to_listeners(ask: Asker) -> None:
    async with client_of(ask, "2026-07-28") as client, client.listen(tools_list_changed=True) as heard:
        await ask.server.services.commands.publish("default", {**ADD, "name": "new"})
        async for event in heard:
            assert type(event).__name__ == "ToolsListChanged"
            break


def test_the_client_is_the_official_one() -> None:
    assert Client.__module__.startswith("mcp.")
