"""Continues runs that need no new input: runs of an earlier process, runs that are due, and timers.

    open, a free slot, a due time ──► fill ──► ownership ──► runs in memory
    a timer in memory ──► the door ──► TimerFired

Also detects that the wall clock was set back; delays that count from an event then continue by the monotonic clock.
Knows when a timer is due, not what it is for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from holdfast.engine.events import TimerFired
from holdfast.engine.state import timer_of
from holdfast.errors import StoreUnavailable, Unavailable
from holdfast.execution.dispatcher import Dispatch
from holdfast.runtime.alarms import Alarms
from holdfast.runtime.clock import JUMP_MS_LEAST, Clock
from holdfast.runtime.door import ANY_TIME, Door
from holdfast.runtime.fatal_runs import WATCHED_SECONDS
from holdfast.runtime.ownership import OwnedElsewhere, Ownership
from holdfast.runtime.resident import Residents
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.service import Service
from holdfast.runtime.timers import WOKEN_AT_ONCE
from holdfast.store.base import Store
from holdfast.values import Millis, RunNo
from holdfast.waits.polling import Polling

log = logging.getLogger("holdfast")

AGAIN_MS: Final = 1_000  # after a read that failed
ROWS_READ: Final = 1_000  # rows at the end of the journal that are checked for times in the future


class Wakes(Service):
    """`on_set_back` is called with the latest time in the journal if the wall clock was set back before this process
    started."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        door: Door,
        dispatch: Dispatch,
        residents: Residents,
        ownership: Ownership,
        alarms: Alarms,
        polling: Polling,
        *,
        on_set_back: Callable[[Millis], None],
    ) -> None:
        self._store, self._clock, self._door, self._dispatch = store, clock, door, dispatch
        self._residents, self._ownership, self._polling = residents, ownership, polling
        self._alarms, self._timers, self._delays = alarms, alarms.timers, alarms.delays
        self._on_set_back = on_set_back
        self._timers.begin(self._due, self.fill, self._set_back)
        self._waking: set[asyncio.Task[None]] = set()
        self._filling: asyncio.Task[None] | None = None
        self._fill_again = False  # requested while a fill is in progress
        self._has_filled = False
        self._watching: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._was_freed = False  # whether a slot has become free while runs were being loaded

    # ------------------------------------------------------------------------------------------ open and close

    async def open(self, *, drive: bool) -> None:
        if drive:
            await self._ownership.interrupt()
            self.fill()
            if self._ownership.held:
                self._watching = asyncio.get_running_loop().call_later(WATCHED_SECONDS, self._fill_watched)

    async def restored(self) -> None:
        self.fill()

    def abandon(self, error: Exception | None = None) -> None:
        self._is_closed = True
        self._timers.close()
        if self._watching is not None:
            self._watching.cancel()
        for task in (*self._waking, *([] if self._filling is None else [self._filling])):
            task.cancel()

    # ---------------------------------------------------------------------------------------- runs in the store

    @property
    def is_filling(self) -> bool:
        """Whether runs of former owners are being adopted, or will be once there is room or the store can be written."""
        waits = self._dispatch.when_free is not None or self._filling is not None
        return not self._is_closed and (waits or self._door.is_stalled)

    async def first_taken(self, seconds: float) -> int:
        """How many runs this process has taken up since it was opened, once the first look for them is over or the time is."""
        if self._filling is not None:
            await asyncio.wait([self._filling], timeout=seconds)
        return self._ownership.taken

    def _fill_watched(self) -> None:
        """The other runs have had their head start: load those that may have crashed a process."""
        self._ownership.let_go()
        self.fill()

    def fill(self) -> None:
        """Load runs in the background, as far as there is room."""
        self._dispatch.when_free = None
        is_able = self._ownership.drives_all and not (self._door.is_over or self._door.is_stalled)
        self._fill_again = is_able and not self._is_closed
        if self._fill_again and self._filling is None:
            self._filling = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        try:
            # requested again in the meantime: the rows that were read are out of date
            while self._fill_again:
                self._fill_again = False
                await self._fill_once()
        except StoreUnavailable as error:
            log.warning("cannot read runs now; retrying later: %s", error)
            self._timers.due_in_store(Millis(self._clock.now() + AGAIN_MS))
        finally:
            self._filling = None

    def _freed(self) -> None:
        self._was_freed = True

    async def _fill_once(self) -> None:
        ownership = self._ownership
        self._was_freed, self._dispatch.when_free = False, self._freed
        try:
            now = await self._take_up()
        finally:
            self._dispatch.when_free = None
        if self._door.is_stalled:
            return  # checked again when commits work
        if ownership.has_more:
            self._fill_again |= self._was_freed  # there was no slot for them when it was looked for
            self._dispatch.when_free = self.fill
        if ownership.room > 0:
            await self._sleep_until_due(now)

    async def _take_up(self) -> Millis:
        """Load runs as long as there are some and there is room; returns the time by which they are due."""
        ownership, now = self._ownership, self._clock.now()
        while not self._door.is_stalled:
            now = self._clock.now()
            if not self._has_filled:
                await self._find_set_back(now)
            found = await ownership.fill(now, self._due, self._polling.held_back)
            if not (found and ownership.has_more) or ownership.room <= 0:
                break
            await asyncio.sleep(0)
        return now

    async def _sleep_until_due(self, filled: Millis) -> None:
        """Runs that were due at the last fill are in memory or set aside. Their rows are updated later or never, and
        other runs must not wait for that."""
        first = await self._store.next_wake()
        if first is not None and first <= filled:
            self._timers.due_in_store(Millis(filled + AGAIN_MS))
        self._timers.due_in_store(await self._store.next_wake(filled))

    # ---------------------------------------------------------------------------------------- runs in memory

    def _due(self, no: RunNo) -> int:
        """Fire the timers of a run that are due, as many as may fire in one turn, and return their number. The commit of their rows
        arms the next one, so that those that are left fire after it."""
        resident = self._door.residents.get(no)
        if resident is None:
            if self._delays.has(no):
                self._in_background(partial(self._wake_delayed, no))
            return 0
        now, run = self._clock.now(), resident.run
        due = [(key, run.timers[key]) for key, at in self._delays.hours(run).items() if at <= now]
        is_held, fired = False, 0
        for key, at in due:
            if fired == WOKEN_AT_ONCE:
                return fired
            timer, path = timer_of(key)
            if timer == "expiry" and self._polling.polls_first(resident, path):
                is_held = True
                continue
            # Use the time of the run itself if the wall clock was set back.
            not_before = at if at > now and self._delays.has(no) else ANY_TIME
            self._door.apply(resident, TimerFired(path, timer), not_before=not_before)
            fired += 1
        if is_held:
            self._arm_others(resident, now)
        elif not due:
            self._alarms.arm(resident)  # the clock was set back at this moment
        return fired

    def _arm_others(self, resident: ResidentRun, now: Millis) -> None:
        """The expiry of a wait is postponed: the other timers of the run must still fire."""
        others = [at for at in self._delays.hours(resident.run).values() if at > now]
        self._timers.arm(resident.run.no, min([*others, Millis(now + AGAIN_MS)]))

    # ------------------------------------------------------------------------------ a wall clock that was set back

    def _set_back(self) -> None:
        """The wall clock was set back: delays of runs in memory and of evicted runs continue by the monotonic clock."""
        log.warning("the wall clock was set back; retries and polls continue by the monotonic clock")
        self._delays.is_on = True
        for resident in list(self._door.residents.values()):
            self._alarms.arm(resident)
        if self._ownership.drives_all:
            self._in_background(self._find_delayed)

    async def _find_set_back(self, now: Millis) -> None:
        """Check whether the wall clock was set back while no process, or another process, had the database open."""
        latest = await self._store.latest_at(ROWS_READ)
        self._has_filled = True
        if latest is not None and latest - now >= JUMP_MS_LEAST:
            self._on_set_back(latest)
            self._set_back()

    async def _find_delayed(self) -> None:
        """Load the evicted runs that are due next, as many as may be in memory, and correct the delays among their
        timers."""
        for no in await self._store.sleeping(self._ownership.resident_max):
            if no in self._door.residents or no in self._door.quarantined:
                continue
            try:
                resident = await self._residents.stored(no)
            except Unavailable:
                raise
            except Exception:
                log.exception("cannot read the delays of run number %d", no)
                continue
            if resident is not None and no not in self._door.residents:
                self._alarms.arm_evicted(resident)
            await asyncio.sleep(0)

    async def _wake_delayed(self, no: RunNo) -> None:
        if self._door.is_stalled:
            return self._timers.arm(no, Millis(self._clock.now() + AGAIN_MS))
        try:
            resident = await self._ownership.wake(no)
        except OwnedElsewhere:
            resident = None
        if resident is not None and not resident.run.over:
            self._due(no)
        else:
            self._delays.forget(no)

    def _in_background(self, work: Callable[[], Awaitable[None]]) -> None:
        async def tried_until_it_is_done() -> None:
            while not self._is_closed:
                try:
                    return await work()
                except Unavailable as error:
                    log.warning("cannot check delays now; retrying later: %s", error)
                    await asyncio.sleep(AGAIN_MS / 1000)

        task = asyncio.get_running_loop().create_task(tried_until_it_is_done())
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)
