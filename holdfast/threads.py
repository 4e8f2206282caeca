"""Run blocking work in a thread. If the system cannot start a thread now, wait for one instead of failing.

uvloop has threads of its own, those of libuv, which ends the process if it cannot start them: `start_threads_of_loop`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from math import inf
from typing import Final, Generic, ParamSpec, TypeVar

AGAIN_SECONDS: Final = 0.05  # before the next try to start a thread; doubled each time
AGAIN_SECONDS_MAX: Final = 1.0
THREADS_OF_LOOP: Final = 4  # that libuv starts, all at once, unless UV_THREADPOOL_SIZE says otherwise
THREADS_OF_LOOP_MAX: Final = 1_024
LOOKS_MAX: Final = 100_000  # whether the kernel has removed threads that ended: about 0.2 s

T = TypeVar("T")
P = ParamSpec("P")


def no_thread_now(error: RuntimeError) -> bool:
    """Return whether an error means that the system cannot start another thread."""
    return "can't start new thread" in str(error)


async def in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Return the result of `work`, run in the event loop's thread pool."""
    return await in_pool(None, lambda: work(*args, **named))


async def in_pool(pool: ThreadPoolExecutor | None, work: Callable[[], T], *, wait_secs: float = inf) -> T:
    """Return the result of `work`, run in a pool. Raise RuntimeError if no thread could be started within `wait_secs`."""
    loop, delay = asyncio.get_running_loop(), AGAIN_SECONDS
    until = loop.time() + wait_secs
    while True:
        call = _Call(work)
        try:
            return await loop.run_in_executor(pool, call)
        except RuntimeError as error:
            if call.has_begun or not no_thread_now(error) or loop.time() >= until:
                call.is_dropped = True
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


# ------------------------------------------------------------------------------------------ the threads of the event loop

_of_loop = {"are_started": False}  # of the process: all event loops share them


async def start_threads_of_loop() -> None:
    """Let uvloop start its threads, as soon as the system can start that many; other event loops have none.

    uvloop resolves the address of every socket that it connects in these threads, also a numeric one. It starts them at the
    first connection, and the process aborts if one of them cannot be started.
    """
    loop, delay = asyncio.get_running_loop(), AGAIN_SECONDS
    if _of_loop["are_started"] or not type(loop).__module__.startswith("uvloop"):
        return
    count = _threads_of_loop()
    while not _can_start(count):
        await asyncio.sleep(delay)
        delay = min(2 * delay, AGAIN_SECONDS_MAX)
    await loop.getaddrinfo("127.0.0.1", None)  # without a socket type uvloop does not resolve it by itself
    _of_loop["are_started"] = True


def _threads_of_loop() -> int:
    said = os.environ.get("UV_THREADPOOL_SIZE", "")
    count = int(said) if said.isdecimal() else THREADS_OF_LOOP
    return min(max(count, 1), THREADS_OF_LOOP_MAX)


def _can_start(count: int) -> bool:
    """Return whether the system can start this many threads now. Nothing else runs meanwhile that could take them."""
    started, end = list[threading.Thread](), threading.Event()
    try:
        for _ in range(count):
            thread = threading.Thread(target=end.wait, name="holdfast-probe", daemon=True)
            thread.start()
            started.append(thread)
    except RuntimeError as error:
        if not no_thread_now(error):
            raise
    finally:
        end.set()
        for thread in started:
            thread.join()
    # A thread that was joined counts until the kernel has removed it, a few microseconds later.
    tasks = [f"/proc/self/task/{thread.native_id}" for thread in started]
    are_gone = any(not any(map(os.path.exists, tasks)) for _ in range(LOOKS_MAX))
    return are_gone and len(started) == count


class _Call(Generic[T]):
    def __init__(self, work: Callable[[], T]) -> None:
        self._work, self.has_begun, self.is_dropped = work, False, False

    def __call__(self) -> T:
        if self.is_dropped:
            raise RuntimeError("dropped")  # never seen by a caller
        self.has_begun = True
        return self._work()
