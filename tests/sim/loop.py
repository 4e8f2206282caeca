"""An asyncio event loop on virtual time: one place decides what runs next, and time moves only when nothing is ready.

Which ready handle is next is drawn by the seed, but what one callback scheduled stays in its order: asyncio promises
that much, and code may rely on it. Some seeds keep asyncio's own order throughout. Handles belong to the node in whose
context they were made: those of a dead node are dropped, those of a paused one are held back. No threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol, TypeVarTuple, Unpack

Ts = TypeVarTuple("Ts")
Where = contextvars.Context | None


class Tenant(Protocol):
    """Whoever handles belong to."""

    dead: bool
    paused: bool
    held: list[asyncio.Handle]


NODE: contextvars.ContextVar[Tenant | None] = contextvars.ContextVar("NODE", default=None)


class NumberedTask(asyncio.Task[Any]):
    """Hashed by number, so that a set of tasks has the same order in every process."""

    def __init__(self, coro: Any, *, loop: Any, number: int, **more: Any) -> None:
        self.number = number
        super().__init__(coro, loop=loop, **more)

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, rng: random.Random, *, shuffles: bool) -> None:
        super().__init__()
        self._rng, self._shuffles = rng, shuffles
        self._now = 0.0
        self._groups: dict[int, deque[asyncio.Handle]] = {}
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._count = 0
        self._turn_no = 0
        self.turns = 0
        self.tasks: list[NumberedTask] = []
        self.errors: list[dict[str, Any]] = []
        self.before: Callable[[Tenant | None], None] = lambda node: None
        self.set_task_factory(self._new_task)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------- what asyncio asks of a loop

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Where = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._make_ready(handle, self._turn_no)
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Where = None,
    ) -> asyncio.TimerHandle:
        self._count += 1
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, self._count, handle))
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Where = None,
    ) -> asyncio.TimerHandle:
        when = self._now + delay
        # however little: a clock that stood still would keep who waits for the rest of a moment waiting
        if delay > 0:
            when = max(when, math.nextafter(self._now, math.inf))
        return self.call_at(when, callback, *args, context=context)

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Where = None
    ) -> asyncio.Handle:
        raise AssertionError("no thread takes part in a simulation")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        self.errors.append(context)

    def get_debug(self) -> bool:
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled ones are passed over when their time comes."""

    def _new_task(
        self, loop: SimLoop, coro: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **more: Any
    ) -> NumberedTask:
        task = NumberedTask(coro, loop=self, number=len(self.tasks), **more)
        # held to the end: what a dead node left must not be collected, that is, cleaned up
        self.tasks.append(task)
        return task

    # ---------------------------------------------------------------------------------------------- the next turn

    def _make_ready(self, handle: asyncio.Handle, parent: int) -> None:
        self._groups.setdefault(parent if self._shuffles else 0, deque()).append(handle)

    def give_back(self, handles: list[asyncio.Handle]) -> None:
        """What was held back for a pause goes on, in its order."""
        for handle in handles:
            self._make_ready(handle, self._turn_no)

    def run_until(self, is_over: Callable[[], bool]) -> None:
        asyncio._set_running_loop(self)
        try:
            while not is_over() and self.turn():
                pass
        finally:
            asyncio._set_running_loop(None)

    def turn(self) -> bool:
        """Run one handle. False if there is nothing to run, now or later."""
        self.turns += 1
        self._ripen()
        if not self._groups:
            return False
        keys = list(self._groups)
        key = keys[self._rng.randrange(len(keys))] if len(keys) > 1 else keys[0]
        handle = self._groups[key].popleft()
        if not self._groups[key]:
            del self._groups[key]
        if not handle.cancelled():
            self._run_one(handle)
        return True

    def _ripen(self) -> None:
        """Let time pass to the next timer if nothing is ready, and make ready what is due."""
        timers = self._timers
        while timers and (timers[0][0] <= self._now or not self._groups):
            when, count, handle = heapq.heappop(timers)
            if not handle.cancelled():
                self._now = max(self._now, when)
                self._make_ready(handle, -count)

    def _run_one(self, handle: asyncio.Handle) -> None:
        context: contextvars.Context = handle._context  # type: ignore[attr-defined]
        node = context.get(NODE)
        self.before(node)
        if node is not None and node.dead:
            return
        if node is not None and node.paused:
            node.held.append(handle)
            return
        self._turn_no += 1
        handle._run()

    def dispose(self) -> None:
        """Let go of everything without a word: what is still pending was meant to be."""
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            if not task.done():
                coro = task.get_coro()
                assert coro is not None
                with contextlib.suppress(RuntimeError):  # what it does on its way out needs a loop that runs
                    coro.close()
        self._groups.clear()
        self._timers.clear()
        self.close()
