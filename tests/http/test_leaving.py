"""TERM while clients ask, listen and wait: answers end, streams say so, attempts are given back, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import aiohttp
import pytest

from holdfast.engine.codec import decode_row
from holdfast.store.sqlite.store import SqliteStore
from holdfast.values import RunId
from tests.http.sse import listening
from tests.http.test_stream_killed import Mortal

pytestmark = pytest.mark.anyio

SLOW = {
    "name": "slow",
    "steps": [{"id": "s", "tool": "pause", "args": {"secs": 3600}, "retry": {"max_attempts": 1}}],
}
QUICK = {"name": "quick", "steps": [{"id": "s", "tool": "pause", "args": {"secs": 0}}]}


async def test_a_server_that_is_asked_to_stop_leaves_in_order(tmp_path: Path) -> None:
    server = Mortal(tmp_path / "h.db")
    await server.live()
    async with aiohttp.ClientSession() as session:
        started = await session.post(f"{server.address}/api/v1/runs", json={"spec": SLOW})
        run_id = (await started.json())["run_id"]
        waits = asyncio.ensure_future(
            session.post(f"{server.address}/api/v1/runs", json={"spec": SLOW, "wait_secs": 60})
        )
        async with listening(session, f"{server.address}/api/v1/events?from=0") as reader:
            await reader.take(4)  # both have begun
            code = await server.die(signal.SIGTERM)
            assert await reader.rest() == []
        assert code == 0
        assert reader.comments == ["the server stops"]
        assert (await waits).status == 202  # told at once that it is not over, and durable

        released = await rows_of(tmp_path / "h.db", run_id)
        assert [getattr(event, "reason", "") for event in released][-1] == "stopping"

        await server.live()
        async with session.get(f"{server.address}/api/v1/runs/{run_id}") as answer:
            assert (await answer.json())["status"] == "running"
        async with session.post(
            f"{server.address}/api/v1/runs", json={"spec": QUICK, "wait_secs": 60}
        ) as answer:
            assert (await answer.json())["status"] == "completed"
    assert await server.die(signal.SIGTERM) == 0


async def rows_of(database: Path, run_id: str) -> list[object]:
    store = SqliteStore(str(database))
    await store.open_to_read()
    try:
        row = await store.run_by_id("default", RunId(run_id))
        assert row is not None
        return [decode_row(body)[0] for *_, body in await store.journal(row.no, 0, -1)]
    finally:
        await store.close()
