"""Results of pending calls that arrive later: callbacks. The sender was authenticated before.

    task id, or capability ──► the wait ──► its run, in memory ──► the door ──► resumed
                                 │
                    none yet ──► kept as an early callback         ended ──► its outcome

A callback for which there is no wait yet is stored, and then the wait is searched for; a pause is stored, and then
its early callback is searched for. Both store before they search, so one of them finds the other. Knows that callbacks
come early, twice and late. Does not know how they were sent.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from holdfast import limits
from holdfast.engine.events import CallbackReceived
from holdfast.errors import (
    AmbiguousTask,
    InvalidInputs,
    LimitExceeded,
    StoreUnavailable,
)
from holdfast.execution.large_results import large_head_of
from holdfast.execution.outputs import Outputs
from holdfast.plan.answers import TASK_ID_CHARS_MAX, AnswerFailed, refuse_failure
from holdfast.plan.graph import Call, Plan
from holdfast.runtime.apart import yield_after
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import Door
from holdfast.runtime.gate import Gate
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.runs import Runs
from holdfast.runtime.service import Service
from holdfast.runtime.waiters import Waiters
from holdfast.signing import Capability
from holdfast.store.artefacts import ArtefactError
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import EarlyResult, RunRow, TakenEarly, WaitRow
from holdfast.tools.failures import OutputTooLarge, described
from holdfast.values import (
    NULL,
    TERMINAL,
    Error,
    Millis,
    NotJson,
    RunId,
    is_text,
    job_id,
)
from holdfast.waits.checks import all_durable, answer_text
from holdfast.waits.tasks import Tasks, logged

log = logging.getLogger("holdfast")

EARLY_MS: Final = 86_400_000  # how long an early callback is kept
NAMED_MAX: Final = 100  # waits for one task id that are read

Reason = Literal["resumed", "parked", "already_resumed", "expired", "unknown_task"]
_REASONS: Final[dict[str, Reason]] = {
    "resume": "already_resumed",
    "poll": "already_resumed",
    "expired": "expired",
}


class Resumed(msgspec.Struct, frozen=True):
    resumed: bool
    reason: Reason
    run_id: str | None = None


class _Parking:
    """Early callbacks of one tenant that are being stored, and how many were."""

    def __init__(self) -> None:
        self.count = self.bytes = self.ended = 0

    def begins(self, size: int) -> None:
        self.count, self.bytes = self.count + 1, self.bytes + size

    def ends(self, size: int) -> None:
        self.count, self.bytes, self.ended = self.count - 1, self.bytes - size, self.ended + 1


class Callbacks(Service):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        door: Door,
        runs: Runs,
        waiters: Waiters,
        outputs: Outputs,
        gate: Gate,
    ) -> None:
        self._store, self._clock, self._door, self._runs = store, clock, door, runs
        self._waiters, self._outputs, self._gate = waiters, outputs, gate
        self._parking: dict[str, _Parking] = {}  # early callbacks that are being stored, by tenant
        # upper bounds of early callbacks and their bytes, by tenant
        self._kept: dict[str, tuple[int, int]] = {}
        self._tasks = Tasks()

    async def open(self, *, drive: bool) -> None:
        if drive:
            await self.search()

    async def restored(self) -> None:
        await self.search()

    def abandon(self, error: Exception | None = None) -> None:
        self._tasks.close()

    # ------------------------------------------------------------------------------------------------ callbacks

    async def resume(self, tenant: str, task_id: str, answer: Any, run_id: str | None = None) -> Resumed:
        """Deliver the callback of a call, by the task id that its service assigned. A result of type
        `JsonText` is only decoded if a rule of the step needs it."""
        if not task_id:
            raise InvalidInputs("the task_id is empty; send the id that the pending response contained")
        if not is_text(task_id) or len(task_id) > TASK_ID_CHARS_MAX:  # no step can ever wait for such an id
            return Resumed(False, "unknown_task")
        text = answer_text(answer)
        await yield_after(text)
        found = await self._named(tenant, task_id, run_id)
        taken: TakenEarly | None = None
        if found is None:
            if run_id is not None and not await self._is_open(tenant, run_id):
                return Resumed(False, "unknown_task")
            taken = TakenEarly(tenant, task_id, run_id or "")
            if not await self.keep_early(taken, await self._outputs.redacted(text)):
                return Resumed(False, "already_resumed")
            found = await self._named(tenant, task_id, run_id)  # the call may have paused meanwhile
            if found is None:
                return Resumed(False, "parked")
            if found.resolved_at is not None:
                await self._gate.commit(_without(taken))  # no step will wait for this callback any more
        if found.resolved_at is not None:
            return _resumed(found)
        row = await self._runs.row_of(found.run_id, tenant)
        if taken is None:
            return await self.deliver(row, found.path, found.attempt, text)
        return await self._give(row, found.path, found.attempt, text, taken)

    async def resume_by(self, capability: Capability, answer: Any) -> Resumed:
        """Deliver a callback by its callback URL, which is known before the step waits."""
        text = answer_text(answer)
        await yield_after(text)
        row = await self._store.run_by_id(capability.tenant, RunId(capability.run_id))
        if row is None:
            return Resumed(False, "unknown_task")
        path, attempt = capability.path, capability.attempt
        found = await self._store.wait_at(row.no, path, "callback", attempt)
        if found is not None and found.resolved_at is not None:
            return _resumed(found)  # known without loading the run
        return await self.deliver(row, path, attempt, text, may_park=True)

    async def _named(self, tenant: str, task_id: str, run_id: str | None) -> WaitRow | None:
        """The wait for a task id: the open one if there is one, otherwise the newest."""
        rows = await self._store.waits_named(tenant, task_id, NAMED_MAX)
        rows = [row for row in rows if run_id is None or row.run_id == run_id]
        still_open = [row for row in rows if row.resolved_at is None]
        if len(still_open) > 1:
            raise AmbiguousTask(task_id, len(still_open))
        return next(iter(still_open or rows), None)

    async def _is_open(self, tenant: str, run_id: str) -> bool:
        row = await self._store.run_by_id(tenant, RunId(run_id)) if is_text(run_id) else None
        return row is not None and row.status not in TERMINAL

    async def keep_early(self, early: TakenEarly, answer: bytes) -> bool:
        """Keep a callback until a step waits for it; returns whether this one is kept, and not another that came
        first."""
        now, tenant, size = self._clock.now(), early.tenant, len(answer)
        await self._check_room(tenant, now, size)
        batch = Batch()
        batch.expired_early.append((now,))
        expires_at = Millis(now + EARLY_MS)
        batch.early_results.append(EarlyResult(tenant, early.task_id, early.meant, answer, expires_at))
        parking = self._parking[tenant]
        try:
            await self._gate.commit(batch)
        finally:
            parking.ends(size)
        kept = await self._store.early_result(tenant, early.task_id, RunId(early.meant), now)
        # the call paused in the meantime and has consumed it
        is_taken = kept is None or kept[0] != early.meant
        return is_taken or kept == (early.meant, answer)

    async def _check_room(self, tenant: str, now: Millis, size: int) -> None:
        """Reserve room for one more early callback. Counting them takes longer the more there are, so it is done only
        when there might be no room."""
        count, total = self._kept.get(tenant, (limits.now.parked_callbacks_max, 0))
        if count >= limits.now.parked_callbacks_max or total + size > limits.now.parked_bytes_max:
            count, total = await self._count_kept(tenant, now)
        if count >= limits.now.parked_callbacks_max:
            raise LimitExceeded(
                "early_results",
                f"{limits.now.parked_callbacks_max:,} early callbacks wait for calls that have not paused yet",
                "parked_callbacks_max",
            )
        if total + size > limits.now.parked_bytes_max:
            raise LimitExceeded(
                "early_results_too_large",
                f"early callbacks would exceed {limits.size(limits.now.parked_bytes_max)} together",
                "parked_bytes_max",
            )
        self._kept[tenant] = (count + 1, total + size)
        self._parking.setdefault(tenant, _Parking()).begins(size)

    async def _count_kept(self, tenant: str, now: Millis) -> tuple[int, int]:
        """Early callbacks of a tenant and their bytes, including those being stored. If one of these was stored
        during the count, it may have been counted twice or not at all: then count again."""
        parking = self._parking.setdefault(tenant, _Parking())
        while True:
            ended = parking.ended
            count, total = await self._store.early_room(tenant, now)
            if parking.ended == ended:
                return count + parking.count, total + parking.bytes

    async def deliver(
        self,
        row: RunRow,
        path: str,
        attempt: int,
        answer: bytes,
        *,
        may_park: bool = False,
        taken: TakenEarly | None = None,
        by: str = "resume",
    ) -> Resumed:
        """Deliver the result of a call. `taken` is the early callback it came from, which the same commit removes."""
        if row.status in TERMINAL:
            return await self._late(row, path, attempt)
        resident = await self._runs.hold(row)
        if path not in resident.run.steps or resident.run.steps[path].attempt != attempt:
            return await self._late(row, path, attempt)
        event, files = await self._answered(resident.plan, row, path, attempt, answer, by)
        resident = await self._runs.hold(row)  # storing files may have taken a while
        step = resident.run.steps.get(path)
        if step is None or step.attempt != attempt or step.target is not None:
            return await self._late(row, path, attempt)
        is_early = step.wait is None
        if is_early and not (may_park and step.state == "running"):
            return await self._late(row, path, attempt)
        if is_early and step.parked is not None:
            await all_durable(self._door)
            return Resumed(False, "already_resumed", row.id)
        # a kept callback came in time, however late it is delivered
        is_new = by == "resume" and taken is None
        if step.wait is not None and is_new and _is_past(step.wait.until, self._clock.now()):
            return Resumed(False, "expired", row.id)

        def beside(batch: Batch) -> None:
            batch.artefacts += [(row.no, sha256, size, self._clock.now()) for sha256, size in files]
            if taken is not None:
                batch.taken_early.append(taken._replace(no=row.no))

        await self._runs.apply(resident, event, beside=beside)
        return Resumed(not is_early, "parked" if is_early else "resumed", row.id)

    async def _late(self, row: RunRow, path: str, attempt: int) -> Resumed:
        """Another callback came first, perhaps just now: return its outcome once it is durable."""
        await all_durable(self._door)
        found = await self._store.wait_at(row.no, path, "callback", attempt)
        if found is not None and found.resolved_at is None:
            raise StoreUnavailable("an earlier answer could not be written; try again")
        return _resumed(found, row.id)

    async def _answered(
        self, plan: Plan, row: RunRow, path: str, attempt: int, answer: bytes, by: str
    ) -> tuple[CallbackReceived, Sequence[tuple[str, int]]]:
        """A callback as an event: its output, by the same rules as for an immediate response, and the files stored
        for it."""
        node, outputs = plan.node(path), self._outputs
        assert isinstance(node, Call)
        files: Sequence[tuple[str, int]] = ()
        try:
            _refuse(await large_head_of(answer))
            text = answer if node.answer is None else await outputs.by_rule(node.answer, answer)
            if b'"file_refs"' in text and node.service is None:  # files of a worker are not on this machine
                text, files = await outputs.with_files(
                    text, row.tenant, job_id(row.id, path, attempt), from_outside=True
                )
            text = await outputs.redacted(text)
            if len(text) > limits.now.value_bytes_max:
                raise OutputTooLarge
            await yield_after(text)
        except (AnswerFailed, OutputTooLarge, NotJson, ArtefactError) as error:
            kind, message = described(error, outputs.secrets.redact)
            return CallbackReceived(path, attempt, NULL, Error(kind, message, path, attempt), by), files
        return CallbackReceived(path, attempt, msgspec.Raw(text), None, by), files

    # -------------------------------------------------------------------------------------- what came too early

    def paused(self, resident: ResidentRun, path: str, task_id: str) -> None:
        """A call has paused durably: if its callback has arrived already, deliver it."""
        self._waiters.search_begins(resident)
        search = self._tasks.begin(self.take_early, resident.run.tenant, resident.run.id, path, task_id)
        search.add_done_callback(lambda _: self._waiters.search_ends(resident))

    async def search(self) -> None:
        """Deliver early callbacks to the steps that wait for them. Used when it is unknown which were searched for
        before."""
        for wait in await self._store.early_waits(
            max(limits.now.parked_callbacks_max, limits.DEFAULTS.parked_callbacks_max)
        ):
            row = await self._store.run_by_no(wait.no)
            assert row is not None
            await logged(self.take_early, row.tenant, row.id, wait.path, wait.name)

    async def take_early(self, tenant: str, run_id: RunId, path: str, task_id: str) -> None:
        early = await self._store.early_result(tenant, task_id, run_id, self._clock.now())
        found = await self._named_at(tenant, task_id, run_id, path)
        if early is not None and found is not None:
            taken = TakenEarly(tenant, task_id, early[0])
            row = await self._runs.row_of(run_id, tenant)
            await self._give(row, path, found.attempt, early[1], taken)

    async def _give(self, row: RunRow, path: str, attempt: int, answer: bytes, taken: TakenEarly) -> Resumed:
        """Deliver an early callback to its step; if another callback came first, drop it."""
        resumed = await self.deliver(row, path, attempt, answer, taken=taken)
        if not resumed.resumed:
            await self._gate.commit(_without(taken))
        return resumed

    async def _named_at(self, tenant: str, task_id: str, run_id: RunId, path: str) -> WaitRow | None:
        rows = await self._store.waits_named(tenant, task_id, NAMED_MAX)
        return next((row for row in rows if (row.run_id, row.path) == (run_id, path)), None)


def _refuse(head: dict[str, Any] | None) -> None:
    """In a callback `success: false` is always a failure; an `error` is a failure unless the callback reports
    success."""
    if head and (head.get("success") is False or head.get("error") and head.get("success") is not True):
        refuse_failure({**head, "success": False})


def _resumed(wait: WaitRow | None, run_id: RunId | None = None) -> Resumed:
    if wait is None or wait.resolved_at is None:
        return Resumed(False, "unknown_task", run_id)
    return Resumed(False, _REASONS.get(wait.outcome or "", "expired"), wait.run_id)


def _is_past(until: Millis | None, now: Millis) -> bool:
    return until is not None and until <= now


def _without(early: TakenEarly) -> Batch:
    batch = Batch()
    batch.taken_early.append(early)
    return batch
