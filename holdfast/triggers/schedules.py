"""Commands for schedules, besides their definitions: pause, resume, fire now, backfill.

A command holds the same lock as automatic fires, and is durable when it returns. One that starts a run also holds the lock under which
events of its schedule are decided, because it counts open runs as they do.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal, NamedTuple

import msgspec

from holdfast import limits
from holdfast.engine.events import TriggeredBy
from holdfast.errors import AtLimit, InvalidInputs, ManagedByFile, NotFound
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.runtime.starts import StartRun, Starts
from holdfast.schedule import control
from holdfast.schedule.records import Cursor
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import NewRun
from holdfast.store.schedule_records import Firing, LedgerKey, ScheduleState
from holdfast.triggers.backfills import Backfill, find
from holdfast.triggers.definitions import TRIES_MAX, Declared, Definitions, Plan
from holdfast.triggers.fires import Fires
from holdfast.triggers.payloads import check
from holdfast.triggers.rows import asked_at, cursor_of, cursor_row, entry, key_of
from holdfast.triggers.starting import Occasion, detail_of, known
from holdfast.values import Millis, RunId

RATE_MAX: Final = 1_000  # runs that a backfill starts in a second

__all__ = ["Backfill", "Declared", "Fired", "Plan", "Schedules"]


class Fired(NamedTuple):
    """A run that was started manually."""

    run_id: RunId
    occurrence: str


class Schedules(Definitions):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        committer: Committer,
        fires: Fires,
        starts: Starts,
        lock_of_events: Callable[[str, str], AbstractAsyncContextManager[None]],
    ) -> None:
        super().__init__(store, clock, committer, fires)
        self._targets, self._starts, self._lock_of_events = fires.targets, starts, lock_of_events

    async def pause(self, tenant: str, schedule_id: str) -> None:
        """Let nothing of a schedule fire. What is due already fires before; where nothing fires, it is part of the pause."""
        await self._settle_and_move(
            tenant,
            schedule_id,
            lambda cursor, now: control.paused(cursor, now if self._fires.is_open else min(now, cursor.at)),
        )

    async def resume(self, tenant: str, schedule_id: str, *, missed: bool = False) -> None:
        """Resume a paused schedule; with `missed`, also fire the occurrences of the pause."""
        await self._settle_and_move(
            tenant,
            schedule_id,
            lambda cursor, now: control.resumed(cursor, now, missed=missed),
            clears_failures=True,
        )

    async def _ours(self, tenant: str, schedule_id: str) -> None:
        """Raise NotFound, or ManagedByFile if a program declares the schedule and fires it by itself."""
        row = await self.found(tenant, schedule_id)
        if row.origin == "code":
            raise ManagedByFile(row.id, row.origin, row.source)

    async def _settle_and_move(
        self,
        tenant: str,
        schedule_id: str,
        moved: Callable[[Cursor, Millis], Cursor],
        *,
        clears_failures: bool = False,
    ) -> None:
        async with self._fires.command():
            await self._ours(tenant, schedule_id)
            for _ in range(TRIES_MAX):
                batch, now = Batch(), await self._fires.begin()
                for state in await self._settled(tenant, schedule_id, now):
                    cursor = moved(cursor_of(state), now)
                    if cursor.revision != state.cursor.revision:
                        key = key_of(state.cursor)
                        has_clock = known(state.schedule.body).clock is not None
                        next_at = asked_at(state, now) if has_clock and not cursor.is_paused else None
                        batch.firings.append(
                            Firing(cursor=cursor_row(key, cursor, next_at), seen=state.cursor.revision)
                        )
                        if clears_failures:
                            batch.cleared_failures.append(key)
                if await self._is_committed(batch):
                    break
        self._fires.query()
        for watcher in self.watchers:
            row = await self.found(tenant, schedule_id)
            watcher.put(tenant, known(row.body).spec, row.origin)

    async def _settled(self, tenant: str, schedule_id: str, now: Millis) -> list[ScheduleState]:
        """The state of a schedule once everything that is due has been decided. Where nothing fires by itself, that waits."""
        while True:
            states = await self._store.schedule_states([(tenant, schedule_id)])
            if not self._fires.is_open:
                return states
            decisions = [one for state in states if (one := self._fires.decide(state, now)) is not None]
            if not any(one.is_changed or one.due.is_cut for one in decisions):
                return states
            await self._fires.carry_out(decisions)

    async def fire(self, tenant: str, schedule_id: str, payload: Any = msgspec.UNSET) -> Fired:
        """Start a run of a schedule now, whether or not it is paused. The time of its next occurrence does not
        change.

        Raises AtLimit if the limit of open runs is reached, and every error that a start can raise.
        """
        return await self._fire(tenant, schedule_id, payload, "manual")

    async def redeliver(self, tenant: str, schedule_id: str, occurrence: str) -> Fired:
        """Start another run for an event, with the payload that its ledger row has kept."""
        row = await self._store.ledger_row(LedgerKey(tenant, schedule_id, "", occurrence))
        if row is None or row.until is not None:
            raise NotFound(f"there is no delivery {occurrence!r} in the ledger of {schedule_id!r}")
        payload = await self._store.ledger_payload(row.pos)
        if payload is None:
            size = limits.size(limits.now.delivery_bytes_max)
            raise InvalidInputs(
                f"the payload of {occurrence!r} was not kept, because it is larger than {size} (delivery_bytes_max); "
                "let the sender send it again"
            )
        return await self._fire(tenant, schedule_id, check(payload), "redelivery")

    async def _fire(
        self, tenant: str, schedule_id: str, payload: Any, reason: Literal["manual", "redelivery"]
    ) -> Fired:
        async with self._fires.command(), self._lock_of_events(tenant, schedule_id):
            await self._ours(tenant, schedule_id)
            (state,) = await self._store.schedule_states([(tenant, schedule_id)])
            schedule, now = known(state.schedule.body), self._clock.now()
            if schedule.run_limit and state.open >= schedule.run_limit:
                raise AtLimit(schedule_id, state.open, schedule.run_limit)
            by = TriggeredBy(schedule_id, schedule.spec.trigger.kind, f"{reason}:{self._clock.new_id()}", now)
            occasion = Occasion(tenant, schedule.spec, by, now, payload)
            target = await self._targets.of(occasion)
            key = key_of(state.cursor)

            def firing(new: NewRun) -> Firing:
                detail = detail_of(warnings=target.warnings)
                return Firing((entry(key, by, "fired", reason, new.created_at, detail, new),), no=new.no)

            begun = await self._starts.start(
                StartRun(
                    definition=target.definition,
                    inputs=target.inputs,
                    tenant=tenant,
                    number=target.number,
                    trigger=by,
                    slot=key[2],
                    firing=firing,
                )
            )
        self._fires.tally.add(schedule_id, "fired", reason)
        return Fired(begun.run_id, by.occurrence)

    async def backfill(
        self,
        tenant: str,
        schedule_id: str,
        since: Millis,
        until: Millis,
        *,
        preview: bool = False,
        max_per_sec: float | None = None,
    ) -> Backfill:
        """Fire the occurrences from `since` to `until` that have no run; with `preview`, only say which they are."""
        if max_per_sec is not None and not 0 < max_per_sec <= RATE_MAX:
            raise InvalidInputs(
                f"max_per_sec must be more than 0 and at most {RATE_MAX:,}, not {max_per_sec}"
            )
        until = min(until, self._clock.now())
        async with self._fires.command():
            await self._ours(tenant, schedule_id)
            for _ in range(TRIES_MAX):
                (state,) = await self._settled(tenant, schedule_id, await self._fires.begin())
                found = await find(self._store, state, since, until)
                if preview or not found.instants:
                    return found.shown
                cursor = found.requested(max_per_sec)
                row = cursor_row(key_of(state.cursor), cursor, asked_at(state, self._clock.now()))
                batch = Batch()
                batch.firings.append(Firing(cursor=row, seen=state.cursor.revision))
                if await self._is_committed(batch):
                    break
        self._fires.query()
        return found.shown
