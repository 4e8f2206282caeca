"""Instants as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.values import Millis, rfc3339

DAY_MS = 86_400_000
LAST_MS = 253_402_300_799_999  # of the year 9999


@pytest.mark.parametrize(
    "at", [0, 1, 999, DAY_MS - 1, DAY_MS, -1, -DAY_MS, 951_782_399_999, 1_709_164_800_123, LAST_MS]
)
def test_an_instant_is_written_as_the_calendar_has_it(at: int) -> None:
    same = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
    assert rfc3339(Millis(at)) == same.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_there_is_no_instant_after_the_year_9999() -> None:
    with pytest.raises(ValueError):
        rfc3339(Millis(LAST_MS + 1))
