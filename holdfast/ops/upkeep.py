"""Retention: deletes old data of a database. Never touches an open run."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from holdfast.errors import (
    ArtefactsUnavailable,
    HoldfastError,
    NodeIsOver,
    NotFound,
    Refused,
    StoreUnavailable,
)
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.runtime.service import Service
from holdfast.store.artefacts import Artefacts
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.beats import MINUTE_MS
from holdfast.values import DEFAULT_TENANT, Millis
from holdfast.views.pulse import added_up_before

log = logging.getLogger("holdfast")

FIRST_SECONDS: Final = 300.0  # after opening, when runs of the previous process have been loaded
AGAIN_SECONDS: Final = 3_600.0
PAUSE_SECONDS: Final = 0.05  # between two batches, so that runs are not delayed
RETIRED_MAX: Final = 200  # runs that one commit deletes: other commits wait for it
RETIRED_ROWS_MAX: Final = (
    10_000  # journal rows of these runs together; a longer run is deleted by its own commit
)
KEYS_FORGOTTEN_MAX: Final = 500  # by one commit
LEDGER_FORGOTTEN_MAX: Final = 500  # by one commit
PULSE_MINUTES_MAX: Final = 30 * 24 * 60  # earlier minutes were added up long ago
DAY_MS: Final = 86_400_000
FOLDED_MAX: Final = 200  # the newest runs, which are folded to check that their rows are right
DISK_BYTES_MIN: Final = 256 * 1024 * 1024
WAL_BYTES_MAX: Final = 256 * 1024 * 1024


# --------------------------------------------------------------------------------------------------- retention


class Upkeep(Service):
    """Deletes old data some minutes after opening and every hour after that.

    Works in small batches with a pause after each, so that runs do not wait.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        committer: Committer,
        artefacts: Artefacts,
        retention_days: float | None,
        *,
        manual_clock: bool = False,
    ) -> None:
        self._store, self._clock, self._committer = store, clock, committer
        self._artefacts, self._days = artefacts, retention_days
        self._stopping = asyncio.Event()
        self._next: asyncio.TimerHandle | None = None
        self._round: asyncio.Task[None] | None = None
        self._by_itself = not manual_clock  # otherwise the caller decides when

    async def open(self, *, drive: bool) -> None:
        if drive:
            self._wait(FIRST_SECONDS)

    def abandon(self, error: Exception | None = None) -> None:
        """Start no more batches."""
        self._stopping.set()
        if self._next is not None:
            self._next.cancel()

    async def close(self) -> None:
        """Start no more batches, and wait for the current one."""
        self.abandon()
        if self._round is not None:
            await self._round

    def _wait(self, seconds: float) -> None:
        if self._by_itself:
            self._next = asyncio.get_running_loop().call_later(seconds, self.begin_round)

    def begin_round(self) -> None:
        self._round = asyncio.get_running_loop().create_task(self._tidy())

    async def _tidy(self) -> None:
        try:
            if not await self._store.take_duty("upkeep", AGAIN_SECONDS):
                return self._wait(AGAIN_SECONDS)  # another node does it
            await self._retire()
            await add_up_pulse(self._store, self._committer, self._clock.now())
            await self._by_pieces(lambda: forget_expired(self._store, self._committer, self._clock.now()))
            await self._sweep()
        except StoreUnavailable as error:
            log.warning("cannot delete old runs now: %s", error)
        except ArtefactsUnavailable as error:
            log.warning("cannot delete unused files now: %s", error)
        except NodeIsOver:
            self.abandon()  # the process that took over the file does it
        except Exception:  # a bug here must not affect runs
            log.exception("upkeep failed; it is tried again in an hour")
        if not self._stopping.is_set():
            self._wait(AGAIN_SECONDS)

    async def _retire(self) -> None:
        if self._days is not None:
            before = Millis(int(self._clock.now() - self._days * DAY_MS))
            await self._by_pieces(lambda: retire(self._store, self._committer, before))
            await self._by_pieces(lambda: forget_ledger(self._store, self._committer, before))
            await forget_pulse(self._store, self._committer, before)

    async def _sweep(self) -> None:
        """Delete unused artefacts, one shelf at a time, so that few names are in memory."""
        files, now = self._artefacts, self._clock.now()
        if files.was_never_used:
            return
        await files.work(files.sweep_unfinished, now)
        kept = await self._store.artefacts_of_keys()
        for shelf in await files.work(files.shelves):
            if self._stopping.is_set():
                return
            named = await self._store.artefacts_of_shelf(Path(shelf).name)
            await files.work(files.sweep, shelf, named | kept, now)

    async def _by_pieces(self, piece: Callable[[], Awaitable[int]]) -> None:
        while not self._stopping.is_set() and await piece():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), PAUSE_SECONDS)


async def retire(store: Store, committer: Committer, before: Millis, limit: int = RETIRED_MAX) -> int:
    """Delete some runs that finished before a time, with all their data, in one commit. Return how many."""
    batch, rows = Batch(), 0
    for no, size in await store.finished_before(before, limit):
        rows += size
        if batch.forgotten and rows > RETIRED_ROWS_MAX:
            break
        batch.forgotten.append(no)
    if batch.forgotten:
        await committer.commit(batch)
    return len(batch.forgotten)


async def forget_ledger(store: Store, committer: Committer, before: Millis) -> int:
    """Delete some rows of the ledger that were decided before then and have no run, in one commit; gives how many. The others are
    deleted with their runs."""
    count = await store.old_ledger(before, LEDGER_FORGOTTEN_MAX)
    if count:
        batch = Batch()
        batch.forgotten_ledger.append((before, LEDGER_FORGOTTEN_MAX))
        await committer.commit(batch)
    return count


async def add_up_pulse(store: Store, committer: Committer, now: Millis) -> None:
    """Add the counts of runs by minute up by hour, once they are old."""
    before, batch = added_up_before(now), Batch()
    first = before - PULSE_MINUTES_MAX
    if await store.has_pulse(first, before, True):
        batch.added_up_pulse.append((first, before))
        await committer.commit(batch)


async def forget_pulse(store: Store, committer: Committer, before: Millis) -> None:
    minute, batch = before // MINUTE_MS, Batch()
    if await store.has_pulse(0, minute, False):
        batch.forgotten_pulse.append((minute,))
        await committer.commit(batch)


async def forget_expired(store: Store, committer: Committer, now: Millis) -> int:
    """Delete some stored outputs of expired keys, in one commit. Return how many."""
    batch = Batch()
    batch.forgotten_keys = await store.expired_keys(now, KEYS_FORGOTTEN_MAX)
    if batch.forgotten_keys:
        await committer.commit(batch)
    return len(batch.forgotten_keys)


async def forget_key(store: Store, committer: Committer, key: str) -> None:
    """Delete the stored output of a global key, so that the next step with this key runs."""
    answer = await store.answered_key(DEFAULT_TENANT, "", key)
    if answer is None:
        raise await _without_answer(store, key)
    batch = Batch()
    batch.forgotten_keys = [answer]
    await committer.commit(batch)


async def _without_answer(store: Store, key: str) -> HoldfastError:
    holder = await store.key_holder(DEFAULT_TENANT, "", key)
    if holder is None:
        return NotFound(
            f"there is no global key {key!r} in this database; a key of scope workflow belongs to its run alone"
        )
    run_id, path = holder
    return Refused(
        f"the key {key!r} is held by step {path} of run {run_id}, which has not finished, so there is no output to forget; "
        f"wait for that run, or cancel it: holdfast runs cancel {run_id}"
    )
