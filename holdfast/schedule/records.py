"""The arguments and results of `due`: frozen records, all times in milliseconds since 1970.

Knows the shapes alone. `Cursor` is what is stored per schedule and slot; every other record lives for one call.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from holdfast.schedule.timing import Timing
from holdfast.spec.triggers import MissedRunPolicy, Overlap

Reason = Literal[
    "overlap",  # a run was still open
    "superseded",  # a newer occurrence came before the previous run had been cancelled
    "missed",  # no engine was awake, and the policy does not catch it up
    "max_catchup",  # more were missed than are caught up
    "paused",
    "excluded",
    "dst_gap",  # the local time did not exist, and `dst.gap` is skip
    "deleted",  # it waited for a run to end when its schedule was deleted
]


class Schedule(msgspec.Struct, frozen=True):
    """The part of a schedule that decides when it fires. `max_concurrent` 0 means no limit, and so does `overlap: allow`."""

    id: str
    timing: Timing
    enabled: bool = True
    overlap: Overlap = "skip"
    max_concurrent: int = 1
    missed_run_policy: MissedRunPolicy = "skip"
    max_catchup: int = 1_000
    jitter_ms: int = 0
    grace_ms: int = 60_000

    @property
    def run_limit(self) -> int:
        """How many runs may be open at once; 0 for any number."""
        return 0 if self.overlap == "allow" else self.max_concurrent

    @property
    def lateness_ms_max(self) -> int:
        """An occurrence that is decided later than this, because no engine was running, was missed."""
        return max(self.grace_ms, self.jitter_ms)


class Outage(msgspec.Struct, frozen=True):
    """No engine was awake after `asleep_from`, the last time one is known to have been, until `woke_at`."""

    asleep_from: int
    woke_at: int


class Pause(msgspec.Struct, frozen=True):
    """Occurrences after `since` up to `until` do not fire; without `until` it lasts. `is_owed`: they are caught up."""

    since: int
    until: int | None = None
    is_owed: bool = False


class Owed(msgspec.Struct, frozen=True, omit_defaults=True):
    """Occurrences that fire when there is room: those of a grid after `after` up to `until`.

    It is the grid of the schedule, or the one of a number in `Cursor.earlier` if an edit has changed it.
    """

    after: int
    until: int
    grid: int = 0


class Backfill(msgspec.Struct, frozen=True, omit_defaults=True):
    """Past occurrences that were requested to fire. They fire in order, within the limit of open runs.

    The next one fires `every_ms` after the one before, not before `not_before`.
    """

    owed: tuple[Owed, ...]
    every_ms: int = 0
    not_before: int = 0


class Skipped(msgspec.Struct, frozen=True):
    """Consecutive occurrences that did not fire for the same reason: one row of the ledger, which may grow.

    The first occurrence identifies the row, which is replaced when another occurrence is added.
    """

    reason: Reason
    first: int
    last: int
    count: int

    @classmethod
    def grown(cls, row: Skipped | None, reason: Reason, first: int, last: int, count: int) -> Skipped:
        """The row for skipped occurrences: the previous row, extended, if it has the same reason."""
        if row is not None and row.reason == reason:
            return cls(reason, row.first, last, row.count + count)
        return cls(reason, first, last, count)


class Search(msgspec.Struct, frozen=True):
    """A backward search for the newest occurrences up to `until`. `left` of them are still to be found before `at`.

    Exclusions can make the search long, so it is stored and each call of `due` continues it. When `left` is 0, `at` is the result.
    """

    until: int
    at: int
    left: int


class Cursor(msgspec.Struct, frozen=True, omit_defaults=True):
    """The progress of a schedule, per slot.

    Every occurrence up to `at` is decided: it has fired, is part of a `Skipped` row, or is listed in `missed` or `waiting`.
    `revision` grows with every change, and is what a commit compares. `at` and `total_run_count` never shrink.
    """

    registered_at: int
    at: int
    revision: int = 0
    total_run_count: int = 0
    missed: tuple[Owed, ...] = ()  # to be caught up, one after the other
    waiting: tuple[Owed, ...] = ()  # at the limit of open runs when they were due
    catchup_from: int = 0  # missed ones before this are skipped: more were missed than may be caught up
    pauses: tuple[Pause, ...] = ()
    skipping: Skipped | None = None  # the row that the next occurrence may extend
    dropping: Skipped | None = None  # the same for occurrences of `missed` and `waiting`
    backfills: tuple[Backfill, ...] = ()
    position: str = ""  # how far the source of a schedule without a clock has come
    search: Search | None = None
    earlier: dict[int, Timing] = {}  # grids before an edit of which occurrences are owed

    @property
    def owes(self) -> bool:
        """Whether occurrences wait for a run to end."""
        return bool(self.missed or self.waiting or self.backfills)

    @property
    def is_paused(self) -> bool:
        return any(pause.until is None for pause in self.pauses)


class Running(msgspec.Struct, frozen=True):
    """The open runs of a schedule and slot, counted from stored runs. `run_count` is how many this process has started, and `newest`
    when it has started the last one, unless that catches up."""

    open: int = 0
    catchups: int = 0
    run_count: int = 0
    newest: int | None = None


class Fire(msgspec.Struct, frozen=True):
    """An occurrence that starts a run. `shifted_from` is the local time, in seconds, that fell into a gap of the clock."""

    at: int
    is_catchup: bool
    run_count: int
    total_run_count: int
    shifted_from: int | None = None
    is_backfill: bool = False


class Due(msgspec.Struct, frozen=True):
    """What to commit, and when to call `due` again."""

    cursor: Cursor
    fires: tuple[Fire, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    next_at: int | None = None  # None: not before a run ends or the schedule is changed
    is_cut: bool = False  # there is more: commit, and ask again at once
    cancels_oldest: bool = False  # an occurrence waits for the oldest open run to be cancelled
    examined: int = 0  # occurrences that were examined: what the answer cost
    held_until: int | None = (
        None  # an occurrence waits until then for a run to end: decide again at its end, or then
    )
