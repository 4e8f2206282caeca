"""Grids: several rules together, bounds, and what is excluded."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.schedule.control import registered
from holdfast.schedule.due import due
from holdfast.schedule.records import Outage, Running, Schedule
from holdfast.schedule.timing import Calendar, Grid, Timing, grid_of
from holdfast.schedule.zones import zone
from holdfast.spec.moments import Moment, parse_moment
from holdfast.spec.triggers import Between, Exclude
from tests.schedule.oracle import backward, forward, ms, utc


def moment(text: str) -> Moment:
    found = parse_moment(text)
    assert found is not None
    return found


def between(start: str, end: str) -> Exclude:
    return Exclude(between=(Between(moment(start), moment(end)),))


def grid(*expressions: str, timezone: str = "Europe/Berlin", exclude: Exclude | None = None, start: str = "", end: str = "") -> Grid:  # fmt: skip
    bounds = (moment(start) if start else None, moment(end) if end else None)
    return grid_of(
        Timing(expressions, (), timezone, exclude=exclude or Exclude(), start_at=bounds[0], end_at=bounds[1]),
        0,
    )


def at(text: str) -> int:
    return ms(datetime.fromisoformat(text).replace(tzinfo=UTC))


def fires(of: Grid, start: str, end: str) -> list[str]:
    found, tick = [], of.fire_after(at(start) - 1)
    while tick is not None and tick.at < at(end):
        found.append(f"{utc(tick.at):%dT%H:%M}")
        tick = of.fire_after(tick.at)
    return found


def test_several_expressions_are_a_union() -> None:
    both = grid("0 0 9 * * *", "0 0 */12 * * *", timezone="UTC")
    assert fires(both, "2026-01-01T00:00", "2026-01-02T00:00") == ["01T00:00", "01T09:00", "01T12:00"]


def test_a_shifted_time_and_a_regular_one_of_another_rule_are_one() -> None:
    both = grid("0 30 2 * * *", "0 0 3 * * *")
    ticks = list(forward(both, at("2026-03-29T00:00"), at("2026-03-29T12:00")))
    assert [(utc(tick.at).hour, tick.shifted_from is not None) for tick in ticks] == [(1, True)]
    assert list(backward(both, at("2026-03-29T00:00"), at("2026-03-29T12:00"))) == ticks


def test_an_excluded_date_is_a_local_day() -> None:
    days = Exclude(dates=(moment("2026-03-29"),))  # 23 hours long: 23:00 UTC to 22:00 UTC
    assert fires(grid("0 0 */6 * * *", exclude=days), "2026-03-28T12:00", "2026-03-30T12:00") == [
        "28T17:00",
        "29T22:00",
        "30T04:00",
        "30T10:00",
    ]


@pytest.mark.parametrize(
    ("start", "end", "left"),
    [
        ("2026-01-01T10:00", "2026-01-01T12:00", [9, 12]),  # local: the end is not excluded
        ("2026-01-01T09:00Z", "2026-01-01T11:00Z", [9, 12]),
        ("2026-01-01", "2026-01-01", []),  # a date at the end is meant whole
        ("2025-12-31", "2026-01-01T10:30", [11, 12]),
    ],
)
def test_a_stretch_is_excluded_up_to_its_end(start: str, end: str, left: list[int]) -> None:
    hours = fires(grid("0 0 9-12 * * *", exclude=between(start, end)), "2026-01-01T00:00", "2026-01-01T23:00")
    assert [int(hour[3:5]) + 1 for hour in hours] == left


def test_stretches_that_overlap_are_one() -> None:
    exclude = Exclude(
        between=(
            Between(moment("2026-01-01T08:00"), moment("2026-01-01T11:00")),
            Between(moment("2026-01-01T09:00"), moment("2026-01-01T10:00")),
            Between(moment("2026-01-01T11:00"), moment("2026-01-01T12:00")),
        )
    )
    assert fires(grid("0 0 7-12 * * *", exclude=exclude), "2026-01-01T00:00", "2026-01-01T23:00") == [
        "01T06:00",
        "01T11:00",
    ]


def test_an_expression_excludes_whenever_the_clock_matches() -> None:
    exclude = Exclude(expressions=("* * 12-13 * * *",))
    assert fires(grid("0 30 11-14 * * *", exclude=exclude), "2026-01-01T00:00", "2026-01-01T23:00") == [
        "01T10:30",
        "01T13:30",
    ]


def test_bounds_are_part_of_the_grid() -> None:
    bounded = grid("0 0 * * * *", start="2026-01-01T10:00", end="2026-01-01T12:00")
    assert fires(bounded, "2026-01-01T00:00", "2026-01-03T00:00") == ["01T09:00", "01T10:00", "01T11:00"]
    last = bounded.before(at("2027-01-01T00:00"))
    assert last is not None and utc(last.at).hour == 11
    assert bounded.before(at("2026-01-01T09:00")) is None


def test_an_end_that_is_a_date_is_meant_whole() -> None:
    bounded = grid("0 0 */8 * * *", end="2026-01-01")
    assert fires(bounded, "2026-01-01T00:00", "2026-01-03T00:00") == ["01T07:00", "01T15:00"]


def test_the_search_stops_for_now_in_an_exclusion_that_never_ends() -> None:
    halves = Exclude(expressions=("0/2 * * * * *", "1/2 * * * * *"))
    everything = grid("* * * * * *", exclude=halves)
    start = at("2026-01-01T00:00")
    tick = everything.fire_after(start)
    assert tick is not None and start < tick.at < start + 3_600_000


@pytest.mark.parametrize(
    ("expression", "start", "until"),
    [
        ("* * * 25 10 *", "2026-10-24T22:00", "2026-10-25T23:00"),  # clocks go back: the day has 25 hours
        (
            "* * 1-2 25 10 *",
            "2026-10-24T23:00",
            "2026-10-25T02:00",
        ),  # 02:00 comes twice, and is excluded twice
        ("* * 1-3 29 3 *", "2026-03-29T00:00", "2026-03-29T02:00"),  # 02:00 does not exist
        ("* 59 23 24 10 *", "2026-10-24T21:59", "2026-10-24T22:00"),
    ],
)
def test_a_stretch_of_an_excluding_expression_is_passed_over_in_few_steps(
    expression: str, start: str, until: str
) -> None:
    calendar = Calendar(Exclude(expressions=(expression,)), zone("Europe/Berlin"))
    assert calendar.excluded_until(at(start) - 1) is None
    instant, steps = at(start), 0
    while (end := calendar.excluded_until(instant)) is not None:
        instant, steps = end, steps + 1
    assert utc(instant) == utc(at(until)) and steps <= 3


def test_a_long_exclusion_is_passed_over_at_once() -> None:
    years = grid("* * * * * *", exclude=between("2026-01-01", "2035-12-31"))
    tick = years.fire_after(at("2026-06-01T00:00"))
    assert tick is not None and utc(tick.at) == datetime(2035, 12, 31, 23, tzinfo=UTC)


@given(
    st.lists(
        st.sampled_from(["0 30 2 * * *", "0 0 */7 * * *", "@every 97m", "0 15,45 1-3 * * SUN"]),
        min_size=1,
        max_size=3,
    ),
    st.integers(at("2026-03-01T00:00"), at("2026-04-30T00:00")),
)
def test_the_grid_is_the_same_in_both_directions(expressions: list[str], start: int) -> None:
    both = grid(*expressions)
    end = start + 5 * 86_400_000
    assert list(backward(both, start, end)) == list(forward(both, start, end))[::-1]


def test_catching_up_a_million_missed_occurrences_takes_no_memory() -> None:
    start = at("2026-01-01T00:00")
    woke = start + 1_000_000_000
    plan = Schedule("s", Timing(("* * * * * *",)), missed_run_policy="run_all", max_catchup=0)
    cursor, fired, last = registered(start), 0, start
    tracemalloc.start()
    for _ in range(3_000):  # of a million; each run ends at once
        answer = due(plan, cursor, Running(), woke, outages=(Outage(start, woke),))
        for fire in answer.fires:
            assert fire.at == last + 1_000
            last, fired = fire.at, fired + 1
        cursor = answer.cursor
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fired == 3_000 and len(cursor.missed) == 1 and peak < 1_000_000


@pytest.mark.parametrize(
    ("text", "is_local", "is_date"),
    [
        ("2026-12-24", True, True),
        ("2026-12-24T18:00", True, False),
        ("2026-12-24 18:00:05.250", True, False),
        ("2026-12-24T18:00:00Z", False, False),
        ("2026-12-24T18:00:00+05:30", False, False),
    ],
)
def test_a_moment_is_a_date_a_local_time_or_an_instant(text: str, is_local: bool, is_date: bool) -> None:
    found = moment(text)
    assert (found.is_local, found.is_date) == (is_local, is_date)
    written = datetime.fromisoformat(text)
    assert found.ms == ms(written if written.tzinfo else written.replace(tzinfo=UTC))


@pytest.mark.parametrize(
    "text",
    ["", "2026", "24.12.2026", "2026-13-01", "2026-02-30", "2026-W01-1", "20261224T1800", "2026-12-24T25:00", "1969-01-01", "2101-01-01", "18:00", "2026-12-24T18"],
)  # fmt: skip
def test_any_other_text_is_not_a_moment(text: str) -> None:
    assert parse_moment(text) is None
