"""Run blocking work in a thread. If the system cannot start a thread now, wait for one instead of failing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, Generic, ParamSpec, TypeVar

AGAIN_SECONDS: Final = 0.05  # before the next try to start a thread; doubled each time
AGAIN_SECONDS_MAX: Final = 1.0

T = TypeVar("T")
P = ParamSpec("P")


def no_thread_now(error: RuntimeError) -> bool:
    """Return whether an error means that the system cannot start another thread."""
    return "can't start new thread" in str(error)


async def in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Return the result of `work`, run in the event loop's thread pool."""
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
        call.is_dropped = True  # the pool has queued it for a later thread
        await asyncio.sleep(delay)
        delay = min(2 * delay, AGAIN_SECONDS_MAX)


async def in_own_thread(work: Callable[[], T], name: str) -> T:
    """Return the result of `work`, run in its own daemon thread, which cannot block the exit of the process."""
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # a caller that no longer waits cannot cancel it

    def call() -> None:
        try:
            result = work()
        except BaseException as error:
            # A future cannot hold StopIteration, and an await cannot raise GeneratorExit.
            stops = isinstance(error, StopIteration | GeneratorExit)
            done.set_exception(RuntimeError(f"it raised {type(error).__name__}") if stops else error)
        else:
            done.set_result(result)

    threading.Thread(target=call, name=name, daemon=True).start()
    return await asyncio.wrap_future(done)


class _Call(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work, self.has_begun, self.is_dropped = work, False, False

    def __call__(self) -> T:
        if self.is_dropped:
            raise RuntimeError("dropped")  # never seen by a caller
        self.has_begun = True
        return self._work()
