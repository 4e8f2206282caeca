"""W1, W2 and W3: how fast steps go, many runs at once, one run alone, and from being asked to the first call."""

from __future__ import annotations

import gc
import statistics
import time
from pathlib import Path
from typing import Final

import uvloop

from bench.figures import Goal, Kind, Measure, quantile
from bench.limits import commit_p50_ms, step_limit, work_limit
from bench.scale import Scale
from bench.work import branches, chain, loop, many_runs, noting, opened, whole_run
from holdfast import WorkflowSpec

SATURATED: Final = Kind("w1_saturated", "steps/s", "L-step", Goal(ratio=0.20), Goal(ratio=0.45), higher=True)
OF_WORK: Final = Kind(
    "w1_saturated_of_work", "steps/s", "L-work", Goal(ratio=0.40), Goal(ratio=0.55), higher=True
)
SLICES: Final = 3  # of ours, each between two of the limits
SINGLE: Final = Kind(
    "w1_single_p50", "ms", "L-commit p50", Goal(value=5, ratio=22), Goal(value=2.5, ratio=14)
)
FAN_OUT: Final = Kind("w2_foreach", "s", "L-step for as many", Goal(value=0.05), Goal(value=0.02))
SPREAD: Final = Kind("w2_parallel", "s", "L-step for as many", Goal(value=0.05), Goal(value=0.02))
FIRST_P50: Final = Kind("w3_p50", "ms", "L-commit p50", Goal(value=1), Goal(value=0.4))
FIRST_P99: Final = Kind("w3_p99", "ms", "L-commit p50", Goal(value=4), Goal(value=2))


def saturated(folder: Path, scale: Scale) -> list[Measure]:
    """W1: so many runs in flight. Ours and the limits in turns, for a machine changes its speed within seconds: the figure is the
    median, and each limit is the one that gives the median of the ratios."""
    ours, of_step, of_work = list[float](), list[float](), list[float]()
    before = _limits(folder, scale)
    for number in range(SLICES):
        took = uvloop.run(many_seconds(folder / f"w1-{number}.db", folder, scale))
        after = _limits(folder, scale)
        ours.append(scale.runs * scale.steps / took)
        of_step.append(2 * ours[-1] / (before[0] + after[0]))
        of_work.append(2 * ours[-1] / (before[1] + after[1]))
        before = after
    value = statistics.median(ours)
    settings = {"runs": scale.runs, "in_flight": scale.runs, "steps": scale.steps, "slices": SLICES}
    return [
        Measure(SATURATED, value, value / statistics.median(of_step), settings),
        Measure(OF_WORK, value, value / statistics.median(of_work), settings),
    ]


def _limits(folder: Path, scale: Scale) -> tuple[float, float]:
    """L-step and L-work."""
    with noting(folder / "limit-effects") as note:
        return (
            step_limit(folder, runs=scale.runs, steps=scale.steps),
            work_limit(folder, note, runs=scale.runs, steps=scale.steps),
        )


async def many_seconds(db: Path | str, folder: Path, scale: Scale) -> float:
    spec = chain(scale.steps)
    with noting(folder / "effects") as note:
        async with opened(db, note) as hf:
            await whole_run(hf, spec, 0)  # the definition is stored once, not once per run
            gc.collect()
            return await many_runs(hf, spec, runs=scale.runs, in_flight=scale.runs)


def single(folder: Path, scale: Scale) -> list[Measure]:
    """W1: one run at a time, from start to result."""
    commit_ms = commit_p50_ms(folder, scale)
    took = uvloop.run(single_seconds(folder / "w1.db", folder, scale))
    settings = {"runs": scale.singles, "in_flight": 1, "steps": scale.steps}
    return [Measure(SINGLE, 1000 * statistics.median(took), commit_ms, settings)]


async def single_seconds(db: Path | str, folder: Path, scale: Scale) -> list[float]:
    spec, took = chain(scale.steps), []
    with noting(folder / "effects") as note:
        async with opened(db, note) as hf:
            await whole_run(hf, spec, 0)
            for run in range(1, scale.singles + 1):
                began = time.perf_counter()
                await whole_run(hf, spec, run)
                took.append(time.perf_counter() - began)
    return took


def parallel(folder: Path, scale: Scale) -> list[Measure]:
    """W2: one run with so many steps at the same time, as a loop and written out."""
    count = scale.parallel
    limit = count / step_limit(folder, runs=count, steps=1)
    foreach = uvloop.run(_wide(folder, loop(count, collect="outputs"), "foreach", count))
    spread = uvloop.run(_wide(folder, branches(count), "parallel", count))
    settings = {"steps": count, "concurrency": count}
    return [
        Measure(FAN_OUT, foreach, limit, settings),
        Measure(SPREAD, spread, limit, settings),
    ]


async def _wide(folder: Path, spec: WorkflowSpec, name: str, count: int) -> float:
    """The median of three in a row; the first of all, which stores the definition too, is left out."""
    took = []
    with noting(folder / "effects") as note:
        async with opened(folder / f"w2-{name}.db", note) as hf:
            for run in range(4):
                inputs = {"run": run, "items": list(range(count))} if name == "foreach" else {"run": run}
                gc.collect()
                began = time.perf_counter()
                await (await hf.start(spec, inputs)).result()
                took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def first_step(folder: Path, scale: Scale) -> list[Measure]:
    """W3: from the call of `start` to the first line of the first step, on an engine that does nothing else."""
    commit_ms = commit_p50_ms(folder, scale)
    took = [1000 * seconds for seconds in uvloop.run(first_step_seconds(folder / "w3.db", folder, scale))]
    settings = {"runs": scale.submits, "in_flight": 1, "steps": 1}
    return [
        Measure(FIRST_P50, statistics.median(took), commit_ms, settings),
        Measure(FIRST_P99, quantile(took, 0.99), commit_ms, settings),
    ]


async def first_step_seconds(db: Path | str, folder: Path, scale: Scale) -> list[float]:
    spec, asked, begun = chain(1), [], []
    with noting(folder / "effects", begins=lambda run: begun.append(time.perf_counter())) as note:
        async with opened(db, note) as hf:
            for run in range(scale.submits + 1):
                asked.append(time.perf_counter())
                await whole_run(hf, spec, run)
    return [begin - ask for ask, begin in zip(asked, begun, strict=True)][1:]
