"""An HTTP listener that reports when it is up, stops as soon as it is asked to, and leaves signal handling to its caller.

Open to the server and to workers alike. Knows sockets and uvicorn, not what is served.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

import uvicorn

DATE_SECONDS: Final = 1.0  # how old the Date header of answers may become
TICKS: Final = 10  # of uvicorn, in that time
LOOK_SECONDS: Final = 0.001  # before the next look whether the last request has ended; doubled each time
LOOK_SECONDS_MAX: Final = 0.1


class Listener(uvicorn.Server):
    """uvicorn's own server looks ten times a second whether it should stop, and pauses when it does."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Accept no more connections, and end once the open requests have ended or their time has passed."""
        self.should_exit = True
        self._stopping.set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    async def main_loop(self) -> None:
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += TICKS
            with suppress(TimeoutError):
                async with asyncio.timeout(DATE_SECONDS):
                    await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in (*self.servers, *(sockets or ())):
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                await self._last_request()
        except TimeoutError:
            for task in self.server_state.tasks:
                task.cancel()

    async def _last_request(self) -> None:
        """Wait until all requests have ended and all connections are closed."""
        delay = LOOK_SECONDS
        while self.server_state.connections or self.server_state.tasks:
            await asyncio.sleep(delay)
            delay = min(2 * delay, LOOK_SECONDS_MAX)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
