"""Starts events that wait until a run of their schedule ends or a delay has passed. They are stored as ledger rows.

Knows when to try; whether there is room, and what an event starts, is decided by occurrences.py. The schedules that have such
events are known here by name, so the end of any other run costs nothing; after a restart they are read from the ledger.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.errors import NodeIsOver, Unavailable
from holdfast.runtime.clock import Clock
from holdfast.runtime.timers import Timers
from holdfast.store.base import Store
from holdfast.store.schedule_records import LedgerRow, ScheduleRow
from holdfast.triggers.occurrences import SLOT, Delivery, Occurrences
from holdfast.triggers.starting import known
from holdfast.values import Millis

log = logging.getLogger("holdfast")

PAGE: Final = 1_000
QUERY_AGAIN_MS: Final = 1_000  # after a query or a commit that failed

Key = tuple[str, str]  # tenant, schedule
# The payload of an event that is made when it starts, of a kind that stores less than that; None: what is stored.
Payload = Callable[[LedgerRow], Awaitable[bytes | None]]


class Waiting:
    def __init__(self, store: Store, clock: Clock, occurrences: Occurrences) -> None:
        self._store, self._clock, self._occurrences = store, clock, occurrences
        self._timers = Timers(clock)
        self._timers.begin(lambda no: None, self._is_due)
        # schedules with events that wait, in the order in which they began to
        self._known: dict[Key, None] = {}
        self._wanted: dict[Key, None] = {}
        self._querying: asyncio.Task[None] | None = None
        self._is_open = self._is_closed = self._is_asked = self._has_begun = False
        self.payloads: dict[str, Payload] = {}  # by kind of trigger
        occurrences.on_buffered = self.note

    def open(self) -> None:
        self._is_open = True
        self.query()

    async def close(self) -> None:
        """Finish the event that is being started, and the rows that no sender waits for."""
        self._is_closed = True
        self._timers.close()
        if self._querying is not None:
            await asyncio.wait([self._querying])
        await self._occurrences.skips.close()

    def abandon(self) -> None:
        self._is_closed = True
        self._timers.close()
        if self._querying is not None:
            self._querying.cancel()

    @property
    def is_busy(self) -> bool:
        return self._querying is not None

    def note(self, tenant: str, schedule_id: str) -> None:
        """An event of a schedule waits."""
        self._known[tenant, schedule_id] = None

    def delayed_until(self, tenant: str, schedule_id: str, at: Millis) -> None:
        """An event of a schedule is due then."""
        self.note(tenant, schedule_id)
        self._timers.due_in_store(at)

    def room(self, tenant: str, schedule_id: str) -> None:
        """A run of a schedule has ended, or the schedule was changed or resumed: there may be room for what waits."""
        if (
            tenant,
            schedule_id,
        ) in self._known or self._store.look_every is not None:  # another node may know
            self._wanted[tenant, schedule_id] = None
            self.query()

    def look_again(self) -> None:
        """Another node has died: events that it knew of may wait."""
        self._has_begun = False
        self.query()

    def _is_due(self) -> None:
        self._wanted.update(self._known)
        self.query()

    def query(self) -> None:
        self._is_asked = True
        if self._querying is None and self._is_open and not self._is_closed:
            self._querying = asyncio.get_running_loop().create_task(self._query())

    async def _query(self) -> None:
        try:
            while self._is_asked and not self._is_closed:
                self._is_asked = False
                await self._begin()
                self._timers.due_in_store(await self._store.next_delayed(self._clock.now()))
                while self._wanted and not self._is_closed:
                    key = next(iter(self._wanted))
                    del self._wanted[key]
                    await self._start(*key)
        except NodeIsOver:
            self._is_closed = True
        except Unavailable as error:
            log.warning("events that wait are not started for now: %s", error)
            self._query_later()
        except Exception:  # a bug must not be the end of all schedules
            log.exception("events that wait cannot be started now")
            self._query_later()
        finally:
            self._querying = None

    def _query_later(self) -> None:
        self._timers.due_in_store(Millis(self._clock.now() + QUERY_AGAIN_MS))

    async def _begin(self) -> None:
        if self._has_begun:
            return
        after = ("", "", "")
        while found := await self._store.buffering_schedules(after, PAGE):
            self._known.update(dict.fromkeys((tenant, schedule_id) for tenant, schedule_id, _ in found))
            after = found[-1]
        self._wanted.update(self._known)
        self._has_begun = True

    async def _start(self, tenant: str, schedule_id: str) -> None:
        """Start the events that wait for a schedule, the oldest first, until one has to go on waiting."""
        async with self._occurrences.lock(tenant, schedule_id):
            while not self._is_closed:
                found = await self._store.buffered(tenant, schedule_id, SLOT, self._clock.now(), 1)
                if not found:
                    return await self._forget(tenant, schedule_id)
                schedule = await self._store.schedule(tenant, schedule_id)
                if schedule is None or not await self._has_gone_on(schedule, found[0]):
                    return

    async def _has_gone_on(self, schedule: ScheduleRow, row: LedgerRow) -> bool:
        payload = None
        if (of_kind := self.payloads.get(schedule.kind)) is not None:
            payload = await of_kind(row)
        if payload is None:
            payload = await self._store.ledger_payload(row.pos) or b"{}"
        delivery = Delivery(
            tenant=row.tenant,
            spec=known(schedule.body).spec,
            occurrence=row.occurrence,
            payload=payload,
            scheduled_at=row.scheduled_at,
            row=row,
        )
        return await self._occurrences.go_on(delivery) is not None

    async def _forget(self, tenant: str, schedule_id: str) -> None:
        """No event waits for a run any more; delayed events still wait. Another event may start to wait during the
        read."""
        self._known.pop((tenant, schedule_id), None)
        if await self._store.buffered(tenant, schedule_id, SLOT, END_OF_TIME, 1):
            self.note(tenant, schedule_id)


END_OF_TIME: Final = Millis(2**62)
