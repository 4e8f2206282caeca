"""Which schedules of a set fire first, for people who reload a folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from holdfast.schedule.of_spec import schedule_of
from holdfast.schedule.timing import grid_of
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.values import Millis, rfc3339

SHOWN_MAX: Final = 3


def first_fires(schedules: Iterable[ScheduleSpec], now: int) -> str:
    """`nightly at 2026-11-18T03:00:00Z, weekly at …`, by their times without jitter; empty if none has a clock."""
    found = []
    for spec in schedules:
        schedule = schedule_of(spec)
        tick = None if schedule is None or not spec.enabled else grid_of(schedule.timing, now).fire_after(now)
        if tick is not None:
            found.append((tick.at, spec.id))
    soonest = sorted(found)[:SHOWN_MAX]
    return ", ".join(f"{name} at {rfc3339(Millis(at)).replace('.000Z', 'Z')}" for at, name in soonest)
