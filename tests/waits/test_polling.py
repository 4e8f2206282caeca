"""Asking for results over real sockets: a status address that is slow, lies, breaks or is forbidden; and who is first."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest

from holdfast import RunFailed
from holdfast.embed import RunHandle
from holdfast.runtime import ownership as owners
from holdfast.testing import TestEngine
from holdfast.waits import polling

PENDING: Final = {"pending": True, "task_id": "T1"}
SPEC: Final = """
name: later
steps: [{id: a, tool: ask, RULES}]
output: "{{ a }}"
"""
Answer = Callable[[BaseHTTPRequestHandler], None]


class Status:
    """A server that is asked how far a task is. `answers` are given in turn, the last one for ever."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[str] = []
        self.over = threading.Event()  # the test is: whoever is held is let go
        status = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status.asked.append(self.path)
                answer = status.answers.pop(0) if len(status.answers) > 1 else status.answers[0]
                answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/tasks/T1"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def status() -> Iterator[Status]:
    made = Status()
    yield made
    made.close()


def says(value: Any, code: int = 200, kind: str = "application/json", **headers: str) -> Answer:
    return raw(json.dumps(value).encode(), code, kind, **headers)


def raw(body: bytes, code: int = 200, kind: str = "application/json", **headers: str) -> Answer:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(code)
        handler.send_header("content-type", kind)
        handler.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def breaks_off(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"done":')
    handler.close_connection = True


async def paused(engine: TestEngine, url: str, rules: str = "poll: {interval_ms: 1000}") -> RunHandle:
    engine.fake_tool("ask", {**PENDING, "poll_url": url})
    return await engine.start(SPEC.replace("RULES", rules))


# ------------------------------------------------------------------------------------------- what is at the address


async def test_an_address_is_asked_until_its_answer_is_not_pending(
    engine: TestEngine, status: Status
) -> None:
    status.answers = [says(PENDING), says(PENDING | {"task_id": "another"}), says({"n": 1})]
    assert await engine.finish(await paused(engine, status.url)) == {"n": 1}
    assert status.asked == ["/tasks/T1"] * 3


async def test_the_distance_between_two_looks_doubles_up_to_its_limit(
    engine: TestEngine, status: Status
) -> None:
    status.answers = [says(PENDING)]
    await paused(engine, status.url, "poll: {interval_ms: 1000, max_ms: 3000}")
    seen = []
    for _ in range(10):
        await engine.advance(seconds=1)
        seen.append(len(status.asked))
    assert seen == [1, 1, 2, 2, 2, 3, 3, 3, 4, 4]


@pytest.mark.parametrize(
    "answer",
    [
        says({"n": 1}, 500),
        says({"n": 1}, 404),
        says({"n": 1}, 302, location="http://127.0.0.1:1/"),
        raw(b""),
        raw(b"", 204),
        raw(b"<html>soon</html>", kind="text/html"),
        raw(b"{'n': 1}"),
        raw(b"\xff\xfe\x00"),
        raw(b"\xd7m\xf8", kind="application/octet-stream"),
        raw(b"[" * 100_000),
        raw(b"[" * 65 + b"]" * 65),
        says({"pending": True, "task_id": "x" * 2_000}),
        breaks_off,
    ],
    ids=["500", "404", "redirect", "empty", "204", "html", "no_json", "no_text", "binary", "unclosed", "deep", "long_id", "broken"],
)  # fmt: skip
async def test_what_is_no_answer_is_asked_for_again(
    engine: TestEngine, status: Status, answer: Answer
) -> None:
    status.answers = [answer, says({"n": 2})]
    assert await engine.finish(await paused(engine, status.url)) == {"n": 2}
    assert status.asked == ["/tasks/T1"] * 2


@pytest.mark.parametrize("value", ["done", "5", 5, None, False, [], [1], {"pending": False, "task_id": "T1"}])
async def test_any_other_json_is_the_answer(engine: TestEngine, status: Status, value: Any) -> None:
    status.answers = [says(value)]
    assert await engine.finish(await paused(engine, status.url)) == value


async def test_json_is_known_by_what_it_is_and_not_by_what_it_is_called(
    engine: TestEngine, status: Status
) -> None:
    status.answers = [says({"n": 1}, kind="text/plain")]
    assert await engine.finish(await paused(engine, status.url)) == {"n": 1}


async def test_a_failure_that_is_found_is_that_of_the_step(engine: TestEngine, status: Status) -> None:
    status.answers = [says({"success": False, "error": "no paper"})]
    with pytest.raises(RunFailed, match="no paper"):
        await engine.finish(await paused(engine, status.url))


async def test_the_rules_of_a_result_are_for_what_is_found(engine: TestEngine, status: Status) -> None:
    status.answers = [says({"data": {"text": "[1, 2]"}})]
    rules = "poll: {interval_ms: 1000}, result: {select: $.data.text, parse: json}"
    assert await engine.finish(await paused(engine, status.url, rules)) == [1, 2]


async def test_an_answer_that_is_too_large_is_not_read_to_its_end(engine: TestEngine, status: Status) -> None:
    sent: list[int] = []

    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while not status.over.is_set():
                handler.wfile.write(b" " * 1_000_000)
                sent.append(1)
        except OSError:
            handler.close_connection = True

    status.answers = [endless, says({"n": 2})]
    assert await engine.finish(await paused(engine, status.url)) == {"n": 2}
    assert len(sent) < 100


async def test_an_answer_that_does_not_come_to_its_end_is_asked_for_again(
    engine: TestEngine, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b'{"n":')
        handler.wfile.flush()
        status.over.wait()

    # in real time, before time by hand goes on: with the slow one not as much as usual
    patience = TestEngine.patience_seconds
    monkeypatch.setattr(
        TestEngine, "patience_seconds", lambda engine: 0.2 if len(status.asked) == 1 else patience(engine)
    )
    status.answers = [slow, says({"n": 2})]
    run = await paused(engine, status.url, "poll: {interval_ms: 1000, max_ms: 20000}")
    assert await engine.finish(run) == {"n": 2}


@pytest.mark.parametrize(
    "url",
    ["", "nonsense", "ftp://127.0.0.1/x", "http://", "http://[::1", "http://127.0.0.1:99999/",
     "http://127.0.0.1:1/", "http://" + "x" * 300 + ".invalid/", "file:///etc/passwd"],
)  # fmt: skip
async def test_an_address_that_leads_nowhere_is_no_answer(engine: TestEngine, url: str) -> None:
    run = await paused(engine, url, "poll: {interval_ms: 1000}, pending_ttl_secs: 5")
    with pytest.raises(RunFailed, match="resume_timeout"):
        await engine.finish(run)


async def test_an_address_that_is_forbidden_is_not_asked(engine: TestEngine, status: Status) -> None:
    engine.options["allow_networks"] = []
    status.answers = [says({"n": 1})]
    run = await paused(engine, status.url, "poll: {interval_ms: 1000}, pending_ttl_secs: 5")
    with pytest.raises(RunFailed, match="resume_timeout"):
        await engine.finish(run)
    assert status.asked == []


# ------------------------------------------------------------------------------------------------- who is first


async def test_a_callback_during_a_look_wins_over_it(engine: TestEngine, status: Status) -> None:
    looked, answered = threading.Event(), threading.Event()

    def held(handler: BaseHTTPRequestHandler) -> None:
        looked.set()
        answered.wait(120)
        says("looked")(handler)

    status.answers = [held]
    run = await paused(engine, status.url)
    engine.clock.seconds += 1
    while not looked.is_set():
        await asyncio.sleep(0)
    told = await (await engine.open()).resume("T1", "called")
    answered.set()
    assert told == {"resumed": True, "reason": "resumed"}
    assert await engine.finish(run) == "called"


async def test_a_callback_after_a_look_is_told_so(engine: TestEngine, status: Status) -> None:
    status.answers = [says("looked")]
    run = await paused(engine, status.url)
    assert await engine.finish(run) == "looked"
    assert await engine.resume("T1", "called") == {"resumed": False, "reason": "already_resumed"}


# --------------------------------------------------------------------------------------------------- the last look


async def test_when_the_time_is_over_the_address_is_asked_once_more(
    engine: TestEngine, status: Status
) -> None:
    status.answers = [says("at last")]
    assert await engine.finish(await paused(engine, status.url, "pending_ttl_secs: 60")) == "at last"


@pytest.mark.parametrize("away_secs", [1, 30])
async def test_a_last_look_that_was_cut_short_is_made_by_the_next_process(
    engine: TestEngine, status: Status, monkeypatch: pytest.MonkeyPatch, away_secs: float
) -> None:
    run = await paused(engine, status.url, "pending_ttl_secs: 60")
    with monkeypatch.context() as patch:  # it dies before it has asked
        patch.setattr(polling.Polling, "poll", lambda *_: None)
        await engine.advance(seconds=61)
    engine.close()
    engine.clock.seconds += away_secs
    status.answers = [says("at last")]
    assert await engine.finish(run) == "at last"
    assert len(status.asked) == 1


async def cut_short(engine: TestEngine, run: RunHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the time of a wait end in a process that dies before it has asked, and stay away for a while."""
    with monkeypatch.context() as patch:
        patch.setattr(polling.Polling, "poll", lambda *_: None)
        await engine.advance(seconds=61)
    engine.close()
    engine.clock.seconds += 30


async def test_a_last_look_of_the_next_process_that_finds_nothing_ends_the_wait(
    engine: TestEngine, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    status.answers = [says(PENDING)]
    run = await paused(engine, status.url, "pending_ttl_secs: 60")
    await cut_short(engine, run, monkeypatch)
    with pytest.raises(RunFailed, match="resume_timeout"):
        await engine.finish(run)
    assert len(status.asked) == 1


async def test_a_last_look_that_finds_nothing_ends_the_wait_at_once(
    engine: TestEngine, status: Status
) -> None:
    status.answers = [says(PENDING)]
    run = await paused(engine, status.url, "pending_ttl_secs: 60")
    began = engine.now
    with pytest.raises(RunFailed, match="resume_timeout"):
        await engine.finish(run)
    assert (engine.now - began).total_seconds() == pytest.approx(60, abs=0.1)
    assert len(status.asked) == 1


async def test_a_last_look_that_finds_nothing_is_a_failure_that_is_tried_again(
    engine: TestEngine, status: Status
) -> None:
    status.answers = [says(PENDING)]
    rules = "pending_ttl_secs: 60, retry: {max_attempts: 2, initial_delay_ms: 1000}"
    run = await paused(engine, status.url, rules)
    with pytest.raises(RunFailed, match="resume_timeout"):
        await engine.finish(run)
    assert len(status.asked) == 2


def holds_back(status: Status) -> tuple[threading.Event, threading.Event]:
    """Let it answer only when it is told to: whether it was asked, and what tells it."""
    asked, go_on = threading.Event(), threading.Event()

    def held(handler: BaseHTTPRequestHandler) -> None:
        asked.set()
        go_on.wait(120)
        says("looked")(handler)

    status.answers = [held]
    return asked, go_on


async def test_a_callback_during_the_last_look_of_the_next_process_is_told_that_it_is_too_late(
    engine: TestEngine, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = holds_back(status)
    run = await paused(engine, status.url, "pending_ttl_secs: 60")
    await cut_short(engine, run, monkeypatch)
    hf = await engine.open()
    while not asked.is_set():
        await asyncio.sleep(0)
    assert (await hf.resume("T1", "called"))["reason"] == "expired"
    go_on.set()
    assert await engine.finish(run) == "looked"


async def test_a_last_look_that_takes_long_holds_no_other_timer_of_the_run_back(
    engine: TestEngine, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, go_on = holds_back(status)
    engine.fake_tool("ask", {**PENDING, "poll_url": status.url})
    told = engine.fake_tool("tell")
    run = await engine.start(
        """
        name: both
        steps:
          - id: p
            kind: parallel
            branches:
              - [{id: a, tool: ask, pending_ttl_secs: 60}]
              - [{id: s, kind: timer, delay_ms: 93000}, {id: t, tool: tell}]
        """
    )
    await cut_short(engine, run, monkeypatch)  # 91 s after its start
    monkeypatch.setattr(TestEngine, "patience_seconds", lambda engine: 0.01)  # that look is not waited for
    await engine.open()
    while not asked.is_set():
        await asyncio.sleep(0)
    await engine.advance(seconds=3)
    assert len(told.calls) == 1
    assert await run.status() != "completed"
    go_on.set()
    monkeypatch.undo()
    await engine.finish(run)
    assert await run.status() == "completed"


async def test_last_looks_that_take_long_hold_no_other_run_back(
    engine: TestEngine, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "ADOPT_BATCH", 2)
    go_on = threading.Event()

    def held(handler: BaseHTTPRequestHandler) -> None:
        go_on.wait(120)
        says("looked")(handler)

    status.answers = [held]
    runs = [await paused(engine, status.url, "pending_ttl_secs: 60") for _ in range(2)]
    sleeper = await engine.start("{name: s, steps: [{id: a, kind: timer, delay_ms: 93000}]}")
    await cut_short(engine, runs[0], monkeypatch)  # 91 s after its start
    monkeypatch.setattr(TestEngine, "patience_seconds", lambda engine: 0.01)  # those looks are not waited for
    await engine.open()
    while len(status.asked) < len(runs):
        await asyncio.sleep(0)
    await engine.advance(seconds=3)
    assert await sleeper.status() == "completed"
    assert [await run.status() for run in runs] == ["waiting", "waiting"]
    go_on.set()
    monkeypatch.undo()
    assert [await engine.finish(run) for run in runs] == ["looked", "looked"]


# ---------------------------------------------------------------------------------------------- the step kind poll


async def test_a_poll_step_asks_a_real_server_until_it_has_what_it_looks_for(
    engine: TestEngine, status: Status
) -> None:
    status.answers = [says({"state": None}), says({"state": "ready"})]
    output = await engine.run(
        f"""
        name: p
        steps:
          - {{id: p, kind: poll, tool: http_request, args: {{method: GET, url: "{status.url}"}},
              until: $.body.state, interval_ms: 1000, max_ms: 4000}}
        output: "{{{{ p.body }}}}"
        """
    )
    assert output == {"state": "ready"}
    assert len(status.asked) == 2
