"""Bugs that are planted to prove that the simulation finds them: each is a context in which `due` or its driver is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import msgspec

from holdfast.schedule import control
from holdfast.schedule import due as deciding
from holdfast.schedule.cron import Stretch, Tick
from holdfast.schedule.due import Decision
from holdfast.schedule.records import Cursor, Pause
from holdfast.schedule.timing import Grid, Timing
from tests.schedule.simulation import World

Bug = Callable[[], Any]


def driver(name: str) -> Bug:
    return lambda: mock.patch.object(World, name, new=True)


def decision(name: str, wrong: object) -> Bug:
    return lambda: mock.patch.object(Decision, name, new=wrong)


def _late_is_missed(self: Decision, tick: Tick) -> int | None:
    return self.now if self.now - tick.at > self.schedule.lateness_ms_max else None


def _no_grace(self: Decision, tick: Tick) -> int | None:
    for outage in self.outages:
        if outage.asleep_from < tick.at <= outage.woke_at:
            return min(outage.woke_at, self.now)
    return None


def _start_at_the_limit(self: Decision) -> bool:
    return not self.schedule.run_limit or self.open <= self.schedule.run_limit


def _skip_without_row(self: Decision, tick: Tick, reason: str, until: int) -> bool:
    self.at, self.skipping = tick.at, None
    return True


def _two_at_once(self: Decision, tick: Tick, *, is_catchup: bool) -> None:
    _fire(self, tick, is_catchup=is_catchup)
    self.catchups = 0


def _drop_the_newest(self: Decision) -> None:
    tick = self.grid.before(self.missed[-1].until + 1)
    self.catchup_from = tick.at + 1 if tick is not None and 0 < self.schedule.max_catchup < 50 else 0


def _no_pause(self: Decision, tick: Tick) -> Pause | None:
    return None


def _follow_the_clock(self: Decision) -> Cursor:
    cursor = _cursor(self)
    return (
        cursor
        if cursor.at <= self.now
        else msgspec.structs.replace(cursor, at=self.now, revision=self.cursor.revision + 1)
    )


@contextmanager
def _jitter_is_drawn_anew() -> Iterator[None]:
    rng = random.Random(1)
    with mock.patch.object(deciding, "jitter_ms", new=lambda plan, at: rng.randint(0, plan.jitter_ms)):
        yield


def _catch_up_is_skipped(self: Decision) -> None:
    while (
        self.missed
        and (self.catchups or not self._has_room)
        and (tick := self.grids.first(self.missed[0])) is not None
    ):
        self.dropping = self._row(self.dropping, tick, "overlap")
        self._advance(self.missed, tick)
    _start_owed(self)


def _owe_nothing(cursor: Cursor, timing: Timing) -> Cursor:
    return msgspec.structs.replace(cursor, missed=(), waiting=())


def _keep_numbers(cursor: Cursor, timing: Timing) -> Cursor:
    return cursor


def _one_too_far(self: Grid, after: int, until: int) -> Stretch:
    found = _stretch(self, after, until)
    tick = self.after(found.until)
    return Stretch(found.ticks + 1, tick.at) if found.ticks and tick is not None else found


_stretch = Grid.stretch
_fire, _resumed, _cursor, _start_owed = (
    Decision._fire,
    control.resumed,
    Decision._cursor,
    Decision._start_owed,
)

BUGS: dict[str, Bug] = {
    "the cursor is committed before the runs": driver("commits_cursor_first"),
    "the runs are committed before the cursor": driver("commits_runs_first"),
    "open runs are counted in memory": driver("counts_runs_in_memory"),
    "a commit does not compare the revision": driver("ignores_revision"),
    "outages are forgotten by a second crash": driver("forgets_outages"),
    "an edit resets the cursor": driver("edit_resets_cursor"),
    "the grace counts from when the engine comes to it": decision("_missed_until", _late_is_missed),
    "there is no grace": decision("_missed_until", _no_grace),
    "one run more than the limit": decision("_has_room", property(_start_at_the_limit)),
    "a skipped occurrence has no row": decision("_skip", _skip_without_row),
    "catch-up runs overlap": decision("_fire", _two_at_once),
    "the oldest are caught up": decision("_limit_catchup", _drop_the_newest),
    "a pause is forgotten": decision("_pause_of", _no_pause),
    "jitter is drawn anew": _jitter_is_drawn_anew,
    "the cursor follows the clock back": decision("_cursor", _follow_the_clock),
    "catch-up is skipped for overlap": decision("_start_owed", _catch_up_is_skipped),
    "an exclusion is not looked at": lambda: mock.patch.object(Grid, "is_excluded", return_value=False),
    "what is owed is lost by an edit": lambda: mock.patch.object(control, "with_earlier", new=_owe_nothing),
    "what is owed gets the new grid": lambda: mock.patch.object(control, "with_earlier", new=_keep_numbers),
    "a stretch ends too late": lambda: mock.patch.object(Grid, "stretch", new=_one_too_far),
}
