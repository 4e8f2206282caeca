"""A scheduler whose fires go to a sink: schedules, their cursors and their ledger in a database, without an engine.

Knows which parts there are and in which order they begin and end. Schedules that need an engine are refused: those of kinds that
wait for its runs, files or sources, and those that cancel runs or count their failures.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Sequence
from typing import Final

from holdfast.config import RETENTION_DAYS
from holdfast.errors import InvalidSpec, Problem, StoreUnavailable
from holdfast.ops.upkeep import forget_ledger
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.runtime.committer import Committer
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.open import lock_of, open_url
from holdfast.tools.secrets import Secrets
from holdfast.triggers.definitions import Declared, Definitions
from holdfast.triggers.handed_events import HandedEvents
from holdfast.triggers.handover import AGAIN_SECS, Handover
from holdfast.triggers.hooks import Hooks
from holdfast.triggers.rows import Key
from holdfast.triggers.sinks import SLOT, InFlight, Offer
from holdfast.values import DEFAULT_TENANT, Millis

log = logging.getLogger("holdfast")

SOURCE: Final = "SchedulerService"
KINDS: Final = ("cron", "interval", "at", "webhook")
DAY_MS: Final = 86_400_000
UPKEEP_SECS: Final = 3_600.0
UPKEEP_PAUSE_SECS: Final = 0.1  # between two pieces: fires come first


class SinkScheduler:
    def __init__(
        self, db: str, offer: Offer, clock: Clock | None = None, again_secs: Sequence[float] = AGAIN_SECS
    ) -> None:
        self._lock, self.clock, self.in_flight = lock_of(db), clock or SystemClock(), InFlight()
        self.store = open_url(db)
        self.store.only_slot = SLOT
        self._committer = Committer(self.store)
        self._committer.node = self
        self.hooks = Hooks(Secrets())
        self.fires = Handover(
            self.store, self.clock, self._committer, offer, self.in_flight, again_secs=again_secs
        )
        self.events = HandedEvents(
            self.store, self.clock, self._committer, self.fires.tally, offer, self.in_flight
        )
        self._definitions = _Definitions(self.store, self.clock, self._committer, self.fires)
        self._definitions.watchers.append(self.hooks)
        self._upkeep: asyncio.Task[None] | None = None

    async def open(self, specs: Sequence[ScheduleSpec]) -> None:
        """Take the database, make its schedules these, and begin. Raises DatabaseInUse, InvalidSpec and ManagedByFile."""
        check(specs)
        async with contextlib.AsyncExitStack() as undo:
            self._lock.take()
            undo.callback(self._lock.free)
            await self.store.open()
            undo.push_async_callback(self.store.close)
            declared = [Declared(spec, SOURCE) for spec in specs]
            await self._definitions.swap(DEFAULT_TENANT, "code", SOURCE, declared)
            for spec in specs:
                self.hooks.put(DEFAULT_TENANT, spec, "code")
            await self.fires.open(drive=True)
            self._upkeep = asyncio.create_task(self._delete_old_rows())
            undo.pop_all()

    async def close(self) -> None:
        """Stop, and give the database back. What the sink has not accepted is offered again by the next process."""
        async with contextlib.AsyncExitStack() as last:
            last.callback(self._lock.free)
            last.push_async_callback(self.store.close)
            last.callback(self._committer.close)
            if self._upkeep is not None:
                self._upkeep.cancel()
            await self.fires.close()
            await self.events.skips.close()

    def ended(self, schedule_id: str) -> None:
        """A job of a schedule has ended: there may be room for the next one. `in_flight` knows already."""
        self.fires.ended((DEFAULT_TENANT, schedule_id, SLOT))

    async def _delete_old_rows(self) -> None:
        while True:
            before = Millis(self.clock.now() - RETENTION_DAYS * DAY_MS)
            try:
                is_done = not await forget_ledger(self.store, self._committer, before)
            except StoreUnavailable as error:
                log.warning("old rows of the ledger are not deleted for now: %s", error)
                is_done = True
            await asyncio.sleep(UPKEEP_SECS if is_done else UPKEEP_PAUSE_SECS)

    # ---------------------------------------------------------------------------- what the committer says (Node)

    def stalled(self, error: BaseException) -> None:
        """Commits fail for now. Decisions are made again when they work."""

    def restored(self) -> None:
        self.fires.query()

    def over(self, error: BaseException) -> None:
        """This process may write nothing more."""
        self.fires.abandon()
        if isinstance(error, SystemExit):
            log.critical("%s", error)
            os._exit(70)
        log.error("no schedule fires any more: %s", error)


class _Definitions(Definitions):
    def _key(self, tenant: str, spec: ScheduleSpec) -> Key:
        return tenant, spec.id, SLOT


def check(specs: Sequence[ScheduleSpec]) -> None:
    """Raise InvalidSpec if a schedule needs an engine."""
    problems = [
        Problem("needs_engine", f'schedule "{spec.id}": {what}', hint="use holdfast up, or holdfast.serve")
        for spec in specs
        for what in _beyond(spec)
    ]
    if problems:
        raise InvalidSpec(problems)


def _beyond(spec: ScheduleSpec) -> list[str]:
    found = []
    if spec.trigger.kind not in KINDS:
        found.append(f"a trigger of kind {spec.trigger.kind} needs the engine")
    if spec.overlap == "cancel_previous":
        found.append("overlap: cancel_previous needs the engine; the jobs of a sink cannot be cancelled")
    if spec.trigger.kind == "webhook" and spec.overlap in ("buffer_one", "buffer_all"):
        found.append(f"overlap: {spec.overlap} of a webhook needs the engine")
    if spec.pause_after_failures:
        found.append("pause_after_failures needs the engine; a sink does not say how its jobs end")
    return found
