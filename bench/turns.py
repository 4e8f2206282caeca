"""Ours and the machine's limit in turns: a machine changes its speed within seconds, so each slice of ours stands between two of the limit.

    limit · ours · limit · ours · … · limit

A ratio is the median of those of the slices, and every slice counts.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

from bench.figures import Kind, Measure, quantile

SLICES: Final = 5
Ours = TypeVar("Ours")


class Slice(NamedTuple, Generic[Ours]):
    """What one slice found, and the mean of the limits before and after it."""

    ours: Ours
    limits: tuple[float, ...]


def in_turns(
    ours: Callable[[int], Ours], limits: Callable[[], tuple[float, ...]], slices: int = SLICES
) -> list[Slice[Ours]]:
    """`ours` is told the number of its slice."""
    found, before = list[Slice[Ours]](), limits()
    for number in range(slices):
        had, after = ours(number), limits()
        found.append(Slice(had, tuple((one + other) / 2 for one, other in zip(before, after, strict=True))))
        before = after
    return found


def sliced(
    kind: Kind, values: Sequence[float], limits: Sequence[float], settings: Mapping[str, Any]
) -> Measure:
    """The median of the values of slices, beside the limit that gives the median of their ratios."""
    value = statistics.median(values)
    ratio = statistics.median(one / limit for one, limit in zip(values, limits, strict=True))
    limit = value / ratio if ratio else statistics.median(limits)
    return Measure(kind, value, limit, {**settings, "slices": len(values)})


def quantiles(
    p50: Kind, p99: Kind, slices: Sequence[Slice[list[float]]], settings: Mapping[str, Any]
) -> list[Measure]:
    """The median and the 99th percentile in ms, of seconds beside a limit in ms. The percentile is that of all slices together, because
    one slice has too few samples for it."""
    limits, took = [one.limits[0] for one in slices], [1000 * each for one in slices for each in one.ours]
    middle = [1000 * statistics.median(one.ours) for one in slices]
    return [
        sliced(p50, middle, limits, settings),
        Measure(p99, quantile(took, 0.99), statistics.median(limits), {**settings, "slices": len(slices)}),
    ]
