"""kill -9 between a call and the next poll: every task goes on under its id."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest

from tests.forks import Program
from tests.mcp.conftest import META, TASKS, VERSION
from tests.mcp.suite import ROOT

pytestmark = pytest.mark.anyio
KILLS_FEW, KILLS_MANY = 4, 100


class Server:
    """A server in a process of its own, which can be killed and started again."""

    def __init__(self, db: str) -> None:
        self._db = db
        self.process = self._begun()

    def _begun(self) -> Program:
        flows = str(ROOT / "tests" / "mcp" / "workflows")
        process = Program(
            "tests.mcp.killed_server", [self._db, flows], cwd=ROOT, env=dict(os.environ), log=None
        )
        self.url = f"{process.stdout.readline().strip()}/mcp"
        return process

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def again(self) -> None:
        self.kill()
        self.process = self._begun()


@contextlib.asynccontextmanager
async def served(tmp_path: Path) -> AsyncIterator[tuple[Server, aiohttp.ClientSession]]:
    server = Server(f"sqlite:///{tmp_path / 'killed.db'}")
    try:
        async with aiohttp.ClientSession() as session:
            yield server, session
    finally:
        server.kill()


async def asked(
    server: Server, session: aiohttp.ClientSession, method: str, **params: object
) -> dict[str, object]:
    capabilities: dict[str, object] = {"extensions": {TASKS: {}}, "elicitation": {}}
    meta = {f"{META}protocolVersion": VERSION, f"{META}clientCapabilities": capabilities}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": VERSION,
        "mcp-method": method,
        "mcp-name": str(params.get("name") or params.get("taskId")),
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    async with session.post(server.url, json=message, headers=headers) as answer:
        result = msgspec.json.decode(await answer.read())["result"]
        assert isinstance(result, dict)
        return result


@pytest.mark.parametrize(
    "kills", [KILLS_FEW, pytest.param(KILLS_MANY, marks=pytest.mark.long)], ids=["few", "many"]
)
async def test_every_task_goes_on_under_its_id_after_a_kill(tmp_path: Path, kills: int) -> None:
    tasks: list[str] = []
    async with served(tmp_path) as (server, session):
        for nth in range(kills):
            made = await asked(
                server, session, "tools/call", name="confirm_delete", arguments={"filename": f"f{nth}"}
            )
            assert made["resultType"] == "task"
            tasks.append(str(made["taskId"]))
            server.again()
            task = await asked(server, session, "tasks/get", taskId=tasks[-1])
            assert task["taskId"] == tasks[-1] and task["status"] == "input_required"
        for nth, task_id in enumerate(tasks):
            answer = {"confirm": {"action": "accept", "content": {"confirm": True}}}
            await asked(server, session, "tasks/update", taskId=task_id, inputResponses=answer)
            task = await asked(server, session, "tasks/get", taskId=task_id)
            while task["status"] == "working":  # the answer is durable; its end follows at once
                task = await asked(server, session, "tasks/get", taskId=task_id)
            result = task["result"]
            assert isinstance(result, dict)
            assert result["content"] == [{"type": "text", "text": f"deleted f{nth}"}]
