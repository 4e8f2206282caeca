"""Whether the engine accepts commands: from when it is opened until it is closed."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import EngineClosed
from holdfast.runtime.committer import Committer
from holdfast.store.batch import Batch


class Gate:
    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self.is_open = False

    def check(self) -> None:
        if not self.is_open:
            raise EngineClosed("the engine is not open; use it inside `async with Holdfast(...)`")

    async def commit(self, batch: Batch, after: Callable[[], None] = lambda: None) -> None:
        """Commit rows that belong to no run; they are durable when this returns."""
        self.check()
        await self._committer.commit(batch, after)
