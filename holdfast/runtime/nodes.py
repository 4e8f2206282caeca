"""Other nodes on the same database: their expired leases, and their mail to runs of this node.

    every `store.look_every` seconds, or on a hint: one look at the store. If it finds any:
        expired leases ─► declare them · mail ─► take it · runs that are left or due ─► claim them · schedules, callbacks ─► send
    and wake readers and callers that wait for runs of other nodes
    beside it, so that nothing which it finds can delay that: keep our lease

What other nodes change of what is kept in memory here is reported by the store (`Store.on_change`). Mail to their runs is posted by runs.py. A database that one process locks has no other nodes (`look_every` is None): nothing is looked at, and no mail is posted.
Does not know what an event means.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

from holdfast.engine.codec import decode_row
from holdfast.errors import NodeIsOver, Unavailable
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.runtime.door import Door
from holdfast.runtime.ownership import Ownership
from holdfast.runtime.runs import Runs
from holdfast.runtime.service import Service
from holdfast.runtime.waiters import Waiters
from holdfast.store.base import Store
from holdfast.store.ownership import MailRow

log = logging.getLogger("holdfast")

MAIL_MAX: Final = 500  # events taken before the next look


class Left(NamedTuple):
    """What is called when other nodes have left something in the store: runs, schedules or callbacks that are due, rows for the
    readers of journals, jobs for pull workers. `node_is_gone` is called in addition when a node has died."""

    runs: Callable[[], None]
    schedules: Callable[[], None]
    deliveries: Callable[[], None]
    readers: Callable[[], None]
    offers: Callable[[], None]
    node_is_gone: Callable[[], None]


class Nodes(Service):
    def __init__(
        self,
        store: Store,
        committer: Committer,
        door: Door,
        runs: Runs,
        ownership: Ownership,
        waiters: Waiters,
        clock: Clock,
        left: Left,
    ) -> None:
        self._store, self._committer, self._door, self._runs = store, committer, door, runs
        self._ownership, self._waiters, self._clock, self._left = ownership, waiters, clock, left
        self._hint = asyncio.Event()
        self._at_work: list[asyncio.Task[None]] = []

    async def open(self, *, drive: bool) -> None:
        await self.take_mail()
        if self._store.look_every is not None:
            self._store.on_hint(self._hint.set)
            loop, seconds = asyncio.get_running_loop(), self._store.look_every
            self._at_work = [
                loop.create_task(self._look(seconds)),
                loop.create_task(self._keep_lease(seconds)),
            ]

    async def restored(self) -> None:
        await self.take_mail()

    def abandon(self, error: Exception | None = None) -> None:
        for task in self._at_work:
            task.cancel()

    async def _keep_lease(self, seconds: float) -> None:
        while True:
            try:
                await self._store.keep_lease()
            except NodeIsOver as error:
                return self._committer.end(error)
            except Unavailable as error:
                log.warning("the lease of this node cannot be renewed now: %s", error)
            await asyncio.sleep(seconds)

    async def _look(self, seconds: float) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._hint.wait(), seconds)
            self._hint.clear()
            try:
                await self._look_once()
            except NodeIsOver as error:
                return self._committer.end(error)
            except Unavailable as error:
                log.warning("the state of other nodes cannot be read now: %s", error)

    async def _look_once(self) -> None:
        found = await self._store.look(self._clock.now())
        if found.has_expired:
            await self._store.declare()
        if found.has_mail:
            await self.take_mail()
        if found.has_left or found.has_expired:
            self._ownership.look_again()
            self._left.node_is_gone()
        if found.has_left or found.has_expired or found.has_due:
            self._left.runs()
        if found.has_due_schedules:
            self._left.schedules()
        if found.has_due_deliveries:
            self._left.deliveries()
        if found.has_offers:
            self._left.offers()
        self._left.readers()
        await self._waiters.look()

    async def take_mail(self) -> None:
        """Apply the events that other nodes posted to runs of this node, the oldest first. The commit of an event removes its
        mail, so mail is taken until an event of it is durable."""
        while not self._committer.is_shut and (found := await self._store.take_mail(MAIL_MAX)):
            taken = [await self._take(mail) for mail in found]
            await self._door.caught_up()
            if not any(taken):
                return

    async def _take(self, mail: MailRow) -> bool:
        """Apply one event. False if its run cannot be loaded now: the mail stays."""
        row = await self._store.run_by_no(mail.no)
        if row is None or mail.no in self._door.quarantined:
            return False
        resident = await self._runs.hold(row)
        if resident.is_elsewhere or self._committer.is_shut:
            return False
        self._door.batch.read_mail.append((mail.no, mail.dedup))
        if not resident.run.over:
            self._door.apply(resident, decode_row(mail.body)[0])
        return True
