"""Hands the fires of schedules with a clock to a sink.

    due ──► commit: cursor, and a row of the ledger that waits ──► offer ──► commit: the row is `fired`
                                                                    │  refused: again after 1, 5 and 30 s
                                                                    └──► the row is `failed`, and its place is free

The decision is durable before the sink gets the fire. When a process starts, it offers every fire whose row still waits again,
because the earlier process may have ended before the sink answered: a sink may get a fire twice, but never misses one. Knows rows
and the order of commits; deciding.py decides whether an occurrence fires.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

from holdfast.engine.events import TriggeredBy
from holdfast.errors import HoldfastError, Unavailable
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.schedule.due import jitter_ms
from holdfast.schedule.records import Running
from holdfast.schedule.template import Rendered, render
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.schedule_records import (
    Firing,
    LedgerEntry,
    LedgerKey,
    LedgerOutcome,
    LedgerRow,
    ScheduleState,
)
from holdfast.triggers.deciding import PAGE, QUERY_AGAIN_MS, Decided, Deciding
from holdfast.triggers.rows import Key, entry, key_of
from holdfast.triggers.sinks import InFlight, Offer, SinkFailed, fire_of
from holdfast.triggers.starting import Occasion, check_strict, detail_of, known, reason_of, warnings_of

log = logging.getLogger("holdfast")

HANDING_OVER: Final = "handing_over"  # why a row of the ledger waits
AGAIN_SECS: Final = (1.0, 5.0, 30.0)  # after a fire that the sink did not accept
CLOSE_SECS: Final = 5.0  # for a sink to answer when the scheduler stops


class _Fire(NamedTuple):
    """A fire on its way to the sink."""

    key: Key
    occasion: Occasion
    made: Rendered

    def row(self, outcome: LedgerOutcome, reason: str = "", message: str = "") -> LedgerEntry:
        by = self.occasion.by
        detail = detail_of(message=message, warnings=warnings_of(self.made), shifted_from=by.shifted_from)
        return entry(self.key, by, outcome, reason, self.occasion.at, detail)

    @property
    def is_catchup(self) -> bool:
        return self.occasion.by.is_catchup


class Handover(Deciding):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        committer: Committer,
        offer: Offer,
        in_flight: InFlight,
        *,
        again_secs: Sequence[float] = AGAIN_SECS,
    ) -> None:
        super().__init__(store, clock, committer)
        self._offer, self._in_flight, self._again_secs = offer, in_flight, again_secs
        self._handing: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()

    async def open(self, *, drive: bool) -> None:
        async for fire in self._left_over():
            self._hand_over(fire)
        await super().open(drive=drive)

    async def close(self) -> None:
        """Stop offering fires. If the sink does not answer in time, the next process offers the fire again."""
        await super().close()
        self._closing.set()
        if self._handing:
            await asyncio.wait(self._handing, timeout=CLOSE_SECS)
        self.abandon()

    def abandon(self, error: Exception | None = None) -> None:
        super().abandon(error)
        for task in self._handing:
            task.cancel()

    # --------------------------------------------------------------------------------------------------- deciding

    def running(self, state: ScheduleState) -> Running:
        name, count = state.schedule.id, self.run_counts[key_of(state.cursor)]
        return Running(self._in_flight.count(name), self._in_flight.catchups(name), count)

    def _make_room(self, key: Key) -> None:
        raise AssertionError(
            "the jobs of a sink cannot be cancelled"
        )  # schedules that ask for it are refused

    async def _start_all(self, decisions: list[Decided]) -> list[Firing]:
        """Commit the fires, then offer them to the sink. Return the rows to write for fires whose inputs cannot be rendered."""
        refused: list[Firing] = []
        begun: list[_Fire] = []
        batch = Batch()
        for one in decisions:
            occasion = self._occasion(one, one.due.fires[0], self._clock.now())
            try:
                fire = _Fire(one.key, occasion, _rendered(occasion))
            except HoldfastError as error:
                row = _Fire(one.key, occasion, Rendered(None)).row("failed", reason_of(error), str(error))
                refused.append(one.firing(row))
                self.tally.add(one.key[1], "failed", reason_of(error))
                continue
            batch.firings.append(one.firing(fire.row("buffered", HANDING_OVER)))
            begun.append(fire)
        if batch.has_rest:
            batch.awake_at = self.heartbeat(self._clock.now())
            await self._committer.commit(batch)
        for fire in begun:
            self.run_counts[fire.key] += 1
            self._hand_over(fire)
        return refused

    # ----------------------------------------------------------------------------------------------- handing over

    async def _left_over(self) -> AsyncIterator[_Fire]:
        """The fires that an earlier process has committed, and that the sink may not have."""
        after = ("", "", "")
        while keys := await self._store.buffering_schedules(after, PAGE):
            for key in keys:
                schedule = await self._store.schedule(*key[:2])
                rows = await self._store.buffered(*key, self._clock.now(), PAGE)
                for row in rows if schedule is not None else ():
                    assert schedule is not None
                    occasion = self._occasion_of(row, known(schedule.body).spec)
                    yield _Fire(key, occasion, render(occasion.spec.inputs, occasion.trigger))
            after = keys[-1]

    def _occasion_of(self, row: LedgerRow, spec: ScheduleSpec) -> Occasion:
        by = TriggeredBy(spec.id, spec.trigger.kind, row.occurrence, row.scheduled_at, row.is_catchup)
        return Occasion(row.tenant, spec, by, self._clock.now())

    def _hand_over(self, fire: _Fire) -> None:
        self._in_flight.begin(fire.key[1], is_catchup=fire.is_catchup)
        task = asyncio.get_running_loop().create_task(self._handed_over(fire))
        self._handing.add(task)
        task.add_done_callback(self._handing.discard)

    async def _handed_over(self, fire: _Fire) -> None:
        schedule_id = fire.key[1]
        error = await self._offer(fire_of(fire.occasion, fire.made.value))
        for secs in self._again_secs:
            if error is None:
                break
            log.warning(
                "schedule %s: the sink did not accept a fire, which is offered again in %g s: %s",
                schedule_id, secs, error,
            )  # fmt: skip
            if await self._is_closed_within(secs):
                return
            error = await self._offer(fire_of(fire.occasion, fire.made.value))
        reason = "" if error is None else SinkFailed.code
        if error is not None:
            log.error("schedule %s: the sink did not accept a fire: %s", schedule_id, error)
            self._in_flight.end(schedule_id, is_catchup=fire.is_catchup)
        else:
            self._note_lateness(fire)
        outcome: LedgerOutcome = "fired" if error is None else "failed"
        self.tally.add(schedule_id, outcome, reason)
        await self._settle(fire, fire.row(outcome, reason, error or ""))
        if error is not None:
            self.ended(fire.key)

    async def _is_closed_within(self, secs: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), secs)
        return self._closing.is_set()

    async def _settle(self, fire: _Fire, row: LedgerEntry) -> None:
        """Write the outcome of a fire. If that fails until the process ends, the next process offers the fire again."""
        while True:
            batch = Batch()
            batch.firings.append(Firing((row,), takes=LedgerKey(*fire.key, row.occurrence)))
            try:
                return await self._committer.commit(batch)
            except Unavailable as error:
                log.warning("a fire of schedule %s is not recorded yet: %s", fire.key[1], error)
                if await self._is_closed_within(QUERY_AGAIN_MS / 1_000):
                    return

    def _note_lateness(self, fire: _Fire) -> None:
        clock, by = known(fire.occasion.spec.canonical().decode()).clock, fire.occasion.by
        if clock is not None and not by.is_catchup:
            due_at = by.scheduled_at + jitter_ms(clock, by.scheduled_at)
            self.tally.started_late(self._clock.now() - due_at)


def _rendered(occasion: Occasion) -> Rendered:
    made = render(occasion.spec.inputs, occasion.trigger)
    check_strict(occasion.spec, made)
    return made
