"""Everybody whom runs that wait have to do with, on real sockets: services that answer later, an address that is asked,
workers that are called and that fetch, people who approve, those who send signals, the receiver of final callbacks.

They outlive every server. Whatever they say they say again until they are answered, as those outside do, and note what
they were told. What they do is drawn from a seed; what becomes of it is for `waiting` to judge.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Coroutine
from typing import Any, NamedTuple

import aiohttp
import msgspec
from aiohttp import web

from tests.ports import free_port
from tests.runtime.receiver import Received, hub_signature, standard_signature

AWAY = (aiohttp.ClientError, ConnectionError, TimeoutError)
AGAIN_SECONDS = (0.05, 0.1, 0.2, 0.4)  # between one try and the next; then as the last
FETCH_SECONDS = 2.0
ARRIVING_SECONDS = 0.01
CALLED, FETCHING = "called", "fetching"
PEOPLE = ("ada", "bob", "eve")
SECRET_ENV, SECRET = "ENDED_KEY", "correct-horse-battery-staple"


class Answer(NamedTuple):
    status: int
    body: Any


class Server:
    """The server as those outside see it: at one address, and sometimes away."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session, self.address = session, address
        self.answered = 0
        self.asked_again = 0  # requests that nobody answered

    async def once(self, method: str, path: str, body: Any = None, **rest: Any) -> Answer | None:
        given = rest if body is None else {"json": body, **rest}
        url = path if path.startswith("http") else self.address + path
        try:
            async with self._session.request(method, url, **given) as answer:
                is_json = answer.content_type == "application/json"
                said = await (answer.json() if is_json else answer.text())
                if answer.status in (429, 503):
                    return None
        except AWAY:
            return None
        self.answered += 1
        return Answer(answer.status, said)

    async def ask(self, method: str, path: str, body: Any = None, **rest: Any) -> Answer:
        """Ask until somebody answers."""
        delays = itertools.chain(AGAIN_SECONDS, itertools.repeat(AGAIN_SECONDS[-1]))
        while (answer := await self.once(method, path, body, **rest)) is None:
            self.asked_again += 1
            await asyncio.sleep(next(delays))
        return answer


class Said(msgspec.Struct, frozen=True):
    """One answer that the slow service gave, and what it was told about it."""

    task: str
    value: str
    reason: str
    by_address: bool
    is_failure: bool


class Task(msgspec.Struct):
    """Something that the slow service was asked to do, and how it will say that it has."""

    id: str
    url: str
    is_early: bool
    is_held: bool
    is_failure: bool
    delay: float
    times: int
    together: bool


class CallbackDelivery(NamedTuple):
    received: Received
    run_id: str
    is_ours: bool
    taken: bool


class Outside:
    def __init__(self, server: Server, seed: int) -> None:
        self.server, self._seed = server, seed
        self.said: list[Said] = []
        # run, path → who, decided
        self.decided: dict[tuple[str, str], list[tuple[str, bool]]] = defaultdict(list)
        self.calls: Counter[str] = Counter()  # of the slow service, by what it was to do
        # by services that answer at once: run's number, step
        self.executed: Counter[tuple[str, str]] = Counter()
        self.jobs: Counter[tuple[str, str, int]] = Counter()  # that were fetched: run, path, attempt
        self.accepted: set[tuple[str, str, int]] = set()  # of these, whose answer was acknowledged
        self.looks: Counter[str] = Counter()
        self.problems: list[str] = []
        self.holds = True  # some answers are kept until a server has died and the next one is there
        self.held: set[str] = set()
        self._let_go = asyncio.Event()
        self.deliveries: list[CallbackDelivery] = []
        self.crossed: list[str] = []  # deliveries that came while one with the same id was arriving
        self._arriving: Counter[str] = Counter()
        self.url = ""
        self._receiver: web.AppRunner
        self._receiver_port = free_port()  # its own also while it is away
        self._main: web.AppRunner
        self._tasks: set[asyncio.Task[None]] = set()

    def _rng(self, *about: object) -> random.Random:
        return random.Random(":".join(map(str, (self._seed, *about))))

    # ------------------------------------------------------------------------------------------------- coming, going

    async def up(self) -> None:
        app = web.Application()
        app.add_routes([
            web.post("/exec/render", self._render), web.post("/exec/ship", self._ship),
            web.get("/status/{task}", self._status), web.get("/job/{name}", self._job_status),
        ])  # fmt: skip
        self._main, port = await listening(app)
        self.url = f"http://127.0.0.1:{port}"
        await self.receive()
        await self._register()
        self.begin(self._beat())
        self.begin(self._fetch())

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._main.cleanup()
        await self._receiver.cleanup()

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.add(asyncio.get_running_loop().create_task(work))

    def check(self) -> None:
        """Nobody outside has broken down: then it would be us who is wrong."""
        for task in self._tasks:
            if task.done():
                task.result()

    # -------------------------------------------------------------------------------------------- who answers later

    def _task(self, name: str, url: str) -> Task:
        self.calls[name] += 1
        count = self.calls[name]
        rng = self._rng(name, count)
        return Task(
            id=f"{name}.{count}",
            url=url if rng.randrange(3) else "",
            is_early=not rng.randrange(3),
            is_held=self.holds and not rng.randrange(2),
            is_failure=count == 1 and not rng.randrange(5),
            delay=rng.choice((0.0, 0.1, 0.6, 1.2)) * rng.random(),
            times=rng.choice((1, 2, 5)),
            together=bool(rng.randrange(2)),
        )

    async def _render(self, request: web.Request) -> web.Response:
        """The service: says that it will answer, and sometimes has done so before."""
        said = await request.json()
        task = self._task(said["input"], said["params"]["callback_url"])
        if task.is_early:
            await self._call_back(task)
        else:
            self.begin(self._call_later(task))
        return web.json_response({"result": _pending(task.id), "error": ""})

    async def _call_later(self, task: Task) -> None:
        if task.is_held:
            self.held.add(task.id)
            await self._let_go.wait()
        await asyncio.sleep(task.delay)
        await self._call_back(task)

    def let_go(self) -> None:
        """Give the answers that were held back."""
        self.held.clear()
        self._let_go.set()
        self._let_go = asyncio.Event()

    async def _call_back(self, task: Task) -> None:
        if task.together:
            await asyncio.gather(*(self._say(task, number) for number in range(task.times)))
            return
        for number in range(task.times):
            await self._say(task, number)

    async def _say(self, task: Task, number: int) -> None:
        value = f"{task.id}#{number}"
        body: dict[str, Any] = {"success": True, "data": value}
        if task.is_failure:
            body = {"success": False, "error": value}
        if not task.url:
            body["task_id"] = task.id
        answer = await self.server.ask("POST", task.url or "/workflows/resume", body)
        if answer.status != 200:
            return self.problems.append(f"the answer {value} was refused: {answer}")
        self.said.append(Said(task.id, value, answer.body["reason"], bool(task.url), task.is_failure))

    async def _status(self, request: web.Request) -> web.Response:
        """An address that is asked whether a task is done: not at once, and with failures on the way."""
        task = request.match_info["task"]
        self.looks[task] += 1
        if self.looks[task] <= self._rng("looks", task).randrange(4):
            return web.json_response(
                _pending(task), status=self._rng(task, self.looks[task]).choice((200, 500))
            )
        return web.json_response({"success": True, "data": f"{task}!"})

    async def _job_status(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        self.looks[name] += 1
        return web.json_response(
            {"done": self.looks[name] > self._rng("looks", name).randrange(5), "name": name}
        )

    # ------------------------------------------------------------------------------------------------------ workers

    async def _ship(self, request: web.Request) -> web.Response:
        said = await request.json()
        self.executed[said["input"], said["params"]["step"]] += 1
        return web.json_response({"result": f"shipped {said['input']}", "error": ""})

    async def _register(self) -> None:
        for body in (
            {"id": CALLED, "url": self.url, "services": ["render", "ship"]},
            {"id": FETCHING, "kind": "pull", "services": ["scan", "pack"]},
        ):
            answer = await self.server.ask("POST", "/api/v1/workers", body)
            assert answer.status == 200, answer

    async def _beat(self) -> None:
        while True:
            if (await self.server.ask("POST", f"/api/v1/workers/{CALLED}/heartbeat", {})).status == 404:
                await self._register()
            await asyncio.sleep(1.0)

    async def _fetch(self) -> None:
        body = {"worker_id": FETCHING, "limit": 20, "wait_secs": FETCH_SECONDS}
        while True:
            answer = await self.server.ask("POST", "/api/v1/assignments/poll", body)
            if answer.status == 404:
                await self._register()
                continue
            for job in answer.body["assignments"]:
                self.begin(self._perform(job))

    async def _perform(self, job: dict[str, Any]) -> None:
        key = (job["run_id"], job["path"], job["attempt"])
        self.jobs[key] += 1
        name, rng = job["input"], self._rng("job", *key)
        await asyncio.sleep(rng.choice((0.0, 0.05, 0.4)) * rng.random())
        result: Any = f"packed {name}"
        if job["service"] == "scan":
            self.calls[name] += 1
            task = f"{name}.{self.calls[name]}"
            result = {**_pending(task), "poll_url": f"{self.url}/status/{task}"}
        path = f"/api/v1/assignments/{job['id']}/complete"
        answer = await self.server.ask("POST", path, {"token": job["token"], "result": result})
        if answer.status == 200:
            self.accepted.add(key)

    # ------------------------------------------------------------------------------------------------------- people

    async def approve(self, run_id: str, path: str, who: str, *, by_link: bool) -> None:
        """Approve a gate that is open, by the API or by a link that a scanner has opened before."""
        await asyncio.sleep(self._rng(run_id, path, who).random() * 0.5)
        answer = await (self._by_link if by_link else self._by_api)(run_id, path, who)
        if answer.status == 200:
            is_decided = (
                answer.body["decided"] if isinstance(answer.body, dict) else "decides it" in answer.body
            )
            self.decided[run_id, path].append((who, is_decided))
        elif answer.status not in (409, 410) or "nothing now" in str(answer.body):
            self.problems.append(f"{run_id}: the answer of {who} at {path} was refused: {answer}")

    async def _by_api(self, run_id: str, path: str, who: str) -> Answer:
        body = {"approved": True, "reason": who, "by": who}
        return await self.server.ask("POST", f"/api/v1/runs/{run_id}/approvals/{path}", body)

    async def _by_link(self, run_id: str, path: str, who: str) -> Answer:
        made = await self.server.ask("POST", f"/api/v1/runs/{run_id}/approvals/{path}/links", {"by": who})
        if made.status != 200:
            return made
        link = made.body["url"]
        for method in ("HEAD", "GET"):
            await self.server.ask(method, link)
        return await self.server.ask("POST", link, data={"answer": "approve", "reason": who})

    async def cancel(self, run_id: str) -> None:
        await asyncio.sleep(self._rng(run_id, "cancel").random())
        answer = await self.server.ask("POST", f"/api/v1/runs/{run_id}/cancel", {})
        if answer.status not in (200, 202, 409):  # it may be over
            self.problems.append(f"{run_id}: its cancel was refused: {answer}")

    async def signal(self, run_id: str, key: str, values: int) -> None:
        """Send one signal after the other, each until it is acknowledged."""
        for number in range(values):
            await asyncio.sleep(self._rng(run_id, key, number).random() * 0.5)
            headers = {"Idempotency-Key": f"{run_id}:{key}:{number}"}
            path, body = f"/api/v1/runs/{run_id}/signals", {"key": key, "value": number + 1}
            answer = await self.server.ask("POST", path, body, headers=headers)
            if answer.status != 200:  # the run is over: what it got is for its journal to say
                return

    # ------------------------------------------------------------------------------------------------ final callbacks

    async def receive(self) -> None:
        """The receiver of final callbacks is there."""
        app = web.Application()
        app.add_routes([web.post("/{who}", self._ended)])
        self._receiver, _ = await listening(app, self._receiver_port)

    async def receive_nothing(self) -> None:
        await self._receiver.cleanup()

    @property
    def receiver(self) -> str:
        return f"http://127.0.0.1:{self._receiver_port}"

    async def _ended(self, request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        one = Received(request.path, headers, await request.read())
        tries = sum(delivery.received.id == one.id for delivery in self.deliveries)
        taken = bool(tries) or bool(self._rng("delivery", one.id).randrange(4))
        is_ours = headers.get("webhook-signature") == standard_signature(SECRET.encode(), one)
        is_ours &= headers.get("x-hub-signature-256") == hub_signature(SECRET.encode(), one)
        self.crossed += [one.id] * self._arriving[one.id]
        self._arriving[one.id] += 1
        await asyncio.sleep(ARRIVING_SECONDS)
        self._arriving[one.id] -= 1
        self.deliveries.append(CallbackDelivery(one, one.body["run_id"], is_ours, taken))
        return web.Response(status=204 if taken else 503)


def _pending(task: str) -> dict[str, Any]:
    return {"pending": True, "task_id": task, "success": True, "estimated_seconds": 1}


async def listening(app: web.Application, port: int = 0) -> tuple[web.AppRunner, int]:
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
    return runner, int(runner.addresses[0][1])
