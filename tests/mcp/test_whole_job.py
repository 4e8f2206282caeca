"""An agent that knows nothing but the tools: it learns, writes, mends, keeps, runs, looks into and schedules a workflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from holdfast.mcp.lessons import example_names
from holdfast.runtime.rights import Rights
from holdfast.spec.notation import examined
from holdfast.tools.registry import Registry
from tests.mcp.conftest import Asker, client_of
from tests.mcp.test_guard import key_of

pytestmark = pytest.mark.anyio

NIGHTLY = {
    "workflow": "hello",
    "trigger": {"kind": "cron", "expression": "0 0 2 * * *"},
    "inputs": {"name": "Ada"},
}


class Tools:
    """The tools of a server, called as by an agent: an answer is data, and says whether it is an error."""

    def __init__(self, ask: Asker, headers: Mapping[str, str] | None = None) -> None:
        self._ask, self._headers = ask, headers

    async def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        said = await self._ask.tool(name, arguments, headers=self._headers or {})
        return {**said["structuredContent"], "is_error": said["isError"]}


@pytest.fixture
def call(ask: Asker) -> Tools:
    return Tools(ask)


async def test_the_lesson_names_tools_that_are_there(ask: Asker, call: Tools) -> None:
    text = (await call("workflows_help", max_tokens=5_000))["text"]
    names = {tool["name"] for tool in (await ask("tools/list")).result["tools"]}
    for word in ("tools_list", "workflows_validate", "workflows_publish", "schedules_put", "runs_logs"):
        assert word in text and word in names


async def test_every_example_is_a_topic_and_valid(call: Tools) -> None:
    for name in example_names():
        assert not examined((await call("workflows_help", topic=name))["text"]).problems, name


async def test_an_unknown_topic_is_answered_with_the_nearest(call: Tools) -> None:
    said = await call("workflows_help", topic="schedules")
    assert said["is_error"] and "did you mean schedule?" in said["message"]


async def test_tools_for_steps_are_listed_with_their_arguments_and_marks(call: Tools) -> None:
    found = {one["name"]: one for one in (await call("tools_list", max_tokens=10_000))["tools"]}
    assert found["echo"]["args"]["properties"].keys() == {"value"} and found["echo"]["read_only"] is True
    assert found["http_request"]["destructive"] is True
    assert [one["name"] for one in (await call("tools_list", query="holds"))["tools"]] == []


async def test_tools_for_steps_come_in_parts_that_fit(call: Tools) -> None:
    whole = [one["name"] for one in (await call("tools_list", max_tokens=20_000))["tools"]]
    found: list[str] = []
    part = await call("tools_list", limit=2)
    while True:
        found += [one["name"] for one in part["tools"]]
        if part["cursor"] is None:
            break
        part = await call("tools_list", limit=2, cursor=part["cursor"])
    assert found == whole and len(whole) > 4


async def test_a_key_is_told_only_of_tools_that_it_may_use(ask: Asker) -> None:
    call = Tools(ask, await key_of(ask, "read", rights=Rights(tools=frozenset({"ech*"}))))
    assert [one["name"] for one in (await call("tools_list"))["tools"]] == ["echo"]


async def test_tools_of_a_server_are_listed_when_it_is_named(
    ask: Asker, call: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Far:
        servers = ("far",)

        async def learn(self, server: str) -> None:
            self.known = True

        def tools_of(self, server: str) -> list[tuple[str, str, Any]]:
            return [("send", "x" * 5_000, {"type": "object"})] if self.known else []

        def marks_of(self, server: str, name: str) -> tuple[bool | None, bool | None, bool | None]:
            return True, None, None

    registry: Registry = ask.server.services.engine.registry
    monkeypatch.setattr(registry, "_remote", Far())
    here = await call("tools_list", max_tokens=10_000)
    assert here["servers"] == ["far"] and "far/send" not in str(here["tools"])
    [send] = (await call("tools_list", server="far"))["tools"]
    assert (send["name"], send["destructive"], len(send["description"])) == ("far/send", True, 1_000)
    assert (await call("tools_list", server="fra"))["is_error"]


async def test_a_published_definition_is_a_tool_and_is_replaced_by_the_next(call: Tools) -> None:
    spec = {"name": "say it", "steps": [{"id": "a", "tool": "echo", "args": {"value": 1}}]}
    first = await call("workflows_publish", spec=spec)
    assert first["number"] == 1
    assert (await call(first["tool"]))["a"] == 1
    spec["steps"][0]["args"] = {"value": 2}  # type: ignore[index]
    assert (await call("workflows_publish", spec=msgspec.json.encode(spec).decode()))["number"] == 2
    assert (await call(first["tool"]))["a"] == 2


async def test_publishing_is_held_against_the_rights_of_an_agent(call: Tools) -> None:
    spec = {
        "name": "sneaky",
        "steps": [{"id": "a", "tool": "http_request", "args": {"url": "http://127.0.0.1/"}}],
    }
    said = await call("workflows_publish", spec=spec)
    assert said["is_error"] and said["details"][0]["code"] == "approval_missing"
    assert (await call("workflows_lookup", query="sneaky"))["workflows"] == []


async def test_publishing_without_a_spec_says_what_is_missing(call: Tools) -> None:
    said = await call("workflows_publish")
    assert said["is_error"] and "spec" in said["message"]


async def test_the_steps_and_logs_of_a_run_are_shown(call: Tools) -> None:
    spec = {
        "name": "x",
        "steps": [
            {"id": "a", "tool": "log", "args": {"message": "halfway"}},
            {"id": "b", "tool": "fail", "args": {"message": "no"}},
        ],
    }
    run_id = (await call("workflows_run", spec=spec))["run_id"]
    steps = (await call("runs_steps", run_id=run_id))["steps"]
    assert [(one["path"], one["status"]) for one in steps] == [("a", "completed"), ("b", "failed")]
    failed = (await call("runs_steps", run_id=run_id, failed=True))["steps"]
    assert [one["path"] for one in failed] == ["b"]
    lines = await call("runs_logs", run_id=run_id, limit=1)
    assert "halfway" in lines["lines"][0]["text"]
    assert "rerun" in (await call("workflows_explain", run_id=run_id))["next"]


async def test_a_status_waits_until_the_run_has_finished(ask: Asker, call: Tools) -> None:
    run_id = await ask.task("held")
    ask.holds.free.set()
    said = await call("workflows_get_status", run_id=run_id, wait_secs=60)
    assert (said["status"], said["next"]) == ("completed", None)


async def test_a_status_tells_what_an_open_question_needs(ask: Asker, call: Tools) -> None:
    said = await call("workflows_get_status", run_id=await ask.task("gate"), wait_secs=60)
    assert "workflows_approve" in said["next"] and said["waits"][0]["path"] == "ok"


async def test_a_schedule_is_written_fired_explained_paused_and_deleted(call: Tools) -> None:
    made = await call("schedules_put", schedule_id="nightly", schedule=NIGHTLY)
    assert (made["is_new"], len(made["next"]), made["status"]) == (True, 3, "active")
    fired = await call("schedules_fire", schedule_id="nightly")
    assert (await call("workflows_get_status", run_id=fired["run_id"], wait_secs=60))["status"] == "completed"
    why = await call("schedules_why", schedule_id="nightly")
    assert why["items"][0]["run_id"] == fired["run_id"]
    assert (await call("schedules_pause", schedule_id="nightly"))["status"] == "paused"
    assert (await call("schedules_resume", schedule_id="nightly"))["status"] == "active"
    assert (await call("schedules_put", schedule_id="nightly", schedule=NIGHTLY))["is_new"] is False
    assert (await call("schedules_delete", schedule_id="nightly"))["deleted"] is True
    assert (await call("schedules_list"))["schedules"] == []


async def test_a_schedule_with_mistakes_is_answered_with_patches(call: Tools) -> None:
    text = "workflow: hello\ntrigger: {kind: cron, expression: '0 2 * * *', timezon: UTC}\n"
    said = await call("schedules_put", schedule_id="n", schedule=text)
    assert [one["code"] for one in said["details"]] == ["wrong_field_count", "unknown_key"]
    assert all(one["patch"] for one in said["details"])


async def test_a_run_key_writes_no_schedule(ask: Asker) -> None:
    call = Tools(ask, await key_of(ask, "read", "run"))
    for name in ("schedules_put", "schedules_delete"):
        said = await call(name, schedule_id="n", schedule=NIGHTLY)
        assert (said["is_error"], said["error"]) == (True, "forbidden")


async def test_a_client_of_the_older_era_does_it_too(ask: Asker) -> None:
    async with client_of(ask, "2025-11-25") as client:
        told = await client.call_tool("workflows_help", {"topic": "schedule"})
        assert "schedules_put" in str(told.structured_content)
        made = await client.call_tool("schedules_put", {"schedule_id": "n", "schedule": NIGHTLY})
        assert made.is_error is False
