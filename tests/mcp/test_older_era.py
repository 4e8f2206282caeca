"""What a client of the older era hears and answers by notifications (2025-11-25)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from mcp import types

from tests.mcp.conftest import GATE, HELLO, Asker, client_of, text_of
from tests.mcp.test_guard import key_of

pytestmark = pytest.mark.anyio

HEAD = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


class Session:
    """A session of the older era, as raw as the wire."""

    def __init__(self, ask: Asker, headers: dict[str, str]) -> None:
        self.ask, self.headers, self._ids = ask, {**HEAD, **headers}, iter(range(1, 1_000))

    async def open(self) -> None:
        client = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        await self.send("initialize", client, number=next(self._ids))
        await self.send("notifications/initialized", {})

    async def send(self, method: str, params: dict[str, Any], number: int | None = None) -> list[Any]:
        """The messages that answer one; a notification has none."""
        message = {
            "jsonrpc": "2.0",
            "method": method,
            "params": params,
            **({} if number is None else {"id": number}),
        }
        async with self.ask.session.post(self.ask.url, json=message, headers=self.headers) as answer:
            self.headers.setdefault("mcp-session-id", answer.headers.get("mcp-session-id", ""))
            lines = (await answer.read()).decode().splitlines()
            return [
                msgspec.json.decode(line[5:])
                for line in lines
                if line.startswith("data:") and line[5:].strip()
            ]

    async def call(self, tool: str, arguments: dict[str, Any]) -> list[Any]:
        return await self.send("tools/call", {"name": tool, "arguments": arguments}, number=next(self._ids))


async def opened(ask: Asker, headers: dict[str, str] | None = None) -> Session:
    session = Session(ask, headers or {})
    await session.open()
    return session


async def test_each_step_of_a_call_is_told_as_it_happens(ask: Asker) -> None:
    session = await opened(ask)
    told = [one for one in await session.call("hello", {"name": "Ada"}) if "method" in one]
    assert {one["method"] for one in told} == {"notifications/$/dcc.workflowUpdated"}
    kinds = [one["params"]["detail"]["kind"] for one in told]
    assert kinds == ["workflow_started", "step_enter", "step_exit", "workflow_terminal"]
    assert told[-1]["params"]["progress"] == {"completed_steps": 1, "total_steps": 1}


@pytest.mark.parametrize("approved", [True, False])
async def test_an_approval_is_answered_by_a_notification(ask: Asker, approved: bool) -> None:
    session = await opened(ask)
    run = await session.call("workflows_run", {"workflow": GATE["name"], "wait_secs": 0})
    run_id = run[-1]["result"]["structuredContent"]["run_id"]
    await ask.server.services.asking.wait_for("default", run_id, 60)
    said = {"workflow_id": run_id, "step_id": "ok", "approved": approved, "reason": "because"}
    await session.send("notifications/$/dcc.approveResponse", said)
    view = await ask.server.services.queries.wait_for("default", run_id, 60)
    assert view.status == ("completed" if approved else "failed")
    assert approved or view.error is not None and view.error.message == "approval denied: because"


async def test_a_key_that_runs_decides_nothing_by_a_notification(ask: Asker) -> None:
    runs, decides = await key_of(ask, "read", "run"), await key_of(ask, "read", "approve")
    session, other = await opened(ask, runs), await opened(ask, decides)
    run = await session.call("workflows_run", {"workflow": GATE["name"], "wait_secs": 0})
    run_id = run[-1]["result"]["structuredContent"]["run_id"]
    await ask.server.services.asking.wait_for("default", run_id, 60)
    said = {"workflow_id": run_id, "step_id": "ok", "approved": False}
    await session.send("notifications/$/dcc.approveResponse", said)
    await session.call(
        "workflows_get_status", {"run_id": run_id}
    )  # messages of a session are taken in their order
    assert (await ask.server.services.queries.run("default", run_id)).status == "waiting"
    await other.send("notifications/$/dcc.approveResponse", {**said, "approved": True})
    assert (await ask.server.services.queries.wait_for("default", run_id, 60)).status == "completed"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"workflow_id": "x", "step_id": "ok", "approved": True},
        {"workflow_id": 5, "step_id": [], "approved": "yes"},
    ],
)
async def test_an_answer_that_fits_nothing_changes_nothing(ask: Asker, said: dict[str, Any]) -> None:
    session = await opened(ask)
    await session.send("notifications/$/dcc.approveResponse", said)
    assert (await session.call("hello", {"name": "Ada"}))[-1]["result"]["isError"] is False


async def test_changes_of_lists_are_told(ask: Asker) -> None:
    heard = asyncio.Queue[str]()

    async def note(message: Any) -> None:
        if isinstance(message, types.Notification):
            await heard.put(str(message.method))

    async with client_of(ask, "2025-11-25", message_handler=note) as client:
        assert text_of(await client.call_tool("hello", {"name": "Ada"})) == "Hello, Ada!"
        wanted = {f"notifications/{one}/list_changed" for one in ("tools", "prompts", "resources")}
        while wanted:  # the client opens its standing stream at a time of its own
            await ask.server.services.commands.publish(
                "default", {**HELLO, "name": f"new{len(wanted)}{heard.qsize()}"}
            )
            async with asyncio.timeout(60):
                while wanted and (method := await heard.get()):
                    wanted.discard(method)
