"""Answers from outside: callbacks of calls, approvals. Who may answer was seen to before; what an answer means is here.

    task id, or capability ──► the wait ──► its run, in memory ──► the door ──► resumed
                                 │
                    none yet ──► parked until the pause comes        over ──► what became of it

Whoever brings an answer that nobody waits for yet writes it down and then looks for the wait; a pause is written down
and then looks for its answer. Each writes before it looks, so one of the two sees the other. Knows that answers come
early, twice and late. Does not know over what they came.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec
from urllib.parse import urlsplit

import msgspec

from holdfast import limits
from holdfast.engine.events import ApprovalAnswered, CallbackReceived, TimerFired
from holdfast.engine.state import timer_key
from holdfast.errors import (
    AmbiguousTask,
    Forbidden,
    HoldfastError,
    InvalidInputs,
    LimitExceeded,
    NodeIsOver,
    NotWaiting,
    StoreUnavailable,
)
from holdfast.plan.answers import TASK_ID_CHARS_MAX, AnswerFailed, head_of, later, refuse_failure
from holdfast.plan.graph import Call, Plan
from holdfast.runtime.door import Live
from holdfast.runtime.places import Places, Slow
from holdfast.runtime.replies import Kept
from holdfast.signing import Capability, sealed
from holdfast.spec.jsonschema import Judge, count_rules
from holdfast.store.artefacts import ArtefactError
from holdfast.store.batch import Batch
from holdfast.store.records import EarlyResult, RunRow, TakenEarly, WaitRow
from holdfast.tools.failures import OutputTooLarge, ToolError, described
from holdfast.tools.http import get_json
from holdfast.values import (
    NULL,
    TERMINAL,
    Error,
    Millis,
    NotJson,
    RunId,
    RunNo,
    decode,
    encode,
    is_text,
    split,
)
from holdfast.views.events import job_id
from holdfast.waits.approval_links import answerers

if TYPE_CHECKING:
    from holdfast.runtime.engine import Engine

log = logging.getLogger("holdfast")

EARLY_MS: Final = 86_400_000  # how long an answer is kept that nobody waits for yet
NAMED_MAX: Final = 100  # waits of one task id that are looked at
WAITS_SHOWN_MAX: Final = 1_000
POLL_SECONDS: Final = 8.0  # of one look at an address: less than a last look may take
POLLS_TO_ONE_MAX: Final = 32  # of these, to one server, or to all that are slow
QUEUED_SECONDS_LEAST: Final = (
    0.1  # a look that waited longer than this for a place gives its wait that time back
)
LOOK_AGAIN_SECONDS: Final = 1.0  # doubled each time, in the time that was given back
QUEUED_MAX: Final = 10_000  # waits whose looks had to wait
RESUME_PATH: Final = "/workflows/resume"
SLOW: Final = (
    "slow"  # the line of all servers that took long when they were last asked; no origin is called that
)

P = ParamSpec("P")
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
    """`public_url` is where others reach us; without one nobody is told an address to answer to."""

    def __init__(self, engine: Engine, public_url: str | None, polls_max: int) -> None:
        self._engine, self._store, self._clock = engine, engine.store, engine.clock
        self._public_url = None if public_url is None else public_url.rstrip("/")
        self._polled: dict[tuple[RunNo, str], asyncio.Task[None]] = {}
        self._last_looks: set[tuple[RunNo, str]] = set()  # those of them whose failure ends the wait
        self._polls, self._slow = Places(polls_max, POLLS_TO_ONE_MAX), Slow[tuple[str, str]]()
        self._queued: OrderedDict[tuple[RunNo, str, int], float] = (
            OrderedDict()
        )  # seconds in which looks waited for a place
        self._looks = Counter[RunNo]()  # for answers that came before their call paused
        self._parking = Counter[str]()  # bytes of a tenant that are on their way to be kept
        self._kept: dict[str, tuple[int, int]] = {}  # at most so many answers and bytes, by tenant
        self._tasks: set[asyncio.Task[None]] = set()

    def address(self, live: Live, path: str, attempt: int) -> str:
        """Where the later answer of an attempt may be sent to: whoever has it needs nothing else."""
        capability = Capability(live.run.tenant, live.run.id, path, attempt)
        return f"{self._public_url}{RESUME_PATH}/{sealed(self._store.server_key, capability)}"

    @property
    def is_busy(self) -> bool:
        """Is somebody being asked for an answer?"""
        return bool(self._polled)

    @property
    def held_back(self) -> int:
        """How many waits end with a look that is on its way, although their time is over."""
        return len(self._last_looks)

    def close(self) -> None:
        """Ask nobody any more."""
        for task in self._tasks:
            task.cancel()

    def _begin(
        self, work: Callable[P, Awaitable[None]], *args: P.args, **named: P.kwargs
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(_logged(work, *args, **named))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ------------------------------------------------------------------------------------------------ callbacks

    async def resume(self, tenant: str, task_id: str, answer: Any, run_id: str | None = None) -> Resumed:
        """Deliver the later answer of a call, by the id that its sender gave it. An answer that is `Raw` is compact JSON
        text that was checked; it is never decoded unless a rule of the step looks into it."""
        if not task_id:
            raise InvalidInputs("the task_id is empty; send the id that the pending answer gave")
        if not is_text(task_id) or len(task_id) > TASK_ID_CHARS_MAX:  # nobody can ever wait for such a one
            return Resumed(False, "unknown_task")
        text = _checked(answer)
        found = await self._named(tenant, task_id, run_id)
        taken: TakenEarly | None = None
        if found is None:
            if run_id is not None and not await self._is_open(tenant, run_id):
                return Resumed(False, "unknown_task")
            taken = TakenEarly(tenant, task_id, run_id or "")
            if not await self._park(taken, await self._engine.dispatch.redacted(text)):
                return Resumed(False, "already_resumed")
            found = await self._named(tenant, task_id, run_id)  # the pause may have come
            if found is None:
                return Resumed(False, "parked")
            if found.resolved_at is not None:
                await self._engine.commit(_without(taken))  # whatever ended it, nobody will come for this one
        if found.resolved_at is not None:
            return _told(found)
        row = await self._engine.row_of(found.run_id, tenant)
        if taken is None:
            return await self._deliver(row, found.path, found.attempt, text)
        return await self._give(row, found.path, found.attempt, text, taken)

    async def resume_by(self, capability: Capability, answer: Any) -> Resumed:
        """The same, by the address that the call was told to answer to: it is known before the pause is."""
        text = _checked(answer)
        row = await self._store.run_by_id(capability.tenant, RunId(capability.run_id))
        if row is None:
            return Resumed(False, "unknown_task")
        path, attempt = capability.path, capability.attempt
        found = await self._store.wait_at(row.no, path, "callback", attempt)
        if found is not None and found.resolved_at is not None:
            return _told(found)  # known without bringing the run back to memory
        return await self._deliver(row, path, attempt, text, may_park=True)

    async def _named(self, tenant: str, task_id: str, run_id: str | None) -> WaitRow | None:
        """The wait that a task id means: the open one if there is one, else the newest."""
        rows = await self._store.waits_named(tenant, task_id, NAMED_MAX)
        rows = [row for row in rows if run_id is None or row.run_id == run_id]
        still_open = [row for row in rows if row.resolved_at is None]
        if len(still_open) > 1:
            raise AmbiguousTask(task_id, len(still_open))
        return next(iter(still_open or rows), None)

    async def _is_open(self, tenant: str, run_id: str) -> bool:
        row = await self._store.run_by_id(tenant, RunId(run_id)) if is_text(run_id) else None
        return row is not None and row.status not in TERMINAL

    async def _park(self, early: TakenEarly, answer: bytes) -> bool:
        """Keep an answer until somebody waits for it; says whether it is the one that is kept, and not another that was
        first."""
        now, tenant, size, text = self._clock.now(), early.tenant, len(answer), answer.decode()
        await self._check_room(tenant, now, size)
        batch = Batch()
        batch.expired_early.append((now,))
        expires_at = Millis(now + EARLY_MS)
        batch.early_results.append(EarlyResult(tenant, early.task_id, early.meant, text, expires_at))
        self._parking[tenant] += size
        try:
            await self._engine.commit(batch)
        finally:
            self._parking[tenant] -= size
        kept = await self._store.early_result(tenant, early.task_id, RunId(early.meant), now)
        is_taken = kept is None or kept[0] != early.meant  # the pause was quick
        return is_taken or kept == (early.meant, text)

    async def _check_room(self, tenant: str, now: Millis, size: int) -> None:
        """Is there room for one more answer that nobody waits for yet? To look takes the longer the more are kept: it is
        done where there might be none."""
        count, total = self._kept.get(tenant, (limits.now.parked_callbacks_max, 0))
        if count >= limits.now.parked_callbacks_max or total + size > limits.now.parked_bytes_max:
            count, total = await self._store.early_room(tenant, now)
            total += self._parking[tenant]
        if count >= limits.now.parked_callbacks_max:
            raise LimitExceeded(
                "early_results",
                f"{limits.now.parked_callbacks_max:,} callbacks came early, before their calls said that they are pending",
                "parked_callbacks_max",
            )
        if total + size > limits.now.parked_bytes_max:
            raise LimitExceeded(
                "early_results_too_large",
                f"callbacks that came early would be over {limits.size(limits.now.parked_bytes_max)} together",
                "parked_bytes_max",
            )
        self._kept[tenant] = (count + 1, total + size)

    async def _deliver(
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
        """Give a call its answer. `taken` is an early one that it stands for, which goes with the same commit."""
        if row.status in TERMINAL:
            return await self._late(row, path, attempt)
        live = await self._engine.hold(row)
        if path not in live.run.steps or live.run.steps[path].attempt != attempt:
            return await self._late(row, path, attempt)
        event, files = await self._answered(live.plan, row, path, attempt, answer, by)
        live = await self._engine.hold(row)  # storing files may have taken a while
        step = live.run.steps.get(path)
        if step is None or step.attempt != attempt or step.target is not None:
            return await self._late(row, path, attempt)
        is_early = step.wait is None
        if is_early and not (may_park and step.state == "running"):
            return await self._late(row, path, attempt)
        if is_early and step.parked is not None:
            await self._durable()
            return Resumed(False, "already_resumed", row.id)
        is_new = by == "resume" and taken is None  # what was kept came in time, whoever was late to give it
        if step.wait is not None and is_new and _is_past(step.wait.until, self._clock.now()):
            return Resumed(False, "expired", row.id)
        if not self._engine.advance.is_stalled:
            batch = self._engine.advance.batch
            batch.artefacts += [(row.no, sha256, size, self._clock.now()) for sha256, size in files]
            if taken is not None:
                batch.taken_early.append(taken._replace(no=row.no))
        await self._engine.tell(live, event)
        return Resumed(not is_early, "parked" if is_early else "resumed", row.id)

    async def _late(self, row: RunRow, path: str, attempt: int) -> Resumed:
        """Somebody was first, perhaps this very moment: what they did is told once it is durable."""
        await self._durable()
        found = await self._store.wait_at(row.no, path, "callback", attempt)
        if found is not None and found.resolved_at is None:
            raise StoreUnavailable("what somebody else said first could not be written; try again")
        return _told(found, row.id)

    async def _durable(self) -> None:
        await self._engine.advance.caught_up()
        if self._engine.advance.is_over:
            raise NodeIsOver("another process has taken this file over")
        if self._engine.advance.is_stalled:
            raise StoreUnavailable("the database cannot be written now; try again")

    async def _answered(
        self, plan: Plan, row: RunRow, path: str, attempt: int, answer: bytes, by: str
    ) -> tuple[CallbackReceived, Sequence[tuple[str, int]]]:
        """A later answer as an event: what of it is the output, by the same rules as for one that comes at once; and the
        files that were stored for it."""
        dispatch = self._engine.dispatch
        node, secrets = plan.node(path), dispatch.secrets
        assert isinstance(node, Call)
        files: Sequence[tuple[str, int]] = ()
        try:
            _refuse(head_of(answer))
            text = answer if node.answer is None else encode(node.answer(decode(answer)))
            if b'"file_refs"' in text and node.service is None:  # a worker's files are not here
                text, files = await dispatch.with_files(
                    text, row.tenant, job_id(row.id, path, attempt), from_outside=True
                )
            text = await dispatch.redacted(text)
            if len(text) > limits.now.value_bytes_max:
                raise OutputTooLarge
        except (AnswerFailed, OutputTooLarge, NotJson, ArtefactError) as error:
            kind, message = described(error, secrets.redact)
            return CallbackReceived(path, attempt, NULL, Error(kind, message, path, attempt), by), files
        return CallbackReceived(path, attempt, msgspec.Raw(text), None, by), files

    # -------------------------------------------------------------------------------------- what came too early

    def paused(self, live: Live, path: str, task_id: str) -> None:
        """A call has paused, durably: if its answer is here already, give it."""
        self._looks[live.run.no] += 1
        look = self._begin(self._take_early, live.run.tenant, live.run.id, path, task_id)
        look.add_done_callback(lambda _: self._looked(live))

    def _looked(self, live: Live) -> None:
        self._looks[live.run.no] -= 1
        if not self._looks[live.run.no]:
            del self._looks[live.run.no]
            self._engine.looked(live)

    def looks_for(self, no: RunNo) -> bool:
        """Is an answer being looked for that may have come before its call paused?"""
        return no in self._looks

    async def look(self) -> None:
        """Give answers that are here to those who wait for them. Asked when nobody knows what was looked for before."""
        for wait in await self._store.early_waits(
            max(limits.now.parked_callbacks_max, limits.DEFAULTS.parked_callbacks_max)
        ):
            row = await self._store.run_by_no(wait.no)
            assert row is not None
            await _logged(self._take_early, row.tenant, row.id, wait.path, wait.name)

    async def _take_early(self, tenant: str, run_id: RunId, path: str, task_id: str) -> None:
        early = await self._store.early_result(tenant, task_id, run_id, self._clock.now())
        found = await self._named_at(tenant, task_id, run_id, path)
        if early is not None and found is not None:
            taken = TakenEarly(tenant, task_id, early[0])
            row = await self._engine.row_of(run_id, tenant)
            await self._give(row, path, found.attempt, early[1].encode(), taken)

    async def _give(self, row: RunRow, path: str, attempt: int, answer: bytes, taken: TakenEarly) -> Resumed:
        """Give what was kept to whom it is for; if somebody else was first, it is nobody's any more."""
        told = await self._deliver(row, path, attempt, answer, taken=taken)
        if not told.resumed:
            await self._engine.commit(_without(taken))
        return told

    async def _named_at(self, tenant: str, task_id: str, run_id: RunId, path: str) -> WaitRow | None:
        rows = await self._store.waits_named(tenant, task_id, NAMED_MAX)
        return next((row for row in rows if (row.run_id, row.path) == (run_id, path)), None)

    # ---------------------------------------------------------------------------------------------------- polls

    def poll(self, live: Live, path: str, attempt: int) -> None:
        """Ask once for the answer that a call waits for; as long as there is none, nothing has happened."""
        step = live.run.steps.get(path)
        if step is None or step.wait is None or step.attempt != attempt:
            return
        key = (live.run.no, path)
        if step.wait.is_last_look:
            self._last_looks.add(key)
        if key not in self._polled:
            url = decode(step.wait.detail)["poll_url"]  # now: the wait may be over when it is asked
            self._polled[key] = self._begin(self._poll, live.run.tenant, live.run.id, key, attempt, url)

    def looks_first(self, live: Live, path: str) -> bool:
        """Is the end of a wait held back by a last look at an address? It follows from that look, which is made now
        if whoever was to make it did not live to do so."""
        step = live.run.steps.get(path)
        if step is None or step.wait is None or not step.wait.is_last_look:
            return False
        self.poll(live, path, step.attempt)
        return True

    async def _poll(self, tenant: str, run_id: RunId, key: tuple[RunNo, str], attempt: int, url: str) -> None:
        path = key[1]
        try:
            is_there, answer = await self._look_at(url, tenant, run_id, (*key, attempt))
            if not is_there and key in self._last_looks:
                is_there, answer = await self._look_on(url, tenant, run_id, (*key, attempt))
            if is_there:
                row = await self._engine.row_of(run_id, tenant)
                await self._deliver(row, path, attempt, encode(answer), by="poll")
            elif key in self._last_looks:
                await self._expire(await self._engine.row_of(run_id, tenant), path, attempt)
        finally:
            self._last_looks.discard(key)
            del self._polled[key]

    async def _look_on(
        self, url: str, tenant: str, run_id: RunId, key: tuple[RunNo, str, int]
    ) -> tuple[bool, Any]:
        """The time of a wait is over, but its looks spent some of it in a line: look on for as long."""
        again = LOOK_AGAIN_SECONDS
        left = self._queued.pop(key, 0.0)
        while left > 0:
            delay, again = min(again, left), again * 2
            left -= delay
            await asyncio.sleep(delay)
            is_there, answer = await self._look_at(url, tenant, run_id, key)
            if is_there:
                return True, answer
            left += self._queued.pop(key, 0.0)
        return False, None

    async def _look_at(
        self, url: str, tenant: str, run_id: RunId, key: tuple[RunNo, str, int]
    ) -> tuple[bool, Any]:
        """Is the answer of a call at an address, and which?"""
        origin = (tenant, _origin(url))
        asked = self._clock.monotonic()
        async with self._polls.at((tenant, SLOW) if origin in self._slow else origin):
            began = self._clock.monotonic()
            try:
                answer = await get_json(self._engine.registry.guard, url, POLL_SECONDS)
                return later(answer) is None, answer
            except (ToolError, AnswerFailed) as error:
                log.info("run %s: step %s has no answer at its poll_url yet: %s", run_id, key[1], error)
                return False, None
            finally:
                self._slow.took(origin, self._clock.monotonic() - began)
                self._note_queued(key, began - asked)

    def _note_queued(self, key: tuple[RunNo, str, int], seconds: float) -> None:
        if seconds >= QUEUED_SECONDS_LEAST:
            self._queued[key] = self._queued.pop(key, 0.0) + seconds
            if len(self._queued) > QUEUED_MAX:
                self._queued.popitem(last=False)

    async def _expire(self, row: RunRow, path: str, attempt: int) -> None:
        """The last look has brought nothing: a wait whose time was over is over now."""
        if row.status not in TERMINAL:
            live = await self._engine.hold(row)
            step = live.run.steps.get(path)
            if step is not None and step.attempt == attempt and step.wait is not None:
                self._engine.advance.offer(live, TimerFired(path, "expiry"))

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
        keep: Callable[[bool], Kept] | None = None,
    ) -> bool:
        """Answer an approval; tells whether that decided it. The first answers that decide count, later ones are told."""
        filled_in = msgspec.Raw(await self._engine.dispatch.redacted(_checked(form)))
        row = await self._engine.row_of(RunId(run_id), tenant)
        found = await self.gate(row, path)
        live = await self._engine.hold(row)
        step = live.run.steps.get(found.path)
        if step is None or step.wait is None:
            await self._durable()
            raise await self._was_answered(row, found.path)
        is_escalated = timer_key("escalate", found.path) not in live.run.timers
        detail = decode(step.wait.detail)
        _check_allowed(detail, by, is_escalated=is_escalated)
        if by and by in step.wait.got:
            await self._durable()  # what this one said may be a moment from that
            raise NotWaiting(by, "has answered already")
        if approved:  # whoever declines need not fill anything in
            _check_form(detail, form)
        reason = self._engine.dispatch.secrets.redact(reason)
        event = ApprovalAnswered(found.path, approved, reason, by, filled_in)
        durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._engine.advance.offer(live, event, durable)
        now = live.run.steps.get(found.path)
        decides = now is None or now.wait is None  # seen here: until it is durable another answer may decide
        if keep is not None and not durable.done():
            self._engine.advance.batch.run_replies.append((row.no, keep(decides).row()))
        await durable
        return decides

    async def gate(self, row: RunRow, path: str) -> WaitRow:
        """The open approval at a path; the bare id of its step serves while there is only one such, and no other is
        or was at that very path: an answer that comes late must not be taken for another gate's."""
        meant = await self._meant(row, path)
        if not meant:  # what a run is shown to ask may be a moment from being durable
            await self._durable()
            meant = await self._meant(row, path)
        if len(meant) == 1:
            return meant[0]
        if meant:
            raise InvalidInputs(
                f"{len(meant)} gates of run {row.id} are called {path!r}; give the path of one"
            )
        raise await self._was_answered(row, path)

    async def _meant(self, row: RunRow, path: str) -> list[WaitRow]:
        waits = await self._store.waits_of_run(row.no, WAITS_SHOWN_MAX)
        gates = [wait for wait in waits if wait.kind == "approval"]
        meant = [gate for gate in gates if gate.path == path]
        if not meant and is_text(path) and await self._store.wait_at(row.no, path, "approval") is None:
            meant = [gate for gate in gates if split(gate.path)[1] == path]
        return meant

    async def _was_answered(self, row: RunRow, path: str) -> NotWaiting:
        over = await self._store.gate_decided(row.no, path) if is_text(path) else None
        if over is None:
            return NotWaiting(path, "asks for nothing now")
        return NotWaiting(over.path, f"was {_decided(over)} already")

    async def of_run(self, tenant: str, run_id: str) -> list[WaitRow]:
        row = await self._engine.row_of(RunId(run_id), tenant)
        return await self._store.waits_of_run(row.no, WAITS_SHOWN_MAX)


def _decided(gate: WaitRow) -> str:
    """What became of an approval. That of a graph is decided by a value, which need not be yes or no."""
    is_condition = "answers_to" in (decode(gate.detail) or {})
    words = {
        "answered": "answered" if is_condition else "approved",
        "expired": "denied for want of an answer",
    }
    outcome = gate.outcome or ""
    return words.get(outcome, outcome)


def _refuse(head: dict[str, Any] | None) -> None:
    """In a callback `success: false` is always a failure, and so is an `error` where nothing says that it succeeded."""
    if head and (head.get("success") is False or head.get("error") and head.get("success") is not True):
        refuse_failure({**head, "success": False})


def _told(wait: WaitRow | None, run_id: RunId | None = None) -> Resumed:
    if wait is None or wait.resolved_at is None:
        return Resumed(False, "unknown_task", run_id)
    return Resumed(False, _TOLD.get(wait.outcome or "", "expired"), wait.run_id)


def _origin(url: str) -> str:
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port}"
    except ValueError:
        return ""  # it cannot be asked either


def _is_past(until: Millis | None, now: Millis) -> bool:
    return until is not None and until <= now


def _without(early: TakenEarly) -> Batch:
    batch = Batch()
    batch.taken_early.append(early)
    return batch


def _checked(answer: Any) -> bytes:
    try:
        text = bytes(answer) if isinstance(answer, msgspec.Raw) else encode(answer)
    except NotJson as error:
        raise InvalidInputs(f"the answer is not JSON: {error}") from None
    if len(text) > limits.now.value_bytes_max:
        raise LimitExceeded(
            "input_too_large",
            f"an answer is at most {limits.size(limits.now.value_bytes_max)}",
            "value_bytes_max",
        )
    return text


async def _logged(work: Callable[P, Awaitable[None]], *args: P.args, **named: P.kwargs) -> None:
    """What is done in the background is nobody's to be told of; if it cannot be done, somebody else does it later."""
    try:
        await work(*args, **named)
    except HoldfastError as error:
        log.warning("an answer could not be given: %s", error)


def _check_allowed(detail: Any, by: str, *, is_escalated: bool) -> None:
    allowed = detail.get("of") if isinstance(detail, dict) else None
    if allowed and is_escalated:
        allowed = answerers(detail)
    if allowed and by not in allowed:
        raise Forbidden(f"{by or 'nobody'} may not answer here; it is for {', '.join(allowed)} to say")
    if not by and isinstance(detail, dict) and detail.get("need", 1) > 1:
        raise InvalidInputs(f"{detail['need']} must agree here: say who answers, so that each counts once")


def _check_form(detail: Any, form: Any) -> None:
    schema = detail.get("form") if isinstance(detail, dict) else None
    if schema is not None and (misfits := Judge(schema, count_rules(schema)).misfits(form)):
        told = [": ".join(filter(None, (".".join(map(str, one.path)), one.message))) for one in misfits]
        raise InvalidInputs(f"the form: {'; '.join(told)}")
