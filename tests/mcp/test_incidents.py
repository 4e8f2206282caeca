"""Why did last night's run fail? An agent finds the cause in three calls and four thousand tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.config import Settings
from holdfast.values import TERMINAL
from tests.mcp.conftest import HELLO, Asker, asked

pytestmark = pytest.mark.anyio

CALLS_MAX, TOKENS_MAX = 3, 4_000
ECHO: dict[str, Any] = {"id": "before", "tool": "echo", "args": {"value": "x" * 2_000}}


def fail(message: str, kind: str = "error", **more: Any) -> dict[str, Any]:
    return {"id": "f", "tool": "fail", "args": {"message": message, "kind": kind}, **more}


def steps(*some: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"steps": [ECHO, *some], **more}


GATE: dict[str, Any] = {"id": "gate", "kind": "approve", "prompt": "Drop the table?"}
LOOP = {"id": "loop", "kind": "foreach", "items": "$.inputs.items", "concurrency": 20}
ITEMS = {"inputs": {"items": {"type": "array", "default": [{"n": nth} for nth in range(300)]}}}
ODD = {
    "id": "odd",
    "kind": "branch",
    "on": "$.item.bad",
    "then": [fail("item {{item.n}} has no price", "data")],
}
BAD_ITEM = {
    "inputs": {"items": {"type": "array", "default": [{"n": nth, "bad": nth == 177} for nth in range(300)]}}
}

# What happened, and the words that name its cause.
INCIDENTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "tool": (steps(fail("disk /data is full", "disk")), ("disk /data is full", '"path":"f"')),
    "retried": (
        steps(fail("502 from upstream", retry={"max_attempts": 3, "initial_delay_ms": 1, "max_delay_ms": 1})),
        ("502 from upstream", '"attempts":3'),
    ),
    "slow": (steps({"id": "s", "tool": "hold", "timeout_secs": 0.05}), ("timeout", '"path":"s"')),
    "too_long": (steps({"id": "s", "tool": "hold"}, timeout_secs=0.2), ("run_timeout",)),
    "secret": (
        steps({"id": "s", "tool": "echo", "args": {"value": "{{secrets.NO_SUCH_TOKEN}}"}}),
        ("NO_SUCH_TOKEN", '"secret"'),
    ),
    "denied": (steps(GATE), ("approval denied: not on a Friday", "gate")),
    "unanswered": (steps({**GATE, "timeout_secs": 0.05}), ("approval denied: timeout",)),
    "no_signal": (
        steps({"id": "w", "kind": "wait_event", "signal_key": "paid", "timeout_secs": 0.05}),
        ("paid", "timeout"),
    ),
    "callback": (
        steps({"id": "p", "tool": "echo", "args": {"value": {"pending": True, "task_id": "incident-9"}}}),
        ("render farm rejected the job",),
    ),
    "no_callback": (
        steps({"id": "p", "tool": "echo", "args": {"value": {"pending": True, "task_id": "T"}}, "pending_ttl_secs": 0.05}),
        ("resume_timeout",),
    ),
    "item": (steps({**LOOP, "steps": [ODD]}, **BAD_ITEM), ("item 177 has no price", "loop[177]")),
    "every_item": (
        steps({**LOOP, "on_any_fail": "abort", "steps": [fail("quota used up", "quota")]}, **ITEMS),
        ("quota used up",),
    ),
    "branch": (
        steps({"id": "p", "kind": "parallel", "branches": [[{**ECHO, "id": "ok"}], [fail("port 5432 refused")]]}),
        ("port 5432 refused", "p[1].f"),
    ),
    "child": (steps({"id": "c", "workflow": "tool"}), ("disk /data is full", "c.f")),
    "child_inputs": (steps({"id": "c", "workflow": "hello", "inputs": {"name": 5}}), ("inputs", "name")),
    "envelope": (
        steps({
            "id": "e", "tool": "echo", "args": {"value": {"success": False, "error": "license expired"}},
            "result": {"envelope": True},
        }),
        ("license expired",),
    ),
    "undone": (
        steps(
            {**ECHO, "id": "book", "compensate": {"tool": "fail", "args": {"message": "refund failed"}}},
            fail("card declined", "payment"),
        ),
        ("card declined", "refund failed"),
    ),
    "no_worker": (
        steps({"id": "s", "service": "render", "on_no_worker": "fail"}),
        ("render", "worker"),
    ),
    "long_text": (steps(fail("assertion failed: " + "y" * 200_000)), ("assertion failed",)),
    "cancelled": (steps({"id": "s", "tool": "hold"}), ("cancelled", "budget is spent")),
    "no_tool": (steps({"id": "s", "tool": "not_installed_here"}), ("no_tool", "not_installed_here")),
    "scheduled": (steps(fail("vault is sealed", "vault")), ("vault is sealed", "nightly")),
}  # fmt: skip


@pytest.fixture
async def ask(settings: Settings) -> AsyncIterator[Asker]:
    async with asked(settings) as asker:
        yield asker


async def night(ask: Asker, name: str) -> None:
    """What happened last night, among other runs."""
    services, commands = ask.server.services, ask.server.services.commands
    for one in dict.fromkeys(("tool", name)):
        await commands.publish("default", {"name": one, **INCIDENTS[one][0]})
    for nth in range(10):
        await commands.start("default", str(HELLO["name"]), {"name": f"noise {nth}"})
    if name == "scheduled":
        text = "id: nightly\nworkflow: scheduled\ntrigger: {kind: cron, expression: '0 0 3 * * *'}\n"
        await services.schedule_commands.put_text("default", "nightly", text)
        run_id = (await services.schedule_commands.fire("default", "nightly", None)).run_id
    else:
        run_id = (await commands.start("default", name))[0].id
    if name == "denied":
        await services.asking.wait_for("default", run_id, 60)
        await commands.approve("default", run_id, "gate", approved=False, reason="not on a Friday")
    if name == "callback":
        await commands.resume(
            "default", "incident-9", {"success": False, "error": "render farm rejected the job"}
        )
    if name == "cancelled":
        await ask.holds.began.wait()
        await commands.cancel("default", run_id, "the budget is spent")
    if name == "no_tool":
        while (await services.queries.explain("default", run_id)).reasons[0].reason != "no_tool":
            await asyncio.sleep(0)
    else:
        assert (await services.queries.wait_for("default", run_id, 60)).status in TERMINAL


@pytest.mark.parametrize("name", INCIDENTS)
async def test_the_cause_is_found_in_three_calls_and_four_thousand_tokens(ask: Asker, name: str) -> None:
    await night(ask, name)
    texts = list[str]()

    async def call(tool: str, **arguments: Any) -> Any:
        result = await ask.tool(tool, arguments)
        texts.append(result["content"][0]["text"])
        return result["structuredContent"]

    runs = (await call("runs_list", workflow=name, limit=5))["runs"]
    why = await call("workflows_explain", run_id=runs[0]["run_id"])
    if "part" in why:
        await call("workflows_get_status", run_id=runs[0]["run_id"])
    said = "".join(texts).replace('\\"', '"')
    assert all(words in said for words in INCIDENTS[name][1]), said
    assert len(texts) <= CALLS_MAX and sum(map(len, texts)) / 4 <= TOKENS_MAX
