"""What strangers found in the flow centre: odd requests over HTTP, and workers that are not written with our own SDK."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from holdfast.http.wire import problem_of
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
    wire, connection = Wire(), _Connection(Address("http://127.0.0.1:1"))
    connection.connection_made(wire)
    answer = connection.ask(b"POST")
    connection.data_received(HEAD)
    assert wire.options == [(socket.IPPROTO_TCP, 12, 1)]
    connection.data_received(b'{"result":1}')
    assert (await answer, len(wire.options)) == (b'{"result":1}', 1)


async def test_an_answer_that_comes_whole_is_left_to_the_kernel() -> None:
    wire, connection = Wire(), _Connection(Address("http://127.0.0.1:1"))
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


def test_an_abbreviation_keeps_its_capitals_within_a_sentence() -> None:
    assert problem_of("JSON is malformed").message == "JSON is malformed"
    assert problem_of("Expected `int`").message == "expected `int`"
