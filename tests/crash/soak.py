"""The soak: a real `holdfast up` under honest load, hostile requests and `kill -9`, side by side, for as long as asked.

Honest clients start runs with an Idempotency-Key and ask again while the server is away. Hostile ones (`hostile`) send what once stalled
or broke a server. Meanwhile `/healthz` is asked twenty times a second (`health`) and the server's memory is read. Each has a process of its
own, so none of them waits for another. With `turns` the server measures the turns of its event loop in CPU time, which other work on the
machine does not change. In the end: what was acknowledged is there with the right output, no key has two runs, `/healthz` was
answered in time throughout, and memory stayed bounded.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from tests.crash import turns
from tests.crash.checker import query_file
from tests.crash.health import Probe, probe
from tests.crash.hostile import AWAY, Sent, attack
from tests.crash.processes import Place
from tests.sdk.processes import House

CLIENTS: Final = 4
RSS_MB_MAX: Final = 400  # a value may have 25 MiB, and a few are built at the same time
STALLS_SHOWN: Final = 5
TURNS_SHOWN: Final = 10
RSS_SHOWN: Final = 10  # samples of the curve
SPAWN: Final = multiprocessing.get_context("spawn")

HONEST: Final[dict[str, Any]] = {
    "name": "honest",
    "inputs": {"n": {"type": "integer"}, "xs": {"type": "array"}},
    "steps": [
        {"id": "first", "tool": "echo", "args": {"value": "{{inputs.n}}"}},
        {"id": "pause", "kind": "timer", "delay_ms": 20},
        {"id": "each", "kind": "foreach", "items": "$.inputs.xs", "concurrency": 3, "steps": [
            {"id": "one", "tool": "echo", "args": {"value": "{{item}}"}},
        ]},
        {"id": "last", "tool": "echo", "args": {"value": ["{{steps.first.output}}", "{{inputs.n}}"]}},
    ],
    "output": {"n": "{{steps.last.output}}"},
}  # fmt: skip


class Campaign(msgspec.Struct):
    seed: int
    kills: int = 0
    runs: int = 0
    asked_again: int = 0
    statuses: dict[str, Counter[str]] = {}  # attack → what it was answered
    health_ms: list[float] = []
    own_ms: list[float] = []  # the same without what was spent waiting for a processor
    stalls: list[str] = []  # the slowest answers of /healthz, and what was going on
    rss_mb: list[float] = []  # as it was read, every 0.1 s
    turns: list[turns.Turn] = []  # the longest, if they were measured
    seconds: float = 0.0
    problems: list[str] = []

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.seconds:.0f} s, {self.kills} kills, {self.runs} runs, {self.asked_again} starts asked again, "
            f"{sum(map(Counter.total, self.statuses.values()))} attacks, /healthz p50 {quantile(self.health_ms, 0.5):.1f} ms, "
            f"p99 {quantile(self.health_ms, 0.99):.1f} ms, max {max(self.health_ms, default=0):.0f} ms of {len(self.health_ms)} "
            f"(without waiting for a processor p99 {quantile(self.own_ms, 0.99):.1f} ms), "
            f"RSS {max(self.rss_mb, default=0):.0f} MB at most, {len(self.problems)} problems"
            + "".join(f"\n  {line}" for line in (*self.stalls, self._rss_curve(), *self._longest_turns()))
        )

    def _rss_curve(self) -> str:
        """The most in each tenth of the time."""
        size = max(1, len(self.rss_mb) // RSS_SHOWN)
        tenths = [max(self.rss_mb[at : at + size]) for at in range(0, len(self.rss_mb), size)]
        return "RSS in MB over time: " + " ".join(f"{most:.0f}" for most in tenths)

    def _longest_turns(self) -> list[str]:
        return [
            f"{turn.kind} of {turn.ms:.0f} ms of CPU: {turn.cause}"
            for kind in ("turn", "denied")
            for turn in [turn for turn in self.turns if turn.kind == kind][:TURNS_SHOWN]
        ]


def quantile(sample: list[float], part: float) -> float:
    return sorted(sample)[int(part * (len(sample) - 1))] if sample else 0.0


def campaign(
    folder: Path,
    *,
    seed: int,
    seconds: float,
    kill_every: float = 20.0,
    health_ms_max: float | None = None,
    measures_turns: bool = False,
) -> Campaign:
    """`health_ms_max` bounds the 99th percentile; it is for a quiet machine, so tests leave it out."""
    done, began = Campaign(seed), time.monotonic()
    measured = folder / "turns"
    house = turns.measured(folder, measured) if measures_turns else House(folder)
    try:
        house.up()
        status, body = house.ask("POST", "/api/v1/workflows", HONEST)
        assert status in (200, 201), body
        told = asyncio.run(_soaked(house, done, seconds, kill_every))
        assert house.stop(house.server) == 0
    finally:
        house.close()
    done.turns = turns.read(measured)
    _check(folder, told, done, health_ms_max)
    done.seconds = time.monotonic() - began
    return done


class Told(msgspec.Struct):
    """What honest clients heard: the runs acknowledged for each key, and how each ended."""

    started: dict[str, set[str]] = {}
    ended: dict[str, tuple[str, Any]] = {}
    numbers: dict[str, int] = {}  # run id → n


async def _soaked(house: House, done: Campaign, seconds: float, kill_every: float) -> Told:
    told, end = Told(), time.monotonic() + seconds
    timeout = aiohttp.ClientTimeout(60)
    away: list[tuple[float, float]] = []
    server = SPAWN.Value("i", house.server.pid)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        probes, sent, *_ = await asyncio.gather(
            _apart(probe, house.port, server, end),
            _apart(attack, house.address, done.seed, end),
            _kill(house, server, done, away, end, kill_every),
            _watch_memory(house, done, end),
            *[_client(session, house, told, done, end, client) for client in range(CLIENTS)],
        )
    _judge(done, probes, sent, away)
    return told


async def _apart(work: Callable[..., None], *args: Any) -> Any:
    """What `work` sends through the pipe that is its last argument, done in another process."""
    here, there = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=work, args=(*args, there), daemon=True)
    process.start()
    there.close()
    try:
        return await asyncio.to_thread(here.recv)
    finally:
        process.join()


async def _kill(
    house: House, server: Any, done: Campaign, away: list[tuple[float, float]], end: float, every: float
) -> None:
    rng = random.Random(done.seed)
    while time.monotonic() + every < end:
        await asyncio.sleep(every * (0.5 + rng.random()))
        killed = time.monotonic()
        await asyncio.to_thread(house.kill, house.server)
        done.kills += 1
        await asyncio.to_thread(house.up)
        server.value = house.server.pid
        away.append((killed, time.monotonic()))


def _judge(done: Campaign, probes: list[Probe], sent: list[Sent], away: list[tuple[float, float]]) -> None:
    """A server that is away is not slow: probes that met one are left out."""
    there = [
        one
        for one in probes
        if one.ended and not any(one.began < up and one.ended > killed for killed, up in away)
    ]
    done.health_ms = [one.ms for one in there]
    done.own_ms = [one.own_ms for one in there]
    for each in sent:
        done.statuses.setdefault(each.name, Counter())[each.status] += 1
    slowest = sorted(there, key=lambda one: one.ms, reverse=True)
    seen: list[Probe] = []
    for one in slowest:  # a stall is met by all the probes that are under way: it is told once
        if all(one.ended < other.began or one.began > other.ended for other in seen):
            seen.append(one)
            before = [attack for attack in sent if attack.began < one.ended][-2:]
            at = f"{one.ms:.0f} ms, {one.began - probes[0].began:.1f} s after the beginning"
            done.stalls.append(f"{at}: {', then '.join(attack.name for attack in before)}")
        if len(seen) == STALLS_SHOWN:
            break


async def _watch_memory(house: House, done: Campaign, end: float) -> None:
    while time.monotonic() < end:
        try:
            status = Path(f"/proc/{house.server.pid}/status").read_text()
            kib = int(status.partition("VmRSS:")[2].split()[0])
        except (OSError, IndexError):
            kib = 0  # it has just been killed
        done.rss_mb.append(kib / 1024)
        await asyncio.sleep(0.1)


# ------------------------------------------------------------------------------------------------- honest clients


async def _client(
    session: aiohttp.ClientSession, house: House, told: Told, done: Campaign, end: float, client: int
) -> None:
    number = 0
    while time.monotonic() < end:
        number += 1
        key, n = f"key-{client}-{number}", 1000 * client + number
        run_id = await _start(session, house, key, n, done)
        told.started.setdefault(key, set()).add(run_id)
        told.numbers[run_id] = n
        if number % 7 == 0:
            told.started[key].add(await _start(session, house, key, n, done))
        told.ended[run_id] = await _end(session, house, run_id)


async def _start(session: aiohttp.ClientSession, house: House, key: str, n: int, done: Campaign) -> str:
    body = {"workflow": HONEST["name"], "inputs": {"n": n, "xs": [1, 2, 3]}}
    while True:
        try:
            async with session.post(
                f"{house.address}/api/v1/runs", json=body, headers={"Idempotency-Key": key}
            ) as answer:
                if answer.status == 202:
                    return str((await answer.json())["run_id"])
                assert answer.status in (429, 503), (answer.status, await answer.text())
        except AWAY:
            pass
        done.asked_again += 1
        await asyncio.sleep(0.1)


async def _end(session: aiohttp.ClientSession, house: House, run_id: str) -> tuple[str, Any]:
    while True:
        try:
            async with session.get(f"{house.address}/api/v1/runs/{run_id}") as answer:
                if answer.status == 404:
                    return "not there", None
                if answer.status == 200 and (view := await answer.json())["finished_at"]:
                    return view["status"], view["output"]
        except AWAY:
            pass
        await asyncio.sleep(0.05)


# -------------------------------------------------------------------------------------------------- what is there


def _check(folder: Path, told: Told, done: Campaign, health_ms_max: float | None) -> None:
    say = done.problems.append
    place = Place(folder)
    place.db = folder / "h.db"
    stored = dict(query_file(place, "SELECT id, status FROM run"))
    done.runs = len(told.ended)
    if query_file(place, "PRAGMA integrity_check") != [("ok",)]:
        say("the file is damaged")
    for key, found in told.started.items():
        if len(found) != 1:
            say(f"{key} was given {len(found)} runs: {sorted(found)}")
        for run in found - stored.keys():
            say(f"{run} was acknowledged and is not there")
    for run, ended in told.ended.items():
        n = told.numbers[run]
        if ended != ("completed", {"n": [n, n]}):
            say(f"{run} gave {ended}, right is {n}")
    for name, answers in done.statuses.items():
        if wrong := {
            status: count for status, count in answers.items() if status.startswith("5") and status != "503"
        }:
            say(f"{name} was answered {Counter(wrong)}")
    if (most := max(done.rss_mb, default=0)) > RSS_MB_MAX:
        say(f"the server grew to {most:.0f} MB")
    if health_ms_max and (p99 := quantile(done.health_ms, 0.99)) > health_ms_max:
        say(f"/healthz took {p99:.0f} ms at the 99th percentile")
