"""Events that were refused because too many runs were open, or because the schedule is paused: rows of the ledger.

The senders of such events are not waiting for these rows, and may send thousands of events a second. So the skips of a schedule
for one reason are one row that grows, and while a commit is under way further skips are only counted.
"""

from __future__ import annotations

import asyncio
import logging

from holdfast.errors import HoldfastError
from holdfast.runtime.committer import Committer
from holdfast.schedule.records import Reason, Skipped
from holdfast.store.batch import Batch
from holdfast.store.schedule_records import Firing, LedgerEntry
from holdfast.values import Millis, rfc3339

log = logging.getLogger("holdfast")


class Skips:
    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        # by tenant and schedule: the row that may still grow
        self._stretches: dict[tuple[str, str], Skipped] = {}
        self._unwritten: dict[tuple[str, str], None] = {}  # in the order of their first skip
        self._writing: asyncio.Task[None] | None = None

    def note(self, tenant: str, schedule_id: str, reason: Reason, at: Millis) -> None:
        """An event was skipped. Its row is written soon."""
        key = tenant, schedule_id
        before = self._stretches.get(key)
        if before is not None and before.reason == reason:
            self._stretches[key] = Skipped(reason, before.first, max(at, before.last), before.count + 1)
        else:
            self._stretches[key] = Skipped(reason, at, at, 1)
        self._unwritten[key] = None
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write())

    def end(self, tenant: str, schedule_id: str) -> None:
        """An event was accepted: the next skip begins a new row."""
        if (tenant, schedule_id) not in self._unwritten:
            self._stretches.pop((tenant, schedule_id), None)

    async def close(self) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self) -> None:
        try:
            while self._unwritten:
                keys, self._unwritten = self._unwritten, {}
                batch = Batch()
                batch.firings = [Firing((_entry(*key, self._stretches[key]),)) for key in keys]
                await self._committer.commit(batch)
        except HoldfastError as error:  # the senders got an error; only the count in the ledger is missing
            log.warning("skipped events could not be written to the ledger: %s", error)
        finally:
            self._writing = None


def _entry(tenant: str, schedule_id: str, stretch: Skipped) -> LedgerEntry:
    first, last = Millis(stretch.first), Millis(stretch.last)
    occurrence = f"{rfc3339(first)}/.."
    return LedgerEntry(
        tenant, schedule_id, "", occurrence, "skipped", stretch.reason, first, last, stretch.count, last
    )
