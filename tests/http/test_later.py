"""Workers that answer later, over their real protocols: where they are told to answer to, and what their answers do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from holdfast import tool
from holdfast.config import Settings
from holdfast.http.serve import serving
from holdfast.sdk.worker import Worker
from tests.http.conftest import Asker, Holds
from tests.http.test_stream_killed import Mortal
from tests.http.test_workers import fetched, told

pytestmark = pytest.mark.anyio

PUBLIC = "https://flows.example/base"
LATER = {"name": "work", "supports_async_callback": True}
STEP: dict[str, Any] = {"id": "a", "service": "work", "input": 1, "params": {"k": 2}}
SPEC: dict[str, Any] = {"name": "n", "steps": [STEP]}


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    db = f"sqlite:///{tmp_path / 'test.db'}"
    return Settings(db=db, port=0, public_url=PUBLIC, worker_ttl_secs=600, worker_lease_secs=600)


async def registered(ask: Asker, *services: Any, **more: Any) -> Any:
    answer = await ask("POST", "/api/v1/workers", {"id": "w", "services": services, "kind": "pull", **more})
    assert answer.status == 200, answer.body
    return answer.body


async def called_back(ask: Asker, url: str, result: Any) -> str:
    """What a later answer is told, at the address of a call, whatever host that names."""
    assert url.startswith(f"{PUBLIC}/workflows/resume/")
    answer = await ask("POST", url.removeprefix(PUBLIC), {"result": result})
    assert answer.status == 200, answer.body
    return str(answer.body["reason"])


async def paused(ask: Asker, spec: Any = SPEC, count: int = 1) -> str:
    """A run of a worker that says of every job that it will be answered later."""
    run_id = await ask.start(spec=spec)
    for number in range(count):
        job = await fetched(ask)
        assert (
            await told(ask, job, "complete", result={"pending": True, "task_id": f"T{number}"})
        ).status == 200
    return run_id


async def ended(ask: Asker, run_id: str) -> Any:
    await ask.serving.services.queries.wait_for("default", run_id, 120)
    return (await ask("GET", f"/api/v1/runs/{run_id}")).body


@asynccontextmanager
async def push_worker(ask: Asker, worker_id: str, *services: Any) -> AsyncIterator[list[Any]]:
    """A worker that is called, and answers later; gives what it was called with."""
    heard: list[Any] = []

    async def execute(request: web.Request) -> web.Response:
        heard.append(await request.json())
        return web.json_response({"result": {"pending": True, "task_id": worker_id}, "error": ""})

    app = web.Application()
    app.router.add_post("/exec/{service}", execute)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        await registered(ask, *services, id=worker_id, kind="http", url=url)
        yield heard
    finally:
        await runner.cleanup()


# ------------------------------------------------------------------------------------------- where to answer to


async def test_a_service_that_is_answered_later_is_told_where_to_by_a_push(ask: Asker) -> None:
    async with push_worker(ask, "w", LATER) as heard:
        told = (await ask("POST", "/api/v1/runs", {"spec": SPEC, "wait_secs": 30})).body
        url = heard[0]["params"].pop("callback_url")
        assert (told["task_ids"], heard) == (["w"], [{"input": 1, "params": {"k": 2}}])
        assert await called_back(ask, url, "done") == "resumed"
        assert (await ended(ask, told["run_id"]))["output"] == {"a": "done"}


async def test_a_service_that_is_answered_later_is_told_where_to_by_a_poll(ask: Asker) -> None:
    await registered(ask, LATER)
    run_id = await ask.start(spec=SPEC)
    job = await fetched(ask)
    assert (job["input"], job["params"]["k"]) == (1, 2)
    await told(ask, job, "complete", result={"pending": True, "task_id": "T"})
    assert await called_back(ask, job["params"]["callback_url"], "done") == "resumed"
    assert (await ended(ask, run_id))["output"] == {"a": "done"}


@pytest.mark.parametrize("service", ["work", {"name": "work"}, LATER | {"supports_async_callback": False}])
async def test_a_service_that_does_not_say_so_is_told_nothing(ask: Asker, service: Any) -> None:
    await registered(ask, service)
    await ask.start(spec=SPEC)
    assert (await fetched(ask))["params"] == {"k": 2}


async def test_each_worker_of_a_service_is_told_as_it_said_itself(ask: Asker) -> None:
    async with push_worker(ask, "plain", "work") as plain, push_worker(ask, "later", LATER) as later:
        for _ in range(2):
            await ask("POST", "/api/v1/runs", {"spec": SPEC, "wait_secs": 30})
            await ask("DELETE", "/api/v1/workers/plain")
        assert "callback_url" not in plain[0]["params"]
        assert "callback_url" in later[0]["params"]


async def test_the_task_paths_register_such_a_service_too(ask: Asker) -> None:
    body = {"id": "w", "type": "pull", "services": [{**LATER, "colour": "red"}]}
    assert (await ask("POST", "/workers/register", body)).status == 200
    await ask.start(spec=SPEC)
    assert "callback_url" in (await fetched(ask))["params"]


async def test_an_address_that_the_step_gives_itself_is_left(ask: Asker) -> None:
    await registered(ask, LATER)
    await ask.start(spec={"name": "n", "steps": [{**STEP, "params": {"callback_url": "mine"}}]})
    assert (await fetched(ask))["params"] == {"callback_url": "mine"}


async def test_the_address_is_in_no_journal(ask: Asker) -> None:
    await registered(ask, LATER)
    run_id = await ask.start(spec=SPEC)
    secret = (await fetched(ask))["params"]["callback_url"].rpartition("/")[2]
    journal = await ask("GET", f"/api/v1/runs/{run_id}/journal")
    assert journal.body["items"] and secret not in str(journal.body)


async def test_a_list_of_workers_shows_what_is_answered_later(ask: Asker) -> None:
    made = await registered(ask, "plain", LATER)
    assert (made["services"], made["supports_async_callback"]) == (["plain", "work"], ["work"])
    (listed,) = (await ask("GET", "/api/v1/workers")).body["items"]
    assert listed["supports_async_callback"] == ["work"]


@pytest.mark.parametrize("service", [{}, {"name": ""}, {"name": 5}, {"name": "w", "more": 1}, 5, None])
async def test_what_is_no_service_is_refused(ask: Asker, service: Any) -> None:
    answer = await ask("POST", "/api/v1/workers", {"id": "w", "kind": "pull", "services": [service]})
    assert (answer.status, answer.code) == (400, "invalid_request")


async def test_what_was_said_of_a_service_outlives_the_server(settings: Settings) -> None:
    for is_known in (False, True):
        async with serving(settings) as server, aiohttp.ClientSession() as session:
            ask = Asker(server, session, Holds())
            if not is_known:
                await registered(ask, LATER)
            else:
                await ask.start(spec=SPEC)
                assert "callback_url" in (await fetched(ask))["params"]


@pytest.mark.parametrize("public_url", [None, PUBLIC])
async def test_no_callback_url_is_given_without_a_public_url(tmp_path: Path, public_url: str | None) -> None:
    settings = Settings(db=f"sqlite:///{tmp_path / 'test.db'}", port=0, public_url=public_url)
    async with serving(settings) as server, aiohttp.ClientSession() as session:
        ask = Asker(server, session, Holds())
        await registered(ask, LATER)
        await ask.start(spec=SPEC)
        assert ("callback_url" in (await fetched(ask))["params"]) is (public_url is not None)


@pytest.mark.parametrize("pull", [False, True], ids=["push", "pull"])
async def test_a_tool_of_a_worker_says_that_it_is_answered_later(ask: Asker, pull: bool) -> None:
    heard: list[str] = []

    @tool(name="work", supports_async_callback=True)
    async def work(input: int, k: int, callback_url: str = "") -> dict[str, Any]:  # noqa: A002
        heard.append(callback_url)
        return {"pending": True, "task_id": "T"}

    worker = Worker([work], ask.serving.address, pull=pull, url="http://127.0.0.1:0")
    serving_it = asyncio.create_task(worker.run())
    try:
        await worker.is_registered.wait()
        told = (await ask("POST", "/api/v1/runs", {"spec": SPEC, "wait_secs": 30})).body
        assert told["task_id"] == "T"
        assert await called_back(ask, heard[0], [1]) == "resumed"
        assert (await ended(ask, told["run_id"]))["output"] == {"a": [1]}
    finally:
        worker.stop()
        await serving_it


# ------------------------------------------------------------------------------------- jobs that are answered later


async def test_a_fetched_job_that_is_answered_later_pauses_its_step(ask: Asker) -> None:
    await registered(ask, "work")
    run_id = await paused(ask)
    run = (await ask("GET", f"/api/v1/runs/{run_id}")).body
    assert (run["status"], [wait["name"] for wait in run["waits"]]) == ("waiting", ["T0"])
    await ask("POST", "/workflows/resume", {"task_id": "T0", "result": {"n": 1}})
    assert (await ended(ask, run_id))["output"] == {"a": {"n": 1}}


@pytest.mark.parametrize(
    "answer",
    [
        {"pending": "true", "task_id": "T"},
        {"pending": 1, "task_id": "T"},
        {"pending": False, "task_id": "T"},
        {"pending": True},
        {"pending": True, "task_id": 5},
        {"pending": True, "task_id": None},
        [{"pending": True, "task_id": "T"}],
        {"data": {"pending": True, "task_id": "T"}},
    ],
    ids=str,
)
async def test_anything_else_is_the_answer_itself(ask: Asker, answer: Any) -> None:
    await registered(ask, "work")
    run_id = await ask.start(spec=SPEC)
    await told(ask, await fetched(ask), "complete", result=answer)
    assert (await ended(ask, run_id))["output"] == {"a": answer}


async def test_a_later_answer_may_come_before_the_worker_has_said_so(ask: Asker) -> None:
    await registered(ask, LATER)
    run_id = await ask.start(spec=SPEC)
    job = await fetched(ask)
    assert await called_back(ask, job["params"]["callback_url"], "early") == "parked"
    await told(ask, job, "complete", result={"pending": True, "task_id": "T"})
    assert (await ended(ask, run_id))["output"] == {"a": "early"}


async def test_a_job_that_was_said_to_be_later_is_over_for_its_worker(ask: Asker) -> None:
    await registered(ask, "work")
    run_id = await ask.start(spec=SPEC)
    job = await fetched(ask)
    for _ in range(2):
        again = await told(ask, job, "complete", result={"pending": True, "task_id": "T"})
        assert again.body == {"accepted": True}
    other = await told(ask, job, "complete", result="at once after all")
    assert (other.status, other.code) == (409, "superseded")
    assert (await ask("GET", f"/api/v1/runs/{run_id}")).body["status"] == "waiting"


async def test_a_later_failure_is_tried_again_by_the_workers(ask: Asker) -> None:
    await registered(ask, "work")
    retry = {"max_attempts": 2, "initial_delay_ms": 0}
    run_id = await ask.start(spec={"name": "n", "steps": [{**STEP, "retry": retry}]})
    results: list[dict[str, Any]] = [{"success": False, "error": "no luck"}, {"success": True, "data": 7}]
    for number, result in enumerate(results):
        job = await fetched(ask)
        assert job["attempt"] == number + 1
        await told(ask, job, "complete", result={"pending": True, "task_id": f"T{number}"})
        await ask("POST", "/workflows/resume", {"task_id": f"T{number}", **result})
    assert (await ended(ask, run_id))["output"] == {"a": {"success": True, "data": 7}}


async def test_each_item_is_answered_later_by_itself(ask: Asker) -> None:
    await registered(ask, "work")
    each = {"id": "each", "kind": "foreach", "items": "$.inputs.n", "concurrency": 3, "steps": [STEP]}
    answer = {"spec": {"name": "n", "steps": [each]}, "inputs": {"n": [0, 1, 2]}}
    run_id = await ask.start(**answer)
    paths: dict[str, str] = {}
    for _ in range(3):
        job = await fetched(ask)
        paths[job["path"]] = job["id"]
        await told(ask, job, "complete", result={"pending": True, "task_id": job["path"]})
    for path in sorted(paths, reverse=True):
        await ask("POST", "/workflows/resume", {"task_id": path, "result": path})
    output = (await ended(ask, run_id))["output"]["each"]
    assert output == {"iterations": [{"a": f"each[{n}].a"} for n in range(3)]}


@pytest.mark.parametrize("mode", ["sequential", "concurrent"])
async def test_each_item_of_a_graph_is_answered_later_by_itself(ask: Asker, mode: str) -> None:
    await registered(ask, "work")
    each = {"kind": "foreach", "service": "work", "prep": {"input_key": "$params.xs"}, "params": {"xs": [0, 1, 2]},
            "post": {"output_key": "out"}, "parallel_mode": mode}  # fmt: skip
    run_id = await ask.start(spec={"name": "g", "start": "each", "nodes": {"each": each}, "edges": []})
    paths = []
    for _ in range(3):
        job = await fetched(ask)
        paths.append(job["path"])
        await told(ask, job, "complete", result={"pending": True, "task_id": job["path"]})
        if mode == "sequential":
            await ask("POST", "/workflows/resume", {"task_id": job["path"], "result": job["input"]})
    if mode == "concurrent":
        for number in (2, 0, 1):
            await ask("POST", "/workflows/resume", {"task_id": paths[number], "result": number})
    assert (await ended(ask, run_id))["output"]["out"] == [0, 1, 2]


async def test_a_cancelled_run_takes_no_later_answer(ask: Asker) -> None:
    await registered(ask, "work")
    run_id = await paused(ask)
    await ask("POST", f"/api/v1/runs/{run_id}/cancel", {})
    assert (await ended(ask, run_id))["status"] == "cancelled"
    late = await ask("POST", "/workflows/resume", {"task_id": "T0", "result": 1})
    assert late.body == {"resumed": False, "reason": "expired"}


async def test_jobs_that_are_answered_later_outlive_the_server_at_every_point(tmp_path: Path) -> None:
    server = Mortal(tmp_path / "test.db")
    async with aiohttp.ClientSession() as session:

        async def ask(path: str, body: Any = None) -> Any:
            method = "GET" if body is None else "POST"
            async with session.request(method, f"{server.address}{path}", json=body) as answer:
                return answer.status, await answer.json()

        async def again() -> None:
            await server.die()
            await server.live()

        await server.live()
        try:
            await ask("/api/v1/workers", {"id": "w", "kind": "pull", "services": [LATER]})
            _, started = await ask("/api/v1/runs", {"spec": SPEC})
            _, got = await ask("/api/v1/assignments/poll", {"worker_id": "w", "wait_secs": 30})
            (job,) = got["assignments"]
            await again()  # between the fetch and the answer
            answer = {"token": job["token"], "result": {"pending": True, "task_id": "T"}}
            async with asyncio.timeout(120):
                while (await ask(f"/api/v1/assignments/{job['id']}/complete", answer))[0] == 503:
                    await asyncio.sleep(0.01)  # its run is being taken up
            await again()  # between the pause and the callback
            _, run = await ask(f"/api/v1/runs/{started['run_id']}")
            assert (run["status"], run["waits"][0]["name"]) == ("waiting", "T")
            path = job["params"]["callback_url"].removeprefix(server.address)
            told = [(await ask(path, {"result": n}))[1]["reason"] for n in range(3)]
            assert told == ["resumed", "already_resumed", "already_resumed"]
            await again()  # after it
            async with asyncio.timeout(120):
                while (run := (await ask(f"/api/v1/runs/{started['run_id']}"))[1])["status"] != "completed":
                    await asyncio.sleep(0.01)
            assert run["output"] == {"a": 0}
        finally:
            await server.die()
