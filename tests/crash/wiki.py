"""A wiki is written by a service that is slow: its tools as a server has them, the service, and what happens to both.

A draft that is short is answered at once. Of a long one the service says that it will be done, and calls back when it is,
several times over, as it does whose first call was not answered. Meanwhile the server is killed and started anew.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from holdfast import Context, tool
from tests.crash.outside import AWAY, Server, listening
from tests.sdk.processes import House

LONG_CHARS = 2_048
CALLBACKS = 5
SHORT, FAST, SLOW, FAILING = "short", "fast", "slow", "failing"

WORKFLOW = """
name: wiki
inputs: {slug: {type: string}, draft: {type: string}}
steps:
  - id: synth
    tool: ask_model
    args: {recipe: wiki, prompt: "{{ inputs.slug }}: {{ inputs.draft }}"}
    result: {envelope: true, select: $.data.text, parse: json}
    retry: {max_attempts: 1}
  - id: page
    tool: write_page
    args: {slug: "{{ inputs.slug }}", title: "{{ steps.synth.output.title }}", chars: "{{ steps.synth.output.chars }}"}
output: {title: "{{ steps.synth.output.title }}", written: "{{ steps.page.output }}"}
"""


@tool(supports_async_callback=True)
async def ask_model(recipe: str, prompt: str, callback_url: str = "") -> Any:
    """Ask the service, and hand on what it says."""
    body = {"recipe": recipe, "prompt": prompt, "callback_url": callback_url}
    async with aiohttp.ClientSession() as session, session.post(os.environ["MODEL"], json=body) as answer:
        return await answer.json()


@tool
def write_page(context: Context, slug: str, title: str, chars: int) -> str:
    """A page is a line of a file, so that one that was written twice is seen."""
    with open(os.environ["PAGES"], "ab", buffering=0) as file:
        file.write(f"{slug} {title} {chars} {context.attempt}\n".encode())
    return f"{slug}.md"


class Model:
    """The service. It calls back at the address that it was told, or, for every second task, at the one that all know."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.calls: list[str] = []  # the slugs that it was asked for
        self.addresses: dict[str, str] = {}  # by slug
        self.reasons: dict[str, list[str]] = {SLOW: [], FAST: [], FAILING: []}

    async def execute(self, request: web.Request) -> web.Response:
        said = await request.json()
        slug, _, draft = said["prompt"].partition(": ")
        self.calls.append(slug)
        self.addresses[slug] = said["callback_url"]
        if len(draft) < LONG_CHARS:
            return web.json_response(self._done(slug, 0, len(draft)))
        if slug == FAST:
            await self.call_back(slug, 0)  # before it has said that it will
        return web.json_response(
            {
                "success": True,
                "pending": True,
                "task_id": f"task_{slug}",
                "poll_url": f"http://127.0.0.1:9/execute/task_{slug}",
                "estimated_seconds": 75,
            }
        )

    def _done(self, slug: str, number: int, chars: int) -> dict[str, Any]:
        if slug == FAILING:
            return {"success": False, "error": "the model is down"}
        return {"success": True, "data": {"text": json.dumps({"title": f"{slug}-{number}", "chars": chars})}}

    async def call_back(self, slug: str, number: int) -> None:
        """Until it is answered; there is no sleeping on it, since it is known when the server is away."""
        path = "/workflows/resume" if number % 2 else self.addresses[slug]
        body = {"task_id": f"task_{slug}", **self._done(slug, number, 5_000)}
        answer = await self._server.ask("POST", path, body)
        assert answer.status == 200, answer
        self.reasons[slug].append(answer.body["reason"])


class Told(msgspec.Struct):
    """What the caller was told."""

    starts: dict[str, Any] = {}  # by slug
    paused_journal: list[Any] = []
    paused: Any = None  # the slow run while it waits
    runs: dict[str, Any] = {}  # in the end
    ends: list[Any] = []  # that were told to the address that the start named
    pages: list[str] = []
    calls: list[str] = []
    reasons: dict[str, list[str]] = {}
    asked_again: int = 0  # callbacks that nobody answered, since the server was away


def happened(folder: Path) -> Told:
    return asyncio.run(_happened(folder))


async def _happened(folder: Path) -> Told:
    told, pages = Told(), folder / "pages"
    pages.touch()
    async with aiohttp.ClientSession() as session:
        house = House(folder, PAGES=str(pages))
        server = Server(session, house.address)
        model = Model(server)

        async def ended(request: web.Request) -> web.Response:
            told.ends.append(await request.json())
            return web.Response(status=204)

        app = web.Application()
        app.add_routes([web.post("/execute", model.execute), web.post("/ended", ended)])
        runner, port = await listening(app)
        outside = f"http://127.0.0.1:{port}"
        words = ("--tools", "tests.crash.wiki", "--public-url", house.address)
        try:
            await asyncio.to_thread(house.up, *words, MODEL=f"{outside}/execute")
            await _ask(told, server, f"{outside}/ended")
            house.kill(house.server)
            calling = [asyncio.create_task(model.call_back(SLOW, number)) for number in range(CALLBACKS)]
            await _is_refused(session, house.address)
            await asyncio.to_thread(house.up, *words, MODEL=f"{outside}/execute")
            await asyncio.gather(*calling)
            for number in range(1, CALLBACKS):
                await model.call_back(FAST, number)
            await model.call_back(FAILING, 0)
            await _see_the_end(told, server)
            assert await asyncio.to_thread(house.stop, house.server) == 0
        finally:
            house.close()
            await runner.cleanup()
    told.pages, told.calls, told.reasons = pages.read_text().splitlines(), model.calls, model.reasons
    told.asked_again = server.asked_again
    return told


async def _ask(told: Told, server: Server, ended: str) -> None:
    for slug in (SHORT, FAST, SLOW, FAILING):
        draft = "x" * (100 if slug == SHORT else 5_000)
        body = {"spec": WORKFLOW, "inputs": {"slug": slug, "draft": draft}, "final_callback_url": ended}
        told.starts[slug] = (await server.ask("POST", "/api/v1/runs", {**body, "wait_secs": 30})).body
    run_id = told.starts[SLOW]["run_id"]
    told.paused = (await server.ask("GET", f"/api/v1/runs/{run_id}")).body
    told.paused_journal = (await server.ask("GET", f"/api/v1/runs/{run_id}/journal")).body["items"]


async def _is_refused(session: aiohttp.ClientSession, address: str) -> None:
    """Nobody is there now; whoever calls back meets nobody."""
    try:
        async with session.get(f"{address}/healthz"):
            raise AssertionError("the server lives")
    except AWAY:
        pass


async def _see_the_end(told: Told, server: Server) -> None:
    async with asyncio.timeout(120):
        for slug, start in told.starts.items():
            while not (run := (await server.ask("GET", f"/api/v1/runs/{start['run_id']}")).body)[
                "finished_at"
            ]:
                await asyncio.sleep(0.01)
            told.runs[slug] = run
        ids = {run["run_id"] for run in told.runs.values()}
        # one may come twice: its server died before it knew
        while {end["run_id"] for end in told.ends} != ids:
            await asyncio.sleep(0.01)
