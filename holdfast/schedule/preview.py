"""The next occurrences of a schedule, as people read them: for `schedules next`, `show`, and the plan of a reload."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Final

import msgspec

from holdfast.schedule.timing import Timing, grid_of
from holdfast.schedule.zones import zone
from holdfast.values import Millis, rfc3339

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SEARCHED_MAX: Final = 10_000  # ticks that are looked at, of which most may be excluded


class Upcoming(msgspec.Struct, frozen=True, omit_defaults=True):
    """One occurrence. `local` has the offset of its zone; `note` says what a clock change or an exclusion does to it."""

    at: str
    local: str
    fires: bool = True
    note: str = ""


def upcoming(timing: Timing, after: int, count: int, *, registered_at: int | None = None) -> list[Upcoming]:
    """The next so many occurrences; those that a clock change leaves out are among them, excluded ones are not."""
    return list(islice(_upcoming(timing, after, after if registered_at is None else registered_at), count))


def _upcoming(timing: Timing, after: int, registered_at: int) -> Iterator[Upcoming]:
    grid = grid_of(timing, registered_at)
    for _ in range(_SEARCHED_MAX):
        tick = grid.after(after)
        if tick is None:
            return
        after = tick.at
        if grid.is_excluded(tick):
            continue
        note = ""
        if tick.shifted_from is not None:
            missing = f"{_EPOCH + timedelta(seconds=tick.shifted_from):%H:%M:%S} does not exist on this day"
            note = f"{missing}: clocks go forward" if tick.fires else f"skipped: {missing}"
        yield Upcoming(rfc3339(Millis(tick.at)), _local(tick.at, timing.timezone), tick.fires, note)


def _local(at: int, name: str) -> str:
    offset = zone(name).segment_at(at // 1_000).offset
    local = (_EPOCH + timedelta(milliseconds=at)).astimezone(timezone(timedelta(seconds=offset)))
    return local.isoformat(timespec="milliseconds" if at % 1_000 else "seconds")
