"""The campaign of killed servers: a real `holdfast up`, with real workers and clients over HTTP, dies at seeded moments.

Clients start runs of a graph with an Idempotency-Key and ask again for as long as nobody answers. In the end: what was
acknowledged is there and has the right output, there is one run for each key, no job of a worker that fetches was done
twice, and none that it had begun was taken for lost.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from tests.crash.checker import Row, journals, query_file
from tests.crash.processes import Place
from tests.sdk.processes import House

AWAY = (aiohttp.ClientError, ConnectionError, TimeoutError)
ITEMS = 3
ROUNDS = 3
LONG_MS = 1500  # of a job that is still at work when its server dies
FETCH_SECONDS = 60.0  # within which somebody who fetches has come back to a server and is at such a job

GRAPH: dict[str, Any] = {
    "name": "served",
    "start": "first",
    "nodes": {
        "first": {
            "kind": "executor", "service": "push_add", "params": {"plus": 1}, "max_retries": 3,
            "prep": {"input_key": "$params.n"}, "post": {"output_key": "n"},
        },
        "each": {
            "kind": "foreach", "service": "pull_add", "params": {"plus": 10, "ms": "$params.ms"}, "timeout_ms": 0,
            "parallel_mode": "concurrent", "prep": {"input_key": "$params.xs"}, "post": {"output_key": "sums"},
        },
        "count": {
            "kind": "executor", "service": "push_add", "params": {"plus": 1}, "max_retries": 3,
            "prep": {"input_key": "n"}, "post": {"output_key": "n"},
        },
        "enough": {
            "kind": "choice",
            "choice_cases": [{"action": "again", "expr": {"lt": ["$shared.n", "$params.end"]}}],
        },
    },
    "edges": [
        {"from": "first", "to": "each"},
        {"from": "each", "to": "count"},
        {"from": "count", "to": "enough"},
        {"from": "enough", "action": "again", "to": "count"},
    ],
}  # fmt: skip


def inputs_of(number: int, rng: random.Random) -> dict[str, Any]:
    return {
        "n": number,
        "end": number + 1 + ROUNDS,
        "xs": list(range(ITEMS)),
        "ms": rng.choice((5, 300, LONG_MS)),
    }


def right_output(inputs: dict[str, Any]) -> dict[str, Any]:
    return {"n": inputs["end"], "sums": [10 + x for x in inputs["xs"]]}


class Campaign(msgspec.Struct):
    seed: int
    kills: int = 0
    runs: int = 0
    asked_again: int = 0  # starts that were not answered, or refused, and asked for once more
    jobs: int = 0  # of the worker that fetches
    jobs_over_a_kill: int = 0  # of them: begun before a kill and answered after it
    lost: int = 0
    seconds: float = 0.0
    killed_at: list[int] = []  # in milliseconds
    problems: list[str] = []

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.kills} kills of a server, {self.runs} runs, {self.asked_again} starts asked again, "
            f"{self.jobs} jobs fetched, {self.jobs_over_a_kill} of them outlived a server, {self.lost} attempts lost, "
            f"{len(self.problems)} problems, {self.seconds:.1f} s"
        )


def campaign(folder: Path, *, seed: int, kills: int, runs: int) -> Campaign:
    done, began = Campaign(seed), time.monotonic()
    place = Place(folder)
    house = House(folder, EFFECTS=str(place.effects), HOLDFAST_WORKER_TTL_SECS="120")
    try:
        house.up()
        status, body = house.ask("POST", "/api/v1/workflows", GRAPH)
        assert status in (200, 201), body
        house.worker("--id", "called", module="tests.crash.services:push_add")
        house.worker("--id", "fetching", "--pull", module="tests.crash.services:pull_add")
        told = asyncio.run(_under_load(house, place, done, kills, runs))
        assert house.stop(house.server) == 0
    finally:
        house.close()
    place.db = folder / "h.db"
    _check(place, told, done)
    done.seconds = time.monotonic() - began
    return done


class Told(msgspec.Struct):
    """What clients heard: the run of each key, and how runs ended."""

    wanted: dict[str, dict[str, Any]] = {}  # key → inputs
    started: dict[str, set[str]] = {}  # key → run ids that were acknowledged for it
    outputs: dict[str, Any] = {}  # run id → status, output, error


async def _under_load(house: House, place: Place, done: Campaign, kills: int, runs: int) -> Told:
    rng, told = random.Random(done.seed), Told()
    told.wanted = {f"key-{number}": inputs_of(number, rng) for number in range(runs)}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(10)) as session:
        killer = asyncio.create_task(_kill_often(house, place, told, done, kills))
        gap = max(0.02, kills * 3.0 / runs)  # so that starts go on while servers come and go
        clients = [
            asyncio.create_task(_client(session, house.address, key, told, done, delay=gap * number))
            for number, key in enumerate(told.wanted)
        ]
        await asyncio.gather(killer, *clients)
    return told


async def _kill_often(house: House, place: Place, told: Told, done: Campaign, kills: int) -> None:
    """Some kills fall into the first moments of a server, the others into the work of those who fetch."""
    rng = random.Random(done.seed + 1)
    for _ in range(kills):
        if rng.randrange(3):
            await _until_a_long_job_begins(place, told)
        await asyncio.sleep(rng.choice((0.0, 0.05, 0.4)) * rng.random())
        done.killed_at.append(time.time_ns() // 1_000_000)
        await asyncio.to_thread(house.kill, house.server)
        done.kills += 1
        await asyncio.to_thread(house.up)


async def _until_a_long_job_begins(place: Place, told: Told) -> None:
    """Not for ever: when all has ended nothing comes any more."""
    before, end = _long_jobs(place, told), time.monotonic() + FETCH_SECONDS
    while _long_jobs(place, told) <= before and time.monotonic() < end:
        if len(told.outputs) == len(told.wanted):
            return
        await asyncio.sleep(0.02)


def _long_jobs(place: Place, told: Told) -> int:
    """How many of them have begun."""
    long = {run for key, found in told.started.items() if told.wanted[key]["ms"] == LONG_MS for run in found}
    whole, _, _ = place.effects.read_text().rpartition("\n")
    begun = [line.split() for line in whole.splitlines()]
    return sum(kind == "pull" and run in long for kind, _, run, *_ in begun)


async def _client(
    session: aiohttp.ClientSession, address: str, key: str, told: Told, done: Campaign, *, delay: float
) -> None:
    """Start one run and see it end; where nobody answers, ask again. Every third one asks twice in any case."""
    await asyncio.sleep(delay)
    run_id = await _start(session, address, key, told, done)
    told.started[key] = {run_id}
    if len(told.started) % 3 == 0:
        told.started[key].add(await _start(session, address, key, told, done))
    while run_id not in told.outputs:
        try:
            async with session.get(f"{address}/api/v1/runs/{run_id}") as answer:
                view = await answer.json()
                if answer.status == 404:
                    told.outputs[run_id] = ("not there", None, None)
                elif answer.status == 200 and view["finished_at"]:
                    told.outputs[run_id] = (view["status"], view["output"], view["error"])
        except AWAY:
            pass
        await asyncio.sleep(0.2)


async def _start(session: aiohttp.ClientSession, address: str, key: str, told: Told, done: Campaign) -> str:
    body = {"workflow": GRAPH["name"], "inputs": told.wanted[key]}
    while True:
        try:
            async with session.post(
                f"{address}/api/v1/runs", json=body, headers={"Idempotency-Key": key}
            ) as answer:
                said = await answer.json()
                if answer.status == 202:
                    return str(said["run_id"])
                assert answer.status in (429, 503), (answer.status, said)
        except AWAY:
            pass
        done.asked_again += 1
        await asyncio.sleep(0.1)


# -------------------------------------------------------------------------------------------------- what is there


def _check(place: Place, told: Told, done: Campaign) -> None:
    say = done.problems.append
    stored = dict(query_file(place, "SELECT id, status FROM run"))
    done.runs = len(stored)
    if query_file(place, "PRAGMA integrity_check") != [("ok",)]:
        say("the file is damaged")
    for key, found in told.started.items():
        if len(found) != 1:
            say(f"{key} was given {len(found)} runs: {sorted(found)}")
    acknowledged = {run for found in told.started.values() for run in found}
    if missing := acknowledged - stored.keys():
        say(f"{len(missing)} acknowledged runs are not there, such as {min(missing)}")
    if extra := stored.keys() - acknowledged:
        say(f"{len(extra)} runs have no key of their own, such as {min(extra)}")
    for key, found in told.started.items():
        for run in found:
            wanted = ("completed", right_output(told.wanted[key]), None)
            if told.outputs[run] != wanted:
                say(f"{run} of {key} gave {told.outputs[run]}, right is {wanted}")
    _check_jobs(place, journals(place), done)


def _check_jobs(place: Place, by_run: dict[str, list[Row]], done: Campaign) -> None:
    say = done.problems.append
    effects = [line.split() for line in place.effects.read_text().splitlines()]
    jobs = {(run, path, int(number)): int(at) for kind, _, run, path, number, at in effects if kind == "pull"}
    fetched = Counter((run, path, int(number)) for kind, _, run, path, number, _ in effects if kind == "pull")
    done.jobs = len(fetched)
    for job, count in fetched.items():
        if count > 1:
            say(f"the job {job} was done {count} times")
    for run, rows in by_run.items():
        if [row.seq for row in rows] != list(range(1, len(rows) + 1)):
            say(f"{run}: its rows are not 1..n: {[row.seq for row in rows]}")
        attempts: dict[str, int] = {}
        for row in rows:
            kind, *rest = row.event
            for path in rest[0] if kind == "adopted" and rest else []:
                done.lost += 1
                if (run, path, attempts.get(path, 0)) in fetched:
                    say(f"{run}: {path} was lost, and the worker that had fetched it was at it")
            if kind == "step_succeeded" and (run, rest[0], rest[1]) in fetched:
                began = jobs[run, rest[0], rest[1]] // 1_000_000
                done.jobs_over_a_kill += any(began < killed < row.at for killed in done.killed_at)
            for order in row.decisions:
                if order[0] == "start":
                    attempts[order[1]] = order[2]
