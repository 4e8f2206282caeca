"""What a store can do. Knows no dialect.

A store takes batches: all rows of many runs, with everything those rows cause, become durable together or not at all.
`submit` may answer from another thread's work, but always calls `done` on the event loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple, Protocol

from holdfast.errors import HoldfastError, StoreGone
from holdfast.store.batch import Batch
from holdfast.store.feed import Cursor
from holdfast.store.jobs import SharedJobs
from holdfast.store.ownership import Ownership
from holdfast.store.reads import (
    DeliveryReads,
    FeedReads,
    FileReads,
    HistoryReads,
    KeyReads,
    LedgerReads,
    OpenRunReads,
    RunReads,
    ScheduleReads,
    WaitReads,
    WorkerReads,
    WorkflowReads,
)
from holdfast.store.records import RunRow
from holdfast.store.schedule_records import Firing
from holdfast.values import RunNo

PIECE_BYTES: Final = 256 * 1024  # of a journal that is read in turns: about 2,000 decisions


class Fenced(HoldfastError):
    """Another process was first: it appended to these runs, or decided what these firings decide. Nothing of the batch is
    written. Without them, and without the runs that the firings start, it can be sent again as it is."""

    code = "fenced"

    def __init__(self, runs: Sequence[RunNo], firings: Sequence[Firing] = ()) -> None:
        super().__init__(f"another process was first for {len(runs) or len(firings)} entries of this batch")
        self.firings = tuple(firings)
        self.runs = tuple(dict.fromkeys((*runs, *(one.no for one in firings if one.no is not None))))


class FileCheck(Protocol):
    """A check of every page, on a thread: `run` returns the problems, `stop` ends it early."""

    has_begun: bool

    def run(self) -> str: ...
    def stop(self) -> None: ...


class Store(
    RunReads,
    HistoryReads,
    OpenRunReads,
    WorkflowReads,
    WaitReads,
    KeyReads,
    WorkerReads,
    DeliveryReads,
    ScheduleReads,
    LedgerReads,
    FeedReads,
    FileReads,
    Ownership,
    Protocol,
):
    """All that the engine asks of its database: reads by subject, ownership, and one verb that writes: `submit`."""

    node: str  # the name of this process among those that may have the file
    # The only slot of schedules that is decided here; None: the slot of all nodes and that of this one.
    only_slot: str | None
    epoch: int  # this node's incarnation, given by open()
    server_key: bytes  # what the addresses that we give out are signed with; made once, given by open() and open_to_read()

    @property
    def slots(self) -> tuple[str, str]: ...
    async def open(self) -> None: ...
    async def open_to_read(self, *, any_release: bool = False) -> None: ...
    async def close(self) -> None: ...
    def abandon(self) -> None: ...
    def still(self) -> AbstractAsyncContextManager[None]: ...
    def next_no(self) -> RunNo: ...
    def submit(self, batch: Batch, done: Callable[[BaseException | None], None]) -> None: ...
    def problem(self) -> StoreGone | None: ...
    def was_touched(self) -> bool: ...
    def condemn(self, why: str) -> StoreGone: ...
    def file_check(self) -> FileCheck: ...

    # Jobs of pull workers that any node may lease; None if there is no other node.
    shared_jobs: SharedJobs | None


DURABILITIES: Final = ("full", "relaxed")  # relaxed: a power cut may take the last commits

COPIED: Final = (
    "{path} is a copy of another database, or was restored from one. If the original is still used, both accept the same job "
    "tokens and callback addresses: make a copy with an identity of its own, holdfast backup NEW.db --as-copy, and use that"
)


class Acknowledged(NamedTuple):
    """What is known beside a database of its last acknowledged commit."""

    upto: Cursor
    epoch: int  # how often the database had been opened


class CheckedStore(Store, Protocol):
    """A store that is opened for reading: what the checks of either dialect ask, inside `still`."""

    path: str

    async def schema(self) -> int: ...
    async def missing_parts(self) -> list[str]: ...
    def checks(self) -> list[str]: ...
    async def check(self, name: str) -> list[str]: ...
    async def newest(self, limit: int) -> list[RunRow]: ...
    async def open_runs(self) -> list[RunNo]: ...
    def definitions(self) -> AsyncIterator[tuple[str, str, str, str | None]]: ...
    def every_schedule(self) -> AsyncIterator[tuple[str, str, str, str | None]]: ...
    def blobs_named(self) -> AsyncIterator[tuple[RunNo, str]]: ...
    async def has_blob(self, no: RunNo, sha256: str) -> bool: ...
    def blobs(self) -> AsyncIterator[tuple[RunNo, str, bytes | str]]: ...
    def artefacts_named(self) -> AsyncIterator[tuple[str, str, int]]: ...


class StoreFile(CheckedStore, Protocol):
    """A store that is one file: what its upkeep needs besides."""

    def check_file(self) -> list[str]: ...
    def acknowledged(self) -> Acknowledged | None: ...
    def lost(self, acknowledged: Acknowledged | None) -> str: ...
    def behind(self) -> str: ...
    def accept_loss(self) -> None: ...
    def feed_end_now(self) -> Cursor: ...
    def is_copied(self) -> bool: ...
    def epoch_now(self) -> int: ...
    def copy_to(self, path: str, *, as_copy: bool = False) -> None: ...


class StoreServer(CheckedStore, Protocol):
    """A store on a server, which looks after its files itself."""

    async def server_version(self) -> str: ...
