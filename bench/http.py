"""W11 and W12: runs that are started over HTTP, and steps that a worker does, beside a trivial POST on the same server.

The limit is measured between slices of ours with the same client, so both sides pay for it alike.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from bench.caller import Asked, Request, ask, post
from bench.figures import Goal, Kind, Measure
from bench.processes import Child
from bench.scale import Scale
from bench.turns import SLICES, in_turns, quantiles, sliced
from bench.work import chain

STARTED: Final = Kind("w11", "runs/s", "L-http 32", Goal(ratio=0.30), Goal(ratio=0.45), higher=True)
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
        return _started(_port(limit), _port(ours), scale.part(SLICES))


def _started(limit: int, ours: int, part: Scale) -> list[Measure]:
    uvloop.run(_publish(ours, chain(1).to_data()))
    starts = [post(RUNS, {"workflow": "chain", "inputs": {"run": run}}) for run in range(part.starts)]
    waits = [
        post(RUNS, {"workflow": "chain", "inputs": {"run": run}, "wait_secs": WAIT_SECS})
        for run in range(part.submits)
    ]
    _asked(ours, waits[:CONNECTIONS], CONNECTIONS)  # what is made once is made
    many = in_turns(
        lambda _: _asked(ours, starts, CONNECTIONS), lambda: (_limit(limit, part, CONNECTIONS).per_second,)
    )
    single = in_turns(lambda _: _completed(ours, waits, 1), lambda: (_trivial_ms(limit, part),))
    settings = {
        "runs": part.starts,
        "connections": CONNECTIONS,
        "steps": 1,
        "caller_busy": statistics.median(one.ours.busy for one in many),
    }
    one = {"runs": part.submits, "connections": 1, "steps": 1}
    return [
        sliced(STARTED, [each.ours.per_second for each in many], [each.limits[0] for each in many], settings),
        *quantiles(LATENCY_P50, LATENCY_P99, single, one),
    ]


def by_worker(folder: Path, scale: Scale) -> list[Measure]:
    """W12: graphs of executor nodes in a row, all done by one push worker in a process of its own. Then runs of one
    such node, one at a time."""
    order = {"db": folder / "w12.db", "effects": folder / "effects"}
    with Child.serving("limit") as limit, Child.serving("holdfast", **order) as ours:
        port = _port(ours)
        with Child.serving("worker", server=f"http://{HOST}:{port}") as worker:
            worker.hear()
            return _by_worker(_port(limit), port, scale.part(SLICES))


def _by_worker(limit: int, ours: int, part: Scale) -> list[Measure]:
    uvloop.run(_publish(ours, _row_of_executors("row", part.steps)))
    uvloop.run(_publish(ours, _row_of_executors("one", 1)))
    runs = [post(RUNS, {"workflow": "row", "wait_secs": WAIT_SECS}) for _ in range(part.worker_runs)]
    ones = [post(RUNS, {"workflow": "one", "wait_secs": WAIT_SECS}) for _ in range(part.submits)]
    in_flight = min(IN_FLIGHT, part.worker_runs)
    _asked(ours, runs[:in_flight], in_flight)  # what is made once is made

    def many(_: int) -> Asked:
        asked = _asked(ours, runs, in_flight)
        _check_completed(asked)
        return asked

    rows = in_turns(many, lambda: (_limit(limit, part, 1).per_second,))
    single = in_turns(lambda _: _completed(ours, ones, 1), lambda: (_trivial_ms(limit, part),))
    settings = {
        "runs": part.worker_runs,
        "in_flight": in_flight,
        "steps": part.steps,
        "caller_busy": statistics.median(each.ours.busy for each in rows),
    }
    one = {"runs": part.submits, "in_flight": 1, "steps": 1}
    return [
        sliced(
            WORKER,
            [part.steps * each.ours.per_second for each in rows],
            [each.limits[0] for each in rows],
            settings,
        ),
        *quantiles(WORKER_P50, WORKER_P99, single, one),
    ]


def _asked(port: int, requests: list[Request], connections: int) -> Asked:
    return uvloop.run(ask(HOST, port, requests, connections=connections))


def _completed(port: int, requests: list[Request], connections: int) -> list[float]:
    """The seconds from each request to the end of its run."""
    asked = _asked(port, requests, connections)
    _check_completed(asked)
    return asked.latencies


def _check_completed(asked: Asked) -> None:
    for body in asked.bodies:
        if msgspec.json.decode(body)["status"] != "completed":
            raise RuntimeError(f"a run of the bench did not complete: {body[:500]!r}")


def _row_of_executors(name: str, steps: int) -> dict[str, Any]:
    nodes = {f"n{step}": {"kind": "executor", "service": "route"} for step in range(steps)}
    edges = [{"from": f"n{step}", "action": "default", "to": f"n{step + 1}"} for step in range(steps - 1)]
    return {"name": name, "start": "n0", "nodes": nodes, "edges": edges}


async def _publish(port: int, definition: dict[str, Any]) -> None:
    await ask(HOST, port, [post("/api/v1/workflows", definition)], connections=1)


def _limit(port: int, part: Scale, connections: int) -> Asked:
    body = post("/", {"workflow": "chain", "inputs": {"run": 1}})
    return _asked(port, [body] * part.starts, connections)


def _trivial_ms(port: int, part: Scale) -> float:
    return 1000 * statistics.median(_limit(port, part, 1).latencies)


def _port(child: Child) -> int:
    return int(child.hear()["port"])
