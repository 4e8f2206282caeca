"""What the door leaves for later turns of the event loop: the rest of decisions that were too long for one row, and outcomes that it
holds while runs of schedules start.

Does not know what a decision is, or how an outcome is applied.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from holdfast.engine.events import StepSucceeded
from holdfast.runtime.resident_run import ResidentRun
from holdfast.values import RunNo

# Turns that the event loop takes before a split decision goes on: a new connection is accepted, read and answered in them.
TURNS_BETWEEN: Final = 3
HELD_AT_ONCE: Final = 100  # outcomes that are applied in one turn


class SplitDecisions:
    """`go_on_with` takes up all that is left of one run."""

    def __init__(self, go_on_with: Callable[[ResidentRun], None]) -> None:
        self._go_on_with = go_on_with
        self._runs: dict[RunNo, ResidentRun] = {}  # with the first part durable
        self._is_going_on = False  # some of them have their turn soon

    @property
    def is_empty(self) -> bool:
        return not self._runs

    def put(self, resident: ResidentRun) -> None:
        self._runs[resident.run.no] = resident

    def go_on(self) -> None:
        """Give the runs their turns, one after the other: one row can take 0.1 s of expressions."""
        if self._runs and not self._is_going_on:
            self._is_going_on = True
            self._after(TURNS_BETWEEN)

    def _after(self, turns: int) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._after, turns - 1)
            return
        self._is_going_on = False
        if self._runs:
            self._go_on_with(self._runs.pop(next(iter(self._runs))))
        self.go_on()


class HeldOutcomes:
    """`deliver` applies some of them."""

    def __init__(self, deliver: Callable[[list[tuple[RunNo, StepSucceeded]]], None]) -> None:
        self._deliver = deliver
        self._outcomes: deque[tuple[RunNo, StepSucceeded]] = deque()
        self.holds = False

    @property
    def is_empty(self) -> bool:
        return not self._outcomes

    def hold(self) -> None:
        """Keep back what comes of the steps of schedules until `let_go`: the runs that are due now start first."""
        self.holds = True

    def put(self, no: RunNo, event: StepSucceeded) -> None:
        self._outcomes.append((no, event))

    def let_go(self) -> None:
        self.holds = False
        self._deliver_some()

    def _deliver_some(self) -> None:
        outcomes = self._outcomes
        if len(outcomes) > HELD_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._deliver_some)
        held, self.holds = self.holds, False  # these have been held long enough
        try:
            self._deliver([outcomes.popleft() for _ in range(min(HELD_AT_ONCE, len(outcomes)))])
        finally:
            self.holds = held
