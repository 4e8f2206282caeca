"""The next occurrences of a schedule, as people read them: for `schedules next`, `show`, and the plan of a reload."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Final

import msgspec

from holdfast.schedule.cron import Tick
from holdfast.schedule.timing import Timing, grid_of
from holdfast.schedule.zones import Zone, zone

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SEARCHED_MAX: Final = 10_000  # ticks that are examined, fewer if each costs more


class Upcoming(msgspec.Struct, frozen=True):
    """One occurrence. `local` has the offset of its zone; `note` says what a clock change does to it."""

    at: int
    local: str
    fires: bool = True
    note: str = ""


def upcoming(timing: Timing, after: int, count: int, *, registered_at: int | None = None) -> list[Upcoming]:
    """The next `count` occurrences, including those that a clock change skips, but not excluded ones."""
    return list(islice(_upcoming(timing, after, after if registered_at is None else registered_at), count))


def _upcoming(timing: Timing, after: int, registered_at: int) -> Iterator[Upcoming]:
    grid = grid_of(timing, registered_at)
    for _ in range(_SEARCHED_MAX // grid.cost):
        tick = grid.after(after)
        if tick is None:
            return
        until = grid.excluded_until(tick)
        after = tick.at if until is None else until - 1
        if until is not None:
            continue
        home = zone(timing.timezone)
        yield Upcoming(tick.at, local_text(tick.at, home), tick.fires, _note(tick, home))


def _note(tick: Tick, home: Zone) -> str:
    """The effect of a clock change on an occurrence; empty on any other day."""
    if tick.shifted_from is not None:
        missing = f"{_clock(tick.shifted_from)} does not exist on this day"
        return f"{missing}: clocks go forward" if tick.fires else f"skipped: {missing}"
    second = tick.at // 1_000
    segment = home.segment_at(second)
    local = second + segment.offset
    if local < segment.start + segment.before:
        return f"{_clock(local)} comes twice on this day: this is the second time"
    if local >= segment.end + segment.after:
        return f"{_clock(local)} comes twice on this day: this is the first time"
    return ""


def _clock(local: int) -> str:
    return f"{_EPOCH + timedelta(seconds=local):%H:%M:%S}"


def local_text(at: int, home: Zone) -> str:
    """An instant by the clock of a zone, with its offset: `2026-03-29T03:00:00+02:00`."""
    offset = home.segment_at(at // 1_000).offset
    local = (_EPOCH + timedelta(milliseconds=at)).astimezone(timezone(timedelta(seconds=offset)))
    return local.isoformat(timespec="milliseconds" if at % 1_000 else "seconds")
