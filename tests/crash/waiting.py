"""The campaign of runs that wait, under kill -9: a real `holdfast up` dies at seeded moments, again and again, while runs
wait for callbacks, approvals, signals, polls, timers and workers, and while their ends are told to a receiver.

In the end every run has ended with the right output; every answer that was acknowledged has counted, and once; nothing
that follows a wait was done twice unless it was being done when its server died, and the log says so; every end was told
under one id. And meanwhile nothing that was open was ever without a reason or an orphan.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.crash.checker import Row, check_log, journals, query_file
from tests.crash.outside import PEOPLE, SECRET, SECRET_ENV, Outside, Server
from tests.crash.processes import Place
from tests.sdk.processes import House

ITEMS, SIGNALS = 3, 3
LEASE_SECS = 10  # after which a job is offered again whose first offer was lost with its server
ANSWERS_MAX = 150  # that a server gives before it is killed
LIFE_SECONDS = 5.0
PATIENCE_SECONDS = 300.0  # with which the end of a run is waited for, and that of its letters
TERMINAL = {"completed", "failed", "cancelled", "interrupted"}
AGAIN = {"max_attempts": 20, "backoff": "fixed", "initial_delay_ms": 10}
LATER = {"supports_async_callback": True, "result": {"envelope": True, "select": "$.data"}, "retry": AGAIN}


def whole(receiver: str) -> dict[str, Any]:
    """Every kind of wait, one within another and side by side, each followed by something that is done."""
    signals = [
        {"id": f"paid{number}", "kind": "wait_event", "signal_key": "paid"} for number in range(SIGNALS)
    ]
    return {
        "name": "whole",
        "inputs": {
            "name": {"type": "string"}, "items": {"type": "array"}, "job": {"type": "string"},
            "ms": {"type": "integer"},
        },
        "steps": [
            {"id": "pages", "kind": "foreach", "items": "$.inputs.items", "as": "it", "concurrency": ITEMS, "steps": [
                {"id": "page", "service": "render", "input": "{{it}}", **LATER},
                {"id": "bound", "tool": "note", "args": {"value": "{{steps.page.output}}"}},
            ]},
            {"id": "all", "kind": "parallel", "branches": [
                [{"id": "gate", "kind": "approve", "prompt": "Print {{inputs.name}}?"},
                 {"id": "printed", "tool": "note", "args": {"value": "{{steps.gate.output.by}}"}}],
                [{"id": "board", "kind": "approve", "quorum": {"need": 2, "of": list(PEOPLE)}, "prompt": "Pay?"},
                 {"id": "shipped", "service": "ship", "input": "{{inputs.name}}", "params": {"step": "shipped"},
                  "retry": AGAIN}],
                [*signals,
                 {"id": "packed", "service": "pack", "input": "{{inputs.name}}"}],
                [{"id": "scanned", "service": "scan", "input": "{{inputs.name}}:scan", **LATER,
                  "poll": {"interval_ms": 30, "max_ms": 200}},
                 {"id": "seen", "tool": "note", "args": {"value": "{{steps.scanned.output}}"}}],
                [{"id": "watched", "kind": "poll", "tool": "http_request", "args": {"url": "{{inputs.job}}"},
                  "until": "$.body.done", "interval_ms": 20, "max_ms": 200}],
                [{"id": "slept", "kind": "timer", "delay_ms": "{{inputs.ms}}"},
                 {"id": "woken", "tool": "note", "args": {"value": "{{inputs.ms}}"}}],
            ]},
            {"id": "last", "service": "ship", "input": "{{inputs.name}}", "params": {"step": "last"}, "retry": AGAIN},
        ],
        "output": {
            "pages": "{{steps.pages.output}}", "by": "{{steps.printed.output}}",
            "paid": [f"{{{{steps.paid{number}.output}}}}" for number in range(SIGNALS)],
            "shipped": "{{steps.shipped.output}}", "packed": "{{steps.packed.output}}", "seen": "{{steps.seen.output}}",
            "watched": "{{steps.watched.output.body.name}}", "woken": "{{steps.woken.output}}",
            "last": "{{steps.last.output}}",
        },
        "on_complete": [{"url": f"{receiver}/workflow", "secret_env": SECRET_ENV}],
    }  # fmt: skip


class Campaign(msgspec.Struct):
    seed: int
    kills: int = 0
    runs: int = 0
    seconds: float = 0.0
    asked_again: int = 0  # requests of those outside that nobody answered
    answers: dict[str, int] = {}  # of the slow service, by what it was told
    outlived: int = 0  # waits that were open when their server died, and ended well
    lost: int = 0  # attempts that were at work then
    given_up: int = 0  # runs of a step that was alone at work when a server died, three times over
    letters: int = 0  # that arrived, each as often as it did
    scrapes: int = 0
    explained: int = 0
    killed_at: list[int] = []  # in milliseconds
    problems: list[str] = []

    def __str__(self) -> str:
        told = ", ".join(f"{count} {reason}" for reason, count in sorted(self.answers.items()))
        return (
            f"seed {self.seed}: {self.kills} kills of a server, {self.runs} runs that wait, callbacks: {told}; "
            f"{self.outlived} waits outlived a server, {self.lost} attempts lost, {self.given_up} runs given up, {self.asked_again} requests asked again, "
            f"{self.letters} final callbacks arrived, {self.scrapes} scrapes, {self.explained} explanations, "
            f"{len(self.problems)} problems, {self.seconds:.1f} s"
        )


def campaign(folder: Path, *, seed: int, kills: int, runs: int) -> Campaign:
    done, began = Campaign(seed), time.monotonic()
    place = Place(folder)
    env = {SECRET_ENV: SECRET, "EFFECTS": str(place.effects), "HOLDFAST_WORKER_LEASE_SECS": str(LEASE_SECS)}
    house = House(folder, **env)
    try:
        _up(house)
        outside, views = asyncio.run(_under_load(house, done, kills, runs))
        assert house.stop(house.server) == 0
    finally:
        house.close()
    place.db = folder / "h.db"
    Check(place, house, outside, done).everything({view["run_id"]: view for view in views})
    done.seconds = time.monotonic() - began
    return done


def _up(house: House) -> None:
    house.up("--tools", "tests.crash.services:note", "--public-url", house.address)


async def _under_load(
    house: House, done: Campaign, kills: int, runs: int
) -> tuple[Outside, list[dict[str, Any]]]:
    timeout = aiohttp.ClientTimeout(10)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        server = Server(session, house.address)
        outside = Outside(server, done.seed)
        await outside.up()
        watcher = Watcher(server, done)
        try:
            watching = [outside.begin(watcher.scrape()), outside.begin(watcher.explain())]
            killing = outside.begin(_kill_often(house, outside, done, kills))
            gap = kills * 1.2 / runs
            views = await asyncio.gather(
                *(_client(server, outside, watcher, number, gap * number) for number in range(runs))
            )
            await killing
            await _until_told(server, [view["run_id"] for view in views])
            for task in watching:
                task.cancel()
            outside.check()
        finally:
            await outside.close()
        done.asked_again = server.asked_again
    return outside, views


async def _kill_often(house: House, outside: Outside, done: Campaign, kills: int) -> None:
    """Some kills fall into the first moments of a server, most into its work; the receiver is away now and then."""
    rng = random.Random(done.seed)
    for number in range(kills):
        if rng.randrange(4):
            await _answers(outside.server, rng.randrange(ANSWERS_MAX))
        await asyncio.sleep(rng.choice((0.0, 0.2)) * rng.random())
        if number % 3 == 1:
            await outside.receive_nothing()
        done.killed_at.append(time.time_ns() // 1_000_000)
        await asyncio.to_thread(house.kill, house.server)
        done.kills += 1
        await asyncio.sleep(rng.choice((0.0, 0.3)) * rng.random())
        await asyncio.to_thread(_up, house)
        if number % 3 == 1:
            await outside.receive()


async def _answers(server: Server, count: int) -> None:
    """Until a server has got so far; not for ever, since when all has ended nobody asks any more."""
    end = server.answered + count
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LIFE_SECONDS):
            while server.answered < end:
                await asyncio.sleep(0.01)


async def _client(
    server: Server, outside: Outside, watcher: Watcher, number: int, delay: float
) -> dict[str, Any]:
    """Start a run, let everybody say what it waits for, and see it end."""
    await asyncio.sleep(delay)
    name = f"r{number}"
    body = {
        "spec": whole(outside.receiver),
        "inputs": {
            "name": name,
            "items": [f"{name}:{item}" for item in range(ITEMS)],
            "job": f"{outside.url}/job/{name}",
            "ms": 6_000 if number % 10 == 9 else random.Random(number).choice((1, 300, 900)),
        },
        "request_id": name,
        "final_callback": {"url": f"{outside.receiver}/start", "secret_env": SECRET_ENV},
    }
    started = await server.ask("POST", "/api/v1/runs", body)
    assert started.status == 202, started
    run_id = started.body["run_id"]
    watcher.open.append(run_id)
    outside.begin(outside.signal(run_id, "paid", SIGNALS))
    asked: set[str] = set()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            view = await server.ask("GET", f"/api/v1/runs/{run_id}")
            assert view.status == 200, view
            if view.body["finished_at"]:
                watcher.open.remove(run_id)
                return dict(view.body)
            gates = {wait["path"] for wait in view.body["waits"] if wait["kind"] == "approval"}
            for gate in gates - asked:
                for place, who in enumerate(PEOPLE):
                    by_link = (place == number % 3) != (_step(gate) == "board")
                    outside.begin(outside.approve(run_id, gate, who, by_link=by_link))
            asked |= gates
            await asyncio.sleep(0.2)


async def _until_told(server: Server, runs: list[str]) -> None:
    """Wait until every end was told."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for run_id in runs:
            while True:
                letters = (await server.ask("GET", f"/api/v1/runs/{run_id}/callbacks")).body["items"]
                if all(letter["status"] != "waiting" for letter in letters):
                    break
                await asyncio.sleep(0.1)


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


# -------------------------------------------------------------------------------------------------- what is there


def _step(path: str) -> str:
    return path.rpartition(".")[2]


class Check:
    """What servers left behind, against what those outside were told."""

    def __init__(self, place: Place, house: House, outside: Outside, done: Campaign) -> None:
        self._place, self._outside, self._done = place, outside, done
        self._say = done.problems.append
        self._log = "\n".join(log.read_text() for log in house.folder.glob("*.log"))
        self._by_run = journals(place)
        self._effects: Counter[tuple[str, str, int]] = Counter()
        for line in place.effects.read_text().splitlines():
            _, _, run, path, attempt, _ = line.split()
            self._effects[run, path, int(attempt)] += 1

    def everything(self, views: dict[str, dict[str, Any]]) -> None:
        self._done.problems += self._outside.problems
        self._file(views)
        for run_id, view in views.items():
            rows = self._by_run.get(run_id, [])
            self._letters(run_id, view)
            fates = self._rows(run_id, rows)
            self._executions(run_id, view["inputs"]["name"], fates)
            if view["status"] == "failed" and view["error"]["kind"] == "lost":
                self._done.given_up += 1
                continue
            self._output(run_id, view)
            self._approvals(run_id, rows)
            self._signals(run_id, rows)
        self._done.runs = len(views)
        self._done.answers = dict(Counter(said.reason for said in self._outside.said))
        self._done.letters = len(self._outside.letters)
        for letter_id in self._outside.crossed:
            self._say(f"{letter_id} was sent while it was being sent")

    def _file(self, views: dict[str, dict[str, Any]]) -> None:
        if query_file(self._place, "PRAGMA integrity_check") != [("ok",)]:
            self._say("the file is damaged")
        stored = dict(query_file(self._place, "SELECT id, status FROM run"))
        if stored != {run_id: view["status"] for run_id, view in views.items()}:
            self._say(f"runs were told to be {len(views)}, stored are {Counter(stored.values())}")
        for table, what in (
            ("wait", "resolved_at IS NULL"),
            ("assignment", "1"),
            ("outbox", "outcome <> 'delivered'"),
        ):
            if left := query_file(self._place, f"SELECT * FROM {table} WHERE {what}"):
                self._say(f"{len(left)} rows are left in {table}, such as {left[0]}")

    def _output(self, run_id: str, view: dict[str, Any]) -> None:
        """By arithmetic of our own; where several might have been first, one of them was."""
        if view["status"] != "completed":
            self._say(f"{run_id} is {view['status']}: {view['error']}")
            return
        name, output = view["inputs"]["name"], dict(view["output"])
        pages, by, seen = output.pop("pages")["iterations"], output.pop("by"), output.pop("seen")
        wanted = {
            "paid": list(range(SIGNALS)), "shipped": f"shipped {name}", "packed": f"packed {name}",
            "watched": name, "woken": view["inputs"]["ms"], "last": f"shipped {name}",
        }  # fmt: skip
        if output != wanted:
            self._say(f"{run_id} gave {output}, right is {wanted}")
        if by not in PEOPLE or not re.fullmatch(rf"{name}:scan\.\d+!", seen):
            self._say(f"{run_id} was approved by {by} and saw {seen}")
        for item, page in zip(view["inputs"]["items"], pages, strict=True):
            if page["page"] != page["bound"] or not re.fullmatch(rf"{item}\.\d+#\d", page["page"]):
                self._say(f"{run_id} gave {page} for {item}")

    def _rows(self, run_id: str, rows: list[Row]) -> dict[tuple[str, int], str]:
        if [row.seq for row in rows] != list(range(1, len(rows) + 1)):
            self._say(f"{run_id}: its rows are not 1..n: {[row.seq for row in rows]}")
        fates = self._attempts(run_id, rows)
        check_log(run_id, fates, self._log, self._say)
        self._answers(run_id, rows)
        return fates

    def _signals(self, run_id: str, rows: list[Row]) -> None:
        if (count := sum(row.event[0] == "signal_received" for row in rows)) != SIGNALS:
            self._say(f"{run_id} got {count} signals, and {SIGNALS} were sent")

    def _attempts(self, run_id: str, rows: list[Row]) -> dict[tuple[str, int], str]:
        """What became of every attempt; what waits is not lost with its server."""
        fates: dict[tuple[str, int], str] = {}
        latest: dict[str, int] = {}
        paused_at: dict[tuple[str, int], int] = {}
        ends = {"step_succeeded": "succeeded", "step_failed": "failed", "attempt_released": "released"}
        for row in rows:
            kind, *rest = row.event
            if kind == "step_paused":
                paused_at[rest[0], rest[1]] = row.at
                self._meets(run_id, fates, (rest[0], rest[1]), "paused", {"open", "answered"})
            elif kind == "callback_received":
                key = (rest[0], rest[1])
                self._outlives(paused_at.get(key), row.at)
                self._meets(run_id, fates, key, "answered", {"open", "paused"})
            elif kind in ends:
                self._meets(run_id, fates, (rest[0], rest[1]), ends[kind], {"open"})
            elif kind == "adopted":
                for path in rest[0] if rest else []:
                    self._done.lost += 1
                    self._meets(run_id, fates, (path, latest.get(path, 0)), "lost", {"open"})
            for order in row.decisions:
                if order[0] == "start":
                    if fates.get((order[1], order[2] - 1)) == "succeeded":
                        self._say(f"{run_id}: {order[1]} is done again after it succeeded")
                    fates[order[1], order[2]], latest[order[1]] = "open", order[2]
        return fates

    def _meets(
        self,
        run_id: str,
        fates: dict[tuple[str, int], str],
        key: tuple[str, int],
        fate: str,
        before: set[str],
    ) -> None:
        if fates.get(key) not in before:
            self._say(f"{run_id}: {key} is {fate}, and was {fates.get(key)} before")
        fates[key] = fate

    def _outlives(self, since: int | None, until: int) -> None:
        if since is not None:
            self._done.outlived += any(since < killed < until for killed in self._done.killed_at)

    def _answers(self, run_id: str, rows: list[Row]) -> None:
        """Every answer that was acknowledged is the one that counted, or was told that another one was."""
        tasks = {row.event[3]: (row.event[1], row.event[2]) for row in rows if row.event[0] == "step_paused"}
        counted: dict[tuple[str, int], list[Any]] = defaultdict(list)
        for row in rows:
            if row.event[0] == "callback_received":
                counted[row.event[1], row.event[2]].append(row.event[3:5])  # what it gave, or its error
        for key, values in counted.items():
            if len(values) > 1:
                self._say(f"{run_id}: {key} was answered {len(values)} times: {values}")
        for task, key in tasks.items():
            said = [one for one in self._outside.said if one.task == task]
            resumed = [one.value for one in said if one.reason == "resumed"]
            if len(resumed) > 1:
                self._say(f"{run_id}: {len(resumed)} answers of {task} were told that they count: {resumed}")
            elif resumed and not any(resumed[0] in str(value) for value in counted[key]):
                self._say(f"{run_id}: {resumed[0]} was told that it counts, and {counted[key]} did")
            if any(one.reason == "parked" for one in said) and not counted[key]:
                self._say(f"{run_id}: answers of {task} were kept, and none has counted")

    def _approvals(self, run_id: str, rows: list[Row]) -> None:
        for path, need in (("all[0].gate", 1), ("all[1].board", 2)):
            by = [
                row.event[4] for row in rows if row.event[0] == "approval_answered" and row.event[1] == path
            ]
            told = self._outside.decided[run_id, path]
            if len(by) != need or len(set(by)) != need:
                self._say(f"{run_id}: {path} was answered by {by}, and {need} were needed")
            if unheard := [who for who, _ in told if who not in by]:
                self._say(f"{run_id}: {unheard} were told that they have answered {path}, and {by} did")
            if sum(decided for _, decided in told) > 1:
                self._say(f"{run_id}: {path} was decided more than once: {told}")

    def _executions(self, run_id: str, name: str, fates: dict[tuple[str, int], str]) -> None:
        """Whatever was done has its attempt, and was done once in it; and who fetched a job is waited for."""
        starts = Counter(_step(path) for path, _ in fates)
        for (run, path, attempt), count in (self._effects + self._outside.jobs).items():
            if run == run_id and (count > 1 or (path, attempt) not in fates):
                self._say(f"{run_id}: attempt {attempt} of {path} was done {count} times")
        for (shipped, step), count in self._outside.executed.items():
            if shipped == name and count > starts[step]:
                self._say(f"{run_id}: {step} was done {count} times in {starts}")
        for run, path, attempt in self._outside.jobs:
            if run == run_id and fates.get((path, attempt)) == "lost":
                self._say(
                    f"{run_id}: attempt {attempt} of {path} was lost, and whoever had fetched it was at it"
                )

    def _letters(self, run_id: str, view: dict[str, Any]) -> None:
        letters = [letter for letter in self._outside.letters if letter.run_id == run_id]
        by_path: dict[str, list[Any]] = defaultdict(list)
        for letter in letters:
            by_path[letter.received.path].append(letter)
        ids = {path: {letter.received.id for letter in sent} for path, sent in by_path.items()}
        if ids.keys() != {"/start", "/workflow"} or {len(found) for found in ids.values()} != {1}:
            self._say(f"{run_id}: its end was told as {ids}")
        for path, sent in by_path.items():
            if not any(letter.taken for letter in sent) or not all(letter.is_ours for letter in sent):
                self._say(f"{run_id}: its end was not taken at {path}, or not signed")
            if any(letter.received.body != view for letter in sent):
                self._say(f"{run_id}: what was told at {path} is not what is shown")
            times = [int(letter.received.headers["webhook-timestamp"]) for letter in sent]
            if times != sorted(times):
                self._say(f"{run_id}: what was told at {path} came out of order: {times}")
