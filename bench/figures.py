"""What is said of a figure: its unit, its bar, and one JSON line with the spread behind it. Measures nothing."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

NONE: Final = "-"


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure is held against: its value, its ratio to the machine's limit, or both."""

    value: float | None = None
    ratio: float | None = None

    def is_met(self, value: float, ratio: float | None, *, higher: bool) -> bool:
        pairs = [(self.value, value), (self.ratio, ratio)]
        return all(
            found is not None and (found >= goal if higher else found <= goal)
            for goal, found in pairs
            if goal is not None
        )

    def as_data(self) -> dict[str, float]:
        return {name: goal for name in ("value", "ratio") if (goal := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True)
class Kind:
    """One sort of figure. `limit` names what the ratio is of; `higher` is better, or lower."""

    name: str
    unit: str
    limit: str | None = None
    must: Goal | None = None
    moonshot: Goal | None = None
    higher: bool = False

    def verdict(self, value: float, ratio: float | None) -> str | None:
        if self.must is None:
            return None
        if self.moonshot is not None and self.moonshot.is_met(value, ratio, higher=self.higher):
            return "moonshot"
        return "must" if self.must.is_met(value, ratio, higher=self.higher) else "no"

    def bar(self) -> dict[str, dict[str, float]] | None:
        goals = {"must": self.must, "moonshot": self.moonshot}
        return {name: goal.as_data() for name, goal in goals.items() if goal is not None} or None


@dataclass(frozen=True, slots=True)
class Measure:
    """What one repetition found for one kind of figure, and the limit that was measured beside it."""

    kind: Kind
    value: float
    limit: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        if self.limit is None:
            return None
        # nothing was allowed: each one is too many
        return self.value / self.limit if self.limit else self.value


def line(measures: Sequence[Measure], *, slow: int, calibration_ms: float) -> dict[str, Any]:
    """The JSON line of a figure, from all repetitions; the machine was slow during some of them."""
    kind, values = measures[0].kind, [measure.value for measure in measures]
    value, ratio = statistics.median(values), _median(measure.ratio for measure in measures)
    limit = _median(measure.limit for measure in measures)
    middle = min(measures, key=lambda measure: abs(measure.value - value))
    return {
        "name": kind.name,
        "value": rounded(value),
        "unit": kind.unit,
        "settings": dict(middle.settings),
        "limit": None if limit is None else {"name": kind.limit, "value": rounded(limit)},
        "ratio": None if ratio is None else rounded(ratio),
        "bar": kind.bar(),
        "meets": kind.verdict(value, ratio),
        "spread": {
            "min": rounded(min(values)),
            "median": rounded(value),
            "max": rounded(max(values)),
            "repeats": len(values),
            "slow": slow,
        },
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "calibration": rounded(calibration_ms),
            "load": rounded(os.getloadavg()[0]),
        },
    }


def rounded(value: float) -> float:
    """Four digits: more would claim what no machine repeats."""
    return float(f"{value:.4g}")


def quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """The lines as people read them."""
    head = ("figure", "value", "unit", "limit", "ratio", "must", "moonshot", "meets", "min … max", "slow")
    rows = [head, *[_cells(one) for one in lines]]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    spread, bar, limit = one["spread"], one["bar"] or {}, one["limit"]
    return (
        one["name"],
        f"{one['value']:,.6g}",
        one["unit"],
        NONE if limit is None else f"{limit['name']} {limit['value']:,.6g}",
        NONE if one["ratio"] is None else f"{one['ratio']:.3g}",
        _goal(bar.get("must")),
        _goal(bar.get("moonshot")),
        one["meets"] or NONE,
        f"{spread['min']:,.6g} … {spread['max']:,.6g}",
        f"{spread['slow']} of {spread['repeats']}",
    )


def _goal(goal: Mapping[str, float] | None) -> str:
    names = {"value": "{:g}", "ratio": "{:g}x"}
    return " and ".join(names[name].format(value) for name, value in (goal or {}).items()) or NONE


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
