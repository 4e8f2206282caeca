"""A time zone as stretches of constant offset, in which local time simply runs.

    ──────────── +1 h ────────────┬──────────── +2 h ────────────┬──────────── +1 h ───────
                          gap: 02:00-03:00               fold: 02:00-03:00
                          does not exist                 happens twice

`zoneinfo` tells offsets, not transitions, so those are found by comparing the offsets of neighbouring days and halving the
day in which they differ. Two transitions have never been, and in no rule are, less than six days apart. Instants are seconds.
"""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

from holdfast.spec.zones import zone_info

_PROBE: Final = 86_400


class Segment(NamedTuple):
    """Instants from `start` up to but not including `end`, where local time is the instant plus `offset`.

    `before` and `after` are the offsets of its neighbours. A segment also ends with the year, where nothing changes.
    """

    start: int
    end: int
    offset: int
    before: int
    after: int


class Zone:
    """A time zone. Segments are found a year at a time, and kept."""

    __slots__ = ("_recent", "_years", "_zone", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._zone = zone_info(name)
        self._years: dict[int, tuple[list[int], list[Segment]]] = {}
        self._recent = self.segment_at(0)

    def segment_at(self, instant: int) -> Segment:
        if self._years and self._recent.start <= instant < self._recent.end:
            return self._recent  # most questions are about now
        year = (_EPOCH + timedelta(seconds=instant)).year
        starts, segments = self._years.get(year) or self._find(year)
        self._recent = segments[bisect_right(starts, instant) - 1]
        return self._recent

    def local(self, instant: int) -> int:
        return instant + self.segment_at(instant).offset

    def first_instant_of(self, local: int) -> int:
        """The first instant at which local time has reached `local`; in a gap, the instant after it."""
        segment = self.segment_at(local - 2 * _PROBE)
        while segment.end + segment.offset <= local:
            segment = self.segment_at(segment.end)
        return max(local - segment.offset, segment.start)

    def _find(self, year: int) -> tuple[list[int], list[Segment]]:
        first, end = _year_start(year), _year_start(year + 1)
        starts = [first, *self._transitions(first, end)]
        offsets = [self._offset(start) for start in starts]
        ends = [*starts[1:], end]
        befores = [self._offset(start - 1) for start in starts]
        afters = [self._offset(end) for end in ends]
        segments = [Segment(*parts) for parts in zip(starts, ends, offsets, befores, afters, strict=True)]
        self._years[year] = starts, segments
        return starts, segments

    def _transitions(self, start: int, end: int) -> list[int]:
        found = []
        offset = self._offset(start)
        for day in range(start, end, _PROBE):
            following = self._offset(min(day + _PROBE, end - 1))
            if following != offset:
                found.append(self._transition(day, min(day + _PROBE, end - 1)))
            offset = following
        return found

    def _transition(self, low: int, high: int) -> int:
        """The first instant after `low` that has another offset."""
        offset = self._offset(low)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._offset(middle) == offset else (low, middle)
        return high

    def _offset(self, instant: int) -> int:
        at = (_EPOCH + timedelta(seconds=instant)).astimezone(self._zone)
        return round((at.utcoffset() or timedelta()).total_seconds())


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _year_start(year: int) -> int:
    return round((datetime(year, 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())


@lru_cache(maxsize=1_024)  # there are about 600
def zone(name: str) -> Zone:
    return Zone(name)
