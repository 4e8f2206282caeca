"""The runs that a caller sees whose API key is limited to certain workflows: those of these workflows. Others are not found.

    store ──► SeenStore ──► the same queries as for every caller, over fewer runs

One place for all queries: they ask the store, and it leaves out the runs of other workflows. Knows names of workflows. Does not
know keys or requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from holdfast.store.base import Store
from holdfast.store.records import CallbackDelivery, Ends, Listing, RunRow, StoredVersion, WaitRow, Wanted
from holdfast.values import RunId, RunNo

LOOKED_AT: Final = 1_000  # rows that are read at a time from a list that has no index by workflow

EVERY_RUN: Final = Wanted()

Sees = Callable[[str], bool]
T = TypeVar("T")


def seen_store(store: Store, sees: Sees) -> Store:
    """The store as a caller sees it that sees only some workflows."""
    return cast("Store", SeenStore(store, sees))


class SeenStore:
    """What is not limited here is the store's own: what belongs to a run is read by its number, which only a row that is seen gives."""

    def __init__(self, store: Store, sees: Sees) -> None:
        self._store, self._sees = store, sees

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    # ------------------------------------------------------------------------------------------------ one run

    async def run_by_id(self, tenant: str, run_id: RunId) -> RunRow | None:
        row = await self._store.run_by_id(tenant, run_id)
        return row if row is not None and self._sees(row.workflow) else None

    async def ends(self, tenant: str, run_id: RunId) -> Ends | None:
        ends = await self._store.ends(tenant, run_id)
        return ends if ends is not None and self._sees(ends.row.workflow) else None

    async def version(self, tenant: str, version: str) -> StoredVersion | None:
        found = await self._store.version(tenant, version)
        return found if found is not None and self._sees(found.name) else None

    async def names_artefact(self, tenant: str, sha256: str) -> bool:
        return await self._store.names_artefact(tenant, sha256, await self._names(tenant))

    # -------------------------------------------------------------------------------------------------- lists

    async def run_counts(self, tenant: str) -> list[tuple[str, str, int]]:
        return [one for one in await self._store.run_counts(tenant) if self._sees(one[0])]

    async def list_runs(
        self, tenant: str, before: RunNo | None, limit: int, wanted: Wanted = EVERY_RUN
    ) -> Listing:
        return await self._store.list_runs(tenant, before, limit, await self._narrowed(tenant, wanted))

    async def below_runs(
        self, tenant: str, before: RunNo | None, count: int, wanted: Wanted = EVERY_RUN
    ) -> RunNo | None:
        return await self._store.below_runs(tenant, before, count, await self._narrowed(tenant, wanted))

    async def count_runs(self, tenant: str, wanted: Wanted = EVERY_RUN) -> int:
        return await self._store.count_runs(tenant, await self._narrowed(tenant, wanted))

    async def pulse(
        self, tenant: str, workflow: str | None, first: int, last: int, width: int
    ) -> list[tuple[int, int, int]]:
        return await self._store.pulse(tenant, await self._narrow(tenant, workflow), first, last, width)

    async def waits_by_time(
        self, tenant: str, kinds: Sequence[str], after: int | None, limit: int
    ) -> list[tuple[int, WaitRow]]:
        def part(after: int | None) -> Awaitable[list[tuple[int, WaitRow]]]:
            return self._store.waits_by_time(tenant, kinds, after, LOOKED_AT)

        return await self._gathered(part, after, limit, lambda one: one[0], lambda one: one[1].no)

    async def count_waits(self, tenant: str, kind: str, most: int) -> int:
        return len(await self.waits_by_time(tenant, (kind,), None, most))

    async def waits_named(self, tenant: str, task_id: str, limit: int) -> list[WaitRow]:
        found = await self._store.waits_named(tenant, task_id, limit)
        seen = await self._seen([wait.no for wait in found])
        return [wait for wait in found if wait.no in seen]

    async def dead_letters(self, tenant: str, after: int, limit: int) -> list[CallbackDelivery]:
        def part(after: int) -> Awaitable[list[CallbackDelivery]]:
            return self._store.dead_letters(tenant, after, LOOKED_AT)

        return await self._gathered(part, after, limit, lambda one: one.pos, lambda one: one.no)

    # ------------------------------------------------------------------------------------------------- inside

    async def _names(self, tenant: str) -> tuple[str, ...]:
        """The workflows that have runs which the caller sees."""
        return tuple({name for name, _, _ in await self.run_counts(tenant)})

    async def _narrow(self, tenant: str, workflow: str | tuple[str, ...] | None) -> str | tuple[str, ...]:
        if isinstance(workflow, str):
            return workflow if self._sees(workflow) else ()
        return await self._names(tenant)

    async def _narrowed(self, tenant: str, wanted: Wanted) -> Wanted:
        return msgspec.structs.replace(wanted, workflow=await self._narrow(tenant, wanted.workflow))

    async def _gathered(
        self,
        part: Callable[[Any], Awaitable[list[T]]],
        after: Any,
        limit: int,
        place_of: Callable[[T], int],
        no_of: Callable[[T], RunNo],
    ) -> list[T]:
        """The first entries of a list behind a place that belong to runs which the caller sees."""
        found: list[T] = []
        while len(found) < limit:
            rows = await part(after)
            seen = await self._seen([no_of(row) for row in rows])
            found += [row for row in rows if no_of(row) in seen]
            if len(rows) < LOOKED_AT:
                break
            after = place_of(rows[-1])
            await asyncio.sleep(0)
        return found[:limit]

    async def _seen(self, numbers: Sequence[RunNo]) -> set[RunNo]:
        rows = await self._store.runs_numbered(sorted(set(numbers)))
        return {row.no for row in rows if self._sees(row.workflow)}
