"""What stands around every route: what may be sent, how errors look, and what is never told."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
from typing import Any

import pytest

from holdfast.api.types import STATUS
from holdfast.errors import StoreUnavailable
from holdfast.http import server
from holdfast.http.json_body import check_keys
from tests.http.conftest import Asker

pytestmark = pytest.mark.anyio

RUNS = "/api/v1/runs"
JSON = {"Content-Type": "application/json"}


async def test_an_unknown_path_has_the_shape_of_every_error(ask: Asker) -> None:
    answer = await ask("GET", "/api/v1/nope")
    assert (answer.status, answer.code) == (404, "not_found")


@pytest.mark.parametrize("path", ["/api/v1/nothing", f"{RUNS}/x/artefacts", "//", "/api/v1/runs/"])
async def test_what_is_not_routed_is_404(ask: Asker, path: str) -> None:
    assert (await ask("GET", path)).code == "not_found"


async def test_a_refused_method_gets_the_allowed_ones(ask: Asker) -> None:
    answer = await ask("PUT", RUNS, {})
    assert (answer.status, answer.code) == (405, "method_not_allowed")
    assert answer.headers["Allow"] == "GET, HEAD, OPTIONS, POST"


async def test_options_says_which_methods_are_taken(ask: Asker) -> None:
    answer = await ask("OPTIONS", RUNS)
    assert answer.status == 204 and answer.headers["Allow"] == "GET, HEAD, OPTIONS, POST"


async def test_head_is_a_get_without_a_body(ask: Asker) -> None:
    answer = await ask("HEAD", RUNS)
    assert answer.status == 200 and answer.body == b"" and int(answer.headers["Content-Length"]) > 0


@pytest.mark.parametrize("size", [100, 200_000])
async def test_a_large_body_is_read_in_a_thread(
    ask: Asker, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_by: list[str] = []

    def noted(raw: bytes) -> None:
        read_by.append(threading.current_thread().name.partition("_")[0])
        check_keys(raw)

    monkeypatch.setattr(server, "check_keys", noted)
    answer = await ask("POST", RUNS, {"workflow": "sum", "inputs": {"a": 1, "b": "x" * size}})
    assert answer.status == 422
    assert read_by == [threading.main_thread().name if size == 100 else "holdfast-bodies"]
    twice = b'{"workflow": "sum", "workflow": "%s"}' % (b"x" * size)
    assert (await ask("POST", RUNS, data=twice, headers=JSON)).status == 400


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"nope",
        b'{"workflow": NaN}',
        b'{"workflow": "sum", "inputs": {"a": Infinity}}',
        b'{"workflow": "sum", "inputs": {"a": 1e999}}',
        b'{"workflow": "\xff"}',
        b'{"workflow": "\\ud800"}',
        b"[]",
        b"",
        b"\x00",
        b'{"workflow": "sum", "inputs": ' + b'{"a":' * 100 + b"1" + b"}" * 101,
    ],
)
async def test_a_body_that_is_no_json_of_its_type_is_400(ask: Asker, raw: bytes) -> None:
    answer = await ask("POST", RUNS, data=raw, headers=JSON)
    assert (answer.status, answer.code) == (400, "invalid_request")


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "", "application/yaml"])
async def test_only_json_is_taken_where_json_is_wanted(ask: Asker, media: str) -> None:
    answer = await ask("POST", RUNS, data=b'{"workflow": "sum"}', headers={"Content-Type": media})
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


async def test_a_compressed_body_is_not_taken(ask: Asker) -> None:
    answer = await ask("POST", RUNS, data=b"x", headers={**JSON, "Content-Encoding": "gzip"})
    assert (answer.status, answer.code) == (415, "unsupported_media_type")


async def test_a_body_over_the_limit_is_413_and_nothing_is_started(ask: Asker) -> None:
    large = b'{"workflow": "sum", "inputs": {"a": 1, "b": "' + b"x" * (1024 * 1024) + b'"}}'
    answer = await ask("POST", RUNS, data=io.BytesIO(large), headers=JSON)
    assert (answer.status, answer.code) == (413, "body_too_large")
    assert (await ask("GET", RUNS)).body["items"] == []


async def test_a_body_whose_length_is_not_said_is_cut_off_at_the_limit(ask: Asker) -> None:
    async def endless() -> Any:
        for _ in range(40):
            yield b" " * 65_536

    answer = await ask("POST", RUNS, data=endless(), headers=JSON)
    assert (answer.status, answer.code) == (413, "body_too_large")


async def test_a_body_in_pieces_is_read_whole(ask: Asker) -> None:
    async def pieces() -> Any:
        for piece in (b'{"workflow": "s', b'um", "inputs":', b' {"a": 1}}'):
            yield piece
            await asyncio.sleep(0)

    assert (await ask("POST", RUNS, data=pieces(), headers=JSON)).status == 202


async def test_every_answer_has_an_id_and_is_taken_for_what_it_is(ask: Asker) -> None:
    answer = await ask("GET", RUNS, headers={"X-Request-Id": "mine-7"})
    assert answer.headers["X-Request-Id"] == "mine-7"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_another_host_is_not_served(ask: Asker) -> None:
    answer = await ask("GET", RUNS, headers={"Host": "evil.example"})
    assert (answer.status, answer.code) == (421, "misdirected_request")


async def test_a_page_of_another_origin_is_not_served(ask: Asker) -> None:
    answer = await ask("POST", RUNS, {"workflow": "sum"}, headers={"Origin": "http://evil.example"})
    assert (answer.status, answer.code) == (403, "forbidden")


async def test_a_bug_is_reported_by_the_id_of_its_request_alone(
    ask: Asker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*given: Any, **rest: Any) -> None:
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr(ask.serving.services.queries, "runs", broken)
    with caplog.at_level(logging.ERROR, "holdfast.http"):
        answer = await ask("GET", RUNS, headers={"X-Request-Id": "mine-7"})
    assert (answer.status, answer.code) == (500, "internal_error")
    assert "mine-7" in answer.body["message"] and "secret" not in str(answer.body)
    assert "mine-7" in caplog.text and "the secret of the house" in caplog.text


async def test_when_the_store_is_away_the_answer_says_when_to_come_back(
    ask: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*given: Any, **rest: Any) -> None:
        raise StoreUnavailable("the disk is full")

    monkeypatch.setattr(ask.serving.services.commands, "start", away)
    answer = await ask("POST", RUNS, {"workflow": "sum"})
    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert answer.headers["Retry-After"] == "1"


async def test_a_client_that_gives_up_while_sending_leaves_nothing_behind(ask: Asker) -> None:
    _, writer = await asyncio.open_connection(ask.host, ask.port)
    head = f"POST {RUNS} HTTP/1.1\r\nHost: {ask.host}:{ask.port}\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await ask("GET", RUNS)).body["items"] == []


def test_every_code_has_one_status() -> None:
    assert set(STATUS.values()) <= {400, 401, 403, 404, 405, 409, 413, 415, 421, 422, 429, 431, 500, 503}
