"""Tasks are runs: durable before they are told, answered through the task, and cancelled through it."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL
from pathlib import Path
from typing import Any

import pytest

from tests.mcp.conftest import TASKS, Asker

pytestmark = pytest.mark.anyio
ELICITATION: dict[str, Any] = {"elicitation": {}}
FORM = {
    "name": "form",
    "steps": [
        {
            "id": "who",
            "kind": "approve",
            "prompt": "Who?",
            "form": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        }
    ],
    "output": "{{steps.who.output.form.name}}",
}


async def publish(ask: Asker, definition: dict[str, Any]) -> None:
    await ask.server.services.commands.publish("default", definition)


async def test_a_task_has_the_id_of_its_run_and_its_result(ask: Asker) -> None:
    await publish(
        ask,
        {
            **FORM,
            "name": "slow",
            "labels": {"mcp.wait_secs": "0"},
            "steps": [{"id": "w", "tool": "hold"}],
            "output": "{{steps.w.output}}",
        },
    )
    task_id = await ask.task("slow")
    assert (await ask.tasks("get", task_id)).result["status"] == "working"
    run = await ask.tool("workflows_get_status", {"run_id": task_id})
    assert run["structuredContent"]["workflow"] == "slow"
    ask.holds.free.set()
    task = await ask.ended(task_id)
    assert (task["status"], task["result"]["content"][0]["text"]) == ("completed", "freed")


async def test_a_quick_run_is_answered_at_once(ask: Asker) -> None:
    result = await ask.tool("hello", {"name": "Ada"}, capabilities={"extensions": {TASKS: {}}})
    assert (result["resultType"], result["content"][0]["text"]) == ("complete", "Hello, Ada!")


async def test_an_approval_is_a_question_of_the_task(ask: Asker) -> None:
    task_id = await ask.task("gate", **ELICITATION)
    task = await ask.asking(task_id)
    assert task["status"] == "input_required"
    params = task["inputRequests"]["ok"]["params"]
    assert '"Go on?"' in params["message"]
    assert set(params["requestedSchema"]["properties"]) == {"approved", "reason"}
    answer = {"ok": {"action": "accept", "content": {"approved": True, "reason": "fine"}}}
    assert (await ask.tasks("update", task_id, inputResponses=answer)).result["resultType"] == "complete"
    task = await ask.ended(task_id)
    assert task["result"]["structuredContent"]["approved"] is True


@pytest.mark.parametrize(
    "response", [{"action": "decline"}, {"action": "accept", "content": {"approved": False}}]
)
async def test_a_denied_approval_ends_the_task_with_an_error(ask: Asker, response: Any) -> None:
    task_id = await ask.task("gate", **ELICITATION)
    await ask.asking(task_id)
    await ask.tasks("update", task_id, inputResponses={"ok": response})
    task = await ask.ended(task_id)
    assert (task["status"], task["result"]["isError"]) == ("completed", True)
    assert "denied" in task["result"]["structuredContent"]["message"]


async def test_a_dismissed_question_stays_open(ask: Asker) -> None:
    task_id = await ask.task("gate", **ELICITATION)
    await ask.asking(task_id)
    await ask.tasks("update", task_id, inputResponses={"ok": {"action": "cancel"}})
    assert (await ask.tasks("get", task_id)).result["status"] == "input_required"


async def test_a_form_that_does_not_fit_is_refused_and_stays_open(ask: Asker) -> None:
    await publish(ask, FORM)
    task_id = await ask.task("form", **ELICITATION)
    await ask.asking(task_id)
    answer = await ask.tasks("update", task_id, inputResponses={"who": {"action": "accept", "content": {}}})
    assert answer.code == -32602
    assert (await ask.tasks("get", task_id)).result["status"] == "input_required"
    good = {"who": {"action": "accept", "content": {"name": "Ada"}}}
    await ask.tasks("update", task_id, inputResponses=good)
    assert (await ask.ended(task_id))["result"]["content"][0]["text"] == "Ada"


async def test_a_form_that_mcp_cannot_show_is_a_link(ask: Asker) -> None:
    deep = {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}},
    }
    await publish(ask, {"name": "deep", "steps": [{"id": "q", "kind": "approve", "form": deep}]})
    task_id = await ask.task("deep", **ELICITATION)
    assert (await ask.asking(task_id))["status"] == "working"  # this client cannot open addresses
    capabilities: dict[str, Any] = {"extensions": {TASKS: {}}, "elicitation": {"form": {}, "url": {}}}
    task = (await ask("tasks/get", {"taskId": task_id}, capabilities=capabilities)).result
    params = task["inputRequests"]["q"]["params"]
    assert params["mode"] == "url"
    async with ask.session.get(params["url"]) as page:
        assert page.status == 200


async def test_a_signal_is_a_question_of_the_task(ask: Asker) -> None:
    await publish(ask, {"name": "sig", "steps": [{"id": "w", "kind": "wait_event", "signal_key": "go"}]})
    task_id = await ask.task("sig", **ELICITATION)
    task = await ask.asking(task_id)
    assert list(task["inputRequests"]["w"]["params"]["requestedSchema"]["properties"]) == ["go"]
    answer = {"w": {"action": "accept", "content": {"go": '{"n": 1}'}}}
    await ask.tasks("update", task_id, inputResponses=answer)
    assert (await ask.ended(task_id))["result"]["structuredContent"] == {"w": {"n": 1}}


async def test_without_tasks_a_question_is_the_result_of_the_call(ask: Asker) -> None:
    await publish(ask, FORM)
    first = await ask.tool("form", capabilities=ELICITATION)
    assert first["resultType"] == "input_required" and list(first["inputRequests"]) == ["who"]
    rest = {"inputResponses": {"who": {"action": "accept", "content": {"name": "Ada"}}}}
    again = await ask(
        "tools/call",
        {"name": "form", "arguments": {}, "requestState": first["requestState"], **rest},
        capabilities=ELICITATION,
    )
    assert again.result["content"][0]["text"] == "Ada"
    assert len((await ask.tool("runs_list"))["structuredContent"]["runs"]) == 1
    forged = await ask(
        "tools/call",
        {"name": "form", "arguments": {}, "requestState": first["requestState"] + "x", **rest},
        capabilities=ELICITATION,
    )
    assert forged.code == -32602


async def test_tasks_need_the_extension(ask: Asker) -> None:
    await publish(ask, {**FORM, "name": "must", "labels": {"mcp.task": "required"}})
    answer = await ask("tools/call", {"name": "must", "arguments": {}})
    assert answer.code == -32021
    assert answer.body["error"]["data"]["requiredCapabilities"] == {"extensions": {TASKS: {}}}
    assert (await ask("tasks/get", {"taskId": "x"})).code == -32021


async def test_a_task_of_another_header_is_refused(ask: Asker) -> None:
    task_id = await ask.task("gate")
    answer = await ask(
        "tasks/get",
        {"taskId": task_id},
        capabilities={"extensions": {TASKS: {}}},
        headers={"mcp-name": "another"},
    )
    assert (answer.status, answer.code) == (400, -32020)


async def test_cancelling_a_task_cancels_its_run(ask: Asker) -> None:
    task_id = await ask.task("gate")
    assert (await ask.tasks("cancel", task_id)).result["resultType"] == "complete"
    assert (await ask.ended(task_id))["status"] == "cancelled"
    assert (await ask.tasks("cancel", task_id)).status == 200


@pytest.mark.parametrize("nth", range(3))
async def test_one_of_five_answers_at_once_wins(ask: Asker, nth: int) -> None:
    """By the task, the tool, HTTP, a link and the command line; each door is told whether its answer counted."""
    task_id = await ask.task("gate", **ELICITATION)
    await ask.asking(task_id)
    link = ask.server.services.links.address("default", task_id, "ok", ask.server.address, "linked")
    approval = f"{ask.server.address}/api/v1/runs/{task_id}/approvals/ok"

    async def by_post(url: str, **more: Any) -> bool:
        async with ask.session.post(url, json={"approved": True, **more}) as answer:
            return answer.status == 200

    async def by_tool() -> bool:
        approve = {"run_id": task_id, "path": "ok", "approved": True}
        return not (await ask.tool("workflows_approve", approve))["isError"]

    async def by_command() -> bool:
        holdfast = str(Path(sys.executable).with_name("holdfast"))
        words = ["approve", task_id, "ok", "--server", ask.server.address]
        process = await asyncio.create_subprocess_exec(holdfast, *words, stdout=DEVNULL, stderr=DEVNULL)
        return await process.wait() == 0

    async def by_task() -> bool:
        await ask.tasks("update", task_id, inputResponses={"ok": {"action": "accept"}})
        return False  # the answer does not say whether it counted

    doors = [by_post(approval, by="http"), by_post(link), by_tool(), by_command(), by_task()]
    counted = sum(await asyncio.gather(*doors[nth:], *doors[:nth]))
    task = await ask.ended(task_id)
    rows = (await ask.server.services.queries.journal("default", task_id, 0, 100)).items
    assert [row.kind for row in rows].count("approval_answered") == 1
    assert counted == 1 or (counted, task["result"]["structuredContent"]["by"]) == (0, "local")
