"""Fires that are decided before they are due, so that many schedules that are due in the same instant start their runs at once.

    AHEAD_MS before ──► read, decide, render, encode ──► portions, in memory only
    when they are due ──► one commit for each portion ──► their runs start

A portion says what a decision at the due time would say, as long as nothing changes that it depends on: the schedules, their
cursors, the outages, and the published workflows. If anything does, the portion is dropped, and its schedules are decided as
usual when they are due. The commit compares the cursors in any case. Only plain fires are decided ahead: one run, and nothing
skipped or owed.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from holdfast.runtime.starts import PreparedStarts
from holdfast.schedule.records import Outage
from holdfast.triggers.deciding import Decided
from holdfast.triggers.rows import Key
from holdfast.triggers.starting import Occasion
from holdfast.values import Millis

PORTION: Final = (
    100  # runs that one commit starts: the first of them need not wait until all rows are written
)
FIRES_MAX: Final = 2_000  # that are in memory, some kilobytes each


class Basis(NamedTuple):
    """What the decisions of a portion depend on besides their schedules."""

    outages: tuple[Outage, ...]
    names: object  # of the published workflows


class Portion(NamedTuple):
    at: Millis  # when they are due
    keys: frozenset[Key]
    fires: list[tuple[Decided, Occasion]]
    starts: PreparedStarts
    basis: Basis

    def holds(self, basis: Basis) -> bool:
        return self.basis.names is basis.names and self.basis.outages == basis.outages


class Portions:
    def __init__(self) -> None:
        self._all: list[Portion] = []
        self.changes = 0  # commands so far

    def __contains__(self, key: Key) -> bool:
        return any(key in portion.keys for portion in self._all)

    @property
    def is_full(self) -> bool:
        return len(self._all) * PORTION >= FIRES_MAX

    def add(self, portion: Portion) -> None:
        self._all.append(portion)

    def drop(self, key: Key) -> None:
        if self._all:
            self._all = [portion for portion in self._all if key not in portion.keys]

    def drop_all(self) -> None:
        self._all.clear()
        self.changes += 1

    def due(self, now: Millis, basis: Basis) -> list[Portion]:
        """Take the portions that are due and still hold."""
        due = [portion for portion in self._all if portion.at <= now]
        self._all = [portion for portion in self._all if portion.at > now]
        return [portion for portion in due if portion.holds(basis)]


def is_plain(one: Decided) -> bool:
    """Whether a decision is one fire and nothing else."""
    due = one.due
    is_alone = len(due.fires) == 1 and not (due.skipped or due.is_cut or due.cancels_oldest)
    return is_alone and not due.fires[0].is_catchup and not due.cursor.owes
