"""The instants of one rule: a cron expression in a time zone, an interval, or a list of instants.

Knows what a clock change does to an expression (`dst`). Must not know several rules together, exclusions, cursors, or what
a fire starts.

    elapsed expression      matches whatever the local clock shows: nothing in a gap, twice in a fold
    fixed-time expression   gap: run_after fires once, at the first instant after the gap; skip fires not at all
                            fold: first, second or both of the two instants that have the same local time

Every rule answers two questions, in milliseconds since 1970: the first tick after an instant, and the last before one. Both cost a
few steps per field however far away the answer is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from holdfast.schedule.wall import DAY, Wall
from holdfast.schedule.zones import Segment, Zone
from holdfast.spec.cron import YEAR_MAX, Cron, Dst

# The search ends with the last year that an expression can name.
# 32 leap days from 1972 to 2096; 2100 has none
LAST_MS: Final = ((YEAR_MAX + 1 - 1970) * 365 + 32) * DAY * 1_000 - 1


class Tick(NamedTuple):
    """One occurrence. `shifted_from` is the local time in a gap (seconds) that it stands for.

    With `gap: skip` such a time is also a tick, but one that does not fire. Its instant is a millisecond before the
    gap ends, so that it differs from a regular tick at the first instant after the gap.
    """

    at: int
    shifted_from: int | None = None
    fires: bool = True


class Stretch(NamedTuple):
    """So many ticks that follow each other, the last at an instant."""

    ticks: int
    until: int


NOTHING: Final = Stretch(0, 0)


class Rule(Protocol):
    def after(self, instant: int) -> Tick | None:
        """The first tick after an instant."""

    def before(self, instant: int) -> Tick | None:
        """The last tick before an instant."""

    def stretch(self, after: int, until: int) -> Stretch:
        """Ticks that all fire, the first after an instant up to another, without looking at each. There may be more of them."""


class CronRule:
    __slots__ = ("_dst", "_wall", "_zone")

    def __init__(self, cron: Cron, zone: Zone, dst: Dst) -> None:
        self._wall, self._zone = Wall(cron), zone
        self._dst = None if cron.is_elapsed else dst

    def after(self, instant: int) -> Tick | None:
        if instant >= LAST_MS:
            return None
        second = max(instant, -1) // 1_000 + 1  # the first whole second after it
        segment = self._zone.segment_at(second)
        if segment.start == second:  # a skipped tick stands a millisecond before it
            segment = self._zone.segment_at(second - 1)
        while True:
            for tick in self._forward(segment, second):
                if tick.at > instant:
                    return tick if tick.at <= LAST_MS else None
            following = self._following(segment, second)
            if following is None:
                return None
            segment = following

    def before(self, instant: int) -> Tick | None:
        second = -(min(instant, LAST_MS + 1) // -1_000) - 1  # the last whole second before it
        if second < 0:
            return None
        segment = self._zone.segment_at(second + 1)
        while True:
            for tick in self._backward(segment, second):
                if tick.at < instant:
                    return tick
            preceding = self._preceding(segment, second)
            if preceding is None:
                return None
            segment = preceding

    def stretch(self, after: int, until: int) -> Stretch:
        """Ends where clocks change: up to there, local time simply runs."""
        first, last = after // 1_000 + 1, min(until, LAST_MS) // 1_000
        segment = self._zone.segment_at(max(first, 0))
        if first <= segment.start and self._gap_tick(segment) is not None:
            return NOTHING
        low, high = self._window(segment)
        low, high = max(low, first + segment.offset), min(high, last + segment.offset + 1)
        count = self._wall.count(low, high)
        if not count:
            return NOTHING
        found = self._wall.last_until(high - 1)
        assert found is not None
        return Stretch(count, (found - segment.offset) * 1_000)

    def _forward(self, segment: Segment, second: int) -> Iterator[Tick]:
        """The ticks of a segment that can be the first from a second on."""
        if second <= segment.start and (gap := self._gap_tick(segment)) is not None:
            yield gap
        low, high = self._window(segment)
        found = self._wall.first_from(max(low, second + segment.offset))
        if found is not None and found < high:
            yield Tick((found - segment.offset) * 1_000)

    def _backward(self, segment: Segment, second: int) -> Iterator[Tick]:
        low, high = self._window(segment)
        found = self._wall.last_until(min(high - 1, second + segment.offset))
        gap = self._gap_tick(segment)
        if found is not None and found >= low and (gap is None or (found - segment.offset) * 1_000 != gap.at):
            yield Tick((found - segment.offset) * 1_000)
        if gap is not None:
            yield gap

    def _window(self, segment: Segment) -> tuple[int, int]:
        """The local times of a segment in which matches count: all of them, but for the half of a fold that `dst` leaves out."""
        low, high = segment.start + segment.offset, segment.end + segment.offset
        if self._dst is None or self._dst.fold == "both":
            return low, high
        if self._dst.fold == "first":
            return max(low, segment.start + segment.before), high
        return low, min(high, segment.end + segment.after)

    def _gap_tick(self, segment: Segment) -> Tick | None:
        """The tick for the times that do not exist between the segment before and this one."""
        if self._dst is None or segment.offset <= segment.before:
            return None
        found = self._wall.first_from(segment.start + segment.before)
        if found is None or found >= segment.start + segment.offset:
            return None
        if self._dst.gap == "skip":
            return Tick(segment.start * 1_000 - 1, found, fires=False)
        return Tick(segment.start * 1_000, found)

    def _following(self, segment: Segment, second: int) -> Segment | None:
        """The next segment that can have a tick. Those before the next match by local time are passed over."""
        seen = max(second, segment.start) + segment.offset
        following = self._zone.segment_at(segment.end)
        if following.start + following.offset <= seen:
            return following  # a fold: times that are past come once more
        match = self._wall.first_from(seen)
        if match is None:
            return None
        return self._zone.segment_at(max(segment.end, match - 2 * DAY))

    def _preceding(self, segment: Segment, second: int) -> Segment | None:
        seen = min(second, segment.end - 1) + segment.offset
        if segment.start <= 0:
            return None
        preceding = self._zone.segment_at(segment.start - 1)
        if preceding.end + preceding.offset > seen:
            return preceding
        match = self._wall.last_until(seen)
        if match is None:
            return None
        return self._zone.segment_at(min(segment.start - 1, match + 2 * DAY))


class IntervalRule:
    """Instants in equal steps from a first one."""

    __slots__ = ("_every", "_first")

    def __init__(self, every_ms: int, first: int) -> None:
        self._every, self._first = every_ms, first

    def after(self, instant: int) -> Tick | None:
        steps = max((instant - self._first) // self._every + 1, 0)
        at = self._first + steps * self._every
        return Tick(at) if at <= LAST_MS else None

    def before(self, instant: int) -> Tick | None:
        steps = (min(instant, LAST_MS + 1) - self._first - 1) // self._every
        return Tick(self._first + steps * self._every) if steps >= 0 else None

    def stretch(self, after: int, until: int) -> Stretch:
        first, last = self.after(after), self.before(until + 1)
        if first is None or last is None or last.at < first.at:
            return NOTHING
        return Stretch((last.at - first.at) // self._every + 1, last.at)


class InstantsRule:
    """Instants that were listed."""

    __slots__ = ("_instants",)

    def __init__(self, instants: tuple[int, ...]) -> None:
        self._instants = sorted(set(instants))

    def after(self, instant: int) -> Tick | None:
        index = bisect_right(self._instants, instant)
        return Tick(self._instants[index]) if index < len(self._instants) else None

    def before(self, instant: int) -> Tick | None:
        index = bisect_left(self._instants, instant)
        return Tick(self._instants[index - 1]) if index else None

    def stretch(self, after: int, until: int) -> Stretch:
        first, end = bisect_right(self._instants, after), bisect_right(self._instants, until)
        return Stretch(end - first, self._instants[end - 1]) if first < end else NOTHING
