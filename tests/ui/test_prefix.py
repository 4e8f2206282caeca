"""The page behind a proxy that puts it under a prefix and takes the prefix off again: nothing has to be told to the server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import aiohttp
import pytest
from aiohttp import web

from tests.ui.conftest import SECS_MAX, Open, Server

PREFIX = "/tools/holdfast"


class Proxy(threading.Thread):
    """Passes requests on as they are, streams included, without PREFIX."""

    def __init__(self, upstream: str) -> None:
        super().__init__(daemon=True)
        self.upstream, self.address = upstream, ""
        self._is_up, self._loop = threading.Event(), asyncio.new_event_loop()

    def run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()  # otherwise its sockets warn in whichever test runs when they are collected

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        app = web.Application()
        app.router.add_route("*", PREFIX + "/{tail:.*}", self._pass_on)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        async with aiohttp.ClientSession(auto_decompress=False) as self._http:
            await runner.setup()
            await (site := web.TCPSite(runner, "127.0.0.1", 0)).start()
            assert site._server is not None and isinstance(site._server, asyncio.Server)
            self.address = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
            self._is_up.set()
            await self._over.wait()
            await runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        target = self.upstream + request.raw_path.removeprefix(PREFIX)
        body = await request.read()
        async with self._http.request(request.method, target, headers=request.headers, data=body) as answer:
            said = web.StreamResponse(status=answer.status, headers=answer.headers)
            await said.prepare(request)
            async for part in answer.content.iter_any():
                await said.write(part)
            return said

    def begin(self) -> None:
        self.start()
        assert self._is_up.wait(SECS_MAX)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self.join(SECS_MAX)


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    made = Proxy(server.address)
    made.begin()
    yield made
    made.end()


def test_the_page_works_under_a_prefix(server: Server, proxy: Proxy, watched: Open) -> None:
    run_id = server.run("gate", until="waiting")
    behind = Server(server.folder, port=int(proxy.address.rpartition(":")[2]))
    one = watched(behind)
    one.expected = ["favicon.ico"]  # which the browser looks for at the root, for /docs
    page = one.open(f"{PREFIX}/")
    one.by("latest-table").wait_for()
    assert page.get_attribute("[data-testid=nav-runs]", "href") == f"{PREFIX}/ui/runs"
    page.keyboard.type("gr")
    page.wait_for_url(f"**{PREFIX}/ui/runs")
    one.by(f"open-{run_id}").click()
    page.wait_for_url(f"**{PREFIX}/ui/runs/{run_id}")
    page.wait_for_selector(".meta .live-live")
    page.reload()  # a deep link
    one.by("answer").click()
    one.by("answer-form-carrier").select_option(label="bike")
    one.by("approve").click()
    page.wait_for_selector("[data-testid=sentence].s-completed")
    assert f"{proxy.address}{PREFIX}/api/v1/runs/{run_id}" in str(one.by("copy-curl").get_attribute("title"))
    one.open(f"{PREFIX}/docs")
    page.get_by_text("/api/v1/runs", exact=True).first.wait_for()
