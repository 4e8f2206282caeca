"""The HTTP API as typed calls: `Client` for programs with a loop, `SyncClient` for scripts.

    async with Client("http://127.0.0.1:8070") as client:
        run = await client.start("hello", {"name": "Ada"})
        print((await client.wait(run.run_id)).output)

A start that is asked for again, because a connection dropped, makes one run. What the server refuses is raised as the
same error as in the engine, with the server's words. Knows the addresses and their shapes, nothing of the server's inside.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar
from urllib.parse import quote

import msgspec

from holdfast.api.types import (
    Approval,
    ApprovalLink,
    Diff,
    Explanation,
    FolderReport,
    JournalPage,
    KeyPage,
    KeyView,
    Letter,
    LetterPage,
    MadeKey,
    NodePage,
    Release,
    ReleasePage,
    RerunPreview,
    Resumed,
    Run,
    RunPage,
    Started,
    StepPage,
    WorkerPage,
    Workflow,
    WorkflowPage,
)
from holdfast.arguments import checked
from holdfast.config import DEFAULT_HOST, DEFAULT_PORT
from holdfast.errors import InvalidInputs
from holdfast.sdk.connection import PATIENCE_SECS, TIMEOUT_SECS, Connection
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
    """One event of a run, as it happens. `id` is where to go on after it; what a tool says while it works has none.

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

    @property
    def kind(self) -> str:
        return str(self.detail.get("kind", ""))


class Client:
    """One server. `server` and `key` are those of HOLDFAST_SERVER and HOLDFAST_API_KEY unless given.

    `timeout` is that of one try, `patience` how long to keep retrying while no server answers, both in seconds.
    """

    @checked
    def __init__(
        self,
        server: str | None = None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT_SECS,
        patience: float = PATIENCE_SECS,
    ) -> None:
        said = os.environ.get("HOLDFAST_SERVER") or os.environ.get("SCHEDULER_BASE") or DEFAULT_SERVER
        self._connection = Connection(
            server or said, key or os.environ.get("HOLDFAST_API_KEY"), timeout=timeout, patience=patience
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
    ) -> Started:
        """Start a run: of a published workflow by its name, or of a definition as a record, as data or as YAML text.

        When this returns, the run is durable. With a `request_id` there is one run however often this is asked. Its end
        is delivered to `final_callback`: a URL, or `{"url": …, "secret_env": …}`.
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
        }
        said = {name: value for name, value in body.items() if value is not None}
        return await self._post("/runs", Started, said, request_key=None if request_id is None else "")

    @checked
    async def run(self, run_id: str) -> Run:
        """One run, whole: its inputs, output and error, and what it waits for."""
        return await self._get(f"/runs/{_in(run_id)}", Run)

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
        status: str | None = None,
        workflow: str | None = None,
        label: str | None = None,
        id_part: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> RunPage:
        """Runs, the newest first. `id_part` is how an id begins or ends, `cursor` that of the page before."""
        query = {"status": status, "workflow": workflow, "label": label, "id": id_part}
        return await self._get("/runs", RunPage, query | {"cursor": cursor, "limit": limit})

    @checked
    async def steps(
        self, run_id: str, *, every: bool = False, cursor: str | None = None, limit: int = 100
    ) -> StepPage:
        """The steps that a run has reached: those of the top level and those that failed, or every one."""
        query = {"every": every, "cursor": cursor, "limit": limit}
        return await self._get(f"/runs/{_in(run_id)}/steps", StepPage, query)

    @checked
    async def journal(self, run_id: str, *, after: int = 0, limit: int = 100) -> JournalPage:
        """The facts of a run as they are stored, in order."""
        query = {"after": after, "limit": limit}
        return await self._get(f"/runs/{_in(run_id)}/journal", JournalPage, query)

    @checked
    async def explain(self, run_id: str) -> Explanation:
        """Why the run is not further, and what would unblock it."""
        return await self._get(f"/runs/{_in(run_id)}/explain", Explanation)

    @checked
    async def cancel(self, run_id: str, reason: str = "") -> Started:
        """Stop a run; raises RunIsOver if it has ended already."""
        return await self._post(f"/runs/{_in(run_id)}/cancel", Started, {"reason": reason})

    @checked
    async def retry(self, run_id: str) -> Started:
        """Let the server go on with a run that was set aside; raises Refused if it was not."""
        return await self._connection.ask("POST", f"{API}/runs/{_in(run_id)}/retry", Started)

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
        """Do a finished run once more, as a new one. Without more it is done whole.

        `from_step` is the step to begin with, by id or path (`br.s`, `loop[3].s`), or an item (`loop[3]`); `paths` names
        several. `failed` does again what failed, of those paths if any are given. Everything else is taken over.
        `inputs` replace those of the same name.
        """
        body = _again(from_step, failed, paths) | ({} if inputs is None else {"inputs": dict(inputs)})
        return await self._post(f"/runs/{_in(run_id)}/rerun", Started, body, request_key=request_id)

    @checked
    async def preview(
        self, run_id: str, *, from_step: str | None = None, failed: bool = False, paths: Sequence[str] = ()
    ) -> RerunPreview:
        """What a rerun would take over, and what it would run."""
        body = {"preview": True} | _again(from_step, failed, paths)
        return await self._post(f"/runs/{_in(run_id)}/rerun", RerunPreview, body)

    @checked
    async def events(
        self, run_id: str | None = None, *, after: str | None = None
    ) -> AsyncGenerator[LiveEvent, None]:
        """The events of one run up to its end, or of all runs without end.

        A dropped connection is made again where it was: nothing is lost and nothing comes twice. `after` is the id of
        an event; without it a single run is streamed from its beginning, and all runs from now on.
        """
        path = "/events" if run_id is None else f"/runs/{_in(run_id)}/events"
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
        """Say something to a run: the step that waits for `key` takes it, now or when it is reached."""
        body = {"key": key, "value": value}
        said = body if correlation is None else body | {"correlation": correlation}
        return await self._post(f"/runs/{_in(run_id)}/signals", Started, said)

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

        Raises NotWaiting if nothing is asked there, or it was answered already.
        """
        body = {"approved": approved, "reason": reason, "by": by, "form": form}
        return await self._post(f"/runs/{_in(run_id)}/approvals/{_in(path)}", Approval, body)

    @checked
    async def approval_link(self, run_id: str, path: str, *, by: str = "") -> ApprovalLink:
        """A one-time link that lets its holder answer an approval; `by` is the approver it is made for."""
        return await self._post(f"/runs/{_in(run_id)}/approvals/{_in(path)}/links", ApprovalLink, {"by": by})

    @checked
    async def resume(self, task_id: str, answer: Any, *, run_id: str | None = None) -> Resumed:
        """Deliver the result of a call that answered `{"pending": true, "task_id": …}`: it becomes the step's output.

        `{"success": false, "error": …}` fails the step. The returned value says what happened; a late result is not an error.
        """
        body = {"task_id": task_id, "result": answer}
        said = body if run_id is None else body | {"run_id": run_id}
        return await self._connection.ask("POST", RESUME, Resumed, body=said, request_key="")

    # ------------------------------------------------------------------------------------- final callbacks----

    @checked
    async def letters(self, run_id: str) -> LetterPage:
        """The final-callback deliveries of a run, and their state."""
        return await self._get(f"/runs/{_in(run_id)}/callbacks", LetterPage)

    @checked
    async def dead_letters(self, *, cursor: str | None = None, limit: int = 100) -> LetterPage:
        """Final callbacks that could not be delivered, oldest first."""
        return await self._get("/dead-letters", LetterPage, {"cursor": cursor, "limit": limit})

    @checked
    async def replay(self, letter_id: str) -> Letter:
        """Redeliver a dead letter, as if it were new. Raises Refused if it is not dead."""
        return await self._connection.ask("POST", f"{API}/dead-letters/{_in(letter_id)}/replay", Letter)

    @checked
    async def discard(self, letter_id: str) -> Letter:
        """Discard a dead letter. It stays with its run, but is no longer listed."""
        return await self._connection.ask("DELETE", f"{API}/dead-letters/{_in(letter_id)}", Letter)

    # ----------------------------------------------------------------------------------------------- workflows

    @checked
    async def publish(self, definition: Spec, *, number: int | None = None, draft: bool = False) -> Release:
        """Let the name of a definition mean this version of it. `draft` only stores it."""
        query = {"number": number, "draft": draft or None}
        plain = _plain(definition)
        said = {"yaml": plain} if isinstance(plain, str) else {"body": plain}
        return await self._connection.ask("POST", f"{API}/workflows", Release, query=query, **said)

    @checked
    async def workflows(self, *, cursor: str | None = None, limit: int = 100) -> WorkflowPage:
        """Workflows by name, each with what its name means now."""
        return await self._get("/workflows", WorkflowPage, {"cursor": cursor, "limit": limit})

    @checked
    async def workflow(self, name: str, number: int | None = None) -> Workflow:
        """A workflow with its definition: the published version, or that of a number."""
        tail = "" if number is None else f"/versions/{number}"
        return await self._get(f"/workflows/{_in(name)}{tail}", Workflow)

    @checked
    async def versions(self, name: str, *, cursor: str | None = None, limit: int = 100) -> ReleasePage:
        """The versions of a workflow, the newest first."""
        query = {"cursor": cursor, "limit": limit}
        return await self._get(f"/workflows/{_in(name)}/versions", ReleasePage, query)

    @checked
    async def diff(self, name: str, a: int, b: int) -> Diff:
        """What changed from one version of a workflow to another."""
        return await self._get(f"/workflows/{_in(name)}/diff", Diff, {"from": a, "to": b})

    @checked
    async def roll_back(self, name: str, number: int) -> Release:
        """Let a name mean one of its former versions again."""
        return await self._post(f"/workflows/{_in(name)}/rollback", Release, {"number": number})

    async def folder(self) -> FolderReport:
        """What the server's folder of definitions says: which files were published, and which cannot be used."""
        return await self._get("/folder", FolderReport)

    # ---------------------------------------------------------------------------------------- workers and keys

    @checked
    async def workers(
        self, *, service: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> WorkerPage:
        """The workers that were heard of lately, or those of them who do a service."""
        return await self._get("/workers", WorkerPage, {"service": service, "cursor": cursor, "limit": limit})

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
        """Make a key. It is shown this once: asked for again, it would be another one, so it is asked for once."""
        body = {"name": name, "scopes": list(scopes), "services": list(services)}
        more = {"tenant": tenant, "expires_in_secs": expires_in_secs}
        said = body | {name: value for name, value in more.items() if value is not None}
        return await self._connection.ask("POST", f"{API}/keys", MadeKey, body=said, is_repeatable=False)

    @checked
    async def keys(
        self, *, tenant: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> KeyPage:
        """Keys, revoked ones too, without the keys themselves."""
        return await self._get("/keys", KeyPage, {"tenant": tenant, "cursor": cursor, "limit": limit})

    @checked
    async def revoke_key(self, key_id: str, *, tenant: str | None = None) -> KeyView:
        """Revoke a key; it is refused from now on."""
        return await self._connection.ask(
            "DELETE", f"{API}/keys/{_in(key_id)}", KeyView, query={"tenant": tenant}
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
    """The name of a workflow, or a definition? One in a single line has a colon, or is a mapping in braces."""
    return not ("\n" in text or ": " in text or text.endswith(":") or text.lstrip().startswith("{"))


def _plain(spec: Spec) -> Mapping[str, Any] | str:
    if isinstance(spec, str | Mapping):
        return spec
    if not hasattr(spec, "to_data"):
        raise InvalidInputs(f"a workflow is a name, YAML text, data or a record, not {type(spec).__name__}")
    return spec.to_data()


def _in(part: str) -> str:
    return quote(part, safe="")


def _again(from_step: str | None, failed: bool, paths: Sequence[str]) -> dict[str, Any]:
    """What of a run is to be done again, as a request says it."""
    words: dict[str, Any] = {} if from_step is None else {"from_step": from_step}
    return words | ({"failed": True} if failed else {}) | ({"paths": list(paths)} if paths else {})
