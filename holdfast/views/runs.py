"""Queries over runs, for every interface. They read committed rows, never state that is not durable yet.

Only waits and progress may come from the memory of the engine that drives a run. A status and the values that belong to it are read
in one transaction. Writes nothing; lists are pages of bounded size and cost.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.engine.decisions import FinishRun
from holdfast.engine.state import Run
from holdfast.errors import HoldfastError, InvalidInputs, NotFound, RunIsOpen, Unavailable
from holdfast.plan.composed import TooLarge
from holdfast.plan.graph import Plan
from holdfast.runtime.fatal_runs import set_aside_of
from holdfast.runtime.load import load_run_in_turns, whole
from holdfast.runtime.plans import Plans
from holdfast.runtime.remembered import Remembered
from holdfast.runtime.rerun import Again, restart
from holdfast.runtime.runs import no_run
from holdfast.spec.notation import Definition
from holdfast.store.artefacts import Artefacts, Found
from holdfast.store.base import Store
from holdfast.store.lock import holder_of
from holdfast.store.records import CallbackDelivery, Ends, LogLine, Release, RunRow, SetAside, Workflow
from holdfast.values import DEFAULT_TENANT, NULL, TERMINAL, Error, Millis, RunId, RunNo, is_text
from holdfast.views import explain as why
from holdfast.views import open_waits
from holdfast.views.courses import Courses
from holdfast.views.cursors import at_cursor, cursor_at, cursor_of, number_of
from holdfast.views.definitions import Definitions
from holdfast.views.explain import Explanation
from holdfast.views.memory import Memory
from holdfast.views.node_runs import NodeRun
from holdfast.views.open_waits import Wait
from holdfast.views.outputs import UNSHOWN, output_text
from holdfast.views.pages import PAGE, Page, page_size
from holdfast.views.progress import Progresses
from holdfast.views.pulse import Pulse, pulse
from holdfast.views.run_lines import RunSummary, summaries, wanted_of
from holdfast.views.run_steps import RunSteps
from holdfast.views.run_view import (
    JournalEntry,
    Preview,
    RunView,
    begun_at,
    cut_apart,
    finish_of,
    jobs_in,
    labels_of,
    only_callbacks,
    start_of,
)
from holdfast.views.seen import Sees, seen_store
from holdfast.views.services import ServiceView, services_of
from holdfast.views.stats import WorkflowStats
from holdfast.views.steps import StepView
from holdfast.views.stored_board import LONG_ROWS, OUTPUT_BYTES_MAX, stored_output
from holdfast.views.tasks import Task, TaskQueries
from holdfast.views.values import GATHERED, Head, Values, part_of
from holdfast.views.waiting import Waits
from holdfast.views.workflows import Diff, WorkflowQueries, WorkflowView

__all__ = [  # records too, for interfaces, which may not import the store
    "CallbackDelivery",
    "Definition",
    "Diff",
    "JournalEntry",
    "LogLine",
    "NodeRun",
    "Page",
    "Queries",
    "Release",
    "RunRow",
    "RunSummary",
    "RunView",
    "StepView",
    "Task",
    "Workflow",
    "WorkflowView",
    "labels_of",
    "list_runs",
    "only_callbacks",
]

ID_PART_MIN: Final = 4  # least characters of an id to search by
STATES_REMEMBERED_MAX: Final = 20  # cached states of open runs that no memory has, as of their last row
STEP_BYTES: Final = 1024  # an open step in memory, about
OUTPUTS_REMEMBERED_MAX: Final = 1_000  # cached outputs of finished runs
OUTPUT_BYTES_REMEMBERED_MAX: Final = 32 * 1024 * 1024


_SHA256 = re.compile(r"[0-9a-f]{64}")


class StoredFile:
    """A file of a run: its size, its path if it is on this machine, and its bytes."""

    def __init__(self, artefacts: Artefacts, found: Found) -> None:
        self.size, self.path = found.size, found.path
        self._artefacts, self._found = artefacts, found

    async def read(self, start: int, end: int) -> bytes:
        return await self._artefacts.work(self._found.read, start, end)


class Queries:
    """`memory` is that of the engine of this process, if it drives the runs; without it, the file is only read."""

    def __init__(
        self, store: Store, plans: Plans, memory: Memory | None = None, artefacts: Artefacts | None = None
    ) -> None:
        self.store, self._plans, self._memory, self._artefacts = store, plans, memory, artefacts
        self._progresses = Progresses(store)
        self.courses = Courses(store)
        self.definitions = Definitions(store, plans)
        self.waits = Waits(store)
        self.catalog = WorkflowQueries(store, plans)
        self.tasks = TaskQueries(self)
        self.stats = WorkflowStats(store)
        self.run_steps = RunSteps(store, plans, self.definitions)
        self._states: Remembered[RunNo, Run] = Remembered(
            count_max=STATES_REMEMBERED_MAX, bytes_max=OUTPUT_BYTES_REMEMBERED_MAX
        )
        self._outputs: Remembered[RunNo, tuple[msgspec.Raw, Error | None]] = Remembered(
            count_max=OUTPUTS_REMEMBERED_MAX, bytes_max=OUTPUT_BYTES_REMEMBERED_MAX
        )

    def seen_by(self, sees: Sees) -> Queries:
        """The same queries for a caller that sees only some workflows."""
        return Queries(seen_store(self.store, sees), self._plans, self._memory, self._artefacts)

    # ------------------------------------------------------------------------------------------------ runs

    async def row(self, tenant: str, run_id: str) -> RunRow:
        """Return the row of a run; raise NotFound if the tenant has none of this id."""
        return await self._row(tenant, run_id)

    async def run(self, tenant: str, run_id: str, values: Values = "all") -> RunView:
        """Return a run. Of its inputs and output only as much is read as is wanted."""
        ends = await self._ends(tenant, run_id)
        aside = None if ends.row.status in TERMINAL else await self._set_aside(ends.row.no)
        is_still = aside is not None or ends.row.status in TERMINAL
        waits = [] if is_still else await self._waits(ends.row)
        if waits:
            ends = await self._ends(tenant, run_id)  # as of now, when its waits are durable
        row, started = ends.row, start_of(ends)
        plan = await self._plans.of_version(row.tenant, row.version)
        is_over = row.status in TERMINAL
        finish = finish_of(ends) if is_over else None
        heads: dict[str, Head] = {}
        inputs, head = await part_of(self.store, row.no, started.inputs, values)
        if head is not None:
            heads["inputs"] = head
        output, unshown, head = await self._shown_output(row, plan, finish, values, ends.last[0])
        if head is not None:
            heads["output"] = head
        return RunView(
            run_id=row.id,
            workflow=row.workflow,
            version=row.version,
            number=row.number,
            status=row.status,
            inputs_text=inputs,
            output_text=output,
            error=unshown if finish is None or finish.error is None else finish.error,
            waits=[] if is_over else waits,
            progress=await self._progresses.of(row.no, ends.last[0], plan.steps_total),
            labels=labels_of(row),
            created_at=row.created_at,
            started_at=begun_at(ends, started),
            finished_at=row.finished_at,
            rerun_of=row.rerun_of,
            parent_job_id=row.parent_job_id,
            set_aside=aside,
            trigger=started.trigger,
            seq=ends.last[0],
            heads=heads,
            is_left=self._is_left(row),
        )

    def _is_left(self, row: RunRow) -> bool:
        """Return whether a run is open, and this process has the file but does not drive the run."""
        return row.status not in TERMINAL and self._memory is not None and not self._memory.drives(row.no)

    async def _set_aside(self, no: RunNo) -> SetAside | None:
        if self._memory is None:
            return await set_aside_of(self.store, no)
        return self._memory.set_aside(no)

    async def wait_for(self, tenant: str, run_id: str, seconds: float, *, or_pause: bool = False) -> RunView:
        """Return the run when it has finished, or as it is when the time is up; with `or_pause` also once it waits only for callbacks."""
        assert self._memory is not None, "cannot wait for a run of a file that is only read"
        row = await self._row(tenant, run_id)
        try:
            async with asyncio.timeout(min(seconds, limits.now.wait_secs_max)):
                if not or_pause:
                    await self._memory.ended(row.no)
                while or_pause:
                    await self._ends_or_rests(row.no)
                    view = await self.run(tenant, run_id)
                    if view.status in TERMINAL or only_callbacks(view):
                        return view
                    # A result arrived at the moment it paused: it continues.
        except TimeoutError:
            pass
        except HoldfastError as error:
            if isinstance(error, Unavailable):
                raise
            # otherwise it was quarantined: it is shown as it is
        return await self.run(tenant, run_id)

    async def _ends_or_rests(self, no: RunNo) -> None:
        assert self._memory is not None
        either = [asyncio.ensure_future(wait) for wait in (self._memory.ended(no), self._memory.rests(no))]
        try:
            done, _ = await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in either:
                task.cancel()

    async def runs(
        self,
        tenant: str,
        *,
        status: str | Sequence[str] | None = None,
        workflow: str | None = None,
        number: int | None = None,
        label: str | Sequence[str] | None = None,
        created_from: Millis | None = None,
        created_to: Millis | None = None,
        id_part: str | None = None,
        cursor: str | None = None,
        limit: int = PAGE,
    ) -> Page[RunRow]:
        """List runs, newest first. A label is `team=x`, or `team` for any value, and of several all must match; `id_part` is the
        beginning or end of an id. `created_from` is included, `created_to` is not."""
        limit = page_size(limit)
        if id_part is not None:
            return await self._like(tenant, id_part, limit)
        before = None if cursor is None else RunNo(at_cursor(self.store.server_key, f"runs {tenant}", cursor))
        above = None
        if created_from is not None:
            above = RunNo(await self.store.number_at(created_from) - 1)
        if created_to is not None:
            until = await self.store.number_at(created_to)
            before = until if before is None else min(before, until)
        wanted = wanted_of(status, workflow, number, label, above)
        found = await self.store.list_runs(tenant, before, limit, wanted)
        below = None
        if found.below is not None:
            below = cursor_at(self.store.server_key, f"runs {tenant}", found.below)
        return Page(found.rows, below)

    async def _like(self, tenant: str, part: str, limit: int) -> Page[RunRow]:
        """List runs by the beginning or end of their id."""
        if len(part) < ID_PART_MIN or not is_text(part):
            raise InvalidInputs(f"a part of an id has at least {ID_PART_MIN} characters")
        found = await self.store.ids_like(tenant, part, limit)
        rows = [await self.store.run_by_id(tenant, run_id) for run_id in found]
        return Page([row for row in rows if row is not None], None)

    async def summaries(self, rows: Sequence[RunRow]) -> list[RunSummary]:
        """Return what a list says of each run: when it began, why it failed, what it waits for first."""
        found = await summaries(self.store, rows)
        return [
            msgspec.structs.replace(one, is_left=True) if self._is_left(one.row) else one for one in found
        ]

    async def artefact(self, tenant: str, sha256: str) -> StoredFile:
        """Return a file that a run of the tenant refers to."""
        if _SHA256.fullmatch(sha256) and await self.store.names_artefact(tenant, sha256) and self._artefacts:
            found = await self._artefacts.work(self._artefacts.of(tenant).find, sha256)
            if found is not None:
                return StoredFile(self._artefacts, found)
        raise NotFound(f"no run here names an artefact {sha256!a:.80}")

    async def count(
        self,
        tenant: str,
        status: str | None = None,
        *,
        workflow: str | None = None,
        number: int | None = None,
    ) -> int:
        return await self.store.count_runs(tenant, wanted_of(status, workflow, number, None))

    async def counts(self, tenant: str) -> dict[str, dict[str, int]]:
        """How many runs each workflow has in each status, by name."""
        found: dict[str, dict[str, int]] = {}
        for workflow, status, runs in await self.store.run_counts(tenant):
            if runs:
                found.setdefault(workflow, {})[status] = runs
        return found

    async def pulse(
        self, tenant: str, workflow: str | None, start: Millis, end: Millis, most: int, now: Millis
    ) -> Pulse:
        return await pulse(self.store, tenant, workflow, start, end, most, now)

    async def version_of_run(self, tenant: str, run_id: str) -> str:
        return (await self._row(tenant, run_id)).version

    async def steps(
        self, tenant: str, run_id: str, *, every: bool = False, cursor: str | None = None, limit: int = PAGE
    ) -> Page[StepView]:
        """List steps in the order in which they were reached: top-level and failed steps, or every step."""
        limit = page_size(limit)
        row = await self._row(tenant, run_id)
        after = 0 if cursor is None else number_of(cursor)
        part = await self.run_steps.page(row, every=every, after=after, limit=limit)
        steps = [one.step for one in part.items]
        return Page(steps, None if part.after is None else cursor_of(part.after))

    async def callback_deliveries(self, tenant: str, run_id: str) -> list[CallbackDelivery]:
        """List the final-callback deliveries of a run and their state. An unfinished run has none."""
        return await self.store.callback_deliveries_of_run((await self._row(tenant, run_id)).no)

    async def dead_letters(self, tenant: str, *, cursor: str | None, limit: int) -> Page[CallbackDelivery]:
        """List dead letters, oldest first."""
        limit = page_size(limit)
        key, which = self.store.server_key, f"dead letters {tenant}"
        after = 0 if cursor is None else at_cursor(key, which, cursor)
        found = await self.store.dead_letters(tenant, after, limit + 1)
        more = cursor_at(key, which, found[limit - 1].pos) if len(found) > limit else None
        return Page(found[:limit], more)

    async def step_names(self, tenant: str, run_id: str) -> list[str]:
        """Return the top-level steps in the order of the definition, reached or not."""
        row = await self._row(tenant, run_id)
        plan = await self._plans.of_version(row.tenant, row.version)
        return [node.name for node in plan.root.main.values()]

    async def journal(
        self, tenant: str, run_id: str, after: int = 0, limit: int = PAGE
    ) -> Page[JournalEntry]:
        """List rows with a number greater than `after`; the cursor is the number of the last one, as text."""
        limit = page_size(limit)
        row = await self._row(tenant, run_id)
        rows = await self.store.journal(row.no, after, limit + 1)
        items = [
            JournalEntry(seq, epoch, Millis(at), kind, msgspec.Raw(body.encode()), jobs_in(row.id, body))
            for seq, epoch, at, kind, body in rows[:limit]
        ]
        return Page(items, str(items[-1].seq) if len(rows) > limit else None)

    async def logs(
        self,
        tenant: str,
        run_id: str,
        *,
        step: str | None = None,
        level: str | None = None,
        after: int = 0,
        limit: int = PAGE,
    ) -> Page[LogLine]:
        """List log lines with a number greater than `after`; the cursor is the number of the last one, as text."""
        limit, row = page_size(limit), await self._row(tenant, run_id)
        lines = await self.store.log_lines(row.no, after, limit + 1, path=step, level=level)
        return Page(lines[:limit], str(lines[limit - 1].n) if len(lines) > limit else None)

    async def preview(self, tenant: str, run_id: str, again: Again | None = None) -> Preview:
        """Return what a rerun would copy and run; raise what the rerun would raise."""
        row = await self._row(tenant, run_id)
        if row.status not in TERMINAL:
            raise RunIsOpen(row.id, row.status)
        found = await restart(
            self.store, await self.plan_of(row), await self._folded(row.no), again or Again()
        )
        return Preview(found.copied, found.runs)

    async def services(self, tenant: str) -> list[ServiceView]:
        """The services of a tenant: their workers, and the work that waits for one."""
        assert self._memory is not None
        return await services_of(self.store, self._memory, tenant)

    async def explain(self, tenant: str, run_id: str) -> Explanation:
        """Explain why a run is not moving, what would unblock it, and which schedule started it."""
        row = await self._row(tenant, run_id)
        explained = await self._explained(row)
        if row.schedule is None and row.rerun_of is None:
            return explained
        ends = await self.store.ends(tenant, row.id)
        return (
            explained if ends is None else msgspec.structs.replace(explained, trigger=start_of(ends).trigger)
        )

    async def _explained(self, row: RunRow) -> Explanation:
        plan = await self._plans.of_version(row.tenant, row.version)
        if self._memory is None:
            file: Any = self.store
            holder = holder_of(file.path)
            # No process holds a database on a server, which has no epoch.
            epoch = file.epoch_now() if holder else 0
            return await why.explain(self.store, row, plan, holder=holder, epoch=epoch)
        return await why.explain_live(self.store, self._memory, row, plan)

    # ---------------------------------------------------------------------------------------------- inside

    async def plan_of(self, row: RunRow) -> Plan:
        return await self._plans.of_version(row.tenant, row.version)

    async def number_of_run(self, tenant: str, run_id: str) -> RunNo:
        return (await self._row(tenant, run_id)).no

    async def _row(self, tenant: str, run_id: str) -> RunRow:
        row = await self.store.run_by_id(tenant, RunId(run_id)) if is_text(run_id) else None
        if row is None:
            raise no_run(run_id)
        return row

    async def _ends(self, tenant: str, run_id: str) -> Ends:
        ends = await self.store.ends(tenant, RunId(run_id)) if is_text(run_id) else None
        if ends is None:
            raise no_run(run_id)
        return ends

    async def _waits(self, row: RunRow) -> list[Wait]:
        """Return what a run waits for, once it is durable, because a caller may resolve it immediately."""
        found = open_waits.waits(await self._state(row.no), await self.plan_of(row))
        if found and self._memory is not None:
            await self._memory.caught_up()
        return found

    async def _state(self, no: RunNo) -> Run:
        """Return the state of an open run: from the memory of its owner, or else from its rows."""
        resident = None if self._memory is None else self._memory.residents.get(no)
        return await self._folded(no) if resident is None else resident.run

    async def _folded(self, no: RunNo) -> Run:
        last, known = await self.store.last_seq(no), self._states.get(no)
        if known is not None and known.seq == last:
            return known
        stored = await self.store.load(no)
        assert stored is not None
        run = await load_run_in_turns(self.store, stored)
        self._states.put(no, run, run.kept_bytes + STEP_BYTES * len(run.steps))
        return run

    async def _shown_output(
        self, row: RunRow, plan: Plan, finish: FinishRun | None, values: Values, seq: int
    ) -> tuple[msgspec.Raw, Error | None, Head | None]:
        if values == "none" or finish is None:
            return NULL, None, None
        if values == "head" and plan.output is None and row.no not in self._outputs:
            return NULL, None, GATHERED if finish.status == "completed" else None
        known = self._outputs.get(row.no)
        if known is None:
            known = await self._output(row, plan, finish, seq)
            if (
                plan.output is None and len(known[0]) <= OUTPUT_BYTES_MAX
            ):  # gathered from its steps, which takes long
                self._outputs.put(row.no, known, len(known[0]))
        output, unshown = known
        return (output, unshown, None) if values == "all" else cut_apart(output, unshown)

    async def _output(
        self, row: RunRow, plan: Plan, finish: FinishRun | None, seq: int
    ) -> tuple[msgspec.Raw, Error | None]:
        """Return the output of a run, or an error if it is too large to show."""
        if finish is None or finish.status != "completed":
            return NULL, None
        text = bytes(await whole(self.store, row.no, finish.output))
        if finish.caught or not (plan.output is None or b'"$' in text):
            return msgspec.Raw(text), None
        stored = await stored_output(self.store, row.no, "") if seq >= LONG_ROWS else None
        if stored is not None:
            return msgspec.Raw(stored), None
        try:
            return msgspec.Raw(await output_text(self.store, plan, await self._folded(row.no))), None
        except (TooLarge, RecursionError):
            return NULL, Error("output_too_large", UNSHOWN)


async def list_runs(
    store: Store,
    *,
    status: str | None = None,
    workflow: str | None = None,
    label: str | None = None,
    before: RunNo | None = None,
    limit: int,
) -> list[RunRow]:
    """List runs of the default tenant, newest first, up to `limit`."""
    wanted, rows = wanted_of(status, workflow, None, label), list[RunRow]()
    while len(rows) < limit:
        found = await store.list_runs(DEFAULT_TENANT, before, limit - len(rows), wanted)
        rows, before = rows + found.rows, found.below
        if before is None:
            break
        await asyncio.sleep(0)
    return rows
