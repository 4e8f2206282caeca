"""What a scheduler hands to another system instead of starting a run: the fire, the sink, and the count of jobs not ended.

The other system runs the jobs, so it must say when one has ended. That count begins at 0 with the process.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Awaitable, Callable
from threading import Lock
from typing import Any, Final, Literal, Protocol, runtime_checkable

import msgspec

from holdfast.errors import Refused
from holdfast.triggers.starting import Occasion

SLOT: Final = (
    "sink"  # of the schedules whose fires go to a sink: an engine on the same database leaves them alone
)


class TriggerFire(msgspec.Struct, frozen=True):
    """One fire of a schedule. Times are seconds since 1970; `scheduled_at` is the time in the schedule, without jitter."""

    kind: Literal["cron", "webhook", "interval", "at"]
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


# Offers a fire to a sink and returns why the sink did not accept it, or None. Never raises.
Offer = Callable[[TriggerFire], Awaitable[str | None]]


class SinkFailed(Refused):
    """The sink did not accept a fire; the message is its own."""

    code = "sink_failed"


def fire_of(occasion: Occasion, inputs: Any) -> TriggerFire:
    by = occasion.by
    return TriggerFire(
        by.kind,  # type: ignore[arg-type]  # only schedules of these kinds are accepted
        occasion.spec.id,
        occasion.spec.workflow,
        inputs,
        occasion.trigger["payload"],
        occasion.at // 1_000,
        by.scheduled_at // 1_000,
        by.is_catchup,
    )


class InFlight:
    """The fires of each schedule whose jobs have not ended, the oldest first: whether each catches up. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._fires: defaultdict[str, deque[bool]] = defaultdict(deque)

    def begin(self, schedule_id: str, *, is_catchup: bool = False) -> None:
        with self._lock:
            self._fires[schedule_id].append(is_catchup)

    def end(self, schedule_id: str, *, is_catchup: bool | None = None) -> None:
        """The oldest job has ended, or the oldest fire of this sort was not accepted. Without any this changes nothing."""
        with self._lock:
            fires = self._fires[schedule_id]
            if is_catchup is not None and is_catchup in fires:
                fires.remove(is_catchup)
            elif is_catchup is None and fires:
                fires.popleft()

    def count(self, schedule_id: str) -> int:
        with self._lock:
            return len(self._fires[schedule_id])

    def catchups(self, schedule_id: str) -> int:
        with self._lock:
            return sum(self._fires[schedule_id])
