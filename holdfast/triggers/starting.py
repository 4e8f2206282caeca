"""From an occurrence of a schedule to the run that it starts: which workflow, and with which inputs.

Knows templates and what a refused start means for the ledger. Does not know cursors, or when something is due.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from holdfast.engine.events import TriggeredBy
from holdfast.errors import (
    HoldfastError,
    InvalidInputs,
    InvalidSpec,
    LimitExceeded,
    NotFound,
    Problem,
    Refused,
    Unavailable,
)
from holdfast.runtime.starts import Starts
from holdfast.schedule.of_spec import schedule_of
from holdfast.schedule.records import Schedule
from holdfast.schedule.template import Rendered, render
from holdfast.spec.notation import Definition
from holdfast.spec.schedule import schedule_from_stored
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.values import Millis, encode, rfc3339

KNOWN_MAX: Final = 4_096  # schedules that are kept parsed: some kilobytes each
MESSAGE_CHARS_MAX: Final = 1_000
WARNINGS_MAX: Final = 20  # of one row of the ledger


class Known(NamedTuple):
    """A stored schedule, parsed. `clock` is the part that decides when it fires, if a clock does."""

    spec: ScheduleSpec
    clock: Schedule | None

    @property
    def run_limit(self) -> int:
        """How many of its runs may be open at once; 0 for any number."""
        return 0 if self.spec.overlap == "allow" else self.spec.max_concurrent


@lru_cache(maxsize=KNOWN_MAX)
def known(body: str) -> Known:
    try:
        spec = schedule_from_stored(body)
    except msgspec.MsgspecError as error:
        raise InvalidSpec([Problem("unreadable", f"the stored schedule is damaged: {error}")]) from error
    return Known(spec, schedule_of(spec))


class Occasion(NamedTuple):
    """Why a schedule fires: the occurrence, its payload, and the counts of its runs so far."""

    tenant: str
    spec: ScheduleSpec
    by: TriggeredBy
    at: Millis  # when it fires
    payload: Any = msgspec.UNSET  # unset: an empty object
    run_count: int = 0  # with this one, since the process began
    total_run_count: int = 0

    @property
    def trigger(self) -> dict[str, Any]:
        """What `{{trigger.…}}` can refer to."""
        by, spec = self.by, self.spec
        return {
            "payload": {} if self.payload is msgspec.UNSET else self.payload,
            "schedule_id": spec.id,
            "workflow": spec.workflow,
            "kind": by.kind,
            "scheduled_at": rfc3339(Millis(by.scheduled_at)),
            "fired_at": rfc3339(self.at),
            "is_catchup": by.is_catchup,
        }


class Target(NamedTuple):
    """What an occurrence starts. `warnings` are stored in its ledger row."""

    definition: Definition
    inputs: dict[str, Any]
    number: int | None = None  # of the release, if the workflow was found by name
    warnings: tuple[str, ...] = ()


# Finds what an occurrence starts; None passes on to the next finder. The last one searches the published workflows.
Resolver = Callable[[Occasion], Awaitable[Target | None]]


class UnresolvedTemplate(Refused):
    """Some placeholders in the inputs of a schedule lead nowhere, and the schedule is strict about it."""

    code = "unresolved_template"

    def __init__(self, schedule_id: str, placeholders: tuple[str, ...]) -> None:
        named = ", ".join(f"{{{{{path}}}}}" for path in placeholders[:WARNINGS_MAX])
        super().__init__(
            f"schedule {schedule_id}: the payload has no value for {named}; add a default in the workflow, or leave out "
            "strict_templates"
        )
        self.placeholders = placeholders


class Targets:
    def __init__(self, starts: Starts) -> None:
        self._starts = starts
        self.resolvers: list[Resolver] = []

    async def of(self, occasion: Occasion, rendered: Rendered | None = None) -> Target:
        """Determine what an occurrence starts; raises if it cannot be started. `rendered` are its inputs, if they are
        known."""
        for resolver in self.resolvers:
            if (found := await resolver(occasion)) is not None:
                return found
        definition, number = await self._starts.published(occasion.spec.workflow, occasion.tenant)
        inputs, warnings = inputs_of(occasion, rendered)
        return Target(definition, inputs, number, warnings)


def inputs_of(occasion: Occasion, rendered: Rendered | None = None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The inputs of a schedule with the trigger filled in, and warnings about placeholders that lead nowhere."""
    spec = occasion.spec
    if spec.inputs is None:
        return {}, ()
    rendered = rendered or render(spec.inputs, occasion.trigger)
    check_strict(spec, rendered)
    if not isinstance(rendered.value, dict):
        raise InvalidInputs(f"schedule {spec.id}: the inputs of a run must be an object")
    return rendered.value, warnings_of(rendered)


def check_strict(spec: ScheduleSpec, rendered: Rendered) -> None:
    """Raise UnresolvedTemplate if a strict schedule has placeholders that lead nowhere."""
    if rendered.unresolved and spec.strict_templates:
        raise UnresolvedTemplate(spec.id, rendered.unresolved)


def warnings_of(rendered: Rendered) -> tuple[str, ...]:
    found = rendered.unresolved[:WARNINGS_MAX]
    return tuple(f"{{{{{path}}}}} was left as it is: nothing has that name" for path in found)


def reason_of(error: Exception) -> str:
    """Why an occurrence did not become a run, as a word of the ledger."""
    match error:
        case NotFound():
            return "unknown_workflow"
        case InvalidInputs():
            return "invalid_inputs"
        case LimitExceeded():
            return error.limit or error.code
        case HoldfastError():
            return error.code
        case _:
            return "error"


def is_final(error: BaseException) -> bool:
    """Whether the same start would fail again: then the occurrence has failed. Else it is tried later."""
    return not isinstance(error, Unavailable)


def detail_of(
    *, message: str = "", warnings: tuple[str, ...] = (), shifted_from: str = "", late: str = ""
) -> str | None:
    """The JSON details of a ledger row."""
    if not (message or warnings or shifted_from or late):
        return None
    said = {
        "message": message[:MESSAGE_CHARS_MAX],
        "warnings": warnings,
        "shifted_from": shifted_from,
        "late": late,
    }
    kept = {key: value for key, value in said.items() if value}
    return encode(kept).decode()
