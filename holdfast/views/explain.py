"""Explains why a run makes no progress: for each open step, what it waits for, since when, until when, and what unblocks it.

Reads committed rows and the lock of the file. Changes nothing, starts nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from holdfast import limits
from holdfast.engine import state
from holdfast.engine.codec import decode_row
from holdfast.engine.events import TriggeredBy
from holdfast.engine.state import Run, Step, timer_key
from holdfast.plan.graph import COMPENSATE, Call, FanOut, Plan
from holdfast.runtime.fatal_runs import set_aside_of
from holdfast.runtime.load import load_run_in_turns
from holdfast.runtime.resident_run import SERVICE, need_of
from holdfast.store.base import PIECE_BYTES, Store
from holdfast.store.ownership import NodeRow
from holdfast.store.records import AssignmentRow, RunRow, SetAside, WorkerRow
from holdfast.values import TERMINAL, Millis, RunNo
from holdfast.views.memory import Memory
from holdfast.views.open_waits import earliest, poll_around, unblocked_by
from holdfast.views.steps import Steps
from holdfast.workers.outages import how_to_serve, time_text
from holdfast.workers.worker import names_in

ROWS_READ_MAX: Final = 10_000  # rows of a journal that are read to find since when
ROWS_AT_THE_END: Final = 2_000
ROWS_AT_A_TIME: Final = 200


class Reason(msgspec.Struct, frozen=True):
    """One reason. `path` is empty if it concerns the run itself; `unblocks` is a sentence that may contain a command."""

    path: str
    reason: str
    since: Millis
    until: Millis | None
    unblocks: str


class Explanation(msgspec.Struct, frozen=True):
    run_id: str
    status: str
    driven_by: int | None  # the process that drives it now
    reasons: list[Reason]
    more: int = 0  # reasons beyond the limit explain_reasons_max
    trigger: TriggeredBy | None = None  # the occurrence of a schedule that started it


class Around:
    """What is known besides the rows of a run: the owner of the file, its workers. This class knows only what the file contains."""

    def __init__(
        self,
        holder: Mapping[str, object],
        epoch: int,
        jobs: Mapping[str, AssignmentRow],
        workers: Sequence[WorkerRow],
        now: Millis | None = None,
    ) -> None:
        self.pid = holder.get("pid") if holder else None
        self.epoch, self.jobs, self._workers, self.now = epoch, jobs, workers, now

    def drives(self, row: RunRow) -> bool:
        return self.pid is not None and row.owner is not None and row.owner_epoch == self.epoch

    def leaves(self, row: RunRow) -> bool:
        """Return whether the process that has the file leaves this run to another one."""
        return row.owner is not None and not self.drives(row)

    def able(self, tenant: str, service: str) -> int:
        """Return how many workers serve this service now."""
        return sum(
            worker.tenant == tenant and worker.status == "online" and service in names_in(worker.services)
            for worker in self._workers
        )

    def unserved_since(self, tenant: str, service: str) -> Millis | None:
        """Return since when a service has had no worker, if one is remembered."""
        heard = [
            worker.heard_at
            for worker in self._workers
            if worker.tenant == tenant and service in names_in(worker.services)
        ]
        return max(heard, default=None)

    def other_node(self, row: RunRow) -> str | None:
        """Return the name of another node that shares the database and drives the run."""
        return None

    def trouble(self, no: RunNo) -> tuple[str, str] | None:
        """Return a reason that concerns the whole run, and what unblocks it."""
        return None

    def lines_of(self, no: RunNo) -> Mapping[str, tuple[str, int]]:
        """Return the limits that starts of a run wait for, by path."""
        return {}

    def lease_until(self, no: RunNo, path: str, attempt: int) -> Millis | None:
        return None


class AroundLive(Around):
    """The same, from the memory of the engine that owns the file."""

    def __init__(
        self, memory: Memory, epoch: int, jobs: Mapping[str, AssignmentRow], nodes: Sequence[NodeRow]
    ) -> None:
        super().__init__({"pid": os.getpid()}, epoch, jobs, (), memory.now)
        self._memory = memory
        self._others = {node.epoch: node for node in nodes if not node.is_over and node.epoch != epoch}

    def drives(self, row: RunRow) -> bool:
        return row.no in self._memory.residents or super().drives(row) or self.other_node(row) is not None

    def leaves(self, row: RunRow) -> bool:
        return not self._memory.drives(row.no) or super().leaves(row)

    def other_node(self, row: RunRow) -> str | None:
        other = None if row.owner_epoch is None else self._others.get(row.owner_epoch)
        return None if other is None else other.name

    def able(self, tenant: str, service: str) -> int:
        return self._memory.workers_of(tenant, service)

    def unserved_since(self, tenant: str, service: str) -> Millis | None:
        return self._memory.unserved_since(tenant, service)

    def trouble(self, no: RunNo) -> tuple[str, str] | None:
        if (found := self._memory.set_aside(no)) is not None:
            return aside_reason(found)
        if self._memory.is_stalled:
            return "store_unavailable", "the database becomes writable again; the server keeps trying"
        return None

    def lines_of(self, no: RunNo) -> Mapping[str, tuple[str, int]]:
        return self._memory.lines_of(no)

    def lease_until(self, no: RunNo, path: str, attempt: int) -> Millis | None:
        left = self._memory.lease_secs(no, path, attempt)
        assert self.now is not None
        return None if left is None else Millis(int(self.now + left * 1000))


def aside_reason(found: SetAside) -> tuple[str, str]:
    return "set_aside", f"{found.retry} ({found.reason})"


async def explain(
    store: Store, row: RunRow, plan: Plan, *, holder: Mapping[str, object], epoch: int
) -> Explanation:
    """Explain a run in a file. `holder` is the process that owns the file, `epoch` the newest incarnation of the engine on it."""
    return await _explained(
        store, row, plan, Around(holder, epoch, await _jobs(store, row), await store.workers())
    )


async def explain_live(store: Store, memory: Memory, row: RunRow, plan: Plan) -> Explanation:
    """Explain a run from the engine that owns the file."""
    jobs = await _jobs(store, row)
    return await _explained(store, row, plan, AroundLive(memory, store.epoch, jobs, await store.nodes()))


async def _jobs(store: Store, row: RunRow) -> dict[str, AssignmentRow]:
    return {job.path: job for job in await store.assignments_of_run(row.no)}


async def _explained(store: Store, row: RunRow, plan: Plan, around: Around) -> Explanation:
    if row.status in TERMINAL:
        over = Reason("", row.status, row.finished_at or row.created_at, None, _RERUN.format(row.id))
        return Explanation(row.id, row.status, None, [over])
    aside = await set_aside_of(store, row.no)
    if aside is not None:  # folding it may crash the process
        word, unblocks = aside_reason(aside)
        return Explanation(row.id, row.status, None, [Reason("", word, row.created_at, None, unblocks)])
    stored = await store.load(row.no)
    assert stored is not None
    run = await load_run_in_turns(store, stored)
    is_driven = around.drives(row)
    looker = _Looker(
        run, plan, await _since(store, run), await _holders(store, run), around, is_driven=is_driven
    )
    whole = _of_the_run(run, row, around)
    found = [*whole, *looker.of_steps(), *looker.of_scopes()]
    drives = around.pid if is_driven and isinstance(around.pid, int) else None
    return Explanation(
        row.id,
        "waiting" if any(one.reason == "not_driven" for one in whole) else row.status,
        drives,
        found[: limits.now.explain_reasons_max],
        max(0, len(found) - limits.now.explain_reasons_max),
    )


_RERUN: Final = "nothing, it has finished; holdfast runs rerun {} re-runs it as a new run"


async def _since(store: Store, run: Run) -> dict[str, Millis]:
    """Return since when each open step is in its current state. Only the end of a very long journal is read."""
    if run.seq > ROWS_READ_MAX:
        return await _last_moved(store, run)
    steps, after = Steps(), 0
    states: dict[str, tuple[str, str, int]] = {}
    since: dict[str, Millis] = {}
    while rows := await store.journal(run.no, after, ROWS_AT_A_TIME, PIECE_BYTES):
        for seq, _, at, _, body in rows:
            for step in steps.take(*decode_row(body), Millis(at)):
                state = (step.status, step.reason, step.attempt)
                if states.get(step.path) != state:
                    states[step.path], since[step.path] = state, Millis(at)
                if step.is_over:
                    states.pop(step.path, None)
                    since.pop(step.path, None)
            after = seq
        await asyncio.sleep(0)
    return since


async def _last_moved(store: Store, run: Run) -> dict[str, Millis]:
    since: dict[str, Millis] = {}
    for _, _, at, _, body in await store.journal(run.no, run.seq - ROWS_AT_THE_END, ROWS_AT_THE_END):
        event, decisions = decode_row(body)
        for part in (event, *decisions):
            path = getattr(part, "path", None)
            if path in run.steps or path in run.scopes:
                since[path] = Millis(at)
    return since


async def _holders(store: Store, run: Run) -> dict[str, str]:
    """Return the holders of the idempotency keys that steps wait for, by step path."""
    holders: dict[str, str] = {}
    for path, step in run.steps.items():
        if step.key is not None and step.reason == "key" and len(holders) < limits.now.explain_reasons_max:
            held = await store.key_holder(run.tenant, "" if step.key.is_global else run.id, step.key.text)
            holders[path] = f"step {held[1]} of run {held[0]}" if held else "the step"
    return holders


def _of_the_run(run: Run, row: RunRow, around: Around) -> list[Reason]:
    reasons = []
    if (trouble := around.trouble(run.no)) is not None:
        reasons.append(Reason("", trouble[0], run.at, None, trouble[1]))
    if run.end is not None:
        reasons.append(_ending(run, run.end))
    elif run.ending:
        until = min((at for key, at in run.timers.items() if key.startswith("grace ")), default=None)
        word = "cancelling" if run.ending == "cancelled" else run.ending
        reasons.append(
            Reason("", word, run.at, until, "the end of the running attempts, or of their grace period")
        )
    go_on = f"holdfast run --continue {row.id}"
    if around.pid is None:
        reasons.append(Reason("", "not_driven", run.at, None, f"{go_on} (no process drives it)"))
    elif (node := around.other_node(row)) is not None:
        reasons.append(Reason("", "other_node", run.at, None, f"node {node}, which drives it"))
    elif around.leaves(row):
        other = f"{go_on}, once process {around.pid}, which has the file and drives other runs, is done"
        reasons.append(Reason("", "not_driven", run.at, None, other))
    elif not run.begun:
        reasons.append(Reason("", "slot", run.at, None, "room for one more run in memory (limit resident)"))
    return reasons


def _ending(run: Run, end: state.End) -> Reason:
    """Why a run that has failed or was cancelled has not ended yet."""
    until, left = run.timers.get(timer_key("grace", "")), len(run.undo)
    if end.at and f"{end.at}.{COMPENSATE}" in run.steps:
        rest = f", and of {left} more" if left else ""
        failed = f"; {len(end.failed)} failed" if end.failed else ""
        unblocks = f"the end of the compensation of {end.at}{rest}{failed}; then the run ends {end.status}"
        return Reason("", "compensating", run.at, until, unblocks)
    return Reason("", "finally", run.at, until, f"the end of its final steps; then the run ends {end.status}")


class _Looker:
    """Finds the reason for each open step and scope of a run."""

    def __init__(
        self,
        run: Run,
        plan: Plan,
        since: Mapping[str, Millis],
        holders: Mapping[str, str],
        around: Around,
        *,
        is_driven: bool,
    ) -> None:
        self._run, self._plan, self._since, self._holders = run, plan, since, holders
        self._around, self._is_driven = around, is_driven
        self._lines = around.lines_of(run.no)

    def of_steps(self) -> list[Reason]:
        reasons = [(path, self._of_step(path, step)) for path, step in self._run.steps.items()]
        return [
            msgspec.structs.replace(one, until=earliest(self._run, path, one.until)) for path, one in reasons
        ]

    def of_scopes(self) -> list[Reason]:
        """Return reasons for children of a fan-out that wait for a slot."""
        reasons = []
        for path, scope in self._run.scopes.items():
            left, node = scope.count - scope.next, self._plan.node(path)
            if left > 0 and isinstance(node, FanOut) and not self._run.ending:
                which = (
                    "the one that is open" if scope.open == 1 else f"one of the {scope.open} that are open"
                )
                text = f"the end of {which}; {left} of {scope.count} wait"
                reasons.append(self._reason(path, "slot", None, f"{text} (concurrency {node.concurrency})"))
        return reasons

    def _of_step(self, path: str, step: Step) -> Reason:
        if (wait := step.wait) is not None:
            return Reason(path, wait.kind, wait.since, wait.until, unblocked_by(self._run, path, wait))
        if step.key is not None and step.reason == "key":
            holder = self._holders.get(path, "the step")
            return self._reason(
                path, "key", None, f"the end of {holder} that holds the key {step.key.text!r}"
            )
        if step.state == "running":
            return self._at_work(path, step)
        if step.reason in state.LACKS:
            return self._lacking(path, step)
        if step.state == "ready":
            return self._ready(path, step)
        timers = self._run.timers
        if (due := timers.get(timer_key("retry", path))) is not None:
            return self._retrying(path, step, due)
        if (due := timers.get(timer_key("delay", path))) is not None:
            return self._delayed(path, due)
        return self._reason(path, step.state, None, "the answer that it waits for")

    def _delayed(self, path: str, due: Millis) -> Reason:
        if (poll := poll_around(self._plan, path)) is not None:
            since = self._since.get(path, self._run.at)
            return Reason(poll, "poll", since, due, "its next call, if the result meets the condition")
        return self._reason(path, "timer", due, "that time")

    def _retrying(self, path: str, step: Step, due: Millis) -> Reason:
        service = self._service(path)
        if service is not None and not self._around.able(self._run.tenant, service):
            return self._reason(
                path, "no_worker", due, f"a worker that serves {service!r}, at its next attempt"
            )
        return self._reason(
            path, "retry", due, f"the time of its next attempt; attempt {step.attempt} failed"
        )

    def _at_work(self, path: str, step: Step) -> Reason:
        if (job := self._around.jobs.get(path)) is not None and job.attempt == step.attempt:
            return self._at_a_worker(path, job)
        if not self._is_driven:
            text = f"continuing the run; attempt {step.attempt} was running when its process ended"
            return self._reason(path, "lost", None, text)
        if (line := self._lines.get(path)) is not None:
            return self._reason(path, "slot", None, _what_is_full(*line))
        service = self._service(path)
        if service is not None and step.target is None and not self._around.able(self._run.tenant, service):
            return self._reason(path, "no_worker", None, self._worker_for(service))
        node = self._plan.node(path)
        limit = node.timeout_ms if isinstance(node, Call) else None
        until = None if limit is None else Millis(self._since.get(path, self._run.at) + limit)
        if step.target is not None:
            return self._reason(
                path, "stopping", until, "its result, or the end of its grace period; it was asked to stop"
            )
        return self._reason(path, "at_work", until, f"the end of attempt {step.attempt}")

    def _at_a_worker(self, path: str, job: AssignmentRow) -> Reason:
        if job.token:
            until = self._around.lease_until(self._run.no, path, job.attempt)
            text = (
                f"the answer of worker {job.worker!r}, which has the job; after its lease it is offered again"
            )
            return Reason(path, "at_worker", job.claimed_at, until, text)
        if not self._around.able(self._run.tenant, job.service):
            return self._reason(path, "no_worker", None, self._worker_for(job.service))
        return self._reason(path, "offered", None, f"a worker of {job.service!r} that asks for its next job")

    def _service(self, path: str) -> str | None:
        node = self._plan.node(path)
        return node.target if isinstance(node, Call) and node.service is not None else None

    def _lacking(self, path: str, step: Step) -> Reason:
        """Return what would supply a step that waits for a tool or worker."""
        need = need_of(self._plan, path, step)
        since = step.lacks_since or self._since.get(path, self._run.at)
        if not need.startswith(SERVICE):
            return Reason(
                path,
                "no_tool",
                since,
                None,
                f"a server that has the tool {need!r}: holdfast up --tools MODULE",
            )
        due = self._run.timers.get(timer_key("worker", path))
        return Reason(path, "no_worker", since, due, self._worker_for(need.removeprefix(SERVICE)))

    def _worker_for(self, service: str) -> str:
        since = self._around.unserved_since(self._run.tenant, service)
        away = "" if since is None else f", which has had none since {time_text(since)}"
        return f"a worker that serves {service!r}{away}; {how_to_serve(service)}"

    def _ready(self, path: str, step: Step) -> Reason:
        if step.reason == "suspect":
            due = self._run.timers.get(timer_key("suspect", path))
            text = f"its turn to run alone; {step.lost} processes ended while it was at work"
            return self._reason(path, "suspect", due, text)
        return self._reason(path, step.reason or "slot", None, "a free slot, when the run continues")

    def _reason(self, path: str, reason: str, until: Millis | None, unblocks: str) -> Reason:
        return Reason(path, reason, self._since.get(path, self._run.at), until, unblocks)


def _what_is_full(limit: str, most: int) -> str:
    if limit == "arguments_bytes_max":
        return f"room for its large arguments: calls in progress have {limits.size(most)} of them, the most at a time (limit {limit})"
    return f"a free place: {most:,} are taken (limit {limit})"
