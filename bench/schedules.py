"""W9: how late a thousand schedules start their runs that are each due every second; a catch-up of very many missed occurrences;
and very many schedules of which none is due.

Each is measured in a process of its own (bench.child), because what counts is its CPU time and its memory too.
"""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Any, Final

from bench.figures import Goal, Kind, Measure, quantile
from bench.limits import commit_p50_ms
from bench.processes import Child
from bench.scale import Scale

LATE_P50: Final = Kind("w9_p50", "ms late", "L-commit p50", Goal(value=20), Goal(value=5))
LATE_P99: Final = Kind("w9_p99", "ms late", "L-commit p50", Goal(value=150), Goal(value=40))
WRONG: Final = Kind("w9_missed_or_doubled", "occurrences", None, Goal(value=0))
FIRE_CPU: Final = Kind("w9_cpu", "ms of CPU per fire")
BESIDE_P50: Final = Kind("w9_beside_w1_p50", "ms late", "L-commit p50", Goal(value=20), Goal(value=5))
BESIDE_P99: Final = Kind("w9_beside_w1_p99", "ms late", "L-commit p50", Goal(value=150), Goal(value=40))
BESIDE_WRONG: Final = Kind("w9_beside_w1_missed_or_doubled", "occurrences", None, Goal(value=0))
CATCHUP_MORE: Final = Kind("catchup_memory", "MB", None, Goal(value=50))
CATCHUP_CPU: Final = Kind("catchup_cpu", "ms of CPU per fire")
IDLE_CPU: Final = Kind("idle_schedules_cpu", "% of a core", None, Goal(value=1))
IDLE_START: Final = Kind("idle_schedules_start", "s of CPU more", None, Goal(value=0.1))


def due_each_second(folder: Path, scale: Scale) -> list[Measure]:
    """W9: from the time at which an occurrence is due to the first line of its tool."""
    limit_ms = commit_p50_ms(folder, scale)
    said, late, wrong, fires = _fired(folder, scale, load_runs=0)
    settings = {"schedules": scale.schedules, "seconds": scale.fire_seconds, "fires": len(late)}
    return [
        Measure(LATE_P50, statistics.median(late), limit_ms, settings),
        Measure(LATE_P99, quantile(late, 0.99), limit_ms, settings),
        Measure(WRONG, wrong, None, settings),
        Measure(FIRE_CPU, 1_000 * said["cpu"] / max(fires, 1), None, settings),
    ]


def due_beside_runs(folder: Path, scale: Scale) -> list[Measure]:
    """W9 while runs of W1 are started at half the rate that the process reaches alone."""
    limit_ms = commit_p50_ms(folder, scale)
    said, late, wrong, _ = _fired(folder, scale, load_runs=scale.runs)
    settings = {
        "schedules": scale.schedules,
        "seconds": scale.fire_seconds,
        "fires": len(late),
        "steps_per_second": round(said["load"]),
    }
    return [
        Measure(BESIDE_P50, statistics.median(late), limit_ms, settings),
        Measure(BESIDE_P99, quantile(late, 0.99), limit_ms, settings),
        Measure(BESIDE_WRONG, wrong, None, settings),
    ]


def _fired(folder: Path, scale: Scale, *, load_runs: int) -> tuple[dict[str, Any], list[float], int, int]:
    """What the process said; how late the occurrences began; how many were missed or doubled; and how many began in all."""
    effects = folder / "effects"
    order = {
        "db": folder / "w9.db",
        "effects": effects,
        "schedules": scale.schedules,
        "seconds": scale.fire_seconds,
        "load_runs": load_runs,
        "load_steps": scale.steps,
    }
    with Child.doing("fire", **order) as child:
        said = child.hear()
    lines = [line.split() for line in effects.read_text().splitlines()]
    whole = [(name, int(at), float(late)) for name, at, late in lines if int(at) in _whole(said)]
    found = Counter((name, at) for name, at, _ in whole)
    wanted = scale.schedules * len(_whole(said))
    wrong = wanted - len(found) + found.total() - len(found)
    return said, [late for *_, late in whole], wrong, len(lines)


def _whole(said: dict[str, Any]) -> range:
    """The seconds in which all schedules were stored and the process was there to the end."""
    return range(said["first_ms"], said["last_ms"] + 1, 1_000)


def catching_up(folder: Path, scale: Scale) -> list[Measure]:
    """A schedule with `run_all` and without a limit whose occurrences were missed for very long: its memory grows with none of
    them, and they start in order."""
    effects = folder / "effects"
    with Child.doing(
        "catch_up", db=folder / "catchup.db", effects=effects, missed=scale.missed, fires=scale.caught_up
    ) as child:
        said = child.hear()
    started = [int(line.split()[1]) for line in effects.read_text().splitlines()]
    if started != sorted(set(started)) or len(started) < scale.caught_up:
        raise RuntimeError("missed occurrences were not caught up once each, in order")
    settings = {"missed": scale.missed, "caught_up": len(started)}
    return [
        Measure(CATCHUP_MORE, said["rss_after"] - said["rss_before"], None, settings),
        Measure(CATCHUP_CPU, 1_000 * said["cpu"] / len(started), None, settings),
    ]


def idle(folder: Path, scale: Scale) -> list[Measure]:
    """Very many schedules of which none is due: what they add to the start of a process, and what it does while it waits."""
    empty, full = folder / "empty.db", folder / "full.db"
    for db, count in ((empty, 0), (full, scale.idle_schedules)):
        with Child.doing("store_schedules", db=db, schedules=count) as child:
            child.hear()
    opened = {}
    for db in (empty, full):
        with Child.doing("stay_idle", db=db, seconds=scale.idle_seconds) as child:
            opened[db] = child.hear()
    settings = {"schedules": scale.idle_schedules, "seconds": scale.idle_seconds}
    return [
        Measure(IDLE_CPU, 100 * opened[full]["idle_cpu"] / scale.idle_seconds, None, settings),
        Measure(IDLE_START, opened[full]["start_cpu"] - opened[empty]["start_cpu"], None, settings),
    ]
