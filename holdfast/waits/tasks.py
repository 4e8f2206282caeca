"""Background tasks of a service: their errors are logged, and closing the service ends them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import ParamSpec

from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast")

P = ParamSpec("P")


class Tasks:
    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self, work: Callable[P, Awaitable[None]], *args: P.args, **named: P.kwargs
    ) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(logged(work, *args, **named))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


async def logged(work: Callable[P, Awaitable[None]], *args: P.args, **named: P.kwargs) -> None:
    """Log the error of background work, which has no caller. Failed work is repeated after a restart."""
    try:
        await work(*args, **named)
    except HoldfastError as error:
        log.warning("a result could not be delivered: %s", error)
