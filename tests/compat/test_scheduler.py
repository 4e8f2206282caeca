"""SchedulerService: fires of schedules go to a sink of the program, which has no engine. Real threads, a real database."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from holdfast import (
    DatabaseInUse,
    InvalidSpec,
    SchedulerConfig,
    SchedulerHandle,
    SchedulerService,
    ScheduleSpec,
    TriggerFire,
    TriggerSpec,
    WebhookRouter,
    hmac_sha256_hex,
)

SECRET = "upload-secret"
BODY = b'{"file_path": "/renders/a.exr"}'
FILE = """
schedules:
  - id: often
    workflow: scene_cleanup
    trigger: {kind: cron, expression: "* * * * * *"}
  - id: on_upload
    workflow: validate_upload
    inputs:
      path: "{{trigger.payload.file_path}}"
    trigger:
      kind: webhook
      path: /webhooks/upload
      secret_env: UPLOAD_WEBHOOK_SECRET
"""


class MySink:
    """Notes what it gets, and answers what it is told to."""

    def __init__(self, answer: str | Exception | None = None) -> None:
        self.answer = answer
        self.fires: list[TriggerFire] = []
        self._grown = threading.Condition()

    def enqueue(self, fire: TriggerFire) -> str | None:
        with self._grown:
            self.fires.append(fire)
            self._grown.notify_all()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def has(self, count: int) -> list[TriggerFire]:
        with self._grown:
            self._grown.wait_for(lambda: len(self.fires) >= count)
            return list(self.fires)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UPLOAD_WEBHOOK_SECRET", SECRET)
    (tmp_path / "schedules").mkdir()
    (tmp_path / "schedules" / "schedules.yaml").write_text(FILE)
    return tmp_path


Begun = tuple[SchedulerHandle, WebhookRouter, MySink]


@pytest.fixture
def begun(folder: Path) -> Iterator[Begun]:
    sink = MySink()
    handle, router = SchedulerService(SchedulerConfig.from_dir("./schedules"), sink).start()
    yield handle, router, sink
    handle.shutdown()


async def post(
    app: Any, path: str = "/webhooks/upload", headers: Mapping[str, str] | None = None
) -> httpx.Response:
    headers = {"X-Hub-Signature-256": hmac_sha256_hex(SECRET, BODY), **(headers or {})}
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://host") as client:
        return await client.post(path, content=BODY, headers=headers)


def test_a_body_that_the_head_does_not_announce_is_read(begun: Begun) -> None:
    """HTTP/2 needs no content-length, and a server may leave out the keys of a message that have a default."""
    _, router, _ = begun
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": BODY}

    async def send(message: Any) -> None:
        sent.append(message)

    async def post_without_length() -> None:
        signature = (b"x-hub-signature-256", hmac_sha256_hex(SECRET, BODY).encode())
        path = "/webhooks/upload"
        await router({"type": "http", "method": "POST", "path": path, "headers": [signature]}, receive, send)

    asyncio.run(post_without_length())
    assert sent[0]["status"] == 202


def test_schedules_fire_into_the_sink_of_a_program_without_a_loop(begun: Begun) -> None:
    handle, _, sink = begun
    (fire, *_) = sink.has(1)
    assert (fire.kind, fire.schedule_id, fire.workflow) == ("cron", "often", "scene_cleanup")
    assert (fire.inputs, fire.payload, fire.is_catchup) == (None, {}, False)
    assert (handle.schedule_count(), handle.in_flight("often"), handle.in_flight("nothing")) == (2, 1, 0)


def test_the_next_fire_comes_once_the_job_is_terminal(begun: Begun) -> None:
    handle, _, sink = begun
    sink.has(1)
    handle.mark_terminal("often")
    handle.mark_terminal("often")  # saturates
    handle.mark_terminal("nothing")
    first, second = sink.has(2)[:2]
    assert first.scheduled_at < second.scheduled_at


def test_a_delivery_is_enqueued_and_answered(begun: Begun) -> None:
    handle, router, sink = begun
    answer = asyncio.run(post(router))
    assert answer.status_code == 202
    assert answer.content == (
        b'{"status":"enqueued","schedule_id":"on_upload","workflow":"validate_upload",'
        b'"inputs":{"path":"/renders/a.exr"}}'
    )
    (fire,) = [one for one in sink.fires if one.kind == "webhook"]
    assert fire.inputs == {"path": "/renders/a.exr"} and fire.payload == json.loads(BODY)
    assert handle.in_flight("on_upload") == 1


def test_at_the_limit_a_delivery_is_refused_until_the_job_is_terminal(begun: Begun) -> None:
    handle, router, _ = begun
    assert asyncio.run(post(router)).status_code == 202
    answer = asyncio.run(post(router))
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert answer.content == (
        b'{"error":"max_concurrent_exceeded","schedule_id":"on_upload","in_flight":1,"max_concurrent":1}'
    )
    handle.mark_terminal("on_upload")
    assert handle.in_flight("on_upload") == 0
    assert asyncio.run(post(router)).status_code == 202


def test_a_repeated_delivery_gets_the_same_answer_and_is_not_enqueued_again(begun: Begun) -> None:
    _, router, sink = begun
    headers = {"X-GitHub-Delivery": "d1"}
    first = asyncio.run(post(router, headers=headers))
    assert asyncio.run(post(router, headers=headers)).content == first.content
    assert sum(fire.kind == "webhook" for fire in sink.fires) == 1


@pytest.mark.parametrize("answer", ["no such workflow", RuntimeError("no such workflow")])
def test_a_delivery_that_the_sink_refuses_is_answered_with_its_message(
    begun: Begun, answer: str | Exception
) -> None:
    handle, router, sink = begun
    sink.answer = answer
    refused = asyncio.run(post(router, headers={"X-GitHub-Delivery": "d1"}))
    assert refused.status_code == 500
    assert refused.content == b'{"error":"sink_failed","message":"no such workflow"}'
    assert handle.in_flight("on_upload") == 0
    sink.answer = None
    assert asyncio.run(post(router, headers={"X-GitHub-Delivery": "d1"})).status_code == 202


def test_a_wrong_signature_a_missing_secret_and_other_methods_are_refused(
    begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, router, sink = begun
    wrong = asyncio.run(post(router, headers={"X-Hub-Signature-256": "sha256=00"}))
    assert (wrong.status_code, wrong.content) == (401, b'{"error":"invalid_signature"}')
    assert asyncio.run(post(router, path="/webhooks/other")).status_code == 404
    monkeypatch.delenv("UPLOAD_WEBHOOK_SECRET")
    missing = asyncio.run(post(router))
    assert missing.status_code == 500
    assert missing.content == b'{"error":"webhook_secret_missing","env":"UPLOAD_WEBHOOK_SECRET"}'
    assert all(fire.kind == "cron" for fire in sink.fires)


def test_the_router_can_be_mounted_below_a_path_of_another_app(begun: Begun) -> None:
    app = Starlette(routes=[Mount("/scheduler", app=begun[1])])
    assert asyncio.run(post(app, path="/scheduler/webhooks/upload")).status_code == 202
    assert asyncio.run(post(app, path="/webhooks/upload")).status_code == 404


def test_after_the_shutdown_webhooks_are_unavailable_and_the_database_is_free(folder: Path) -> None:
    service = SchedulerService(SchedulerConfig.from_dir("./schedules"), MySink())
    handle, router = service.start()
    with pytest.raises(DatabaseInUse):
        service.start()
    handle.shutdown()
    handle.shutdown()
    handle.mark_terminal("often")
    assert asyncio.run(post(router)).status_code == 503
    service.start()[0].shutdown()


def test_the_database_is_that_of_the_settings_or_the_one_that_is_given(folder: Path) -> None:
    SchedulerService(SchedulerConfig(), MySink()).start()[0].shutdown()
    assert (folder / "holdfast.db").exists()
    SchedulerService(SchedulerConfig(), MySink(), db="sqlite:///own.db").start()[0].shutdown()
    assert (folder / "own.db").exists()


def test_a_sink_without_enqueue_and_a_schedule_that_needs_the_engine_are_refused() -> None:
    with pytest.raises(TypeError, match="enqueue"):
        SchedulerService(SchedulerConfig(), object())  # type: ignore[arg-type]
    run = TriggerSpec.from_data({"kind": "run", "workflow": "other"})
    with pytest.raises(InvalidSpec, match="kind run"):
        SchedulerService(SchedulerConfig((ScheduleSpec("s", "w", run),)), MySink())


class AsyncSink:
    """Belongs to the loop of the program."""

    def __init__(self) -> None:
        self.loops: list[object] = []
        self.was_called = asyncio.Event()
        self.may_answer = asyncio.Event()

    async def enqueue(self, fire: TriggerFire) -> str | None:
        self.loops.append(asyncio.get_running_loop())
        self.was_called.set()
        await self.may_answer.wait()
        return None


def test_a_sink_that_is_a_coroutine_is_awaited_on_the_loop_of_the_program(folder: Path) -> None:
    async def program() -> None:
        sink = AsyncSink()
        sink.may_answer.set()
        handle, router = SchedulerService(SchedulerConfig.from_dir("schedules"), sink).start()
        assert (await post(router)).status_code == 202
        assert set(sink.loops) == {asyncio.get_running_loop()}
        await asyncio.to_thread(handle.shutdown)

    asyncio.run(program())


def test_a_shutdown_does_not_wait_for_a_sink_that_cannot_answer_meanwhile(folder: Path) -> None:
    async def program() -> None:
        sink = AsyncSink()
        handle, _ = SchedulerService(SchedulerConfig.from_dir("schedules"), sink).start()
        await sink.was_called.wait()
        handle.shutdown()  # on the loop that the sink needs

    asyncio.run(program())


DIES = """
import os, signal, sys, threading
from holdfast import SchedulerConfig, SchedulerService, ScheduleSpec, TriggerSpec

class Sink:
    def enqueue(self, fire):
        if not done.is_set():
            print(fire.schedule_id, fire.inputs, flush=True)
        if sys.argv[1] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        done.set()

done = threading.Event()
often = TriggerSpec.from_data({"kind": "interval", "every": "100ms"})
spec = ScheduleSpec("often", "job", often, {"at": "{{trigger.scheduled_at}}"})
handle, _ = SchedulerService(SchedulerConfig((spec,)), Sink()).start()
done.wait()
handle.shutdown()
"""


def test_a_fire_whose_process_was_killed_before_the_sink_answered_is_offered_again(folder: Path) -> None:
    def run(what: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", DIES, what], capture_output=True, text=True, check=False)

    killed = run("die")
    assert (killed.returncode, killed.stdout[:6]) == (-signal.SIGKILL, "often "), killed.stderr
    again = run("live")
    assert (again.returncode, again.stdout) == (0, killed.stdout), again.stderr
