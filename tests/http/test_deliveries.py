"""Final callbacks over HTTP: asked for at a start, looked at, and, where nobody took them, sent again or given up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import aiohttp.web
import pytest

from holdfast.config import Settings
from holdfast.http.serve import serving
from holdfast.tools.registry import Registry
from tests.http.conftest import Asker
from tests.http.test_stream_killed import Mortal
from tests.runtime.receiver import Receiver, receiving

pytestmark = pytest.mark.anyio

DEAD = "/api/v1/dead-letters"
TIMER = {"name": "soon", "steps": [{"id": "t", "kind": "timer", "delay_ms": 1}]}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


async def rests(ask: Asker) -> None:
    await ask.serving.services.engine.outbox.rests()


async def ended(ask: Asker, **body: Any) -> dict[str, Any]:
    """A run whose end was told, or tried to be told once."""
    run = await ask.done(workflow="sum", inputs={"a": 40}, **body)
    await rests(ask)
    return run


async def dead(ask: Asker, receiver: Receiver) -> dict[str, Any]:
    receiver.statuses = [410]
    await ended(ask, final_callback_url=receiver.url)
    return dict((await ask("GET", DEAD)).body["items"][-1])


async def test_a_final_callback_contains_the_run_as_the_api_shows_it(ask: Asker, receiver: Receiver) -> None:
    run = await ended(ask, final_callback={"url": receiver.url}, labels={"team": "x"}, parent_job_id="p")
    (told,) = receiver.received
    shown = (await ask("GET", f"/api/v1/runs/{run['run_id']}")).body
    assert told.body == {name: shown[name] for name in told.body}
    assert {"run_id", "status", "output", "error", "labels"} <= told.body.keys()
    assert told.headers["content-type"] == "application/json"


async def test_both_words_for_a_final_callback_may_be_said(ask: Asker, receiver: Receiver) -> None:
    await ended(ask, final_callback={"url": f"{receiver.url}/1"}, final_callback_url=f"{receiver.url}/2")
    assert sorted(one.path for one in receiver.received) == ["/ended/1", "/ended/2"]


async def test_a_repeated_start_has_one_final_callback(ask: Asker, receiver: Receiver) -> None:
    for _ in range(2):
        await ended(ask, final_callback_url=receiver.url, request_id="once")
    assert len(receiver.received) == 1


async def test_a_run_shows_the_destinations_of_its_final_callbacks(ask: Asker, receiver: Receiver) -> None:
    run = await ended(ask, final_callback_url=receiver.url)
    (delivery,) = (await ask("GET", f"/api/v1/runs/{run['run_id']}/callbacks")).body["items"]
    assert delivery["id"] == receiver.received[0].id
    assert (delivery["run_id"], delivery["url"], delivery["status"]) == (
        run["run_id"],
        receiver.url,
        "delivered",
    )
    assert (delivery["tries"], delivery["last_error"], delivery["next_try_at"]) == (1, "", None)


async def test_a_delivery_on_its_way_says_when_it_is_tried_again(ask: Asker, receiver: Receiver) -> None:
    receiver.statuses = [503] * 10
    run = await ended(ask, final_callback_url=receiver.url)
    (delivery,) = (await ask("GET", f"/api/v1/runs/{run['run_id']}/callbacks")).body["items"]
    assert (delivery["status"], delivery["done_at"]) == ("waiting", None)
    assert delivery["next_try_at"] > delivery["created_at"]
    assert "503" in delivery["last_error"]


async def test_a_run_that_is_not_there_has_no_callbacks(ask: Asker) -> None:
    assert (await ask("GET", "/api/v1/runs/none/callbacks")).status == 404


async def test_dead_letters_are_listed_in_pages(ask: Asker, receiver: Receiver) -> None:
    made = [(await dead(ask, receiver))["id"] for _ in range(3)]
    first = (await ask("GET", f"{DEAD}?limit=2")).body
    rest = (await ask("GET", f"{DEAD}?limit=2&cursor={first['cursor']}")).body
    assert [one["id"] for one in (*first["items"], *rest["items"])] == made
    assert rest["cursor"] is None


async def test_a_dead_letter_is_sent_again_under_its_id(ask: Asker, receiver: Receiver) -> None:
    delivery = await dead(ask, receiver)
    answer = await ask("POST", f"{DEAD}/{delivery['id']}/replay")
    assert (answer.status, answer.body["status"]) == (200, "waiting")
    await rests(ask)
    assert receiver.ids == [delivery["id"]] * 2
    assert (await ask("GET", DEAD)).body["items"] == []


async def test_a_dead_letter_is_given_up(ask: Asker, receiver: Receiver) -> None:
    delivery = await dead(ask, receiver)
    answer = await ask("DELETE", f"{DEAD}/{delivery['id']}")
    assert (answer.status, answer.body["status"]) == (200, "discarded")
    assert (await ask("GET", DEAD)).body["items"] == []
    again = await ask("DELETE", f"{DEAD}/{delivery['id']}")
    assert (again.status, again.code) == (409, "refused")


@pytest.mark.parametrize(("method", "tail"), [("POST", "/replay"), ("DELETE", "")])
async def test_a_delivery_that_is_not_there_is_not_found(ask: Asker, method: str, tail: str) -> None:
    for name in ("msg_none_0", "%00", "x" * 500):
        assert (await ask(method, f"{DEAD}/{name}{tail}")).status == 404


async def test_a_guarded_server_calls_no_private_address(tmp_path: Path, receiver: Receiver) -> None:
    settings = Settings(db=f"sqlite:///{tmp_path / 'test.db'}", port=0, key="k" * 40)
    async with serving(settings, registry=Registry()) as server, aiohttp.ClientSession() as session:
        body = {"spec": TIMER, "final_callback_url": receiver.url, "wait_secs": 30}
        headers = {"Authorization": f"Bearer {'k' * 40}"}
        async with session.post(f"{server.address}/api/v1/runs", json=body, headers=headers) as answer:
            run = await answer.json()
        await server.services.engine.outbox.rests()
        (delivery,) = await server.services.queries.callback_deliveries("default", run["run_id"])
    assert receiver.received == []
    assert "not a public address" in delivery.last_error


async def test_a_server_that_is_killed_between_end_and_delivery_tells_when_it_is_back(tmp_path: Path) -> None:
    """The receiver holds the first delivery while the server dies: the end is on disk, and nobody has confirmed it."""
    arrived, goes_on, seen = asyncio.Event(), asyncio.Event(), []

    async def receive(request: aiohttp.web.Request) -> aiohttp.web.Response:
        seen.append((request.headers["webhook-id"], (await request.json())["run_id"]))
        arrived.set()
        await goes_on.wait()
        return aiohttp.web.Response(status=204)

    app = aiohttp.web.Application()
    app.router.add_post("/ended", receive)
    runner = aiohttp.web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = aiohttp.web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    server = Mortal(tmp_path / "h.db")
    await server.live()
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(120):
            body = {"spec": TIMER, "final_callback_url": f"http://127.0.0.1:{port}/ended"}
            async with session.post(f"{server.address}/api/v1/runs", json=body) as answer:
                run_id = (await answer.json())["run_id"]
            await arrived.wait()
            await server.die()
            goes_on.set()
            arrived.clear()
            await server.live()
            await arrived.wait()
            assert seen == [(f"msg_{run_id}_0", run_id)] * 2
    finally:
        goes_on.set()
        await server.die()
        await runner.cleanup()
