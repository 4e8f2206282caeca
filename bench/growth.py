"""How cost grows: with runs in flight, along one long run, with runs in the file, with runs open at a crash."""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import time
from pathlib import Path
from typing import Final

import uvloop

from bench.figures import Goal, Kind, Measure
from bench.limits import step_limit
from bench.processes import Child
from bench.scale import Scale
from bench.work import chain, loop, many_runs, noting, opened, whole_run
from holdfast import Holdfast, WorkflowSpec

SAME: Final = Goal(ratio=1.25)  # "the same", on machines that differ by a fifth from one second to the next
LOOP_CONCURRENCY: Final = 100
FILE_ROUNDS: Final = 3
LOOKS: Final = ("start", "get", "list")
LISTED: Final = 100
RUNS_AT_LEAST: Final = 1_000


def in_flight(folder: Path, scale: Scale) -> list[Measure]:
    """W1 per step with few and with many runs in flight, each beside the limit with as many."""
    found = {}
    for count in scale.in_flight:
        runs = max(count, min(RUNS_AT_LEAST, max(scale.in_flight)))
        limit_us = 1e6 / step_limit(folder, runs=count, steps=runs * scale.steps // count)
        found[count] = (uvloop.run(_step_us(folder, count, runs, scale.steps)), limit_us)
    few, many = min(found), max(found)
    measures = [
        Measure(_cost(f"growth_in_flight_{count}"), ours, limit, {"in_flight": count, "steps": scale.steps})
        for count, (ours, limit) in found.items()
    ]
    grown = Kind("growth_in_flight", "µs/step with many", "µs/step with few", SAME)
    return [*measures, Measure(grown, found[many][0], found[few][0], {"few": few, "many": many})]


def _cost(name: str) -> Kind:
    return Kind(name, "µs/step", "L-step with as many, µs")


async def _step_us(folder: Path, count: int, runs: int, steps: int) -> float:
    spec = chain(steps)
    with noting(folder / "effects") as note:
        async with opened(folder / f"in-flight-{count}.db", note) as hf:
            await whole_run(hf, spec, 0)
            gc.collect()
            return 1e6 * await many_runs(hf, spec, runs=runs, in_flight=count) / (runs * steps)


def long_run(folder: Path, scale: Scale) -> list[Measure]:
    """A step at the beginning and at the end of one long loop."""
    begins = uvloop.run(_long_run(folder, scale))
    first = begins[2 * scale.window] - begins[scale.window]  # the very first ones still warm up
    last = begins[-1] - begins[-1 - scale.window]
    settings = {
        "items": scale.items,
        "concurrency": LOOP_CONCURRENCY,
        "collect": "none",
        "window": scale.window,
        "whole_run_seconds": round(begins[-1] - begins[0], 3),
    }
    grown = Kind("growth_long_run", "µs/step at the end", "µs/step at the beginning", SAME)
    return [Measure(grown, 1e6 * last / scale.window, 1e6 * first / scale.window, settings)]


async def _long_run(folder: Path, scale: Scale) -> list[float]:
    begins: list[float] = []
    spec = loop(LOOP_CONCURRENCY, collect="none")
    with noting(folder / "effects", lambda run: begins.append(time.perf_counter())) as note:
        async with opened(folder / "long.db", note) as hf:
            run = await hf.start(spec, {"run": 1, "items": list(range(scale.items))})
            await run.result()
    return begins


def file_size(folder: Path, scale: Scale) -> list[Measure]:
    """Starting a run, getting one back, and listing the newest, with few and with many finished runs in the file.

    The two files are looked at in turn, so that both see the same machine.
    """
    files = {count: folder / f"finished-{count}.db" for count in scale.finished}
    ids = {count: uvloop.run(_finish(db, count)) for count, db in files.items()}
    took: dict[tuple[int, str], list[float]] = {(count, what): [] for count in files for what in LOOKS}
    for _ in range(FILE_ROUNDS):
        for count, db in files.items():
            for what, seconds in uvloop.run(_looks(db, ids[count], scale.looks)).items():
                took[count, what] += seconds
    few, many = scale.finished
    return [_file_measure(what, took[few, what], took[many, what], scale) for what in LOOKS]


def _file_measure(what: str, few: list[float], many: list[float], scale: Scale) -> Measure:
    settings = {"few": scale.finished[0], "many": scale.finished[1], "looks": len(many)}
    kind = Kind(f"growth_{what}", f"µs to {what}, many runs", f"µs to {what}, few runs", SAME)
    return Measure(kind, 1e6 * statistics.median(many), 1e6 * statistics.median(few), settings)


async def _finish(db: Path, count: int) -> list[str]:
    """Fill a file with finished runs; gives the ids of some of them."""
    spec = chain(1)
    ids: list[str] = []
    with noting(db.with_suffix(".effects")) as note:
        async with opened(db, note) as hf:
            while len(ids) < count:
                part = [hf.start(spec, {"run": 1}) for _ in range(min(1_000, count - len(ids)))]
                runs = await asyncio.gather(*part)
                await asyncio.gather(*[run.result() for run in runs])
                ids += [str(run.id) for run in runs]
    return random.Random(count).sample(ids, min(1_000, count))


async def _looks(db: Path, ids: list[str], looks: int) -> dict[str, list[float]]:
    spec = chain(1)
    with noting(db.with_suffix(".effects")) as note:
        async with opened(db, note) as hf:
            await whole_run(hf, spec, 0)
            return {
                "start": [await _start_seconds(hf, spec) for _ in range(looks)],
                "get": [await _get_seconds(hf, ids[at % len(ids)]) for at in range(looks)],
                "list": [await _list_seconds(hf) for _ in range(looks)],
            }


async def _start_seconds(hf: Holdfast, spec: WorkflowSpec) -> float:
    """Only `start`; its run is let to its end before the next."""
    began = time.perf_counter()
    run = await hf.start(spec, {"run": 1})
    took = time.perf_counter() - began
    await run.result()
    return took


async def _get_seconds(hf: Holdfast, run_id: str) -> float:
    began = time.perf_counter()
    await (await hf.run(run_id)).status()
    return time.perf_counter() - began


async def _list_seconds(hf: Holdfast) -> float:
    began = time.perf_counter()
    await hf.runs(limit=LISTED)
    return time.perf_counter() - began


def recovery(folder: Path, scale: Scale) -> list[Measure]:
    """After kill -9 with so many open runs: until the first step begins again, and per run until the last one does."""
    per_run: dict[int, float] = {}
    measures = []
    for count in scale.left_open:
        order = {"db": folder / f"open-{count}.db", "runs": count}
        with Child.doing("hold", **order) as first:
            first.hear()
            first.kill()
        with Child.doing("recover", effects=folder / "effects", **order) as second:
            told = second.hear()
        settings = {"open_runs": count, "since": "the file is opened"}
        per_run[count] = 1e6 * (told["last"] - told["opening"]) / count
        first_ms = 1000 * (told["first"] - told["opening"])
        measures.append(Measure(Kind(f"growth_recovery_first_{count}", "ms"), first_ms, None, settings))
        measures.append(Measure(Kind(f"growth_recovery_{count}", "µs/run"), per_run[count], None, settings))
    few, many = min(per_run), max(per_run)
    grown = Kind("growth_recovery", "µs/run with many", "µs/run with few", SAME)
    return [*measures, Measure(grown, per_run[many], per_run[few], {"few": few, "many": many})]
