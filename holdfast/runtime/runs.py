"""One run by its id: read it, load it into memory, and apply an event to it. Commands and waits act on runs through this.

When a method that applies an event returns, the event is durable. Does not know which interface called.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.engine.codec import encode_event
from holdfast.engine.events import CancelRequested, Event, SignalReceived
from holdfast.errors import NodeIsOver, NotFound, RunIsOver, StoreUnavailable
from holdfast.execution.outputs import Outputs
from holdfast.runtime.alarms import Alarms
from holdfast.runtime.door import Door
from holdfast.runtime.gate import Gate
from holdfast.runtime.idempotency import Kept
from holdfast.runtime.ownership import OwnedElsewhere, Ownership
from holdfast.runtime.resident import Residents
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.signals import check_room
from holdfast.runtime.starts import encoded
from holdfast.runtime.waiters import set_aside_error
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.ownership import NewMail
from holdfast.store.records import RunRow
from holdfast.values import DEFAULT_TENANT, TERMINAL, RunId, Status, is_text


class Runs:
    def __init__(
        self,
        store: Store,
        door: Door,
        residents: Residents,
        ownership: Ownership,
        alarms: Alarms,
        outputs: Outputs,
        gate: Gate,
    ) -> None:
        self._store, self._door, self._residents = store, door, residents
        self._ownership, self._alarms, self._outputs, self._gate = ownership, alarms, outputs, gate

    # ------------------------------------------------------------------------------------------------- finding

    async def row_of(self, run_id: RunId, tenant: str = DEFAULT_TENANT) -> RunRow:
        self._gate.check()
        row = await self._store.run_by_id(tenant, run_id) if is_text(run_id) else None
        if row is None:
            raise no_run(run_id)
        return row

    async def find(self, run_id: RunId, tenant: str = DEFAULT_TENANT) -> ResidentRun:
        """A run to read. Reading an evicted run does not load it into memory."""
        row = await self.row_of(run_id, tenant)
        resident = self._door.residents.get(row.no) or await self._residents.stored(row.no)
        assert resident is not None
        return resident

    async def hold(self, row: RunRow) -> ResidentRun:
        """A run in memory, owned by this process. If this process drives all runs, the run continues; otherwise none
        of its steps start. Of a run that another node drives it is a copy, and `offer` posts events to its owner."""
        known = self._door.residents.get(row.no)
        if known is not None:
            return known
        if row.no in self._door.away:
            raise StoreUnavailable("the database cannot be written now; try again")
        try:
            resident = await self._take_up(row)
        except OwnedElsewhere:
            resident = await self._residents.stored(row.no)
            if resident is not None:
                resident.is_elsewhere = True
                return resident
        if resident is None:
            raise set_aside_error(self._door, row.no)
        if self._ownership.drives_all and not resident.run.over:
            self._alarms.arm(resident)  # if no event is applied in the end, its timers must still fire
        return resident

    async def _take_up(self, row: RunRow) -> ResidentRun | None:
        ownership = self._ownership
        if row.owner is not None and row.status not in TERMINAL:
            return await ownership.adopt(row.no, seen=row, drive=ownership.drives_all)
        return await ownership.wake(row.no, seen=row, drive=ownership.drives_all)

    async def _hold_open(self, run_id: RunId, tenant: str) -> ResidentRun:
        """An unfinished run in memory."""
        resident = await self.hold(await self.row_of(run_id, tenant))
        if resident.run.over:
            await self._door.drained()
            row = await self.row_of(run_id, tenant)
            if row.status not in TERMINAL:
                raise StoreUnavailable("the end of the run could not be written; try again")
            raise RunIsOver(run_id, row.status)
        return resident

    # ------------------------------------------------------------------------------------------- applying events

    async def apply(
        self,
        resident: ResidentRun,
        event: Event,
        keep: Callable[[Status], Kept] | None = None,
        beside: Callable[[Batch], None] | None = None,
    ) -> Status:
        """Apply an event, wait until it is durable, and return the status of the run after it.

        The response that `keep` makes of that status is stored in the same commit.
        """
        durable = self.offer(
            resident, event, None if keep is None else lambda: keep(resident.run.status), beside
        )
        status = resident.run.status
        await durable
        return status

    def offer(
        self,
        resident: ResidentRun,
        event: Event,
        keep: Callable[[], Kept] | None = None,
        beside: Callable[[Batch], None] | None = None,
    ) -> asyncio.Future[None]:
        """Apply an event; the future is done when it is durable. `beside` puts more into the same commit."""
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if resident.is_elsewhere:
            self._post(resident, event, keep, beside, reply)
            return reply
        if beside is not None and not self._door.is_stalled:
            beside(self._door.batch)
        self._door.apply(resident, event, reply)
        if keep is not None and not reply.done():
            self._door.batch.run_replies.append((resident.run.no, keep().row()))
        return reply

    def _post(
        self,
        resident: ResidentRun,
        event: Event,
        keep: Callable[[], Kept] | None,
        beside: Callable[[Batch], None] | None,
        reply: asyncio.Future[None],
    ) -> None:
        """Post an event to the node that drives the run."""
        no, batch = resident.run.no, Batch()
        batch.posted_mail.append(NewMail(no, uuid.uuid4().hex, self._door.clock.now(), encode_event(event)))
        if beside is not None:
            beside(batch)
        if keep is not None:
            batch.replies.append(keep().row())

        def done(error: BaseException | None) -> None:
            if reply.done():  # its caller has gone
                return
            if error is None:
                reply.set_result(None)
            else:
                reply.set_exception(error if isinstance(error, Exception) else NodeIsOver(str(error)))

        self._door.committer.submit(batch, done)

    async def cancel(self, run_id: RunId, reason: str = "", *, tenant: str = DEFAULT_TENANT) -> None:
        """Cancel a run. When this returns, the request is durable and no new step starts. Raises RunIsOver."""
        resident = await self._hold_open(run_id, tenant)
        await self.apply(resident, CancelRequested(self._outputs.secrets.redact(reason)))

    async def signal(
        self,
        run_id: RunId,
        name: str,
        value: Any,
        *,
        correlation: str | None = None,
        tenant: str = DEFAULT_TENANT,
        keep: Callable[[Status], Kept] | None = None,
    ) -> Status:
        """Send a signal to a run: it is written to a variable of a graph, consumed by a waiting step, or kept.
        Returns the status of the run after it."""
        text = await self._outputs.redacted(encoded(value, "the value of the signal is"))
        resident = await self._hold_open(run_id, tenant)
        signal = SignalReceived(name, msgspec.Raw(text), correlation)
        check_room(resident, signal)
        return await self.apply(resident, signal, keep)

    # ------------------------------------------------------------------------------------------------ ownership

    async def take_up(self, run_id: RunId) -> ResidentRun:
        """Continue one run, whichever process owned it last. Its row is durable when this returns."""
        return await self._ownership.take_up(await self.row_of(run_id))

    async def retry(self, run_id: RunId, *, tenant: str = DEFAULT_TENANT) -> None:
        """Continue a run that was set aside. If this process does not drive all runs, the next process continues it."""
        await self._ownership.retry(await self.row_of(run_id, tenant))


def no_run(run_id: str) -> NotFound:
    return NotFound(f"no run {ascii(run_id)[1:-1]:.100} in this database")
