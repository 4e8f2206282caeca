"""A stored schedule that cannot be read is set aside: the server and the other schedules are not affected."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast.config import Settings
from holdfast.http.serve import serving

pytestmark = pytest.mark.anyio

ECHO = {"name": "echo", "steps": [{"id": "s", "tool": "echo", "args": {"value": 1}}]}


async def test_a_server_starts_beside_a_webhook_that_cannot_be_read(tmp_path: Path) -> None:
    settings = Settings(db=f"sqlite:///{tmp_path / 'h.db'}", port=0)
    async with serving(settings) as server, aiohttp.ClientSession(server.address) as session:
        assert await _status(session, "POST", "/api/v1/workflows", ECHO) == 200
        for name in ("a", "b"):
            hook: dict[str, Any] = {
                "workflow": "echo",
                "trigger": {"kind": "webhook", "path": f"/hooks/{name}"},
            }
            assert await _status(session, "PUT", f"/api/v1/schedules/{name}", hook) == 201
    with closing(sqlite3.connect(tmp_path / "h.db")) as damaged, damaged:
        damaged.execute("UPDATE schedule SET body = substr(body, 1, 20) WHERE id = 'a'")
    async with serving(settings) as server, aiohttp.ClientSession(server.address) as session:
        assert await _status(session, "POST", "/hooks/a", {}) == 404
        assert await _status(session, "POST", "/hooks/b", {}) == 202


async def _status(session: aiohttp.ClientSession, method: str, path: str, body: Any) -> int:
    async with session.request(method, path, json=body) as answer:
        return answer.status
