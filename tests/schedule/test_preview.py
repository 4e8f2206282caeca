"""What is shown of the occurrences to come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import pytest

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
        Upcoming(ms(datetime(2026, 3, 28, 1, 30, tzinfo=UTC)), "2026-03-28T02:30:00+01:00"),
        Upcoming(ms(datetime(2026, 3, 29, 1, 0, tzinfo=UTC)), "2026-03-29T03:00:00+02:00", note="02:30:00 does not exist on this day: clocks go forward"),
        Upcoming(ms(datetime(2026, 3, 30, 0, 30, tzinfo=UTC)), "2026-03-30T02:30:00+02:00"),
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


def test_occurrences_behind_a_long_exclusion_are_found() -> None:
    timing = Timing(("* * * * * *",), exclude=Exclude(expressions=("* * * * 3-11 *",)))
    assert [one.local[:19] for one in upcoming(timing, START, 1)] == ["2026-12-01T00:00:00"]


def test_what_never_fires_has_nothing_to_come() -> None:
    assert upcoming(Timing(("0 0 0 30 2 *",)), START, 5) == []
    assert upcoming(Timing(("* * * * * *",), exclude=Exclude(expressions=("* * * * * *",))), START, 1) == []


def test_an_interval_is_counted_from_its_registration() -> None:
    assert [one.local for one in upcoming(Timing(("@every 1500ms",)), START, 2)] == [
        "2026-03-28T00:00:01.500+00:00",
        "2026-03-28T00:00:03+00:00",
    ]


@pytest.mark.parametrize(
    ("fold", "notes"),
    [
        ("first", ["02:30:00 comes twice on this day: this is the first time"]),
        ("second", ["02:30:00 comes twice on this day: this is the second time"]),
        (
            "both",
            [
                "02:30:00 comes twice on this day: this is the first time",
                "02:30:00 comes twice on this day: this is the second time",
            ],
        ),
    ],
)
def test_an_occurrence_says_which_of_two_equal_local_times_it_is(
    fold: Literal["first", "second", "both"], notes: list[str]
) -> None:
    timing = Timing(NIGHTLY.expressions, timezone="Europe/Berlin", dst=Dst(fold=fold))
    autumn = ms(datetime(2026, 10, 24, tzinfo=UTC))
    before, *folded, after = upcoming(timing, autumn, len(notes) + 2)
    assert [one.note for one in folded] == notes
    assert (before.note, after.note) == ("", "")
