"""The runner: one task that performs attempts of tools that never wait, one after another.

If a tool suspends the runner, the attempt keeps this task, the rest of the queue moves to another runner, and that tool gets a
task for each attempt from then on. Does not know slots, or what follows when one is free.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from msgspec import Raw

from holdfast.engine.events import Event, StepSucceeded
from holdfast.execution.attempt import SHORT_BYTES_MAX, AtHand, Attempt, Key, Outcomes, is_mere
from holdfast.execution.beginning import Beginning
from holdfast.execution.large_results import large_text
from holdfast.execution.logs import Logs, current
from holdfast.runtime.door import Door
from holdfast.runtime.large_arguments import Start
from holdfast.runtime.resident_run import ResidentRun
from holdfast.tools.results import small_text
from holdfast.tools.secrets import Secrets
from holdfast.values import written

SIMPLE: Final = frozenset({int, bool, type(None)})  # nothing about these can be bent or refused
TURN_TASKS: Final = 50  # started in one turn: those that do not wait all finish in the next one


class Runner:
    """`task` is that of the runner, None while the queue is empty or waits for a slot.

    `answered` takes the outcome of an attempt that other parts know. `on_suspended` is called when a tool suspends the runner, so
    that another one performs the rest of the queue, and `on_end` when a turn has ended.
    """

    def __init__(
        self,
        door: Door,
        outcomes: Outcomes,
        logs: Logs,
        secrets: Secrets,
        beginning: Beginning,
        queue: deque[Start],
        attempts: dict[Key, Attempt],
        *,
        turn_seconds: float,
        monotonic: Callable[[], float],
        room: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        answered: Callable[[Attempt, Event], None],
        on_suspended: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self._door, self._outcomes, self._logs = door, outcomes, logs
        self._secrets, self._beginning = secrets, beginning
        self._queue, self._attempts = queue, attempts
        self._turn_seconds, self._monotonic, self._room, self._spawn = turn_seconds, monotonic, room, spawn
        self._answered, self._on_suspended, self._on_end = answered, on_suspended, on_end
        self.task: asyncio.Task[None] | None = None
        self._at_hand: AtHand | None = None  # the attempt that is being performed; no other part knows it

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that is being performed."""
        return None if self._at_hand is None else self._at_hand.as_attempt()

    def hire(self) -> None:
        """Begin a turn."""
        self._at_hand = None
        runner = self.task = self._spawn(self._run_queue())
        asyncio.get_running_loop().call_soon(self._relieve, runner)

    def _relieve(self, runner: asyncio.Task[None]) -> None:
        """Called right after a runner's first turn: if the runner is still in it, it is suspended inside a tool."""
        if self.task is not runner:
            return
        self.task, hand = None, self._at_hand
        if hand is not None:
            attempt = hand.as_attempt()
            self._attempts[attempt.key], attempt.is_known, attempt.has_begun = attempt, True, True
            attempt.task = runner
        self._on_suspended()

    async def _run_queue(self) -> None:
        """Start and perform queued attempts one after another, while the data of a step is still in the CPU cache."""
        current.set(None)  # a tool may have caused this turn, and its context was copied
        me, door, queue, room = asyncio.current_task(), self._door, self._queue, self._room()
        attempts, residents, monotonic = self._attempts, door.residents, self._monotonic
        began = monotonic()
        until, tasks, hand = began + self._turn_seconds, 0, AtHand()
        beginning, secrets = self._beginning, self._secrets
        event: Event | None
        for _ in range(len(queue)):  # no more than this, so that the loop can run other tasks
            if not queue or len(attempts) >= room:
                break  # freeing a slot starts the rest
            if began > until or tasks >= TURN_TASKS:
                break  # large values take long: other callers are served between them
            start = queue.popleft()
            no, path, number = start
            if (resident := residents.get(no)) is None and no in door.away:
                queue.appendleft(start)
                break  # so does reloading the run
            self._at_hand = None  # what is said while arguments are made is in the log of no other attempt
            if resident is None or not beginning.take_up(hand, resident, path, number):
                tasks += 1 if monotonic() < until else TURN_TASKS
                continue
            self._at_hand, tool, began, event, text = hand, hand.tool, monotonic(), None, b""
            try:  # as Outcomes.of does it, without a coroutine for each
                args = hand.args
                output = await (tool.fn(*args) if type(args) is tuple else tool.fn(**args))
                text = (
                    written(output)
                    if type(output) in SIMPLE
                    else small_text(output) or await large_text(output)
                )
                attempt = hand.attempt
                is_short = len(text) <= SHORT_BYTES_MAX or is_mere(text)
                if not is_short or secrets.are_known or (attempt is not None and attempt.answer is not None):
                    event = await self._outcomes.of_answer(hand.as_attempt(), text, began)
            except BaseException as error:
                event = self._outcomes.of_error(hand.as_attempt(), error, began)
            if self.task is not me:
                tool.waits()
                attempt = hand.as_attempt()
                return self._answered(attempt, event or self._succeeded(attempt, text, began))
            if event is not None:
                self._settle(resident, hand.as_attempt(), event)
            elif (attempt := hand.attempt) is not None and (attempt.is_known or attempt.lines is not None):
                self._settle(resident, attempt, self._succeeded(attempt, text, began))
            else:
                ran = monotonic() - began
                door.succeed(resident, path, number, text, 0 if ran < 0.001 else int(ran * 1000))
        self.task = None
        self._on_end()

    def _settle(self, resident: ResidentRun, attempt: Attempt, event: Event) -> None:
        """Apply the outcome of an attempt that the runner has performed."""
        if attempt.is_known:
            return self._answered(attempt, event)
        if attempt.lines is not None:
            self._logs.ended(attempt, self._door.batch)
        self._door.apply(resident, event)

    def _succeeded(self, attempt: Attempt, text: bytes, began: float) -> StepSucceeded:
        return StepSucceeded(attempt.path, attempt.number, Raw(text), int((self._monotonic() - began) * 1000))
