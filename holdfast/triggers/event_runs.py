"""Events that start runs of this engine: the run, its row of the ledger and the reply to the sender are one commit.

Knows how runs are started, counted and cancelled; whether an event may start one is decided by occurrences.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.errors import HoldfastError, RunIsOver
from holdfast.runtime.clock import Clock
from holdfast.runtime.commits import FiringLost
from holdfast.runtime.committer import Committer
from holdfast.runtime.starts import StartRun, Starts
from holdfast.schedule.template import Rendered
from holdfast.store.base import Store
from holdfast.store.records import NewRun
from holdfast.store.schedule_records import Firing
from holdfast.triggers.occurrences import SLOT, TRIES_MAX, Accepted, Delivered, Delivery, Occurrences
from holdfast.triggers.starting import Occasion, Targets, inputs_of, is_final
from holdfast.triggers.tally import Tally
from holdfast.values import RunId

CANCEL_REASON: Final = "a newer event of its schedule replaces this run"


class EventRuns(Occurrences):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        committer: Committer,
        starts: Starts,
        targets: Targets,
        tally: Tally,
        *,
        cancel: Callable[..., Awaitable[None]],
        redacted: Callable[[bytes], Awaitable[bytes]],
    ) -> None:
        super().__init__(store, clock, committer, tally, redacted=redacted)
        self._starts, self._targets, self._cancel = starts, targets, cancel

    def _check(self, occasion: Occasion, made: Rendered) -> None:
        inputs_of(occasion, made)

    async def _open_runs(self, tenant: str, schedule_id: str) -> int:
        return await self._store.open_runs_of(tenant, schedule_id, SLOT)

    async def _cancel_oldest(self, tenant: str, schedule_id: str) -> None:
        run_id = await self._store.oldest_run_of(tenant, schedule_id, SLOT)
        if run_id is None:
            return
        try:
            await self._cancel(run_id, CANCEL_REASON, tenant=tenant)
        except RunIsOver:
            return  # its end starts what waits

    async def _start(self, delivery: Delivery, made: Rendered, tries: int = 1) -> Delivered:
        """Start the run. An event that has been waiting keeps the reply that its sender got."""
        occasion, reply = self._occasion(delivery), None if delivery.row is None else delivery.row.reply
        run_id: RunId | None = None
        try:
            target = await self._targets.of(occasion, made)
            moved = await self._moved(delivery)

            def firing(new: NewRun) -> Firing:
                nonlocal reply, run_id
                run_id = new.id
                if delivery.reply is not None and delivery.row is None:
                    reply = delivery.reply(Accepted(delivery.spec, made.value, new.id))
                entry = self._entry(delivery, "fired", warnings=target.warnings, reply=reply)
                return Firing((entry._replace(run=new.no),), *moved, no=new.no, takes=delivery.takes)

            order = StartRun(
                definition=target.definition,
                inputs=target.inputs,
                tenant=delivery.tenant,
                number=target.number,
                workflow=delivery.spec.workflow,
                trigger=occasion.by,
                slot=SLOT,
                firing=firing,
            )
            await self._starts.start(order)
        except (
            FiringLost
        ):  # another node has decided about the same event, or the schedule was paused or changed
            before = await self._before(delivery) if delivery.row is None else None
            if before is None and tries < TRIES_MAX:
                return await self._start(delivery, made, tries + 1)
            if before is None:
                raise
            return before
        except HoldfastError as error:
            if not is_final(error):
                raise
            return await self._fail(delivery, error)
        self.skips.end(delivery.tenant, delivery.spec.id)
        return Delivered("fired", reply=reply, run_id=run_id)
