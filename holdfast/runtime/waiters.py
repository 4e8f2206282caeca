"""Callers that wait for a run: until it ends, or until it waits for callbacks alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.errors import NodeIsOver, RunSetAside
from holdfast.runtime.door import Advance, Live
from holdfast.runtime.resident import Residents
from holdfast.store.base import Store
from holdfast.values import TERMINAL, RunNo

Waiter = asyncio.Future[Live]


class Waiters:
    def __init__(
        self, store: Store, door: Advance, residents: Residents, check_open: Callable[[], None]
    ) -> None:
        self._store, self._door, self._residents, self._check_open = store, door, residents, check_open
        # Is an early callback of a run being looked up? Until then it does not rest.
        self.looks_for: Callable[[RunNo], bool] = lambda no: False
        self._waiters: dict[RunNo, list[Waiter]] = {}
        self._resting: dict[RunNo, list[Waiter]] = {}

    async def ended(self, no: RunNo) -> Live:
        """Wait until a run has finished, according to its rows on disk."""
        self._check_open()
        if self._door.is_over:
            raise NodeIsOver("another process has taken this file over")
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(no, []).append(waiter)  # before the row is read: it may end meanwhile
        try:
            return await self._ended_before(no) or await waiter
        finally:
            waiters = self._waiters.get(no)
            if waiters and waiter in waiters:
                waiters.remove(waiter)
                if not waiters:
                    del self._waiters[no]

    async def _ended_before(self, no: RunNo) -> Live | None:
        """The run, if it had ended before."""
        if no in self._door.live:
            return None
        row = await self._store.run_by_no(no)
        if no in self._door.quarantined:
            raise set_aside_error(self._door, no)
        return await self._residents.load(no) if row is not None and row.status in TERMINAL else None

    async def rests(self, no: RunNo) -> None:
        """Wait until all that is open of a run waits for callbacks that are not here yet, as its rows on disk tell it."""
        while True:
            waiter: Waiter = asyncio.get_running_loop().create_future()
            self._resting.setdefault(no, []).append(waiter)
            try:
                live = self._door.live.get(no) or await self._residents.stored(no)
                if live is None or self._is_resting(live):
                    return await self._door.caught_up()
                await waiter
            finally:
                self._resting[no].remove(waiter)
                if not self._resting[no]:
                    del self._resting[no]

    def _is_resting(self, live: Live) -> bool:
        return live.run.only_called_back and not self.looks_for(live.run.no)

    def resting(self, live: Live) -> None:
        """A run may rest from here on."""
        if self._resting and self._is_resting(live):
            for waiter in self._resting.get(live.run.no, ()):
                if not waiter.done():
                    waiter.set_result(live)

    def run_ended(self, live: Live) -> None:
        for waiter in self._waiters.pop(live.run.no, ()):
            if not waiter.done():
                waiter.set_result(live)

    def set_aside(self, no: RunNo) -> None:
        for waiter in self._waiters.pop(no, ()):
            if not waiter.done():
                waiter.set_exception(set_aside_error(self._door, no))

    def fail(self, error: Exception) -> None:
        """No run of this process will end any more."""
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)


def set_aside_error(door: Advance, no: RunNo) -> RunSetAside:
    reason, retry = door.quarantined[no]
    return RunSetAside(f"the run was set aside: {reason}; {retry}")
