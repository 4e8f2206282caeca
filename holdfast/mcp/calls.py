"""A call becomes a run: it is durable before the client gets any answer, and goes on whatever becomes of the client.

    start ──► wait ──┬──► finished                    its output, or its error
                     ├──► asks, client can be asked   older era: a question while the call is open; newer: input_required
                     ├──► tasks are understood        a task, whose id is that of the run
                     └──► else                        run_id, status, and what to call next

Knows when each of these is the answer. Does not know what is asked (questions.py) or how a task is shown (tasks.py).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from holdfast.api.principal import LOCAL_ID
from holdfast.api.services import Services
from holdfast.api.visible import seen
from holdfast.config import Mcp
from holdfast.mcp.answers import Result, shown
from holdfast.mcp.content import Contents
from holdfast.mcp.offers import Manner
from holdfast.mcp.questions import Questions
from holdfast.mcp.status import s1_status, task_of, waits_data
from holdfast.mcp.talk import TASKS, Talk, invalid_params
from holdfast.runtime.rights import Rights
from holdfast.values import TERMINAL
from holdfast.views.asking import asks
from holdfast.views.events import RunEvent
from holdfast.views.open_waits import Wait
from holdfast.views.positions import BEGINNING
from holdfast.views.run_view import RunView

ASKING_SECS_MAX: Final = 600.0  # a question to the user of an older client may keep its call open this long
TELLING_SECS_MAX: Final = 10.0  # for the last events of a run that has finished
QUESTION_SECS: Final = 10.0  # how long a call that asks by itself waits for the first question
UPDATED: Final = "notifications/$/dcc.workflowUpdated"

Renders = Callable[[Talk, RunView], Awaitable[dict[str, Any]]]


class Start(msgspec.Struct, frozen=True):
    """A run to begin: a definition or the name of a published one, and the inputs."""

    what: Any
    inputs: Mapping[str, Any]
    parent_job_id: str | None = None
    labels: Mapping[str, str] = {}
    plan_hash: str | None = None  # the run starts only if its plan still has this hash


class Calls:
    def __init__(self, services: Services, settings: Mcp, leaving: asyncio.Event) -> None:
        self._services, self._settings, self._leaving = services, settings, leaving
        self._questions = Questions(services)
        self.contents = Contents(services, settings.max_tokens)

    async def call(
        self,
        talk: Talk,
        start: Start,
        manner: Manner,
        *,
        responses: Mapping[str, Any] | None = None,
        state: str | None = None,
        wait_secs: float | None = None,
        renders: Renders | None = None,
    ) -> dict[str, Any]:
        """Start a run, or go on with the one that the state of an earlier answer names, and answer the call."""
        if manner.requires:
            talk.require(manner.requires)
        if manner.task == "required":
            talk.require(TASKS)
        run_id = await self.begin(talk, start) if state is None else self._opened(talk, state)
        return await self.answer(
            talk, run_id, manner, responses or {}, wait_secs=wait_secs, renders=renders or self.finished
        )

    async def begin(self, talk: Talk, start: Start) -> str:
        row, _ = await self._services.commands.start(
            talk.tenant,
            start.what,
            start.inputs,
            request_id=request_id_of(talk),
            labels=start.labels,
            parent_job_id=start.parent_job_id,
            trace=talk.caller.traceparent or "",
            plan_hash=start.plan_hash,
            rights=self.rights(talk),
        )
        return row.id

    def _seen(self, talk: Talk) -> Services:
        """The services as the caller may use them."""
        return seen(self._services, talk.caller.principal)

    def rights(self, talk: Talk) -> Rights:
        """What the caller's definitions may use. An agent wrote them, so also an administrator's need an approval before
        destructive tools, unless its key, or for callers without a key the settings, say otherwise."""
        found = talk.caller.principal.rights_of_agent
        if self._settings.skip_gate and talk.caller.principal.key_id == LOCAL_ID:
            return msgspec.structs.replace(found, skips_gate=True)
        return found

    async def answer(
        self,
        talk: Talk,
        run_id: str,
        manner: Manner,
        responses: Mapping[str, Any],
        *,
        wait_secs: float | None,
        renders: Renders,
    ) -> dict[str, Any]:
        wait = self._wait(talk, manner, wait_secs)
        is_first = manner.asks_in_call and not responses
        view = await self._watched(talk, run_id, max(wait, QUESTION_SECS) if is_first or responses else wait)
        for _ in range(1_000):  # each round answers a question, and a run has only so many
            if view.status in TERMINAL or not asks(view):
                break
            if responses and await self._questions.answer(talk, view, responses):
                responses = {}
                view = await self._watched(talk, run_id, wait)
                continue
            if talk.is_modern or not talk.can_be_asked:
                break
            if not await self._ask(talk, view):
                break
            view = await self._watched(talk, run_id, wait)
        return await self._said(talk, view, manner, renders)

    def _wait(self, talk: Talk, manner: Manner, wait_secs: float | None) -> float:
        if wait_secs is not None:
            return wait_secs
        if manner.wait_secs is not None and talk.has_tasks:
            return manner.wait_secs
        return self._settings.wait_secs

    async def _said(self, talk: Talk, view: RunView, manner: Manner, renders: Renders) -> dict[str, Any]:
        has_tasks = talk.has_tasks and manner.task != "forbidden"
        if view.status in TERMINAL and not (has_tasks and manner.task == "required"):
            return await renders(talk, view)
        requests = {} if view.status in TERMINAL else self._questions.of(talk, view)
        if requests and talk.is_modern and talk.can_be_asked and (manner.asks_in_call or not has_tasks):
            state = self._services.handles.sealed(talk.tenant, view.run_id, next(iter(requests)))
            return {"resultType": "input_required", "inputRequests": requests, "requestState": state}
        if has_tasks:
            return {"resultType": "task", **task_of(view, self._services.settings.retention_days)}
        return shown(Result(self._later(talk, view)), self._settings.max_tokens)

    def _later(self, talk: Talk, view: RunView) -> dict[str, Any]:
        """The answer to a client that does not understand tasks, when the run is not over."""
        return {
            "run_id": view.run_id,
            "workflow_id": view.run_id,
            "root_job_id": view.run_id,
            "status": s1_status(view.status),
            "waits": self.waits(talk, view),
            "next": following(view),
        }

    def waits(self, talk: Talk, view: RunView) -> list[dict[str, Any]]:
        """What a run waits for; a caller that may decide also gets the links of approvals."""
        may_decide = talk.may("approve")
        return waits_data(view, (lambda wait: self._questions.link(talk, view, wait)) if may_decide else None)

    async def finished(self, talk: Talk, view: RunView, max_tokens: int | None = None) -> dict[str, Any]:
        """The result of a tool whose run has finished."""
        meta = {"holdfast/run_id": view.run_id}
        if view.status == "completed":
            blocks, data = await self.contents.of_output(talk, view, max_tokens)
            return {"content": blocks, "structuredContent": data, "isError": False, "_meta": meta}
        said = shown(Result(failure(view), is_error=True), max_tokens or self._settings.max_tokens)
        return {**said, "_meta": meta}

    def _opened(self, talk: Talk, state: str) -> str:
        run_id = self._services.handles.opened(talk.tenant, state)
        if run_id is None:
            raise invalid_params("this requestState was not given out by this server for you")
        talk.need("run")
        return run_id

    # ------------------------------------------------------------------------------------------ while it runs

    async def _watched(self, talk: Talk, run_id: str, seconds: float) -> RunView:
        """Wait for the run, and tell the client how far it is if it wants to know."""
        waiting = asyncio.ensure_future(self._seen(talk).asking.wait_for(talk.tenant, run_id, seconds))
        leaving = asyncio.ensure_future(self._leaving.wait())
        telling = asyncio.ensure_future(self._tell(talk, run_id)) if talk.hears_progress else None
        try:
            await asyncio.wait([waiting, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                return await self._services.queries.run(talk.tenant, run_id)
            if telling is not None and waiting.result().status in TERMINAL:
                await asyncio.wait(
                    [telling], timeout=TELLING_SECS_MAX
                )  # the last events are read from the journal by now
            return waiting.result()
        finally:
            for task in (waiting, leaving, *([] if telling is None else [telling])):
                task.cancel()
            if telling is not None:
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await telling

    async def _tell(self, talk: Talk, run_id: str) -> None:
        """Send the events of a run as progress; to a client of the older era also as they are."""
        tail = await self._services.history.of_run(talk.tenant, run_id, BEGINNING)
        if tail is None:
            return
        told = -1.0
        try:
            while True:
                found = await tail.read()
                for _, event in found:
                    told = await self._tell_one(talk, event, told)
                if tail.is_over:
                    return
                await (asyncio.sleep(0) if found else tail.more())
        finally:
            tail.close()

    async def _tell_one(self, talk: Talk, event: RunEvent, told: float) -> float:
        if not talk.is_modern:
            await talk.notify(UPDATED, {key: value for key, value in event.items() if key != "id"})
        steps, kind = event["progress"], event["detail"]["kind"]
        done = float(steps["completed_steps"])
        if kind == "progress":  # of a tool, between two steps
            done += min(0.99, max(0.0, float(event["detail"].get("fraction") or 0.0)))
        if done <= told and kind not in ("step_enter", "approve_requested", "step_paused"):
            return told
        if done > told:
            await talk.progress(done, float(steps["total_steps"]), event["current_step_id"])
        return max(told, done)

    async def _ask(self, talk: Talk, view: RunView) -> bool:
        """Put the first open question to the user of a client of the older era; whether it was answered."""
        for path, request in self._questions.of(talk, view).items():
            try:
                async with asyncio.timeout(ASKING_SECS_MAX):
                    reply = await talk.elicit(request["params"])
            except TimeoutError:
                return False
            if request["params"]["mode"] == "url":  # answered on the page
                return reply.action == "accept" and path not in await self._open(talk, view.run_id)
            return await self._questions.answer(talk, view, {path: reply.model_dump()})
        return False

    async def _open(self, talk: Talk, run_id: str) -> set[str]:
        return {wait.path for wait in (await self._services.queries.run(talk.tenant, run_id)).waits}


def failure(view: RunView) -> dict[str, Any]:
    """Why a run has no output."""
    error = None if view.error is None else msgspec.to_builtins(view.error)
    message = view.error.message if view.error is not None else f"the run was {view.status}"
    return {
        "run_id": view.run_id,
        "workflow": view.workflow,
        "status": view.status,
        "message": message,
        "error": error,
        "next": following(view),
    }


def following(view: RunView, *, is_explained: bool = False) -> str | None:
    """What to call next; nothing after a run that has completed."""
    run = f'{{"run_id": "{view.run_id}"}}'
    if view.status == "completed":
        return None
    if view.status in TERMINAL:
        again = f"workflows_rerun with {run} runs it again"
        return again if is_explained else f"workflows_explain with {run} says why; {again}"
    waits = asks(view)
    return _to_answer(view, waits[0]) if waits else f"call workflows_get_status with {run}"


def _to_answer(view: RunView, wait: Wait) -> str:
    arguments = f'{{"run_id": "{view.run_id}", "path": "{wait.path}", "approved": true}}'
    if wait.kind == "approval":
        return f"an answer to the approval at {wait.path}: workflows_approve with {arguments}, or its link"
    return f"a signal: workflows_signal with run_id {view.run_id}; waits has the names"


def request_id_of(talk: Talk) -> str | None:
    """The key of a call under the caller's own name, so that two callers cannot meet under the same key."""
    key = talk.idempotency_key
    return None if key is None else f"mcp:{talk.caller.principal.key_id}:{key}"
