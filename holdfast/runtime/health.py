"""Whether this engine can do its work now, and if not, why. Changes nothing; tries now and then whether it could."""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.errors import HoldfastError
from holdfast.runtime.app import Engine
from holdfast.store.base import Batch

PROBED_SECS: Final = (
    5.0  # how long an answer of the store is believed: whoever asks all the time makes no more commits
)
PROBE_SECS_MAX: Final = 2.0


class Health:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._probed_at = float("-inf")
        self._probed = ""
        self._probing: asyncio.Future[str] | None = None

    async def reasons(self) -> list[str]:
        """Why it is not ready; nothing if it is."""
        engine, advance = self._engine, self._engine.advance
        if not engine.is_open:
            return ["engine_closed"]
        if advance.is_over:
            return ["node_is_over"]
        if advance.is_stalled:
            return ["store_stalled"]
        return [problem] if (problem := await self._store_problem()) else []

    async def _store_problem(self) -> str:
        """Can the store write? Asked by writing what changes nothing, for an idle engine would not find out."""
        now = self._engine.clock.monotonic()
        if now - self._probed_at < PROBED_SECS:
            return self._probed
        if self._probing is None or self._probing.done():
            self._probing = asyncio.ensure_future(self._probe())
        try:
            self._probed = await asyncio.wait_for(asyncio.shield(self._probing), PROBE_SECS_MAX)
        except TimeoutError:
            return "store_slow"
        self._probed_at = now
        return self._probed

    async def _probe(self) -> str:
        batch = Batch()
        batch.is_probe = True
        try:
            await self._engine.commit(batch)
        except HoldfastError as error:
            return error.code
        return ""
