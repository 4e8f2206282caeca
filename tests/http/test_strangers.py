"""What strangers found in the flow centre: odd requests over HTTP, and workers that are not written with our own SDK."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from holdfast.http.validation import problem_of
from holdfast.tools import post
from holdfast.tools.post import Address, _Connection
from tests.http.conftest import Asker

pytestmark = pytest.mark.anyio

SPEC = {"name": "one", "steps": [{"id": "s", "tool": "echo", "args": {"value": 1}}]}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n"


class Wire:
    """A transport that keeps what is set on its socket."""

    def __init__(self) -> None:
        self.options: list[tuple[int, int, int]] = []

    def get_extra_info(self, name: str) -> Wire:
        assert name == "socket"
        return self

    def setsockopt(self, *option: int) -> None:
        self.options.append(option)  # type: ignore[arg-type]

    def write(self, data: bytes) -> None: ...


async def test_a_head_that_comes_before_its_body_is_acknowledged_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(post, "QUICK_ACK", 12)  # as it is on Linux
    wire, connection = Wire(), _Connection(Address("http://127.0.0.1:1"), is_judged=False)
    connection.connection_made(wire)
    answer = connection.ask(b"POST")
    connection.data_received(HEAD)
    assert wire.options == [(socket.IPPROTO_TCP, 12, 1)]
    connection.data_received(b'{"result":1}')
    assert (await answer, len(wire.options)) == (b'{"result":1}', 1)


async def test_an_answer_that_comes_whole_is_left_to_the_kernel() -> None:
    wire, connection = Wire(), _Connection(Address("http://127.0.0.1:1"), is_judged=False)
    connection.connection_made(wire)
    answer = connection.ask(b"POST")
    connection.data_received(HEAD + b'{"result":1}')
    assert (await answer, wire.options) == (b'{"result":1}', [])


@pytest.mark.parametrize(
    "key", ["", "two words", "x" * 256, "\xfc"], ids=["empty", "space", "long", "umlaut"]
)
@pytest.mark.parametrize("path", ["/api/v1/runs", "/api/v1/assignments/poll", "/api/v1/runs/x/rerun"])
async def test_an_idempotency_key_that_the_document_does_not_know_is_refused(
    ask: Asker, path: str, key: str
) -> None:
    bodies: dict[str, Any] = {"/api/v1/runs": {"spec": SPEC}, "/api/v1/assignments/poll": {"worker_id": "w"}}
    answer = await ask("POST", path, bodies.get(path, {}), headers={"Idempotency-Key": key})
    assert (answer.status, answer.body["error"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("path", "body", "hint"),
    [
        ("/api/v1/runs", {"workflow": "w", "wait_sec": 1}, "did you mean wait_secs?"),
        ("/api/v1/workflows/w/rollback", {"version": 1}, "known keys are number"),
        ("/api/v1/workers", {"id": "w", "services": ["s"], "kind": "push"}, "one of http, pull"),
        ("/api/v1/workers", {"id": "w", "services": [{"nam": "s"}], "kind": "pull"}, "did you mean name?"),
    ],
)
async def test_a_word_that_a_body_does_not_take_is_refused_with_those_that_it_takes(
    ask: Asker, path: str, body: dict[str, Any], hint: str
) -> None:
    answer = await ask("POST", path, body)
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert (answer.body["details"][0]["hint"], hint in answer.body["message"]) == (hint, True)


@pytest.mark.parametrize(
    ("query", "hint"),
    [("status=done", "one of cancelled, "), ("states=failed", "did you mean status?")],
)
async def test_a_word_that_a_query_does_not_take_is_refused_with_those_that_it_takes(
    ask: Asker, query: str, hint: str
) -> None:
    answer = await ask("GET", f"/api/v1/runs?{query}")
    assert (answer.status, answer.body["details"][0]["hint"].startswith(hint)) == (400, True)


async def test_half_of_a_surrogate_pair_is_not_called_a_body_that_was_cut_off(ask: Asker) -> None:
    sent = {"data": b'{"workflow": "\\ud800"}', "headers": {"Content-Type": "application/json"}}
    answer = await ask("POST", "/api/v1/runs", **sent)
    assert (answer.status, "surrogate" in answer.body["message"]) == (400, True)


async def test_a_journal_is_paged_by_the_cursor_that_its_pages_have(ask: Asker) -> None:
    run_id = (await ask("POST", "/api/v1/runs", {"spec": SPEC, "wait_secs": 30})).body["run_id"]
    first = (await ask("GET", f"/api/v1/runs/{run_id}/journal?limit=1")).body
    for word in ("cursor", "after"):
        second = (await ask("GET", f"/api/v1/runs/{run_id}/journal?{word}={first['cursor']}")).body
        assert [row["seq"] for row in second["items"]] == [2]
    both = await ask("GET", f"/api/v1/runs/{run_id}/journal?after=1&cursor=1")
    assert (both.status, "mean the same" in both.body["message"]) == (422, True)


def test_an_abbreviation_keeps_its_capitals_within_a_sentence() -> None:
    assert problem_of("JSON is malformed").message == "JSON is malformed"
    assert problem_of("Expected `int`").message == "expected `int`"


@pytest.mark.parametrize(("delay", "shown"), [(None, "null"), (True, "true"), ({"a": "b"}, '{"a":"b"}')])
async def test_a_delay_that_is_no_number_is_named_as_it_was_sent(ask: Asker, delay: Any, shown: str) -> None:
    node = {"kind": "timer", "params": {"delay_ms": "$params.delay"}}
    spec = {"name": "g", "start": "t", "nodes": {"t": node}}
    run = await ask.done(spec=spec, inputs={"delay": delay})
    assert run["error"]["message"] == f"delay_ms must be a number of milliseconds, not {shown}"
