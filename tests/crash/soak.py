"""The soak: a real `holdfast up` under honest load, hostile requests and `kill -9`, side by side, for as long as asked.

Honest clients start runs with an Idempotency-Key and ask again while the server is away. Hostile ones send what once stalled or
broke a server: value bombs, deep and costly text without a credential, expensive expressions, broken heads. Meanwhile `/healthz` is asked
twenty times a second and the server's memory is read. In the end: what was acknowledged is there with the right output, no key has two runs,
`/healthz` was answered in time throughout, and memory stayed bounded.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from tests.crash.checker import query_file
from tests.crash.processes import Place
from tests.sdk.processes import House

AWAY: Final = (aiohttp.ClientError, ConnectionError, TimeoutError, asyncio.IncompleteReadError)
HEALTH_SECONDS: Final = 0.05
CLIENTS: Final = 4
RSS_MB_MAX: Final = 400  # a value may have 25 MiB, and a few are built at the same time
MIB: Final = 1024 * 1024

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
    hostile: dict[str, int] = {}  # hostile request → how often it was sent
    statuses: dict[str, dict[str, int]] = {}  # hostile request → what it was answered
    health_ms: list[float] = []
    rss_mb: float = 0.0
    seconds: float = 0.0
    problems: list[str] = []

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.seconds:.0f} s, {self.kills} kills, {self.runs} runs, {self.asked_again} starts asked again, "
            f"{sum(self.hostile.values())} hostile requests, /healthz p50 {quantile(self.health_ms, 0.5):.1f} ms, "
            f"p99 {quantile(self.health_ms, 0.99):.1f} ms, max {max(self.health_ms, default=0):.0f} ms of {len(self.health_ms)}, "
            f"RSS {self.rss_mb:.0f} MB at most, {len(self.problems)} problems"
        )


def quantile(sample: list[float], part: float) -> float:
    return sorted(sample)[int(part * (len(sample) - 1))] if sample else 0.0


def campaign(
    folder: Path, *, seed: int, seconds: float, kill_every: float = 20.0, health_ms_max: float | None = None
) -> Campaign:
    """`health_ms_max` bounds the 99th percentile; it is for a quiet machine, so tests leave it out."""
    done, began = Campaign(seed), time.monotonic()
    house = House(folder)
    try:
        house.up()
        status, body = house.ask("POST", "/api/v1/workflows", HONEST)
        assert status in (200, 201), body
        told = asyncio.run(_soaked(house, done, seconds, kill_every))
        assert house.stop(house.server) == 0
    finally:
        house.close()
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
    async with aiohttp.ClientSession(timeout=timeout) as session:
        await asyncio.gather(
            _kill(house, done, end, kill_every),
            _watch_health(house, done, end),
            _watch_memory(house, done, end),
            _attack(session, house, done, end),
            *[_client(session, house, told, done, end, client) for client in range(CLIENTS)],
        )
    return told


async def _kill(house: House, done: Campaign, end: float, every: float) -> None:
    rng = random.Random(done.seed)
    while time.monotonic() + every < end:
        await asyncio.sleep(every * (0.5 + rng.random()))
        await asyncio.to_thread(house.kill, house.server)
        done.kills += 1
        await asyncio.to_thread(house.up)


async def _watch_health(house: House, done: Campaign, end: float) -> None:
    """How long an answer takes on a new connection; a server that is away is not slow."""
    request = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1:%d\r\nconnection: close\r\n\r\n" % house.port
    while time.monotonic() < end:
        began, server = time.perf_counter(), house.server
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", house.port)
            writer.write(request)
            await reader.readuntil(b"\r\n")
            if server is house.server:  # else it died meanwhile, and the next one answered
                done.health_ms.append(1000 * (time.perf_counter() - began))
            writer.close()
        except AWAY:
            pass
        await asyncio.sleep(HEALTH_SECONDS)


async def _watch_memory(house: House, done: Campaign, end: float) -> None:
    while time.monotonic() < end:
        try:
            status = Path(f"/proc/{house.server.pid}/status").read_text()
            kib = int(status.partition("VmRSS:")[2].split()[0])
        except (OSError, IndexError):
            kib = 0  # it has just been killed
        done.rss_mb = max(done.rss_mb, kib / 1024)
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


# ------------------------------------------------------------------------------------------------ hostile requests


def _spec(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "hostile", "steps": list(steps), **more}


def _echo(value: Any) -> dict[str, Any]:
    return {"id": "s", "tool": "echo", "args": {"value": value}}


def _start_of(spec: dict[str, Any], inputs: dict[str, Any] | None = None) -> bytes:
    return msgspec.json.encode({"spec": spec, "inputs": inputs or {}})


def hostile() -> Iterator[tuple[str, str, bytes]]:
    """Name, path and body of each."""
    runs, resume = "/api/v1/runs", "/workflows/resume"
    big = {"a": "x" * 500_000}
    many = ["{{inputs.a}}"] * 10_000
    yield "value bomb in arguments", runs, _start_of(_spec(_echo(many)), big)
    yield "value bomb in output", runs, _start_of(_spec(_echo(1), output={"o": many}), big)
    yield "value bomb in text", runs, _start_of(_spec(_echo("{{inputs.a}}" * 10_000)), big)
    loop = {
        "id": "l",
        "kind": "foreach",
        "items": "$.inputs.n",
        "concurrency": 100,
        "steps": [_echo("{{inputs.a}}")],
    }
    yield "fan-out of a large value", runs, _start_of(_spec(loop), {**big, "n": list(range(400))})
    deep: Any = 1
    for _ in range(62):
        deep = [deep]
    nested = {"id": "l", "kind": "foreach", "items": "$.inputs.n", "steps": [_echo(deep)]}
    yield "deep output in a loop", runs, _start_of(_spec(nested), {"n": [1]})
    rows = {"a": [list(range(100)) for _ in range(300)]}
    branch = {"id": "b", "kind": "branch", "on": "$.inputs.a[?@==$.inputs.a]", "then": [_echo(1)], "else": []}
    yield "cubic filter", runs, _start_of(_spec(branch), rows)
    walk = {"id": "b", "kind": "branch", "on": "$..*..*..*..*", "then": [_echo(1)], "else": []}
    yield "descendants of descendants", runs, _start_of(_spec(walk), rows)
    yield "brackets to resume", resume, b"[" * 25 * MIB
    yield "braces in text to resume", resume, b'{"task_id": "t", "data": "' + b"{[" * 12 * MIB + b'"}'
    yield "brackets to start", runs, b"[" * MIB
    yield "pairs to start", runs, b'{"spec": [' + b"[]," * (MIB // 4) + b"1]}"
    yield "not JSON", runs, b"\xff" * 1000
    files = {"file_refs": [{"path": "h.db"}, {"path": "/etc/passwd"}, {"path": "h.db-wal"}]}
    yield "files of the server", runs, _start_of(_spec(_echo(files)))


async def _attack(session: aiohttp.ClientSession, house: House, done: Campaign, end: float) -> None:
    rng = random.Random(done.seed + 1)
    arsenal = list(hostile())
    while time.monotonic() < end:
        name, path, body = rng.choice(arsenal)
        done.hostile[name] = done.hostile.get(name, 0) + 1
        try:
            async with session.post(
                house.address + path, data=body, headers={"Content-Type": "application/json"}
            ) as answer:
                await answer.read()
                status = str(answer.status)
        except AWAY:
            status = "no answer"
        known = done.statuses.setdefault(name, {})
        known[status] = known.get(status, 0) + 1
        await asyncio.sleep(0.1)


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
    if done.rss_mb > RSS_MB_MAX:
        say(f"the server grew to {done.rss_mb:.0f} MB")
    if health_ms_max and (p99 := quantile(done.health_ms, 0.99)) > health_ms_max:
        say(f"/healthz took {p99:.0f} ms at the 99th percentile")
