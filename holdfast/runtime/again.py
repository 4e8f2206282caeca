"""Reads something again, in the background, whenever another node has changed it. Knows when to read, not what.

However often it is asked for while a read is in progress, one more read follows: it sees all that was changed before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.errors import NodeIsOver, Unavailable

log = logging.getLogger("holdfast")

AGAIN_SECONDS: Final = 1.0  # after a read that failed


class Again:
    def __init__(self, read: Callable[[], Awaitable[None]], what: str) -> None:
        """`what` is read, in the words of a log line."""
        self._read, self._what = read, what
        self._reading: asyncio.Task[None] | None = None
        self._is_asked = self._is_closed = False

    def ask(self) -> None:
        self._is_asked = True
        if self._reading is None and not self._is_closed:
            self._reading = asyncio.get_running_loop().create_task(self._run())

    def close(self) -> None:
        self._is_closed = True
        if self._reading is not None:
            self._reading.cancel()

    async def _run(self) -> None:
        try:
            while self._is_asked:
                self._is_asked = False
                await self._read_once()
        finally:
            self._reading = None

    async def _read_once(self) -> None:
        try:
            await self._read()
        except NodeIsOver:
            self._is_closed = True
        except Unavailable as error:
            log.warning("%s cannot be read now, and stay as they are: %s", self._what, error)
            self._is_asked = True
            await asyncio.sleep(AGAIN_SECONDS)
        except Exception:  # a bug here must not stop the next read
            log.exception("%s cannot be read", self._what)
