"""Brute force: every minute of a stretch of time is looked at, and matched field by field.

Uses `datetime.astimezone` alone and shares no code with the evaluator but the parsed fields.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.resources import files

from holdfast.schedule.cron import Rule, Tick
from holdfast.spec.cron import Cron, Dst
from holdfast.spec.zones import zone_info

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def ms(at: datetime) -> int:
    return (at - EPOCH) // timedelta(milliseconds=1)


def utc(at_ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=at_ms)


def matches(cron: Cron, local: datetime) -> bool:
    day, weekday = local.day in cron.days, local.isoweekday() % 7 in cron.weekdays
    return (
        local.second in cron.seconds
        and local.minute in cron.minutes
        and local.hour in cron.hours
        and local.month in cron.months
        and (not cron.years or local.year in cron.years)
        and (day or weekday if cron.is_either_day else day and weekday)
    )


@lru_cache(maxsize=4)
def minutes_of(zone: str, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """Each minute from `start` to `end`, and what the local clock shows."""
    tz, found, at = zone_info(zone), [], start
    while at < end:
        found.append((at, at.astimezone(tz).replace(tzinfo=None, fold=0)))
        at += MINUTE
    return found


def instants(cron: Cron, zone: str, dst: Dst, start: datetime, end: datetime) -> list[Tick]:
    """The ticks of an expression with whole minutes between two instants that are far from any clock change."""
    shown = minutes_of(zone, start, end)
    if cron.is_elapsed:
        return [Tick(ms(at)) for at, local in shown if matches(cron, local)]
    at_local: dict[datetime, list[datetime]] = defaultdict(list)
    for at, local in shown:
        at_local[local].append(at)
    fold = {"first": slice(0, 1), "second": slice(-1, None), "both": slice(None)}[dst.fold]
    regular = {ms(at) for local, ats in at_local.items() if matches(cron, local) for at in ats[fold]}
    shifted: dict[int, int] = {}
    for (_, before), (at, after) in itertools.pairwise(shown):
        missing = (before + MINUTE * i for i in range(1, (after - before) // MINUTE))
        first = next((local for local in missing if matches(cron, local)), None)
        if first is not None:
            shifted[ms(at) - (dst.gap == "skip")] = (first.replace(tzinfo=UTC) - EPOCH) // timedelta(
                seconds=1
            )
    ticks = {at: Tick(at) for at in regular}
    ticks |= {at: Tick(at, local, fires=dst.gap == "run_after") for at, local in shifted.items()}
    return [ticks[at] for at in sorted(ticks)]


def forward(rule: Rule, start: int, end: int) -> Iterator[Tick]:
    """The ticks of a rule from `start` up to but not including `end`."""
    tick = rule.after(start - 1)
    while tick is not None and tick.at < end:
        yield tick
        tick = rule.after(tick.at)


def backward(rule: Rule, start: int, end: int) -> Iterator[Tick]:
    tick = rule.before(end)
    while tick is not None and tick.at >= start:
        yield tick
        tick = rule.before(tick.at)


def transitions(zone: str) -> list[tuple[int, int, int]]:
    """The transitions in a zone's TZif file whose offsets differ: instant, offset before, offset after."""
    data = files("tzdata").joinpath("zoneinfo", *zone.split("/")).read_bytes()
    at = data.index(b"TZif", 4)  # the second header begins the part with 64-bit numbers
    counts = [int.from_bytes(data[at + 20 + 4 * i : at + 24 + 4 * i]) for i in range(6)]
    times, types = counts[3], counts[4]
    body = at + 44
    instants = [int.from_bytes(data[body + 8 * i : body + 8 * i + 8], signed=True) for i in range(times)]
    kinds = data[body + 8 * times : body + 9 * times]
    infos = body + 9 * times
    offsets = [int.from_bytes(data[infos + 6 * i : infos + 6 * i + 4], signed=True) for i in range(types)]
    before = offsets[0]
    found = []
    for instant, kind in zip(instants, kinds, strict=True):
        if offsets[kind] != before:
            found.append((instant, before, offsets[kind]))
        before = offsets[kind]
    return found
