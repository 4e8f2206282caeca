"""A run in memory, and what the commits of its rows say about it: its tools, due time, keys, waits and schedule.

Pure: reads a run and makes records. Does not know when a row is committed (door.py) or how a run is loaded (resident.py).
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.engine.effects import KeyWork, WaitWork
from holdfast.engine.state import Run
from holdfast.plan.graph import Call, Plan
from holdfast.store.records import KeyEnd, KeyName, ScheduleEnd, WaitOpened
from holdfast.values import Millis, Status

EVICT_MS: Final = 5_000  # a run whose next timer is later than this is evicted
ERROR_CHARS_MAX: Final = 500  # of the last error that a schedule shows
# a snapshot is due after this much journal, and after as much as the last snapshot has
SNAPSHOT_BYTES: Final = 1024 * 1024


class ResidentRun:
    """A run in memory, and what its row in the store will say once every submitted row is durable."""

    __slots__ = (
        "epoch",
        "is_elsewhere",
        "is_settled",
        "journal_bytes",
        "lacks_tool",
        "needs",
        "owned",
        "plan",
        "run",
        "schedule",
        "slot",
        "snapshot_at",
        "status",
        "trace",
    )

    def __init__(self, run: Run, plan: Plan, *, owned: bool, status: Status | None, trace: str = "") -> None:
        self.run, self.plan, self.owned, self.status = run, plan, owned, status
        self.epoch = run.epoch  # of its owner: incremented when a run is loaded, and stored with its next row
        self.trace = trace  # the traceparent with which it was started
        self.schedule: str | None = None  # the schedule that started it, if it counts against a limit
        self.slot = ""
        self.needs: str | None = None
        self.lacks_tool = False  # a step was given back because its tool is not registered here
        # the row says that this process owns the run and that it is running, so it needs no update
        self.is_settled = False
        self.is_elsewhere = False  # a copy to read: another node drives the run, and events for it are mail
        self.journal_bytes = 0
        # bytes of journal since the last snapshot after which the next one is written
        self.snapshot_at = SNAPSHOT_BYTES

    @property
    def bytes(self) -> int:
        """Roughly how many bytes must be read to load it."""
        return self.journal_bytes + self.run.kept_bytes + (self.run.shelf.bytes if self.run.signals else 0)


def wait_opened(run: Run, work: WaitWork) -> WaitOpened:
    path, attempt, wait, _ = work
    detail = bytes(wait.detail).decode()
    return WaitOpened(run.tenant, wait.kind, wait.name, run.no, path, attempt, wait.since, wait.until, detail)


def key_entry(resident: ResidentRun, work: KeyWork, at: Millis) -> tuple[KeyName, KeyEnd | None]:
    """The change of a concurrency key: a step asks for it (no end), or releases it."""
    run, scope = resident.run, "" if work.key.is_global else resident.run.id
    name = KeyName(run.tenant, scope, work.key.text, run.no, work.path, at)
    return name, None if work.asks else _left_behind(resident, work, at)


def _left_behind(resident: ResidentRun, work: KeyWork, at: Millis) -> KeyEnd:
    """What a step leaves to the next holder of its key: its output if it succeeded, otherwise nothing."""
    if work.output is None:
        return KeyEnd()
    node = resident.plan.node(work.path)
    ttl_ms = node.key.ttl_ms if isinstance(node, Call) and node.key is not None else None
    return KeyEnd(bytes(work.output), None if ttl_ms is None else Millis(at + ttl_ms))


def schedule_end(resident: ResidentRun, schedule: str) -> ScheduleEnd:
    run = resident.run
    error = None
    if run.status != "completed":
        error = run.error.message[:ERROR_CHARS_MAX] if run.error is not None else run.status
    return ScheduleEnd(run.no, run.tenant, schedule, resident.slot, error)


def needed_tools(resident: ResidentRun) -> str | None:
    """The tools that a run waits for; none if it also waits for something else."""
    run = resident.run
    if not run.active or run.over:
        return None
    targets = set()
    for path, one in run.steps.items():
        if one.state == "running" or one.state == "ready" and one.reason != "no_tool":
            return None
        if one.state == "ready":
            targets.add(resident.plan.node(path).target)  # type: ignore[union-attr]  # only calls are given back
    return msgspec.json.encode(sorted(targets)).decode() if targets else None


def wake_at_of(run: Run) -> Millis | None:
    """When an evicted run is due. An accepted run that has not started is due at once, as soon as there is room for it."""
    return run.wake_at if run.begun else run.at


def may_evict(run: Run, at: Millis, needs: str | None) -> bool:
    if run.status not in ("waiting", "pending") and needs is None:
        return False
    wake_at = run.wake_at
    return wake_at is None or wake_at - at > EVICT_MS
