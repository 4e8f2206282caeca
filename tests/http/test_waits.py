"""What the outside says to runs over HTTP: results of calls, signals, answers to approvals; who may, and what they are told."""

from __future__ import annotations

import asyncio
import io
import json
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from aiohttp import web

from holdfast import tool
from holdfast.config import Settings
from holdfast.http.serve import serving
from holdfast.signing import signature
from holdfast.tools.registry import Registry
from holdfast.values import RunId, job_id
from tests.http.conftest import Answer, Asker, Holds
from tests.http.test_stream_killed import Mortal

pytestmark = pytest.mark.anyio

BOOTSTRAP, SECRET = "bootstrap-key-of-this-test", "a secret of both"
PENDING = {"name": "later", "steps": [{"id": "a", "tool": "ask", "args": {"name": "{{ inputs.name }}"}}]}
GATE = {"name": "gate", "steps": [{"id": "gate", "kind": "approve", "prompt": "Sure?"}]}
SIGNAL = {"name": "signal", "steps": [{"id": "w", "kind": "wait_event", "signal_key": "go"}]}


def registry(told: list[str]) -> Registry:
    @tool(supports_async_callback=True)
    async def ask(name: str, callback_url: str = "") -> dict[str, Any]:
        told.append(callback_url)
        return {"pending": True, "task_id": name}

    return Registry([ask])


class Said(Asker):
    """Asks a server whose calls are answered later; `told` are the addresses that they were given."""

    told: list[str]
    headers: dict[str, str]

    async def __call__(self, method: str, path: str, body: Any = None, **rest: Any) -> Answer:
        rest.setdefault("headers", self.headers)
        return await super().__call__(method, path, body, **rest)

    async def paused(self, task_id: str = "T1") -> str:
        answer = await self(
            "POST", "/api/v1/runs", {"spec": PENDING, "inputs": {"name": task_id}, "wait_secs": 30}
        )
        assert answer.status == 200 and answer.body["paused"], answer.body
        return str(answer.body["run_id"])

    async def resume(self, body: Any, segment: str = "", **rest: Any) -> tuple[int, Any]:
        answer = await self("POST", f"/workflows/resume{segment}", body, **rest)
        return answer.status, answer.body

    async def ended(self, run_id: str) -> Any:
        await self.serving.services.queries.wait_for("default", run_id, 120)
        return (await self("GET", f"/api/v1/runs/{run_id}")).body


async def said(settings: Settings, headers: dict[str, str]) -> AsyncIterator[Said]:
    told: list[str] = []
    async with (
        serving(settings, registry=registry(told)) as server,
        aiohttp.ClientSession() as session,
    ):
        asker = Said(server, session, Holds())
        asker.told, asker.headers = told, headers
        yield asker


@pytest.fixture
async def local(tmp_path: Path) -> AsyncIterator[Said]:
    db = f"sqlite:///{tmp_path / 'test.db'}"
    async for asker in said(Settings(db=db, port=0, public_url="http://localhost:1"), {}):
        yield asker


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[Said]:
    db = f"sqlite:///{tmp_path / 'test.db'}"
    settings = Settings(db=db, port=0, key=BOOTSTRAP, resume_secret=SECRET, public_url="http://localhost:1")
    async for asker in said(settings, {"authorization": f"Bearer {BOOTSTRAP}"}):
        yield asker


def segment(url: str) -> str:
    return "/" + url.rpartition("/")[2]


# --------------------------------------------------------------------------------------------------------- resume


async def test_who_waits_for_the_end_is_told_that_only_callbacks_are_open(local: Said) -> None:
    answer = await local("POST", "/api/v1/runs", {"spec": PENDING, "inputs": {"name": "T1"}, "wait_secs": 30})
    run_id = answer.body["run_id"]
    assert answer.body == {"paused": True, "task_id": "T1", "run_id": run_id, "task_ids": ["T1"]}


async def test_who_waits_for_the_end_is_not_told_of_a_pause_whose_callback_was_here_first(
    local: Said,
) -> None:
    for number in range(3):
        name = f"early-{number}"
        _, parked = await local.resume({"task_id": name, "result": number})
        assert parked["reason"] == "parked"
        then = {"id": "then", "kind": "timer", "delay_ms": 300}
        spec = {**PENDING, "steps": [*PENDING["steps"], then]}
        start = {"spec": spec, "inputs": {"name": name}, "wait_secs": 30}
        answer = await local("POST", "/api/v1/runs", start)
        assert (answer.status, answer.body.get("status")) == (200, "completed"), answer.body


async def test_a_run_shows_what_it_waits_for(local: Said) -> None:
    run_id = await local.paused()
    run = (await local("GET", f"/api/v1/runs/{run_id}")).body
    (wait,) = run["waits"]
    assert (run["status"], wait["kind"], wait["name"]) == ("waiting", "callback", "T1")
    assert wait["since"] < wait["until"]


async def test_a_step_shows_the_task_that_it_waits_for(local: Said) -> None:
    run_id = await local.paused()
    for status in ("waiting", "completed"):
        (step,) = (await local("GET", f"/api/v1/runs/{run_id}/steps")).body["items"]
        assert (step["status"], step["task_id"]) == (status, "T1")
        assert step["started_at"] <= step["waits_since"]
        await local.resume({"task_id": "T1", "result": 1})
        await local.ended(run_id)


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ({"success": True, "data": {"text": "hi"}}, {"success": True, "data": {"text": "hi"}}),
        ({"result": [1, 2]}, [1, 2]),
        ({"result": None}, None),
        ({}, {}),
    ],
)
async def test_both_forms_of_a_result_are_taken(local: Said, body: Any, output: Any) -> None:
    run_id = await local.paused()
    assert await local.resume({"task_id": "T1", **body}) == (200, {"resumed": True, "reason": "resumed"})
    assert (await local.ended(run_id))["output"] == {"a": output}


async def test_every_authentic_result_is_answered_alike(local: Said) -> None:
    assert await local.resume({"task_id": "T0", "result": 1}) == (200, {"resumed": False, "reason": "parked"})
    await local.paused()
    await local.resume({"task_id": "T1", "result": 1})
    again = await local.resume({"task_id": "T1", "result": 2})
    assert again == (200, {"resumed": False, "reason": "already_resumed"})


async def test_a_task_id_of_two_runs_needs_the_run(local: Said) -> None:
    first, _ = await local.paused(), await local.paused()
    status, body = await local.resume({"task_id": "T1", "result": 1})
    assert (status, body["error"]) == (409, "ambiguous_task")
    assert (await local.resume({"task_id": "T1", "run_id": first, "result": 1}))[1]["resumed"]


@pytest.mark.parametrize("body", [{}, {"task_id": 5}, {"task_id": "T", "run_id": 5}, [], "text"])
async def test_what_is_no_result_is_a_bad_request(local: Said, body: Any) -> None:
    status, answer = await local.resume(body)
    assert (status, answer["error"]) == (400, "invalid_request")


async def test_a_result_may_be_as_large_as_any_value(local: Said) -> None:
    run_id = await local.paused()
    raw = io.BytesIO(json.dumps({"task_id": "T1", "result": "x" * (25 * 1024 * 1024 - 100)}).encode())
    headers = {"content-type": "application/json"}
    assert (await local("POST", "/workflows/resume", data=raw, headers=headers)).body["resumed"]
    assert (await local.ended(run_id))["status"] == "completed"


async def test_an_address_is_all_that_is_needed_and_counts_once(guarded: Said) -> None:
    run_id = await guarded.paused()
    nobody: dict[str, Any] = {"headers": {}}
    answers = [await guarded.resume({"result": n}, segment(guarded.told[0]), **nobody) for n in range(3)]
    assert [body["reason"] for _, body in answers] == ["resumed", "already_resumed", "already_resumed"]
    assert (await guarded.ended(run_id))["output"] == {"a": 0}


async def test_an_address_that_was_changed_is_no_address(guarded: Said) -> None:
    await guarded.paused()
    good = segment(guarded.told[0])
    for place in (5, len(good) // 2, len(good) - 2):
        bad = good[:place] + ("A" if good[place] != "A" else "B") + good[place + 1 :]
        assert await guarded.resume({"result": 1}, bad, headers={}) == (
            200,
            {"resumed": False, "reason": "unknown_task"},
        )


async def test_without_a_key_or_a_signature_nothing_is_resumed(guarded: Said) -> None:
    run_id = await guarded.paused()
    raw = json.dumps({"task_id": "T1", "result": 1}).encode()
    for given in ("", "sha256=", signature("another", raw), signature(SECRET, raw + b" "), "é"):
        headers = {"content-type": "application/json", "x-hub-signature-256": given}
        answer = await guarded("POST", "/workflows/resume", headers=headers, data=raw)
        assert answer.status == 401
    assert (await guarded("GET", f"/api/v1/runs/{run_id}")).body["status"] == "waiting"


async def test_a_signed_result_is_taken(guarded: Said) -> None:
    await guarded.paused()
    raw = json.dumps({"task_id": "T1", "result": 1}).encode()
    headers = {"content-type": "application/json", "x-hub-signature-256": signature(SECRET, raw)}
    answer = await guarded("POST", "/workflows/resume", headers=headers, data=raw)
    assert answer.body == {"resumed": True, "reason": "resumed"}


async def key(guarded: Said, *scopes: str, tenant: str = "default", name: str = "me") -> dict[str, str]:
    made = await guarded.serving.services.api_keys.create(tenant, name, scopes)
    return {"authorization": f"Bearer {made.key}"}


async def test_a_key_needs_the_scope_and_reaches_its_own_tenant_alone(guarded: Said) -> None:
    await guarded.paused()
    body = {"task_id": "T1", "result": 1}
    assert (await guarded.resume(body, headers=await key(guarded, "run")))[0] == 403
    other = await guarded.resume(body, headers=await key(guarded, "resume", tenant="other"))
    assert other == (200, {"resumed": False, "reason": "parked"})
    assert (await guarded.resume(body, headers=await key(guarded, "resume")))[1]["resumed"]


# ------------------------------------------------------------------------------------------------------- signals


async def test_a_signal_ends_a_wait(local: Said) -> None:
    run_id = await local.start(spec=SIGNAL)
    answer = await local("POST", f"/api/v1/runs/{run_id}/signals", {"key": "go", "value": [1]})
    assert (answer.status, answer.body["run_id"]) == (200, run_id)
    assert (await local.ended(run_id))["output"] == {"w": [1]}


async def test_a_signal_for_a_run_that_is_over_is_refused(local: Said) -> None:
    run_id = await local.start(spec=SIGNAL)
    await local("POST", f"/api/v1/runs/{run_id}/signals", {"key": "go"})
    await local.ended(run_id)
    answer = await local("POST", f"/api/v1/runs/{run_id}/signals", {"key": "go"})
    assert (answer.status, answer.code) == (409, "run_is_over")


# ------------------------------------------------------------------------------------------------------ approvals


async def asked(asker: Said) -> str:
    """A run that asks for an approval, durably."""
    run_id = await asker.start(spec=GATE)
    async with asyncio.timeout(120):
        while not (await asker("GET", f"/api/v1/runs/{run_id}")).body["waits"]:
            await asyncio.sleep(0.005)
    return run_id


async def test_an_approval_is_answered_once(local: Said) -> None:
    run_id = await asked(local)
    path = f"/api/v1/runs/{run_id}/approvals/gate"
    answer = await local("POST", path, {"approved": True, "reason": "fine", "by": "Ada"})
    assert answer.body == {"run_id": run_id, "path": "gate", "decided": True}
    again = await local("POST", path, {"approved": False})
    assert (again.status, again.code) == (409, "not_waiting")
    output = (await local.ended(run_id))["output"]["gate"]
    assert output == {"approved": True, "reason": "fine", "by": "Ada", "form": None}


async def test_who_approves_is_who_the_key_is_of(guarded: Said) -> None:
    run_id = await asked(guarded)
    path = f"/api/v1/runs/{run_id}/approvals/gate"
    assert (await guarded("POST", path, {"approved": True}, headers=await key(guarded, "run"))).status == 403
    headers = await key(guarded, "approve", name="Ada")
    await guarded("POST", path, {"approved": True, "by": "Eve"}, headers=headers)
    assert (await guarded.ended(run_id))["output"]["gate"]["by"] == "Ada"


async def test_an_idempotency_key_of_one_approver_brings_no_other_the_same_answer(guarded: Said) -> None:
    run_id = await asked(guarded)
    path, same = f"/api/v1/runs/{run_id}/approvals/gate", {"Idempotency-Key": "same"}
    ada, bob = await key(guarded, "approve", name="Ada"), await key(guarded, "approve", name="Bob")
    first = await guarded("POST", path, {"approved": True}, headers=ada | same)
    again = await guarded("POST", path, {"approved": True}, headers=ada | same)
    assert first.body == again.body == {"run_id": run_id, "path": "gate", "decided": True}
    other = await guarded("POST", path, {"approved": True}, headers=bob | same)
    assert (other.status, other.code) == (422, "request_conflict")


async def test_the_prompt_and_the_form_are_shown(local: Said) -> None:
    run_id = await asked(local)
    (wait,) = (await local("GET", f"/api/v1/runs/{run_id}")).body["waits"]
    assert (wait["kind"], wait["detail"]["prompt"]) == ("approval", "Sure?")


# ------------------------------------------------------------- killed between the commit and the answer to it

TWICE = {
    "name": "twice",
    "steps": [
        {"id": "first", "kind": "wait_event", "signal_key": "go"},
        {"id": "second", "kind": "wait_event", "signal_key": "go"},
    ],
}
QUORUM = {
    "name": "quorum",
    "steps": [
        {"id": "gate", "kind": "approve", "prompt": "Sure?", "quorum": {"need": 2, "of": ["Ada", "Bob"]}}
    ],
}


class Answered(NamedTuple):
    status: int
    body: Any


@asynccontextmanager
async def asked_of_one_that_dies(
    tmp_path: Path, spec: Any, event: str
) -> AsyncIterator[tuple[str, Callable[..., Awaitable[Answered]]]]:
    """A run that waits, at a server that is killed once an event of this kind is durable; what is asked while it is
    away is asked again when it is back, as it was."""
    server = Mortal(tmp_path / "test.db")
    async with aiohttp.ClientSession() as session:

        async def ask(path: str, body: Any = None, key: str = "") -> Answered:
            method, headers = ("GET" if body is None else "POST"), ({"idempotency-key": key} if key else {})
            async with session.request(
                method, f"{server.address}{path}", json=body, headers=headers
            ) as answer:
                return Answered(answer.status, await answer.json())

        async def ask_again(path: str, body: Any = None, key: str = "") -> Answered:
            try:
                return await ask(path, body, key)
            except aiohttp.ClientError:
                assert await server.die() == -signal.SIGKILL
                await server.live()
                return await ask(path, body, key)

        await server.live(event)
        try:
            run_id = (await ask("/api/v1/runs", {"spec": spec})).body["run_id"]
            async with asyncio.timeout(120):
                while not (await ask(f"/api/v1/runs/{run_id}")).body["waits"]:
                    await asyncio.sleep(0.005)
            yield run_id, ask_again
        finally:
            await server.die()


@pytest.mark.parametrize("path", ["/api/v1/runs/{id}/signals", "/tasks/signal"])
async def test_a_signal_sent_again_after_a_kill_counts_once(tmp_path: Path, path: str) -> None:
    async with asked_of_one_that_dies(tmp_path, TWICE, "signal_received") as (run_id, ask):
        seeds = {"task_id": run_id} if path.startswith("/tasks") else {}
        answers = [
            await ask(path.replace("{id}", run_id), {**seeds, "key": "go", "value": 1}, "k") for _ in range(3)
        ]
        assert [answer.status for answer in answers] == [200] * 3
        assert answers[1:] == answers[:1] * 2
        run = (await ask(f"/api/v1/runs/{run_id}")).body
        assert [wait["path"] for wait in run["waits"]] == ["second"]


async def test_a_signal_under_another_key_counts_again(tmp_path: Path) -> None:
    async with asked_of_one_that_dies(tmp_path, TWICE, "signal_received") as (run_id, ask):
        for key in ("k1", "k2"):
            assert (await ask(f"/api/v1/runs/{run_id}/signals", {"key": "go"}, key)).status == 200
        assert (await ask(f"/api/v1/runs/{run_id}")).body["status"] == "completed"


async def test_another_signal_under_the_same_key_is_refused(tmp_path: Path) -> None:
    async with asked_of_one_that_dies(tmp_path, TWICE, "signal_received") as (run_id, ask):
        await ask(f"/api/v1/runs/{run_id}/signals", {"key": "go", "value": 1}, "k")
        other = await ask(f"/api/v1/runs/{run_id}/signals", {"key": "go", "value": 2}, "k")
        assert (other.status, other.body["error"]) == (422, "request_conflict")


async def test_an_approval_sent_again_after_a_kill_is_answered_as_the_first_was(tmp_path: Path) -> None:
    async with asked_of_one_that_dies(tmp_path, QUORUM, "approval_answered") as (run_id, ask):
        body, path = {"approved": True, "by": "Ada"}, f"/api/v1/runs/{run_id}/approvals/gate"
        for _ in range(2):
            answer = await ask(path, body, "k")
            assert answer == Answered(200, {"run_id": run_id, "path": "gate", "decided": False})
        assert (await ask(path, body, "another")).body["error"] == "not_waiting"


async def test_a_result_sent_again_after_a_kill_is_told_that_it_counted(tmp_path: Path) -> None:
    gate = {"name": "q", "steps": [{"id": "a", "tool": "later"}]}
    async with asked_of_one_that_dies(tmp_path, gate, "callback_received") as (run_id, ask):
        answer = await ask("/workflows/resume", {"task_id": "T1", "result": 1})
        assert answer == Answered(200, {"resumed": False, "reason": "already_resumed"})
        assert (await ask(f"/api/v1/runs/{run_id}")).body["output"] == {"a": 1}


# ------------------------------------------------------------------------------------- a service that calls back


class Slow:
    """A worker that answers later: at once that it will, and then to the address that it was told."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.jobs: dict[str, str] = {}  # input → the address it is to be answered to
        self.parked: list[Any] = []

    async def exec(self, request: web.Request) -> web.Response:
        said = await request.json()
        name, url = said["input"], said["params"]["callback_url"]
        assert name not in self.jobs, "it was called twice"
        self.jobs[name] = url
        if name == "fast":  # its result is there before it has said that it will be
            self.parked.append(await self.call_back(name, "first"))
        return web.json_response({"result": {"pending": True, "task_id": name}, "error": ""})

    async def call_back(self, name: str, result: Any) -> Any:
        async with self._session.post(self.jobs[name], json={"success": True, "data": result}) as answer:
            assert answer.status == 200
            return (await answer.json())["reason"]


RENDER = {
    "name": "render",
    "steps": [
        {"id": "call", "service": "render", "input": "{{ inputs.name }}", "supports_async_callback": True},
    ],
    "output": "{{ call.data }}",
}


async def test_a_service_calls_back_after_the_server_was_killed(tmp_path: Path) -> None:
    server = Mortal(tmp_path / "test.db")
    async with aiohttp.ClientSession() as session:
        slow = Slow(session)
        app = web.Application()
        app.router.add_post("/exec/render", slow.exec)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        await server.live()
        try:

            async def ask(path: str, body: Any = None) -> Any:
                method = "GET" if body is None else "POST"
                async with session.request(method, f"{server.address}/api/v1{path}", json=body) as answer:
                    return await answer.json()

            port = runner.addresses[0][1]
            await ask("/workers", {"id": "w", "url": f"http://127.0.0.1:{port}", "services": ["render"]})
            fast = await ask("/runs", {"spec": RENDER, "inputs": {"name": "fast"}, "wait_secs": 30})
            assert (fast["status"], fast["output"]) == ("completed", "first")
            paused = await ask("/runs", {"spec": RENDER, "inputs": {"name": "slow"}, "wait_secs": 30})
            assert paused["task_ids"] == ["slow"]
            await server.die()
            await server.live()
            told = await asyncio.gather(*(slow.call_back("slow", n) for n in range(5)))
            assert sorted(told) == ["already_resumed"] * 4 + ["resumed"]
            assert (slow.parked, await slow.call_back("fast", "again")) == (["parked"], "already_resumed")
            async with asyncio.timeout(120):
                while (run := await ask(f"/runs/{paused['run_id']}"))["status"] != "completed":
                    await asyncio.sleep(0.01)
            assert run["output"] == told.index("resumed")
        finally:
            await server.die()
            await runner.cleanup()


async def test_the_job_id_of_an_attempt_is_in_its_step_and_in_the_journal(local: Said) -> None:
    run_id = await local.paused()
    (step,) = (await local("GET", f"/api/v1/runs/{run_id}/steps")).body["items"]
    lines = (await local("GET", f"/api/v1/runs/{run_id}/journal")).body["items"]
    job = job_id(RunId(run_id), "a", 1)
    assert step["job_id"] == job
    assert [line["jobs"] for line in lines] == [{"a#1": job}, {"a#1": job}]
