"""What the author of a scheduled plugin writes: a class with schedules, and what runs when one of them is due.

Knows the shapes. Must not know how plugins are found, when a schedule is due, or what a run is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from enum import StrEnum

import msgspec

from holdfast.spec.triggers import PRIORITY


class MissedRunPolicy(StrEnum):
    """What happens to occurrences while no engine was awake."""

    RUN_ONCE = "run_once"
    SKIP = "skip"
    RUN_ALL = "run_all"
    # The same under the names that plugins written in Rust use.
    RunOnce = RUN_ONCE
    Skip = SKIP
    RunAll = RUN_ALL


class LockingHint(StrEnum):
    """Which nodes fire a schedule: one of them, or each for itself. The database decides, so `prefer_global` is `require_global`."""

    REQUIRE_GLOBAL = "require_global"
    PREFER_GLOBAL = "prefer_global"
    NODE_LOCAL = "node_local"
    RequireGlobal = REQUIRE_GLOBAL
    PreferGlobal = PREFER_GLOBAL
    NodeLocal = NODE_LOCAL


class Schedule(msgspec.Struct, frozen=True):
    """One schedule of a plugin. Its id is unique within the plugin.

    `cron` is an interval (`30s`, `5m`, `1h30m`), a cron expression of 5, 6 or 7 fields, or a shortcut such as `@daily`, in UTC. `config_json` is
    for the plugin itself: it is stored and shown, and never parsed.
    """

    id: str
    cron: str
    description: str = ""
    jitter_ms: int = 0
    missed_run_policy: MissedRunPolicy = MissedRunPolicy.RUN_ONCE
    locking: LockingHint = LockingHint.REQUIRE_GLOBAL
    config_json: str = ""


class ScheduledRunCtx(msgspec.Struct, frozen=True):
    """What a run of a plugin is about. `scheduled_at_ms` is the time in the schedule, without jitter, in milliseconds since 1970.

    `run_count` counts the runs of the schedule since the engine was started, from 1; `total_run_count` counts all of them. `tenant_id` is
    None for the tenant `default`; `site_id` is always None.
    """

    schedule_id: str
    scheduled_at_ms: int
    run_count: int = 1
    is_catchup: bool = False
    tenant_id: str | None = None
    site_id: str | None = None
    total_run_count: int = 1


class ScheduledPlugin(ABC):
    """Background work on schedules. Name and ids must be the same after a restart: they identify what has run.

    class Cleaner(ScheduledPlugin):
        def name(self) -> str:
            return "cleaner"

        def schedules(self) -> list[Schedule]:
            return [Schedule("hourly", "@hourly"), Schedule("sweep", "90s", jitter_ms=5000)]

        def run(self, ctx: ScheduledRunCtx) -> None:
            print("cleaning for", ctx.schedule_id)
    """

    timeout_secs: float | None = None  # how long one run may take; None: as long as it likes

    @abstractmethod
    def name(self) -> str:
        """The name of the plugin, unique among the plugins of an engine."""

    def priority(self) -> int:
        """Of plugins that are due at the same time, the one with the lower number starts first."""
        return PRIORITY

    @abstractmethod
    def schedules(self) -> Sequence[Schedule]:
        """The schedules of the plugin. It is called once, when the plugin is loaded."""

    @abstractmethod
    def run(self, ctx: ScheduledRunCtx) -> str | Awaitable[str | None] | None:
        """Do the work of one occurrence, in a thread, or as a coroutine if it is `async def`. An exception is a failed run, and so is
        a returned text, which is its message."""

    def cleanup(self) -> str | Awaitable[str | None] | None:
        """Release what the plugin holds. It is called when the engine closes; an error is logged."""
        return None
