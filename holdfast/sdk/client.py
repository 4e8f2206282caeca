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
import warnings
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar

import msgspec

from holdfast.api.types import (
    Approval,
    ApprovalLink,
    Backfill,
    BulkPage,
    CallbackDelivery,
    CallbackDeliveryPage,
    Diff,
    Explanation,
    FiredSchedule,
    FolderReport,
    JournalPage,
    KeyPage,
    KeyView,
    LedgerPage,
    LogPage,
    MadeKey,
    NextFires,
    NodePage,
    Plan,
    Release,
    ReleasePage,
    RerunPreview,
    Resumed,
    Run,
    RunPage,
    Schedule,
    SchedulePage,
    ServicePage,
    Started,
    StepPage,
    Validation,
    WhyReport,
    WorkerPage,
    Workflow,
    WorkflowPage,
)
from holdfast.arguments import checked
from holdfast.config import DEFAULT_HOST, DEFAULT_PORT
from holdfast.errors import InvalidInputs
from holdfast.sdk.connection import PATIENCE_SECS, TIMEOUT_SECS, Connection
from holdfast.sdk.reads import Reads, in_path, time_word
from holdfast.values import TERMINAL

T = TypeVar("T")

API: Final = "/api/v1"
RESUME: Final = "/workflows/resume"
DEFAULT_SERVER: Final = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"


class HasData(Protocol):
    """A WorkflowSpec or a FlowSpec."""

    def to_data(self) -> dict[str, Any]: ...


Spec = Mapping[str, Any] | str | HasData


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


class Client(Reads):
    """One server. `server` and `key` are those of HOLDFAST_SERVER and HOLDFAST_API_KEY unless given.

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
            what: _plain(workflow),
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

    # ------------------------------------------------------------------------------------- final callbacks----

    @checked
    async def callback_deliveries(self, run_id: str) -> CallbackDeliveryPage:
        """The final-callback deliveries of a run, and their state."""
        return await self._get(f"/runs/{in_path(run_id)}/callbacks", CallbackDeliveryPage)

    @checked
    async def letters(self, run_id: str) -> CallbackDeliveryPage:
        """Deprecated name of `callback_deliveries`; the next release does not have it."""
        warnings.warn("use Client.callback_deliveries", DeprecationWarning, stacklevel=2)
        return await self.callback_deliveries(run_id)

    @checked
    async def dead_letters(self, *, cursor: str | None = None, limit: int = 100) -> CallbackDeliveryPage:
        """Final callbacks that could not be delivered, oldest first."""
        return await self._get("/dead-letters", CallbackDeliveryPage, {"cursor": cursor, "limit": limit})

    @checked
    async def replay(self, delivery_id: str) -> CallbackDelivery:
        """Redeliver a dead letter, as if it were new. Raises Refused if it is not dead."""
        return await self._connection.ask(
            "POST", f"{API}/dead-letters/{in_path(delivery_id)}/replay", CallbackDelivery
        )

    @checked
    async def discard(self, delivery_id: str) -> CallbackDelivery:
        """Discard a dead letter. It stays with its run, but is no longer listed."""
        return await self._connection.ask(
            "DELETE", f"{API}/dead-letters/{in_path(delivery_id)}", CallbackDelivery
        )

    # ----------------------------------------------------------------------------------------------- schedules

    @checked
    async def schedules(self, *, cursor: str | None = None, limit: int = 100) -> SchedulePage:
        """Schedules by id, each with its state and its next fire."""
        return await self._get("/schedules", SchedulePage, {"cursor": cursor, "limit": limit})

    @checked
    async def schedule(self, schedule_id: str) -> Schedule:
        """A schedule with its definition."""
        return await self._get(f"/schedules/{in_path(schedule_id)}", Schedule)

    @checked
    async def next_fires(self, schedule_id: str, *, limit: int = 10) -> NextFires:
        """The next occurrences of a schedule, in its zone and in UTC."""
        return await self._get(f"/schedules/{in_path(schedule_id)}/next", NextFires, {"limit": limit})

    @checked
    async def ledger(
        self, schedule_id: str, *, unfired: bool = False, cursor: str | None = None, limit: int = 100
    ) -> LedgerPage:
        """List the occurrences of a schedule with their outcomes, newest first; `unfired` leaves out those that
        started a run."""
        query = {"unfired": unfired or None, "cursor": cursor, "limit": limit}
        return await self._get(f"/schedules/{in_path(schedule_id)}/ledger", LedgerPage, query)

    @checked
    async def why(self, schedule_id: str, when: str | None = None, *, limit: int = 20) -> WhyReport:
        """Why a schedule did or did not fire: lately, or at a time or on a day, past or future."""
        return await self._get(
            f"/schedules/{in_path(schedule_id)}/why", WhyReport, {"when": when, "limit": limit}
        )

    @checked
    async def put_schedule(self, schedule_id: str, definition: Mapping[str, Any] | str | HasData) -> Schedule:
        """Create or replace a schedule: as data, as YAML text or as a record. An edit keeps how far it has come.

        Raises ManagedByFile if a file, a plugin or a program defines it."""
        plain = _plain(definition)
        said = {"yaml": plain} if isinstance(plain, str) else {"body": plain}
        return await self._connection.ask("PUT", f"{API}/schedules/{in_path(schedule_id)}", Schedule, **said)

    @checked
    async def delete_schedule(self, schedule_id: str) -> Schedule:
        """Delete a schedule; returns it as it was. Its runs go on, and its ledger stays."""
        return await self._connection.ask("DELETE", f"{API}/schedules/{in_path(schedule_id)}", Schedule)

    @checked
    async def fire_schedule(
        self, schedule_id: str, payload: Any = None, *, request_id: str | None = None
    ) -> FiredSchedule:
        """Fire a schedule now, besides its times. With a `request_id` it fires once however often this is asked."""
        body = {} if payload is None else {"payload": payload}
        return await self._post(
            f"/schedules/{in_path(schedule_id)}/fire", FiredSchedule, body, request_key=request_id
        )

    @checked
    async def redeliver(
        self, schedule_id: str, delivery: str, *, request_id: str | None = None
    ) -> FiredSchedule:
        """Start a run for a delivery once more, with the payload that its row of the ledger has kept."""
        path = f"/schedules/{in_path(schedule_id)}/redeliver"
        return await self._post(path, FiredSchedule, {"delivery": delivery}, request_key=request_id)

    @checked
    async def pause_schedule(self, schedule_id: str) -> Schedule:
        """Pause a schedule: it does not fire until it is resumed, and its ledger shows what it skipped."""
        return await self._post(f"/schedules/{in_path(schedule_id)}/pause", Schedule, {})

    @checked
    async def resume_schedule(self, schedule_id: str, *, missed: bool = False) -> Schedule:
        """Resume a paused schedule; with `missed`, the occurrences of the pause are caught up."""
        return await self._post(f"/schedules/{in_path(schedule_id)}/resume", Schedule, {"missed": missed})

    @checked
    async def backfill_schedule(
        self,
        schedule_id: str,
        start: str,
        end: str,
        *,
        max_per_sec: float | None = None,
        preview: bool = False,
        request_id: str | None = None,
    ) -> Backfill:
        """Start the occurrences from `start` to `end` that have no run; `preview` only lists them.

        Dates and times without an offset are meant in the zone of the schedule."""
        body: dict[str, Any] = {"from": start, "to": end, "preview": preview}
        if max_per_sec is not None:
            body["max_per_sec"] = max_per_sec
        path = f"/schedules/{in_path(schedule_id)}/backfill"
        return await self._post(path, Backfill, body, request_key=request_id)

    # ----------------------------------------------------------------------------------------------- workflows

    @checked
    async def publish(
        self, definition: Spec, *, number: int | None = None, draft: bool = False, strict: bool = False
    ) -> Release:
        """Publish a definition under its name. `draft` only stores it. Its `warnings` name tools that no engine has and services that
        no worker serves; `strict` refuses such a definition."""
        query = {"number": number, "draft": draft or None, "strict": strict or None}
        plain = _plain(definition)
        said = {"yaml": plain} if isinstance(plain, str) else {"body": plain}
        return await self._connection.ask("POST", f"{API}/workflows", Release, query=query, **said)

    @checked
    async def validate(self, definition: Spec) -> Validation:
        """Check a definition: every problem with its repair, and the plan of a valid one. Nothing is stored."""
        return await self._post("/validate", Validation, {"spec": _plain(definition)})

    @checked
    async def plan(self, workflow: Spec, number: int | None = None) -> Plan:
        """Return what a run of a published workflow or of a definition would do. Nothing is stored or executed."""
        what = "workflow" if isinstance(workflow, str) and is_name(workflow) else "spec"
        said = {what: _plain(workflow)} | ({} if number is None else {"number": number})
        return await self._post("/plan", Plan, said)

    @checked
    async def workflows(self, *, cursor: str | None = None, limit: int = 100) -> WorkflowPage:
        """List workflows by name, each with its current release."""
        return await self._get("/workflows", WorkflowPage, {"cursor": cursor, "limit": limit})

    @checked
    async def workflow(self, name: str, number: int | None = None) -> Workflow:
        """Return a workflow with its definition: the published version, or a version by number."""
        tail = "" if number is None else f"/versions/{number}"
        return await self._get(f"/workflows/{in_path(name)}{tail}", Workflow)

    @checked
    async def versions(self, name: str, *, cursor: str | None = None, limit: int = 100) -> ReleasePage:
        """List the versions of a workflow, newest first."""
        query = {"cursor": cursor, "limit": limit}
        return await self._get(f"/workflows/{in_path(name)}/versions", ReleasePage, query)

    @checked
    async def diff(self, name: str, a: int, b: int) -> Diff:
        """Return the difference between two versions of a workflow."""
        return await self._get(f"/workflows/{in_path(name)}/diff", Diff, {"from": a, "to": b})

    @checked
    async def roll_back(self, name: str, number: int) -> Release:
        """Make an earlier version of a workflow the current one again."""
        return await self._post(f"/workflows/{in_path(name)}/rollback", Release, {"number": number})

    @checked
    async def folder(self, of: str = "flows") -> FolderReport:
        """The state of the server's folder of workflows, or of `skills`: which files were published, and which have
        problems."""
        return await self._get("/folder", FolderReport, {"of": of})

    # ---------------------------------------------------------------------------------------- workers and keys

    @checked
    async def workers(
        self, *, service: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> WorkerPage:
        """List the live workers, or those that serve one service."""
        return await self._get("/workers", WorkerPage, {"service": service, "cursor": cursor, "limit": limit})

    @checked
    async def services(self, *, cursor: str | None = None, limit: int = 100) -> ServicePage:
        """List the services: how many workers each has, how much work waits for one, and since when."""
        return await self._get("/services", ServicePage, {"cursor": cursor, "limit": limit})

    @checked
    async def nodes(self) -> NodePage:
        """The engine processes of the server, each with its address, version, runs and state."""
        return await self._get("/nodes", NodePage, {})

    @checked
    async def create_key(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        services: Sequence[str] = (),
        tenant: str | None = None,
        expires_in_secs: int | None = None,
    ) -> MadeKey:
        """Create a key. It is shown only once. This request is not retried, because a repetition would create another key."""
        body = {"name": name, "scopes": list(scopes), "services": list(services)}
        more = {"tenant": tenant, "expires_in_secs": expires_in_secs}
        said = body | {name: value for name, value in more.items() if value is not None}
        return await self._connection.ask("POST", f"{API}/keys", MadeKey, body=said, is_repeatable=False)

    @checked
    async def keys(
        self, *, tenant: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> KeyPage:
        """List keys, including revoked ones, without their secret text."""
        return await self._get("/keys", KeyPage, {"tenant": tenant, "cursor": cursor, "limit": limit})

    @checked
    async def revoke_key(self, key_id: str, *, tenant: str | None = None) -> KeyView:
        """Revoke a key; it is refused from now on."""
        return await self._connection.ask(
            "DELETE", f"{API}/keys/{in_path(key_id)}", KeyView, query={"tenant": tenant}
        )

    # -------------------------------------------------------------------------------------------------- asking

    async def _get(self, path: str, answer: type[T], query: Mapping[str, Any] | None = None) -> T:
        return await self._connection.ask("GET", API + path, answer, query=query)

    async def _post(
        self,
        path: str,
        answer: type[T],
        body: Any,
        *,
        request_key: str | None = None,
    ) -> T:
        return await self._connection.ask("POST", API + path, answer, body=body, request_key=request_key)


def is_name(text: str) -> bool:
    """Return whether a text is the name of a workflow rather than a definition. A one-line definition has a colon, or is a mapping in braces."""
    return not ("\n" in text or ": " in text or text.endswith(":") or text.lstrip().startswith("{"))


def _plain(spec: Spec) -> Mapping[str, Any] | str:
    if isinstance(spec, str | Mapping):
        return spec
    if not hasattr(spec, "to_data"):
        raise InvalidInputs(f"a workflow is a name, YAML text, data or a record, not {type(spec).__name__}")
    return spec.to_data()


def _listed(words: str | Sequence[str] | None) -> list[str]:
    return [] if words is None else [words] if isinstance(words, str) else list(words)


def _again(from_step: str | None, failed: bool, paths: Sequence[str]) -> dict[str, Any]:
    """Return the part of a rerun request that says what to run again."""
    words: dict[str, Any] = {} if from_step is None else {"from_step": from_step}
    return words | ({"failed": True} if failed else {}) | ({"paths": list(paths)} if paths else {})
