"""Reads of a PostgreSQL database: the statements are in sql/, and most reads only make records of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final

from holdfast.store.artefacts import named_in
from holdfast.store.postgres.asking import (
    Asking,
    first,
    raises_store_errors,
    rows,
    same,
    tuples,
    value,
    values,
)
from holdfast.store.postgres.checks import Checks
from holdfast.store.postgres.feed import FeedReads
from holdfast.store.postgres.jobs import JobRows
from holdfast.store.postgres.lists import ListReads, as_list
from holdfast.store.postgres.ownership import OwnershipReads
from holdfast.store.records import (
    ApiKey,
    AssignmentRow,
    CallbackDelivery,
    Ends,
    KeyAnswer,
    LogLine,
    OpenWait,
    ReadRow,
    Release,
    ReplyRow,
    RunEdge,
    RunRow,
    Stored,
    StoredVersion,
    WaitRow,
    WorkerRow,
    Workflow,
)
from holdfast.store.schedule_records import CursorRow, LedgerKey, LedgerRow, ScheduleRow, ScheduleState
from holdfast.values import Millis, RunId, RunNo

ENDS_LOOKED_AT_MAX: Final = 10_000  # runs that are searched by the end of their id
FIRST_ROWS: Final = 5  # of a journal: enough to see when its run was begun
NO_BOUND: Final = 2**62
NO_LIMIT: Final = 9_000_000_000_000_000  # stands for the time of a wait without one, as in the index


class RunReads(Asking):
    async def load(self, no: RunNo) -> Stored | None:
        return next(iter(await self.load_many((no,))), None)

    async def load_many(self, runs: Sequence[RunNo]) -> list[Stored]:
        """All that is needed to fold some runs, of those that are there, in few questions."""
        found = {
            row[0]: Stored(RunRow(*row), [], seq, [], trace)
            for *row, trace, seq in await self._ask("runs_to_load", runs)
        }
        after = [stored.snapshot_seq for stored in found.values()]
        for *row, no in await self._ask("rows_to_load", list(found), after) if found else ():
            found[no].rows.append(tuple(row))
        parted = [no for no, stored in found.items() if stored.snapshot_seq]
        for part, body, no in await self._ask("snapshots_to_load", parted) if parted else ():
            found[no].parts.append((part, body))
        return list(found.values())

    run_by_id = first("run_by_id", RunRow)
    rows_of_kind = values("rows_of_kind")
    number_at = value("number_at", RunNo)
    last_seq = value("last_seq", int)
    blob = value("blob", same)
    runs_without_board = values("runs_without_board")
    request = first("request", lambda *row: row)
    request_of = value("request_of", same)
    artefacts_of_run = tuples("artefacts_of_run")
    finished_before = tuples("finished_before")
    latest_at = value("latest_at", same)

    async def run_by_no(self, no: RunNo) -> RunRow | None:
        return next(iter(await self.runs_numbered((no,))), None)

    async def runs_numbered(self, runs: Sequence[RunNo]) -> list[RunRow]:
        return [RunRow(*row) for row in await self._ask("runs_by_no", runs)]

    async def ends(self, tenant: str, run_id: RunId) -> Ends | None:
        found = await self._ask("ends", tenant, run_id, FIRST_ROWS)
        if not found:
            return None
        journal: list[Any] = [tuple(row[-5:]) for row in found]
        return Ends(RunRow(*found[0][:-5]), journal[:FIRST_ROWS], journal[-1])

    async def run_edges(self, runs: Sequence[RunNo]) -> dict[RunNo, RunEdge]:
        """The first row of some runs, and the last one of those that have ended."""
        return {RunNo(no): RunEdge(*rest) for no, *rest in await self._ask("run_edges", runs)}

    async def ids_like(self, tenant: str, part: str, limit: int) -> list[RunId]:
        """Runs by the beginning of their id, or, of the newest ones, by its end."""
        found = await self._ask("ids_like", tenant, part, limit, ENDS_LOOKED_AT_MAX)
        return list(dict.fromkeys(row[0] for row in found))[:limit]

    async def journal(self, no: RunNo, after: int, limit: int, bytes_max: float = inf) -> list[ReadRow]:
        found, size = list[ReadRow](), 0
        for row in await self._ask("rows_of", no, after, limit if limit >= 0 else None):
            found.append(tuple(row))
            size += len(row[-1])
            if size >= bytes_max:
                break
        return found

    async def board_parts(self, no: RunNo, parts: Sequence[str]) -> dict[str, bytes]:
        return dict(await self._ask("board_parts", no, parts))

    async def blob_head(self, no: RunNo, sha256: str, size: int) -> tuple[bytes, int]:
        """The first bytes of a large value, and its length."""
        head, length = await self._first("blob_head", no, sha256, size)
        return head, length


class WorkflowReads(Asking):
    published = first("published", lambda *row: row)
    workflows = rows("workflows", Workflow)
    workflow = first("workflow", Workflow)
    workflow_by_id = first("workflow_by_id", Workflow)
    releases = rows("releases", Release)
    release_numbered = first("release_numbered", Release)
    release_by_id = first("release_by_id", Release)
    newest_published = first("newest_published", Release)
    workflow_names = values("workflow_names")
    version = first("version", StoredVersion)
    definition = first("definition", lambda *row: row)


class WaitReads(Asking):
    epoch: int

    waits_named = rows("waits_named", WaitRow)
    gate_decided = first("gate_decided", WaitRow)
    gates_named = rows("gates_named", WaitRow)
    waits_of_run = rows("waits_of_run", WaitRow)
    first_waits = rows("first_waits", WaitRow)
    count_waits = value("count_waits", int)
    open_waits = rows("open_waits", WaitRow)
    early_waits = rows("early_waits", WaitRow)
    early_result = first("early_of", lambda *row: row)
    next_callback_delivery = value("next_callback_delivery", same)
    callback_deliveries_of_run = rows("callback_deliveries_of_run", CallbackDelivery)
    dead_letters = rows("dead_letters", CallbackDelivery)
    callback_delivery = first("callback_delivery", CallbackDelivery)

    async def wait_at(self, no: RunNo, path: str, kind: str, attempt: int | None = None) -> WaitRow | None:
        """The wait of an attempt, or of the newest."""
        row = await self._first("wait_at", no, path, kind, attempt)
        return None if row is None else WaitRow(*row)

    async def callback_deliveries_due(
        self, now: Millis, full: Sequence[str], runs: Sequence[RunNo] | None, limit: int
    ) -> list[CallbackDelivery]:
        """Deliveries whose time has come, the longest due first: none to `full` origins, and of `runs` alone, if given."""
        found = await self._ask("callback_deliveries_due", now, list(full), runs, limit, self.epoch)
        return [CallbackDelivery(*row) for row in found]

    async def log_lines(
        self,
        no: RunNo,
        after: int,
        limit: int,
        *,
        path: str | None = None,
        attempt: int | None = None,
        level: str | None = None,
    ) -> list[LogLine]:
        """The lines of a run after number `after`, oldest first; with `path`, those of a step and of the steps inside it."""
        return [LogLine(*row) for row in await self._ask("log_lines", no, after, path, attempt, level, limit)]

    async def log_tail(self, no: RunNo, path: str, limit: int) -> list[LogLine]:
        """The newest lines of one step, oldest first."""
        return [LogLine(*row) for row in await self._ask("log_tail", no, path, limit)][::-1]

    async def waits_by_time(
        self, tenant: str, kinds: Sequence[str], after: int | None, limit: int
    ) -> list[tuple[int, WaitRow]]:
        """Open waits of some kinds behind the one with a number, each with its number: least time left first."""
        due, pos = -1, -1
        if after is not None:
            at = await self._value("place_of_wait", after, tenant)
            due, pos = (NO_LIMIT, after) if at is None else (at, after)
        each = [await self._ask("waits_by_time", tenant, kind, due, pos, limit) for kind in kinds]
        merged = sorted((row for found in each for row in found), key=lambda row: (row[0], row[1]))
        return [(row[1], WaitRow(*row[2:])) for row in merged[:limit]]

    async def waits_open(self, after: OpenWait, limit: int) -> list[OpenWait]:
        """Open waits of all tenants after a position: each with its tenant, kind and position."""
        return [OpenWait(*row) for row in await self._ask("waits_open", *after, limit)]

    async def early_room(self, tenant: str, now: Millis) -> tuple[int, int]:
        """How many answers of a tenant wait for their pause, and how many bytes they are."""
        count, total = await self._first("early_room", tenant, now)
        return count, total

    async def callback_deliveries_by_state(self, limit: int) -> dict[str, int]:
        """The number of pending and of dead deliveries; `limit` means that many or more."""
        return dict(await self._ask("callback_deliveries_by_state", limit))


class ScheduleReads(Asking):
    schedule = first("schedule", ScheduleRow)
    count_schedules = value("count_schedules", int)
    next_fires = tuples("next_fires")
    oldest_run_of = value("oldest_run_of", same)
    open_runs_of = value("open_runs_of", int)
    ledger_slots = values("ledger_slots")
    ledger_of_run = first("ledger_of_run", LedgerRow)
    ledger_payload = value("ledger_payload", same)
    buffered = rows("buffered", LedgerRow)
    buffered_count = value("buffered_count", int)
    next_delayed = value("next_delayed", same)
    old_ledger = value("old_ledger", int)

    async def schedules(
        self, tenant: str, after: str, limit: int, origin: str | None = None
    ) -> list[ScheduleRow]:
        """The schedules of a tenant after an id, in the order of their ids."""
        return [ScheduleRow(*row) for row in await self._ask("schedules", tenant, after, origin, limit)]

    async def schedules_of_kind(self, kind: str, after: tuple[str, str], limit: int) -> list[ScheduleRow]:
        """Those of all tenants, after a tenant and an id."""
        return [ScheduleRow(*row) for row in await self._ask("schedules_of_kind", kind, *after, limit)]

    async def schedule_states(
        self, asked: Sequence[tuple[str, str]], *, every_slot: bool = False
    ) -> list[ScheduleState]:
        """The state of schedules by tenant and id, in that order: in the slots that are decided here, or in all of them."""
        tenants, ids = [tenant for tenant, _ in asked], [name for _, name in asked]
        found = await self._ask("schedule_states", tenants, ids, *self.slots, every_slot)
        return [_state(row) for row in found]

    async def due_schedules(self, now: Millis, limit: int) -> list[ScheduleState]:
        """The schedules whose time has come, the longest due first."""
        return [_state(row) for row in await self._ask("due_schedules", now, *self.slots, limit)]

    async def owing_schedules(self, after: tuple[str, str, str], limit: int) -> list[tuple[str, str, str]]:
        """Cursors whose occurrences wait for a run to end, after one of them: tenant, schedule, slot."""
        found: list[Any] = [tuple(r) for r in await self._ask("owing_schedules", *after, *self.slots, limit)]
        return found

    async def buffering_schedules(
        self, after: tuple[str, str, str], limit: int
    ) -> list[tuple[str, str, str]]:
        """Schedules with deliveries that wait, after one of them: tenant, schedule, slot."""
        asked = (*after, *self.slots, limit)
        found: list[Any] = [tuple(row) for row in await self._ask("buffering_schedules", *asked)]
        return found

    async def next_due(self, after: int = -1) -> Millis | None:
        """The soonest time at which a schedule is due that is after this one."""
        at: Millis | None = await self._value("next_due", after, *self.slots)
        return at

    async def ledger(
        self, tenant: str, schedule_id: str, before: int | None, limit: int, *, unfired: bool = False
    ) -> list[LedgerRow]:
        """What became of the occurrences of a schedule, the last decision first; `unfired` leaves out what has a run."""
        name, bound = "ledger_of_unfired" if unfired else "ledger", NO_BOUND if before is None else before
        return [LedgerRow(*row) for row in await self._ask(name, tenant, schedule_id, bound, limit)]

    async def ledger_row(self, key: LedgerKey) -> LedgerRow | None:
        row = await self._first("ledger_row", *key)
        return None if row is None else LedgerRow(*row)

    async def ledger_until(self, last: LedgerKey, limit: int) -> list[LedgerRow]:
        """The rows of a schedule and slot up to an occurrence, the last occurrence first."""
        return [LedgerRow(*row) for row in await self._ask("ledger_until", *last, limit)]

    async def settled_between(self, first: LedgerKey, last: str, limit: int) -> list[str]:
        """The occurrences from one to another, of a kind with a clock, that have a run or wait for one."""
        return [row[0] for row in await self._ask("settled_between", *first, last, limit)]

    async def awake(self) -> tuple[Millis | None, str | None]:
        """When an engine that fires schedules was last awake, and the outages that were stored."""
        at, outages = await self._first("awake")
        return None if at is None else Millis(int(at)), None if outages is None else outages.decode()


@raises_store_errors
class PostgresReads(
    RunReads, WorkflowReads, WaitReads, ScheduleReads, ListReads, OwnershipReads, JobRows, FeedReads, Checks
):
    key_holder = first("key_holder", lambda *row: row)
    answered_key = first("answered_key", KeyAnswer)
    api_keys = rows("api_keys", ApiKey)
    reply = first("reply", ReplyRow)
    workers = rows("workers", WorkerRow)
    assignments = rows("assignments", AssignmentRow)
    assignments_of_run = rows("assignments_of_run", AssignmentRow)
    expired_keys = rows("expired_keys", KeyAnswer)
    artefacts_of_tenants = tuples("artefacts_of_tenants")

    async def names_artefact(
        self, tenant: str, sha256: str, workflows: tuple[str, ...] | None = None
    ) -> bool:
        """Does some run of the tenant name this artefact? Or, of some of its workflows, has a run made it?"""
        return bool(await self._value("names_artefact", tenant, sha256, as_list(workflows)))

    async def artefacts_of_shelf(self, shelf: str) -> set[str]:
        """The artefacts that runs name, of those whose sha256 begins so."""
        past = f"{shelf}g"  # every hexadecimal digit
        return {row[0] for row in await self._ask("artefacts_between", shelf, past)}

    async def artefacts_of_keys(self) -> set[str]:
        """The artefacts that answers kept under idempotency keys name."""
        outputs = await self._ask("outputs_with_artefacts")
        return {sha256 for row in outputs for sha256 in named_in(row[0])}

    async def runs_by_status(self) -> dict[str, int]:
        return dict(await self._ask("runs_by_status"))

    async def sizes(self) -> dict[str, int]:
        """The bytes of the database."""
        return {"database": await self._value("sizes")}


def _state(row: Any) -> ScheduleState:
    return ScheduleState(ScheduleRow(*row[:9]), CursorRow(row[0], row[1], *row[9:17]), *row[17:])
