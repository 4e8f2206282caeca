"""The HTTP API as typed calls: `Client` for programs with a loop, `SyncClient` for scripts.

    async with Client("http://127.0.0.1:8070") as client:
        run = await client.start("hello", {"name": "Ada"})
        print((await client.wait(run.run_id)).output)

A start that is repeated because a connection dropped creates one run. A refusal by the server is raised as the same exception as in the
engine, with the server's message. Knows URLs and types, but nothing of the server's internals.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

import msgspec

from holdfast.api.types import (
    Approval,
    ApprovalLink,
    BulkPage,
    Explanation,
    JournalPage,
    LogPage,
    RerunPreview,
    Resumed,
    Run,
    RunPage,
    Started,
    StepPage,
)
from holdfast.arguments import checked
from holdfast.config import DEFAULT_HOST, DEFAULT_PORT
from holdfast.sdk.calls import API, Spec, in_path, is_name, sendable, time_word
from holdfast.sdk.connection import PATIENCE_SECS, TIMEOUT_SECS, Connection
from holdfast.sdk.operations import OperationCalls
from holdfast.sdk.reads import Reads
from holdfast.sdk.schedules import ScheduleCalls
from holdfast.sdk.workflows import WorkflowCalls
from holdfast.values import TERMINAL

RESUME: Final = "/workflows/resume"
DEFAULT_SERVER: Final = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"


class LiveEvent(msgspec.Struct, frozen=True):
    """One event of a run, as it happens. `id` is the position to resume from; messages of running tools have none.

    `detail` has `kind` and what belongs to it: `workflow_started`, `step_enter`, `step_exit`, `log`, `progress`,
    `interrupted`, `workflow_terminal`.
    """

    workflow_id: str
    job_id: str
    status: str
    current_step_id: str | None
    progress: dict[str, int]
    detail: dict[str, Any]
    id: str | None = None
    run_id: str = ""  # the same as `workflow_id`
    seq: int | None = None  # the row of the journal
    at: str | None = None
    state: str = ""  # of the run after this event
    path: str | None = None  # the same as `current_step_id`

    @property
    def kind(self) -> str:
        return str(self.detail.get("kind", ""))


class Client(ScheduleCalls, WorkflowCalls, OperationCalls, Reads):
    """A client of one server. `server` and `key` are those of HOLDFAST_SERVER and HOLDFAST_API_KEY unless given.

    `unix:/path/to/holdfast.db.sock` is the process that has that database open, a program with a `Holdfast` in it too; it needs no
    key. `socket` is the path of such a socket through which a server with an address is reached.
    `timeout` is that of one try, `patience` how long to keep retrying while no server answers, both in seconds.
    """

    @checked
    def __init__(
        self,
        server: str | None = None,
        key: str | None = None,
        *,
        socket: str | None = None,
        timeout: float = TIMEOUT_SECS,
        patience: float = PATIENCE_SECS,
    ) -> None:
        said = os.environ.get("HOLDFAST_SERVER") or os.environ.get("SCHEDULER_BASE") or DEFAULT_SERVER
        self._connection = Connection(
            server or said,
            key or os.environ.get("HOLDFAST_API_KEY"),
            socket=socket,
            timeout=timeout,
            patience=patience,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._connection.close()

    @property
    def server(self) -> str:
        return self._connection.server

    # ---------------------------------------------------------------------------------------------------- runs

    @checked
    async def start(
        self,
        workflow: Spec,
        inputs: Mapping[str, Any] | None = None,
        *,
        number: int | None = None,
        request_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        parent_job_id: str | None = None,
        final_callback: str | Mapping[str, str] | None = None,
        plan_hash: str | None = None,
    ) -> Started:
        """Start a run of a published workflow, by name, or of a definition given as a record, data or YAML text.

        The run is durable when this returns. Repeating a `request_id` returns the same run. When the run ends, the result is sent
        to `final_callback`: a URL, or `{"url": …, "secret_env": …}`. With a `plan_hash`, as `plan` gives it, nothing is started
        if the plan has changed since.
        """
        callback = {"url": final_callback} if isinstance(final_callback, str) else final_callback
        what = "workflow" if isinstance(workflow, str) and is_name(workflow) else "spec"
        body = {
            what: sendable(workflow),
            "inputs": inputs,
            "number": number,
            "request_id": request_id,
            "labels": labels,
            "parent_job_id": parent_job_id,
            "final_callback": callback,
            "plan_hash": plan_hash,
        }
        said = {name: value for name, value in body.items() if value is not None}
        return await self._post("/runs", Started, said, request_key=None if request_id is None else "")

    @checked
    async def run(self, run_id: str, *, values: str = "all") -> Run:
        """Return a run with its inputs, output, error and waits. `values="head"` leaves out values over 2 KiB, `"none"` all."""
        return await self._get(f"/runs/{in_path(run_id)}", Run, {"values": values})

    @checked
    async def wait(self, run_id: str, timeout: float | None = None) -> Run:
        """Wait until the run has finished and return it; raises TimeoutError after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout), aclosing(self.events(run_id)) as events:
                async for _ in events:
                    pass
        except TimeoutError:
            now = await self.run(run_id)
            if now.status not in TERMINAL:
                raise TimeoutError(f"run {run_id} is {now.status} after {timeout} s") from None
            return now
        return await self.run(run_id)

    @checked
    async def runs(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow: str | None = None,
        number: int | None = None,
        label: str | Sequence[str] | None = None,
        created_from: datetime | str | None = None,
        created_to: datetime | str | None = None,
        id_part: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> RunPage:
        """List runs, newest first. Of several labels all must match; `number` is a version of the workflow. `created_from` is included,
        `created_to` is not; both have an offset. `id_part` is the beginning or end of an id, `cursor` that of the previous page."""
        query = {"status": status, "workflow": workflow, "number": number, "label": label, "id": id_part}
        query |= {"from": time_word(created_from), "to": time_word(created_to)}
        return await self._get("/runs", RunPage, query | {"cursor": cursor, "limit": limit})

    @checked
    async def steps(
        self,
        run_id: str,
        *,
        every: bool = False,
        under: str | None = None,
        status: Sequence[str] = (),
        kind: Sequence[str] = (),
        values: str = "all",
        cursor: str | None = None,
        limit: int = 100,
    ) -> StepPage:
        """List the steps that a run has reached: top-level and failed steps, every step, or those that match a filter.

        `under` is a step or an item (`loop`, `loop[3]`). `values` as in `run`."""
        query: dict[str, Any] = {"every": every, "under": under, "status": status, "kind": kind}
        query |= {"values": values, "cursor": cursor, "limit": limit}
        return await self._get(f"/runs/{in_path(run_id)}/steps", StepPage, query)

    @checked
    async def journal(self, run_id: str, *, after: int = 0, limit: int = 100) -> JournalPage:
        """List the stored events of a run, in order."""
        query = {"after": after, "limit": limit}
        return await self._get(f"/runs/{in_path(run_id)}/journal", JournalPage, query)

    @checked
    async def logs(
        self,
        run_id: str,
        *,
        step: str | None = None,
        level: str | None = None,
        cursor: int | None = None,
        limit: int = 100,
    ) -> LogPage:
        """List the log lines of a run, or of one step and the steps inside it. Tracebacks have the level `traceback`."""
        query = {"step": step, "level": level, "cursor": cursor, "limit": limit}
        return await self._get(f"/runs/{in_path(run_id)}/logs", LogPage, query)

    @checked
    async def explain(self, run_id: str) -> Explanation:
        """Explain why the run is not moving, and what would unblock it."""
        return await self._get(f"/runs/{in_path(run_id)}/explain", Explanation)

    @checked
    async def cancel(self, run_id: str, reason: str = "") -> Started:
        """Cancel a run. Raises RunIsOver if it has already finished."""
        return await self._post(f"/runs/{in_path(run_id)}/cancel", Started, {"reason": reason})

    @checked
    async def retry(self, run_id: str) -> Started:
        """Continue a quarantined run. Raises Refused if it is not quarantined."""
        return await self._connection.ask("POST", f"{API}/runs/{in_path(run_id)}/retry", Started)

    @checked
    async def rerun(
        self,
        run_id: str,
        *,
        from_step: str | None = None,
        failed: bool = False,
        paths: Sequence[str] = (),
        inputs: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> Started:
        """Run a finished run again, as a new run. Without further arguments all of it runs again.

        `from_step` is the step to start from, by id or path (`br.s`, `loop[3].s`), or an item (`loop[3]`); `paths` names several.
        `failed` repeats only what failed, within those paths if any are given. All other outcomes are taken over. `inputs` replace
        inputs of the same name.
        """
        body = _again(from_step, failed, paths) | ({} if inputs is None else {"inputs": dict(inputs)})
        return await self._post(f"/runs/{in_path(run_id)}/rerun", Started, body, request_key=request_id)

    @checked
    async def bulk(
        self,
        action: str,
        *,
        ids: Sequence[str] = (),
        status: str | Sequence[str] | None = None,
        workflow: str | None = None,
        number: int | None = None,
        label: str | Sequence[str] | None = None,
        created_from: datetime | str | None = None,
        created_to: datetime | str | None = None,
        failed: bool = False,
        reason: str = "",
        preview: bool = False,
        cursor: str | None = None,
        limit: int = 100,
        request_id: str | None = None,
    ) -> BulkPage:
        """Cancel or rerun many runs (`action`), by ids or by the filters of `runs`. One call handles up to `limit` of them; pass the
        `cursor` of its answer for the next part. `failed` reruns only what failed; `preview` changes nothing. With a `request_id`, a
        call that is repeated reruns no run twice."""
        chosen: dict[str, Any] = {"ids": list(ids), "workflow": workflow, "number": number}
        chosen |= {"status": _listed(status), "label": _listed(label)}
        chosen |= {"from": time_word(created_from), "to": time_word(created_to)}
        body: dict[str, Any] = {
            "action": action,
            "filter": {name: one for name, one in chosen.items() if one},
        }
        body |= {"failed": failed, "reason": reason, "preview": preview, "limit": limit}
        if cursor is not None:
            body["cursor"] = cursor
        return await self._post("/runs/bulk", BulkPage, body, request_key=request_id)

    @checked
    async def preview(
        self, run_id: str, *, from_step: str | None = None, failed: bool = False, paths: Sequence[str] = ()
    ) -> RerunPreview:
        """Return what a rerun would copy, and what it would run."""
        body = {"preview": True} | _again(from_step, failed, paths)
        return await self._post(f"/runs/{in_path(run_id)}/rerun", RerunPreview, body)

    @checked
    async def events(
        self, run_id: str | None = None, *, after: str | None = None
    ) -> AsyncGenerator[LiveEvent, None]:
        """The events of one run up to its end, or of all runs without end.

        After a dropped connection the stream resumes where it was: no event is lost or repeated. `after` is the id of an event; without it, a
        single run is streamed from its start, and all runs from now on.
        """
        path = "/events" if run_id is None else f"/runs/{in_path(run_id)}/events"
        async with aclosing(self._connection.stream(API + path, after=after)) as messages:
            async for message in messages:
                event = msgspec.json.decode(message.data, type=LiveEvent)
                yield msgspec.structs.replace(event, id=message.id)
                if run_id is not None and event.kind == "workflow_terminal":
                    return

    # ------------------------------------------------------------------------------------- what runs wait for

    @checked
    async def signal(
        self, run_id: str, key: str, value: Any = None, *, correlation: str | None = None
    ) -> Started:
        """Send a signal to a run: the step that waits for `key` receives it, now or when it is reached."""
        body = {"key": key, "value": value}
        said = body if correlation is None else body | {"correlation": correlation}
        return await self._post(f"/runs/{in_path(run_id)}/signals", Started, said)

    @checked
    async def approve(
        self,
        run_id: str,
        path: str,
        *,
        approved: bool = True,
        reason: str = "",
        by: str = "",
        form: Any = None,
    ) -> Approval:
        """Answer the approval at a step as the owner of the key; with the scope `admin`, `by` names another approver.

        Raises NotWaiting if no approval is open there, or it was already answered.
        """
        body = {"approved": approved, "reason": reason, "by": by, "form": form}
        return await self._post(f"/runs/{in_path(run_id)}/approvals/{in_path(path)}", Approval, body)

    @checked
    async def approval_link(self, run_id: str, path: str, *, by: str = "") -> ApprovalLink:
        """A one-time link that lets its holder answer an approval; `by` is the approver it is made for."""
        return await self._post(
            f"/runs/{in_path(run_id)}/approvals/{in_path(path)}/links", ApprovalLink, {"by": by}
        )

    @checked
    async def resume(self, task_id: str, answer: Any, *, run_id: str | None = None) -> Resumed:
        """Deliver the result of a call that returned `{"pending": true, "task_id": …}`: it becomes the step's output.

        `{"success": false, "error": …}` fails the step. The returned value says what happened; a late result is not an error.
        """
        body = {"task_id": task_id, "result": answer}
        said = body if run_id is None else body | {"run_id": run_id}
        return await self._connection.ask("POST", RESUME, Resumed, body=said, request_key="")


def _listed(words: str | Sequence[str] | None) -> list[str]:
    return [] if words is None else [words] if isinstance(words, str) else list(words)


def _again(from_step: str | None, failed: bool, paths: Sequence[str]) -> dict[str, Any]:
    """Return the part of a rerun request that says what to run again."""
    words: dict[str, Any] = {} if from_step is None else {"from_step": from_step}
    return words | ({"failed": True} if failed else {}) | ({"paths": list(paths)} if paths else {})
