"""The records that a store deals in: what it is given to write, and what it gives back. Knows no dialect."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from holdfast.values import Millis, RunId, RunNo, Status

JournalRow = tuple[int, int, int, int, str, str]  # run, seq, epoch, at, kind, body
ReadRow = tuple[int, int, int, str, str]  # seq, epoch, at, kind, body


class RunRow(msgspec.Struct, frozen=True, gc=False):
    """A run as lists and doors see it: what changes with its status and its owner, not with its steps."""

    no: RunNo
    tenant: str
    id: RunId
    version: str
    status: Status
    epoch: int
    owner: str | None
    owner_epoch: int | None
    wake_at: Millis | None
    needs: str | None
    labels: str | None
    created_at: Millis
    finished_at: Millis | None
    parent_job_id: str | None = None
    workflow: str = ""  # the name of its definition
    rerun_of: RunId | None = None
    number: int | None = None  # the release of that workflow, if it was started by name
    schedule: str | None = None  # that started it
    slot: str | None = None


class NewRun(msgspec.Struct, gc=False):
    no: RunNo
    tenant: str
    id: RunId
    version: str
    on_restart: str | None
    labels: str | None
    created_at: Millis
    parent_job_id: str | None = None
    rerun_of: RunId | None = None
    workflow: str = ""
    number: int | None = None
    series: int = 0  # filled by the store: the runs that it is counted with
    schedule: str | None = None  # that starts it, in a slot
    slot: str | None = None
    is_catchup: bool | None = None


class RunChange(msgspec.Struct, gc=False):
    """The run row after a batch. `owned` is whether this node drives it; if not, it wakes at `wake_at`."""

    status: Status
    owned: bool
    epoch: int
    wake_at: Millis | None = None
    needs: str | None = None
    finished_at: Millis | None = None


class Version(msgspec.Struct, frozen=True):
    tenant: str
    hash: str
    name: str
    definition: str
    created_at: Millis
    uses: str | None = None  # the versions of those that it names, as JSON


class StoredVersion(msgspec.Struct, frozen=True):
    """A version as it is read. `source` is the text that its author wrote; None if it was given as data."""

    name: str
    definition: str
    uses: str | None
    source: str | None
    created_at: Millis


class Request(msgspec.Struct, frozen=True):
    """A caller's own name for a start: the same one again means the run that it made."""

    tenant: str
    id: str
    digest: str  # of what was asked for
    run: RunNo
    created_at: Millis


class Workflow(msgspec.Struct, frozen=True):
    """A name that definitions are published under. `number` and `version` are what it means now, if anything."""

    id: str
    name: str
    description: str
    created_at: Millis
    number: int | None = None
    version: str | None = None
    published_at: Millis | None = None


class Release(msgspec.Struct, frozen=True):
    """One content that was published under a name, or is a draft of it: it never changes."""

    id: str
    flow_id: str
    name: str
    number: int
    version: str
    status: Literal["draft", "published"]
    created_at: Millis


class Publication(msgspec.Struct, frozen=True):
    """A release to store; with `is_current`, the name means it from now on."""

    tenant: str
    release: Release
    is_current: bool
    at: Millis
    description: str | None = None  # the workflow's description; None keeps the current one


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs a list is to have; what is left out does not matter."""

    status: str | tuple[str, ...] | None = None  # one, or any of several
    workflow: str | tuple[str, ...] | None = None  # one, or any of several
    number: int | None = None  # of a release of that workflow
    label: tuple[str, str | None] | None = None  # a label's name, and its value if that matters too
    more_labels: tuple[tuple[str, str | None], ...] = ()  # which it must have too
    above: RunNo | None = None  # only runs with a greater number


class RunEdge(NamedTuple):
    """What lists say of a run beside its row: its first row in the journal, its last one if it has ended, and its newest rerun."""

    at: Millis
    first: str
    last: str | None
    rerun_as: RunId | None


class KeyName(NamedTuple):
    """An idempotency key and the step that asks for it or lets it go. `scope` is a run's id; "" is for all runs."""

    tenant: str
    scope: str
    key: str
    no: RunNo
    path: str
    at: Millis


class KeyEnd(NamedTuple):
    """The outcome stored under a step's key: the output that later steps reuse, or nothing."""

    output: bytes | None = None
    expires_at: Millis | None = None


class KeyAnswer(NamedTuple):
    """A key that has an answer; `created_at` distinguishes it from a later key with the same name."""

    tenant: str
    scope: str
    key: str
    created_at: Millis


class ApiKey(msgspec.Struct, frozen=True):
    """A caller's key, known by its hash alone. Scopes and services are words with a space between them."""

    tenant: str
    id: str
    name: str
    hash: str
    scopes: str
    services: str  # "": every service
    created_at: Millis
    expires_at: Millis | None = None
    last_used_at: Millis | None = None
    revoked_at: Millis | None = None
    # JSON arrays of patterns: tools that its definitions may use, published workflows that it sees. None: all of them.
    tools: str | None = None
    workflows: str | None = None
    skips_gate: int = 0  # 1: its definitions need no approval before destructive tools


class ReplyRow(msgspec.Struct, frozen=True):
    """What was answered to a request under a caller's own key."""

    tenant: str
    route: str
    key: str
    digest: str  # of what was asked
    status: int
    body: bytes
    created_at: Millis


class WorkerRow(msgspec.Struct, frozen=True):
    """One who does the work of services: called at `url` (http), or fetching its jobs (pull)."""

    tenant: str
    id: str
    kind: Literal["http", "pull"]
    url: str
    services: str  # names, as a JSON array
    status: Literal["online", "offline"]
    place: int  # in the order of registration
    key_id: str  # of the key that it came with; "": none
    heard_at: Millis


class AssignmentRow(msgspec.Struct, frozen=True):
    """An open attempt that a worker has fetched, or is to fetch: then it has no token."""

    no: RunNo
    path: str
    attempt: int
    service: str
    worker: str = ""
    token: str = ""
    offers: int = 0
    claimed_at: Millis = Millis(0)


class Listing(NamedTuple):
    """Part of a list, and the number that the next part begins below; None if there is no more.

    A page reads a bounded number of runs: it may have fewer than were requested and still not be the last.
    """

    rows: list[RunRow]
    below: RunNo | None


class NewLogLine(NamedTuple):
    """A line that an attempt logged, or the traceback of what it raised. A run keeps `most` lines, of which `mark` is the last."""

    no: RunNo
    path: str
    attempt: int
    at: Millis
    level: str
    text: str
    most: int
    mark: str


class LogLine(NamedTuple):
    """A stored line. `n` counts the lines of its run."""

    n: int
    path: str
    attempt: int
    at: Millis
    level: str
    text: str


class WaitOpened(NamedTuple):
    """A step waits for an answer from outside. `name` is a task id; `detail` is JSON."""

    tenant: str
    kind: str
    name: str
    no: RunNo
    path: str
    attempt: int
    since: Millis
    expires_at: Millis | None
    detail: str


class OpenWait(NamedTuple):
    """One open wait, as it is counted; the first of all comes after `OpenWait()`."""

    tenant: str = ""
    kind: str = ""
    pos: int = 0


class WaitClosed(NamedTuple):
    at: Millis
    outcome: str
    no: RunNo
    path: str
    attempt: int
    kind: str


class WaitRow(NamedTuple):
    """A wait as callers see it; `outcome` says how a closed one ended."""

    no: RunNo
    run_id: RunId
    path: str
    attempt: int
    kind: str
    name: str
    since: Millis
    expires_at: Millis | None
    detail: str
    resolved_at: Millis | None
    outcome: str | None


class NewCallbackDelivery(NamedTuple):
    """The final callback of a run to one of its destinations. `origin` is the part of the URL that names the server."""

    tenant: str
    id: str
    no: RunNo
    n: int
    url: str
    origin: str
    secret_env: str | None
    at: Millis


class CallbackDeliveryTried(NamedTuple):
    """A delivery after an attempt or a decision of the operator; applied only if its outcome has not changed meanwhile."""

    tries: int
    due_at: Millis
    done_at: Millis | None
    outcome: str | None
    last_error: str
    pos: int
    was: str | None = None


class CallbackDelivery(NamedTuple):
    """The current state of a delivery: `outcome` is delivered, dead or discarded, or None while it is pending."""

    pos: int
    tenant: str
    id: str
    run_id: RunId
    no: RunNo
    n: int
    url: str
    origin: str
    secret_env: str | None
    created_at: Millis
    tries: int
    due_at: Millis
    done_at: Millis | None
    outcome: str | None
    last_error: str


class EarlyResult(NamedTuple):
    """An early callback: an answer to a call that has not announced itself as pending yet."""

    tenant: str
    task_id: str
    meant: str  # the id of the run that it is for; "" where its sender did not say
    body: bytes
    expires_at: Millis


class TakenEarly(NamedTuple):
    """An early callback that is removed: delivered to run `no` in the same commit, or expired."""

    tenant: str
    task_id: str
    meant: str
    no: RunNo | None = None


# What became of a key that a step asked for: granted, held by another, or answered with an output.
Verdict = tuple[RunNo, str, Literal["granted", "held", "answered"], bytes | None]


class SetAside(NamedTuple):
    """Why a run is not driven although it is open, and what lets it be tried again."""

    reason: str
    retry: str


class Stored(msgspec.Struct):
    """All that is needed to fold a run: its row, its newest snapshot, and the rows after it."""

    row: RunRow
    parts: list[tuple[int, bytes]]
    snapshot_seq: int
    rows: list[ReadRow]
    trace: str = ""  # that it was started for


class Ends(NamedTuple):
    """A run's row with the beginning and the end of its journal, read in one snapshot."""

    row: RunRow
    first: list[ReadRow]
    last: ReadRow
