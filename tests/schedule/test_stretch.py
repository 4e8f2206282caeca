"""Stretches of occurrences are counted as if each were looked at."""

from __future__ import annotations

import random

import pytest

from holdfast.schedule.cron import NOTHING
from holdfast.schedule.timing import Grid, Timing, grid_of
from holdfast.schedule.zones import zone
from holdfast.spec.cron import Dst
from holdfast.spec.moments import parse_moment
from holdfast.spec.triggers import Exclude

DAY = 86_400_000
ZONES = ("Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "UTC")
EXPRESSIONS = (
    "* * * * * *",
    "0 */7 * * * *",
    "0 30 2 * * *",
    "0 15,45 0-3 * * MON-FRI",
    "30 0 0 1 * *",
    "0 0 2 29 2 *",
    "*/20 59 23 31 12 * 2011-2030",
    "0 0 0 13 * FRI",
)
SPANS = {"* * * * * *": (1_200_000,), "0 */7 * * * *": (DAY, 5 * DAY)}


def changes(name: str) -> list[int]:
    """When the offset of a zone changed from 2010 to 2030; for UTC, the beginning of a year."""
    found, at = [], 1_262_304_000
    while at < 1_900_000_000:
        segment = zone(name).segment_at(at)
        if segment.before != segment.offset or name == "UTC":
            found.append(segment.start)
        at = segment.end
    return found


def walked(grid: Grid, after: int, until: int) -> tuple[int, int, bool]:
    """How many ticks there are, the last one, and whether all of them fire."""
    count, last, all_fire = 0, 0, True
    while (tick := grid.after(after)) is not None and tick.at <= until:
        count, last, after = count + 1, tick.at, tick.at
        all_fire &= tick.fires and tick.shifted_from is None
    return count, last, all_fire


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_stretch_has_the_ticks_that_a_walk_finds(expression: str) -> None:
    rng = random.Random(expression)
    found = 0
    for _ in range(60):
        name = rng.choice(ZONES)
        change = rng.choice(changes(name))
        dst = Dst(rng.choice(("run_after", "skip")), rng.choice(("first", "second", "both")))
        grid = grid_of(Timing((expression,), timezone=name, dst=dst), 0)
        span = rng.choice(SPANS.get(expression, (DAY, 40 * DAY, 800 * DAY)))
        after = 1_000 * change + rng.randrange(-span, span // 8)
        stretch = grid.stretch(after, after + span)
        if stretch is NOTHING:
            continue
        found += 1
        assert stretch.until <= after + span
        assert walked(grid, after, stretch.until) == (stretch.ticks, stretch.until, True)
    assert found


def test_a_stretch_ends_where_clocks_change() -> None:
    grid = grid_of(Timing(("* * * * * *",), timezone="Europe/Berlin"), 0)
    for change in changes("Europe/Berlin"):
        assert grid.stretch(1_000 * change - 10_001, 1_000 * change + 10_000) == (10, 1_000 * change - 1_000)


def test_stretches_of_intervals_and_instants_are_counted() -> None:
    every = grid_of(Timing(("7s",)), 1_000)
    assert every.stretch(1_000, 100_000) == (14, 99_000)
    assert every.stretch(99_000, 105_999) == NOTHING
    listed = grid_of(Timing(instants=(10, 20, 30, 40)), 0)
    assert listed.stretch(10, 39) == (2, 30)


def test_where_ticks_may_be_excluded_or_meet_nothing_is_counted() -> None:
    moment = parse_moment("2026-12-24")
    assert moment is not None
    excluded = Timing(("* * * * * *",), exclude=Exclude(dates=(moment,)))
    for timing in (excluded, Timing(("* * * * * *", "*/2 * * * * *"))):
        assert grid_of(timing, 0).stretch(0, DAY) is NOTHING


def test_a_stretch_keeps_to_the_bounds_of_a_schedule() -> None:
    timing = Timing(
        ("* * * * * *",),
        start_at=parse_moment("2026-01-01T00:00:10Z"),
        end_at=parse_moment("2026-01-01T00:00:20Z"),
    )
    start = 1_767_225_600_000
    grid = grid_of(timing, 0)
    assert grid.stretch(start, start + DAY) is NOTHING  # it begins before the first occurrence
    assert grid.stretch(start + 10_000, start + DAY) == (10, start + 20_000)
