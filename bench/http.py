"""W11 and W12: runs that are started over HTTP, and steps that a worker does, beside a trivial POST on the same server.

The limit is measured before and after with the same client, so both sides pay for it alike.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from bench.caller import Asked, ask, post
from bench.figures import Goal, Kind, Measure, quantile
from bench.processes import Child
from bench.scale import Scale
from bench.work import chain

STARTED: Final = Kind("w11", "runs/s", "L-http 32", Goal(ratio=0.12), Goal(ratio=0.30), higher=True)
LATENCY_P50: Final = Kind("w11_completed_p50", "ms", "L-http p50")
LATENCY_P99: Final = Kind("w11_completed_p99", "ms", "L-http p50")
WORKER: Final = Kind("w12", "steps/s", "L-http 1", Goal(ratio=0.25), Goal(ratio=0.70), higher=True)

HOST: Final = "127.0.0.1"
CONNECTIONS: Final = 32
RUNS: Final = "/api/v1/runs"
WAIT_SECS: Final = 30


def started(folder: Path, scale: Scale) -> list[Measure]:
    """W11: runs of one trivial step. Then one at a time, from the POST to the answer with its output."""
    order = {"db": folder / "w11.db", "effects": folder / "effects"}
    with _server("limit") as limit, _server("holdfast", **order) as ours:
        return uvloop.run(_started(_port(limit), _port(ours), scale))


async def _started(limit: int, ours: int, scale: Scale) -> list[Measure]:
    await _publish(ours, chain(1).to_data())
    starts = [post(RUNS, {"workflow": "chain", "inputs": {"run": run}}) for run in range(scale.starts)]
    waits = [
        post(RUNS, {"workflow": "chain", "inputs": {"run": run}, "wait_secs": WAIT_SECS})
        for run in range(scale.submits)
    ]
    await ask(HOST, ours, waits[:CONNECTIONS], connections=CONNECTIONS)  # what is made once is made
    before = await _limit(limit, scale, CONNECTIONS)
    many = await ask(HOST, ours, starts, connections=CONNECTIONS)
    after = await _limit(limit, scale, CONNECTIONS)
    alone = await _limit(limit, scale, 1)
    single = await ask(HOST, ours, waits, connections=1)
    assert all(msgspec.json.decode(body)["status"] == "completed" for body in single.bodies)
    at_32 = (before.per_second + after.per_second) / 2
    trivial_ms = 1000 * statistics.median(alone.latencies)
    took = [1000 * seconds for seconds in single.latencies]
    settings = {"runs": scale.starts, "connections": CONNECTIONS, "steps": 1}
    one = {"runs": scale.submits, "connections": 1, "steps": 1}
    return [
        Measure(STARTED, many.per_second, at_32, settings),
        Measure(LATENCY_P50, statistics.median(took), trivial_ms, one),
        Measure(LATENCY_P99, quantile(took, 0.99), trivial_ms, one),
    ]


def by_worker(folder: Path, scale: Scale) -> list[Measure]:
    """W12: graphs of executor nodes in a row, all done by one push worker in a process of its own."""
    order = {"db": folder / "w12.db", "effects": folder / "effects"}
    with _server("limit") as limit, _server("worker") as worker, _server("holdfast", **order) as ours:
        return uvloop.run(_by_worker(_port(limit), _port(worker), _port(ours), scale))


async def _by_worker(limit: int, worker: int, ours: int, scale: Scale) -> list[Measure]:
    url = f"http://{HOST}:{worker}"
    await ask(
        HOST,
        ours,
        [post("/workers/register", {"id": "bench", "url": url, "services": ["noop"]})],
        connections=1,
    )
    await _publish(ours, _row_of_executors(scale.steps))
    runs = [post(RUNS, {"workflow": "row", "wait_secs": WAIT_SECS}) for _ in range(scale.worker_runs)]
    await ask(HOST, ours, runs[:1], connections=1)
    before = await _limit(limit, scale, 1)
    many = await ask(HOST, ours, runs, connections=min(CONNECTIONS, scale.worker_runs))
    after = await _limit(limit, scale, 1)
    assert all(msgspec.json.decode(body)["status"] == "completed" for body in many.bodies)
    steps = scale.worker_runs * scale.steps
    settings = {"runs": scale.worker_runs, "in_flight": CONNECTIONS, "steps": scale.steps}
    return [Measure(WORKER, steps / many.seconds, (before.per_second + after.per_second) / 2, settings)]


def _row_of_executors(steps: int) -> dict[str, Any]:
    nodes = {f"n{step}": {"kind": "executor", "service": "noop"} for step in range(steps)}
    edges = [{"from": f"n{step}", "action": "default", "to": f"n{step + 1}"} for step in range(steps - 1)]
    return {"name": "row", "start": "n0", "nodes": nodes, "edges": edges}


async def _publish(port: int, definition: dict[str, Any]) -> None:
    await ask(HOST, port, [post("/api/v1/workflows", definition)], connections=1)


async def _limit(port: int, scale: Scale, connections: int) -> Asked:
    body = post("/", {"workflow": "chain", "inputs": {"run": 1}})
    return await ask(HOST, port, [body] * scale.starts, connections=connections)


def _server(what: str, **order: Any) -> Child:
    return Child("-m", "bench.servers", what, msgspec.json.encode(order, enc_hook=str).decode())


def _port(child: Child) -> int:
    return int(child.hear()["port"])
