"""Reads of a SQLite file: runs and their journals here, the rest in the modules that this one puts together."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import inf
from typing import Any, Final

import msgspec

from holdfast.store.artefacts import named_in
from holdfast.store.records import (
    ApiKey,
    AssignmentRow,
    Ends,
    KeyAnswer,
    Listing,
    ReadRow,
    ReplyRow,
    RunEdge,
    RunRow,
    Stored,
    Wanted,
    WorkerRow,
)
from holdfast.store.sqlite.asking import raises_store_errors
from holdfast.store.sqlite.feed import FeedReads
from holdfast.store.sqlite.lists import EVERY_RUN, Lists, json_names
from holdfast.store.sqlite.opening import Opening
from holdfast.store.sqlite.ownership import OwnershipReads
from holdfast.store.sqlite.schedules import ScheduleReads
from holdfast.store.sqlite.waits import WaitReads
from holdfast.store.sqlite.workflows import WorkflowReads
from holdfast.values import Millis, RunId, RunNo

ENDS_LOOKED_AT_MAX: Final = 10_000  # runs that are searched by the end of their id
NO_BLOB: Final[Any] = (None,)  # the result for a run that is being deleted
EVERY: Final = -1  # as a limit of rows
FIRST_ROWS: Final = 5  # first rows of a journal: enough to see when its run began


@raises_store_errors
class SqliteReads(Opening, OwnershipReads, FeedReads, WorkflowReads, WaitReads, ScheduleReads):
    async def load(self, no: RunNo) -> Stored | None:
        """The same as `load_many`, without the detour over a list of numbers, which costs as much as reading a short run."""
        found = next(iter(self._ask("run_to_load", (no,))), None)
        if found is None:
            return None
        *row, trace, seq = found
        stored = Stored(RunRow(*row), [], seq, list(self._ask("rows_of", (no, seq, EVERY))), trace)
        if seq:
            stored.parts += self._ask("snapshot_of", (no,))
        return stored

    async def load_many(self, runs: Sequence[RunNo]) -> list[Stored]:
        """All that is needed to fold some runs, of those that are there, in few questions."""
        asked = (msgspec.json.encode(runs).decode(),)
        found = {
            row[0]: Stored(RunRow(*row), [], seq, [], trace)
            for *row, trace, seq in self._ask("runs_to_load", asked)
        }
        for row in self._ask("rows_to_load", asked):
            found[row[-1]].rows.append(row[:-1])
        for stored in found.values():
            if stored.snapshot_seq:
                stored.parts += self._ask("snapshot_of", (stored.row.no,))
        return list(found.values())

    async def run_by_id(self, tenant: str, run_id: RunId) -> RunRow | None:
        return next(iter(self._rows("run_by_id", tenant, run_id)), None)

    async def run_by_no(self, no: RunNo) -> RunRow | None:
        return next(iter(self._rows("run_by_no", no)), None)

    async def ends(self, tenant: str, run_id: RunId) -> Ends | None:
        row = await self.run_by_id(tenant, run_id)
        if row is None:
            return None
        first = await self.journal(row.no, 0, FIRST_ROWS)
        return Ends(row, first, self._ask("last_row", (row.no,)).get)

    def _rows(self, name: str, *args: Any) -> list[RunRow]:
        return [RunRow(*row) for row in self._ask(name, args)]

    def _lists(self) -> Lists:
        if self._ending is None:
            self._begin_look()
        return Lists(self._read, self._sql)

    async def list_runs(
        self, tenant: str, before: RunNo | None, limit: int, wanted: Wanted = EVERY_RUN
    ) -> Listing:
        """Runs, the newest first."""
        found, below = self._lists().part(tenant, before, limit, wanted)
        return Listing(self._rows("runs_by_no", msgspec.json.encode(found).decode()), below)

    async def runs_numbered(self, runs: Sequence[RunNo]) -> list[RunRow]:
        return self._rows("runs_by_no", msgspec.json.encode(runs).decode())

    async def rows_of_kind(self, no: RunNo, kind: str) -> list[str]:
        """The bodies of the rows of a run that have an event of one kind."""
        return [body for (body,) in self._ask("rows_of_kind", (no, kind))]

    async def number_at(self, at: Millis) -> RunNo:
        """The number of the first run that was created at or after a time: numbers follow creation, so it is searched by halves."""
        low, high = 1, self._ask("last_run").get + 1
        while low < high:
            middle = (low + high) // 2
            no, created_at = next(iter(self._ask("run_from", (middle,))))
            if created_at < at:
                low = no + 1
            else:
                high = middle
        return RunNo(low)

    async def run_edges(self, runs: Sequence[RunNo]) -> dict[RunNo, RunEdge]:
        """The first row of some runs, and the last one of those that have ended."""
        found = self._ask("run_edges", (msgspec.json.encode(runs).decode(),))
        return {RunNo(no): RunEdge(*rest) for no, *rest in found}

    async def below_runs(
        self, tenant: str, before: RunNo | None, count: int, wanted: Wanted = EVERY_RUN
    ) -> RunNo | None:
        """What a list begins below that leaves out so many runs; None if it has no more than these."""
        return self._lists().below(tenant, before, count, wanted)

    async def count_runs(self, tenant: str, wanted: Wanted = EVERY_RUN) -> int:
        """How many runs there are of a status, a workflow, a release: from counters, not by looking at runs."""
        assert wanted.label is None, "labelled runs are not counted"
        return self._lists().count(tenant, wanted)

    async def run_counts(self, tenant: str) -> list[tuple[str, str, int]]:
        """How many runs each workflow has in each status, by the names of the workflows: from counters."""
        return list(self._ask("counts", (tenant,)))

    async def pulse(
        self, tenant: str, workflow: str | tuple[str, ...] | None, first: int, last: int, width: int
    ) -> list[tuple[int, int, int]]:
        """How often each beat of store/beats.py occurred, in stretches of `width` minutes from the first minute to the last: number of
        the stretch, beat, runs."""
        asked = {
            "tenant": tenant,
            "workflows": json_names(workflow),
            "first": first,
            "last": last,
            "width": width,
        }
        return list(self._ask("pulse", asked))

    async def has_pulse(self, first: int, last: int, is_by_minute: bool) -> bool:
        """Whether runs were counted from the first minute to the last; of those by minute, if only these are meant."""
        return bool(self._ask("has_pulse", (first, last, is_by_minute)).get)

    async def ids_like(self, tenant: str, part: str, limit: int) -> list[RunId]:
        """Runs by the beginning of their id, or, of the newest ones, by its end."""
        found = list(self._ask("ids_beginning", (tenant, part, limit)))
        found += self._ask("ids_ending", (tenant, part, limit, ENDS_LOOKED_AT_MAX))
        return list(dict.fromkeys(run_id for (run_id,) in found))[:limit]

    async def request_of(self, no: RunNo) -> str | None:
        """The caller's own id of the start that made a run, if it had one."""
        found: str | None = self._ask("request_of", (no,)).get
        return found

    async def request(self, tenant: str, request_id: str) -> tuple[str, RunNo, RunId] | None:
        return next(iter(self._ask("request", (tenant, request_id))), None)

    async def journal(self, no: RunNo, after: int, limit: int, bytes_max: float = inf) -> list[ReadRow]:
        found, rows, size = self._ask("rows_of", (no, after, limit)), list[ReadRow](), 0
        if bytes_max == inf:
            return list(found)
        for row in found:
            rows.append(row)
            size += len(row[-1])
            if size >= bytes_max:
                break
        return rows

    async def last_seq(self, no: RunNo) -> int:
        """The number of the last row of a run."""
        found: int = self._ask("last_seq", (no,)).get
        return found

    async def blob(self, no: RunNo, sha256: str) -> bytes:
        found: tuple[bytes] = await self._first("blob", (no, sha256)) or NO_BLOB
        return found[0]

    async def board_parts(self, no: RunNo, parts: Sequence[str]) -> dict[str, bytes]:
        """Parts of the stored board of a run, of those that are there."""
        return dict(self._ask("board_parts", (no, msgspec.json.encode(parts).decode())))

    async def runs_without_board(self, newest: int, rows: int) -> list[RunNo]:
        """Of so many newest runs, the finished ones with a journal of this many rows and no stored board."""
        return [RunNo(no) for (no,) in self._ask("runs_without_board", (newest, rows))]

    async def blob_head(self, no: RunNo, sha256: str, size: int) -> tuple[bytes, int]:
        """The first bytes of a large value, and its length."""
        head, length = self._ask("blob_head", (no, sha256, size)).get
        return bytes(head), int(length)

    async def artefacts_of_run(self, no: RunNo) -> list[tuple[str, int]]:
        """The artefacts that a run names, with their sizes."""
        return list(self._ask("artefacts_of_run", (no,)))

    # ------------------------------------------------------------------------------- keys, workers, artefacts, sizes

    async def key_holder(self, tenant: str, scope: str, key: str) -> tuple[RunId, str] | None:
        return next(iter(self._ask("key_holder", (tenant, scope, key))), None)

    async def answered_key(self, tenant: str, scope: str, key: str) -> KeyAnswer | None:
        created_at = self._ask("answered_key", (tenant, scope, key)).get
        return None if created_at is None else KeyAnswer(tenant, scope, key, created_at)

    async def api_keys(self) -> list[ApiKey]:
        return [ApiKey(*row) for row in self._ask("api_keys")]

    async def reply(self, tenant: str, route: str, key: str) -> ReplyRow | None:
        return self._one("reply", ReplyRow, tenant, route, key)

    async def workers(self) -> list[WorkerRow]:
        return [WorkerRow(*row) for row in self._ask("workers")]

    async def assignments(self) -> list[AssignmentRow]:
        return [AssignmentRow(*row) for row in self._ask("assignments")]

    async def assignments_of_run(self, no: RunNo) -> list[AssignmentRow]:
        return [AssignmentRow(*row) for row in self._ask("assignments_of_run", (no,))]

    async def expired_keys(self, now: Millis, limit: int) -> list[KeyAnswer]:
        return [KeyAnswer(*row) for row in self._ask("expired_keys", (now, limit))]

    async def finished_before(self, before: Millis, limit: int) -> list[tuple[RunNo, int]]:
        """Finished runs that ended before then, the oldest first: number, rows."""
        return list(self._ask("finished_before", (before, limit)))

    async def names_artefact(
        self, tenant: str, sha256: str, workflows: tuple[str, ...] | None = None
    ) -> bool:
        """Does some run of the tenant name this artefact? Or, of some of its workflows, has a run made it?"""
        if workflows is None:
            return bool(self._ask("names_artefact", (sha256, tenant)).get)
        return bool(self._ask("names_artefact_in", (sha256, tenant, json_names(workflows))).get)

    async def artefacts_of_shelf(self, shelf: str) -> set[str]:
        """The artefacts that runs name, of those whose sha256 begins so."""
        bounds = (shelf, f"{shelf}g")  # past every hexadecimal digit
        return {sha256 for (sha256,) in self._ask("artefacts_between", bounds)}

    async def artefacts_of_keys(self) -> set[str]:
        """The artefacts that answers kept under idempotency keys name."""
        outputs = self._ask("outputs_with_artefacts")
        return {sha256 for (output,) in outputs for sha256 in named_in(output)}

    async def runs_by_status(self) -> dict[str, int]:
        return dict(self._ask("runs_by_status"))

    async def sizes(self) -> dict[str, int]:
        """The bytes of the file, and of the log that is not yet in it."""
        return {"database": _size_of(self._read.filename), "log": _size_of(self._read.filename_wal)}

    def free_bytes(self) -> int:
        """What the disk of the file has left for this process."""
        found = os.statvfs(os.path.dirname(self._read.filename))
        return found.f_frsize * (found.f_bfree if os.geteuid() == 0 else found.f_bavail)

    async def artefacts_of_tenants(self) -> list[tuple[str, str, bool]]:
        """What was stored for runs of other tenants than the default one, and whether that has stored the same."""
        return list(self._ask("artefacts_of_tenants"))


def _size_of(path: str) -> int:
    return os.path.getsize(path) if path and os.path.exists(path) else 0
