"""What hostile callers send during a soak, from a process of its own.

Each attack once stalled or broke a server, or is built to: value bombs, deep and costly text, large answers of small values, long
definitions, wide fan-outs, expensive expressions. A server in local mode trusts every caller, so these are the attacks of a caller
with a good key. Knows the HTTP API and nothing of how the server is built.
"""

from __future__ import annotations

import asyncio
import io
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

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
        data = io.BytesIO(body)  # the client warns about large bytes, which it would send in one piece
        async with self._session.post(self._address + path, data=data, headers=headers) as answer:
            return answer.status, msgspec.json.decode(await answer.read())

    async def get(self, path: str) -> int:
        async with self._session.get(self._address + path) as answer:
            await answer.read()
            return answer.status


Attack = Callable[[Target, str], Awaitable[int]]  # is given an id of its own; gives the last status
COMPLETES: Final = "completed"


class Hostile(NamedTuple):
    """An attack, and the words of the answer or of the run's error that show that it reached what it names."""

    name: str
    send: Attack
    reaches: str


def attack(address: str, seed: int, end: float, sent: Connection) -> None:
    """Attack until the end, and send what was done through the pipe."""
    sent.send(asyncio.run(_attack(address, seed, end)))


async def _attack(address: str, seed: int, end: float) -> list[Sent]:
    rng, done = random.Random(seed), list[Sent]()
    arsenal = list(hostile())
    weights = [STORED_SHARE if each.name in STORING else 1.0 for each in arsenal]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as session:
        target = Target(session, address)
        while time.monotonic() < end:
            chosen = rng.choices(arsenal, weights)[0]
            began = time.monotonic()
            try:
                status = str(await chosen.send(target, f"{seed}-{len(done)}"))
            except AWAY:
                status = "no answer"
            done.append(Sent(chosen.name, began, time.monotonic(), status))
            await asyncio.sleep(PAUSE_SECONDS)
    return done


# ------------------------------------------------------------------------------------------------------ the arsenal


def hostile() -> Iterator[Hostile]:
    yield from _bombs()
    yield from _definitions()
    yield from _expressions()
    yield from _schemas()
    yield from _bodies()
    yield from _answers()


def _bombs() -> Iterator[Hostile]:
    """Runs that are larger than the request that starts them."""
    big = {"a": "x" * 500_000}
    many = ["{{inputs.a}}"] * 10_000
    in_args, in_output = _spec(_echo(many)), _spec(_echo(1), output={"o": many})
    in_text, in_loop = _spec(_echo("{{inputs.a}}" * 10_000)), _spec(_loop(_echo("{{inputs.a}}")))
    yield Hostile("value bomb in arguments", _start(in_args, big), "input_too_large")
    yield Hostile("value bomb in output", _start(in_output, big), "output_too_large")
    yield Hostile("value bomb in text", _start(in_text, big), "input_too_large")
    items = {**big, "n": list(range(400))}
    yield Hostile("fan-out of a large value", _start(in_loop, items), "output_too_large")
    wide = _loop(_echo("{{item}}"), 10_000)
    yield Hostile("fan-out of 10,000", _start(_spec(wide), {"n": list(range(10_000))}), COMPLETES)
    wide = _loop(_echo("{{item.k}} {{inputs.n[0].k}}"), 10_000)
    objects = {"n": [{"k": "y" * 60}] * 10_000}
    yield Hostile("fan-out of 10,000 objects", _start(_spec(wide), objects), COMPLETES)
    deep: Any = 1
    for _ in range(62):  # with the body and its inputs, as deep as a request may be
        deep = [deep]
    yield Hostile(
        "deep output in a loop", _start(_spec(_loop(_echo("{{inputs.d}}"))), {"n": [1], "d": deep}), COMPLETES
    )
    files = {"file_refs": [{"path": "h.db"}, {"path": "/etc/passwd"}, {"path": "h.db-wal"}]}
    yield Hostile("files of the server", _start(_spec(_echo(files))), "cannot be handed out")


def _definitions() -> Iterator[Hostile]:
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
        long = [{"id": f"s{index}", "tool": "echo", "argz": 1} for index in range(5_000)]
        return _posted(target, RUNS, _start_of({"name": own, "steps": long}))

    def yaml(target: Target, own: str) -> Awaitable[int]:
        text = f"name: y{own}\nsteps:\n" + "".join(
            f"- {{id: s{index}, tool: echo}}\n" for index in range(8_000)
        )
        return _posted(target, RUNS, msgspec.json.encode({"spec": text}))

    def graph(target: Target, own: str) -> Awaitable[int]:
        nodes = {f"n{index}": {"kind": "timer", "params": {"delay_ms": 0}} for index in range(3_000)}
        edges = [{"from": f"n{index}", "to": f"n{index + 1}"} for index in range(2_999)]
        return _posted(target, RUNS, _start_of({"name": own, "start": "n0", "nodes": nodes, "edges": edges}))

    yield Hostile("8,000 steps", steps, COMPLETES)
    yield Hostile("2,500 steps with templates", templates, COMPLETES)
    yield Hostile("5,000 problems", invalid, "argz")
    yield Hostile("8,000 steps as YAML", yaml, COMPLETES)
    yield Hostile("graph of 3,000 nodes", graph, COMPLETES)


def _expressions() -> Iterator[Hostile]:
    rows = {"a": [[0] * 600] * 600}  # equal, so that each is compared to its end
    cubic = _spec(_branch("$.inputs.a[?@==$.inputs.a[0]]"))
    yield Hostile("filter that compares rows", _start(cubic, rows), "expression_too_costly")
    below = _spec(_branch("$..*..*..*..*"))
    yield Hostile("descendants of descendants", _start(below, rows), "expression_too_costly")
    close = [_branch("$.inputs.a[?@[0]==9]", str(index)) for index in range(100)]
    wide = {"a": [[index % 7, index] for index in range(40_000)]}
    yield Hostile("100 searches that are just allowed", _start(_spec(*close), wide), COMPLETES)
    cases = [{"action": f"a{index}", "expr": {"in": [f"b{index}", "$params.a"]}} for index in range(2_000)]
    choice = {"name": "hostile", "start": "c", "nodes": {"c": {"kind": "choice", "choice_cases": cases}}}
    yield Hostile(
        "2,000 cases that search a list", _start(choice, {"a": ["x"] * 200_000}), "expression_too_costly"
    )


def _schemas() -> Iterator[Hostile]:
    fitting = [
        {"type": "object", "additionalProperties": {"type": "string", "pattern": f"^(a|b)*{end}$"}}
        for end in range(100)
    ]
    listed = {"type": "array", "items": {"anyOf": fitting}}
    schema = _spec(_echo(1), inputs={"type": "object", "properties": {"a": listed}})
    last = {f"k{index}": "abababab99" for index in range(20)}
    yield Hostile("schema that is just allowed", _start(schema, {"a": [last] * 2_000}), COMPLETES)
    many = {"type": "array", "items": {"anyOf": [{"const": index} for index in range(5_000)]}}
    schema = _spec(_echo(1), inputs={"type": "object", "properties": {"a": many}})
    yield Hostile("schema that costs too much", _start(schema, {"a": [-1] * 100_000}), "schema_work_max")


def _bodies() -> Iterator[Hostile]:
    """Bodies that cost to read."""
    keys = b",".join(b'"%x":0' % index for index in range(100_000))
    for name, path, body, reaches in (
        ("brackets to resume", RESUME, b"[" * 25 * MIB, "nested deeper"),
        ("braces in text to resume", RESUME, b'{"task_id": "t", "data": "' + b"{[" * 12 * MIB + b'"}', "parked"),
        ("brackets to start", RUNS, b"[" * MIB, "nested deeper"),
        ("pairs to start", RUNS, b'{"spec": {"name": [' + b"[]," * (MIB // 4) + b"1]}}", "name must be"),
        ("keys to start", RUNS, b'{"spec": {%s}}' % keys, "unknown key"),
        ("key twice to start", RUNS, b'{"spec": {%s, "0":0}}' % keys[:900_000].rpartition(b",")[0], "same key twice"),
        ("not JSON", RUNS, b"\xff" * 1000, "malformed"),
    ):  # fmt: skip
        yield Hostile(name, _send(path, body), reaches)


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


def _answers() -> Iterator[Hostile]:
    """24 MiB of small values, each as the answer of a call."""
    for kind, text in SMALL_VALUES.items():
        yield Hostile(f"callback of {kind}", _callback(text), COMPLETES)
        yield Hostile(f"worker's answer of {kind}", _answer(text), COMPLETES)
    lists = SMALL_VALUES["lists"]
    yield Hostile("selected callback of lists", _callback(lists, result={"select": "$.data[0]"}), COMPLETES)


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


def _branch(on: str, own: str = "") -> dict[str, Any]:
    inner = {**_echo(1), "id": f"s{own}"}
    return {"id": f"b{own}", "kind": "branch", "on": on, "then": [inner], "else": []}
