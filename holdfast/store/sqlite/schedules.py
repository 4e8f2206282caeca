"""Reads of schedules, their cursors and their ledger, on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.store.schedule_records import CursorRow, LedgerKey, LedgerRow, ScheduleRow, ScheduleState
from holdfast.store.sqlite.asking import Asking
from holdfast.store.sqlite.lists import NO_BOUND
from holdfast.values import Millis, RunId, RunNo


class ScheduleReads(Asking):
    # The only slot whose schedules are decided here, if it is not that of all nodes together and that of this node.
    only_slot: str | None = None

    @property
    def slots(self) -> tuple[str, str]:
        """The slots of schedules that are decided here."""
        return ("", self.node) if self.only_slot is None else (self.only_slot, self.only_slot)

    async def schedule(self, tenant: str, schedule_id: str) -> ScheduleRow | None:
        return next(iter(self._schedules("schedule", tenant, schedule_id)), None)

    async def schedules(
        self, tenant: str, after: str, limit: int, origin: str | None = None
    ) -> list[ScheduleRow]:
        """The schedules of a tenant after an id, in the order of their ids."""
        return self._schedules("schedules", tenant, after, origin, limit)

    async def count_schedules(self, tenant: str) -> int:
        return int(self._ask("count_schedules", (tenant,)).get)

    async def schedules_of_kind(self, kind: str, after: tuple[str, str], limit: int) -> list[ScheduleRow]:
        """Those of all tenants, after a tenant and an id."""
        return self._schedules("schedules_of_kind", kind, *after, limit)

    def _schedules(self, name: str, *args: Any) -> list[ScheduleRow]:
        return [ScheduleRow(*row) for row in self._ask(name, args)]

    async def schedule_states(
        self, asked: Sequence[tuple[str, str]], *, every_slot: bool = False
    ) -> list[ScheduleState]:
        """The state of schedules by tenant and id, in that order: in the slots that are decided here, or in all of them."""
        named = msgspec.json.encode(asked).decode()
        return [_state(row) for row in self._ask("schedule_states", (named, *self.slots, every_slot))]

    async def due_schedules(self, now: Millis, limit: int) -> list[ScheduleState]:
        """The schedules whose time has come, the longest due first."""
        return [_state(row) for row in self._ask("due_schedules", (now, *self.slots, limit))]

    async def owing_schedules(self, after: tuple[str, str, str], limit: int) -> list[tuple[str, str, str]]:
        """Cursors whose occurrences wait for a run to end, after one of them: tenant, schedule, slot."""
        return list(self._ask("owing_schedules", (*after, *self.slots, limit)))

    async def next_due(self, after: int = -1) -> Millis | None:
        """The soonest time at which a schedule is due that is after this one."""
        at: Millis | None = self._ask("next_due", (after, *self.slots)).get
        return at

    async def next_fires(self, limit: int) -> list[tuple[str, Millis]]:
        """When schedules are due next, by id: the first ones of all tenants that are due at all."""
        return list(self._ask("next_fires", (limit,)))

    async def oldest_run_of(self, tenant: str, schedule_id: str, slot: str) -> RunId | None:
        """The oldest open run of a schedule, but for those that catch up."""
        found: RunId | None = self._ask("oldest_run_of", (tenant, schedule_id, slot)).get
        return found

    async def open_runs_of(self, tenant: str, schedule_id: str, slot: str) -> int:
        return int(self._ask("open_runs_of", (tenant, schedule_id, slot)).get)

    async def ledger(
        self, tenant: str, schedule_id: str, before: int | None, limit: int, *, unfired: bool = False
    ) -> list[LedgerRow]:
        """What became of the occurrences of a schedule, the last decision first; `unfired` leaves out what has a run."""
        name = "ledger_of_unfired" if unfired else "ledger"
        return self._ledger(name, tenant, schedule_id, NO_BOUND if before is None else before, limit)

    async def ledger_row(self, key: LedgerKey) -> LedgerRow | None:
        return next(iter(self._ledger("ledger_row", *key)), None)

    async def ledger_until(self, last: LedgerKey, limit: int) -> list[LedgerRow]:
        """The rows of a schedule and slot up to an occurrence, the last occurrence first."""
        return self._ledger("ledger_until", *last, limit)

    async def ledger_slots(self, tenant: str, schedule_id: str, limit: int) -> list[str]:
        """The slots that rows of a schedule have."""
        return [slot for (slot,) in self._ask("ledger_slots", (tenant, schedule_id, limit))]

    async def ledger_of_run(self, no: RunNo) -> LedgerRow | None:
        return next(iter(self._ledger("ledger_of_run", no)), None)

    async def ledger_payload(self, pos: int) -> bytes | None:
        payload: bytes | None = self._ask("ledger_payload", (pos,)).get
        return payload

    async def settled_between(self, first: LedgerKey, last: str, limit: int) -> list[str]:
        """The occurrences from one to another, of a kind with a clock, that have a run or wait for one."""
        return [occurrence for (occurrence,) in self._ask("settled_between", (*first, last, limit))]

    async def buffered(
        self, tenant: str, schedule_id: str, slot: str, now: Millis, limit: int
    ) -> list[LedgerRow]:
        """Delayed events that are due, then those that wait until a run of their schedule ends; each the oldest first."""
        return self._ledger("buffered", tenant, schedule_id, slot, now, limit)

    async def buffered_count(self, tenant: str, schedule_id: str, slot: str, limit: int) -> int:
        """How many events wait until a run of their schedule ends; `limit` means that many or more."""
        return int(self._ask("buffered_count", (tenant, schedule_id, slot, limit)).get)

    async def next_delayed(self, after: Millis) -> Millis | None:
        """When the first delayed event is due that is due after this time."""
        at: Millis | None = self._ask("next_delayed", (after,)).get
        return at

    async def buffering_schedules(
        self, after: tuple[str, str, str], limit: int
    ) -> list[tuple[str, str, str]]:
        """Schedules with deliveries that wait, after one of them: tenant, schedule, slot."""
        return list(self._ask("buffering_schedules", (*after, *self.slots, limit)))

    async def old_ledger(self, before: Millis, limit: int) -> int:
        """How many rows of the ledger have no run and were decided before then; `limit` means that many or more."""
        return int(self._ask("old_ledger", (before, limit)).get)

    async def awake(self) -> tuple[Millis | None, str | None]:
        """When an engine that fires schedules was last awake, and the outages that were stored."""
        return next(iter(self._ask("awake")))  # type: ignore[no-any-return]

    def _ledger(self, name: str, *args: Any) -> list[LedgerRow]:
        return [LedgerRow(*row)._replace(is_catchup=bool(row[12])) for row in self._ask(name, args)]


def _state(row: tuple[Any, ...]) -> ScheduleState:
    cursor = CursorRow(row[0], row[1], row[9], row[10], row[11], bool(row[12]), *row[13:17])
    return ScheduleState(ScheduleRow(*row[:9]), cursor, *row[17:])
