"""The records of a schedule file: what starts a run, and how.

    ScheduleSpec ─► trigger ─► CronTrigger | IntervalTrigger | AtTrigger        (kinds with a clock)
                               WebhookTrigger | RunTrigger | FileTrigger | SourceTrigger
                               PluginTrigger                                        (a clock; made from a plugin, never written)

Knows what each kind holds. Must not know the keys of the text, or what is allowed.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal, get_args

import msgspec

from holdfast.spec.cron import Dst
from holdfast.spec.document import Document
from holdfast.spec.moments import Moment

TriggerKind = Literal["cron", "interval", "at", "webhook", "run", "file", "source", "plugin"]
Overlap = Literal["skip", "buffer_one", "buffer_all", "cancel_previous", "allow"]
MissedRunPolicy = Literal["skip", "run_once", "run_all"]
Locking = Literal["require_global", "prefer_global", "node_local"]
Dedup = Literal["delivery", "body", "none"]
EndStatus = Literal["completed", "failed", "cancelled", "interrupted"]

PLUGIN: Final = "plugin:"  # the prefix of the ids of schedules that plugins declare, and of no others
PRIORITY: Final = 1_000  # the default; of schedules that are due together, the lower number starts first


class CronTrigger(msgspec.Struct, frozen=True):
    """With several expressions, the schedule is due whenever one of them matches."""

    kind: ClassVar[TriggerKind] = "cron"
    expression: tuple[str, ...]
    timezone: str = "UTC"
    jitter_secs: int = 0


class IntervalTrigger(msgspec.Struct, frozen=True):
    kind: ClassVar[TriggerKind] = "interval"
    every: str
    jitter_secs: int = 0


class AtTrigger(msgspec.Struct, frozen=True):
    kind: ClassVar[TriggerKind] = "at"
    at: tuple[Moment, ...]
    jitter_secs: int = 0


class WebhookTrigger(msgspec.Struct, frozen=True):
    """`secret_env` names variables that hold a secret; more than one while a secret is being replaced."""

    kind: ClassVar[TriggerKind] = "webhook"
    path: str
    secret_env: tuple[str, ...] = ()


class RunTrigger(msgspec.Struct, frozen=True):
    """The end of a run of another workflow."""

    kind: ClassVar[TriggerKind] = "run"
    workflow: str
    statuses: tuple[EndStatus, ...] = ("completed",)
    delay_secs: int = 0


class FileTrigger(msgspec.Struct, frozen=True):
    """A file that has arrived in a folder, once its size and time have not changed for a while."""

    kind: ClassVar[TriggerKind] = "file"
    path: str
    pattern: str = "*"
    stable_secs: int = 5
    identity: Literal["path_size_time", "content"] = "path_size_time"


class SourceTrigger(msgspec.Struct, frozen=True):
    """An async generator of events, named as module:function."""

    kind: ClassVar[TriggerKind] = "source"
    source: str


class PluginTrigger(msgspec.Struct, frozen=True):
    """A schedule that a plugin declares. `cron` is an expression of 5 to 7 fields, an `@name` or an interval, in UTC."""

    kind: ClassVar[TriggerKind] = "plugin"
    plugin: str
    cron: str
    jitter_ms: int = 0
    priority: int = PRIORITY
    description: str = ""
    config_json: str = ""


Trigger = (
    CronTrigger
    | IntervalTrigger
    | AtTrigger
    | WebhookTrigger
    | RunTrigger
    | FileTrigger
    | SourceTrigger
    | PluginTrigger
)
ClockTrigger = CronTrigger | IntervalTrigger | AtTrigger | PluginTrigger
CLOCK_KINDS: Final = frozenset(record.kind for record in get_args(ClockTrigger))


class Between(msgspec.Struct, frozen=True, rename={"from_": "from"}):
    """From a moment up to but not including another one; a date as its end includes the whole day."""

    from_: Moment
    to: Moment


class Exclude(msgspec.Struct, frozen=True):
    """Times at which a schedule does not fire. An expression excludes every instant at which the local clock matches it.

    `calendar` names calendars of the file, whose contents have been added to the other fields."""

    dates: tuple[Moment, ...] = ()
    between: tuple[Between, ...] = ()
    expressions: tuple[str, ...] = ()
    calendar: tuple[str, ...] = ()

    def __add__(self, other: Exclude) -> Exclude:
        return Exclude(
            self.dates + other.dates,
            self.between + other.between,
            self.expressions + other.expressions,
            self.calendar,
        )


class Definition(msgspec.Struct, frozen=True):
    """A schedule, as its author wrote it."""

    id: str
    workflow: str
    trigger: Trigger
    inputs: Any = None
    enabled: bool = True
    max_concurrent: int = 1
    overlap: Overlap = "skip"
    missed_run_policy: MissedRunPolicy = "skip"
    max_catchup: int = 1_000
    grace_secs: int = 60
    dst: Dst = Dst()
    start_at: Moment | None = None
    end_at: Moment | None = None
    exclude: Exclude = Exclude()
    locking: Locking = "require_global"
    pause_after_failures: int = 0
    strict_templates: bool = False
    echo_inputs: bool = True
    dedup: Dedup = "delivery"
    allow_unsigned: bool = False


class Place(msgspec.Struct, frozen=True):
    """Where a schedule was read from."""

    document: Document | None = None
    source: str = ""
    at: tuple[str | int, ...] = ()
