"""W4 and W5: how soon a run that waits goes on, when its time has come, and when somebody says so. And how many of them
can: `wakes`.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Final

import uvloop

from bench.figures import Goal, Kind, Measure
from bench.limits import commit_p50_ms, step_limit
from bench.scale import Scale
from bench.turns import SLICES, in_turns, quantiles
from bench.work import noting, opened, whole_run
from holdfast import Holdfast, RunHandle, WorkflowSpec

LATE_P50: Final = Kind("w4_p50", "ms late", "L-commit p50", Goal(value=8), Goal(value=3))
LATE_P99: Final = Kind("w4_p99", "ms late", "L-commit p50", Goal(value=30), Goal(value=15))
SIGNAL_P50: Final = Kind("w5_p50", "ms", "L-commit p50", Goal(value=0.7), Goal(value=0.4))
SIGNAL_P99: Final = Kind("w5_p99", "ms", "L-commit p50", Goal(value=3), Goal(value=2))
WOKEN_BY_TIME: Final = Kind("wakes_timers", "runs/s", "L-step", Goal(value=10_000), higher=True)
WOKEN_BY_SIGNAL: Final = Kind("wakes_signals", "runs/s", "L-step", Goal(value=10_000), higher=True)
SIGNALLED_AT_ONCE: Final = 100


def timers(folder: Path, scale: Scale) -> list[Measure]:
    """W4: so many runs at once that wait as long; from when each was due to the first line of what it waits to do."""
    part = scale.part(SLICES)
    slices = in_turns(
        lambda number: uvloop.run(_timers(folder, f"w4-{number}.db", scale)),
        lambda: (commit_p50_ms(folder, part),),
    )
    due = "when `start` was called, and the delay"
    settings = {"timers": scale.timers, "delay_ms": scale.delay_ms, "due": due}
    return quantiles(LATE_P50, LATE_P99, slices, settings)


async def _timers(folder: Path, db: str, scale: Scale) -> list[float]:
    spec = _waiting({"kind": "timer", "delay_ms": scale.delay_ms})
    asked: dict[int, float] = {}

    async def one(hf: Holdfast, run: int) -> None:
        asked[run] = time.perf_counter()
        await whole_run(hf, spec, run)

    begun: dict[int, float] = {}
    with noting(folder / "effects", lambda run: begun.setdefault(run, time.perf_counter())) as note:
        async with opened(folder / db, note) as hf:
            await one(hf, 0)  # the definition is stored once, not once per run
            await asyncio.gather(*[one(hf, run) for run in range(1, scale.timers + 1)])
    return [begun[run] - asked[run] - scale.delay_ms / 1000 for run in range(1, scale.timers + 1)]


def signals(folder: Path, scale: Scale) -> list[Measure]:
    """W5: from the call of `signal` to the first line of the step after the pause, one run at a time, all paused before."""
    part = scale.part(SLICES)
    slices = in_turns(
        lambda number: uvloop.run(_signals(folder, f"w5-{number}.db", part)),
        lambda: (commit_p50_ms(folder, part),),
    )
    return quantiles(SIGNAL_P50, SIGNAL_P99, slices, {"runs": part.submits, "signalled": "one at a time"})


async def _signals(folder: Path, db: str, scale: Scale) -> list[float]:
    spec = _waiting({"kind": "wait_event", "signal_key": "go"})
    asked: list[float] = []
    begun: list[float] = []
    with noting(folder / "effects", lambda run: begun.append(time.perf_counter())) as note:
        async with opened(folder / db, note) as hf:
            runs = [await hf.start(spec, {"run": run}) for run in range(scale.submits + 1)]
            for run in runs:
                await _check_paused(run)
            for run in runs:
                asked.append(time.perf_counter())
                await hf.signal(run.id, "go", 1)
                await run.result()
    return [begin - ask for ask, begin in zip(asked, begun, strict=True)][1:]


def wakes(folder: Path, scale: Scale) -> list[Measure]:
    """So many runs that are rows in the file and not in memory, all due at one instant, or all signalled: how many a
    second begin their next step."""
    limit = step_limit(folder, runs=scale.runs, steps=scale.steps)
    settings = {"runs": scale.wakes}
    by_time = uvloop.run(_woken_by_time(folder, scale))
    by_signal = uvloop.run(_woken_by_signal(folder, scale))
    return [
        Measure(WOKEN_BY_TIME, by_time, limit, settings | {"due": "all at one instant"}),
        Measure(WOKEN_BY_SIGNAL, by_signal, limit, settings | {"signalled_at_once": SIGNALLED_AT_ONCE}),
    ]


async def _woken_by_time(folder: Path, scale: Scale) -> float:
    due = time.time() + scale.wakes_in_ms / 1000
    spec = _waiting({"kind": "timer", "until": round(due * 1000)})
    begun: dict[int, float] = {}
    with noting(folder / "effects", lambda run: begun.setdefault(run, time.time())) as note:
        async with opened(folder / "wakes_timers.db", note) as hf:
            await asyncio.gather(*[run.result() for run in await _parked(hf, spec, scale)])
    return scale.wakes / (max(begun.values()) - due)


async def _woken_by_signal(folder: Path, scale: Scale) -> float:
    spec = _waiting({"kind": "wait_event", "signal_key": "go"})
    begun: dict[int, float] = {}
    with noting(folder / "effects", lambda run: begun.setdefault(run, time.perf_counter())) as note:
        async with opened(folder / "wakes_signals.db", note) as hf:
            runs = await _parked(hf, spec, scale)
            for run in runs[:: scale.wakes // 20]:
                await _check_paused(run)

            async def signal(some: list[RunHandle]) -> None:
                for run in some:
                    await hf.signal(run.id, "go", 1)

            began = time.perf_counter()
            await asyncio.gather(*[signal(runs[i::SIGNALLED_AT_ONCE]) for i in range(SIGNALLED_AT_ONCE)])
            await asyncio.gather(*[run.result() for run in runs])
    return scale.wakes / (max(begun.values()) - began)


async def _parked(hf: Holdfast, spec: WorkflowSpec, scale: Scale) -> list[RunHandle]:
    runs: list[RunHandle] = []
    while len(runs) < scale.wakes:
        some = range(len(runs), min(len(runs) + scale.runs, scale.wakes))
        runs += await asyncio.gather(*[hf.start(spec, {"run": run}) for run in some])
    return runs


async def _check_paused(run: RunHandle) -> None:
    if (status := await run.status()) != "waiting":
        raise RuntimeError(f"a run of the bench is {status}, and should wait")


def _waiting(wait: dict[str, Any]) -> WorkflowSpec:
    """A run that waits, and then does the trivial step."""
    steps = [
        {"id": "wait", **wait},
        {"id": "then", "tool": "note", "args": {"run": "{{inputs.run}}", "step": 1}},
    ]
    return WorkflowSpec.from_data({"name": "waiting", "inputs": {"run": {"type": "integer"}}, "steps": steps})
