"""The fixed scripts whose instructions are counted: `python -m bench.counted FOLDER [short]`, under callgrind.

Each script does its work a few times first, so that everything made once exists, and then a known number of times between two
marks. A mark is a call of `getloadavg`, which nothing else here makes and at which callgrind writes its counters out. Time is moved by
hand and commits stay on the event loop, so that two countings take the same path.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.caller import Request, ask, post
from bench.schedule_child import declared, store, ticking
from bench.work import chain, loop, many_runs, noting
from holdfast import Holdfast, RunHandle, WorkflowSpec, testing
from holdfast.config import Settings
from holdfast.http.serve import serving
from holdfast.runtime.compose import Registry
from holdfast.testing import ManualClock, ManualLoop, settled

STEPS: Final = 10  # in the run whose further steps are counted
CHILDREN: Final = 100
LARGE_STEPS: Final = 500
IN_FLIGHT: Final = 20
SCHEDULES: Final = 200
WARM: Final = 5  # requests before the first mark
WAIT_MS: Final = 10_000  # long enough for a run to be evicted
HOST: Final = "127.0.0.1"

Script = Callable[[Path, int], Coroutine[Any, Any, None]]


def mark() -> None:
    os.getloadavg()


async def runs_of(folder: Path, count: int, steps: int) -> None:
    """Runs of so many trivial steps, from start to result, some at a time."""
    spec = chain(steps)
    with noting(folder / "effects") as note:
        async with _engine(folder, note) as hf:
            await many_runs(hf, spec, runs=IN_FLIGHT, in_flight=IN_FLIGHT)
            mark()
            await many_runs(hf, spec, runs=count, in_flight=IN_FLIGHT)
            mark()


async def run_of_one_step(folder: Path, count: int) -> None:
    await runs_of(folder, count, 1)


async def run_of_more_steps(folder: Path, count: int) -> None:
    await runs_of(folder, count, 1 + STEPS)


async def fan_out(folder: Path, count: int) -> None:
    """Runs of one foreach, all of whose children are open at the same time."""
    spec, items = loop(CHILDREN, collect="outputs"), list(range(CHILDREN))
    with noting(folder / "effects") as note:
        async with _engine(folder, note) as hf:
            await (await hf.start(spec, {"run": 0, "items": items})).result()
            mark()
            for run in range(1, count + 1):
                await (await hf.start(spec, {"run": run, "items": items})).result()
            mark()


async def timer_wakes(folder: Path, count: int) -> None:
    """Runs that are rows in the file, all woken by their timers, to their end."""

    async def wake(hf: Holdfast, runs: Sequence[RunHandle]) -> None:
        await _clock().until(asyncio.gather(*[run.result() for run in runs]))

    await _woken(folder, count, {"kind": "timer", "delay_ms": WAIT_MS}, wake)


async def signal_wakes(folder: Path, count: int) -> None:
    """Runs that are rows in the file, each woken by a signal, to its end."""

    async def wake(hf: Holdfast, runs: Sequence[RunHandle]) -> None:
        for run in runs:
            await hf.signal(run.id, "go", 1)
            await run.result()

    await _woken(folder, count, {"kind": "wait_event", "signal_key": "go"}, wake)


async def _woken(
    folder: Path,
    count: int,
    wait: dict[str, Any],
    wake: Callable[[Holdfast, Sequence[RunHandle]], Awaitable[None]],
) -> None:
    steps = [
        {"id": "wait", **wait},
        {"id": "then", "tool": "note", "args": {"run": "{{inputs.run}}", "step": 1}},
    ]
    spec = WorkflowSpec.from_data({"name": "woken", "inputs": {"run": {"type": "integer"}}, "steps": steps})
    with noting(folder / "effects") as note:
        async with _engine(folder, note) as hf:
            await wake(hf, [await hf.start(spec, {"run": 0})])
            runs = [await hf.start(spec, {"run": run}) for run in range(1, count + 1)]
            await settled()
            mark()
            await wake(hf, runs)
            mark()


async def fires(folder: Path, count: int) -> None:
    """Schedules that are all due at the same second, and the runs that they start, to their end."""
    schedules = [declared(f"s{n}", "* * * * * *") for n in range(SCHEDULES)]
    with ticking(folder / "effects") as ticked:
        async with _engine(folder, ticked) as hf:
            await store(hf, schedules)
            await _clock().advance(1)
            mark()
            await _clock().advance(count // SCHEDULES)
            mark()


async def http_starts(folder: Path, count: int) -> None:
    """Runs started by POST, each durable before its answer and then run to its end."""
    await _asked(folder, lambda _: post("/api/v1/runs", {"workflow": "chain", "inputs": {"run": 1}}), count)


async def http_gets_small(folder: Path, count: int) -> None:
    await _asked(folder, _get, count)


async def http_gets_large(folder: Path, count: int) -> None:
    await _asked(folder, _get, count, steps=LARGE_STEPS)


async def _asked(folder: Path, request: Callable[[str], Request], count: int, *, steps: int = 1) -> None:
    """The same request so often, on one connection, to a server that has a finished run."""
    clock = _clock()
    settings = Settings(db=f"sqlite:///{folder / 'counted.db'}", port=0)
    with noting(folder / "effects") as note:
        async with serving(settings, registry=Registry([note]), clock=clock) as server:
            port = int(server.address.rpartition(":")[2])
            _stay_on_the_loop(server.services.engine.store)
            await ask(HOST, port, [post("/api/v1/workflows", chain(steps).to_data())], connections=1)
            started = post("/api/v1/runs", {"workflow": "chain", "inputs": {"run": 0}, "wait_secs": 60})
            answer = await ask(HOST, port, [started], connections=1)
            requests = [request(msgspec.json.decode(answer.bodies[0])["run_id"])] * count
            await ask(HOST, port, requests[:WARM], connections=1)
            await settled()
            mark()
            await ask(HOST, port, requests, connections=1)
            await settled()
            mark()
            passing = asyncio.create_task(_pass_time(clock))
    passing.cancel()


def _get(run_id: str) -> Request:
    return Request("GET", f"/api/v1/runs/{run_id}", b"")


async def _pass_time(clock: ManualClock) -> None:
    """The HTTP server looks every tenth of a second whether it should stop."""
    while True:
        clock.seconds += 0.1
        await asyncio.sleep(0)


def _clock() -> ManualClock:
    running = asyncio.get_running_loop()
    assert isinstance(running, ManualLoop)
    return running.clock


def _engine(folder: Path, *tools: Any) -> Holdfast:
    hf = Holdfast(f"sqlite:///{folder / 'counted.db'}", tools=tools, tune_gc=True, clock=_clock())
    _stay_on_the_loop(hf._engine.store)
    return hf


def _stay_on_the_loop(store: Any) -> None:
    """Under callgrind every sync is slow, and commits would move to the writer's thread."""
    store.threads = False


SCRIPTS: Final[dict[str, tuple[Script, int]]] = {
    "run": (run_of_one_step, 100),
    "steps": (run_of_more_steps, 40),
    "fan_out": (fan_out, 4),
    "timer_wake": (timer_wakes, 50),
    "signal_wake": (signal_wakes, 50),
    "fire": (fires, 3 * SCHEDULES),
    "http_start": (http_starts, 50),
    "get_small": (http_gets_small, 50),
    "get_large": (http_gets_large, 5),
}


def main(folder: Path, names: Sequence[str]) -> None:
    # Large definitions are read in a thread, which takes a minute under callgrind on a busy machine.
    setattr(testing.clock, "STUCK_SECONDS", 600.0)  # noqa: B010  # a constant to everything else
    gc.disable()  # a collection in one counting and not in the other would be the largest difference
    for name in names:
        script, count = SCRIPTS[name]
        home = folder / name
        home.mkdir()
        with asyncio.Runner(loop_factory=ManualLoop) as runner:
            runner.run(script(home, count))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or list(SCRIPTS))
