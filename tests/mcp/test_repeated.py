"""A call that is repeated under its key in `_meta` is carried out once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.mcp.conftest import Asker
from tests.mcp.test_guard import key_of

pytestmark = pytest.mark.anyio

KEY = {"holdfast/idempotencyKey": "order-7"}
NIGHTLY = "id: nightly\nworkflow: held\ntrigger: {kind: cron, expression: '0 0 3 * * *'}\n"


async def test_a_schedule_is_fired_once(ask: Asker) -> None:
    await ask.server.services.schedule_commands.put_text("default", "nightly", NIGHTLY)
    first, second = [
        (await ask.tool("schedules_fire", {"schedule_id": "nightly"}, meta=KEY))["structuredContent"]
        for _ in range(2)
    ]
    assert first == second and first["run_id"]
    assert len((await ask.tool("runs_list"))["structuredContent"]["runs"]) == 1


async def test_a_signal_is_sent_once(ask: Asker) -> None:
    steps = [{"id": one, "kind": "wait_event", "signal_key": "go"} for one in ("first", "second")]
    spec: dict[str, Any] = {"name": "twice", "steps": steps}
    run_id = (await ask.tool("workflows_run", {"spec": spec, "wait_secs": 0}))["structuredContent"]["run_id"]
    for _ in range(2):
        said = await ask.tool("workflows_signal", {"run_id": run_id, "key": "go", "value": 1}, meta=KEY)
        assert said["isError"] is False
    await ask.server.services.asking.wait_for("default", run_id, 60)
    view = await ask.server.services.queries.run("default", run_id)
    assert [wait.path for wait in view.waits] == ["second"]


async def test_an_approval_is_answered_alike(ask: Asker) -> None:
    run_id = (await ask.tool("workflows_run", {"workflow": "gate", "wait_secs": 0}))["structuredContent"][
        "run_id"
    ]
    await ask.server.services.asking.wait_for("default", run_id, 60)
    answer = {"run_id": run_id, "path": "ok", "approved": True}
    first, second = [await ask.tool("workflows_approve", answer, meta=KEY) for _ in range(2)]
    assert first["structuredContent"] == second["structuredContent"]
    other = await ask.tool("workflows_approve", {**answer, "approved": False}, meta=KEY)
    assert other["structuredContent"]["error"] == "request_conflict"


async def test_a_run_is_repeated_once(ask: Asker) -> None:
    run_id = (await ask.tool("hello", {"name": "Ada"}))["_meta"]["holdfast/run_id"]
    first, second = [
        (await ask.tool("workflows_rerun", {"run_id": run_id}, meta=KEY))["_meta"]["holdfast/run_id"]
        for _ in range(2)
    ]
    assert first == second != run_id


async def test_two_callers_do_not_meet_under_one_key(ask: Asker) -> None:
    one, other = await key_of(ask, "read", "run"), await key_of(ask, "read", "run")
    run_id = (await ask.tool("hello", {"name": "Ada"}, headers=one))["_meta"]["holdfast/run_id"]
    for name, arguments in (("hello", {"name": "Ada"}), ("workflows_rerun", {"run_id": run_id})):
        mine, theirs = [
            (await ask.tool(name, arguments, meta={"idempotencyKey": name}, headers=key))["_meta"][
                "holdfast/run_id"
            ]
            for key in (one, other)
        ]
        assert mine != theirs


@pytest.mark.parametrize("key", [7, "", "a\nb", "x" * 300, {"a": 1}])
async def test_a_key_that_cannot_be_one_is_refused_and_nothing_starts(ask: Asker, key: Any) -> None:
    said = await ask.tool("hello", {"name": "Ada"}, meta={"holdfast/idempotencyKey": key})
    assert said["isError"] is True and "idempotencyKey" in said["structuredContent"]["message"]
    assert (await ask.tool("runs_list"))["structuredContent"]["runs"] == []
