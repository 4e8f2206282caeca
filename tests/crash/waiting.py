"""The campaign of runs that wait, under kill -9: a real `holdfast up` dies at seeded moments, again and again, while runs
wait for callbacks, approvals, signals, polls, timers and workers, and while their ends are told to a receiver.

In the end every run has ended as it must; every answer that was acknowledged has counted, and once; nothing that follows
a wait was done twice unless it was being done when its server died, and the log says so; every end was told under one id.
And meanwhile nothing that was open was ever without a reason, or an orphan.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.crash.checker import query_file
from tests.crash.outside import PEOPLE, SECRET, SECRET_ENV, Outside, Server
from tests.crash.processes import Place
from tests.crash.waiting_checker import TERMINAL, Found, check
from tests.crash.waiting_flows import Kind, inputs_of, kind_of
from tests.sdk.processes import House

LEASE_SECS = 20  # after which a job is offered again whose first offer was lost with its server
STOP_EVERY = 6
ANSWERS_MAX = 150  # that a server gives before it is killed
LIFE_SECONDS = 10.0  # of a server, before which its kill does not wait any longer for what it is to fall into
PATIENCE_SECONDS = 200.0  # with which the end of a run is waited for, and that of its deliveries


class Campaign(msgspec.Struct):
    seed: int
    kills: int = 0
    stops: int = 0
    seconds: float = 0.0
    asked_again: int = 0  # requests of those outside that nobody answered
    scrapes: int = 0
    explained: int = 0
    killed_at: list[int] = []  # in milliseconds
    found: Found = msgspec.field(default_factory=Found)
    problems: list[str] = []

    def __str__(self) -> str:
        found = self.found
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(found.answers.items()))
        ends = ", ".join(f"{count} {status}" for status, count in sorted(found.statuses.items()))
        return (
            f"seed {self.seed}: {self.kills} kills and {self.stops} stops of a server, runs that wait: {ends}; callbacks: {told}; "
            f"{found.outlived} waits outlived a server, {found.lost} attempts lost, {found.given_up} runs given up, "
            f"{self.asked_again} requests asked again, {found.deliveries} final callbacks arrived, {self.scrapes} scrapes, "
            f"{self.explained} explanations, {len(self.problems)} problems, {self.seconds:.1f} s"
        )


def campaign(folder: Path, *, seed: int, kills: int, runs: int) -> Campaign:
    done, began = Campaign(seed), time.monotonic()
    place = Place(folder)
    place.db = folder / "h.db"
    env = {SECRET_ENV: SECRET, "EFFECTS": str(place.effects), "HOLDFAST_WORKER_LEASE_SECS": str(LEASE_SECS)}
    house = House(folder, HOLDFAST_WORKER_TTL_SECS="120", **env)
    try:
        _up(house)
        outside, views = asyncio.run(_under_load(house, place, done, kills, runs))
        assert house.stop(house.server) == 0
    finally:
        house.close()
    place.log.write_text("\n".join(log.read_text() for log in folder.glob("*.log")))
    done.found = check(place, outside, views, done.killed_at)
    done.problems += done.found.problems
    done.seconds = time.monotonic() - began
    return done


def _up(house: House) -> None:
    house.up("--tools", "tests.crash.services:note", "--public-url", house.address)


async def _under_load(
    house: House, place: Place, done: Campaign, kills: int, runs: int
) -> tuple[Outside, list[dict[str, Any]]]:
    session = aiohttp.ClientSession(
        timeout=aiohttp.ClientTimeout(10), connector=aiohttp.TCPConnector(limit=0)
    )
    async with session:
        server = Server(session, house.address)
        outside = Outside(server, done.seed)
        await outside.up()
        watcher = Watcher(server, done)
        outside.begin(watcher.scrape())
        outside.begin(watcher.explain())
        killing = asyncio.create_task(_kill_often(house, place, outside, done, kills))
        try:
            gap = kills * 1.2 / runs  # so that starts go on while servers come and go
            clients = [Client(outside, watcher, number).lives(gap * number) for number in range(runs)]
            _, *views = await asyncio.gather(killing, *clients)
            await watcher.told([view["run_id"] for view in views])
            outside.check()
        finally:
            killing.cancel()
            await outside.close()
        done.asked_again = server.asked_again
    return outside, views


# ---------------------------------------------------------------------------------------------------------- kills


async def _kill_often(house: House, place: Place, outside: Outside, done: Campaign, kills: int) -> None:
    """The first kill falls on a wait, of the others some into the first moments of a server and most into its work."""
    rng = random.Random(done.seed)
    for number in range(kills):
        if number == 0:
            await _until(lambda: _waits(place, outside.held), PATIENCE_SECONDS)
        elif rng.randrange(4):
            end = outside.server.answered + rng.randrange(ANSWERS_MAX)
            await _until(lambda end=end: outside.server.answered >= end, LIFE_SECONDS)  # type: ignore[misc]
        await asyncio.sleep(rng.choice((0.0, 0.2)) * rng.random())
        is_alone = number % 3 == 1  # the receiver of final callbacks is away too
        if is_alone:
            await outside.receive_nothing()
        done.killed_at.append(time.time_ns() // 1_000_000)
        # in good order now and then: what is released meets what is lost
        if number % STOP_EVERY == STOP_EVERY - 1:
            assert await asyncio.to_thread(house.stop, house.server) == 0
            done.stops += 1
        else:
            await asyncio.to_thread(house.kill, house.server)
            done.kills += 1
        await asyncio.sleep(rng.choice((0.0, 0.3)) * rng.random())
        await asyncio.to_thread(_up, house)
        if is_alone:
            await outside.receive()
        outside.let_go()
    outside.holds = False
    outside.let_go()


async def _until(is_so: Callable[[], bool], seconds: float) -> None:
    """Wait for something; not for ever, since when all has ended nothing comes any more."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not is_so():
                await asyncio.sleep(0.01)


def _waits(place: Place, tasks: set[str]) -> bool:
    """Does some run wait, durably, for one of these tasks?"""
    waits = query_file(place, "SELECT name FROM wait WHERE kind = 'callback' AND resolved_at IS NULL")
    return any(name in tasks for (name,) in waits)


# -------------------------------------------------------------------------------------------------------- clients


class Client:
    """Starts a run, lets everybody say what it waits for, and sees it end."""

    def __init__(self, outside: Outside, watcher: Watcher, number: int) -> None:
        self._outside, self._server, self._watcher = outside, outside.server, watcher
        self._number, self._kind = number, kind_of(number)

    async def lives(self, delay: float) -> dict[str, Any]:
        await asyncio.sleep(delay)
        run_id = await self._start(self._kind)
        self._watcher.open.append(run_id)
        self._outside.begin(self._outside.signal(run_id, "go", self._kind.signals))
        if self._kind.is_cancelled and self._number % 4 == 1:
            self._outside.begin(self._outside.cancel(run_id))
        asked: set[str] = set()
        end = time.monotonic() + PATIENCE_SECONDS
        while not (view := await self._view(run_id))["finished_at"] and time.monotonic() < end:
            gates = {wait["path"] for wait in view["waits"] if wait["kind"] == "approval"}
            for gate in gates - asked:
                self._answer(run_id, gate)
            asked |= gates
            await asyncio.sleep(0.2)
        self._watcher.open.remove(run_id)
        return view

    async def _start(self, kind: Kind) -> str:
        body = {
            "spec": kind.spec(self._outside.receiver),
            "inputs": inputs_of(self._number, self._outside.url),
            "request_id": f"r{self._number}",
            "final_callback": {"url": f"{self._outside.receiver}/start", "secret_env": SECRET_ENV},
        }
        started = await self._server.ask("POST", "/api/v1/runs", body)
        assert started.status == 202, started
        return str(started.body["run_id"])

    async def _view(self, run_id: str) -> dict[str, Any]:
        view = await self._server.ask("GET", f"/api/v1/runs/{run_id}")
        assert view.status == 200, view
        return dict(view.body)

    def _answer(self, run_id: str, gate: str) -> None:
        """Everybody answers, one in another way than the others."""
        names_needed = self._kind.gates[gate] > 1
        for place, who in enumerate(PEOPLE):
            by_link = (place == self._number % 3) != names_needed
            self._outside.begin(self._outside.approve(run_id, gate, who, by_link=by_link))


class Watcher:
    """Looks at the server all the time: is anything open that nothing will ever move, or that has no reason?"""

    def __init__(self, server: Server, done: Campaign) -> None:
        self._server, self._done = server, done
        self.open: list[str] = []

    async def scrape(self) -> None:
        while True:
            answer = await self._server.once("GET", "/metrics")
            if answer is not None:
                self._done.scrapes += 1
                for name in ("holdfast_orphan_runs", "holdfast_runs_set_aside"):
                    found = re.search(rf"^{name} (\S+)$", answer.body, re.MULTILINE)
                    if found is None or float(found[1]):
                        self._done.problems.append(f"{name} is {found and found[1]}")
            await asyncio.sleep(0.1)

    async def explain(self) -> None:
        rng = random.Random(self._done.seed)
        while True:
            await asyncio.sleep(0.1)
            if not self.open:
                continue
            run_id = rng.choice(self.open)
            answer = await self._server.once("GET", f"/api/v1/runs/{run_id}/explain")
            if answer is not None:
                self._done.explained += 1
                if answer.body["status"] not in TERMINAL and not answer.body["reasons"]:
                    self._done.problems.append(f"{run_id} is open for no reason: {answer.body}")

    async def told(self, runs: list[str]) -> None:
        """Wait until every end was told, or given up; what is still on its way then the checker will find."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                for run_id in runs:
                    while await self._is_on_its_way(run_id):
                        await asyncio.sleep(0.1)

    async def _is_on_its_way(self, run_id: str) -> bool:
        deliveries = (await self._server.ask("GET", f"/api/v1/runs/{run_id}/callbacks")).body["items"]
        return any(delivery["status"] == "waiting" for delivery in deliveries)
