"""After commits failed and work again: load what was dropped, begin what was passed over, offer what was kept.

The order matters. What was durable and not begun is taken from a run as it was loaded, before anything is offered to
it: what an offer decides is not durable yet, and will be begun by its own commit.
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
from holdfast.runtime.door import Advance, Live
from holdfast.runtime.ownership import Owners
from holdfast.values import RunNo


class Restore:
    def __init__(
        self,
        advance: Advance,
        dispatch: Dispatch,
        owners: Owners,
        load: Callable[[RunNo], Awaitable[Live | None]],
        arm: Callable[[Live], None],
    ) -> None:
        self._advance, self._dispatch, self._owners, self._load, self._arm = (
            advance,
            dispatch,
            owners,
            load,
            arm,
        )

    async def run(self, drives: Callable[[RunNo], bool]) -> None:
        await self._reload(drives)
        if self._advance.is_stalled:
            return  # again; the next restoration goes on
        self._offer_again()
        await self._see_to_the_rest(drives)

    async def _reload(self, drives: Callable[[RunNo], bool]) -> None:
        advance = self._advance
        adopted = {no: event for no, event in advance.again if isinstance(event, Adopted)}
        for no in [no for no in adopted if no not in advance.away]:  # taken up while no commit could be made
            await self._owners.adopt(no, drive=drives(no), restarted=adopted[no].restarted)
        while advance.away and not advance.is_stalled:
            no = next(iter(advance.away))
            if no in adopted:
                await self._owners.adopt(no, drive=drives(no), restarted=adopted[no].restarted)
            elif (live := await self._load(no)) is not None and not live.run.over:
                self._begin_passed_over(live)
                if live.run.todo and not any(
                    of == no and isinstance(event, Continued) for of, event in advance.again
                ):
                    advance.again.append((no, Continued()))
            advance.away.discard(no)

    def _begin_passed_over(self, live: Live) -> None:
        """Attempts that are durable, and were not begun because the run had moved on in memory, where it did not count."""
        no = live.run.no
        kept = [event for of, event in self._advance.again if of == no]
        for path, step in live.run.open_attempts():
            if self._dispatch.has(no, path, step.attempt) or _answers(kept, path, step.attempt):
                continue
            if self._dispatch.workers.is_offered((no, path, step.attempt)):
                continue  # a worker has it, or may fetch it: see below
            if step.target is None:
                self._dispatch.start(live, path, step.attempt)
            else:
                self._advance.again.append((no, AttemptReleased(path, step.attempt, "stopping")))

    def _offer_again(self) -> None:
        again, self._advance.again = self._advance.again, []
        for no, event in again:
            live = self._advance.live.get(no)
            if live is None or isinstance(event, Adopted):
                continue
            if not isinstance(event, Continued) or live.run.todo:
                self._advance.offer(live, event)

    async def _see_to_the_rest(self, drives: Callable[[RunNo], bool]) -> None:
        """Timers, places, the lane, and what nobody drives yet."""
        self._dispatch.isolation.drop_lost()
        self._dispatch.rejoin_all()
        for live in list(self._advance.live.values()):
            run = live.run
            if run.is_idle and drives(run.no) and (not run.todo or run.waits_for_key()):
                await self._owners.adopt(run.no)
            self._arm(live)
        self._dispatch.resume()


def _answers(events: list[Event], path: str, attempt: int) -> bool:
    kinds = StepSucceeded | StepFailed | StepPaused | AttemptReleased
    answers = [event for event in events if isinstance(event, kinds)]
    return any((event.path, event.attempt) == (path, attempt) for event in answers)
