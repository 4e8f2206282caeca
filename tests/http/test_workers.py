"""Workers over HTTP: being known, fetching, leases, answers, and what a key lets them do. A real server on a real socket."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import pytest

from holdfast.config import Settings
from tests.http.conftest import Answer, Asker

pytestmark = pytest.mark.anyio

PULL = {"id": "w", "services": ["work"], "kind": "pull"}
STEP: dict[str, Any] = {
    "name": "n",
    "steps": [{"id": "a", "service": "work", "input": {"x": 1}, "params": {"k": 2}}],
}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(
        db=f"sqlite:///{tmp_path / 'test.db'}", port=0, worker_lease_secs=600, worker_ttl_secs=600
    )


async def fetched(ask: Asker, **more: Any) -> dict[str, Any]:
    """The one job that there is."""
    answer = await ask("POST", "/api/v1/assignments/poll", {"worker_id": "w", "wait_secs": 30, **more})
    assert answer.status == 200, answer.body
    (job,) = answer.body["assignments"]
    return dict(job)


async def told(ask: Asker, job: dict[str, Any], what: str, **body: Any) -> Answer:
    return await ask("POST", f"/api/v1/assignments/{job['id']}/{what}", {"token": job["token"], **body})


async def test_a_worker_registers_beats_is_listed_and_leaves(ask: Asker) -> None:
    body = {"id": "w", "services": ["s", "t"], "kind": "http", "url": "http://127.0.0.1:9/"}
    made = await ask("POST", "/api/v1/workers", body)
    assert made.status == 200
    assert {**made.body, "last_heartbeat": ""} == {
        "id": "w", "url": "http://127.0.0.1:9", "services": ["s", "t"], "load": 0, "last_heartbeat": "",
        "status": "online", "type": "http", "supports_async_callback": [],
    }  # fmt: skip
    assert (await ask("POST", "/api/v1/workers/w/heartbeat", {"load": 4})).body["load"] == 4
    assert [worker["id"] for worker in (await ask("GET", "/api/v1/workers?service=t")).body["items"]] == ["w"]
    assert (await ask("GET", "/api/v1/workers?service=x")).body["items"] == []
    assert (await ask("DELETE", "/api/v1/workers/w")).status == 200
    gone = await ask("POST", "/api/v1/workers/w/heartbeat", {})
    assert (gone.status, gone.code) == (404, "not_found")


async def test_workers_are_listed_by_pages(ask: Asker) -> None:
    for number in range(5):
        await ask("POST", "/api/v1/workers", {"id": f"w{number}", "services": ["s"], "kind": "pull"})
    seen: list[str] = []
    cursor: str | None = None
    while True:
        more = f"&cursor={cursor}" if cursor else ""
        page = (await ask("GET", f"/api/v1/workers?limit=2{more}")).body
        seen += [worker["id"] for worker in page["items"]]
        cursor = page["cursor"]
        if cursor is None:
            break
    assert seen == [f"w{number}" for number in range(5)]


async def test_a_worker_that_leaves_between_two_pages_takes_no_others_along(ask: Asker) -> None:
    for number in range(4):
        await ask("POST", "/api/v1/workers", {"id": f"w{number}", "services": ["s"], "kind": "pull"})
    cursor = (await ask("GET", "/api/v1/workers?limit=2")).body["cursor"]
    await ask("DELETE", "/api/v1/workers/w1")
    rest = (await ask("GET", f"/api/v1/workers?limit=2&cursor={cursor}")).body["items"]
    assert [worker["id"] for worker in rest] == ["w2", "w3"]


async def test_what_is_no_cursor_of_a_page_of_workers_is_refused(ask: Asker) -> None:
    answer = await ask("GET", "/api/v1/workers?cursor=w1")
    assert (answer.status, answer.code) == (422, "invalid_inputs")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "w"},
        {"id": "", "services": ["s"], "kind": "pull"},
        {"id": "w", "services": [], "kind": "pull"},
        {"id": "w", "services": ["s"], "kind": "other"},
        {"id": "w", "services": ["s"], "kind": "pull", "more": 1},
    ],
)
async def test_a_registration_of_another_form_is_refused(ask: Asker, body: dict[str, Any]) -> None:
    answer = await ask("POST", "/api/v1/workers", body)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert (await ask("GET", "/api/v1/workers")).body["items"] == []


@pytest.mark.parametrize(
    "body",
    [
        {"id": "w", "services": ["s"], "kind": "http"},
        {"id": "w", "services": ["s"], "kind": "http", "url": "nonsense"},
        {"id": "w", "services": ["s\x00"], "kind": "pull"},
        {"id": "w", "services": ["s", "a\nb"], "kind": "pull"},
        {"id": "w", "services": [{"name": "a\u202eb"}], "kind": "pull"},
        {"id": "w\x1b[2J", "services": ["s"], "kind": "pull"},
        {"id": "w", "services": ["s"], "kind": "http", "url": "http://127.0.0.1:9/\x07"},
    ],
)
async def test_a_registration_that_makes_no_sense_is_refused(ask: Asker, body: dict[str, Any]) -> None:
    answer = await ask("POST", "/api/v1/workers", body)
    assert (answer.status, answer.code) == (422, "invalid_inputs")
    assert (await ask("GET", "/api/v1/workers")).body["items"] == []


async def test_a_job_goes_out_and_its_answer_comes_back(ask: Asker) -> None:
    await ask("POST", "/api/v1/workers", PULL)
    run_id = await ask.start(spec=STEP)
    job = await fetched(ask)
    expected = {
        "run_id": run_id,
        "path": "a",
        "attempt": 1,
        "service": "work",
        "input": {"x": 1},
        "params": {"k": 2},
    }
    assert {name: job[name] for name in expected} == expected
    beat = await told(ask, job, "heartbeat", progress={"done": 1, "total": 2}, load=1)
    assert (beat.status, beat.body) == (200, {"lease_secs": 600.0, "cancel": False})
    for _ in range(2):  # whoever says it twice is heard once
        answer = await told(ask, job, "complete", result=[1, 2])
        assert (answer.status, answer.body) == (200, {"accepted": True})
    view = (await ask("GET", f"/api/v1/runs/{run_id}")).body
    assert (view["status"], view["output"]) == ("completed", {"a": [1, 2]})
    late = await told(ask, job, "complete", result="other")
    assert (late.status, late.code) == (409, "superseded")


async def test_a_failure_is_reported_with_its_kind(ask: Asker) -> None:
    await ask("POST", "/api/v1/workers", PULL)
    run_id = await ask.start(spec=STEP)
    await told(ask, await fetched(ask), "complete", error="no more", error_kind="quota")
    view = (await ask("GET", f"/api/v1/runs/{run_id}")).body
    assert (view["status"], view["error"]["kind"], view["error"]["message"]) == ("failed", "quota", "no more")


@pytest.mark.parametrize("answer", [{}, {"result": 1, "error": "x"}, {"error": ""}, {"result": 1, "x": 2}])
async def test_an_answer_that_says_nothing_or_both_is_refused(ask: Asker, answer: dict[str, Any]) -> None:
    await ask("POST", "/api/v1/workers", PULL)
    await ask.start(spec=STEP)
    refused = await told(ask, await fetched(ask), "complete", **answer)
    assert (refused.status, refused.code) == (400, "invalid_request")


async def test_a_job_whose_worker_falls_silent_is_given_to_another(ask: Asker) -> None:
    await ask("POST", "/api/v1/workers", PULL)
    await ask("POST", "/api/v1/workers", {**PULL, "id": "v"})
    run_id = await ask.start(spec=STEP)
    ask.serving.services.workers.assignments.lease_secs = 0.1  # of the first one
    first = await fetched(ask)
    ask.serving.services.workers.assignments.lease_secs = 600
    second = await fetched(ask, worker_id="v")
    assert (second["id"], second["attempt"]) == (first["id"], 1)
    for answer in (await told(ask, first, "complete", result=1), await told(ask, first, "heartbeat")):
        assert (answer.status, answer.code) == (409, "superseded")
    await told(ask, second, "complete", result=2)
    assert (await ask("GET", f"/api/v1/runs/{run_id}")).body["output"] == {"a": 2}


async def test_a_cancel_reaches_the_worker(ask: Asker) -> None:
    await ask("POST", "/api/v1/workers", PULL)
    run_id = await ask.start(spec=STEP)
    job = await fetched(ask)
    waiting = asyncio.create_task(
        ask("POST", "/api/v1/assignments/poll", {"worker_id": "w", "wait_secs": 30})
    )
    assert (await ask("POST", f"/api/v1/runs/{run_id}/cancel", {})).status == 200
    assert (await waiting).body == {"assignments": [], "cancel": [job["id"]]}
    assert (await told(ask, job, "heartbeat")).body["cancel"] is True
    await told(ask, job, "complete", error="stopped")
    assert (await ask("GET", f"/api/v1/runs/{run_id}")).body["status"] == "cancelled"


async def test_a_poll_by_an_unknown_worker_or_by_a_push_worker_is_refused(ask: Asker) -> None:
    nobody = await ask("POST", "/api/v1/assignments/poll", {"worker_id": "nobody"})
    assert (nobody.status, nobody.code) == (404, "not_found")
    await ask("POST", "/api/v1/workers", {**PULL, "kind": "http", "url": "http://127.0.0.1:9"})
    called = await ask("POST", "/api/v1/assignments/poll", {"worker_id": "w"})
    assert (called.status, called.code) == (400, "invalid_request")
    for limits in ({"limit": 0}, {"limit": 101}, {"wait_secs": 61}, {"wait_secs": -1}):
        assert (await ask("POST", "/api/v1/assignments/poll", {"worker_id": "w", **limits})).status == 400


async def test_an_answer_of_many_megabytes_is_taken(ask: Asker) -> None:
    await ask("POST", "/api/v1/workers", PULL)
    run_id = await ask.start(spec=STEP)
    job = await fetched(ask)
    answer = io.BytesIO(b'{"token":"%b","result":"%b"}' % (job["token"].encode(), b"x" * 10_000_000))
    headers = {"Content-Type": "application/json"}
    accepted = await ask("POST", f"/api/v1/assignments/{job['id']}/complete", data=answer, headers=headers)
    assert accepted.status == 200
    assert len((await ask("GET", f"/api/v1/runs/{run_id}")).body["output"]["a"]) == 10_000_000


# ------------------------------------------------------------------------------------------------------- with keys


@pytest.fixture
async def keys(ask: Asker) -> dict[str, dict[str, str]]:
    """Headers by who asks; from the first key on, the server is guarded."""

    async def made(name: str, **more: Any) -> dict[str, str]:
        headers = {"headers": admin} if admin else {}
        answer = await ask("POST", "/api/v1/keys", {"name": name, **more}, **headers)
        assert answer.status == 201, answer.body
        return {"Authorization": f"Bearer {answer.body['key']}"}

    admin: dict[str, str] = {}
    admin = await made("admin", scopes=["admin", "run", "read", "worker"])
    return {
        "admin": admin,
        "one": await made("one", scopes=["worker"]),
        "two": await made("two", scopes=["worker"]),
        "limited": await made("limited", scopes=["worker"], services=["else"]),
        "reader": await made("reader", scopes=["read"]),
        "other": await made("other", scopes=["worker", "read"], tenant="other"),
    }


async def test_a_worker_needs_a_worker_key_for_its_services(
    ask: Asker, keys: dict[str, dict[str, str]]
) -> None:
    async def status(who: str, body: dict[str, Any]) -> int:
        return (await ask("POST", "/api/v1/workers", body, headers=keys.get(who, {}))).status

    assert await status("nobody", PULL) == 401
    assert await status("reader", PULL) == 403
    assert await status("limited", PULL) == 403
    assert await status("limited", {**PULL, "id": "v", "services": ["else"]}) == 200
    assert await status("one", PULL) == 200
    assert await status("two", PULL) == 403, "the name of a living worker is taken by another key"
    private = {"id": "p", "services": ["s"], "kind": "http", "url": "http://127.0.0.1:9"}
    assert await status("one", private) == 403, "no network was allowed, and a key opens none"


async def test_another_key_is_not_this_worker(ask: Asker, keys: dict[str, dict[str, str]]) -> None:
    await ask("POST", "/api/v1/workers", PULL, headers=keys["one"])
    for path, body in (
        ("/api/v1/workers/w/heartbeat", {}),
        ("/api/v1/assignments/poll", {"worker_id": "w"}),
    ):
        assert (await ask("POST", path, body, headers=keys["two"])).status == 403
        assert (await ask("POST", path, body, headers=keys["other"])).status == 404
    assert (await ask("DELETE", "/api/v1/workers/w", headers=keys["two"])).status == 403
    assert (await ask("GET", "/api/v1/workers", headers=keys["other"])).body["items"] == []
    assert (await ask("DELETE", "/api/v1/workers/w", headers=keys["admin"])).status == 200


async def test_a_job_is_not_for_another_tenant(ask: Asker, keys: dict[str, dict[str, str]]) -> None:
    await ask("POST", "/api/v1/workers", PULL, headers=keys["one"])
    await ask("POST", "/api/v1/workers", PULL, headers=keys["other"])
    await ask("POST", "/api/v1/runs", {"spec": STEP}, headers=keys["admin"])
    poll = {"worker_id": "w"}
    assert (await ask("POST", "/api/v1/assignments/poll", poll, headers=keys["other"])).body[
        "assignments"
    ] == []
    (job,) = (
        await ask("POST", "/api/v1/assignments/poll", {**poll, "wait_secs": 30}, headers=keys["one"])
    ).body["assignments"]
    place, body = f"/api/v1/assignments/{job['id']}/complete", {"token": job["token"], "result": 1}
    assert (await ask("POST", place, body, headers=keys["other"])).status == 404
    assert (await ask("POST", place, body, headers=keys["one"])).status == 200


async def test_a_key_for_some_services_fetches_no_others_whichever_worker_it_polls_as(ask: Asker) -> None:
    await ask("POST", "/api/v1/workers", {**PULL, "services": ["work", "else"]})  # before there was a key
    await ask.start(spec=STEP)
    made = await ask.serving.services.api_keys.create("default", "limited", ["worker"], services=["else"])
    headers = {"Authorization": f"Bearer {made.key}"}
    answer = await ask("POST", "/api/v1/assignments/poll", {"worker_id": "w"}, headers=headers)
    assert (answer.status, answer.body["assignments"]) == (200, [])
