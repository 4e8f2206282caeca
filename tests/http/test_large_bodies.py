"""Large bodies of callers with a good key: a few are in memory at a time, and the rest wait without being read."""

from __future__ import annotations

import asyncio
import io
from contextlib import AsyncExitStack

import pytest

from holdfast import limits
from holdfast.errors import TooManyRequests
from holdfast.http import request
from holdfast.http.request import LargeBodies, Request
from tests.http.conftest import Asker
from tests.http.test_unproved import RESUME, head

pytestmark = pytest.mark.anyio

MOST = limits.DEFAULTS.large_bodies_max
LARGE = 2 * 1024 * 1024


def asked(size: int) -> Request:
    async def receive() -> dict[str, object]:
        raise AssertionError("a body that waits for a place is not read")

    headers = [(b"content-length", b"%d" % size)]
    scope = {
        "method": "POST",
        "path": "/",
        "raw_path": b"/",
        "query_string": b"",
        "client": None,
        "headers": headers,
    }
    return Request(scope, receive)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "WAIT_SECONDS_MAX", 0.01)


@pytest.mark.usefixtures("impatient")
async def test_a_tenant_has_half_of_the_places_and_others_have_the_rest() -> None:
    bodies = LargeBodies()
    async with AsyncExitStack() as held:
        for _ in range(MOST // 2):
            await held.enter_async_context(bodies.place_of(asked(LARGE), "a"))
        with pytest.raises(TooManyRequests, match="large_bodies_max"):
            await held.enter_async_context(bodies.place_of(asked(LARGE), "a"))
        for _ in range(MOST - MOST // 2):
            await held.enter_async_context(bodies.place_of(asked(LARGE), "b"))
        with pytest.raises(TooManyRequests, match="large_bodies_max"):
            await held.enter_async_context(bodies.place_of(asked(LARGE), "c"))
    async with bodies.place_of(asked(LARGE), "a"):
        pass  # places that were given back are free


async def test_a_request_gets_the_place_that_becomes_free() -> None:
    bodies = LargeBodies()
    async with AsyncExitStack() as held:
        for _ in range(MOST // 2):
            await held.enter_async_context(bodies.place_of(asked(LARGE), "a"))
        waiting = asyncio.create_task(held.enter_async_context(bodies.place_of(asked(LARGE), "a")))
        await asyncio.sleep(0)
        assert not waiting.done()
        await held.pop_all().aclose()
        await waiting


async def test_small_bodies_take_no_place() -> None:
    bodies = LargeBodies()
    async with AsyncExitStack() as held:
        for _ in range(100):
            await held.enter_async_context(bodies.place_of(asked(1024), "a"))


@pytest.mark.usefixtures("impatient")
async def test_a_caller_that_waits_too_long_is_asked_to_come_again(ask: Asker) -> None:
    lines = "\r\n".join([*head(RESUME), "", ""]).encode()
    slow = [await asyncio.open_connection(ask.host, ask.port) for _ in range(MOST // 2)]
    for _, writer in slow:
        writer.write(lines + b'{"task_id":')
    body, headers = b'{"task_id": "t", "data": "%s"}' % (b"x" * LARGE), {"content-type": "application/json"}
    async with asyncio.timeout(60):
        while (
            answer := await ask("POST", "/workflows/resume", data=io.BytesIO(body), headers=headers)
        ).status == 200:
            pass  # the slow ones are on their way
    assert (answer.status, answer.code) == (429, "too_many_requests")
    assert answer.headers["retry-after"]
    small = await ask("POST", "/workflows/resume", {"task_id": "u", "data": 1})
    assert small.status == 200
    for _, writer in slow:
        writer.close()
    async with asyncio.timeout(60):
        while (await ask("POST", "/workflows/resume", data=io.BytesIO(body), headers=headers)).status != 200:
            await asyncio.sleep(0.01)
