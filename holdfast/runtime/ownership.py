"""Takes runs up: those that a former process left, those that are due, those whose tool is here now. Gives them all back
when the engine is closed. Does not know what a run does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from holdfast.engine.events import Adopted, StepPaused
from holdfast.errors import Refused
from holdfast.execution.dispatcher import Dispatch
from holdfast.runtime.door import Door
from holdfast.runtime.fatal_runs import FatalRuns
from holdfast.runtime.resident import Residents
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.service import Service
from holdfast.runtime.waiters import set_aside_error
from holdfast.store.base import Store
from holdfast.store.records import RunRow
from holdfast.values import Millis, RunNo

log = logging.getLogger("holdfast")

ADOPT_BATCH: Final = 500  # runs taken up between two looks at the loop

LOSSES_LOGGED_MAX: Final = 10  # of one run
LARGE_BYTES: Final = 64 * 1024  # of a run that takes some milliseconds to take up
LOADED_AT_ONCE: Final = 50  # of those that are due, with the same questions
WOKEN_BYTES_MAX: Final = 4 * 1024 * 1024  # of their journals, between two looks at the loop


class Ownership(Service):
    def __init__(
        self,
        store: Store,
        door: Door,
        dispatch: Dispatch,
        residents: Residents,
        fatal_runs: FatalRuns,
        *,
        resident_max: int,
    ) -> None:
        self._store, self._door, self._dispatch = store, door, dispatch
        self._residents, self._fatal_runs = residents, fatal_runs
        self.resident_max = resident_max
        self.drives_all = True
        self._own: set[RunNo] = set()  # the only runs that are driven here, if not all are
        self.held: set[RunNo] = set()  # runs that a process may have died of: the others go first
        self._passed_over: list[RunNo] = []  # of these, what was left behind
        self._lane: str | None = None  # the attempt that an earlier process had under crash isolation
        # where the search for runs left behind is; None when it is over
        self._cursor: RunNo | None = RunNo(0)
        self._more_due = False

    async def open(self, *, drive: bool) -> None:
        self.drives_all = self._door.parks = drive
        self.held = self._fatal_runs.held if drive else set()
        self._lane = self._store.isolated_of_former()

    async def close(self) -> None:
        if not self._door.committer.is_shut:
            for resident in list(self._door.residents.values()):
                self._door.release(resident)
            await self._door.drained()

    def drives(self, no: RunNo) -> bool:
        """Whether this process continues a run by itself."""
        return self.drives_all or no in self._own

    def admit(self, no: RunNo) -> None:
        """Continue this run too, where not all runs are driven."""
        if not self.drives_all:
            self._own.add(no)

    @property
    def room(self) -> int:
        """How many more runs may be in memory."""
        return self.resident_max - len(self._door.residents) - len(self._residents.loading)

    @property
    def has_more(self) -> bool:
        """There are runs to take up, for which there was no room."""
        return self._cursor is not None or self._more_due

    async def interrupt(self) -> None:
        """End the runs that ask not to survive a restart, parked ones too."""
        after = RunNo(0)
        while found := await self._store.interruptible(after, ADOPT_BATCH):
            for no in found:
                await self.adopt(no, restarted=True)
            await self._door.drained()
            after = found[-1]

    async def supply(self, has: Callable[[str], bool]) -> None:
        """Take up the runs that wait for a tool which this node has."""
        after = RunNo(0)
        while found := await self._store.in_need(after, ADOPT_BATCH):
            for no, needs in found:
                if no not in self.held and all(map(has, msgspec.json.decode(needs, type=list[str]))):
                    await self.adopt(no)
            await self._door.drained()
            after = found[-1][0]

    async def fill(self, now: Millis, fire: Callable[[RunNo], None], held_back: int) -> bool:
        """Take up as many runs as there is room for: first what was left behind, then what is due. Was there any?

        `fire` is called for a run that only its timers woke; `held_back` runs stay due although their time has come.
        """
        room, taken = min(self.room, self._dispatch.free_places, ADOPT_BATCH), 0
        if self._cursor is not None and room > 0:
            taken += await self._take_left_behind(self._cursor, room)
        if not self.held:
            taken += await self._take_passed_over()
        self._more_due = True
        room = min(self.room, ADOPT_BATCH)  # a timer needs no place; what it starts waits for one
        if room > 0:
            set_aside = self._door.quarantined
            stay_due = len(set_aside) + len(self.held) + held_back  # the rest must not queue behind them
            found = await self._store.due(now, room + stay_due)
            due = [no for no in found if no not in set_aside and no not in self.held]
            room = min(self.room, room)  # runs may have begun while it was read
            self._more_due = len(due) >= room
            evicted = [no for no in due if no not in self._door.residents]
            taken += await self._wake_due(evicted[: max(0, room)], fire)
        return taken > 0

    async def _take_left_behind(self, after: RunNo, room: int) -> int:
        found = await self._store.left_behind(after, room)
        for no in found:
            if self.room <= 0:
                return len(found)  # runs have begun meanwhile: the next look goes on from here
            if no in self.held:
                self._passed_over.append(no)
            elif no not in self._door.residents:
                resident = await self.adopt(no, restarted=True)
                if resident is not None and resident.bytes > LARGE_BYTES:
                    await asyncio.sleep(0)
            self._cursor = no  # where a read fails, the next look begins again
        if len(found) < room:
            self._cursor = None
        return len(found)

    def let_go(self) -> None:
        """Those that were held are taken up with the next look."""
        self.held = set()

    async def _take_passed_over(self) -> int:
        """One after the other: what was decided of the others is durable before each."""
        count = len(self._passed_over)
        while self._passed_over:
            await self._door.drained()
            await self.adopt(self._passed_over[0], restarted=True)
            del self._passed_over[0]
        return count

    async def _wake_due(self, due: list[RunNo], fire: Callable[[RunNo], None]) -> int:
        woken = size = 0
        for start in range(0, len(due), LOADED_AT_ONCE):
            if self.room <= 0:  # runs have begun meanwhile
                self._more_due = True
                break
            asked = due[start : start + min(LOADED_AT_ONCE, self.room)]
            for resident in await self._residents.bring_in_many(asked):
                size += resident.journal_bytes
                if not await self._begins_what_is_ready(resident):
                    fire(resident.run.no)
                woken += 1
            if size > WOKEN_BYTES_MAX:
                self._more_due = True
                break
        return woken

    async def adopt(self, no: RunNo, *, drive: bool = True, restarted: bool = False) -> ResidentRun | None:
        """Make a run ours by a row of its own: whoever had it can never append to it again.

        Nothing of it moves before that row: its timers and suspects get their turn when the row is durable.
        """
        resident, is_ours = self._door.residents.get(no), True
        if resident is None:
            resident, is_ours = await self._residents.bring_in(no)
        if resident is None or resident.run.over or not is_ours:  # or another part has taken it up meanwhile
            return resident
        resident.epoch += 1
        held = set(self._dispatch.workers.held(no))
        begun = list(resident.run.open_attempts())
        here = self._dispatch.attempts_of(no) if begun else ()
        gone = [
            (path, step)
            for path, step in begun
            if (no, path, step.attempt) not in held and (path, step.attempt) not in here
        ]
        # One that was answered before it could say that it would be is not lost: it has its answer.
        answered = [
            (path, step.attempt) for path, step in gone if step.parked is not None and step.target is None
        ]
        lost = [path for path, step in gone if step.parked is None or step.target is not None]
        run_id, _, path = (self._lane or "").partition(" ")
        alone = path if run_id == resident.run.id and path in lost else ""
        self._log_losses(resident, lost, alone)
        self._door.apply(resident, Adopted(lost, alone, drive, restarted))
        if drive:
            for path, attempt in answered:
                self._door.apply(resident, StepPaused(path, attempt, ""))
        if held:
            self._dispatch.rejoin(resident)
        return resident

    async def take_up(self, row: RunRow) -> ResidentRun:
        """Continue one run, whichever process owned it last; its row is durable when this returns."""
        self.admit(row.no)
        resident = await self.adopt(row.no, restarted=True)
        if resident is None:
            raise set_aside_error(self._door, row.no)
        await self._door.drained()
        return resident

    async def retry(self, row: RunRow) -> None:
        """Continue a run that was set aside; if not all runs are driven here, let the next process do so."""
        has_killed = await self._fatal_runs.forget(row.no)
        if self._door.quarantined.pop(row.no, None) is None and not has_killed:
            raise Refused(
                f"run {row.id} was not set aside; holdfast runs explain {row.id} says what it waits for"
            )
        if self.drives_all:
            if await self.adopt(row.no, restarted=has_killed) is None:
                raise set_aside_error(self._door, row.no)
            await self._door.drained()

    async def wake(self, no: RunNo, *, drive: bool = True) -> ResidentRun | None:
        """Bring a parked run back; its first row makes it ours. One that has something ready begins it."""
        resident, is_ours = await self._residents.bring_in(no)
        if resident is not None and not resident.run.over and is_ours:
            await self._begins_what_is_ready(resident, drive=drive)
        return resident

    async def _begins_what_is_ready(self, resident: ResidentRun, *, drive: bool = True) -> bool:
        run = resident.run
        if run.status == "pending" or run.active or run.todo or run.waits_for_key():
            await self.adopt(run.no, drive=drive)
            return True
        resident.epoch += 1
        return False

    def _log_losses(self, resident: ResidentRun, lost: list[str], alone: str) -> None:
        for path in lost[:LOSSES_LOGGED_MAX]:
            attempt = resident.run.steps[path].attempt
            beside = ", alone in its lane" if path == alone else ""
            log.warning(
                "run %s: attempt %d of %s was lost with its process%s", resident.run.id, attempt, path, beside
            )
        if len(lost) > LOSSES_LOGGED_MAX:
            log.warning("run %s: %d attempts were lost with their process", resident.run.id, len(lost))
