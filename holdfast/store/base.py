"""What a store can do, and the records it deals in. Knows no dialect.

A store takes batches: all rows of many runs, with everything those rows cause, become durable together or not at all.
`submit` may answer from another thread's work, but always calls `done` on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from holdfast.errors import HoldfastError, StoreGone
from holdfast.store.mark import Marked
from holdfast.values import Millis, RunId, RunNo, Status

JournalRow = tuple[int, int, int, int, str, str]  # run, seq, epoch, at, kind, body
ReadRow = tuple[int, int, int, str, str]  # seq, epoch, at, kind, body


class Committed(NamedTuple):
    """A journal row by its position among those of all runs, and whose it is."""

    pos: int
    no: RunNo
    run_id: RunId
    workflow: str
    version: str
    seq: int
    epoch: int
    at: int
    kind: str
    body: str

    @property
    def row(self) -> ReadRow:
        return self[5:]


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


class RunChange(msgspec.Struct, gc=False):
    """The run row after a batch. `owned` is whether this node drives it; if not, it wakes at `wake_at`."""

    status: Status
    owned: bool
    epoch: int
    wake_at: Millis | None
    needs: str | None = None
    finished_at: Millis | None = None


class Version(msgspec.Struct, frozen=True):
    tenant: str
    hash: str
    name: str
    definition: str
    created_at: Millis
    uses: str | None = None  # the versions of those that it names, as JSON


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
    """One content that was published under a name, or is a draft of it: the same for ever."""

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
    description: str | None = None  # of the workflow; None leaves it as it is


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs a list is to have; what is left out does not matter."""

    status: str | tuple[str, ...] | None = None  # one, or any of several
    workflow: str | None = None
    number: int | None = None  # of a release of that workflow
    label: tuple[str, str | None] | None = None  # a label's name, and its value if that matters too


class KeyName(NamedTuple):
    """An idempotency key and the step that asks for it or lets it go. `scope` is a run's id; "" is for all runs."""

    tenant: str
    scope: str
    key: str
    no: RunNo
    path: str
    at: Millis


class KeyEnd(NamedTuple):
    """What a step leaves behind under its key: the output that others take, or nothing."""

    output: bytes | None = None
    expires_at: Millis | None = None


class KeyAnswer(NamedTuple):
    """A key that has an answer; `created_at` tells it from one of the same name that was taken later."""

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

    A part looks at a bounded number of runs: it may have fewer than were asked for, and still not be the last.
    """

    rows: list[RunRow]
    below: RunNo | None


class WaitOpened(NamedTuple):
    """A step waits for what others can give. `name` is a task id; `detail` is JSON."""

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
    """A wait as others find it; one that is over says how."""

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


class NewLetter(NamedTuple):
    """The end of a run, to be told to one of its destinations. `origin` is the part of the address that names the server."""

    tenant: str
    id: str
    no: RunNo
    n: int
    url: str
    origin: str
    secret_env: str | None
    at: Millis


class LetterTried(NamedTuple):
    """A letter after a try, or after somebody decided about it; counts only if its outcome is still what it was."""

    tries: int
    due_at: Millis
    done_at: Millis | None
    outcome: str | None
    last_error: str
    pos: int
    was: str | None = None


class Letter(NamedTuple):
    """A letter as it stands: `outcome` is delivered, dead or discarded, or None while it is on its way."""

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
    """An answer to a call that nobody has said to be waiting for yet."""

    tenant: str
    task_id: str
    meant: str  # the id of the run that it is for; "" where its sender did not say
    body: str
    expires_at: Millis


class TakenEarly(NamedTuple):
    """One of these is over: it was given to run `no`, in the commit that says so, or is nobody's."""

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


class Batch:
    """What becomes durable together. Filled by the door, written by the store."""

    __slots__ = (
        "api_keys",
        "artefacts",
        "assignments",
        "blobs",
        "changes",
        "closed_waits",
        "deaths",
        "early_results",
        "ended_assignments",
        "expired_early",
        "forgotten",
        "forgotten_keys",
        "forgotten_workers",
        "is_probe",
        "is_settled",
        "keys",
        "lane",
        "letters",
        "new_runs",
        "opened_waits",
        "probe_bytes",
        "published",
        "replies",
        "requests",
        "rows",
        "snapshots",
        "taken_early",
        "told",
        "traces",
        "tried",
        "verdicts",
        "versions",
        "workers",
        "workflows",
    )

    def __init__(self) -> None:
        self.rows: list[JournalRow] = []
        self.new_runs: dict[RunNo, NewRun] = {}
        self.changes: dict[RunNo, RunChange] = {}
        self.versions: list[Version] = []
        self.requests: list[Request] = []
        self.workflows: list[tuple[str, Workflow]] = []  # tenant, and one that may be there already
        self.published: list[Publication] = []
        self.blobs: list[tuple[RunNo, str, bytes]] = []
        self.snapshots: list[tuple[RunNo, int, int, bytes]] = []  # run, part, seq, body
        self.keys: list[tuple[KeyName, KeyEnd | None]] = []  # asked for (None), or let go
        self.verdicts: list[Verdict] = []  # filled by the store: what became of keys, for those who asked
        self.artefacts: list[tuple[RunNo, str, int, Millis]] = []  # run, sha256, size, at
        self.api_keys: list[ApiKey] = []  # made, used or revoked
        self.replies: list[ReplyRow] = []
        self.told: list[tuple[RunNo, ReplyRow]] = []  # answers to what a row of the run says
        self.workers: list[WorkerRow] = []
        self.forgotten_workers: list[tuple[str, str]] = []  # tenant, id
        self.assignments: list[AssignmentRow] = []
        self.ended_assignments: list[tuple[RunNo, str, int]] = []  # run, path, attempt
        self.opened_waits: list[WaitOpened] = []
        self.closed_waits: list[WaitClosed] = []
        self.early_results: list[EarlyResult] = []
        self.taken_early: list[TakenEarly] = []
        self.expired_early: list[tuple[Millis]] = []  # those that nobody came for until then
        self.letters: list[NewLetter] = []
        self.tried: list[LetterTried] = []
        self.forgotten: list[RunNo] = []  # finished runs that are deleted with all that belongs to them
        self.forgotten_keys: list[KeyAnswer] = []
        self.traces: list[tuple[RunNo, str]] = []  # of new runs: what they were started for
        self.lane: str | None = None  # the suspect that is alone from this commit on; "" clears it
        self.deaths: str | None = None  # what processes died of, whole (runtime/deaths.py)
        self.is_probe = False  # write something that means nothing: can the store write and sync?
        self.probe_bytes = 0  # that many at least: what it could not write before
        self.is_settled = False  # its outcome is known

    @property
    def has_rest(self) -> bool:
        """Is there anything that few commits have? Asked in every one."""
        some = self.keys or self.blobs or self.snapshots or self.artefacts or self.forgotten
        rare = self.forgotten_keys or self.traces or self.api_keys or self.workers or self.forgotten_workers
        jobs = self.assignments or self.ended_assignments
        waits = self.opened_waits or self.closed_waits or self.early_results or self.taken_early
        letters = self.letters or self.tried or self.replies or self.told
        single = self.lane is not None or self.deaths is not None or self.is_probe
        return bool(some or rare or jobs or waits or letters) or single

    @property
    def size(self) -> int:
        """About how many bytes its bodies take."""
        bodies = [row[-1] for row in self.rows] + [blob[-1] for blob in self.blobs]
        return sum(map(len, bodies)) + sum(len(snapshot[-1]) for snapshot in self.snapshots)

    def only(self, runs: set[RunNo]) -> Batch:
        """What of this batch belongs to some runs; what belongs to no run comes along."""
        part = Batch()
        part.rows = [row for row in self.rows if row[0] in runs]
        part.new_runs = {no: new for no, new in self.new_runs.items() if no in runs}
        part.changes = {no: change for no, change in self.changes.items() if no in runs}
        part.requests = [request for request in self.requests if request.run in runs]
        part.blobs = [blob for blob in self.blobs if blob[0] in runs]
        part.snapshots = [snapshot for snapshot in self.snapshots if snapshot[0] in runs]
        part.keys = [entry for entry in self.keys if entry[0].no in runs]
        part.artefacts = [artefact for artefact in self.artefacts if artefact[0] in runs]
        part.assignments = [job for job in self.assignments if job.no in runs]
        part.ended_assignments = [job for job in self.ended_assignments if job[0] in runs]
        part.opened_waits = [wait for wait in self.opened_waits if wait.no in runs]
        part.closed_waits = [wait for wait in self.closed_waits if wait.no in runs]
        part.early_results = self.early_results
        part.taken_early = [taken for taken in self.taken_early if taken.no is None or taken.no in runs]
        part.letters = [letter for letter in self.letters if letter.no in runs]
        part.tried = self.tried
        part.forgotten = [no for no in self.forgotten if no in runs]
        part.traces = [trace for trace in self.traces if trace[0] in runs]
        part.versions, part.workflows, part.published = self.versions, self.workflows, self.published
        part.forgotten_keys, part.api_keys = self.forgotten_keys, self.api_keys
        part.workers, part.forgotten_workers = self.workers, self.forgotten_workers
        part.replies, part.told = self.replies, [told for told in self.told if told[0] in runs]
        part.deaths = self.deaths
        part.lane, part.is_probe, part.probe_bytes = self.lane, self.is_probe, self.probe_bytes
        return part

    def without(self, runs: set[RunNo]) -> Batch:
        every = {row[0] for row in self.rows} | self.new_runs.keys() | self.changes.keys()
        every |= {
            artefact[0] for artefact in self.artefacts
        }  # kept from a commit that failed, ahead of their rows
        return self.only({RunNo(no) for no in every} - runs)


class Stored(msgspec.Struct):
    """All that is needed to fold a run: its row, its newest snapshot, and the rows after it."""

    row: RunRow
    parts: list[tuple[int, bytes]]
    snapshot_seq: int
    rows: list[ReadRow]
    trace: str = ""  # that it was started for


class Ends(NamedTuple):
    """A run's row with the beginning and the end of its journal, all of one look."""

    row: RunRow
    first: list[ReadRow]
    last: ReadRow


class Fenced(HoldfastError):
    """Somebody else appended to these runs. The rest of the batch can be sent again as it is."""

    code = "fenced"

    def __init__(self, runs: Sequence[RunNo]) -> None:
        super().__init__(f"another owner appended to {len(runs)} of the runs in this batch")
        self.runs = tuple(runs)


class FileCheck(Protocol):
    """A long look at every page, on a thread: `run` gives what is wrong, `stop` ends it early."""

    def run(self) -> str: ...
    def stop(self) -> None: ...


class Store(Protocol):
    node: str  # the name of this process among those that may have the file
    epoch: int  # this node's incarnation, given by open()
    server_key: bytes  # what the addresses that we give out are signed with; made once, given by open()

    def open(self) -> None: ...
    def close(self) -> None: ...
    def next_no(self) -> RunNo: ...
    def submit(self, batch: Batch, done: Callable[[BaseException | None], None]) -> None: ...
    def problem(self) -> StoreGone | None: ...
    def was_touched(self) -> bool: ...
    def condemn(self, why: str) -> StoreGone: ...
    def file_check(self) -> FileCheck: ...

    async def load(self, no: RunNo) -> Stored | None: ...
    async def load_many(self, runs: Sequence[RunNo]) -> list[Stored]: ...
    async def run_by_id(self, tenant: str, run_id: RunId) -> RunRow | None: ...
    async def run_by_no(self, no: RunNo) -> RunRow | None: ...
    async def ends(self, tenant: str, run_id: RunId) -> Ends | None: ...
    async def list_runs(
        self, tenant: str, before: RunNo | None, limit: int, wanted: Wanted = ...
    ) -> Listing: ...
    async def below_runs(
        self, tenant: str, before: RunNo | None, count: int, wanted: Wanted = ...
    ) -> RunNo | None: ...
    async def count_runs(self, tenant: str, wanted: Wanted = ...) -> int: ...
    async def request_of(self, no: RunNo) -> str | None: ...
    async def request(self, tenant: str, request_id: str) -> tuple[str, RunNo, RunId] | None: ...
    async def published(self, tenant: str, name: str) -> tuple[str, str, int] | None: ...
    async def workflows(self, tenant: str, after: str, limit: int) -> list[Workflow]: ...
    async def workflow(self, tenant: str, name: str) -> Workflow | None: ...
    async def workflow_by_id(self, tenant: str, flow_id: str) -> Workflow | None: ...
    async def releases(self, tenant: str, name: str, below: int, limit: int) -> list[Release]: ...
    async def release(self, tenant: str, name: str, number: int) -> Release | None: ...
    async def release_by_id(self, tenant: str, release_id: str) -> Release | None: ...
    async def newest_published(self, tenant: str, name: str) -> Release | None: ...
    async def workflow_names(self, tenant: str, limit: int) -> list[str]: ...
    async def ids_like(self, tenant: str, part: str, limit: int) -> list[RunId]: ...
    async def key_holder(self, tenant: str, scope: str, key: str) -> tuple[RunId, str] | None: ...
    async def answered_key(self, tenant: str, scope: str, key: str) -> KeyAnswer | None: ...
    async def api_keys(self) -> list[ApiKey]: ...
    async def reply(self, tenant: str, route: str, key: str) -> ReplyRow | None: ...
    async def workers(self) -> list[WorkerRow]: ...
    async def assignments(self) -> list[AssignmentRow]: ...
    async def assignments_of_run(self, no: RunNo) -> list[AssignmentRow]: ...
    async def waits_named(self, tenant: str, task_id: str, limit: int) -> list[WaitRow]: ...
    async def wait_at(
        self, no: RunNo, path: str, kind: str, attempt: int | None = None
    ) -> WaitRow | None: ...
    async def gate_decided(self, no: RunNo, path: str) -> WaitRow | None: ...
    async def waits_of_run(self, no: RunNo, limit: int) -> list[WaitRow]: ...
    async def open_waits(self, tenant: str, kind: str, limit: int) -> list[WaitRow]: ...
    async def early_result(
        self, tenant: str, task_id: str, run_id: RunId, now: Millis
    ) -> tuple[str, str] | None: ...
    async def early_room(self, tenant: str, now: Millis) -> tuple[int, int]: ...
    async def early_waits(self, limit: int) -> list[WaitRow]: ...
    async def letters_due(
        self, now: Millis, full: Sequence[str], runs: Sequence[RunNo] | None, limit: int
    ) -> list[Letter]: ...
    async def next_letter(self, after: Millis) -> Millis | None: ...
    async def letters_of_run(self, no: RunNo) -> list[Letter]: ...
    async def dead_letters(self, tenant: str, after: int, limit: int) -> list[Letter]: ...
    async def letter(self, tenant: str, letter_id: str) -> Letter | None: ...
    async def expired_keys(self, now: Millis, limit: int) -> list[KeyAnswer]: ...
    async def finished_before(self, before: Millis, limit: int) -> list[tuple[RunNo, int]]: ...
    async def names_artefact(self, tenant: str, sha256: str) -> bool: ...
    def artefacts_of_tenants(self) -> Iterator[tuple[str, str, bool]]: ...
    async def artefacts_of_keys(self) -> set[str]: ...
    async def artefacts_of_shelf(self, shelf: str) -> set[str]: ...
    async def journal(self, no: RunNo, after: int, limit: int) -> list[ReadRow]: ...
    async def committed(self, tenant: str, after: int, until: int) -> list[Committed]: ...
    async def last_pos(self) -> int: ...
    async def resting_runs(self, after: RunNo, limit: int) -> list[tuple[RunNo, bool]]: ...
    async def owned_runs(self, after: RunNo, limit: int) -> list[tuple[RunNo, int]]: ...
    async def waits_open(self, after: OpenWait, limit: int) -> list[OpenWait]: ...
    async def letters_by_state(self, limit: int) -> dict[str, int]: ...
    async def runs_by_status(self) -> dict[str, int]: ...
    def sizes(self) -> tuple[int, int]: ...
    def free_bytes(self) -> int: ...
    async def next_pos(self, after: int) -> int | None: ...
    async def blob(self, no: RunNo, sha256: str) -> bytes: ...
    async def definition(self, tenant: str, version: str) -> tuple[str, str | None] | None: ...

    async def deaths(self) -> str | None: ...
    def lane_of_former(self) -> str | None: ...
    async def left_behind(self, after: RunNo, limit: int) -> list[RunNo]: ...
    async def due(self, now: Millis, limit: int) -> list[RunNo]: ...
    async def latest_at(self, rows: int) -> Millis | None: ...
    async def next_wake(self, after: int = ...) -> Millis | None: ...
    async def in_need(self, after: RunNo, limit: int) -> list[tuple[RunNo, str]]: ...
    async def interruptible(self, after: RunNo, limit: int) -> list[RunNo]: ...


COPIED: Final = (
    "{path} is a copy of another database, or was restored from one. If the original is still used, both accept the same job "
    "tokens and callback addresses: make a copy with an identity of its own, holdfast backup NEW.db --as-copy, and use that"
)


class StoreFile(Store, Protocol):
    """A store that is one file, opened to be looked at: what its upkeep needs."""

    path: str

    def still(self) -> AbstractContextManager[None]: ...
    def check_file(self) -> list[str]: ...
    def checks(self) -> list[str]: ...
    def check(self, name: str) -> list[str]: ...
    def newest(self, limit: int) -> list[RunRow]: ...
    def blobs_named(self) -> Iterator[tuple[RunNo, str]]: ...
    def artefacts_named(self) -> Iterator[tuple[str, str, int]]: ...
    def has_blob(self, no: RunNo, sha256: str) -> bool: ...
    def blobs(self) -> Iterator[tuple[RunNo, str, bytes | str]]: ...
    def open_runs(self) -> list[RunNo]: ...
    def marked(self) -> Marked | None: ...
    def last_pos_now(self) -> int: ...
    def schema(self) -> int: ...
    def is_copied(self) -> bool: ...
    def epoch_now(self) -> int: ...
    def copy_to(self, path: str, *, as_copy: bool = False) -> None: ...
