"""The local times that a cron expression matches, as if every day had 24 hours: no zones and no clock changes.

A local time is a count of seconds since 1970-01-01 00:00 on the local calendar. Each field is a bit mask, so the next
match is found by a few shifts per field and a mask per month, never by trying minute after minute.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import date
from functools import lru_cache
from typing import Final

from holdfast.spec.cron import YEAR_MAX, YEAR_MIN, Cron

DAY: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()
_EVERY_YEAR: Final = tuple(range(YEAR_MIN, YEAR_MAX + 1))
_LAST_DAY: Final = date(YEAR_MAX, 12, 31).toordinal() - _EPOCH
_EVERY_60: Final = (1 << 60) - 1  # a mask of every second, or of every minute
_EVERY_24: Final = (1 << 24) - 1
_EVERY_DAY: Final = (1 << 32) - 2  # of a month: from 1 to 31


class Wall:
    """An expression made ready for searching."""

    __slots__ = (
        "_days",
        "_earliest",
        "_has_every_day",
        "_hours",
        "_latest",
        "_minutes",
        "_months",
        "_recent",
        "_seconds",
        "_years",
        "cron",
    )

    def __init__(self, cron: Cron) -> None:
        self.cron = cron
        self._seconds, self._minutes, self._hours = (
            _mask(cron.seconds),
            _mask(cron.minutes),
            _mask(cron.hours),
        )
        self._months = _mask(cron.months)
        self._years = cron.years or _EVERY_YEAR
        self._days = [_days_of_month(cron, first_weekday) for first_weekday in range(7)]
        is_in_every_month = all(days == _EVERY_DAY for days in self._days) and len(cron.months) == 12
        self._has_every_day = is_in_every_month and len(self._years) == len(_EVERY_YEAR)
        self._recent = -1, False  # the day that was asked about last, and whether it matches
        self._earliest = cron.hours[0] * 3600 + cron.minutes[0] * 60 + cron.seconds[0]
        self._latest = cron.hours[-1] * 3600 + cron.minutes[-1] * 60 + cron.seconds[-1]

    def first_from(self, local: int) -> int | None:
        """The first match at or after a local time, up to the end of 2100."""
        day, second = divmod(local, DAY)
        if second <= self._latest and self._has_day(day):
            time = self._time_from(second)
            assert time is not None
            return day * DAY + time
        found = self._day_from(day + 1)
        return None if found is None else found * DAY + self._earliest

    def last_until(self, local: int) -> int | None:
        """The last match at or before a local time, down to 1970."""
        day, second = divmod(local, DAY)
        if second >= self._earliest and self._has_day(day):
            time = self._time_until(second)
            assert time is not None
            return day * DAY + time
        found = self._day_until(day - 1)
        return None if found is None else found * DAY + self._latest

    def count(self, low: int, high: int) -> int:
        """How many matches there are from one local time up to but not including another. The cost grows with the months between."""
        low = max(low, 0)
        if high <= low:
            return 0
        (first, low), (last, high) = divmod(low, DAY), divmod(high, DAY)
        found = self._times(DAY) * self._days_between(first, last)
        if self._has_day(first):
            found -= self._times(low)
        return found + (self._times(high) if self._has_day(last) else 0)

    def _times(self, second: int) -> int:
        """How many matches a day has before a second of it."""
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        in_minute, in_hour = len(self.cron.seconds), len(self.cron.minutes) * len(self.cron.seconds)
        found = _below(self._hours, hour) * in_hour
        if self._hours >> hour & 1:
            found += _below(self._minutes, minute) * in_minute
            if self._minutes >> minute & 1:
                found += _below(self._seconds, second)
        return found

    def _days_between(self, first: int, last: int) -> int:
        """How many days match from one up to but not including another."""
        found = 0
        while first < last:
            on = date.fromordinal(first + _EPOCH)
            start, _, days = _month(on.year, on.month)
            end = min(start + days.bit_count(), last)
            if self._months >> on.month & 1 and (not self.cron.years or on.year in self.cron.years):
                days = self._month_days(on.year, on.month)
                found += _below(days, end - start + 1) - _below(days, on.day)
            first = end
        return found

    def matched_until(self, local: int) -> int | None:
        """The end of a stretch in which every second from this one on matches: a day at most, or all time. None if this one does not.

        A fixed number of steps: it searches no other day.
        """
        day, second = divmod(local, DAY)
        if not self._has_day(day) or self._time_from(second) != second:
            return None
        if self._seconds != _EVERY_60:
            return local + 1
        if self._minutes != _EVERY_60:
            return (local // 60 + 1) * 60
        if self._hours != _EVERY_24:
            return (local // 3600 + 1) * 3600
        return (_LAST_DAY + 1 if self._has_every_day else day + 1) * DAY

    def _time_from(self, second: int) -> int | None:
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        if self._hours >> hour & 1:
            if self._minutes >> minute & 1 and (found := _first(self._seconds, second)) >= 0:
                return hour * 3600 + minute * 60 + found
            if (found := _first(self._minutes, minute + 1)) >= 0:
                return hour * 3600 + found * 60 + self.cron.seconds[0]
        found = _first(self._hours, hour + 1)
        return None if found < 0 else found * 3600 + self.cron.minutes[0] * 60 + self.cron.seconds[0]

    def _time_until(self, second: int) -> int | None:
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        if self._hours >> hour & 1:
            if self._minutes >> minute & 1 and (found := _last(self._seconds, second)) >= 0:
                return hour * 3600 + minute * 60 + found
            if (found := _last(self._minutes, minute - 1)) >= 0:
                return hour * 3600 + found * 60 + self.cron.seconds[-1]
        found = _last(self._hours, hour - 1)
        return None if found < 0 else found * 3600 + self.cron.minutes[-1] * 60 + self.cron.seconds[-1]

    def _has_day(self, day: int) -> bool:
        if self._recent[0] == day:
            return self._recent[1]
        self._recent = day, 0 <= day <= _LAST_DAY and self._matches_day(date.fromordinal(day + _EPOCH))
        return self._recent[1]

    def _matches_day(self, on: date) -> bool:
        is_in = self._months >> on.month & 1 and (not self.cron.years or on.year in self.cron.years)
        return bool(is_in and self._month_days(on.year, on.month) >> on.day & 1)

    def _day_from(self, day: int) -> int | None:
        if day > _LAST_DAY:
            return None
        on = date.fromordinal(max(day, 0) + _EPOCH)
        for year in self._years[bisect_left(self._years, on.year) :]:
            month = on.month if year == on.year else 1
            while (month := _first(self._months, month)) >= 0:
                first = on.day if (year, month) == (on.year, on.month) else 1
                found = _first(self._month_days(year, month), first)
                if found >= 0:
                    return _month(year, month)[0] + found - 1
                month += 1
        return None

    def _day_until(self, day: int) -> int | None:
        if day < 0:
            return None
        on = date.fromordinal(min(day, _LAST_DAY) + _EPOCH)
        for year in reversed(self._years[: bisect_right(self._years, on.year)]):
            month = on.month if year == on.year else 12
            while (month := _last(self._months, month)) >= 0:
                last = on.day if (year, month) == (on.year, on.month) else 31
                found = _last(self._month_days(year, month), last)
                if found >= 0:
                    return _month(year, month)[0] + found - 1
                month -= 1
        return None

    def _month_days(self, year: int, month: int) -> int:
        """The days that match of a month that does, as a mask."""
        _, first_weekday, days = _month(year, month)
        return self._days[first_weekday] & days


def _days_of_month(cron: Cron, first_weekday: int) -> int:
    """The days of a month of 31 days that begins on a weekday."""
    weekdays = _mask(tuple(day for day in range(1, 32) if (first_weekday + day - 1) % 7 in cron.weekdays))
    return _mask(cron.days) | weekdays if cron.is_either_day else _mask(cron.days) & weekdays


@lru_cache(maxsize=12 * (YEAR_MAX - YEAR_MIN + 1))
def _month(year: int, month: int) -> tuple[int, int, int]:
    """The number of a month's first day, its weekday (0 = Sunday), and a mask of the month's days."""
    first = date(year, month, 1)
    after = date(year + month // 12, month % 12 + 1, 1)
    return first.toordinal() - _EPOCH, first.isoweekday() % 7, (1 << (after - first).days + 1) - 2


def _mask(values: tuple[int, ...]) -> int:
    return sum(1 << value for value in values)


def _below(mask: int, end: int) -> int:
    """How many bits of a mask are below `end`."""
    return (mask & (1 << end) - 1).bit_count()


def _first(mask: int, start: int) -> int:
    """The lowest bit of a mask from `start` on, or -1."""
    rest = mask >> start
    return start + (rest & -rest).bit_length() - 1 if rest else -1


def _last(mask: int, end: int) -> int:
    """The highest bit of a mask up to `end`, or -1."""
    return (mask & (1 << end + 1) - 1).bit_length() - 1 if end >= 0 else -1
