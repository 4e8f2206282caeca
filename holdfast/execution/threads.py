"""A bounded pool of threads for sync tools. Does not know what they do."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any, Final

from holdfast.threads import no_thread_now, start_threads_of_loop

log = logging.getLogger("holdfast")

AGAIN_SECONDS: Final = 0.5  # until the next try to start a thread, after the system refused one


async def prepare_connections() -> None:
    """Start the threads in which the event loop resolves addresses, while the system has threads to give."""
    await start_threads_of_loop()


class Threads:
    """A bounded pool for sync tools. Its threads are daemons: a tool that never returns cannot delay the exit."""

    def __init__(self, limit: int) -> None:
        self._limit, self._count, self._busy = limit, 0, 0  # all three are only used on the loop
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._again: asyncio.TimerHandle | None = None  # when to try again to start a thread
        self._is_closed = self._is_reported = False

    async def call(
        self, fn: Callable[..., Any], args: dict[str, Any], is_stopped: Callable[[], bool] = lambda: False
    ) -> Any:
        """What `fn` gives. Where it waits for a thread until it `is_stopped`, it is not begun."""
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        done: asyncio.Future[Any] = loop.create_future()

        def work() -> None:
            try:
                if is_stopped():
                    raise asyncio.CancelledError
                result = context.run(fn, **args)
            except BaseException as error:
                _settle(loop, done, None, error)
            else:
                _settle(loop, done, result, None)

        self._busy += 1
        done.add_done_callback(self._one_less)
        self._work.put(work)
        self._grow()
        return await asyncio.shield(done)

    def _grow(self) -> None:
        """Start a thread if there is work for one. If the system refuses, the work waits for an existing thread or
        the next try."""
        if self._busy <= self._count or self._count >= self._limit or self._is_closed:
            return
        try:
            threading.Thread(target=self._run, name="holdfast-tool", daemon=True).start()
        except RuntimeError as error:
            if not no_thread_now(error):
                raise
            if not self._is_reported:
                self._is_reported = True
                log.warning("no thread can be started now (%s); %d sync tools are queued", error, self._busy)
            if self._again is None:
                self._again = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._grow_again)
        else:
            self._count += 1
            self._is_reported = False

    def _grow_again(self) -> None:
        self._again = None
        before = self._count
        self._grow()
        while before < self._count < self._busy:
            before = self._count
            self._grow()

    def _one_less(self, done: asyncio.Future[Any]) -> None:
        self._busy -= 1

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def close(self) -> None:
        self._is_closed = True
        if self._again is not None:
            self._again.cancel()
        for _ in range(self._count):
            self._work.put(None)


async def thread_or_here(work: Callable[[], None]) -> None:
    """Run this in a thread, or on the loop if the system gives no thread: for shutdown, when the loop serves nothing
    else."""
    try:
        await asyncio.to_thread(work)
    except RuntimeError as error:
        if not no_thread_now(error):
            raise
        work()


def _settle(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[Any], result: Any, error: BaseException | None
) -> None:
    def settle() -> None:
        if done.cancelled():
            return
        # a future cannot hold the one, nor an await pass the other
        if isinstance(error, StopIteration | GeneratorExit):
            done.set_exception(RuntimeError(f"the tool raised {type(error).__name__}"))
        elif error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        log.debug("a tool returned after the engine had closed")
