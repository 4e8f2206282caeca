"""Recovery once commits work again: load the runs that were dropped, start their pending attempts, apply the events that were kept.

The order matters. Pending attempts are started from the loaded state of a run, before any event is applied to it: the decisions of
a new event are not durable yet, and are carried out after their own commit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from holdfast.engine.events import (
    Adopted,
    AttemptReleased,
    Continued,
    Event,
    StepFailed,
    StepPaused,
    StepSucceeded,
)
from holdfast.execution.dispatcher import Dispatch
from holdfast.runtime.door import Door
from holdfast.runtime.ownership import Ownership
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.service import Service
from holdfast.values import RunNo


class Restore(Service):
    def __init__(
        self,
        door: Door,
        dispatch: Dispatch,
        owners: Ownership,
        load: Callable[[RunNo], Awaitable[ResidentRun | None]],
        arm: Callable[[ResidentRun], None],
    ) -> None:
        self._door, self._dispatch, self._owners, self._load, self._arm = (
            door,
            dispatch,
            owners,
            load,
            arm,
        )

    async def restored(self) -> None:
        await self._reload()
        if self._door.is_stalled:
            return  # again; the next restoration goes on
        self._offer_again()
        await self._resume_the_rest()

    async def _reload(self) -> None:
        door, drives = self._door, self._owners.drives
        adopted = {no: event for no, event in door.again if isinstance(event, Adopted)}
        for no in [no for no in adopted if no not in door.away]:  # taken up while no commit could be made
            await self._owners.adopt(no, drive=drives(no), restarted=adopted[no].restarted)
        while door.away and not door.is_stalled:
            no = next(iter(door.away))
            if no in adopted:
                await self._owners.adopt(no, drive=drives(no), restarted=adopted[no].restarted)
            elif (resident := await self._load(no)) is not None and not resident.run.over:
                self._begin_passed_over(resident)
                if resident.run.todo and not any(
                    of == no and isinstance(event, Continued) for of, event in door.again
                ):
                    door.again.append((no, Continued()))
            door.away.discard(no)

    def _begin_passed_over(self, resident: ResidentRun) -> None:
        """Attempts that are durable, and were not begun because the run had moved on in memory, where it did not count."""
        no = resident.run.no
        kept = [event for of, event in self._door.again if of == no]
        for path, step in resident.run.open_attempts():
            if self._dispatch.has(no, path, step.attempt) or _answers(kept, path, step.attempt):
                continue
            if self._dispatch.workers.is_offered((no, path, step.attempt)):
                continue  # a worker has it, or may fetch it: see below
            if step.target is None:
                self._dispatch.start(resident, path, step.attempt)
            else:
                self._door.again.append((no, AttemptReleased(path, step.attempt, "stopping")))

    def _offer_again(self) -> None:
        again = self._door.again.copy()
        self._door.again.clear()
        for no, event in again:
            resident = self._door.residents.get(no)
            if resident is None or isinstance(event, Adopted):
                continue
            if not isinstance(event, Continued) or resident.run.todo:
                self._door.apply(resident, event)

    async def _resume_the_rest(self) -> None:
        """Rejoin jobs of workers, adopt idle runs that this engine drives, arm timers, and let attempts start again."""
        self._dispatch.isolation.drop_lost()
        self._dispatch.rejoin_all()
        for resident in list(self._door.residents.values()):
            run = resident.run
            if run.is_idle and self._owners.drives(run.no) and (not run.todo or run.waits_for_key()):
                await self._owners.adopt(run.no)
            self._arm(resident)
        self._dispatch.resume()


def _answers(events: list[Event], path: str, attempt: int) -> bool:
    kinds = StepSucceeded | StepFailed | StepPaused | AttemptReleased
    answers = [event for event in events if isinstance(event, kinds)]
    return any((event.path, event.attempt) == (path, attempt) for event in answers)
