"""A scheduler for another system's jobs: it decides when, and hands each fire to a sink.

Knows the sink and the fire. Which occurrences are due is decided by schedule/due.py.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable
from typing import Any, Literal, Protocol, Self, runtime_checkable

import msgspec

from holdfast.compat.schedules import ScheduleSpec, schedules_in_folder


class TriggerFire(msgspec.Struct, frozen=True):
    """One fire of a schedule. Times are seconds since 1970; `scheduled_at` is the time in the schedule, without jitter."""

    kind: Literal["cron", "webhook"]
    schedule_id: str
    workflow: str
    inputs: Any  # with the placeholders of the trigger filled in
    payload: Any
    fired_at: int
    scheduled_at: int
    is_catchup: bool = False


@runtime_checkable
class JobSink(Protocol):
    """Where fires go: the part of your system that starts jobs."""

    def enqueue(self, fire: TriggerFire) -> str | Awaitable[str | None] | None:
        """Accept a fire. A returned text is the reason why it was not accepted, and so is an exception."""


class SchedulerConfig(msgspec.Struct, frozen=True):
    """The schedules of a scheduler."""

    schedules: tuple[ScheduleSpec, ...] = ()

    @classmethod
    def from_dir(cls, folder: str | os.PathLike[str]) -> Self:
        """Read the schedule files of a folder, not of those beneath it. Raises InvalidSpec with the problems of all of them."""
        return cls(schedules_in_folder(folder))
