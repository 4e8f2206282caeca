"""How runs went over time: how many began and ended in each stretch of it, and how long they took. Writes nothing.

    counters by minute (the last two days) or hour (before) ──► stretches of equal length

The counters are kept by the commits that start and end runs, so a picture of a million runs costs as much as one of a hundred.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from holdfast.store.base import Store
from holdfast.store.beats import MINUTE_MS, STARTED, end_of
from holdfast.values import Millis

HOUR: Final = 60  # minutes
MINUTES_KEPT: Final = 2 * 24 * HOUR  # counts by minute that are not added up yet


class Stretch(NamedTuple):
    """Runs that began in a stretch of time, and those that ended in it: by status, and by how long they took."""

    at: Millis
    started: int
    ended: dict[str, int]
    took_ms: Counter[int]


class Pulse(NamedTuple):
    start: Millis
    end: Millis
    width_ms: int
    stretches: list[Stretch]


async def pulse(
    store: Store, tenant: str, workflow: str | None, start: Millis, end: Millis, most: int, now: Millis
) -> Pulse:
    """Count runs in at most so many stretches. These begin and end at whole minutes, or at whole hours if the first is older than
    MINUTES_KEPT; the last one includes the end."""
    unit = 1 if start // MINUTE_MS >= added_up_before(now) else HOUR
    unit_ms = unit * MINUTE_MS
    last = -(-end // unit_ms)
    first = last - max(1, round((end - start) / unit_ms))
    width = -(-(last - first) // most)
    last = first + -(-(last - first) // width) * width
    count = (last - first) // width
    started, ended = [0] * count, [dict[str, int]() for _ in range(count)]
    took = [Counter[int]() for _ in range(count)]
    for n, beat, runs in await store.pulse(tenant, workflow, first * unit, last * unit, width * unit):
        if beat == STARTED:
            started[n] += runs
        else:
            how = end_of(beat)
            ended[n][how.status] = ended[n].get(how.status, 0) + runs
            took[n][how.took_ms] += runs
    width_ms = width * unit_ms
    at = [Millis(first * unit_ms + n * width_ms) for n in range(count)]
    return Pulse(
        Millis(first * unit_ms),
        Millis(last * unit_ms),
        width_ms,
        [Stretch(*one) for one in zip(at, started, ended, took, strict=True)],
    )


def added_up_before(now: Millis) -> int:
    """The minute before which counts are added up by hour."""
    minute = now // MINUTE_MS - MINUTES_KEPT
    return minute - minute % HOUR


def share(took_ms: Counter[int], part: float) -> int | None:
    """The time within which this part of the runs ended; None without any."""
    left = took_ms.total() * part
    for took in sorted(took_ms):
        left -= took_ms[took]
        if left <= 0:
            return took
    return max(took_ms, default=None)
