"""Claims runs and loads them: those whose owner is gone, those that are due, those whose tool is registered here now. Releases
all of them when the engine is closed.

    claim (store) ──► load (resident.py) ──► Adopted, if its owner did not release it or it has something to begin

Does not know what a run does, or how a store decides who owns it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.engine.events import Adopted, StepPaused, Supplied
from holdfast.errors import HoldfastError, Refused
from holdfast.execution.dispatcher import Dispatch
from holdfast.runtime.door import Door
from holdfast.runtime.fatal_runs import FatalRuns
from holdfast.runtime.resident import Residents
from holdfast.runtime.resident_run import SERVICE, ResidentRun, lacking, need_of
from holdfast.runtime.service import Service
from holdfast.runtime.waiters import set_aside_error
from holdfast.store.base import Store
from holdfast.store.ownership import Claim
from holdfast.store.records import RunRow
from holdfast.values import Millis, RunNo

log = logging.getLogger("holdfast")

ADOPT_BATCH: Final = 500  # runs that are adopted before the loop gets its turn

SUPPLIED_AT_ONCE: Final = 100  # steps that one row starts
LOSSES_LOGGED_MAX: Final = 10  # lost attempts of one run that are logged
LARGE_BYTES: Final = 64 * 1024  # a run with a larger journal takes some milliseconds to load
LOADED_AT_ONCE: Final = 50  # due runs that are read by the same queries
WOKEN_BYTES_MAX: Final = 4 * 1024 * 1024  # bytes of journals that are loaded before the loop gets its turn


class OwnedElsewhere(HoldfastError):
    """Another node drives this run: an event for it is posted as mail."""

    code = "owned_elsewhere"


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
        self.held: set[RunNo] = set()  # runs that may have crashed a process: the others go first
        self._last: set[RunNo] = set()  # the same once the others have had their time
        self._not_adopted: set[RunNo] = set()  # left by their owner, but finished or not readable
        self._more_left = True  # runs whose owner is gone: searched for until there are none
        self._more_due = False
        self.taken = 0  # runs that were taken up since this process opened

    async def open(self, *, drive: bool) -> None:
        self.drives_all = self._door.parks = drive
        self.held = self._fatal_runs.held if drive else set()

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
        return self._more_left or self._more_due

    def look_again(self) -> None:
        """Another node may have died since the last look: the next fill looks for its runs."""
        self._more_left = True

    async def interrupt(self) -> None:
        """End the runs that ask not to survive a restart, parked ones too."""
        after = RunNo(0)
        while found := await self._store.interruptible(after, ADOPT_BATCH):
            for no in found:
                with suppress(OwnedElsewhere):
                    await self.adopt(no, restarted=True)
            await self._door.drained()
            after = found[-1]

    async def supply(self, after: RunNo) -> RunNo | None:
        """Continue runs that lack a tool or worker which is there now, in memory and in the store. Return where to go on, if there
        are more in the store; there may be no room for them yet."""
        for resident in list(self._door.residents.values()) if not after else ():
            if resident.lacks and self.drives(resident.run.no):
                self.supplied(resident)
        if not self.drives_all:
            return None
        found = await self._store.in_need(after, ADOPT_BATCH)
        for no, tenant, needs in found:
            if self.room <= 0:
                return after
            if no not in self.held and any(
                self._is_there(tenant, need) for need in msgspec.json.decode(needs)
            ):
                with suppress(OwnedElsewhere):
                    woken = await self.wake(no)
                    if woken is not None and not woken.run.over:
                        self.supplied(woken)
            after = no
        await self._door.caught_up()
        return after if len(found) == ADOPT_BATCH else None

    def supplied(self, resident: ResidentRun) -> None:
        """Start the steps of a run whose tool or worker is there now."""
        if not resident.lacks:
            return
        tenant = resident.run.tenant
        paths = [
            path
            for path, step in lacking(resident)
            if step.state == "waiting" and self._is_there(tenant, need_of(resident.plan, path, step))
        ]
        for at in range(0, len(paths), SUPPLIED_AT_ONCE):
            self._door.apply(resident, Supplied(paths[at : at + SUPPLIED_AT_ONCE]))

    def _is_there(self, tenant: str, need: str) -> bool:
        if need.startswith(SERVICE):
            return self._dispatch.workers.is_served(tenant, need.removeprefix(SERVICE))
        return self._dispatch.registry.has(need)

    async def fill(self, now: Millis, fire: Callable[[RunNo], object], held_back: int) -> bool:
        """Take up as many runs as there is room for: first what was left behind, then what is due. Was there any?

        `fire` is called for a run that only its timers woke; `held_back` runs stay due although their time has come.
        """
        room, taken = min(self.room, self._dispatch.free_places, ADOPT_BATCH), 0
        if self._more_left and room > 0:
            taken += await self._take_left(now, room)
        while self._last:
            taken += await self._take_last()
        self._more_due = True
        room = min(self.room, ADOPT_BATCH)  # a timer needs no place; what it starts waits for one
        if room > 0:
            stay = self._door.quarantined.keys() | self.held  # the rest must not queue behind them
            due = await self._store.claim("due", now, room + held_back, stay)
            room = max(0, min(self.room, room))  # runs may have begun while it was read
            self._more_due = len(due) >= room
            evicted = [claim for claim in due if claim.no not in self._door.residents]
            await self._store.release(evicted[room:])
            await self._dispatch.workers.take_over([claim.no for claim in evicted[:room]])
            taken += await self._wake_due(evicted[:room], fire)
        self.taken += taken
        return taken > 0

    async def _take_left(self, now: Millis, room: int) -> int:
        """Adopt runs whose owner is gone."""
        stay = self._door.quarantined.keys() | self.held | self._last | self._not_adopted
        claims, taken = await self._store.claim("left", now, room, stay), 0
        self._more_left = len(claims) >= room
        await self._dispatch.workers.take_over([claim.no for claim in claims])
        for at, claim in enumerate(claims):
            if self.room <= 0:  # runs have begun meanwhile
                self._more_left = True
                await self._store.release(claims[at:])
                break
            taken += 1
            if claim.no in self._door.residents:
                continue  # a request has taken it up; once its row is durable it is not claimed again, and the next claim returns other runs
            resident = await self.adopt(claim.no, claim=claim, restarted=True)
            if resident is None or resident.run.over:
                self._not_adopted.add(claim.no)
            elif resident.bytes > LARGE_BYTES:
                await asyncio.sleep(0)
        await self._door.caught_up()  # until their rows are durable, the same runs are claimed again
        return taken

    def let_go(self) -> None:
        """Take up the held runs with the next fill."""
        self.held, self._last = set(), self.held

    async def _take_last(self) -> int:
        """One after the other: what was decided of the others is durable before each. A released one is due like any other."""
        await self._door.drained()
        no = min(self._last)
        claim = await self._store.claim_run(no)
        is_left = claim is not None and not claim.was_released and no not in self._door.residents
        if is_left:
            await self.adopt(no, claim=claim, restarted=True)
        self._last.discard(no)
        return is_left

    async def _wake_due(self, due: list[Claim], fire: Callable[[RunNo], object]) -> int:
        woken = size = at = 0
        while at < len(due):
            if self.room <= 0 or size > WOKEN_BYTES_MAX:  # runs have begun meanwhile, or it was much at once
                self._more_due = True
                await self._store.release(due[at:])
                break
            claims = {claim.no: claim for claim in due[at : at + min(LOADED_AT_ONCE, self.room)]}
            for resident in await self._residents.bring_in_many(list(claims.values())):
                size += resident.journal_bytes
                if not await self._begins_what_is_ready(resident, claims[resident.run.no]):
                    fire(resident.run.no)
                woken += 1
            at += len(claims)
        return woken

    async def _claim(self, no: RunNo, seen: RunRow | None = None) -> Claim:
        claim = await self._store.claim_run(no, seen)
        if claim is None:
            raise OwnedElsewhere(f"another node drives run number {no}")
        await self._dispatch.workers.take_over([no])
        return claim

    async def adopt(
        self,
        no: RunNo,
        *,
        claim: Claim | None = None,
        seen: RunRow | None = None,
        drive: bool = True,
        restarted: bool = False,
    ) -> ResidentRun | None:
        """Make a run ours by a row of its own: a former owner can never append to it again. Raise OwnedElsewhere if another
        node drives it.

        Nothing of it moves before that row: its timers and isolated attempts get their turn when the row is durable.
        """
        resident, is_ours = self._door.residents.get(no), True
        if resident is None:
            claim = claim or await self._claim(no, seen)
            resident, is_ours = await self._residents.bring_in(claim)
        if resident is None or resident.run.over or not is_ours:  # or another part has taken it up meanwhile
            return resident
        resident.epoch = _next_epoch(resident, claim)
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
        run_id, _, path = ("" if claim is None else claim.isolated).partition(" ")
        alone = path if run_id == resident.run.id and path in lost else ""
        self._log_losses(resident, lost, alone)
        self._door.apply(resident, Adopted(lost, alone, drive, restarted))
        if drive:
            for path, attempt in answered:
                self._door.apply(resident, StepPaused(path, attempt, ""))
            self.supplied(resident)
        if held:
            self._dispatch.rejoin(resident)
        return resident

    async def take_up(self, row: RunRow) -> ResidentRun:
        """Continue one run, whichever process owned it last; its row is durable when this returns."""
        self.admit(row.no)
        resident = await self.adopt(row.no, seen=row, restarted=True)
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
            if await self.adopt(row.no, seen=row, restarted=has_killed) is None:
                raise set_aside_error(self._door, row.no)
            await self._door.drained()

    async def wake(self, no: RunNo, *, seen: RunRow | None = None, drive: bool = True) -> ResidentRun | None:
        """Load a released run; its first row makes it ours. A run with something ready begins it. Raise OwnedElsewhere if
        another node drives it."""
        claim = await self._claim(no, seen)
        resident, is_ours = await self._residents.bring_in(claim)
        if resident is not None and not resident.run.over and is_ours:
            await self._begins_what_is_ready(resident, claim, drive=drive)
        return resident

    async def _begins_what_is_ready(self, resident: ResidentRun, claim: Claim, *, drive: bool = True) -> bool:
        run = resident.run
        if run.status == "pending" or run.active or run.todo or run.waits_for_key():
            await self.adopt(run.no, claim=claim, drive=drive)
            return True
        resident.epoch = _next_epoch(resident, claim)
        return False

    def _log_losses(self, resident: ResidentRun, lost: list[str], alone: str) -> None:
        for path in lost[:LOSSES_LOGGED_MAX]:
            attempt = resident.run.steps[path].attempt
            beside = ", alone under crash isolation" if path == alone else ""
            log.warning(
                "run %s: attempt %d of %s was lost with its process%s", resident.run.id, attempt, path, beside
            )
        if len(lost) > LOSSES_LOGGED_MAX:
            log.warning("run %s: %d attempts were lost with their process", resident.run.id, len(lost))


def _next_epoch(resident: ResidentRun, claim: Claim | None) -> int:
    """The run may have moved on since its row was read to claim it; an epoch never falls, and each owner has its own."""
    following = resident.epoch + 1
    return following if claim is None else max(following, claim.epoch)
