"""A guarded server: every route asks for a key of the right scope, and shows nothing of another tenant's.

The table of routes is walked, so that a new one is looked at without anybody thinking of it.
"""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import apsw
import msgspec
import pytest

from holdfast import Context, tool
from holdfast.cli.logs import AsJson
from holdfast.config import Settings
from holdfast.http.routes.docs import with_docs
from holdfast.http.serve import ROUTES, serving
from holdfast.http.table import SCOPES, Route
from holdfast.runtime.engine import Engine
from holdfast.spec.schedule import schedule_from_data
from holdfast.store.batch import Batch
from holdfast.store.records import CallbackDeliveryTried
from holdfast.store.schedule_records import Firing, LedgerEntry, NewCursor, ScheduleRow
from holdfast.tools.guard import Guard
from holdfast.tools.registry import Registry
from holdfast.values import Millis
from tests import forks

BOOTSTRAP = "bootstrap-key-of-this-test"
WORKER = Path(__file__).with_name("push_worker.py")
EVERY = with_docs(ROUTES)

# What anybody may ask without a key, by name: a new open route must be put here by somebody who means it.
OPEN = {
    "/healthz",
    "/readyz",
    "/openapi.json",
    "/docs",
    "/docs.css",
    "/docs.js",
    "/approve.css",
    "/",
    "/ui",
    "/ui/",
}
# the web page, which contains no data
PAGE = {"/ui/{screen}", "/ui/{screen}/{a}", "/ui/{screen}/{a}/{b}", "/ui/assets/{hash}/{name}"}
# What carries its own proof, a signature or an address that only we can have given out.
PROVES_ITSELF = {"/workflows/resume", "/workflows/resume/{capability}", "/approve/{capability}"}
# POSTs that change nothing: they examine the definition in the body, which is too large for a query.
EFFECT_FREE = {"/api/v1/validate", "/api/v1/plan"}

NEVER = 2**52  # milliseconds
SERVER_WIDE = {"/metrics", "/api/v1/nodes"}  # tells of all tenants together: for keys of the tenant default
STREAMS = {"/api/v1/events"}  # without end: looked at by a test of its own

GRAPH = {
    "name": "acme-secret",
    "start": "job",
    "nodes": {
        "job": {"kind": "executor", "service": "acme-work", "timeout_ms": 0},
        "wait": {"kind": "timer", "params": {"delay_ms": 3_600_000}},
    },
    "edges": [{"from": "job", "action": "default", "to": "wait"}],
}
STEPS = {"name": "acme-file", "steps": [{"id": "make", "tool": "make"}]}
MINE = {"name": "mine", "steps": [{"id": "make", "tool": "make"}]}


@tool
def make(context: Context) -> dict[str, Any]:
    (context.workdir / "f.txt").write_text("of acme")
    return {"file_refs": [{"path": "f.txt"}]}


class Answer(NamedTuple):
    status: int
    text: str
    headers: Any

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class World:
    """A guarded server on which the tenant `acme` has one of everything, and `other` a key for all scopes."""

    def __init__(self, address: str, file: Path, session: aiohttp.ClientSession) -> None:
        self.address, self.file, self._session = address, file, session
        self.ids: dict[str, str] = {}

    async def ask(self, method: str, path: str, key: str | None = None, **rest: Any) -> Answer:
        headers = {**rest.pop("headers", {}), **({"Authorization": f"Bearer {key}"} if key else {})}
        asked = self._session.request(
            method, self.address + path, headers=headers, allow_redirects=False, **rest
        )
        async with asyncio.timeout(120), asked as answer:
            return Answer(answer.status, await answer.text(), answer.headers)

    async def made(self, path: str, key: str, body: Any) -> Any:
        answer = await self.ask("POST", path, key, json=body)
        assert answer.status < 300, answer
        return answer.json

    async def key(self, tenant: str, *scopes: str, **more: Any) -> str:
        body = {"name": "k", "scopes": scopes, "tenant": tenant, **more}
        made = await self.made("/api/v1/keys", BOOTSTRAP, body)
        self.ids[f"key of {tenant}"] = made["id"]
        return str(made["key"])

    async def furnish(self) -> None:
        acme = await self.key("acme", "admin")
        released = await self.made("/api/v1/workflows", acme, GRAPH)
        worker = {"id": "acme-worker", "kind": "pull", "services": ["acme-work"]}
        await self.made("/api/v1/workers", acme, worker)
        run = await self.made(
            "/api/v1/runs", acme, {"workflow": "acme-secret", "inputs": {"mark": "acme-input"}}
        )
        fetched = await self.made(
            "/api/v1/assignments/poll", acme, {"worker_id": "acme-worker", "wait_secs": 20}
        )
        (job,) = fetched["assignments"]
        told = {"spec": STEPS, "wait_secs": 20, "final_callback_url": "https://127.0.0.1/acme-callback"}
        filed = await self.made("/api/v1/runs", acme, told)
        (reference,) = filed["output"]["make"]["file_refs"]
        self.ids |= {
            "flow": released["flow_id"],
            "release": released["id"],
            "version": released["version"],
            "run": run["run_id"],
            "file run": filed["run_id"],
            "assignment": job["id"],
            "token": job["token"],
            "artefact": reference["uri"].rpartition("/")[2],
        }

    async def let_die(self, engine: Engine) -> None:
        """Let the end of a run of acme's be what nobody took."""
        await engine.outbox.rests()
        (delivery,) = await engine.store.callback_deliveries_due(Millis(NEVER), (), None, 2)
        batch = Batch()
        batch.tried.append(
            CallbackDeliveryTried(
                delivery.tries, delivery.due_at, delivery.due_at, "dead", delivery.last_error, delivery.pos
            )
        )
        await engine.gate.commit(batch)
        self.ids["delivery"] = delivery.id

    async def schedule(self, engine: Engine) -> None:
        """Let acme have a schedule that is not due for a long time, and something in its ledger."""
        data = {
            "id": "acme-schedule",
            "workflow": "acme-secret",
            "trigger": {"kind": "interval", "every": "366d"},
        }
        spec, now = schedule_from_data(data), engine.clock.now()
        where, at = ("acme", spec.id, "acme-occurrence"), Millis(now)
        batch = Batch()
        body = spec.canonical().decode()
        batch.schedules.append(ScheduleRow(*where[:2], "interval", "api", "", 1_000, at, at, body))
        cursor = NewCursor(*where[:2], "", 0, None, False, json.dumps({"registered_at": now, "at": now}))
        entry = LedgerEntry(*where[:2], "", where[2], "skipped", "missed", at, None, 1, at)
        batch.firings += [Firing(cursor=cursor), Firing((entry,))]
        await engine.gate.commit(batch)
        self.ids["schedule"] = spec.id

    # ------------------------------------------------------------------------------------------------ what is asked

    def path_of(self, route: Route) -> str:
        """The route's path, naming what is acme's."""
        ids, path = self.ids, route.path
        for place, name in (
            ("/runs/{id}", ids["run"]),
            ("/keys/{id}", ids["key of acme"]),
            ("/dead-letters/{id}", ids["delivery"]),
            ("/workers/{id}", "acme-worker"),
            ("/assignments/{id}", ids["assignment"]),
            ("/schedules/{id}", ids["schedule"]),
        ):
            path = path.replace(place, place.replace("{id}", name))
        path = (
            path.replace("{name}", "acme-secret")
            .replace("{number}", "1")
            .replace("{sha256}", ids["artefact"])
            .replace("{path}", "wait")
            .replace("{hash}", ids["version"])
        )
        assert "{" not in path, f"say here what of acme's stands in {route.path}"
        return path

    def rest_of(self, route: Route) -> dict[str, Any]:
        """A body and a query that name what is acme's wherever something is named, and are right otherwise."""
        ids, plain = (
            self.ids,
            route.path.removeprefix("/api/v1").removeprefix("/api").removeprefix("/workers"),
        )
        signal = {"task_id": ids["run"], "key": "k", "value": 1}
        bodies: dict[str, Any] = {
            "/workflows": MINE,
            "/workflows/{name}/rollback": {"number": 1},
            "/runs": {"workflow": "acme-secret"},
            "/runs/bulk": {"action": "cancel", "filter": {"label": ["acme"], "status": ["waiting"]}},
            "/runs/{id}/signals": {"key": "k"},
            "/runs/{id}/approvals/{path}": {"approved": True},
            "/keys": {"name": "k", "scopes": ["read"]},
            "/assignments/poll": {"worker_id": "acme-worker"},
            "/assignments/{id}/heartbeat": {"token": ids["token"]},
            "/assignments/{id}/complete": {"token": ids["token"], "result": 1},
            "/flows": {"name": "mine"},
            "/flows/version": {"flow_id": ids["flow"], "definition": GRAPH},
            "/tasks": {"flow_id": ids["flow"]},
            "/tasks/signal": signal,
            "/register": {"id": "mine", "url": "http://127.0.0.1:9", "services": ["mine"]},
            "": {"id": "mine", "kind": "pull", "services": ["mine"]},  # /api/v1/workers
            "/heartbeat": {"id": "acme-worker"},
            "/schedules/{id}": {"workflow": "mine", "trigger": {"kind": "interval", "every": "366d"}},
            "/schedules/{id}/redeliver": {"delivery": "acme-occurrence"},
            "/validate": {"spec": MINE},
            "/plan": {"workflow": "acme-secret"},
            "/schedules/{id}/backfill": {"from": "2026-01-01", "to": "2026-01-02"},
        }
        queries: dict[str, dict[str, str]] = {
            "/workflows/{name}/diff": {"from": "1", "to": "1"},
            "/tasks/get": {"id": ids["run"]},
            "/tasks/cancel": {"id": ids["run"]},
            "/tasks/runs": {"task_id": ids["run"]},
            "/list": {"service": "acme-work"},
            "/allocate": {"service": "acme-work"},
        }
        rest: dict[str, Any] = {}
        if route.method in ("POST", "PUT"):
            rest["json"] = bodies.get(plain, {})
        if plain in queries:
            rest["params"] = queries[plain]
        return rest

    # ------------------------------------------------------------------------------------------------ what is there

    def rows(self, tenant: str | None = None) -> dict[str, list[Any]]:
        """All that the file holds, or what of it is a tenant's; but for when keys were used."""
        db = apsw.Connection(str(self.file), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            found = {}
            for (table,) in list(db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")):
                columns = [name for _, name, *_ in db.execute(f"PRAGMA table_info({table})")]
                kept = ", ".join(f'"{name}"' for name in columns if name != "last_used_at")
                where = " WHERE tenant = ?" if tenant and "tenant" in columns else ""
                if tenant and "run" in columns and "tenant" not in columns:
                    where = " WHERE run IN (SELECT no FROM run WHERE tenant = ?)"
                if where or not tenant:
                    found[table] = list(
                        db.execute(f"SELECT {kept} FROM {table}{where}", (tenant,) if where else ())
                    )
            return found
        finally:
            db.close()


@pytest.fixture
async def world(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    networks: tuple[str, ...] = getattr(request, "param", ())
    file = tmp_path / "h.db"
    settings = Settings(
        db=f"sqlite:///{file}", port=0, key=BOOTSTRAP, worker_ttl_secs=3_600, worker_lease_secs=3_600
    )
    async with (
        serving(settings, registry=Registry([make], guard=Guard(allowed=networks))) as server,
        aiohttp.ClientSession() as session,
    ):
        world = World(server.address, file, session)
        await world.furnish()
        await world.let_die(server.services.engine)
        await world.schedule(server.services.engine)
        yield world


def named(route: Route) -> str:
    return f"{route.method} {route.path}"


# --------------------------------------------------------------------------------------------------------- the table


@pytest.mark.parametrize("route", EVERY, ids=named)
def test_every_route_declares_a_scope_or_is_open_by_name(route: Route) -> None:
    if route.scope is None:
        assert route.path in OPEN | PROVES_ITSELF | PAGE
    else:
        assert route.scope in SCOPES
        assert route.path not in OPEN | PAGE


def test_nothing_that_changes_anything_is_for_readers() -> None:
    others = PROVES_ITSELF | EFFECT_FREE
    changing = [route for route in EVERY if route.method != "GET" and route.path not in others]
    assert [named(route) for route in changing if route.scope in ("read", None)] == []


@pytest.mark.parametrize("path", ["/api/v1/keys", "/api/v1/keys/{id}"])
def test_keys_are_for_admins_alone(path: str) -> None:
    assert {route.scope for route in EVERY if route.path == path} == {"admin"}


# ---------------------------------------------------------------------------------------------------- keys and scopes


@pytest.mark.anyio
async def test_without_a_key_every_route_answers_401_and_changes_nothing(world: World) -> None:
    before, wrong = world.rows(), {}
    for route in EVERY:
        if route.scope is None:
            continue
        for key in (None, "hf_wrong"):
            answer = await world.ask(route.method, world.path_of(route), key, **world.rest_of(route))
            if (answer.status, answer.headers.get("WWW-Authenticate")) != (401, "Bearer"):
                wrong[named(route)] = answer
    assert wrong == {}
    assert world.rows() == before


@pytest.mark.anyio
async def test_open_routes_answer_without_a_key(world: World) -> None:
    found = {path: (await world.ask("GET", path)).status for path in OPEN}
    assert found == dict.fromkeys(OPEN, 200)


@pytest.mark.anyio
async def test_with_every_scope_but_the_right_one_every_route_answers_403_and_changes_nothing(
    world: World,
) -> None:
    keys = {
        scope: await world.key("acme", *(one for one in SCOPES if one not in (scope, "admin")))
        for scope in SCOPES
    }
    before, wrong = world.rows(), {}
    for route in EVERY:
        if route.scope is None:
            continue
        answer = await world.ask(
            route.method, world.path_of(route), keys[route.scope], **world.rest_of(route)
        )
        if answer.status != 403 or f"'{route.scope}'" not in answer.json["message"]:
            wrong[named(route)] = answer
    assert wrong == {}
    assert world.rows() == before


@pytest.mark.anyio
async def test_a_post_that_is_for_readers_answers_them_and_changes_nothing(world: World) -> None:
    reader = await world.key("acme", "read")
    before = world.rows()
    for route in EVERY:
        if route.path in EFFECT_FREE:
            rest = {**world.rest_of(route), "headers": {"Idempotency-Key": "one"}}
            assert (await world.ask(route.method, route.path, reader, **rest)).status == 200, named(route)
    assert world.rows() == before


@pytest.mark.anyio
async def test_a_revoked_key_is_refused_at_once(world: World) -> None:
    key = await world.key("acme", "read")
    assert (await world.ask("GET", "/api/v1/runs", key)).status == 200
    revoked = await world.ask(
        "DELETE", f"/api/v1/keys/{world.ids['key of acme']}", BOOTSTRAP, params={"tenant": "acme"}
    )
    assert revoked.json["revoked_at"] is not None
    assert (await world.ask("GET", "/api/v1/runs", key)).status == 401


@pytest.mark.anyio
async def test_a_stream_tells_nothing_more_once_its_key_is_revoked(world: World) -> None:
    key = await world.key("acme", "read")
    run = f"{world.address}/api/v1/runs/{world.ids['run']}/events"
    async with world._session.get(run, headers={"Authorization": f"Bearer {key}"}) as stream:
        await stream.content.readuntil(b"data: ")  # it tells what was
        path, query = f"/api/v1/keys/{world.ids['key of acme']}", {"tenant": "acme"}
        assert (await world.ask("DELETE", path, BOOTSTRAP, params=query)).status == 200
        acme = await world.key("acme", "run")
        await world.made(f"/api/v1/runs/{world.ids['run']}/cancel", acme, {"reason": "told to nobody"})
        rest = await asyncio.wait_for(stream.content.read(), 60)
    assert b"unauthorised" in rest
    assert b"workflow_terminal" not in rest


@pytest.mark.anyio
async def test_who_waits_for_jobs_gets_none_once_the_key_is_revoked(world: World) -> None:
    acme, key = await world.key("acme", "run"), await world.key("acme", "worker")
    await world.made("/api/v1/workers", key, {"id": "waiting", "kind": "pull", "services": ["more-work"]})
    waits = {"worker_id": "waiting", "wait_secs": 20}
    polling = asyncio.ensure_future(world.ask("POST", "/api/v1/assignments/poll", key, json=waits))
    path, query = f"/api/v1/keys/{world.ids['key of acme']}", {"tenant": "acme"}
    assert (await world.ask("DELETE", path, BOOTSTRAP, params=query)).status == 200
    step = {"id": "s", "service": "more-work"}
    await world.made("/api/v1/runs", acme, {"spec": {"name": "more", "steps": [step]}})
    assert (await polling).status == 401


# ------------------------------------------------------------------------------------------------------------ tenants


def names_an_object(route: Route) -> bool:
    """Does the request that is asked here name something of acme's, so that it must not be found?"""
    plain = route.path.removeprefix("/api/v1").removeprefix("/api")
    by_body = {"/runs", "/plan", "/assignments/poll", "/tasks", "/flows/version", "/tasks/signal", "/tasks/cancel",
               "/heartbeat", "/workers/heartbeat"}  # fmt: skip
    by_query = {"/tasks/get", "/tasks/runs"}
    if route.method == "PUT":
        return False  # what is not there is made, and is the caller's own
    return "{" in route.path or plain in (by_body if route.method == "POST" else by_query)


@pytest.mark.anyio
async def test_another_tenants_things_are_not_found_and_stay_as_they_are(world: World) -> None:
    other = await world.key("other", "admin")
    before, wrong = world.rows("acme"), {}
    assert before["run"] and before["journal"] and before["assignment"] and before["worker"]
    for route in EVERY:
        if route.scope is not None and names_an_object(route):
            answer = await world.ask(route.method, world.path_of(route), other, **world.rest_of(route))
            if answer.status != 404:
                wrong[named(route)] = answer
    assert wrong == {}
    assert world.rows("acme") == before


@pytest.mark.anyio
async def test_a_schedule_of_the_same_id_is_another_one_for_another_tenant(world: World) -> None:
    other = await world.key("other", "admin")
    before = world.rows("acme")
    path = f"/api/v1/schedules/{world.ids['schedule']}"
    mine = {"workflow": "mine", "trigger": {"kind": "interval", "every": "366d"}}
    assert (await world.ask("PUT", path, other, json=mine)).status == 201
    assert (await world.ask("GET", f"{path}/ledger", other)).json["items"] == []
    assert (await world.ask("DELETE", path, other)).json["workflow"] == "mine"
    assert world.rows("acme") == before


@pytest.mark.anyio
async def test_what_is_not_found_is_told_as_if_it_had_never_been(world: World) -> None:
    """The same words for what another has and for what nobody has, but for the name that was asked for."""
    other = await world.key("other", "admin")
    told, never = {}, {}
    for route in EVERY:
        if route.scope is None or not names_an_object(route) or route.method == "DELETE":
            continue
        answer = await world.ask(route.method, world.path_of(route), other, **world.rest_of(route))
        told[named(route)] = (answer.status, _without(answer.text, world))
    for what in ("run", "flow", "token", "artefact", "delivery", "schedule"):
        world.ids[what] = world.ids[what][:-4] + "0000"
    world.ids["assignment"] = "asg-" + base64.urlsafe_b64encode(b'[9999,"job",1]').decode().rstrip("=")
    for route in EVERY:
        if named(route) in told:
            answer = await world.ask(route.method, world.path_of(route), other, **world.rest_of(route))
            never[named(route)] = (answer.status, _without(answer.text, world))
    assert told == never


def _without(text: str, world: World) -> str:
    for name in sorted(world.ids.values(), key=len, reverse=True):  # one may be part of another
        text = text.replace(name, "…")
    return text


@pytest.mark.anyio
@pytest.mark.parametrize("world", [("127.0.0.0/8",)], indirect=True)
async def test_lists_and_answers_for_others_show_nothing_of_a_tenant(world: World) -> None:
    other = await world.key("other", "admin")
    before, seen = world.rows("acme"), {}
    marks = [
        *world.ids.values(),
        "acme-worker",
        "acme-secret",
        "acme-work",
        "acme-input",
        "acme-file",
        "acme-occurrence",
    ]
    marks.remove(world.ids["key of other"])
    for route in EVERY:
        if route.scope is None or names_an_object(route) or route.path in STREAMS:
            continue
        answer = await world.ask(route.method, route.path, other, **world.rest_of(route))
        sent = json.dumps(world.rest_of(route))
        leaks = [mark for mark in marks if mark in answer.text and mark not in sent]
        wanted = (403,) if route.path in SERVER_WIDE else (200, 201, 503)
        if leaks or answer.status not in wanted:
            seen[named(route)] = (leaks, answer)
    assert seen == {}
    assert world.rows("acme") == before


@pytest.mark.anyio
async def test_the_stream_of_all_events_has_those_of_ones_own_tenant_alone(world: World) -> None:
    other = await world.key("other", "admin")
    mine = await world.made("/api/v1/runs", other, {"spec": MINE, "wait_secs": 20})
    runs = set()
    async with world._session.get(
        f"{world.address}/api/v1/events?from=0", headers={"Authorization": f"Bearer {other}"}
    ) as stream:
        assert stream.status == 200
        async for line in stream.content:
            if line.startswith(b"data: "):
                event = json.loads(line.removeprefix(b"data: "))
                runs.add(event["workflow_id"])
                if event["detail"]["kind"] == "workflow_terminal":
                    break
    assert runs == {mine["run_id"]}


@pytest.mark.anyio
async def test_two_tenants_may_use_the_same_names_and_request_ids(world: World) -> None:
    other = await world.key("other", "admin")
    acme = await world.key("acme", "admin")
    for key in (other, acme):
        await world.made("/api/v1/workflows", key, {**MINE, "name": "same"})
    asked = {"workflow": "same", "request_id": "one", "wait_secs": 20}
    of_other, of_acme = [await world.made("/api/v1/runs", key, asked) for key in (other, acme)]
    assert of_other["run_id"] != of_acme["run_id"]
    assert (await world.ask("GET", f"/api/v1/runs/{of_acme['run_id']}", other)).status == 404


@pytest.mark.anyio
async def test_an_idempotency_key_of_another_tenant_brings_no_answer_of_theirs(world: World) -> None:
    other, acme = await world.key("other", "admin"), await world.key("acme", "admin")
    header = {"Idempotency-Key": "same"}
    made = [
        (await world.ask("POST", "/api/v1/workflows", key, json=MINE, headers=header)).json["id"]
        for key in (acme, other, acme, other)
    ]
    assert made[0] == made[2] != made[1] == made[3]


@pytest.mark.anyio
async def test_only_an_admin_of_default_looks_after_keys_of_other_tenants(world: World) -> None:
    other = await world.key("other", "admin")
    wanted = {"name": "k", "scopes": ["admin"], "tenant": "acme"}
    before = world.rows("acme")
    assert (await world.ask("POST", "/api/v1/keys", other, json=wanted)).status == 403
    assert (await world.ask("GET", "/api/v1/keys", other, params={"tenant": "acme"})).status == 403
    path = f"/api/v1/keys/{world.ids['key of acme']}"
    assert (await world.ask("DELETE", path, other, params={"tenant": "acme"})).status == 403
    assert world.rows("acme") == before
    listed = await world.ask("GET", "/api/v1/keys", BOOTSTRAP, params={"tenant": "acme"})
    assert [key["tenant"] for key in listed.json["items"]] == ["acme"]


# ------------------------------------------------------------------------------------------------------- worker keys


@pytest.mark.anyio
@pytest.mark.parametrize("world", [("127.0.0.0/8",)], indirect=True)
async def test_a_worker_key_serves_only_what_it_was_made_for(world: World) -> None:
    key = await world.key("acme", "worker", services=["sum"])
    allowed = {"id": "w", "url": "http://127.0.0.1:9", "services": ["sum"]}
    for path in ("/workers/register", "/api/v1/workers"):
        refused = await world.ask("POST", path, key, json={**allowed, "services": ["sum", "acme-work"]})
        assert refused.status == 403
        assert "acme-work" in refused.json["message"]
        assert (await world.ask("POST", path, key, json=allowed)).status == 200


@pytest.mark.anyio
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9",
        "http://localhost:9",
        "http://169.254.169.254",
        "http://[::1]:9",
        "https://10.0.0.1",
    ],
)
async def test_a_worker_key_does_not_open_the_private_network_of_the_server(world: World, url: str) -> None:
    key = await world.key("acme", "worker")
    for path in ("/workers/register", "/register", "/api/v1/workers"):
        refused = await world.ask("POST", path, key, json={"id": "w", "url": url, "services": ["sum"]})
        assert refused.status == 403
        assert "not a public address" in refused.json["message"]
        assert "--allow-networks" in refused.json["message"]
    assert [worker for worker in world.rows("acme")["worker"] if "sum" in str(worker)] == []


@pytest.mark.anyio
@pytest.mark.parametrize("world", [("127.0.0.0/8",)], indirect=True)
async def test_a_worker_may_stand_in_a_private_network_that_the_operator_allows(world: World) -> None:
    key, acme = await world.key("acme", "worker", services=["sum"]), await world.key("acme", "admin")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(WORKER), world.address, "private", "sum"),
        env={**os.environ, "WORKER_KEY": key},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    await asyncio.wait_for(process.stdout.readline(), 120)
    graph = {
        "name": "adds",
        "start": "s",
        "nodes": {"s": {"kind": "executor", "service": "sum", "prep": {"input_key": "$params.values"},
                        "post": {"output_key": "total"}}},
    }  # fmt: skip
    done = await world.made(
        "/api/v1/runs", acme, {"spec": graph, "inputs": {"values": [1, 2]}, "wait_secs": 30}
    )
    await process.communicate(b"")  # its standard input ends, and so does it
    assert (done["status"], done["output"]) == ("completed", {"total": 3.0})


@pytest.mark.anyio
async def test_another_key_of_the_tenant_speaks_for_no_worker_that_lives(world: World) -> None:
    key = await world.key("acme", "worker")
    assert (await world.ask("POST", "/heartbeat", key, json={"id": "acme-worker"})).status == 403
    taking = {"id": "acme-worker", "url": "http://127.0.0.1:9", "services": ["acme-work"]}
    assert (await world.ask("POST", "/register", key, json=taking)).status == 403
    assert (
        await world.ask("POST", "/api/v1/assignments/poll", key, json={"worker_id": "acme-worker"})
    ).status == 403


@pytest.mark.anyio
async def test_an_answer_with_another_token_changes_nothing(world: World) -> None:
    key = await world.key("acme", "worker")
    before = world.rows("acme")["journal"]
    path = f"/api/v1/assignments/{world.ids['assignment']}/complete"
    assert (await world.ask("POST", path, key, json={"token": "wrong", "result": 1})).status == 409
    assert world.rows("acme")["journal"] == before


# ------------------------------------------------------------------------------------------------------ host, origin


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "localhost:1", "Origin": "http://localhost:1"}, 200),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, 421),
    ],
)
@pytest.mark.parametrize("path", ["/healthz", "/docs", "/api/v1/runs", "/tasks", "/openapi.json"])
@pytest.mark.anyio
async def test_host_and_origin_are_looked_at_on_every_route_open_ones_too(
    bare: World, path: str, headers: dict[str, str], status: int
) -> None:
    assert (await bare.ask("GET", path, headers=headers)).status == status


@pytest.mark.anyio
async def test_a_page_of_another_origin_starts_nothing_in_local_mode(bare: World) -> None:
    """A form or a text/plain body needs no permission of the browser: the Origin is what gives it away."""
    for media in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
        headers = {"Origin": "https://evil.example", "Content-Type": media}
        assert (await bare.ask("POST", "/flows", data='{"name": "x"}', headers=headers)).status == 403
        body = json.dumps({"spec": MINE})
        assert (await bare.ask("POST", "/api/v1/runs", data=body, headers=headers)).status == 403
    assert bare.rows()["run"] == []
    assert bare.rows()["workflow"] == []


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncIterator[World]:
    """A server in local mode, with nothing on it."""
    file = tmp_path / "h.db"
    async with (
        serving(Settings(db=f"sqlite:///{file}", port=0), registry=Registry([make])) as server,
        aiohttp.ClientSession() as session,
    ):
        yield World(server.address, file, session)


# -------------------------------------------------------------------------------------------------------- the modes


@pytest.mark.anyio
async def test_the_first_key_guards_a_running_server_at_once(bare: World) -> None:
    assert (await bare.ask("GET", "/api/v1/runs")).status == 200
    made = await bare.ask("POST", "/api/v1/keys", json={"name": "me", "scopes": ["admin"]})
    assert made.status == 201
    assert (await bare.ask("GET", "/api/v1/runs")).status == 401
    assert (await bare.ask("GET", "/api/v1/runs", made.json["key"])).status == 200


@pytest.mark.anyio
async def test_the_first_key_also_guards_what_steps_may_call(bare: World) -> None:
    """A caller with a key must not reach the server's own network through it."""
    calls = {
        "name": "calls",
        "steps": [{"id": "c", "tool": "http_request", "args": {"url": f"{bare.address}/healthz"}}],
    }
    asked = {"spec": calls, "wait_secs": 20}
    assert (await bare.made("/api/v1/runs", "", asked))["status"] == "completed"
    key = (await bare.made("/api/v1/keys", "", {"name": "me", "scopes": ["admin"]}))["key"]
    refused = await bare.made("/api/v1/runs", key, asked)
    assert (refused["status"], refused["error"]["kind"]) == ("failed", "refused")


@pytest.mark.anyio
async def test_a_client_that_asks_too_often_learns_when_to_come_back(tmp_path: Path) -> None:
    settings = Settings(db=f"sqlite:///{tmp_path / 'h.db'}", port=0, key=BOOTSTRAP, rate_per_key=1)
    async with serving(settings) as server, aiohttp.ClientSession() as session:
        world = World(server.address, tmp_path / "h.db", session)
        answers = [await world.ask("GET", "/api/v1/runs", BOOTSTRAP) for _ in range(10)]
        refused = [answer for answer in answers if answer.status == 429]
        assert refused
        assert refused[0].headers["Retry-After"] == "1"
        assert "rate_per_key" in refused[0].json["message"]


@pytest.mark.anyio
async def test_a_key_is_not_shown_again_under_the_same_idempotency_key(bare: World) -> None:
    wanted = {"name": "me", "scopes": ["admin"]}
    made = await bare.ask("POST", "/api/v1/keys", json=wanted, headers={"Idempotency-Key": "one"})
    key = made.json["key"]
    on_disk = b"".join(path.read_bytes() for path in bare.file.parent.iterdir() if path.is_file())
    assert key.encode() not in on_disk


def test_an_address_that_others_reach_is_not_served_without_a_key(tmp_path: Path) -> None:
    found = holdfast(tmp_path, "up", "--host", "0.0.0.0", "--port", "0", "--json")
    assert found.returncode == 2
    assert json.loads(found.stdout)["error"] == "key_needed"
    assert "holdfast keys create" in found.stdout


# -------------------------------------------------------------------------------------------------------------- logs


@pytest.mark.anyio
async def test_names_with_newlines_and_colours_do_not_break_a_line_of_the_log(bare: World) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(AsJson())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    evil = 'x\n{"level":"error","message":"forged"}\x1b[31m\u2028\x00'
    try:
        await bare.ask("POST", "/flows", json={"name": evil})
        await bare.ask(
            "POST", "/register", json={"id": evil, "url": "http://127.0.0.1:9", "services": [evil]}
        )
        await bare.ask("GET", "/list", params={"service": evil})
        await bare.ask("GET", "/api/v1/runs/" + "x%0A%1B%5B31m")
        await bare.ask("GET", "/nothing%0Ahere%1B%5B31m")
        await bare.ask("GET", "/healthz", headers={"X-Request-Id": '"}{"forged'})
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    lines = written.getvalue().splitlines()
    assert len(lines) >= 5
    assert all("level" in msgspec.json.decode(line) for line in lines)
    assert "forged" not in {msgspec.json.decode(line).get("message") for line in lines}
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u2028]", written.getvalue())


# --------------------------------------------------------------------------------------------------- command line


def holdfast(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return forks.run("holdfast", words, cwd=folder, env={**plain, **env})


@pytest.mark.anyio
async def test_the_command_line_goes_through_the_server_that_has_the_file(bare: World) -> None:
    folder, db = bare.file.parent, ("--db", f"sqlite:///{bare.file}")

    async def keys(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(holdfast, folder, "keys", *words, *db, **env)

    made = await keys("create", "me", "--scope", "admin", "--json")
    key = json.loads(made.stdout)["key"]
    assert (await bare.ask("GET", "/api/v1/runs", key)).status == 200
    own = await keys(
        "list", "--json"
    )  # the owner of the file needs no key: the socket beside it is for that user alone
    assert [one["name"] for one in json.loads(own.stdout)["items"]] == ["me"]
    worker = await keys("create", "w", "--scope", "worker", "--tenant", "acme", HOLDFAST_API_KEY=key)
    assert worker.stdout.startswith("hf_")
    shown = await keys("list", "--tenant", "acme", HOLDFAST_API_KEY=key)
    assert "worker" in shown.stdout
    gone = json.loads((await keys("list", "--tenant", "acme", "--json", HOLDFAST_API_KEY=key)).stdout)[
        "items"
    ][0]
    await keys("revoke", gone["id"], "--tenant", "acme", HOLDFAST_API_KEY=key)
    assert (await bare.ask("POST", "/heartbeat", worker.stdout.strip(), json={"id": "w"})).status == 401
