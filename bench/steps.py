"""W1, W2 and W3: how fast steps go, many runs at once, one run alone, and from being asked to the first call."""

from __future__ import annotations

import gc
import statistics
import time
from pathlib import Path
from typing import Final

import uvloop

from bench.figures import Goal, Kind, Measure
from bench.limits import commit_p50_ms, step_limit, work_limit
from bench.scale import Scale
from bench.turns import SLICES, in_turns, quantiles, sliced
from bench.work import branches, chain, loop, many_runs, noting, opened, whole_run
from holdfast import WorkflowSpec

SATURATED: Final = Kind("w1_saturated", "steps/s", "L-step", Goal(ratio=0.20), Goal(ratio=0.45), higher=True)
OF_WORK: Final = Kind(
    "w1_saturated_of_work", "steps/s", "L-work", Goal(ratio=0.40), Goal(ratio=0.55), higher=True
)
SINGLE: Final = Kind(
    "w1_single_p50", "ms", "L-commit p50", Goal(value=4, ratio=22), Goal(value=2.5, ratio=14)
)
FAN_OUT: Final = Kind("w2_foreach", "s", "L-step for as many", Goal(value=0.035), Goal(value=0.02))
SPREAD: Final = Kind("w2_parallel", "s", "L-step for as many", Goal(value=0.035), Goal(value=0.02))
FIRST_P50: Final = Kind("w3_p50", "ms", "L-commit p50", Goal(value=1), Goal(value=0.4))
FIRST_P99: Final = Kind("w3_p99", "ms", "L-commit p50", Goal(value=4), Goal(value=2))


def saturated(folder: Path, scale: Scale) -> list[Measure]:
    """W1: so many runs in flight."""

    def ours(number: int) -> float:
        took = uvloop.run(many_seconds(folder / f"w1-{number}.db", folder, scale))
        return scale.runs * scale.steps / took

    slices = in_turns(ours, lambda: _limits(folder, scale))
    values, limits = [one.ours for one in slices], zip(*[one.limits for one in slices], strict=True)
    settings = {"runs": scale.runs, "in_flight": scale.runs, "steps": scale.steps}
    return [
        sliced(kind, values, limit, settings)
        for kind, limit in zip((SATURATED, OF_WORK), limits, strict=True)
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
    part = scale.part(SLICES)
    slices = in_turns(
        lambda number: uvloop.run(single_seconds(folder / f"w1-{number}.db", folder, part)),
        lambda: (commit_p50_ms(folder, part),),
    )
    settings = {"runs": part.singles, "in_flight": 1, "steps": scale.steps}
    values = [1000 * statistics.median(one.ours) for one in slices]
    return [sliced(SINGLE, values, [one.limits[0] for one in slices], settings)]


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
    definitions = {"foreach": loop(count, collect="outputs"), "parallel": branches(count)}

    def ours(number: int) -> list[float]:
        return [
            uvloop.run(_wide(folder, spec, f"{name}-{number}", count)) for name, spec in definitions.items()
        ]

    slices = in_turns(ours, lambda: (count / step_limit(folder, runs=count, steps=1),))
    limits, settings = [one.limits[0] for one in slices], {"steps": count, "concurrency": count}
    return [
        sliced(kind, values, limits, settings)
        for kind, values in zip(
            (FAN_OUT, SPREAD), zip(*[one.ours for one in slices], strict=True), strict=True
        )
    ]


async def _wide(folder: Path, spec: WorkflowSpec, name: str, count: int) -> float:
    """The median of three in a row; the first of all, which stores the definition too, is left out."""
    took = []
    with noting(folder / "effects") as note:
        async with opened(folder / f"w2-{name}.db", note) as hf:
            for run in range(4):
                is_loop = "items" in spec.inputs
                inputs = {"run": run, "items": list(range(count))} if is_loop else {"run": run}
                gc.collect()
                began = time.perf_counter()
                await (await hf.start(spec, inputs)).result()
                took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def first_step(folder: Path, scale: Scale) -> list[Measure]:
    """W3: from the call of `start` to the first line of the first step, on an engine that does nothing else."""
    part = scale.part(SLICES)
    slices = in_turns(
        lambda number: uvloop.run(first_step_seconds(folder / f"w3-{number}.db", folder, part)),
        lambda: (commit_p50_ms(folder, part),),
    )
    return quantiles(FIRST_P50, FIRST_P99, slices, {"runs": part.submits, "in_flight": 1, "steps": 1})


async def first_step_seconds(db: Path | str, folder: Path, scale: Scale) -> list[float]:
    spec, asked, begun = chain(1), [], []
    with noting(folder / "effects", begins=lambda run: begun.append(time.perf_counter())) as note:
        async with opened(db, note) as hf:
            for run in range(scale.submits + 1):
                asked.append(time.perf_counter())
                await whole_run(hf, spec, run)
    return [begin - ask for ask, begin in zip(asked, begun, strict=True)][1:]
