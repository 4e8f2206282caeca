"""A bounded pool of threads for sync tools. Knows nothing of what they do."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger("holdfast")


class Threads:
    """A bounded pool for sync tools. Its threads are daemons: a tool that never returns cannot hold the exit."""

    def __init__(self, limit: int) -> None:
        self._limit, self._count, self._busy = limit, 0, 0  # all three belong to the loop
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    async def call(self, fn: Callable[..., Any], args: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Any] = loop.create_future()

        def work() -> None:
            try:
                result = fn(**args)
            except BaseException as error:
                _tell(loop, done, None, error)
            else:
                _tell(loop, done, result, None)

        self._busy += 1
        done.add_done_callback(self._one_less)
        if self._busy > self._count and self._count < self._limit:
            self._count += 1
            threading.Thread(target=self._run, name="holdfast-tool", daemon=True).start()
        self._work.put(work)
        return await asyncio.shield(done)

    def _one_less(self, done: asyncio.Future[Any]) -> None:
        self._busy -= 1

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def close(self) -> None:
        for _ in range(self._count):
            self._work.put(None)


def _tell(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[Any], result: Any, error: BaseException | None
) -> None:
    def tell() -> None:
        if done.cancelled():
            return
        if isinstance(
            error, StopIteration | GeneratorExit
        ):  # a future cannot hold the one, nor an await pass the other
            done.set_exception(RuntimeError(f"the tool raised {type(error).__name__}"))
        elif error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)

    try:
        loop.call_soon_threadsafe(tell)
    except RuntimeError:
        log.debug("a tool answered after the engine had closed")
