"""Callers that wait for a run: until it ends, or until it only waits for callbacks."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from holdfast.errors import EngineClosed, NodeIsOver, RunSetAside
from holdfast.runtime.door import Door
from holdfast.runtime.gate import Gate
from holdfast.runtime.resident import Residents
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.service import Service
from holdfast.store.base import Store
from holdfast.values import TERMINAL, RunNo

Waiter = asyncio.Future[ResidentRun]


CLOSED: Final = (
    "the engine was closed before the run had finished; the run continues when the engine is opened again"
)


class Waiters(Service):
    def __init__(self, store: Store, door: Door, residents: Residents, gate: Gate) -> None:
        self._store, self._door, self._residents, self._gate = store, door, residents, gate
        # Searches for early callbacks of a run: while one is in progress, the run is not idle.
        self._searches: Counter[RunNo] = Counter()
        self._waiters: dict[RunNo, list[Waiter]] = {}
        self._resting: dict[RunNo, list[Waiter]] = {}

    def check(self, no: RunNo) -> None:
        """Raise if this process will write no more rows of an unfinished run."""
        if self._door.is_over:
            raise NodeIsOver("another process owns this database now")
        if no in self._door.quarantined:
            raise set_aside_error(self._door, no)

    async def ended(self, no: RunNo) -> ResidentRun:
        """Wait until a run has finished, according to its durable rows."""
        self._gate.check()
        if self._door.is_over:
            raise NodeIsOver("another process owns this database now")
        waiter: Waiter = asyncio.get_running_loop().create_future()
        # registered before the row is read, because the run may end in between
        self._waiters.setdefault(no, []).append(waiter)
        try:
            if no not in self._door.residents and (ended := await self._ended_before(no)) is not None:
                return ended
            return await waiter
        finally:
            waiters = self._waiters.get(no)
            if waiters and waiter in waiters:
                waiters.remove(waiter)
                if not waiters:
                    del self._waiters[no]

    async def _ended_before(self, no: RunNo) -> ResidentRun | None:
        """The run, if it has already ended. It is not in memory."""
        row = await self._store.run_by_no(no)
        if no in self._door.quarantined:
            raise set_aside_error(self._door, no)
        return await self._residents.load(no) if row is not None and row.status in TERMINAL else None

    async def rests(self, no: RunNo) -> None:
        """Wait until all open steps of a run wait for callbacks that have not arrived, according to its durable rows."""
        while True:
            waiter: Waiter = asyncio.get_running_loop().create_future()
            self._resting.setdefault(no, []).append(waiter)
            try:
                resident = self._door.residents.get(no) or await self._residents.stored(no)
                if resident is None or self._is_resting(resident):
                    return await self._door.caught_up()
                await waiter
            finally:
                self._resting[no].remove(waiter)
                if not self._resting[no]:
                    del self._resting[no]

    def _is_resting(self, resident: ResidentRun) -> bool:
        return resident.run.only_called_back and resident.run.no not in self._searches

    def resting(self, resident: ResidentRun) -> None:
        """A run may be idle now."""
        if self._resting and self._is_resting(resident):
            for waiter in self._resting.get(resident.run.no, ()):
                if not waiter.done():
                    waiter.set_result(resident)

    def search_begins(self, resident: ResidentRun) -> None:
        """A call has paused, and the store is searched for an early callback to it."""
        self._searches[resident.run.no] += 1

    def search_ends(self, resident: ResidentRun) -> None:
        """There is no early callback, or it was delivered."""
        self._searches[resident.run.no] -= 1
        if not self._searches[resident.run.no]:
            del self._searches[resident.run.no]
            self.resting(resident)

    def run_ended(self, resident: ResidentRun) -> None:
        for waiter in self._waiters.pop(resident.run.no, ()):
            if not waiter.done():
                waiter.set_result(resident)

    async def look(self) -> None:
        """Runs that other nodes drive may have moved since the last look."""
        elsewhere = [no for no in self._waiters if no not in self._door.residents]
        for row in await self._store.runs_numbered(elsewhere) if elsewhere else ():
            if row.status in TERMINAL and (resident := await self._residents.load(row.no)) is not None:
                self.run_ended(resident)
        for no in [no for no in self._resting if no not in self._door.residents]:
            resident = await self._residents.stored(no)
            if resident is not None:
                self.resting(resident)

    def set_aside(self, no: RunNo) -> None:
        for waiter in self._waiters.pop(no, ()):
            if not waiter.done():
                waiter.set_exception(set_aside_error(self._door, no))

    async def close(self) -> None:
        self.abandon(EngineClosed(CLOSED))

    def abandon(self, error: Exception | None = None) -> None:
        """No run will end in this process any more."""
        if error is None:
            return
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)


def set_aside_error(door: Door, no: RunNo) -> RunSetAside:
    reason, retry = door.quarantined[no]
    return RunSetAside(f"the run was set aside: {reason}; {retry}")
