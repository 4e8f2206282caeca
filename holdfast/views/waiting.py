"""Everything that waits for a person or another system, in all runs of a tenant: least time left first."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

import msgspec

from holdfast.engine.codec import decode_row
from holdfast.engine.events import ApprovalAnswered
from holdfast.store.base import Store
from holdfast.store.records import RunRow, WaitRow
from holdfast.values import RunNo, decode
from holdfast.views.cursors import at_cursor, cursor_at

KINDS: Final = ("approval", "signal", "callback", "condition", "key")
COUNTS_MAX: Final = 10_000
LOOKED_AT_MAX: Final = 2_000  # waits that one page of a workflow reads


class Waiting(msgspec.Struct, frozen=True):
    """A wait with its run. `answered` are those who have answered an approval that needs several."""

    wait: WaitRow
    workflow: str
    number: int | None
    detail: dict[str, Any]
    answered: list[str]


class Waits:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def counts(self, tenant: str) -> dict[str, int]:
        """How many waits of each kind are open; a count ends at COUNTS_MAX."""
        return {kind: await self._store.count_waits(tenant, kind, COUNTS_MAX) for kind in KINDS}

    async def page(
        self,
        tenant: str,
        *,
        kinds: Collection[str] = (),
        workflow: str | None = None,
        cursor: str | None = None,
        limit: int,
    ) -> tuple[list[Waiting], str | None]:
        which = f"waits {tenant}"
        after = None if cursor is None else at_cursor(self._store.server_key, which, cursor)
        read = limit if workflow is None else LOOKED_AT_MAX
        found = await self._store.waits_by_time(tenant, tuple(kinds) or KINDS, after, read + 1)
        runs = await self._runs([wait.no for _, wait in found[:read]])
        shown: list[Waiting] = []
        last = None
        for pos, wait in found[:read]:
            row = runs.get(wait.no)
            if len(shown) == limit:
                break
            last = pos
            if row is not None and workflow in (None, row.workflow):
                shown.append(await self._shown(wait, row))
        has_more = last is not None and last != found[-1][0]
        return shown, cursor_at(self._store.server_key, which, last) if has_more and last else None

    async def _runs(self, numbers: Sequence[RunNo]) -> dict[RunNo, RunRow]:
        return {row.no: row for row in await self._store.runs_numbered(numbers)}

    async def _shown(self, wait: WaitRow, row: RunRow) -> Waiting:
        detail = decode(wait.detail) if wait.detail else {}
        detail = detail if isinstance(detail, dict) else {}
        answered = await self._answered(wait) if detail.get("need", 1) > 1 else []
        return Waiting(wait, row.workflow, row.number, detail, answered)

    async def _answered(self, wait: WaitRow) -> list[str]:
        """Who has approved so far, from the rows that say so."""
        found = []
        for body in await self._store.rows_of_kind(wait.no, "approval_answered"):
            event, _ = decode_row(body)
            if isinstance(event, ApprovalAnswered) and event.path == wait.path and event.by:
                found.append(event.by)
        return list(dict.fromkeys(found))
