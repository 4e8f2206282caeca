"""Deliveries of webhooks that go to a sink. The sink accepts an event before its row of the ledger is written and its sender gets
a response, so an event is never lost; if its row could not be written, the sink may receive it again.
"""

from __future__ import annotations

import msgspec

from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.schedule.template import Rendered
from holdfast.store.base import Store
from holdfast.triggers.occurrences import Accepted, Delivered, Delivery, Occurrences
from holdfast.triggers.payloads import check
from holdfast.triggers.sinks import SLOT, InFlight, Offer, SinkFailed, fire_of
from holdfast.triggers.starting import Occasion, check_strict, warnings_of
from holdfast.triggers.tally import Tally


class HandedEvents(Occurrences):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        committer: Committer,
        tally: Tally,
        offer: Offer,
        in_flight: InFlight,
    ) -> None:
        super().__init__(store, clock, committer, tally, redacted=_as_it_is)
        self._offer, self._in_flight = offer, in_flight

    async def deliver(self, delivery: Delivery) -> Delivered:
        return await super().deliver(msgspec.structs.replace(delivery, slot=SLOT))

    def _check(self, occasion: Occasion, made: Rendered) -> None:
        check_strict(occasion.spec, made)

    async def _open_runs(self, tenant: str, schedule_id: str) -> int:
        return self._in_flight.count(schedule_id)

    async def _cancel_oldest(self, tenant: str, schedule_id: str) -> None:
        raise AssertionError(
            "the jobs of a sink cannot be cancelled"
        )  # schedules that ask for it are refused

    async def _start(self, delivery: Delivery, made: Rendered) -> Delivered:
        spec = delivery.spec
        occasion = self._occasion(delivery)._replace(payload=check(delivery.payload))
        self._in_flight.begin(spec.id)
        error = await self._offer(fire_of(occasion, made.value))
        if error is not None:
            self._in_flight.end(spec.id, is_catchup=False)
            return await self._fail(delivery, SinkFailed(error))
        reply = None if delivery.reply is None else delivery.reply(Accepted(spec, made.value, None))
        entry = self._entry(delivery, "fired", warnings=warnings_of(made), reply=reply)
        await self._write(delivery, entry._replace(payload=None))  # nothing here delivers it again
        self.skips.end(delivery.tenant, spec.id)
        return Delivered("fired", reply=reply)


async def _as_it_is(payload: bytes) -> bytes:
    return payload
