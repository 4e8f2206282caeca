"""The requests and responses under /api/v1, and the status of each error.

Imports no other package, so that the client can share it. Times are RFC 3339 in UTC with milliseconds.
"""

from __future__ import annotations

import time
from typing import Annotated, Any, Final, Literal

import msgspec

from holdfast import limits
from holdfast.errors import HoldfastError, Problem
from holdfast.values import Error, Millis, Status, StepState

PAGE_MAX: Final = limits.DEFAULTS.page_max
PAGE: Final = 100
WAIT_SECS_MAX: Final = limits.DEFAULTS.wait_secs_max
RETRY_AFTER_SECS: Final = 1
NAME_CHARS_MAX: Final = 200
ID_CHARS_MAX: Final = 255
KEY_PATTERN: Final = "^[!-~]+$"  # of an Idempotency-Key

# ----------------------------------------------------------------------------------------------------- errors

# One line per code; statuses are known only here. 400: the request cannot be parsed, or a value has the wrong
# type. 422: it was parsed but cannot be carried out: a definition, inputs, a key used before for a different request.
STATUS: Final[dict[str, int]] = {
    "invalid_request": 400,
    "unauthorised": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "refused": 409,
    "run_is_over": 409,
    "run_is_open": 409,
    "run_set_aside": 409,
    "superseded": 409,
    "not_waiting": 409,
    "ambiguous_task": 409,
    "version_conflict": 409,
    "body_too_large": 413,
    "unsupported_media_type": 415,
    "misdirected_request": 421,
    "invalid_spec": 422,
    "invalid_inputs": 422,
    "limit_exceeded": 422,
    "expression_too_costly": 422,
    "request_conflict": 422,
    "too_many_requests": 429,
    "headers_too_large": 431,
    "internal_error": 500,
    "unavailable": 503,
    "store_unavailable": 503,
    "store_gone": 503,
    "store_damaged": 503,
    "database_in_use": 503,
    "node_is_over": 503,
    "engine_closed": 503,
    "too_many_connections": 503,
}


class Fault(msgspec.Struct, frozen=True):
    """The body of every error response."""

    error: str
    message: str
    details: list[Problem] = []


def status_of(code: str) -> int:
    return STATUS.get(code, 500)


def fault_of(error: HoldfastError) -> Fault:
    return Fault(error.code, str(error), list(getattr(error, "problems", ())))


# ------------------------------------------------------------------------------------------------------ times


def time_text(at: Millis) -> str:
    whole, part = divmod(at, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{part:03d}Z"


def time_or_none(at: Millis | None) -> str | None:
    return None if at is None else time_text(at)


# --------------------------------------------------------------------------------------------- words of requests


def most(limit: str) -> int:
    """The schema's own limit: the highest that any server can be configured to. The actual limit is checked inside."""
    return limits.bounds(limit)[1]


Text = Annotated[str, msgspec.Meta(min_length=1, max_length=ID_CHARS_MAX)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
StepPath = Annotated[str, msgspec.Meta(min_length=1, max_length=10_000)]
Scope = Literal["read", "run", "approve", "resume", "worker", "admin"]
Number = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]
Cursor = Annotated[str, msgspec.Meta(min_length=1, max_length=1_000)]
Seq = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class NoQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a route without parameters."""


class PageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The query parameters of every list."""

    cursor: Cursor | None = None
    limit: Limit = PAGE


# -------------------------------------------------------------------------------------------------------- runs


class FinalCallback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the final callback of the run is sent."""

    url: str
    secret_env: str | None = None


class StartRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`workflow` is a published name, `spec` a definition in either notation, as data or as YAML text: give exactly one."""

    workflow: Name | None = None
    spec: dict[str, Any] | str | None = None
    number: Number | None = None  # release of the workflow; default: the published one
    inputs: dict[str, Any] = {}
    request_id: Text | None = None
    labels: dict[str, str] = {}
    wait_secs: Annotated[float, msgspec.Meta(ge=0, le=WAIT_SECS_MAX)] = 0
    parent_job_id: Text | None = None
    final_callback: FinalCallback | None = None
    final_callback_url: str | None = None

    def __post_init__(self) -> None:
        if (self.workflow is None) == (self.spec is None):
            raise ValueError("give either `workflow`, a published name, or `spec`, a definition")
        if self.number is not None and self.workflow is None:
            raise ValueError("`number` is the release of a published workflow: give `workflow` too")


class Started(msgspec.Struct, frozen=True):
    """The run is durable: it will finish even if the server crashes."""

    run_id: str
    status: Status


class Paused(msgspec.Struct, frozen=True):
    """Every open step of the run waits for a callback: `task_ids` are their task ids, `task_id` is the oldest."""

    paused: bool
    task_id: str
    run_id: str
    task_ids: list[str]


class ApprovalLink(msgspec.Struct, frozen=True):
    """A link that lets its holder answer one approval. `by` is the approver it was made for, if any."""

    url: str
    by: str = ""


class Wait(msgspec.Struct, frozen=True):
    """What a step waits for; `until` is when it continues by itself. `name` is the task id of a callback; `detail` is what
    a caller needs to end the wait: a prompt and its form, the names of signals, a poll_url. `links` are the approval
    links that this key may give out, if the server has a public URL."""

    path: str
    kind: str
    until: str | None
    since: str | None = None
    name: str = ""
    detail: dict[str, Any] = {}
    links: list[ApprovalLink] = []


class SendSignal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: Name
    value: Any = None
    correlation: Name | None = None


class AnswerApproval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`by` is who answers, if it is not the owner of the key: only an admin, or any caller of a server without keys, sets it."""

    approved: bool
    reason: Annotated[str, msgspec.Meta(max_length=most("text_chars_max"))] = ""
    form: Any = None
    by: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)] = ""


class MakeLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`by` is who is to answer; only an admin, or any caller of a server without keys, may name another person."""

    by: Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)] = ""


class AnswerLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The answer counts for the person that the link was made for."""

    approved: bool
    reason: Annotated[str, msgspec.Meta(max_length=most("text_chars_max"))] = ""
    form: Any = None


class Approval(msgspec.Struct, frozen=True):
    """`decided`: the wait has ended. With a quorum, several answers are needed."""

    run_id: str
    path: str
    decided: bool


class ResumeTask(msgspec.Struct, frozen=True):
    """The later result of a call: `result`, or else every field except `task_id` and `run_id`."""

    task_id: str
    run_id: str | None = None
    result: Any = None
    success: bool | None = None
    data: Any = None
    error: Any = None


class ResumeCall(msgspec.Struct, frozen=True):
    """The same, sent to the callback URL of the call."""

    result: Any = None
    success: bool | None = None
    data: Any = None
    error: Any = None


class Resumed(msgspec.Struct, frozen=True):
    resumed: bool
    reason: Literal["resumed", "parked", "already_resumed", "expired", "unknown_task"]


class Progress(msgspec.Struct, frozen=True):
    completed_steps: int
    total_steps: int


class SetAside(msgspec.Struct, frozen=True):
    """Why an open run is set aside, and how to retry it."""

    reason: str
    retry: str


class Run(msgspec.Struct, frozen=True):
    """`set_aside` is null unless the run is open but set aside because it crashed the process or hit a bug."""

    run_id: str
    workflow: str
    version: str  # hash of the definition
    number: int | None  # of the version under its name, if it was published
    status: Status
    inputs: Any
    output: Any
    error: Error | None
    waits: list[Wait]
    progress: Progress
    labels: dict[str, str]
    created_at: str
    started_at: str | None
    finished_at: str | None
    rerun_of: str | None = None
    parent_job_id: str | None = None
    set_aside: SetAside | None = None


class RunLine(msgspec.Struct, frozen=True):
    """The summary of a run in lists."""

    run_id: str
    workflow: str
    version: str
    status: Status
    labels: dict[str, str]
    created_at: str
    finished_at: str | None
    rerun_of: str | None = None
    parent_job_id: str | None = None


class RunsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`label` is `team=x`, or `team` for any value; `id` is the first or last characters of a run id, and excludes other filters."""

    id: Annotated[str, msgspec.Meta(min_length=4, max_length=36)] | None = None
    status: Status | None = None
    workflow: Name | None = None
    label: Annotated[str, msgspec.Meta(min_length=1, max_length=2 * most("label_chars_max") + 1)] | None = (
        None
    )
    cursor: Cursor | None = None
    limit: Limit = PAGE


class RunPage(msgspec.Struct, frozen=True):
    """Newest first. `cursor` requests the next page; null on the last one."""

    items: list[RunLine]
    cursor: str | None


class JournalQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rows whose seq is greater than `after`. `cursor` is an alias that every list has."""

    after: Seq | None = None
    cursor: Seq | None = None
    limit: Limit = PAGE

    def __post_init__(self) -> None:
        if self.after is not None and self.cursor is not None:
            raise ValueError("`after` and `cursor` mean the same: give only one of them")


class JournalLine(msgspec.Struct, frozen=True):
    """One event with the decisions it caused, as stored."""

    seq: int
    at: str
    kind: str
    body: Any
    jobs: dict[str, str] = {}  # ids of the attempts in this row, by path and number: `a#1`


class JournalPage(msgspec.Struct, frozen=True):
    """`cursor` requests the next page; null on the last one."""

    items: list[JournalLine]
    cursor: int | None


class StepsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Without `every`: the top-level steps and those that failed."""

    every: bool = False
    cursor: Cursor | None = None
    limit: Limit = PAGE


class Step(msgspec.Struct, frozen=True):
    """A step that the run has reached. `due_at` is when a waiting or retrying one continues by itself. `task_id` is the id
    under which a later result was announced, `waits_since` when it last began to wait for an answer from outside."""

    path: str
    status: StepState
    attempts: int
    output: Any
    error: Error | None
    started_at: str
    finished_at: str | None
    due_at: str | None
    reason: str
    is_scope: bool
    children: int
    done: int
    failed: int
    worker: list[str]  # id and URL of the worker that ran it, if any
    task_id: str = ""
    waits_since: str | None = None
    job_id: str | None = None  # of its latest attempt, as events and artefacts name it


class StepPage(msgspec.Struct, frozen=True):
    """`names` are the top-level steps in the order of the definition, reached or not."""

    items: list[Step]
    names: list[str]
    cursor: str | None


class Reason(msgspec.Struct, frozen=True):
    """One open item, and what would unblock it. An empty path is the run itself. `kind` is the kind of wait, if it is one;
    `reason` is its former name, and always the same."""

    path: str
    reason: str
    since: str
    until: str | None
    unblocks: str
    links: list[ApprovalLink] = []
    kind: str = ""


class Explanation(msgspec.Struct, frozen=True):
    run_id: str
    status: Status
    driven_by: int | None  # the pid of the process that runs it now
    reasons: list[Reason]
    more: int  # further reasons, not listed


class CancelRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    reason: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


class RerunRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Re-run a finished run, from its beginning or only in part; the rest is copied from it.

    `from_step` is a step to start from, by id or by path (`br.s`, `loop[3].s`), or an item (`loop[3]`); `paths` names
    several. `failed` re-runs what failed, limited to those paths if any are given. `inputs` replace those of the same name.
    With `preview` nothing is started: the response says what would run.
    """

    from_step: StepPath | None = None
    preview: bool = False
    failed: bool = False
    paths: Annotated[list[StepPath], msgspec.Meta(max_length=most("rerun_paths_max"))] = []
    inputs: dict[str, Any] | None = None


class RerunPreview(msgspec.Struct, frozen=True):
    copied: list[str]  # top-level steps whose outcome is copied
    runs: list[str]  # top-level steps that run, and paths inside steps that run in part


# --------------------------------------------------------------------------------------------------- workflows


class Release(msgspec.Struct, frozen=True):
    """One version of a workflow. `version` is the hash of its definition, `number` counts under its name."""

    name: str
    number: int
    version: str
    status: Literal["draft", "published"]
    id: str
    flow_id: str
    created_at: str


class ReleasePage(msgspec.Struct, frozen=True):
    items: list[Release]
    cursor: str | None


class WorkflowLine(msgspec.Struct, frozen=True):
    """A name, and the version that it currently refers to; null until one is published under it."""

    name: str
    flow_id: str
    description: str
    number: int | None
    version: str | None
    created_at: str
    published_at: str | None


class WorkflowPage(msgspec.Struct, frozen=True):
    items: list[WorkflowLine]
    cursor: str | None


class Workflow(msgspec.Struct, frozen=True):
    """A version with its definition, in its original notation."""

    name: str
    number: int
    version: str
    status: Literal["draft", "published"]
    id: str
    flow_id: str
    created_at: str
    definition: dict[str, Any]


class PublishQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`draft` stores the definition without publishing it under its name."""

    number: Number | None = None
    draft: bool = False


class DiffQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    from_: Number = msgspec.field(name="from")
    to: Number


class Diff(msgspec.Struct, frozen=True):
    name: str
    from_: int = msgspec.field(name="from")
    to: int
    text: str  # lines of the two definitions as YAML, with + and -
    pointers: list[str]  # to what differs


class RollBack(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: Number


class FolderFile(msgspec.Struct, frozen=True):
    """One file of the server's workflow folder. If a file breaks, its last published version stays."""

    file: str
    name: str | None
    status: Literal["published", "broken"]
    problems: list[Problem]


class FolderReport(msgspec.Struct, frozen=True):
    """`folder` is null if the server has no workflow folder; `problem` concerns the folder as a whole."""

    folder: str | None
    problem: str
    items: list[FolderFile]


# ------------------------------------------------------------------------------------------------------- nodes


class Node(msgspec.Struct, frozen=True):
    """An engine process."""

    name: str
    epoch: int
    pid: int
    address: str | None
    release: str
    runs: int  # resident in its memory
    is_leaving: bool
    version: str = ""  # of Holdfast; the same as `release`
    since: str = ""
    state: Literal["ready", "leaving"] = "ready"


class NodePage(msgspec.Struct, frozen=True):
    items: list[Node]
    cursor: str | None


# ----------------------------------------------------------------------------------------------------- deliveries


class Letter(msgspec.Struct, frozen=True):
    """The delivery of a final callback to one URL. `id` is its `webhook-id`; `next_try_at` is null once it has ended."""

    id: str
    run_id: str
    url: str
    secret_env: str | None
    status: Literal["waiting", "delivered", "dead", "discarded"]
    tries: int
    last_error: str  # empty if the last attempt succeeded
    created_at: str
    next_try_at: str | None
    done_at: str | None


class LetterPage(msgspec.Struct, frozen=True):
    items: list[Letter]
    cursor: str | None


# ----------------------------------------------------------------------------------------------------- workers

WorkerId = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Service = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
Services = Annotated[list[Service], msgspec.Meta(min_length=1, max_length=most("worker_services_max"))]
Load = Annotated[int, msgspec.Meta(ge=0, le=1_000_000_000)]
Token = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
ANSWER_BYTES_MAX: Final = 25 * 1024 * 1024 + 64 * 1024  # a value and its envelope


class OfferService(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A service of a worker. `supports_async_callback`: its calls receive a `callback_url` in their `params`."""

    name: Service
    supports_async_callback: bool = False


class RegisterWorker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker of kind `http` is called at its `url`; one of kind `pull` has no URL and fetches its jobs. A service is its
    name, or an object with options."""

    id: WorkerId
    services: Annotated[
        list[Service | OfferService], msgspec.Meta(min_length=1, max_length=most("worker_services_max"))
    ]
    kind: Literal["http", "pull"] = "http"
    url: Annotated[str, msgspec.Meta(max_length=most("url_chars_max"))] | None = None


class WorkerBeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A heartbeat: `load` is the number of calls that the worker is running."""

    load: Load = 0


class WorkersQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    """`service`: only workers that offer this service."""

    service: Service | None = None


class Worker(msgspec.Struct, frozen=True):
    """A worker whose registration has not expired."""

    id: str
    url: str  # empty for a pull worker
    services: list[str]
    load: int
    last_heartbeat: str
    status: Literal["online", "offline"]
    type: Literal["http", "pull"]
    supports_async_callback: list[str]  # its services that support callbacks


class WorkerPage(msgspec.Struct, frozen=True):
    items: list[Worker]
    cursor: str | None


class Poll(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Fetch jobs, waiting up to `wait_secs` for the first one. `services` defaults to all that the worker registered."""

    worker_id: WorkerId
    services: Services | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    wait_secs: Annotated[float, msgspec.Meta(ge=0, le=WAIT_SECS_MAX)] = 0


class Assignment(msgspec.Struct, frozen=True):
    """A job. Every report on it must carry the token; it is valid as long as the lease is renewed."""

    id: str
    token: str
    run_id: str
    path: str
    attempt: int
    service: str
    input: Any
    params: Any
    idempotency_key: str  # the same for every attempt of this step
    lease_secs: float
    traceparent: str | msgspec.UnsetType = msgspec.UNSET


class Assignments(msgspec.Struct, frozen=True):
    """New jobs, and the ids of jobs that the worker must stop."""

    assignments: list[Assignment]
    cancel: list[str]


class JobProgress(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The progress of a job: a fraction from 0 to 1, or `done` of `total`."""

    done: float
    total: float | None = None
    message: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


class AssignmentBeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The worker is still running the job: renew its lease."""

    token: Token
    progress: JobProgress | None = None
    load: Load | None = None


class Lease(msgspec.Struct, frozen=True):
    """`cancel`: stop, and complete the job with whatever result there is."""

    lease_secs: float
    cancel: bool


class CompleteAssignment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`result`, or `error` if the job failed; `error_kind` is what `retry_on` matches."""

    token: Token
    result: Any = msgspec.UNSET
    error: str | None = None
    error_kind: Annotated[str, msgspec.Meta(max_length=100)] | None = None

    def __post_init__(self) -> None:
        if bool(self.error) == (self.result is not msgspec.UNSET):
            raise ValueError("give `result`, or `error` if the job failed, but not both")


class Accepted(msgspec.Struct, frozen=True):
    """The result was accepted and is durable."""

    accepted: Literal[True] = True


# -------------------------------------------------------------------------------------------------------- keys


class NewKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`services` limits what a worker with this key may serve. `tenant` defaults to the caller's."""

    name: Name
    scopes: Annotated[list[Scope], msgspec.Meta(min_length=1)]
    services: Annotated[list[Name], msgspec.Meta(max_length=most("key_services_max"))] = []
    tenant: Name | None = None
    expires_in_secs: Annotated[int, msgspec.Meta(ge=1, le=10 * 366 * 86_400)] | None = None


class KeyView(msgspec.Struct, frozen=True):
    """A key as lists show it. `last_used_at` may be an hour behind."""

    id: str
    name: str
    tenant: str
    scopes: list[Scope]
    services: list[str]  # empty: every service
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


class MadeKey(KeyView, frozen=True, kw_only=True):
    """A new key. This is the only response that contains the key itself."""

    key: str


class KeyPage(msgspec.Struct, frozen=True):
    items: list[KeyView]
    cursor: str | None


class TenantQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tenant: Name | None = None


class KeysQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tenant: Name | None = None
    cursor: Cursor | None = None
    limit: Limit = PAGE
