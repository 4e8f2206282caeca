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
WORKER_P50: Final = Kind("w12_completed_p50", "ms", "L-http p50")
WORKER_P99: Final = Kind("w12_completed_p99", "ms", "L-http p50")

HOST: Final = "127.0.0.1"
CONNECTIONS: Final = 32
IN_FLIGHT: Final = 100  # runs whose steps the worker does
RUNS: Final = "/api/v1/runs"
WAIT_SECS: Final = 30


def started(folder: Path, scale: Scale) -> list[Measure]:
    """W11: runs of one trivial step. Then one at a time, from the POST to the answer with its output."""
    order = {"db": folder / "w11.db", "effects": folder / "effects"}
    with Child.serving("limit") as limit, Child.serving("holdfast", **order) as ours:
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
    _check_completed(single)
    at_32 = (before.per_second + after.per_second) / 2
    trivial_ms = 1000 * statistics.median(alone.latencies)
    took = [1000 * seconds for seconds in single.latencies]
    settings = {"runs": scale.starts, "connections": CONNECTIONS, "steps": 1, "caller_busy": many.busy}
    one = {"runs": scale.submits, "connections": 1, "steps": 1}
    return [
        Measure(STARTED, many.per_second, at_32, settings),
        Measure(LATENCY_P50, statistics.median(took), trivial_ms, one),
        Measure(LATENCY_P99, quantile(took, 0.99), trivial_ms, one),
    ]


def by_worker(folder: Path, scale: Scale) -> list[Measure]:
    """W12: graphs of executor nodes in a row, all done by one push worker in a process of its own. Then runs of one
    such node, one at a time."""
    order = {"db": folder / "w12.db", "effects": folder / "effects"}
    with Child.serving("limit") as limit, Child.serving("holdfast", **order) as ours:
        port = _port(ours)
        with Child.serving("worker", server=f"http://{HOST}:{port}") as worker:
            worker.hear()
            return uvloop.run(_by_worker(_port(limit), port, scale))


async def _by_worker(limit: int, ours: int, scale: Scale) -> list[Measure]:
    await _publish(ours, _row_of_executors("row", scale.steps))
    await _publish(ours, _row_of_executors("one", 1))
    runs = [post(RUNS, {"workflow": "row", "wait_secs": WAIT_SECS}) for _ in range(scale.worker_runs)]
    ones = [post(RUNS, {"workflow": "one", "wait_secs": WAIT_SECS}) for _ in range(scale.submits)]
    in_flight = min(IN_FLIGHT, scale.worker_runs)
    await ask(HOST, ours, runs[:in_flight], connections=in_flight)  # what is made once is made
    before = await _limit(limit, scale, 1)
    many = await ask(HOST, ours, runs, connections=in_flight)
    after = await _limit(limit, scale, 1)
    single = await ask(HOST, ours, ones, connections=1)
    _check_completed(many, single)
    alone = (before.per_second + after.per_second) / 2
    trivial_ms = 1000 * statistics.median(before.latencies + after.latencies)
    took = [1000 * seconds for seconds in single.latencies]
    settings = {
        "runs": scale.worker_runs,
        "in_flight": in_flight,
        "steps": scale.steps,
        "caller_busy": many.busy,
    }
    one = {"runs": scale.submits, "in_flight": 1, "steps": 1}
    return [
        Measure(WORKER, scale.steps * many.per_second, alone, settings),
        Measure(WORKER_P50, statistics.median(took), trivial_ms, one),
        Measure(WORKER_P99, quantile(took, 0.99), trivial_ms, one),
    ]


def _check_completed(*asked: Asked) -> None:
    for body in (body for one in asked for body in one.bodies):
        if msgspec.json.decode(body)["status"] != "completed":
            raise RuntimeError(f"a run of the bench did not complete: {body[:500]!r}")


def _row_of_executors(name: str, steps: int) -> dict[str, Any]:
    nodes = {f"n{step}": {"kind": "executor", "service": "route"} for step in range(steps)}
    edges = [{"from": f"n{step}", "action": "default", "to": f"n{step + 1}"} for step in range(steps - 1)]
    return {"name": name, "start": "n0", "nodes": nodes, "edges": edges}


async def _publish(port: int, definition: dict[str, Any]) -> None:
    await ask(HOST, port, [post("/api/v1/workflows", definition)], connections=1)


async def _limit(port: int, scale: Scale, connections: int) -> Asked:
    body = post("/", {"workflow": "chain", "inputs": {"run": 1}})
    return await ask(HOST, port, [body] * scale.starts, connections=connections)


def _port(child: Child) -> int:
    return int(child.hear()["port"])
