"""The occurrences of schedules by brute force: minute after minute of local time, with no code of the product.

A `Shape` is what a schedule is written as, and what a person would count by hand from a calendar and a list of clock changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final
from zoneinfo import ZoneInfo

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
MARGIN: Final = timedelta(hours=4)  # a clock change at the edge is seen whole
MINUTES_MAX: Final = 200_000  # of one question


def ms(at: datetime) -> int:
    return (at - EPOCH) // timedelta(milliseconds=1)


def utc(at: int) -> datetime:
    return EPOCH + timedelta(milliseconds=at)


@dataclass(frozen=True)
class Shape:
    """When a schedule is due. `excluded` are minutes of the hour, by the local clock, at which it does not fire."""

    expressions: tuple[str, ...] = ()
    zone: str = "UTC"
    gap: str = "run_after"
    fold: str = "first"
    every_ms: int = 0
    instants: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()

    @property
    def trigger(self) -> dict[str, Any]:
        if self.every_ms:
            return {"kind": "interval", "every": f"{self.every_ms}ms"}
        if self.instants:
            return {"kind": "at", "at": [utc(at).isoformat().replace("+00:00", "Z") for at in self.instants]}
        return {"kind": "cron", "expression": list(self.expressions), "timezone": self.zone}

    @property
    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = {"trigger": self.trigger}
        if self.expressions:
            fields["dst"] = {"gap": self.gap, "fold": self.fold}
        if self.excluded:
            minutes = ",".join(map(str, self.excluded))
            fields["exclude"] = {"expressions": [f"* {minutes} * * * *"]}
        return fields

    def between(self, after: int, until: int, registered_at: int) -> dict[int, bool]:
        """The occurrences after an instant up to another one; True for those that are to fire."""
        if self.every_ms:
            first = max((after - registered_at) // self.every_ms + 1, 1)
            found = dict.fromkeys(
                range(registered_at + first * self.every_ms, until + 1, self.every_ms), True
            )
        elif self.instants:
            found = {at: True for at in sorted(set(self.instants)) if after < at <= until}
        else:
            found = {}
            for expression in self.expressions:
                for at, fires in _cron(
                    expression, self.zone, self.gap, self.fold, after // 60_000, until // 60_000
                ):
                    if after < at <= until:
                        found[at] = found.get(at, False) or fires
        return {at: found[at] and not self._is_excluded(at) for at in sorted(found)}

    def _is_excluded(self, at: int) -> bool:
        if not self.excluded:
            return False
        return (utc(at).astimezone(ZoneInfo(self.zone)).minute) in self.excluded


def _values(field: str, least: int, most: int) -> frozenset[int]:
    found: set[int] = set()
    for part in field.split(","):
        stretch, _, step = part.partition("/")
        low, _, high = stretch.partition("-")
        if stretch == "*":
            found.update(range(least, most + 1, int(step or 1)))
        else:
            last = int(high) if high else most if step else int(low)
            found.update(range(int(low), last + 1, int(step or 1)))
    return frozenset(found)


@lru_cache(maxsize=64)
def _shown(zone: str, first: int, last: int) -> list[tuple[int, datetime]]:
    """Each minute, and what the local clock shows then."""
    assert last - first < MINUTES_MAX
    tz = ZoneInfo(zone)
    start, end = utc(first * 60_000) - MARGIN, utc(last * 60_000) + MARGIN
    count = (end - start) // MINUTE
    minutes = (start + MINUTE * number for number in range(count))
    return [(ms(at), at.astimezone(tz).replace(tzinfo=None, fold=0)) for at in minutes]


@lru_cache(maxsize=256)
def _cron(expression: str, zone: str, gap: str, fold: str, first: int, last: int) -> list[tuple[int, bool]]:
    seconds, minutes, hours = (
        _values(field, 0, most) for field, most in zip(expression.split()[:3], (59, 59, 23), strict=True)
    )
    shown = _shown(zone, first, last)
    matching = [(at, local) for at, local in shown if local.minute in minutes and local.hour in hours]
    if any(field.startswith("*") for field in expression.split()[:3]):  # it follows real time
        return [(at + 1_000 * second, True) for at, _ in matching for second in sorted(seconds)]
    at_local: dict[datetime, list[int]] = {}
    for at, local in matching:
        at_local.setdefault(local, []).append(at)
    chosen = {"first": slice(0, 1), "second": slice(-1, None), "both": slice(None)}[fold]
    found = {
        at + 1_000 * second: True for ats in at_local.values() for at in ats[chosen] for second in seconds
    }
    found |= dict(_in_gaps(shown, minutes, hours, gap))
    return sorted(found.items())


def _in_gaps(
    shown: list[tuple[int, datetime]], minutes: frozenset[int], hours: frozenset[int], gap: str
) -> Iterator[tuple[int, bool]]:
    """Times that do not exist: one fire right after them, or a millisecond before that one occurrence that does not fire."""
    for (_, before), (at, after) in pairwise(shown):
        missing = (before + MINUTE * number for number in range(1, max((after - before) // MINUTE, 1)))
        if any(local.minute in minutes and local.hour in hours for local in missing):
            yield (at, True) if gap == "run_after" else (at - 1, False)
