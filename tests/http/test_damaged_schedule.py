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
from holdfast.ops.doctor import examine
from holdfast.store.sqlite.store import SqliteStore

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


CRON = {"workflow": "echo", "trigger": {"kind": "cron", "expression": "0 0 0 * * *"}}
DAMAGES = {
    "cut": "UPDATE schedule SET body = substr(body, 1, 20) WHERE id = 'a'",
    "list": "UPDATE schedule SET body = '[]' WHERE id = 'a'",
    "rule": "UPDATE schedule SET body = replace(body, '0 0 0 * * *', '0 9 9 9 9 x') WHERE id = 'a'",
    "cursor": "UPDATE cursor SET body = substr(body, 1, 20) WHERE schedule = 'a'",
}
NUMBERS = {
    "created_at": "UPDATE schedule SET created_at = 'then' WHERE id = 'a'",
    "created_at too large": "UPDATE schedule SET created_at = 9000000000000000000 WHERE id = 'a'",
    "updated_at": "UPDATE schedule SET updated_at = x'00ff' WHERE id = 'a'",
    "priority": "UPDATE schedule SET priority = 'first' WHERE id = 'a'",
    "next_at": "UPDATE cursor SET next_at = 'soon' WHERE schedule = 'a'",
    "failures": "UPDATE cursor SET failures = 'many' WHERE schedule = 'a'",
}


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_schedule_that_cannot_be_read_is_shown_as_such_and_can_be_replaced_or_deleted(
    tmp_path: Path, damage: str
) -> None:
    await _make_two_and_damage_one(tmp_path, DAMAGES[damage])
    store = SqliteStore(str(tmp_path / "h.db"))
    await store.open_to_read()
    findings = {one.check: one.problems for one in await examine(store)}
    await store.close()
    assert "the schedule 'a' of tenant default cannot be read" in findings["schedules can be read"][0]
    await _check_that_it_is_shown_and_replaced(tmp_path, DAMAGES[damage], pause=422)


@pytest.mark.parametrize("damage", NUMBERS)
async def test_a_schedule_whose_numbers_are_damaged_is_shown_as_such_too(tmp_path: Path, damage: str) -> None:
    await _make_two_and_damage_one(tmp_path, NUMBERS[damage])
    await _check_that_it_is_shown_and_replaced(tmp_path, NUMBERS[damage], pause=200)


async def _make_two_and_damage_one(tmp_path: Path, statement: str) -> None:
    settings = Settings(db=f"sqlite:///{tmp_path / 'h.db'}", port=0)
    async with serving(settings) as server, aiohttp.ClientSession(server.address) as session:
        assert await _status(session, "POST", "/api/v1/workflows", ECHO) == 200
        for name in ("a", "b"):
            assert await _status(session, "PUT", f"/api/v1/schedules/{name}", CRON) == 201
    with closing(sqlite3.connect(tmp_path / "h.db")) as damaged, damaged:
        damaged.execute(statement)


async def _check_that_it_is_shown_and_replaced(tmp_path: Path, damage: str, *, pause: int) -> None:
    settings = Settings(db=f"sqlite:///{tmp_path / 'h.db'}", port=0)
    async with serving(settings) as server, aiohttp.ClientSession(server.address) as session:
        async with session.get("/api/v1/schedules") as answer:
            found = {one["id"]: one["status"] for one in (await answer.json())["items"]}
        assert found == {"a": "unreadable", "b": "active"}
        for part in ("", "/next", "/why", "/ledger"):
            assert await _status(session, "GET", f"/api/v1/schedules/a{part}", None) == 200
        assert await _status(session, "GET", "/metrics", None) == 200
        assert await _status(session, "POST", "/api/v1/schedules/a/pause", {}) == pause
        if pause == 200:
            assert await _status(session, "POST", "/api/v1/schedules/a/resume", {}) == 200
        assert await _status(session, "PUT", "/api/v1/schedules/a", CRON) == 200
        async with session.get("/api/v1/schedules/a") as answer:
            assert (await answer.json())["status"] == "active"
    with closing(sqlite3.connect(tmp_path / "h.db")) as damaged, damaged:
        damaged.execute(damage)
    async with serving(settings) as server, aiohttp.ClientSession(server.address) as session:
        assert await _status(session, "DELETE", "/api/v1/schedules/a", None) == 200
        assert await _status(session, "GET", "/api/v1/schedules/a", None) == 404


async def _status(session: aiohttp.ClientSession, method: str, path: str, body: Any) -> int:
    async with session.request(method, path, json=body) as answer:
        return answer.status
