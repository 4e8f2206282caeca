"""Polls that wait for a job. Knows queues, not jobs."""

from __future__ import annotations

import asyncio

from holdfast.workers.assignment import Queue


class Pollers:
    def __init__(self) -> None:
        self._waiting: dict[Queue, dict[asyncio.Event, None]] = {}  # the first poll is woken first

    def wake(self, queue: Queue) -> None:
        """Wake all of them, because the client of one may have disconnected unnoticed."""
        for event in self._waiting.get(queue, ()):
            event.set()

    def wake_all(self) -> None:
        for events in self._waiting.values():
            for event in events:
                event.set()

    async def wait(self, queues: frozenset[Queue], seconds: float, leaving: asyncio.Event | None) -> None:
        """Wait until there may be a job, the time is up, or the server stops."""
        event = asyncio.Event()
        for queue in queues:
            self._waiting.setdefault(queue, {})[event] = None
        waits = [asyncio.ensure_future(each.wait()) for each in (event, leaving) if each is not None]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for queue in queues:
                del self._waiting[queue][event]
                if not self._waiting[queue]:
                    del self._waiting[queue]
            for waiting in waits:
                waiting.cancel()
