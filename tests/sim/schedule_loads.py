"""Schedules by chance: grids of a common pace, in zones whose clocks change within the hour, and every policy."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.sim.schedule_grids import Shape, ms

WORK: Final = {
    "name": "work",
    "inputs": {"x": {}},
    "steps": [{"id": "a", "tool": "t0", "args": {"x": "{{inputs.x}}"}}],
}
AFTER: Final = {**WORK, "name": "after"}

# By the seconds between two occurrences: expressions that follow real time, and those that name times of day.
ELAPSED: Final = {
    1: ("* * * * * *", "*/2 * * * * *"),
    10: ("*/10 * * * * *", "*/15 * * * * *", "5/20 * * * * *"),
    60: ("0 * * * * *", "30 */2 * * * *"),
    600: ("0 */10 * * * *", "0 */15 * * * *"),
}
FIXED: Final = {
    1: ("0-59 0-59 0-23 * * *",),
    10: ("0,10,20,30,40,50 0-59 0-23 * * *",),
    60: ("0 0-59 0-23 * * *", "15 0-59 1-3 * * *"),
    600: ("0 0,15,30,45 0-23 * * *", "0 0,30 1,2,3 * * *"),
}
PACES: Final = tuple(ELAPSED)
# A zone, and a time shortly before its clocks change: forward, back, by half an hour, and a zone where they never do.
BEGINNINGS: Final = (
    ("Europe/Berlin", "2024-03-31T00:50"),
    ("Europe/Berlin", "2024-10-26T23:50"),
    ("America/New_York", "2024-11-03T04:50"),
    ("Australia/Lord_Howe", "2024-10-05T15:20"),
    ("UTC", "2024-02-29T23:40"),
)
OVERLAPS: Final = ("skip", "skip", "buffer_one", "buffer_all", "cancel_previous", "allow")
STATUSES: Final = ["completed", "failed", "cancelled"]


def beginning(rng: random.Random) -> tuple[str, int]:
    zone, text = rng.choice(BEGINNINGS)
    at = datetime.fromisoformat(text).replace(tzinfo=UTC) + timedelta(seconds=rng.randrange(600))
    return zone, ms(at) + rng.randrange(1_000)


def some_shape(rng: random.Random, pace: int, zone: str, now: int) -> Shape:
    drawn = rng.random()
    if drawn < 0.1:
        return Shape(every_ms=pace * 1_000 + rng.choice((0, 0, 1, 100)))
    if drawn < 0.15:
        return Shape(instants=tuple(sorted(now + rng.randrange(pace * 100_000) for _ in range(20))))
    table = FIXED if rng.random() < 0.5 else ELAPSED
    expressions = rng.sample(table[pace], rng.randint(1, len(table[pace])))
    if rng.random() < 0.2:
        expressions.append(rng.choice((*FIXED[pace], *ELAPSED[pace])))
    return Shape(
        tuple(dict.fromkeys(expressions)),
        zone if rng.random() < 0.8 else "UTC",
        rng.choice(("run_after", "skip")),
        rng.choice(("first", "second", "both")),
        excluded=rng.choice(((), (), (0,), tuple(range(10, 20)), (0, 15, 30, 45))),
    )


def some_fields(rng: random.Random, pace: int) -> dict[str, Any]:
    """All of a clock's schedule but when it is due."""
    overlap = rng.choice(OVERLAPS)
    return {
        "workflow": "work",
        "inputs": {"x": "{{trigger.scheduled_at}}"},
        "overlap": overlap,
        "max_concurrent": 0 if overlap == "allow" else rng.choice((1, 1, 1, 2, 3, 0)),
        "missed_run_policy": rng.choice(("skip", "run_once", "run_all", "run_all")),
        "max_catchup": rng.choice((0, 3, 20, 1_000)),
        "grace_secs": rng.choice((0, pace // 2, pace * 5)),
        "pause_after_failures": rng.choice((0, 0, 0, 3)),
    }


def jittered(rng: random.Random, trigger: dict[str, Any], pace: int) -> dict[str, Any]:
    return {**trigger, "jitter_secs": rng.choice((0, 0, 0, max(pace // 3, 1), pace * 3))}


def event_fields(rng: random.Random, kind: str) -> dict[str, Any]:
    triggers: dict[str, dict[str, Any]] = {
        "webhook": {"kind": "webhook", "path": "/in"},
        "run": {"kind": "run", "workflow": "work", "statuses": STATUSES, "delay_secs": rng.choice((0, 0, 5))},
        "source": {"kind": "source", "source": "tests.sim.schedule_outside:events"},
        "file": {
            "kind": "file",
            "path": "/in",
            "stable_secs": rng.choice((0, 5)),
            "identity": rng.choice(("path_size_time", "content")),
        },
    }
    overlap = rng.choice(OVERLAPS)
    return {
        "id": kind,
        "workflow": "after",
        "inputs": {"x": "{{trigger.payload}}"},
        "overlap": overlap,
        "max_concurrent": 0 if overlap == "allow" else rng.choice((0, 1, 1, 2)),
        "trigger": triggers[kind],
    }
