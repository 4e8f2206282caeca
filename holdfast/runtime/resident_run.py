"""A run in memory, and what the commits of its rows say about it: its tools, due time, keys, waits and schedule.

Pure: reads a run and makes records. Does not know when a row is committed (door.py) or how a run is loaded (resident.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from holdfast.engine.effects import KeyWork, WaitWork
from holdfast.engine.state import LACKS, Run, Step
from holdfast.plan.graph import Call, Plan, Way
from holdfast.store.records import KeyEnd, KeyName, WaitOpened
from holdfast.store.schedule_records import ScheduleEnd
from holdfast.values import Millis, Status

EVICT_MS: Final = 5_000  # a run whose next timer is later than this is evicted
SERVICE: Final = "service:"  # before the name of a service that steps need; no tool has such a name
ERROR_CHARS_MAX: Final = 500  # of a run's error, as a schedule shows it
# a snapshot is due after this much journal, and after as much as the last snapshot has
SNAPSHOT_BYTES: Final = 1024 * 1024


class ResidentRun:
    """A run in memory, and what its row in the store will say once every submitted row is durable."""

    __slots__ = (
        "epoch",
        "is_elsewhere",
        "is_settled",
        "journal_bytes",
        "lacks",
        "open_call",
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
        self.epoch = (
            run.epoch
        )  # the owner's epoch: incremented when a run is loaded, and stored with its next row
        self.trace = trace  # the traceparent with which it was started
        self.schedule: str | None = None  # the schedule that started it, if it counts against a limit
        self.slot = ""
        self.lacks = False  # a step was given back because its tool, or a worker for it, is not there
        # the row says that this process owns the run and that it is running, so it needs no update
        self.is_settled = False
        # what led to its only open call, if its last row was a plain one; then nothing has to be checked again
        self.open_call: Way | None = None
        self.is_elsewhere = False  # a copy to read: another node drives the run, and events for it are mail
        self.journal_bytes = 0
        # bytes of journal since the last snapshot after which the next one is written
        self.snapshot_at = SNAPSHOT_BYTES

    @property
    def bytes(self) -> int:
        """Roughly how many bytes must be read to load it."""
        return self.journal_bytes + self.run.kept_bytes + (self.run.shelf.bytes if self.run.signals else 0)


def has_answer(resident: ResidentRun | None, path: str) -> bool:
    """Whether the callback of an attempt arrived before the attempt returned `pending`."""
    step = None if resident is None else resident.run.steps.get(path)
    return step is not None and step.parked is not None and step.target is None


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


def need_of(plan: Plan, path: str, step: Step) -> str:
    """What a step lacks: the name of a tool, or of a service after `service:`."""
    node = plan.node(path)
    assert isinstance(node, Call)  # only calls are given back
    if node.service is None:
        return node.target
    if not node.service.is_given:
        return SERVICE + node.target
    return SERVICE + _given.decode(step.inputs).service


def lacking(resident: ResidentRun) -> Iterator[tuple[str, Step]]:
    """The steps that wait for a tool or worker."""
    return ((path, step) for path, step in resident.run.steps.items() if step.reason in LACKS)


def needs_of(resident: ResidentRun) -> str | None:
    """What the steps of a run lack: how many of them, and the oldest since when."""
    found: dict[str, tuple[int, Millis]] = {}
    for path, step in lacking(resident):
        need = need_of(resident.plan, path, step)
        count, since = found.get(need, (0, step.lacks_since))
        found[need] = count + 1, min(since, step.lacks_since)
    return msgspec.json.encode(found).decode() if found else None


class _Given(msgspec.Struct):
    service: str


_given: Final = msgspec.json.Decoder(_Given)


def wake_at_of(run: Run) -> Millis | None:
    """When an evicted run is due. An accepted run that has not started is due at once, as soon as there is room for it."""
    return run.wake_at if run.begun else run.at


def may_evict(run: Run, at: Millis) -> bool:
    if run.status not in ("waiting", "pending"):
        return False
    # It ends at the first timer that is due soon: those of many items are due together, one event after the other.
    return all(due - at > EVICT_MS for due in run.timers.values())
