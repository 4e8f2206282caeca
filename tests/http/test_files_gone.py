"""A server whose database files are moved or removed under it: not ready, every start is refused, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest

from tests.http.conftest import Asker
from tests.http.test_stream_killed import Mortal

pytestmark = pytest.mark.anyio


def _database(ask: Asker) -> Path:
    return Path(ask.serving.services.engine.store.path)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["test.db", "test.db-wal"])
async def test_a_server_whose_file_was_moved_away_acknowledges_nothing_until_it_is_back(
    ask: Asker, name: str
) -> None:
    path = _database(ask).with_name(name)
    away = path.with_name("away")
    path.rename(away)
    for _ in range(5):
        answer = await ask("POST", "/api/v1/runs", {"workflow": "sum", "inputs": {"a": 1}})
        assert answer.status == 503
        ready = await ask("GET", "/readyz")
        assert (ready.status, ready.body) == (503, {"ready": False, "reasons": ["store_gone"]})
    assert (await ask("GET", "/healthz")).status == 200
    away.rename(path)
    async with asyncio.timeout(60):
        while (await ask("GET", "/readyz")).status != 200:
            await asyncio.sleep(0.05)
    assert (await ask.done(workflow="sum", inputs={"a": 1}))["output"] == 3


def _cut(path: Path) -> None:
    os.truncate(path, 0)


def _remove(path: Path) -> None:
    path.unlink()


@pytest.mark.parametrize(("harm", "reason"), [(_cut, "store_damaged"), (_remove, "store_gone")])
async def test_a_server_whose_log_was_cut_or_removed_is_not_ready_and_answers_503(
    ask: Asker, harm: Callable[[Path], None], reason: str
) -> None:
    run_id = await ask.start(workflow="sum", inputs={"a": 1})
    harm(_database(ask).with_name("test.db-wal"))
    ready = await ask("GET", "/readyz")
    assert (ready.status, ready.body) == (503, {"ready": False, "reasons": [reason]})
    for _ in range(3):
        assert (await ask("POST", "/api/v1/runs", {"workflow": "sum", "inputs": {"a": 1}})).status == 503
        assert (await ask("GET", f"/api/v1/runs/{run_id}")).status in (200, 503)


async def test_an_idle_server_saves_what_is_only_in_a_log_that_was_removed(tmp_path: Path) -> None:
    """No request and no commit tells it. The kill must not lose what it had acknowledged."""
    server, database = Mortal(tmp_path / "h.db"), tmp_path / "h.db"
    await server.live()
    spec = {"name": "wait", "steps": [{"id": "go", "kind": "wait_event", "signal_key": "go"}]}
    async with aiohttp.ClientSession() as session:
        runs = [
            (await (await session.post(f"{server.address}/api/v1/runs", json={"spec": spec})).json())[
                "run_id"
            ]
            for _ in range(20)
        ]
        before = database.stat().st_mtime_ns
        Path(f"{database}-wal").unlink()
        async with asyncio.timeout(60):
            while database.stat().st_mtime_ns == before:
                await asyncio.sleep(0.05)
        async with session.get(f"{server.address}/readyz") as answer:
            assert (answer.status, (await answer.json())["reasons"]) == (503, ["store_gone"])
        await server.die()
        await server.live()
        for run_id in runs:
            async with session.get(f"{server.address}/api/v1/runs/{run_id}") as answer:
                assert answer.status == 200, "an acknowledged run is lost"
        async with session.get(f"{server.address}/readyz") as answer:
            assert answer.status == 200
    await server.die()
