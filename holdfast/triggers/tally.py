"""Counts the outcomes of occurrences since the process started, and how late their runs started, for metrics.

Labels are bounded: schedules beyond the first hundred are `other`. Knows numbers, not where they are shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Final

from holdfast import limits
from holdfast.schedule.records import Cursor, Skipped

LATE_SECS: Final = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.5, 1.0, 5.0, 60.0, 600.0)
ID_CHARS_MAX: Final = 100
OTHER: Final = ("", "other")
PLUGIN: Final = "plugin:"  # the schedules of plugins are `plugin:<name>:<id>`

Label = tuple[str, str]  # plugin, schedule


class Tally:
    def __init__(self) -> None:
        self.occurrences: Counter[tuple[str, str, str, str]] = Counter()  # plugin, schedule, outcome, reason
        self.late_buckets = [0] * (len(LATE_SECS) + 1)
        self.late_secs = 0.0
        self._known: set[str] = set()

    def add(self, schedule_id: str, outcome: str, reason: str = "", times: int = 1) -> None:
        if times:
            self.occurrences[(*self.label(schedule_id), outcome, reason)] += times

    def started_late(self, ms: int) -> None:
        """A run is durable so long after its occurrence was due."""
        secs = max(0, ms) / 1_000
        self.late_buckets[bisect_left(LATE_SECS, secs)] += 1
        self.late_secs += secs

    def skipped(self, schedule_id: str, before: Cursor, rows: tuple[Skipped, ...]) -> None:
        """Occurrences were skipped. A row that covers a growing period includes occurrences that were counted before."""
        counted = {row.first: row.count for row in (before.skipping, before.dropping) if row is not None}
        for row in rows:
            self.add(schedule_id, "skipped", row.reason, row.count - counted.get(row.first, 0))

    def label(self, schedule_id: str) -> Label:
        if schedule_id not in self._known:
            is_plain = schedule_id.isprintable() and len(schedule_id) <= ID_CHARS_MAX
            if len(self._known) >= limits.now.metrics_schedules_max or not is_plain:
                return OTHER
            self._known.add(schedule_id)
        if not schedule_id.startswith(PLUGIN):
            return "", schedule_id
        _, plugin, name = schedule_id.split(":", 2) if schedule_id.count(":") > 1 else ("", "", schedule_id)
        return plugin, name
