"""A remote tool that becomes a task of its server: followed as a pending call, across a kill of this engine, and cancelled with its run."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast import Holdfast, RunFailed
from holdfast.config import Mcp, Settings
from holdfast.mcp.client import Servers
from holdfast.tools.guard import Guard
from tests.mcp.conftest import Asker, asked

pytestmark = pytest.mark.anyio

FAILING = {"name": "failing", "steps": [{"id": "f", "tool": "fail", "args": {"message": "out of paper"}}]}
KILLED = """
import asyncio, sys
from holdfast import Holdfast
from holdfast.mcp.client import Servers
from holdfast.tools.guard import Guard

async def main():
    async with Holdfast(sys.argv[1], remote=Servers({"there": {"url": sys.argv[2]}}, Guard())) as hf:
        run = await hf.start({"name": "n", "steps": [{"id": "r", "kind": "tool_remote", "server": "there", "tool": "held"}]})
        while (await run.status()) != "waiting":
            await asyncio.sleep(0.01)
        print(run.id, flush=True)
        await asyncio.sleep(3600)

asyncio.run(main())
"""


@pytest.fixture
async def there(settings: Settings) -> AsyncIterator[Asker]:
    """Another server, whose calls become tasks at once."""
    async with asked(msgspec.structs.replace(settings, mcp=Mcp(wait_secs=0))) as asker:
        await asker.server.services.commands.publish("default", FAILING)
        yield asker


def here(tmp_path: Path, there: Asker) -> Holdfast:
    return Holdfast(str(tmp_path / "here.db"), remote=Servers({"there": {"url": there.url}}, Guard()))


def calling(tool: str, **rest: object) -> dict[str, object]:
    return {
        "name": "n",
        "steps": [{"id": "r", "kind": "tool_remote", "server": "there", "tool": tool, **rest}],
    }


async def test_a_task_is_polled_until_it_has_ended(there: Asker, tmp_path: Path) -> None:
    async with here(tmp_path, there) as hf:
        run = await hf.start(calling("hello", args={"name": "Ada"}))
        assert await run.result(60) == {"r": {"output": "Hello, Ada!"}}
        slow = await hf.start(calling("held"))
        await there.holds.began.wait()
        there.holds.free.set()
        assert await slow.result(60) == {"r": {"wait": "freed"}}


async def test_a_task_that_fails_fails_the_step_with_its_message(there: Asker, tmp_path: Path) -> None:
    async with here(tmp_path, there) as hf:
        run = await hf.start(calling("failing"))
        with pytest.raises(RunFailed) as failed:
            await run.result(60)
    assert failed.value.error.kind == "tool" and "out of paper" in failed.value.error.message


async def test_a_task_goes_on_when_the_engine_is_killed(there: Asker, tmp_path: Path) -> None:
    database = str(tmp_path / "here.db")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", KILLED, database, there.url, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    run_id = (await process.stdout.readline()).decode().strip()
    process.kill()
    await process.wait()
    there.holds.free.set()
    async with here(tmp_path, there) as hf:
        assert await (await hf.run(run_id)).result(60) == {"r": {"wait": "freed"}}
    runs = await there.server.services.queries.runs("default", workflow="held")
    assert len(runs.items) == 1


async def test_a_cancel_reaches_the_task(there: Asker, tmp_path: Path) -> None:
    async with here(tmp_path, there) as hf:
        run = await hf.start(calling("held"))
        await there.holds.began.wait()
        while (await run.status()) != "waiting":
            await asyncio.sleep(0.01)
        await hf.cancel(run.id)
        (row,) = (await there.server.services.queries.runs("default", workflow="held")).items
        view = await there.server.services.queries.wait_for("default", row.id, 60)
        assert view.status == "cancelled"


async def test_a_task_that_asks_for_input_fails_the_step_and_is_cancelled(
    there: Asker, tmp_path: Path
) -> None:
    async with here(tmp_path, there) as hf:
        run = await hf.start(calling("gate"))
        with pytest.raises(RunFailed) as failed:
            await run.result(60)
    assert "asks for input" in failed.value.error.message
    (row,) = (await there.server.services.queries.runs("default", workflow="gate")).items
    assert (await there.server.services.queries.wait_for("default", row.id, 60)).status == "cancelled"


async def test_a_task_that_the_server_has_forgotten_leaves_the_call_unknown(there: Asker) -> None:
    servers = Servers({"there": {"url": there.url}}, Guard())
    is_there, answer = await servers.poll("mcp:there/01890a5d-ac96-774b-bcce-b302099a8057")
    await servers.stop()
    assert is_there and answer["error"]["kind"] == "unknown"
