"""Which runs a node takes up, on SQLite."""

from __future__ import annotations

from holdfast.store.sqlite.asking import Asking
from holdfast.values import Millis, RunNo


class OwnershipReads(Asking):
    async def left_behind(self, after: RunNo, limit: int) -> list[RunNo]:
        return [no for (no,) in self._ask("owned_by_former", (self.epoch, after, limit))]

    async def due(self, now: Millis, limit: int) -> list[RunNo]:
        return [no for (no,) in self._ask("due_runs", (now, limit))]

    async def next_wake(self, after: int = 0) -> Millis | None:
        at: Millis | None = self._ask("next_wake", (after,)).get
        return at

    async def latest_at(self, rows: int) -> Millis | None:
        at: Millis | None = self._ask("latest_at", (rows,)).get
        return at

    async def in_need(self, after: RunNo, limit: int) -> list[tuple[RunNo, str]]:
        return list(self._ask("runs_in_need", (after, limit)))

    async def interruptible(self, after: RunNo, limit: int) -> list[RunNo]:
        return [no for (no,) in self._ask("interruptible_runs", (after, limit))]

    async def owned_runs(self, after: RunNo, limit: int) -> list[tuple[RunNo, int]]:
        """Open runs with an owner, and the epoch of the engine that owns them."""
        return list(self._ask("owned_runs", (after, limit)))

    async def resting_runs(self, after: RunNo, limit: int) -> list[tuple[RunNo, bool]]:
        """Open runs without an owner or a wake time, and whether each waits for something with a name."""
        return [(no, bool(waits)) for no, waits in self._ask("resting_runs", (after, limit))]

    async def fatal_runs(self) -> str | None:
        return self._ask("read_deaths").get  # type: ignore[no-any-return]
