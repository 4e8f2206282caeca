"""Answers from outside: callbacks of calls, approvals. Who may answer was seen to before; what an answer means is here.

    task id, or capability ──► the wait ──► its run, in memory ──► the door ──► resumed
                                 │
                    none yet ──► parked until the pause comes        over ──► what became of it

Knows that answers come early, twice and late. Does not know over what they came.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from holdfast.engine.events import ApprovalAnswered, CallbackReceived, Event
from holdfast.engine.state import Step
from holdfast.errors import AmbiguousTask, Forbidden, InvalidInputs, LimitExceeded, NotWaiting
from holdfast.plan.answers import AnswerFailed, refuse_failure
from holdfast.plan.graph import Call
from holdfast.runtime.advance import Live
from holdfast.runtime.app import Engine
from holdfast.signing import Capability
from holdfast.spec.jsonschema import Judge, count_rules
from holdfast.store.base import Batch, EarlyResult, RunRow, WaitRow
from holdfast.values import TERMINAL, Error, Millis, RunId, decode, encode, split

EARLY_MS: Final = 86_400_000  # how long an answer is kept that nobody waits for yet
EARLY_MAX: Final = 10_000  # of one tenant
NAMED_MAX: Final = 100  # waits of one task id that are looked at
WAITS_SHOWN_MAX: Final = 1_000

Reason = Literal["resumed", "parked", "already_resumed", "expired", "unknown_task"]
_TOLD: Final[dict[str, Reason]] = {
    "resume": "already_resumed",
    "poll": "already_resumed",
    "expired": "expired",
}


class Resumed(msgspec.Struct, frozen=True):
    resumed: bool
    reason: Reason
    run_id: str | None = None


class Waits:
    def __init__(self, engine: Engine) -> None:
        self._engine, self._store, self._clock = engine, engine.store, engine.clock

    # ------------------------------------------------------------------------------------------------ callbacks

    async def resume(self, tenant: str, task_id: str, answer: Any, run_id: str | None = None) -> Resumed:
        """Deliver the later answer of a call, by the id that its sender gave it."""
        found = await self._named(tenant, task_id, run_id)
        if found is None:
            await self._park(tenant, task_id, answer)
            found = await self._named(tenant, task_id, run_id)  # the pause may have come meanwhile
            if found is None or found.resolved_at is not None:
                return Resumed(False, "parked")
            self._engine.advance.batch.taken_early.append((tenant, task_id))
        if found.resolved_at is not None:
            return _told(found)
        return await self._deliver(tenant, found.run_id, found.path, found.attempt, answer)

    async def resume_by(self, capability: Capability, answer: Any) -> Resumed:
        """The same, by the address that the call was told to answer to: it is known before the pause is."""
        row = await self._store.run_by_id(capability.tenant, RunId(capability.run_id))
        if row is None:
            return Resumed(False, "unknown_task")
        return await self._deliver(
            capability.tenant, row.id, capability.path, capability.attempt, answer, may_park=True
        )

    async def _named(self, tenant: str, task_id: str, run_id: str | None) -> WaitRow | None:
        """The wait that a task id means: the open one if there is one, else the newest."""
        rows = await self._store.waits_named(tenant, task_id, NAMED_MAX)
        rows = [row for row in rows if run_id is None or row.run_id == run_id]
        still_open = [row for row in rows if row.resolved_at is None]
        if len(still_open) > 1:
            raise AmbiguousTask(task_id, len(still_open))
        return next(iter(still_open or rows), None)

    async def _park(self, tenant: str, task_id: str, answer: Any) -> None:
        if await self._store.count_early(tenant) >= EARLY_MAX:
            raise LimitExceeded("early_results", f"{EARLY_MAX:,} answers wait for calls that nobody knows of")
        batch, now = Batch(), self._clock.now()
        body = encode(answer).decode()
        batch.early_results.append(EarlyResult(tenant, task_id, body, Millis(now + EARLY_MS)))
        await self._engine.commit(batch)

    async def _deliver(
        self, tenant: str, run_id: RunId, path: str, attempt: int, answer: Any, *, may_park: bool = False
    ) -> Resumed:
        row = await self._engine.row_of(run_id, tenant)
        if row.status in TERMINAL:
            return await self._late(row, path)
        live = await self._engine.hold(row)
        step = live.run.steps.get(path)
        is_early = step is not None and step.wait is None and step.state in ("running", "ready")
        if step is None or step.attempt != attempt or (is_early and not may_park):
            return await self._late(row, path)
        if step.wait is not None and step.wait.until is not None and step.wait.until <= self._clock.now():
            return Resumed(False, "expired", run_id)
        if is_early and step.parked is not None:
            return Resumed(False, "already_resumed", run_id)
        await self._engine.tell(live, answered(live, path, step, answer))
        return Resumed(not is_early, "parked" if is_early else "resumed", run_id)

    async def _late(self, row: RunRow, path: str) -> Resumed:
        await self._engine.advance.drained()
        found = await self._store.wait_at(row.no, path, "callback")
        return Resumed(False, "unknown_task", row.id) if found is None else _told(found)

    async def take_early(self, live: Live, path: str, task_id: str) -> None:
        """A call has paused: if its answer is here already, give it."""
        run = live.run
        body = await self._store.early_result(run.tenant, task_id, self._clock.now())
        step = live.run.steps.get(path)
        if body is not None and step is not None and step.wait is not None and step.wait.name == task_id:
            self._engine.advance.batch.taken_early.append((run.tenant, task_id))
            self._engine.advance.offer(live, answered(live, path, step, decode(body)))

    # ------------------------------------------------------------------------------------------------ approvals

    async def approve(
        self,
        tenant: str,
        run_id: str,
        path: str,
        *,
        approved: bool,
        reason: str = "",
        by: str = "",
        form: Any = None,
    ) -> bool:
        """Answer an approval; tells whether that decided it. The first answers that decide count, later ones are told."""
        row = await self._engine.row_of(RunId(run_id), tenant)
        found = await self._gate(row, path)
        live = await self._engine.hold(row)
        step = live.run.steps.get(found.path)
        if step is None or step.wait is None:
            raise NotWaiting(found.path, "has been answered")
        _check_answer(decode(step.wait.detail), step, by, form)
        event = ApprovalAnswered(found.path, approved, reason, by, msgspec.Raw(encode(form)))
        await self._engine.tell(live, event)
        now = live.run.steps.get(found.path)
        return now is None or now.wait is None

    async def _gate(self, row: RunRow, path: str) -> WaitRow:
        """The open approval at a path; the bare id of its step serves while there is only one such."""
        waits = await self._store.waits_of_run(row.no, WAITS_SHOWN_MAX)
        gates = [wait for wait in waits if wait.kind == "approval"]
        meant = [gate for gate in gates if gate.path == path] or [
            gate for gate in gates if split(gate.path)[1] == path
        ]
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise InvalidInputs(
                f"{len(meant)} gates of run {row.id} are called {path!r}; give the path of one"
            )
        over = await self._store.wait_at(row.no, path, "approval")
        if over is not None:
            raise NotWaiting(path, f"was {over.outcome} already")
        raise NotWaiting(path, "asks for nothing now")

    async def of_run(self, tenant: str, run_id: str) -> list[WaitRow]:
        row = await self._engine.row_of(RunId(run_id), tenant)
        return await self._store.waits_of_run(row.no, WAITS_SHOWN_MAX)


def answered(live: Live, path: str, step: Step, answer: Any, by: str = "resume") -> Event:
    """A later answer as an event: what of it is the output, by the same rules as for one that comes at once."""
    node = live.plan.node(path)
    assert isinstance(node, Call)
    try:
        _refuse(answer)
        output = answer if node.answer is None else node.answer(answer)
        return CallbackReceived(path, step.attempt, msgspec.Raw(encode(output)), None, by)
    except AnswerFailed as error:
        failure = Error(error.kind or "error", str(error), path, step.attempt)
        return CallbackReceived(path, step.attempt, msgspec.Raw(b"null"), failure, by)


def _refuse(answer: Any) -> None:
    """In a callback `success: false` is always a failure, and so is an `error` where nothing says that it succeeded."""
    refuse_failure(answer)
    if isinstance(answer, dict) and answer.get("error") and answer.get("success") is not True:
        refuse_failure({**answer, "success": False})


def answer_in(body: dict[str, Any]) -> Any:
    """What a callback says, in either of its forms: `result`, or all but the ids."""
    if "result" in body:
        return body["result"]
    return {name: value for name, value in body.items() if name not in ("task_id", "run_id")}


def _told(wait: WaitRow) -> Resumed:
    return Resumed(False, _TOLD.get(wait.outcome or "", "expired"), wait.run_id)


def _check_answer(detail: Any, step: Step, by: str, form: Any) -> None:
    assert step.wait is not None
    allowed = detail.get("of") if isinstance(detail, dict) else None
    if allowed and by not in (*allowed, detail.get("escalate_to")):
        raise Forbidden(f"{by or 'nobody'} may not answer here; it is for {', '.join(allowed)} to say")
    if by and by in step.wait.got:
        raise NotWaiting(by, "has answered already")
    schema = detail.get("form") if isinstance(detail, dict) else None
    if schema is not None and (misfits := Judge(schema, count_rules(schema)).misfits(form)):
        raise InvalidInputs("the form: " + "; ".join(misfit.message for misfit in misfits))
