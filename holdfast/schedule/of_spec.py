"""Converts what an author wrote into the arguments of `due`. Kinds without a clock have no schedule of this kind."""

from __future__ import annotations

from typing import Final, assert_never

import msgspec

from holdfast.errors import Problem
from holdfast.schedule.records import Schedule
from holdfast.schedule.timing import Timing, grid_of
from holdfast.spec.problems import quoted
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import AtTrigger, ClockTrigger, CronTrigger, IntervalTrigger, PluginTrigger

NEVER_FIRES: Final = "never_fires"


def schedule_of(spec: ScheduleSpec) -> Schedule | None:
    """The part of a schedule that decides when it fires; None if something other than a clock does."""
    if not isinstance(spec.trigger, ClockTrigger):
        return None
    return Schedule(
        spec.id,
        _timing(spec, spec.trigger),
        spec.enabled,
        spec.overlap,
        spec.max_concurrent,
        spec.missed_run_policy,
        spec.max_catchup,
        _jitter_ms(spec.trigger),
        spec.grace_secs * 1_000,
    )


def _jitter_ms(trigger: ClockTrigger) -> int:
    return trigger.jitter_ms if isinstance(trigger, PluginTrigger) else trigger.jitter_secs * 1_000


def _timing(spec: ScheduleSpec, trigger: ClockTrigger) -> Timing:
    expressions: tuple[str, ...] = ()
    instants: tuple[int, ...] = ()
    timezone = "UTC"
    match trigger:
        case CronTrigger(expressions, timezone):
            pass
        case IntervalTrigger(every):
            expressions = (f"@every {every}",)
        case PluginTrigger(cron=cron):
            expressions = (cron,)
        case AtTrigger(at):
            instants = tuple(moment.ms for moment in at)
        case _:
            assert_never(trigger)
    # The names of calendars are not needed here: their contents are part of the exclusions.
    exclude = msgspec.structs.replace(spec.exclude, calendar=())
    return Timing(expressions, instants, timezone, spec.dst, exclude, spec.start_at, spec.end_at)


def notes_on(spec: ScheduleSpec, now: int) -> list[Problem]:
    """Warnings about when a schedule fires."""
    schedule = schedule_of(spec)
    if schedule is None or not never_fires(schedule, now):
        return []
    message = f"schedule {quoted(spec.id)} never fires: no date from now to the end of 2100 matches"
    hint = "holdfast schedules next shows the times of an expression"
    return [spec.problem(NEVER_FIRES, ("trigger",), message, hint)]


def never_fires(schedule: Schedule, now: int) -> bool:
    """Whether no occurrence is left up to the end of 2100."""
    return grid_of(schedule.timing, now).fire_after(now) is None
