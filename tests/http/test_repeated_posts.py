"""Every POST takes an Idempotency-Key: repeated, it returns the first response byte for byte, also after a restart.

The table of routes is walked, so a new one has to say here how it is repeated.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from holdfast.config import Settings
from holdfast.http.serve import ROUTES, serving
from holdfast.http.table import Route

pytestmark = pytest.mark.anyio

PUBLIC = "https://flows.example.org"
ECHO = {"name": "echo", "steps": [{"id": "s", "tool": "echo", "args": {"value": 1}}]}
GATE = {"name": "gate", "steps": [{"id": "gate", "kind": "approve", "prompt": "Sure?"}]}
PENDING = {"name": "p", "steps": [{"id": "s", "tool": "echo", "args": {"value": {"pending": True, "task_id": "T"}}}]}  # fmt: skip
GRAPH = {
    "name": "graph",
    "start": "n",
    "nodes": {"n": {"kind": "timer", "params": {"delay_ms": 3_600_000}}},
    "edges": [],
}
WORKER = {"id": "w", "kind": "http", "url": "http://127.0.0.1:9", "services": ["a"]}
PULL = {"id": "w", "kind": "pull", "services": ["a"]}
CALL = {"name": "call", "steps": [{"id": "s", "service": "a", "input": {"password": "{{secrets.LOCK}}"}}]}


class Sent(NamedTuple):
    """A request, and a body that differs from its own."""

    path: str
    body: Any
    other: Any


class World:
    def __init__(self, address: str, session: aiohttp.ClientSession) -> None:
        self.address, self._session = address, session

    async def ask(
        self, method: str, path: str, body: Any = None, key: str | None = None
    ) -> tuple[int, bytes]:
        headers = {} if key is None else {"Idempotency-Key": key}
        async with self._session.request(method, self.address + path, json=body, headers=headers) as answer:
            return answer.status, await answer.read()

    async def made(self, path: str, body: Any) -> Any:
        status, text = await self.ask("POST", path, body)
        assert status < 300, text
        return json.loads(text)

    async def run(self, spec: Any, **more: Any) -> str:
        return str((await self.made("/api/v1/runs", {"spec": spec, "wait_secs": 10, **more}))["run_id"])

    async def waiting(self, spec: Any) -> str:
        return str((await self.made("/api/v1/runs", {"spec": spec}))["run_id"])


@asynccontextmanager
async def world(tmp_path: Path) -> AsyncIterator[World]:
    settings = Settings(db=f"sqlite:///{tmp_path / 'h.db'}", port=0, public_url=PUBLIC)
    async with serving(settings) as server, aiohttp.ClientSession() as session:
        yield World(server.address, session)


# --------------------------------------------------------------------------------------------- what is sent to a route


async def publish(at: World) -> Sent:
    return Sent("/api/v1/workflows", ECHO, GATE)


async def rollback(at: World) -> Sent:
    for text in ("one", "two"):
        await at.made("/api/v1/workflows", {**ECHO, "description": text})
    return Sent("/api/v1/workflows/echo/rollback", {"number": 1}, {"number": 2})


async def start(at: World) -> Sent:
    body = {"spec": ECHO, "wait_secs": 10}
    return Sent("/api/v1/runs", body, {**body, "wait_secs": 11})


async def cancel(at: World) -> Sent:
    return Sent(f"/api/v1/runs/{await at.waiting(GATE)}/cancel", {}, {"reason": "another"})


async def rerun(at: World) -> Sent:
    return Sent(f"/api/v1/runs/{await at.run(ECHO)}/rerun", {}, {"inputs": {"a": 1}})


async def bulk(at: World) -> Sent:
    body = {"action": "rerun", "filter": {"ids": [await at.run(ECHO)]}}
    return Sent("/api/v1/runs/bulk", body, {**body, "preview": True})


async def signal(at: World) -> Sent:
    path = f"/api/v1/runs/{await at.waiting(GATE)}/signals"
    return Sent(path, {"key": "k", "value": 1}, {"key": "k", "value": 2})


async def approve(at: World) -> Sent:
    path = f"/api/v1/runs/{await at.waiting(GATE)}/approvals/gate"
    return Sent(path, {"approved": True}, {"approved": False})


async def link(at: World) -> Sent:
    return Sent(f"/api/v1/runs/{await at.waiting(GATE)}/approvals/gate/links", {}, {"by": "Ada"})


async def approve_by_link(at: World) -> Sent:
    made = await at.made((await link(at)).path, {})
    return Sent(str(made["url"]).removeprefix(PUBLIC), {"approved": True}, {"approved": False})


async def register(at: World) -> Sent:
    return Sent("/api/v1/workers", WORKER, {**WORKER, "services": ["b"]})


async def resume(at: World) -> Sent:
    await at.run(PENDING)
    return Sent("/workflows/resume", {"task_id": "T", "result": 1}, {"task_id": "T", "result": 2})


async def flow_of_tasks(at: World) -> str:
    return str((await at.made("/flows", {"name": "graph"}))["id"])


async def new_flow(at: World) -> Sent:
    return Sent("/flows", {"name": "a"}, {"name": "b"})


async def new_version(at: World) -> Sent:
    body = {"flow_id": await flow_of_tasks(at), "definition": GRAPH}
    return Sent("/flows/version", body, {**body, "definition": {**GRAPH, "description": "another"}})


async def task(at: World) -> Sent:
    version = await new_version(at)
    await at.made(version.path, version.body)
    body = {"flow_id": version.body["flow_id"]}
    return Sent("/tasks", body, {**body, "params": {"a": 1}})


async def task_id(at: World) -> str:
    made = await task(at)
    return str((await at.made(made.path, made.body))["id"])


async def cancel_task(at: World) -> Sent:
    return Sent(f"/tasks/cancel?id={await task_id(at)}", {}, {"another": 1})


async def signal_task(at: World) -> Sent:
    body = {"task_id": await task_id(at), "key": "k", "value": 1}
    return Sent("/tasks/signal", body, {**body, "value": 2})


async def register_by_seed(at: World) -> Sent:
    return Sent("/register", WORKER, {**WORKER, "services": ["b"]})


async def heartbeat_by_seed(at: World) -> Sent:
    await at.made("/register", WORKER)
    return Sent("/heartbeat", {"id": "w"}, {"id": "w", "load": 1})


async def schedule(at: World) -> str:
    """The address of a schedule that is not due for a long time."""
    await at.made("/api/v1/workflows", ECHO)
    far = {"workflow": "echo", "trigger": {"kind": "interval", "every": "366d"}}
    status, text = await at.ask("PUT", "/api/v1/schedules/far", far)
    assert status == 201, text
    return "/api/v1/schedules/far"


async def fire(at: World) -> Sent:
    return Sent(f"{await schedule(at)}/fire", {}, {"payload": 1})


async def pause(at: World) -> Sent:
    return Sent(f"{await schedule(at)}/pause", {}, None)


async def resume_schedule(at: World) -> Sent:
    return Sent(f"{await schedule(at)}/resume", {}, {"missed": True})


async def backfill(at: World) -> Sent:
    body = {"from": "2026-01-01", "to": "2026-01-02"}
    return Sent(f"{await schedule(at)}/backfill", body, {**body, "preview": True})


async def redeliver(at: World) -> Sent:
    await at.made("/api/v1/workflows", ECHO)
    hook = {"workflow": "echo", "trigger": {"kind": "webhook", "path": "/hooks/in"}, "max_concurrent": 2}
    status, text = await at.ask("PUT", "/api/v1/schedules/in", hook)
    assert status == 201, text
    await at.made("/hooks/in", {"n": 1})
    _, listed = await at.ask("GET", "/api/v1/schedules/in/ledger")
    (delivery,) = json.loads(listed)["items"]
    return Sent(
        "/api/v1/schedules/in/redeliver", {"delivery": delivery["occurrence"]}, {"delivery": "another"}
    )


async def validate(at: World) -> Sent:
    return Sent("/api/v1/validate", ECHO, GATE)


async def plan(at: World) -> Sent:
    return Sent("/api/v1/plan", {"spec": ECHO}, {"spec": GATE})


async def worker_heartbeat(at: World) -> Sent:
    await at.made("/api/v1/workers", WORKER)
    return Sent("/api/v1/workers/w/heartbeat", {"load": 1}, {"load": 2})


async def poll(at: World) -> Sent:
    await at.made("/api/v1/workers", PULL)
    await at.waiting(CALL)
    await at.waiting(CALL)
    body = {"worker_id": "w", "wait_secs": 10}
    return Sent("/api/v1/assignments/poll", body, {**body, "limit": 2})


async def job_heartbeat(at: World) -> Sent:
    asked = await poll(at)
    (job,) = (await at.made(asked.path, asked.body))["assignments"]
    body = {"token": job["token"]}
    return Sent(f"/api/v1/assignments/{job['id']}/heartbeat", body, {**body, "load": 1})


async def complete(at: World) -> Sent:
    beat = await job_heartbeat(at)
    path = beat.path.removesuffix("heartbeat") + "complete"
    return Sent(path, {**beat.body, "result": 1}, {**beat.body, "result": 2})


SENT: dict[str, Callable[[World], Awaitable[Sent]]] = {
    "/api/v1/workflows": publish,
    "/api/v1/workflows/{name}/rollback": rollback,
    "/api/v1/runs": start,
    "/api/v1/runs/{id}/cancel": cancel,
    "/api/v1/runs/{id}/rerun": rerun,
    "/api/v1/runs/bulk": bulk,
    "/api/v1/runs/{id}/signals": signal,
    "/api/v1/runs/{id}/approvals/{path}": approve,
    "/api/v1/runs/{id}/approvals/{path}/links": link,
    "/approve/{capability}": approve_by_link,
    "/api/v1/workers": register,
    "/workflows/resume": resume,
    "/api/v1/schedules/{id}/fire": fire,
    "/api/v1/schedules/{id}/pause": pause,
    "/api/v1/schedules/{id}/resume": resume_schedule,
    "/api/v1/schedules/{id}/backfill": backfill,
    "/api/v1/schedules/{id}/redeliver": redeliver,
    "/flows": new_flow,
    "/flows/version": new_version,
    "/tasks": task,
    "/tasks/cancel": cancel_task,
    "/tasks/signal": signal_task,
    "/register": register_by_seed,
    "/heartbeat": heartbeat_by_seed,
}
# These must not write, so the responses to them are only known to the process that gave them.
UNWRITTEN: dict[str, Callable[[World], Awaitable[Sent]]] = {
    "/api/v1/workers/{id}/heartbeat": worker_heartbeat,
    "/api/v1/assignments/poll": poll,
    "/api/v1/assignments/{id}/heartbeat": job_heartbeat,
    "/api/v1/assignments/{id}/complete": complete,
    "/api/v1/validate": validate,
    "/api/v1/plan": plan,
}
ELSEWHERE = {
    "/api/v1/keys",  # below
    "/workflows/resume/{capability}",  # tests/http/test_forged.py
    "/api/v1/dead-letters/{id}/replay",  # needs a callback that was given up after three days
    "/api/v1/runs/{id}/retry",  # only for a run that crashed the process three times
}


def test_every_post_says_here_how_it_is_repeated() -> None:
    posts = {_plain(route) for route in ROUTES if route.method == "POST"}
    assert posts - SENT.keys() - ELSEWHERE - UNWRITTEN.keys() == set()


def _plain(route: Route) -> str:
    """The seeds' routes are there under two or three paths."""
    for prefix in ("/api/workers", "/workers", "/api"):
        if not route.path.startswith("/api/v1") and (rest := route.path.removeprefix(prefix)) != route.path:
            return rest
    return route.path


@pytest.mark.parametrize("route", SENT)
async def test_a_post_under_its_key_returns_the_first_response_byte_for_byte(
    tmp_path: Path, route: str
) -> None:
    async with world(tmp_path) as at:
        sent = await SENT[route](at)
        first = await at.ask("POST", sent.path, sent.body, "one")
        assert first[0] < 300, first
        assert await at.ask("POST", sent.path, sent.body, "one") == first
        assert (await at.ask("POST", sent.path, sent.other, "one"))[0] == 422
    async with world(tmp_path) as at:
        assert await at.ask("POST", sent.path, sent.body, "one") == first
        assert (await at.ask("POST", sent.path, sent.other, "one"))[0] == 422


@pytest.mark.parametrize("route", UNWRITTEN)
async def test_a_post_that_must_not_write_returns_the_first_response_and_writes_none_of_it(
    tmp_path: Path, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_SECRET_LOCK", "open-sesame-1234")
    async with world(tmp_path) as at:
        sent = await UNWRITTEN[route](at)
        first = await at.ask("POST", sent.path, sent.body, "one")
        assert first[0] == 200, first
        assert await at.ask("POST", sent.path, sent.body, "one") == first
        assert (await at.ask("POST", sent.path, sent.other, "one"))[0] == 422
        if route == "/api/v1/assignments/poll":
            assert b"open-sesame-1234" in first[1]
            assert await at.ask("POST", sent.path, sent.body, "another key") != first
    assert all(b"open-sesame" not in file.read_bytes() for file in tmp_path.iterdir() if file.is_file())


async def test_a_new_key_is_created_once_and_shown_once(tmp_path: Path) -> None:
    settings = Settings(db=f"sqlite:///{tmp_path / 'h.db'}", port=0, key="bootstrap-key-of-this-test")
    headers = {"Authorization": "Bearer bootstrap-key-of-this-test", "Idempotency-Key": "one"}
    async with serving(settings) as server, aiohttp.ClientSession(headers=headers) as session:
        address, made = f"{server.address}/api/v1/keys", []
        for _ in range(2):
            async with session.post(address, json={"name": "k", "scopes": ["read"]}) as answer:
                made.append(await answer.json())
        async with session.get(address) as answer:
            assert len((await answer.json())["items"]) == 1
        async with session.post(address, json={"name": "other", "scopes": ["read"]}) as answer:
            assert answer.status == 422
    assert made[1] == {**made[0], "key": None} and made[0]["key"]
