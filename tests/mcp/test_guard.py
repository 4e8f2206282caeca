"""Who may speak at /mcp, and what of a request is refused before the protocol is spoken."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
import pytest

from holdfast.compat.serving import McpHttpConfig, settings_of
from holdfast.config import Settings
from tests.mcp.conftest import GATE, HELLO, Asker, asked, client_of

pytestmark = pytest.mark.anyio
DISCOVER = b'{"jsonrpc":"2.0","id":1,"method":"server/discover"}'


async def key_of(ask: Asker, *scopes: str, tenant: str = "default", **rest: Any) -> dict[str, str]:
    made = await ask.server.services.api_keys.create(tenant, f"{tenant}-{'-'.join(scopes)}", scopes, **rest)
    return {"authorization": f"Bearer {made.key}"}


async def test_a_foreign_host_is_misdirected(ask: Asker) -> None:
    answer = await ask("server/discover", headers={"host": "evil.example"})
    assert answer.status == 421
    assert answer.body["error"] == "misdirected_request"


async def test_a_page_of_a_foreign_origin_is_forbidden(ask: Asker) -> None:
    answer = await ask("server/discover", headers={"origin": "http://evil.example"})
    assert answer.status == 403
    assert (await ask("server/discover", headers={"origin": ask.server.address})).status == 200


async def test_a_guarded_server_wants_a_key(ask: Asker) -> None:
    key = await key_of(ask, "read")
    for headers in ({}, {"authorization": "Bearer hf_wrong"}):
        answer = await ask("tools/list", headers=headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (await ask("tools/list", headers=key)).status == 200


async def test_a_tool_beyond_the_scopes_of_a_key_is_a_tool_error(ask: Asker) -> None:
    key = await key_of(ask, "read")
    for name, arguments in (("hello", {"name": "Ada"}), ("workflows_run", {"spec": HELLO})):
        result = await ask.tool(name, arguments, headers=key)
        assert result["isError"] is True
        assert result["structuredContent"]["error"] == "forbidden"


async def test_a_key_that_runs_may_not_decide(ask: Asker) -> None:
    key = await key_of(ask, "read", "run")
    run_id = (await ask.tool("gate", headers=key))["structuredContent"]["run_id"]
    result = await ask.tool(
        "workflows_approve", {"run_id": run_id, "path": "ok", "approved": True}, headers=key
    )
    assert result["structuredContent"]["error"] == "forbidden"
    waits = (await ask.tool("workflows_get_status", {"run_id": run_id}, headers=key))["structuredContent"][
        "waits"
    ]
    assert "link" not in waits[0]


async def test_a_run_of_another_tenant_is_not_there(ask: Asker) -> None:
    ours, theirs = await key_of(ask, "admin"), await key_of(ask, "admin", tenant="other")
    run_id = (await ask.tool("gate", headers=ours))["structuredContent"]["run_id"]
    said = await ask.tool("workflows_get_status", {"run_id": run_id}, headers=theirs)
    assert said["structuredContent"]["error"] == "not_found"
    capabilities: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
    for method in ("tasks/get", "tasks/cancel", "tasks/update"):
        answer = await ask(method, {"taskId": run_id}, capabilities=capabilities, headers=theirs)
        assert answer.code == -32602
    read = await ask("resources/read", {"uri": f"run://{run_id}"}, headers=theirs)
    assert read.code == -32602
    names = [tool["name"] for tool in (await ask("tools/list", headers=theirs)).result["tools"]]
    assert "hello" not in names
    assert (await ask("tasks/get", {"taskId": run_id}, capabilities=capabilities, headers=ours)).status == 200


async def test_a_session_of_the_older_era_belongs_to_the_key_that_opened_it(ask: Asker) -> None:
    ours, theirs = await key_of(ask, "admin"), await key_of(ask, "admin", tenant="other")
    opening = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    opened = await ask.raw(msgspec.json.encode(opening), ours)
    session = {"mcp-session-id": opened.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
    listing = b'{"jsonrpc":"2.0","id":2,"method":"tools/list"}'
    assert (await ask.raw(listing, {**session, **theirs})).status == 404
    assert (await ask.raw(listing, {**session, **ours})).status == 200


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b'{"jsonrpc": "2.0", "id"', 400, -32700),
        (b"\xff\xfe", 400, -32700),
        (b"[]", 400, -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
        (b"7", 400, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 65 + b"]" * 65 + b"}", 400, -32600),
        (b'{"pad":"' + b"x" * (1024 * 1024) + b'"}', 413, -32600),
        (b"", 400, -32600),
    ],
)
async def test_a_body_that_is_no_message_is_refused_and_the_server_lives(
    ask: Asker, body: bytes, status: int, code: int
) -> None:
    answer = await ask.raw(body, {"mcp-protocol-version": "2026-07-28"})
    assert (answer.status, answer.code) == (status, code)
    assert answer.body["id"] is None
    assert (await ask("server/discover")).status == 200


async def test_another_media_type_is_refused(ask: Asker) -> None:
    answer = await ask.raw(DISCOVER, {"content-type": "text/plain"})
    assert answer.status == 415


async def test_a_request_id_is_given_back(ask: Asker) -> None:
    answer = await ask("server/discover", headers={"x-request-id": "trace-me"})
    assert answer.headers["x-request-id"] == "trace-me"


async def test_only_exposed_workflows_are_tools(settings: Settings) -> None:
    narrow = msgspec.structs.replace(
        settings, mcp=msgspec.structs.replace(settings.mcp, expose=("hel*", "other"))
    )
    async with asked(narrow) as ask:
        names = [tool["name"] for tool in (await ask("tools/list")).result["tools"]]
        assert "hello" in names and "gate" not in names
        assert (await ask("tools/call", {"name": "gate", "arguments": {}})).code == -32602
        run = {"name": "workflows_run", "arguments": {"workflow": GATE["name"]}}
        assert (await ask("tools/call", run)).code == -32602
        assert (await ask("resources/read", {"uri": "workflow://gate"})).code == -32602


@pytest.mark.parametrize("enabled", [True, False])
async def test_a_configured_server_lists_tools_exactly_when_it_offers_workflows(
    settings: Settings, enabled: bool
) -> None:
    own = settings_of(McpHttpConfig(port=0, enable_workflows=enabled), settings.db)
    async with asked(own) as ask:
        names = {tool["name"] for tool in (await ask("tools/list")).result["tools"]}
        assert ({"workflows_run", "hello"} <= names) is enabled
        assert bool(names) is enabled
        answer = await ask("tools/call", {"name": "workflows_run", "arguments": {}})
        assert ("error" in answer.body) is not enabled


async def test_a_client_that_goes_away_loses_nothing(ask: Asker) -> None:
    """The time-out of a client cancels its call, not the run."""
    async with client_of(ask, "2026-07-28", read_timeout_seconds=60) as client:
        call = asyncio.ensure_future(client.call_tool("held", {}))
        await ask.holds.began.wait()
        call.cancel()
        await asyncio.wait([call])
    run_id = (await ask.tool("runs_list"))["structuredContent"]["runs"][0]["run_id"]
    ask.holds.free.set()
    assert (await ask.server.services.queries.wait_for("default", run_id, 60)).status == "completed"


async def test_the_server_starts_without_the_sdk(settings: Settings) -> None:
    """In a process of its own: this one has imported the SDK."""
    program = (
        "import asyncio, sys\n"
        "from holdfast.config import Settings\n"
        "from holdfast.http.serve import serving\n"
        "async def main():\n"
        f"    async with serving(Settings(db={settings.db!r}, port=0)):\n"
        "        print(any(name == 'mcp' or name.startswith(('mcp.', 'mcp_types', 'pydantic')) for name in sys.modules))\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.decode().strip() == "False"
