"""Runs in memory: loading them from the store, and keeping the state of evicted ones at hand.

A run whose rows cannot be read or folded is set aside; a read that fails because the store is away is the caller's to repeat.
Does not decide who owns a run (ownership.py) or when one is evicted (door.py).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from holdfast.errors import Unavailable
from holdfast.runtime.door import Advance, Live
from holdfast.runtime.fatal_runs import LOADED, LOADING, Deaths
from holdfast.runtime.load import load_run
from holdfast.runtime.plans import Plans
from holdfast.runtime.remembered import Remembered
from holdfast.store.base import Store
from holdfast.store.records import Stored
from holdfast.values import RunNo

log = logging.getLogger("holdfast")

EVICTED_BYTES_MIN: Final = 4 * 1024  # smaller states are read from the store as quickly as they are kept
EVICTED_BYTES_MAX: Final = 32 * 1024 * 1024
EVICTED_MAX: Final = 1_000


class Residents:
    def __init__(
        self,
        store: Store,
        door: Advance,
        plans: Plans,
        fatal_runs: Deaths,
        on_loaded: Callable[[Live], None],
    ) -> None:
        self._store, self._door, self._plans, self._fatal_runs = store, door, plans, fatal_runs
        self._on_loaded = on_loaded
        # A run that is signalled often would be folded again from its whole journal each time.
        self._evicted: Remembered[RunNo, Live] = Remembered(
            count_max=EVICTED_MAX, bytes_max=EVICTED_BYTES_MAX
        )

    def evicted(self, live: Live) -> None:
        """Keep the state of a run that left memory, if reading it again would be dear."""
        if (size := live.bytes) > EVICTED_BYTES_MIN:
            self._evicted.put(live.run.no, live, size)

    async def load(self, no: RunNo) -> Live | None:
        """A run from memory or from the store. An open one is in memory from here on, and its caller acts on it."""
        if (known := self._door.live.get(no)) is not None:
            return known
        if no in self._door.quarantined:
            return None
        return await self._taken_in(no, self._remembered(no))

    async def _remembered(self, no: RunNo) -> Live | None:
        """An evicted run whose state is still at hand, else the run as it is stored. Only this process appends to it, so
        both are the same."""
        return self._evicted.take(no) or await self.stored(no)

    async def load_many(self, runs: Sequence[RunNo]) -> list[Live]:
        """The same for runs that are not in memory: those of them that can be read."""
        try:
            stored = await self._store.load_many(runs)
        except Unavailable:
            raise  # no run is to blame, and they are read again later
        except Exception:  # noqa: BLE001  # one of them cannot be read: it is found by itself
            return [live for no in runs if (live := await self.load(no)) is not None]
        taken = [await self._taken_in(each.row.no, self._folded(each)) for each in stored]
        return [live for live in taken if live is not None]

    async def _taken_in(self, no: RunNo, loading: Awaitable[Live | None]) -> Live | None:
        try:
            live = await loading
        except Unavailable:
            raise
        except Exception as error:  # a run whose rows cannot be read must not hold up the rest
            log.exception("run number %d cannot be loaded and is set aside", no)
            self._door.set_aside(no, error)
            return None
        if (known := self._door.live.get(no)) is not None:
            return known  # another task was quicker
        if live is not None and not live.run.over:
            self._door.live[no] = live
            self._evicted.take(no)  # it goes on from here, and that state would be an old one
            self._on_loaded(live)
        return live

    async def stored(self, no: RunNo) -> Live | None:
        stored = await self._store.load(no)
        return None if stored is None else await self._folded(stored)

    async def _folded(self, stored: Stored) -> Live:
        plan, no = await self._plans.of_version(stored.row.tenant, stored.row.version), stored.row.no
        now = self._fatal_runs.mark.now
        if no in self._fatal_runs.watched:
            self._fatal_runs.begins(no, LOADING)
        now[LOADED] = no
        try:
            run = await load_run(self._store, stored)
        finally:
            now[LOADED] = 0
        live = Live(run, plan, owned=False, status=stored.row.status, trace=stored.trace)
        live.lacks_tool = run.active > 0 and any(step.reason == "no_tool" for step in run.steps.values())
        live.journal_bytes = sum([len(row[-1]) for row in stored.rows])
        if stored.parts:
            live.snapshot_at = max(live.snapshot_at, len(stored.parts[0][1]))
        return live
