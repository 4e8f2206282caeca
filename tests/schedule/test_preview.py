"""What is shown of the occurrences to come."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.schedule.preview import Upcoming, upcoming
from holdfast.schedule.timing import Timing
from holdfast.spec.cron import Dst
from holdfast.spec.moments import parse_moment
from holdfast.spec.triggers import Exclude
from tests.schedule.oracle import ms

START = ms(datetime(2026, 3, 28, tzinfo=UTC))
NIGHTLY = Timing(("0 30 2 * * *",), timezone="Europe/Berlin")


def test_occurrences_have_their_local_time_and_what_a_clock_change_does() -> None:
    assert upcoming(NIGHTLY, START, 3) == [
        Upcoming("2026-03-28T01:30:00.000Z", "2026-03-28T02:30:00+01:00"),
        Upcoming("2026-03-29T01:00:00.000Z", "2026-03-29T03:00:00+02:00", note="02:30:00 does not exist on this day: clocks go forward"),
        Upcoming("2026-03-30T00:30:00.000Z", "2026-03-30T02:30:00+02:00"),
    ]  # fmt: skip


def test_a_time_that_is_skipped_is_shown_as_such() -> None:
    timing = Timing(NIGHTLY.expressions, timezone="Europe/Berlin", dst=Dst(gap="skip"))
    _, gap, _ = upcoming(timing, START, 3)
    assert (gap.fires, gap.note) == (False, "skipped: 02:30:00 does not exist on this day")


def test_excluded_occurrences_are_left_out() -> None:
    day = parse_moment("2026-03-29")
    assert day is not None
    timing = Timing(NIGHTLY.expressions, timezone="Europe/Berlin", exclude=Exclude(dates=(day,)))
    assert [one.local[:10] for one in upcoming(timing, START, 2)] == ["2026-03-28", "2026-03-30"]


def test_what_never_fires_has_nothing_to_come() -> None:
    assert upcoming(Timing(("0 0 0 30 2 *",)), START, 5) == []
    assert upcoming(Timing(("* * * * * *",), exclude=Exclude(expressions=("* * * * * *",))), START, 1) == []


def test_an_interval_is_counted_from_its_registration() -> None:
    assert [one.local for one in upcoming(Timing(("@every 1500ms",)), START, 2)] == [
        "2026-03-28T00:00:01.500+00:00",
        "2026-03-28T00:00:03+00:00",
    ]
