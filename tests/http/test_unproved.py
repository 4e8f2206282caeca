"""Senders that prove nothing: what they send is not read further than it takes to refuse them, and never parsed."""

from __future__ import annotations

import asyncio
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from holdfast import limits
from holdfast.config import Settings
from holdfast.errors import InvalidRequest
from holdfast.http.json_body import read_json
from holdfast.http.request import SINGLE
from holdfast.http.routes.docs import with_docs
from holdfast.http.serve import ROUTES
from holdfast.http.table import Route
from holdfast.signing import signature
from tests.http.conftest import Asker
from tests.http.test_waits import BOOTSTRAP, SECRET, Said, guarded, key, local, said, segment

__all__ = ["guarded", "local"]  # fixtures
pytestmark = pytest.mark.anyio

HUGE = 25 * 1024 * 1024
TAKE_A_BODY = [route for route in with_docs(ROUTES) if route.method != "GET"]
RESUME = next(route for route in TAKE_A_BODY if route.path == "/workflows/resume")
FORGED = "e30.AAAA"


async def sent(asker: Asker, *head: str, body: bytes = b"") -> tuple[int, Any]:
    """What is answered to exactly this head, and to what is sent after it."""
    reader, writer = await asyncio.open_connection(asker.host, asker.port)
    try:
        writer.write("\r\n".join([*head, "", ""]).encode() + body)
        async with asyncio.timeout(60):
            status = int((await reader.readline()).split()[1])
            length = 0
            while (line := await reader.readline()) != b"\r\n":
                name, _, value = line.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            raw = await reader.readexactly(length)
            return status, json.loads(raw) if raw[:1] == b"{" else raw
    finally:
        writer.close()


def head(route: Route, *more: str) -> list[str]:
    path = route.path.replace("{capability}", FORGED).replace("{", "").replace("}", "")
    return [
        f"{route.method} {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Content-Type: application/json",
        f"Content-Length: {HUGE}",
        *more,
    ]


CREDENTIALS = {
    "none": [],
    "an unknown key": ["Authorization: Bearer hf_nobody"],
    "no bearer": ["Authorization: Basic eDp5"],
}


@pytest.mark.parametrize("given", CREDENTIALS)
async def test_a_sender_without_a_good_key_is_answered_before_the_body_comes(
    guarded: Said, given: str
) -> None:
    """25 MiB are announced and none of them is sent: there is an answer only if none is waited for."""
    for route in TAKE_A_BODY:
        status, body = await sent(guarded, *head(route, *CREDENTIALS[given]))
        if "{capability}" not in route.path or given != "none":
            assert (status, body["error"]) == (401, "unauthorised"), route.path
        elif route.path.startswith("/workflows"):
            assert (status, body) == (200, {"resumed": False, "reason": "unknown_task"})
        else:
            assert (status, body["error"]) == (404, "not_found")


async def test_a_key_that_lacks_the_scope_is_refused_before_the_body_comes(guarded: Said) -> None:
    reader, worker = [(await key(guarded, scope))["authorization"] for scope in ("read", "worker")]
    for route in TAKE_A_BODY:
        if "{capability}" not in route.path:  # there the address is the credential
            weak = worker if route.scope == "read" else reader
            status, body = await sent(guarded, *head(route, f"Authorization: {weak}"))
            assert (status, body["error"]) == (403, "forbidden"), route.path


async def test_a_body_with_a_wrong_signature_is_not_parsed(guarded: Said) -> None:
    brackets = b"[" * HUGE
    headers = {"content-type": "application/json", "x-hub-signature-256": signature("another", brackets)}
    answer = await guarded("POST", "/workflows/resume", data=io.BytesIO(brackets), headers=headers)
    assert (answer.status, answer.code) == (401, "unauthorised")  # parsed, it would be nested too deeply
    good = {**headers, "x-hub-signature-256": signature(SECRET, brackets)}
    answer = await guarded("POST", "/workflows/resume", data=io.BytesIO(brackets), headers=good)
    assert (answer.status, answer.code) == (400, "invalid_request")


async def test_a_signature_is_refused_at_once_where_no_secret_is_set(tmp_path: Path) -> None:
    settings = Settings(db=f"sqlite:///{tmp_path / 'test.db'}", port=0, key=BOOTSTRAP)
    async for bare in said(settings, {}):
        status, body = await sent(bare, *head(RESUME, "X-Hub-Signature-256: sha256=00"))
        assert (status, body["error"]) == (401, "unauthorised")


async def test_few_large_bodies_are_read_at_once_for_senders_that_are_not_known_yet(guarded: Said) -> None:
    lines = "\r\n".join([*head(RESUME, "X-Hub-Signature-256: sha256=00"), "", ""]).encode()
    open_ones = [
        await asyncio.open_connection(guarded.host, guarded.port)
        for _ in range(limits.DEFAULTS.large_signed_bodies_max)
    ]
    for _, writer in open_ones:
        writer.write(lines + b"[")
    async with asyncio.timeout(30):
        while True:
            status, body = await sent(
                guarded, *head(RESUME, "X-Hub-Signature-256: sha256=00"), body=b"[" * HUGE
            )
            if status == 429:
                break
    assert body["error"] == "too_many_requests"
    assert "large_signed_bodies_max" in body["message"]
    # A small one has its turn at once, and a place is free again when a sender has gone.
    raw = json.dumps({"task_id": "T1", "result": 1}).encode()
    headers = {"content-type": "application/json", "x-hub-signature-256": signature(SECRET, raw)}
    assert (await guarded("POST", "/workflows/resume", data=raw, headers=headers)).status == 200
    for _, writer in open_ones:
        writer.close()
    large = json.dumps({"task_id": "T2", "result": "x" * 2**21}).encode()
    headers = {"content-type": "application/json", "x-hub-signature-256": signature(SECRET, large)}
    async with asyncio.timeout(30):
        while (
            await guarded("POST", "/workflows/resume", data=io.BytesIO(large), headers=headers)
        ).status != 200:
            await asyncio.sleep(0.01)


async def test_the_holder_of_an_address_may_send_a_large_result(guarded: Said) -> None:
    run_id = await guarded.paused()
    result = "x" * 2**21
    path = f"/workflows/resume{segment(guarded.told[0])}"
    raw, headers = json.dumps({"result": result}).encode(), {"content-type": "application/json"}
    answer = await guarded("POST", path, data=io.BytesIO(raw), headers=headers)
    assert answer.body == {"resumed": True, "reason": "resumed"}
    assert (await guarded.ended(run_id))["output"] == {"a": result}


# ---------------------------------------------------------------------------------------------------------- heads


@pytest.mark.parametrize("name", sorted(SINGLE))
async def test_a_header_that_has_one_value_is_refused_if_it_is_there_twice(local: Said, name: str) -> None:
    values = {"host": "127.0.0.1", "content-length": "2", "transfer-encoding": "chunked", "expect": "x"}
    once = f"{name}: {values.get(name, 'application/json')}"
    lines = ["POST /workflows/resume HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    lines = [line for line in lines if not line.lower().startswith(f"{name}:")]
    status, body = await sent(local, *lines, once, once, body=b"{}")
    assert (status, body["error"]) == (400, "invalid_request")


async def test_a_second_host_cannot_hide_a_foreign_one(local: Said) -> None:
    for hosts in (["127.0.0.1", "evil.example"], ["evil.example", "127.0.0.1"]):
        status, _ = await sent(local, "GET /healthz HTTP/1.1", *[f"Host: {host}" for host in hosts])
        assert status == 400


async def test_a_list_may_come_in_several_headers(local: Said) -> None:
    lines = ["GET /healthz HTTP/1.1", "Host: 127.0.0.1", "Accept: text/plain", "Accept: application/json"]
    assert (await sent(local, *lines))[0] == 200


@pytest.mark.parametrize(
    "lines",
    [
        ["Content-Length: 2", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", "Content-Length: 2"],
        ["Content-Length: 2", "Transfer-Encoding: identity"],
        ["Transfer-Encoding: gzip, chunked"],
    ],
    ids=", ".join,
)
async def test_a_body_whose_length_can_be_read_in_two_ways_is_refused(local: Said, lines: list[str]) -> None:
    first = ["POST /workflows/resume HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json"]
    status, body = await sent(local, *first, *lines, body=b"2\r\n{}\r\n0\r\n\r\n")
    assert (status, body["error"]) == (400, "invalid_request")


# ----------------------------------------------------------------------------------------------------------- keys

SPEC = '{"name": "one", "steps": [{"id": "s", "tool": "echo", "args": {"value": 1}}]}'


@pytest.mark.parametrize(
    ("path", "raw", "pointer"),
    [
        ("/api/v1/runs", '{"workflow": "a", "workflow": "b"}', "/workflow"),
        ("/api/v1/runs", '{"workflow": "a", "inputs": {"x": 1, "x": 1}}', "/inputs/x"),
        ("/api/v1/runs", '{"workflow": "a", "inputs": {"x": 1, "\\u0078": 2}}', "/inputs/x"),
        ("/api/v1/runs", '{"workflow": "a", "inputs": {"": 1, "": 2}}', "/inputs/"),
        ("/api/v1/runs", '{"workflow": "a", "inputs": {"l": [{}, {"a/b": 1, "c": 0, "a/b": 1}]}}', "/inputs/l/1/a~1b"),
        ("/api/v1/runs", '{"workflow": "a", "inputs": {"x": "' + "y" * 5000 + '", "x": 1}}', "/inputs/x"),
        ("/api/v1/workers", '{"id": "w", "id": "v", "services": ["s"], "kind": "pull"}', "/id"),
        ("/api/v1/runs/x/signals", '{"key": "go", "key": "stop"}', "/key"),
        ("/api/v1/assignments/x/complete", '{"token": "t", "result": {"a": 1, "a": 2}}', "/result/a"),
        ("/workflows/resume", '{"task_id": "T", "result": {"a": 1, "a": 2}}', "/result/a"),
        ("/workflows/resume", '{"task_id": "T", "task_id": "U"}', "/task_id"),
        ("/tasks", '{"flow_id": "f", "params": {"a": 1, "a": 2}}', "/params/a"),
        ("/tasks", '{"flow_id": "f", "FlowID": "g"}', "/FlowID"),
        ("/tasks/signal", '{"task_id": "f", "key": "a", "value": {"a": 1, "a": 2}}', "/value/a"),
    ],
)  # fmt: skip
async def test_a_body_with_a_key_twice_is_refused_with_its_place(
    local: Said, path: str, raw: str, pointer: str
) -> None:
    answer = await local("POST", path, data=raw, headers={"content-type": "application/json"})
    assert (answer.status, answer.body["error"]) == (400, "invalid_request")
    assert [(one["code"], one["pointer"]) for one in answer.body["details"]] == [("duplicate_key", pointer)]


def test_a_long_key_around_many_values_is_written_once_when_a_key_is_there_twice() -> None:
    """As the place of each value it would be: 10 GB for a body of less than 1 MiB."""
    raw = b'{"' + b"k" * 100_000 + b'": [{"a": 1, "a": 2}' + b", 0" * 100_000 + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest) as refused:
            read_json(raw)
        assert tracemalloc.get_traced_memory()[1] < 32 * 1024 * 1024
    finally:
        tracemalloc.stop()
    assert refused.value.problems[0].pointer == f"/{'k' * 100_000}/0/a"


async def test_a_link_is_not_answered_by_a_body_with_a_key_twice(local: Said) -> None:
    spec = {"name": "gate", "steps": [{"id": "gate", "kind": "approve", "prompt": "Sure?"}]}
    run_id = await local.start(spec=spec)
    async with asyncio.timeout(30):
        while not (await local("GET", f"/api/v1/runs/{run_id}")).body["waits"]:
            await asyncio.sleep(0.01)
    link = (await local("POST", f"/api/v1/runs/{run_id}/approvals/gate/links", {})).body["url"]
    path = "/approve/" + link.rpartition("/")[2]
    raw = '{"approved": false, "approved": true}'
    answer = await local("POST", path, data=raw, headers={"content-type": "application/json"})
    assert (answer.status, answer.code) == (400, "invalid_request")
    assert (await local("GET", f"/api/v1/runs/{run_id}")).body["status"] == "waiting"


async def test_text_in_a_body_may_look_like_a_key_that_is_there_twice(local: Said) -> None:
    texts = ['"a": 1, "a": 2', "a", '{"a":1,"a":2}', ":", '\\"', ""]
    body = {"workflow": "a", "inputs": {"a": texts, "b": {"a": texts, "c": [{"a": 1}, {"a": 1}]}}}
    answer = await local("POST", "/api/v1/runs", body)
    assert (answer.status, answer.body["error"]) == (404, "not_found")


# -------------------------------------------------------------------------------------------------- empty task ids


async def test_an_empty_task_id_resumes_nothing(local: Said) -> None:
    answer = await local("POST", "/workflows/resume", {"task_id": "", "result": 1})
    assert (answer.status, answer.body["details"][0]["pointer"]) == (400, "/task_id")


async def test_a_pending_answer_with_an_empty_task_id_fails_its_step(local: Said) -> None:
    body = {
        "spec": {"name": "later", "steps": [{"id": "a", "tool": "ask", "args": {"name": ""}}]},
        "wait_secs": 30,
    }
    answer = await local("POST", "/api/v1/runs", body)
    assert (answer.body["status"], answer.body["error"]["kind"]) == ("failed", "result")
    assert "task_id is empty" in answer.body["error"]["message"]


async def test_a_forged_address_without_a_body_is_told_that_the_body_is_missing(guarded: Asker) -> None:
    status, _ = await sent(
        guarded, f"POST /workflows/resume/{FORGED} HTTP/1.1", "Host: 127.0.0.1", "Content-Length: 0"
    )
    assert status == 400
