"""W9: how late a thousand schedules start their runs that are each due every second; a catch-up of very many missed occurrences;
and very many schedules of which none is due.

Each is measured in a process of its own (bench.child), because what counts is its CPU time and its memory too.
"""

from __future__ import annotations

import statistics
from collections import Counter
from pathlib import Path
from typing import Final

from bench.figures import Goal, Kind, Measure, quantile
from bench.limits import commit_p50_ms
from bench.processes import Child
from bench.scale import Scale

LATE_P50: Final = Kind("w9_p50", "ms late", "L-commit p50", Goal(value=20), Goal(value=5))
LATE_P99: Final = Kind("w9_p99", "ms late", "L-commit p50", Goal(value=150), Goal(value=40))
WRONG: Final = Kind("w9_missed_or_doubled", "occurrences", None, Goal(value=0))
FIRE_CPU: Final = Kind("w9_cpu", "ms of CPU per fire")
CATCHUP_MORE: Final = Kind("catchup_memory", "MB", None, Goal(value=50))
CATCHUP_CPU: Final = Kind("catchup_cpu", "ms of CPU per fire")
IDLE_CPU: Final = Kind("idle_schedules_cpu", "% of a core", None, Goal(value=1))
IDLE_START: Final = Kind("idle_schedules_start", "s of CPU more", None, Goal(value=0.1))


def due_each_second(folder: Path, scale: Scale) -> list[Measure]:
    """W9: from the time at which an occurrence is due to the first line of its tool."""
    limit_ms = commit_p50_ms(folder, scale)
    effects = folder / "effects"
    order = {
        "db": folder / "w9.db",
        "effects": effects,
        "schedules": scale.schedules,
        "seconds": scale.fire_seconds,
    }
    with Child.doing("fire", **order) as child:
        said = child.hear()
    lines = [line.split() for line in effects.read_text().splitlines()]
    late = [float(lateness) for _, at, lateness in lines if int(at) in _whole(said)]
    found = Counter((name, int(at)) for name, at, _ in lines if int(at) in _whole(said))
    wanted = scale.schedules * len(_whole(said))
    wrong = wanted - len(found) + found.total() - len(found)
    settings = {"schedules": scale.schedules, "seconds": scale.fire_seconds, "fires": found.total()}
    return [
        Measure(LATE_P50, statistics.median(late), limit_ms, settings),
        Measure(LATE_P99, quantile(late, 0.99), limit_ms, settings),
        Measure(WRONG, wrong, None, settings),
        Measure(FIRE_CPU, 1_000 * said["cpu"] / max(len(lines), 1), None, settings),
    ]


def _whole(said: dict[str, int]) -> range:
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
