"""Runs our own blocking work in a thread. If the system cannot start a thread now, it waits for one instead of failing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Generic, ParamSpec, TypeVar

AGAIN_SECONDS: Final = 0.05  # before a thread is asked for again; doubled each time
AGAIN_SECONDS_MAX: Final = 1.0

T = TypeVar("T")
P = ParamSpec("P")


def no_thread_now(error: RuntimeError) -> bool:
    """Is this Python's word for a limit on processes or memory that leaves no room for a thread?"""
    return "can't start new thread" in str(error)


async def in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What `work` gives, in a thread of the loop's own pool."""
    return await in_pool(None, lambda: work(*args, **named))


async def in_pool(pool: ThreadPoolExecutor | None, work: Callable[[], T]) -> T:
    loop, delay = asyncio.get_running_loop(), AGAIN_SECONDS
    while True:
        call = _Call(work)
        try:
            return await loop.run_in_executor(pool, call)
        except RuntimeError as error:
            if call.has_begun or not no_thread_now(error):
                raise
        call.is_dropped = True  # the pool has kept it, for a thread that may come
        await asyncio.sleep(delay)
        delay = min(2 * delay, AGAIN_SECONDS_MAX)


class _Call(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work, self.has_begun, self.is_dropped = work, False, False

    def __call__(self) -> T:
        if self.is_dropped:
            raise RuntimeError("dropped")  # never seen by a caller
        self.has_begun = True
        return self._work()
