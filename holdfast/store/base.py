"""What a store can do, and the records it deals in. Knows no dialect.

A store takes batches: all rows of many runs, with everything those rows cause, become durable together or not at all.
`submit` may answer from another thread's work, but always calls `done` on the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple, Protocol

import msgspec

from holdfast.errors import HoldfastError
from holdfast.values import Millis, RunId, RunNo, Status

JournalRow = tuple[int, int, int, int, str, str]  # run, seq, epoch, at, kind, body
ReadRow = tuple[int, int, int, str, str]  # seq, epoch, at, kind, body


class RunRow(msgspec.Struct, frozen=True):
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


class NewRun(msgspec.Struct):
    no: RunNo
    tenant: str
    id: RunId
    version: str
    on_restart: str | None
    labels: str | None
    created_at: Millis
    parent_job_id: str | None = None
    rerun_of: RunId | None = None


class RunChange(msgspec.Struct):
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


class Publication(msgspec.Struct, frozen=True):
    """From now on, a name means this version."""

    tenant: str
    name: str
    version: str
    published_at: Millis


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs a list is to have; what is left out does not matter."""

    status: str | None = None
    workflow: str | None = None
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


# What became of a key that a step asked for: granted, held by another, or answered with an output.
Verdict = tuple[RunNo, str, Literal["granted", "held", "answered"], bytes | None]


class Batch:
    """What becomes durable together. Filled by the door, written by the store."""

    __slots__ = (
        "artefacts",
        "blobs",
        "changes",
        "forgotten",
        "forgotten_keys",
        "is_probe",
        "keys",
        "lane",
        "new_runs",
        "published",
        "requests",
        "rows",
        "snapshots",
        "verdicts",
        "versions",
    )

    def __init__(self) -> None:
        self.rows: list[JournalRow] = []
        self.new_runs: dict[RunNo, NewRun] = {}
        self.changes: dict[RunNo, RunChange] = {}
        self.versions: list[Version] = []
        self.requests: list[Request] = []
        self.published: list[Publication] = []
        self.blobs: list[tuple[RunNo, str, bytes]] = []
        self.snapshots: list[tuple[RunNo, int, int, bytes]] = []  # run, part, seq, body
        self.keys: list[tuple[KeyName, KeyEnd | None]] = []  # asked for (None), or let go
        self.verdicts: list[Verdict] = []  # filled by the store: what became of keys, for those who asked
        self.artefacts: list[tuple[RunNo, str, int, Millis]] = []  # run, sha256, size, at
        self.forgotten: list[RunNo] = []  # finished runs that are deleted with all that belongs to them
        self.forgotten_keys: list[KeyAnswer] = []
        self.lane: str | None = None  # the suspect that is alone from this commit on; "" clears it
        self.is_probe = False  # write something that changes nothing: can the store write at all?

    @property
    def has_rest(self) -> bool:
        """Is there anything that few commits have? Asked in every one."""
        some = self.keys or self.blobs or self.snapshots or self.artefacts or self.forgotten
        return bool(some or self.forgotten_keys) or self.lane is not None or self.is_probe

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
        part.forgotten = [no for no in self.forgotten if no in runs]
        part.versions, part.published = self.versions, self.published
        part.forgotten_keys = self.forgotten_keys
        part.lane, part.is_probe = self.lane, self.is_probe
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
    rows: Sequence[ReadRow]


class Fenced(HoldfastError):
    """Somebody else appended to these runs. The rest of the batch can be sent again as it is."""

    code = "fenced"

    def __init__(self, runs: Sequence[RunNo]) -> None:
        super().__init__(f"another owner appended to {len(runs)} of the runs in this batch")
        self.runs = tuple(runs)


class Store(Protocol):
    epoch: int  # this node's incarnation, given by open()

    def open(self) -> None: ...
    def close(self) -> None: ...
    def next_no(self) -> RunNo: ...
    def submit(self, batch: Batch, done: Callable[[BaseException | None], None]) -> None: ...

    async def load(self, no: RunNo) -> Stored | None: ...
    async def run_by_id(self, tenant: str, run_id: RunId) -> RunRow | None: ...
    async def run_by_no(self, no: RunNo) -> RunRow | None: ...
    async def list_runs(
        self, tenant: str, before: RunNo | None, limit: int, wanted: Wanted = ...
    ) -> list[RunRow]: ...
    async def request(self, tenant: str, request_id: str) -> tuple[str, RunNo, RunId] | None: ...
    async def published(self, tenant: str, name: str) -> tuple[str, str] | None: ...
    async def workflow_names(self, tenant: str, limit: int) -> list[str]: ...
    async def ids_like(self, tenant: str, part: str, limit: int) -> list[RunId]: ...
    async def key_holder(self, tenant: str, scope: str, key: str) -> tuple[RunId, str] | None: ...
    async def answered_key(self, tenant: str, scope: str, key: str) -> KeyAnswer | None: ...
    async def expired_keys(self, now: Millis, limit: int) -> list[KeyAnswer]: ...
    async def finished_before(self, before: Millis, limit: int) -> list[tuple[RunNo, int]]: ...
    async def artefacts_of_keys(self) -> set[str]: ...
    async def artefacts_of_shelf(self, shelf: str) -> set[str]: ...
    async def journal(self, no: RunNo, after: int, limit: int) -> list[ReadRow]: ...
    async def blob(self, no: RunNo, sha256: str) -> bytes: ...
    async def definition(self, tenant: str, version: str) -> tuple[str, str | None] | None: ...

    def lane_of_former(self) -> str | None: ...
    async def left_behind(self, after: RunNo, limit: int) -> list[RunNo]: ...
    async def due(self, now: Millis, limit: int) -> list[RunNo]: ...
    async def next_wake(self) -> Millis | None: ...
    async def in_need(self, after: RunNo, limit: int) -> list[tuple[RunNo, str]]: ...
    async def interruptible(self, after: RunNo, limit: int) -> list[RunNo]: ...


class StoreFile(Store, Protocol):
    """A store that is one file, opened to be looked at: what its upkeep needs."""

    path: str

    def still(self) -> AbstractContextManager[None]: ...
    def check_file(self) -> list[str]: ...
    def checks(self) -> list[str]: ...
    def check(self, name: str) -> list[str]: ...
    def blobs_named(self) -> Iterator[tuple[RunNo, str]]: ...
    def artefacts_named(self) -> Iterator[tuple[str, int]]: ...
    def has_blob(self, no: RunNo, sha256: str) -> bool: ...
    def schema(self) -> int: ...
    def epoch_now(self) -> int: ...
    def copy_to(self, path: str) -> None: ...
