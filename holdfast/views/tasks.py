"""Tasks: runs as the task API shows them, read from committed rows."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import msgspec

from holdfast import limits
from holdfast.engine.state import Run
from holdfast.errors import InvalidInputs, LimitExceeded
from holdfast.plan.composed import TooLarge
from holdfast.plan.graph import Plan
from holdfast.runtime.load import load_run_in_turns, whole
from holdfast.store.base import Store
from holdfast.store.records import RunRow, Wanted
from holdfast.values import written
from holdfast.views.courses import Courses
from holdfast.views.cursors import cursor_of, number_of
from holdfast.views.node_run_pages import NodeRunPages
from holdfast.views.node_runs import NodeRun, seconds
from holdfast.views.outputs import UNSHOWN, output_text
from holdfast.views.pages import PAGE, Page, page_size

SKIPPED_MAX: Final = 20_000  # runs that are skipped in one query before a page

# Our statuses → those of the task API. Several of ours map to the same one.
STATUS: Final = {
    "pending": "pending",
    "running": "running",
    "waiting": "running",
    "cancelling": "canceling",
    "completed": "completed",
    "failed": "failed",
    "interrupted": "failed",
    "cancelled": "canceled",
}


class Task(msgspec.Struct, frozen=True):
    id: str
    flow_version_id: str | None
    status: str
    params_json: str
    shared_json: str
    current_node_key: str
    last_action: str
    step_count: int
    retry_state_json: str
    lease_owner: str | None
    lease_expiry: int | None  # always null on SQLite: the lock of the file ends with its process
    request_id: str | None
    created_at: int
    updated_at: int
    flow_id: str | None
    flow_name: str
    flow_version: int | None


class Reader(Protocol):
    """What reading tasks needs: rows, plans and courses."""

    @property
    def store(self) -> Store: ...
    @property
    def courses(self) -> Courses: ...
    async def row(self, tenant: str, run_id: str) -> RunRow: ...
    async def plan_of(self, row: RunRow) -> Plan: ...


class TaskQueries:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._node_run_pages = NodeRunPages(reader.store)

    async def task(self, tenant: str, run_id: str) -> Task:
        return await _task_of(self._reader, await self._reader.row(tenant, run_id))

    async def tasks(
        self,
        tenant: str,
        *,
        status: str | None = None,
        flow_version_id: str | None = None,
        page: int = 1,
        page_size: int = PAGE,
    ) -> tuple[list[Task], int]:
        """Return a page of tasks, newest first, and the total count."""
        return await _tasks_page(
            self._reader, tenant, status=status, release_id=flow_version_id, page=page, size=page_size
        )

    async def node_runs(
        self,
        tenant: str,
        run_id: str,
        *,
        cursor: str | None = None,
        limit: int = limits.DEFAULTS.node_runs_max,
    ) -> Page[NodeRun]:
        """List the attempts at each node, in the order in which they started."""
        limit = page_size(limit, "node_runs_max")
        row = await self._reader.row(tenant, run_id)
        after = 0 if cursor is None else number_of(cursor)
        found, last = await self._node_run_pages.page(row, after=after, limit=limit)
        return Page(found, None if last is None else cursor_of(last))


async def _task_of(reader: Reader, row: RunRow) -> Task:
    """Read a task in one snapshot, so that a completed task is always shown with its final shared state."""
    store = reader.store
    stored = await store.load(row.no)
    assert stored is not None
    row, run = stored.row, await load_run_in_turns(store, stored)
    course = await reader.courses.of(run, lambda: reader.plan_of(row))
    release = await _release_of(store, row)
    return Task(
        id=row.id,
        flow_version_id=None if release is None else release[0],
        status=STATUS[row.status],
        params_json=bytes(run.inputs).decode(),
        shared_json=await _shared(reader, row, run),
        current_node_key=course.current,
        last_action=course.action,
        step_count=course.steps,
        retry_state_json=_retries(run),
        lease_owner=row.owner,
        lease_expiry=None,
        request_id=await store.request_of(row.no),
        created_at=seconds(row.created_at),
        updated_at=seconds(run.at),
        flow_id=None if release is None else release[1],
        flow_name=row.workflow,
        flow_version=row.number,
    )


async def _release_of(store: Store, row: RunRow) -> tuple[str | None, str] | None:
    if row.number is not None:
        release = await store.release_numbered(row.tenant, row.workflow, row.number)
        if release is not None:
            return release.id, release.flow_id
    workflow = await store.workflow(row.tenant, row.workflow)
    return None if workflow is None else (None, workflow.id)


async def _shared(reader: Reader, row: RunRow, run: Run) -> str:
    """Return the current shared state; for a completed run this is its output."""
    if run.status == "completed":
        return await _final(reader, row, run)
    kept = run.frames[""].vars
    shown = {name: await whole(reader.store, row.no, value) for name, value in kept.items()}
    return msgspec.json.encode(shown).decode()


async def _final(reader: Reader, row: RunRow, run: Run) -> str:
    """Return the final state, or an error if it is too large to show, so that the rest of its page is not affected."""
    try:
        return (await output_text(reader.store, await reader.plan_of(row), run)).decode()
    except (TooLarge, RecursionError):
        return written({"error": {"kind": "output_too_large", "message": UNSHOWN}}).decode()


def _retries(run: Run) -> str:
    waiting = {path: step.tries for path, step in run.steps.items() if step.state == "retrying"}
    return msgspec.json.encode(waiting).decode()


async def _tasks_page(
    reader: Reader, tenant: str, *, status: str | None, release_id: str | None, page: int, size: int
) -> tuple[list[Task], int]:
    wanted = await _wanted(reader, tenant, status, release_id)
    if page < 1 or not 1 <= size <= limits.now.page_max:
        raise LimitExceeded(
            "page_max", f"a page has from 1 to {limits.now.page_max} tasks, and the first is 1"
        )
    if (page - 1) * size > limits.now.offset_max:
        raise LimitExceeded("offset_max", f"a page lies behind at most {limits.now.offset_max:,} tasks")
    if wanted is None:
        return [], 0
    total = await reader.store.count_runs(tenant, wanted)
    below, skip = None, (page - 1) * size
    while skip > 0:
        passed = min(skip, SKIPPED_MAX)
        skip, below = skip - passed, await reader.store.below_runs(tenant, below, passed, wanted)
        if below is None:
            return [], total
        await asyncio.sleep(0)
    rows = (await reader.store.list_runs(tenant, below, size, wanted)).rows
    return await _tasks_of(reader, rows), total


async def _tasks_of(reader: Reader, rows: list[RunRow]) -> list[Task]:
    """Read tasks with their values, up to a total size: each may be as large as a run can be."""
    found: list[Task] = []
    left = most = limits.now.page_chars_max
    for row in rows:
        found.append(await _task_of(reader, row))
        left -= len(found[-1].shared_json) + len(found[-1].params_json)
        if left < 0 and len(found) > 1:
            raise LimitExceeded(
                "page_chars_max",
                f"{len(found)} tasks of this page hold more than {most:,} characters; ask for a smaller"
                " page_size",
            )
        await asyncio.sleep(0)
    return found


async def _wanted(reader: Reader, tenant: str, status: str | None, release_id: str | None) -> Wanted | None:
    """Return the filter for the runs of a page of tasks; None if no run can match."""
    ours = None if status is None else tuple(own for own, theirs in STATUS.items() if theirs == status)
    if ours == ():
        raise InvalidInputs(
            f"no task has the status {status!r}; one of {', '.join(dict.fromkeys(STATUS.values()))}"
        )
    if release_id is None:
        return Wanted(status=ours)
    release = await reader.store.release_by_id(tenant, release_id)
    return None if release is None else Wanted(status=ours, workflow=release.name, number=release.number)
