"""Continues steps that lack a tool or worker, as soon as it is there: when the engine opens, and when a worker comes.

    a worker registers, or is heard from again ──► ownership.supply ──► Supplied ──► the attempt starts

Knows when to look, not what a step lacks. One look serves all workers that came before it began.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from holdfast.errors import Unavailable
from holdfast.runtime.ownership import Ownership
from holdfast.runtime.service import Service
from holdfast.values import RunNo
from holdfast.workers.service import Workers

log = logging.getLogger("holdfast")

AGAIN_SECONDS: Final = 1.0  # after a read that failed, or while there is no room for more runs


class Supplies(Service):
    def __init__(self, ownership: Ownership, workers: Workers) -> None:
        self._ownership, self._workers = ownership, workers
        self._looking: asyncio.Task[None] | None = None
        self._again = self._is_closed = False
        workers.when_served = self.look

    async def open(self, *, drive: bool) -> None:
        if drive:
            self.look()

    async def restored(self) -> None:
        self.look()  # what was begun may have been dropped

    def abandon(self, error: Exception | None = None) -> None:
        self._is_closed = True
        if self._looking is not None:
            self._looking.cancel()

    def look(self) -> None:
        """Look for steps that can continue, in the background."""
        self._again = True
        if self._looking is None and not self._is_closed:
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        try:
            while self._again:
                self._again = False
                await self._look_once()
        finally:
            self._looking = None

    async def _look_once(self) -> None:
        after: RunNo | None = RunNo(0)
        while after is not None:
            before = after
            try:
                after = await self._ownership.supply(before)
            except Unavailable as error:
                log.warning("cannot read the runs that wait for a worker now; retrying later: %s", error)
                after = before
            if after == before:
                await asyncio.sleep(AGAIN_SECONDS)
