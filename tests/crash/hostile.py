"""What hostile callers send during a soak, from a process of its own.

Each attack once stalled or broke a server, or is built to: value bombs, deep and costly text, large answers of small values, long
definitions, wide fan-outs, expensive expressions. A server in local mode trusts every caller, so these are the attacks of a caller
with a good key. Knows the HTTP API and nothing of how the server is built.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, Final

import aiohttp
import msgspec

AWAY: Final = (aiohttp.ClientError, ConnectionError, TimeoutError, asyncio.IncompleteReadError)
MIB: Final = 1024 * 1024
PAUSE_SECONDS: Final = 0.1
STORED_SHARE: Final = 0.1  # of attacks that leave 24 MiB in the database each: an hour must fit on the disk
RUNS, RESUME, WORKERS, JOBS = "/api/v1/runs", "/workflows/resume", "/api/v1/workers", "/api/v1/assignments"


class Sent(msgspec.Struct):
    """One attack: when it was under way, by the clock that all processes share, and how it was answered."""

    name: str
    began: float
    ended: float
    status: str


class Target:
    """The server under attack."""

    def __init__(self, session: aiohttp.ClientSession, address: str) -> None:
        self._session, self._address = session, address

    async def post(self, path: str, body: bytes) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"}
        async with self._session.post(self._address + path, data=body, headers=headers) as answer:
            return answer.status, msgspec.json.decode(await answer.read())

    async def get(self, path: str) -> int:
        async with self._session.get(self._address + path) as answer:
            await answer.read()
            return answer.status


Attack = Callable[[Target, str], Awaitable[int]]  # is given an id of its own; gives the last status


def attack(address: str, seed: int, end: float, sent: Connection) -> None:
    """Attack until the end, and send what was done through the pipe."""
    sent.send(asyncio.run(_attack(address, seed, end)))


async def _attack(address: str, seed: int, end: float) -> list[Sent]:
    rng, done = random.Random(seed), list[Sent]()
    arsenal = list(hostile())
    weights = [STORED_SHARE if name in STORING else 1.0 for name, _ in arsenal]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
        target = Target(session, address)
        while time.monotonic() < end:
            name, send = rng.choices(arsenal, weights)[0]
            began = time.monotonic()
            try:
                status = str(await send(target, f"{seed}-{len(done)}"))
            except AWAY:
                status = "no answer"
            done.append(Sent(name, began, time.monotonic(), status))
            await asyncio.sleep(PAUSE_SECONDS)
    return done


# ------------------------------------------------------------------------------------------------------ the arsenal


def hostile() -> Iterator[tuple[str, Attack]]:
    yield from _bombs()
    yield from _definitions()
    yield from _expressions()
    yield from _bodies()
    yield from _answers()


def _bombs() -> Iterator[tuple[str, Attack]]:
    """Runs that are larger than the request that starts them."""
    big = {"a": "x" * 500_000}
    many = ["{{inputs.a}}"] * 10_000
    yield "value bomb in arguments", _start(_spec(_echo(many)), big)
    yield "value bomb in output", _start(_spec(_echo(1), output={"o": many}), big)
    yield "value bomb in text", _start(_spec(_echo("{{inputs.a}}" * 10_000)), big)
    yield (
        "fan-out of a large value",
        _start(_spec(_loop(_echo("{{inputs.a}}"))), {**big, "n": list(range(400))}),
    )
    yield "fan-out of 10,000", _start(_spec(_loop(_echo("{{item}}"), 10_000)), {"n": list(range(10_000))})
    items = [{"k": "y" * 60} for _ in range(10_000)]
    yield (
        "fan-out of 10,000 objects",
        _start(_spec(_loop(_echo("{{item.k}} {{inputs.n[0].k}}"), 10_000)), {"n": items}),
    )
    deep: Any = 1
    for _ in range(62):
        deep = [deep]
    yield "deep output in a loop", _start(_spec(_loop(_echo(deep))), {"n": [1]})
    files = {"file_refs": [{"path": "h.db"}, {"path": "/etc/passwd"}, {"path": "h.db-wal"}]}
    yield "files of the server", _start(_spec(_echo(files)))


def _definitions() -> Iterator[tuple[str, Attack]]:
    """Definitions that are long, and new each time."""

    def steps(target: Target, own: str) -> Awaitable[int]:
        long = [{"id": f"s{index}", "tool": "echo"} for index in range(8_000)]
        return _posted(target, RUNS, _start_of({"name": own, "steps": long}))

    def templates(target: Target, own: str) -> Awaitable[int]:
        long = [
            {"id": f"s{index}", "tool": "echo", "args": {"value": "{{inputs.a}} {{inputs.b}}"}}
            for index in range(2_500)
        ]
        return _posted(target, RUNS, _start_of({"name": own, "steps": long}, {"a": 1, "b": 2}))

    def invalid(target: Target, own: str) -> Awaitable[int]:
        long = [{"id": "s", "tool": "echo", "argz": 1} for _ in range(5_000)]
        return _posted(target, RUNS, _start_of({"name": own, "steps": long}))

    def yaml(target: Target, own: str) -> Awaitable[int]:
        text = f"name: y{own}\nsteps:\n" + "".join(
            f"- {{id: s{index}, tool: echo}}\n" for index in range(8_000)
        )
        return _posted(target, RUNS, msgspec.json.encode({"spec": text}))

    def graph(target: Target, own: str) -> Awaitable[int]:
        nodes = [{"id": f"n{index}", "node_type": "timer", "delay_ms": 0} for index in range(3_000)]
        edges = [{"from": f"n{index}", "to": f"n{index + 1}"} for index in range(2_999)]
        return _posted(target, RUNS, _start_of({"name": own, "start": "n0", "nodes": nodes, "edges": edges}))

    yield "8,000 steps", steps
    yield "2,500 steps with templates", templates
    yield "5,000 problems", invalid
    yield "8,000 steps as YAML", yaml
    yield "graph of 3,000 nodes", graph


def _expressions() -> Iterator[tuple[str, Attack]]:
    rows = {"a": [list(range(100)) for _ in range(300)]}
    yield "cubic filter", _start(_spec(_branch("$.inputs.a[?@==$.inputs.a]")), rows)
    yield "descendants of descendants", _start(_spec(_branch("$..*..*..*..*")), rows)
    close = [{**_branch("$.inputs.a[?@[0]==5]"), "id": f"b{index}"} for index in range(100)]
    wide = {"a": [[index % 7, index] for index in range(60_000)]}
    yield "100 searches that are just allowed", _start(_spec(*close), wide)
    objects = [{f"k{index}": {"type": "string", "pattern": "^(a|b)*c"} for index in range(90)}]
    schema = {"type": "object", "properties": {"a": {"type": "array", "items": {"anyOf": [
        {"type": "object", "properties": one, "required": list(one)} for one in objects * 20
    ]}}}}  # fmt: skip
    yield (
        "costly schema",
        _start(_spec(_echo(1), inputs=schema), {"a": [{"k0": "ab" * 10} for _ in range(20_000)]}),
    )


def _bodies() -> Iterator[tuple[str, Attack]]:
    """Bodies that cost to read."""
    for name, path, body in (
        ("brackets to resume", RESUME, b"[" * 25 * MIB),
        ("braces in text to resume", RESUME, b'{"task_id": "t", "data": "' + b"{[" * 12 * MIB + b'"}'),
        ("brackets to start", RUNS, b"[" * MIB),
        ("pairs to start", RUNS, b'{"spec": [' + b"[]," * (MIB // 4) + b"1]}"),
        ("keys to start", RUNS, b'{"spec": {%s}}' % b",".join(b'"%x":0' % index for index in range(100_000))),
        (
            "key twice to start",
            RUNS,
            b'{"spec": {%s, "0":0}}' % b",".join(b'"%x":0' % index for index in range(80_000)),
        ),
        ("not JSON", RUNS, b"\xff" * 1000),
    ):
        yield name, _send(path, body)


SMALL_VALUES: Final = {
    "numbers": b"[" + b"0," * (12 * MIB) + b"0]",
    "lists": b"[" + b"[]," * (8 * MIB) + b"0]",
    "objects": b"[" + b'{"a":0},' * (3 * MIB) + b"0]",
    "quoted brackets": b"[" + b'"[",' * (6 * MIB) + b"0]",
}
STORING: Final = {
    f"{where} of {kind}"
    for kind in SMALL_VALUES
    for where in ("callback", "worker's answer", "selected callback")
}


def _answers() -> Iterator[tuple[str, Attack]]:
    """24 MiB of small values, each as the answer of a call."""
    for kind, text in SMALL_VALUES.items():
        yield f"callback of {kind}", _callback(text)
        yield f"worker's answer of {kind}", _answer(text)
    yield "selected callback of lists", _callback(SMALL_VALUES["lists"], result={"select": "$.data[0]"})


def _callback(text: bytes, **more: Any) -> Attack:
    async def send(target: Target, own: str) -> int:
        pending = {**_echo({"pending": True, "task_id": own}), **more}
        status, started = await target.post(RUNS, _start_of(_spec(pending)))
        if status != 202:
            return status
        status, _ = await target.post(RESUME, b'{"task_id": "%s", "data": %s}' % (own.encode(), text))
        for part in ("", "/steps", "/journal"):
            await target.get(f"{RUNS}/{started['run_id']}{part}")
        return status

    return send


def _answer(text: bytes) -> Attack:
    async def send(target: Target, own: str) -> int:
        worker = {"id": own, "kind": "pull", "services": [own]}
        status, _ = await target.post(WORKERS, msgspec.json.encode(worker))
        if status != 200:
            return status
        status, _ = await target.post(RUNS, _start_of(_spec({"id": "s", "service": own, "timeout_secs": 20})))
        poll = {"worker_id": own, "services": [own], "limit": 1, "wait_secs": 5}
        status, fetched = await target.post(f"{JOBS}/poll", msgspec.json.encode(poll))
        if status != 200 or not fetched["assignments"]:
            return status
        job = fetched["assignments"][0]
        body = b'{"token": "%s", "result": %s}' % (job["token"].encode(), text)
        return (await target.post(f"{JOBS}/{job['id']}/complete", body))[0]

    return send


# ------------------------------------------------------------------------------------------------------ their parts


async def _posted(target: Target, path: str, body: bytes) -> int:
    return (await target.post(path, body))[0]


def _send(path: str, body: bytes) -> Attack:
    return lambda target, own: _posted(target, path, body)


def _start(spec: dict[str, Any], inputs: dict[str, Any] | None = None) -> Attack:
    return _send(RUNS, _start_of(spec, inputs))


def _start_of(spec: dict[str, Any], inputs: dict[str, Any] | None = None) -> bytes:
    return msgspec.json.encode({"spec": spec, "inputs": inputs or {}})


def _spec(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "hostile", "steps": list(steps), **more}


def _echo(value: Any) -> dict[str, Any]:
    return {"id": "s", "tool": "echo", "args": {"value": value}}


def _loop(step: dict[str, Any], concurrency: int = 100) -> dict[str, Any]:
    return {"id": "l", "kind": "foreach", "items": "$.inputs.n", "concurrency": concurrency, "steps": [step]}


def _branch(on: str) -> dict[str, Any]:
    return {"id": "b", "kind": "branch", "on": on, "then": [_echo(1)], "else": []}
