"""Attempts that workers perform: the job of a step, and what a worker's result means for the run.

Knows when the row of a job is written and removed, so that a crash cannot separate an attempt from its job. Does not
know how workers are chosen and reached (workers/), or slots.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import msgspec

from holdfast.engine.decisions import Decision, StartAttempt
from holdfast.engine.events import AttemptReleased, Event, StepFailed, StepSucceeded
from holdfast.engine.state import is_open
from holdfast.errors import HoldfastError, LimitExceeded, Superseded, Unavailable
from holdfast.execution.attempt import Attempt, Outcomes
from holdfast.execution.inputs import Inputs
from holdfast.plan.graph import Call
from holdfast.runtime.door import Door
from holdfast.runtime.large_arguments import COUNTED_BYTES
from holdfast.runtime.resident_run import ResidentRun
from holdfast.store.batch import Batch
from holdfast.store.records import AssignmentRow
from holdfast.tools.registry import Context, Tool
from holdfast.tools.secrets import Secrets, SecretUnavailable
from holdfast.values import RunNo, idempotency_key
from holdfast.workers.push import Job
from holdfast.workers.service import Workers

log = logging.getLogger("holdfast")

Emit = Callable[[str, dict[str, Any]], None]
Load = Callable[[RunNo], Awaitable[ResidentRun | None]]


class Jobs:
    def __init__(
        self,
        door: Door,
        workers: Workers,
        inputs: Inputs,
        outcomes: Outcomes,
        secrets: Secrets,
        listener: Callable[[Attempt], Emit],
    ) -> None:
        self._door, self._workers, self._inputs = door, workers, inputs
        self._outcomes, self._secrets, self._listener = outcomes, secrets, listener
        self._assignments = workers.assignments
        self._assignments.show_late = self._show_late
        # The trace context for a worker: that of the run as received, unless spans are exported.
        self.traceparent: Callable[[ResidentRun, str, int], str | None] = lambda resident, path, number: (
            resident.trace or None
        )

    # ----------------------------------------------------------------------------------------------------- rows

    def put(self, resident: ResidentRun, decisions: list[Decision], batch: Batch) -> None:
        """The commit that starts an attempt also writes the row of its job for pull workers; the commit that ends the
        attempt before it has started removes the row."""
        run, assignments = resident.run, self._assignments
        for decision in decisions:
            if type(decision) is StartAttempt:
                path, service = decision.path, self._inputs.service_of(resident, decision.path)
                if service is not None and self._workers.is_fetched(run.tenant, service):
                    assignments.start(AssignmentRow(run.no, path, decision.attempt, service), batch)
        for key in assignments.not_begun(run.no):
            if run.over or not is_open(run, *key[1:]):
                batch.ended_assignments.append(key)

    def are_put(self, batch: Batch) -> None:
        """The rows of a commit are durable, or removed."""
        self._assignments.open(batch.assignments)
        self._assignments.rows_are_gone(batch.ended_assignments)

    # ----------------------------------------------------------------------------------------------------- work

    def attempt(self, resident: ResidentRun, node: Call, path: str, number: int) -> Attempt:
        """An attempt whose job a worker performs; raises what `Inputs` raises."""
        run, rule = resident.run, node.service
        assert rule is not None
        service, text = self._inputs.of_service(resident, node, path, number)
        is_large = len(text) > COUNTED_BYTES
        attempt = Attempt((run.no, path), number, _SERVICE, {}, run.tenant)
        stable = idempotency_key(run.tenant, run.id, path)
        context = Context(run.id, path, number, stable, emit=self._listener(attempt), secrets=self._secrets)
        body = b"" if is_large else text
        job = Job(run.tenant, run.no, run.id, path, number, service, body, stable, rule, context)
        if is_large:  # it may wait for a worker for long
            job.large_bytes = len(text)
            job.large_body = lambda: self._inputs.of_service(resident, node, path, number)[1]
        job.waits = resident.plan.worker_wait_ms(node) != 0
        job.only_once, job.traceparent = node.fails_on_crash, self.traceparent(resident, path, number)
        if self._inputs.callback_url is not None:
            job.address = functools.partial(self._inputs.callback_url, resident, path, number)
        attempt.job = job
        return attempt

    async def of_row(self, stored: Load, row: AssignmentRow) -> Job | None:
        """The job of a run that another node drives, for a worker that fetches it here; None if the run does not wait for it."""
        resident = self._door.residents.get(row.no) or await stored(row.no)
        if resident is None or resident.run.over or not is_open(resident.run, row.path, row.attempt):
            return None
        node = resident.plan.node(row.path)
        if not isinstance(node, Call) or node.service is None:
            return None
        try:
            return self.attempt(resident, node, row.path, row.attempt).job
        except (ValueError, LimitExceeded, SecretUnavailable) as error:
            log.warning(
                "run %s: the job of step %s cannot be given out here: %s", resident.run.id, row.path, error
            )
            return None

    # -------------------------------------------------------------------------------------------------- answers

    def let_wait(self, job: Job, event: AttemptReleased) -> None:
        """Give back an attempt that waits for a worker, and takes no place here meanwhile."""
        if (resident := self._door.residents.get(job.no)) is not None:
            resident.lacks, resident.is_settled = True, False
        self.deliver(job, event)
        self._workers.released(job)

    def still_wanted(self, resident: ResidentRun) -> Iterator[tuple[str, int, bool]]:
        """The jobs that workers hold and that the run waits for: path, number, and whether it stops. Drop the others."""
        for key in self._workers.held(resident.run.no):
            _, path, number = key
            step = resident.run.steps.get(path)
            if step is None or step.attempt != number or step.state != "running":
                self._workers.forget_job(key)
            else:
                yield path, number, step.target is not None

    def deliver(self, job: Job, event: Event) -> None:
        """Report a worker's result. The worker gets a response when the result is durable; the same commit removes
        the row of the job. If the commit fails, the worker has to send the result again."""
        if not self._workers.is_answered(job):
            self._door.deliver(job.no, event)
            return self._workers.settled(job, None)
        if (refusal := self._refusal_of(job)) is not None:
            self._door.deliver(job.no, event)
            return self._workers.settled(job, refusal)
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        reply.add_done_callback(lambda done: self._workers.settled(job, done.exception()))
        self._door.deliver(job.no, event, reply)
        if not reply.done():  # otherwise the job has no row, and will get none
            self._door.batch.ended_assignments.append(job.key)

    def _refusal_of(self, job: Job) -> HoldfastError | None:
        """Why the result of a worker cannot count; None if it can."""
        resident, door = self._door.residents.get(job.no), self._door
        if resident is not None:
            if not is_open(resident.run, job.path, job.attempt):
                return Superseded(f"run {job.run_id} no longer waits for this attempt")
        elif job.no in door.quarantined:
            return Unavailable(
                f"run {job.run_id} was set aside; send the result again after the server was restarted"
            )
        elif job.no not in door.away:
            return Superseded(f"run {job.run_id} has finished")
        return None

    def _show_late(self, key: tuple[RunNo, str, int], outcome: bytes | BaseException) -> None:
        """Record a late result in the journal while the run is open. It changes nothing else."""
        no, path, number = key
        if (resident := self._door.residents.get(no)) is None:
            return
        if isinstance(outcome, bytes):
            output = self._secrets.redact_json(outcome) if self._secrets.are_known else outcome
            self._door.apply(resident, StepSucceeded(path, number, msgspec.Raw(output)))
        else:
            error = self._outcomes.described(outcome, path, number)
            self._door.apply(resident, StepFailed(path, number, error))


class _Service(Tool):
    """Stands in for a worker: it waits by nature, and uses none of our threads or processes."""

    def __init__(self) -> None:
        super().__init__(_nothing, "service")
        self.runs_in, self.suspends, self.is_plain = "worker", True, False


async def _nothing() -> None:
    pass


_SERVICE: Final = _Service()
