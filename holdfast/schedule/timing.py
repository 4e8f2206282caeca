"""When a schedule is due, regardless of its history: its rules together, its bounds, and its exclusions.

    rules ──union──► ticks ──bounds──► ticks of the grid ──calendar──► excluded or not

Knows nothing of cursors, runs or policies. A grid is built from a `Timing` once and kept, so that a schedule that is due costs no
parsing.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import Final

import msgspec

from holdfast.schedule.cron import LAST_MS, NOTHING, CronRule, InstantsRule, IntervalRule, Rule, Stretch, Tick
from holdfast.schedule.wall import DAY, Wall
from holdfast.schedule.zones import Zone, zone
from holdfast.spec.cron import Cron, Dst, Interval, parse_expression
from holdfast.spec.moments import Moment
from holdfast.spec.triggers import Exclude

# The most excluded ticks that are skipped in search of the next fire. Then the search stops, and continues when that
# tick is due.
_PASSED_MAX: Final = 1_000
_CHEAP_EXPRESSIONS: Final = 8  # more than these, of a schedule and its exclusions, make each tick dearer
# Answers that a grid keeps. Each is asked for twice, to decide on and as the next time, and by all schedules that share the grid.
_RECENT_MAX: Final = 4


class Timing(msgspec.Struct, frozen=True, cache_hash=True, omit_defaults=True):
    """What determines the grid of a schedule. Two schedules with equal timing have the same occurrences."""

    expressions: tuple[str, ...] = ()
    instants: tuple[int, ...] = ()
    timezone: str = "UTC"
    dst: Dst = Dst()
    exclude: Exclude = Exclude()
    start_at: Moment | None = None
    end_at: Moment | None = None


def grid_of(timing: Timing, registered_at: int) -> Grid:
    """The grid of a schedule. Intervals begin at `start_at`, or else one interval after the schedule was registered."""
    # Schedules with the same cron expression share a grid and what it remembers, whenever they were registered.
    return _grid(timing, registered_at if _depends_on_registration(timing) else 0)


@lru_cache(maxsize=4_096)
def _grid(timing: Timing, registered_at: int) -> Grid:
    return Grid(timing, zone(timing.timezone), registered_at)


@lru_cache(maxsize=4_096)
def _depends_on_registration(timing: Timing) -> bool:
    expressions = map(parse_expression, timing.expressions)
    return timing.start_at is None and any(isinstance(one, Interval) for one in expressions)


class Grid:
    __slots__ = ("_calendar", "_first", "_last", "_recent", "_rules", "cost")

    def __init__(self, timing: Timing, at_home: Zone, registered_at: int) -> None:
        self._first = 0 if timing.start_at is None else _start_of(timing.start_at, at_home)
        self._last = LAST_MS if timing.end_at is None else _end_of(timing.end_at, at_home)
        self._calendar = Calendar(timing.exclude, at_home)
        rules: list[Rule] = [InstantsRule(timing.instants)] if timing.instants else []
        for expression in map(parse_expression, timing.expressions):
            if isinstance(expression, Cron):
                rules.append(CronRule(expression, at_home, timing.dst))
            else:
                rules.append(self._interval(expression, timing, registered_at))
        self._rules = rules
        # What it costs to examine one tick, by that of a grid with few expressions: each of them is asked about each tick.
        self.cost = 1 + (len(rules) + self._calendar.expressions) // _CHEAP_EXPRESSIONS
        self._recent: dict[int, Tick | None] = {}

    def _interval(self, interval: Interval, timing: Timing, registered_at: int) -> IntervalRule:
        first = self._first if timing.start_at else registered_at + interval.every_ms
        return IntervalRule(interval.every_ms, first)

    def after(self, instant: int) -> Tick | None:
        """The first tick after an instant, excluded or not."""
        recent = self._recent
        if instant not in recent:
            tick = self._first_after(max(instant, self._first - 1))
            if len(recent) >= _RECENT_MAX:
                del recent[next(iter(recent))]
            recent[instant] = tick if tick is not None and tick.at <= self._last else None
        return recent[instant]

    def _first_after(self, instant: int) -> Tick | None:
        best: Tick | None = None
        for rule in self._rules:
            tick = rule.after(instant)
            if tick is not None and (best is None or _sooner(tick, best)):
                best = tick
        return best

    def before(self, instant: int) -> Tick | None:
        """The last tick before an instant, excluded or not."""
        instant = min(instant, self._last + 1)
        ticks = [tick for rule in self._rules if (tick := rule.before(instant)) is not None]
        best = max(ticks, key=lambda tick: (tick.at, tick.shifted_from or -1), default=None)
        return best if best is not None and best.at >= self._first else None

    def stretch(self, after: int, until: int) -> Stretch:
        """Ticks that all fire, the first after an instant up to another, without looking at each. Empty where that is not possible:
        ticks of several rules may meet, and each may be excluded."""
        if until <= after or len(self._rules) != 1 or not self._calendar.is_empty or after < self._first - 1:
            return NOTHING
        return self._rules[0].stretch(after, min(until, self._last))

    def is_excluded(self, tick: Tick) -> bool:
        return self.excluded_until(tick) is not None

    def excluded_until(self, tick: Tick) -> int | None:
        """The first instant after the exclusion that a tick falls into; None if it falls into none."""
        return self._calendar.excluded_until(tick.at)

    def fire_after(self, instant: int) -> Tick | None:
        """The first tick after an instant that fires; or, far into a long exclusion, one to go on from."""
        tick = self.after(instant)
        for _ in range(_PASSED_MAX // self.cost):
            if tick is None:
                return None
            until = self.excluded_until(tick)
            if until is None and tick.fires:
                return tick
            tick = self.after(tick.at if until is None else until - 1)
        return tick

    def fires(self, tick: Tick) -> bool:
        return tick.fires and not self.is_excluded(tick)


def _sooner(tick: Tick, best: Tick) -> bool:
    """Where two rules meet there is one tick, which keeps the local time that one of them had in a gap."""
    return tick.at < best.at or (tick.at == best.at and (tick.shifted_from or -1) > (best.shifted_from or -1))


class Calendar:
    """Exclude made ready for asking."""

    __slots__ = ("_dates", "_ends", "_starts", "_walls", "_zone")

    def __init__(self, exclude: Exclude, at_home: Zone) -> None:
        self._zone = at_home
        self._dates = frozenset(day.ms // (DAY * 1_000) for day in exclude.dates)
        stretches = _merged(
            [
                (_start_of(one.from_, at_home), _end_of(one.to, at_home, is_open=True))
                for one in exclude.between
            ]
        )
        self._starts, self._ends = [start for start, _ in stretches], [end for _, end in stretches]
        crons = (parse_expression(text) for text in exclude.expressions)
        self._walls = [Wall(cron) for cron in crons if isinstance(cron, Cron)]

    @property
    def expressions(self) -> int:
        return len(self._walls)

    @property
    def is_empty(self) -> bool:
        return not (self._starts or self._dates or self._walls)

    def excluded_until(self, instant: int) -> int | None:
        """The end of the exclusion that contains an instant; None if the instant is not excluded."""
        if (
            self._starts
            and (index := bisect_right(self._starts, instant))
            and instant < self._ends[index - 1]
        ):
            return self._ends[index - 1]
        if not self._dates and not self._walls:
            return None
        second = instant // 1_000
        local = self._zone.local(second)
        if local // DAY in self._dates:
            return self._zone.first_instant_of((local // DAY + 1) * DAY) * 1_000
        ends = [end for wall in self._walls if (end := wall.matched_until(local)) is not None]
        if not ends:
            return None
        end = max(ends)
        if end - local > DAY:
            return LAST_MS + 1  # it never ends
        # the stretch is one of local time: it ends with the offset at the latest
        return min(second + end - local, self._zone.segment_at(second).end) * 1_000


def _merged(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Periods in order, with those that overlap or touch merged."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(stretches):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        elif start < end:
            merged.append((start, end))
    return merged


def _start_of(moment: Moment, at_home: Zone) -> int:
    if not moment.is_local:
        return moment.ms
    second, rest = divmod(moment.ms, 1_000)
    return at_home.first_instant_of(second) * 1_000 + rest


def _end_of(moment: Moment, at_home: Zone, *, is_open: bool = False) -> int:
    """The last millisecond that a moment allows, or with `is_open` the first that it does not."""
    if not moment.is_date:
        return _start_of(moment, at_home)
    next_day = at_home.first_instant_of(moment.ms // 1_000 + DAY) * 1_000
    return next_day if is_open else next_day - 1
