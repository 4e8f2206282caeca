"""The runs on which a caller may act whose API key is limited to certain workflows: those of these workflows."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.errors import AmbiguousTask, NotFound
from holdfast.runtime.runs import no_run
from holdfast.store.base import Store
from holdfast.values import RunId, is_text
from holdfast.waits.callbacks import NAMED_MAX


class SeenRuns:
    def __init__(self, store: Store, sees: Callable[[str], bool]) -> None:
        self._store, self._sees = store, sees

    async def check(self, tenant: str, run_id: str) -> None:
        """Raise NotFound for a run that the caller does not see, as if there were none."""
        row = await self._store.run_by_id(tenant, RunId(run_id)) if is_text(run_id) else None
        if row is None or not self._sees(row.workflow):
            raise no_run(run_id)

    async def called(self, tenant: str, task_id: str, run_id: str | None) -> str:
        """The run with the call that a callback is for; raise NotFound. Without the id of a run, the call must be pending: an early
        callback could be for a run of any workflow."""
        if run_id is None:
            waits = await self._store.waits_named(tenant, task_id, NAMED_MAX) if is_text(task_id) else []
            rows = await self._store.runs_numbered([wait.no for wait in waits])
            found = list(dict.fromkeys(row.id for row in rows if self._sees(row.workflow)))
            if len(found) > 1:
                raise AmbiguousTask(task_id, len(found))
            if not found:
                raise NotFound(f"no call is pending under the task id {task_id[:100]!a}")
            return found[0]
        await self.check(tenant, run_id)
        return run_id
