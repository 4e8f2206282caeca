"""Commands for schedules from callers: create or replace, delete, pause, resume, fire, backfill.

Knows how a request names times, and what a guarded server refuses. triggers/ knows how a schedule is stored and fired.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import InvalidInputs, InvalidSpec, Problem
from holdfast.ops.schedule_folder import StoredSchedules, unknown_workflows
from holdfast.runtime.engine import Engine
from holdfast.schedule.wall import DAY
from holdfast.schedule.zones import zone
from holdfast.spec.moments import parse_moment
from holdfast.spec.schedule import schedule_from_text
from holdfast.spec.schedule_check import check_reach, check_signed
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import RunTrigger
from holdfast.triggers.backfills import Backfill
from holdfast.triggers.schedules import Fired
from holdfast.values import Millis
from holdfast.views.schedules import ScheduleQueries, ScheduleView


class ScheduleCommands:
    def __init__(self, engine: Engine, queries: ScheduleQueries) -> None:
        self._engine, self._queries, self._schedules = engine, queries, engine.schedules
        # Without a folder of files, what earlier ones defined can be deleted by the API: no file is left to change.
        self.has_files = False

    async def put_text(self, tenant: str, schedule_id: str, text: str) -> tuple[ScheduleView, bool]:
        return await self.put(tenant, schedule_from_text(text, schedule_id))

    async def put(self, tenant: str, spec: ScheduleSpec) -> tuple[ScheduleView, bool]:
        """Create or replace a schedule. Return it, and whether it is new. An edit keeps the cursor of the schedule."""
        if self._engine.registry.guard.guarded and (problems := check_signed([spec]) + check_reach([spec])):
            raise InvalidSpec(problems)
        is_new = await self._schedules.put(tenant, spec)
        view = await self._queries.schedule(tenant, spec.id)
        return msgspec.structs.replace(view, warnings=await self._unknown(tenant, spec)), is_new

    async def _unknown(self, tenant: str, spec: ScheduleSpec) -> tuple[Problem, ...]:
        """Warnings about workflows that it names and that are not published yet."""
        named = [spec.workflow, *([spec.trigger.workflow] if isinstance(spec.trigger, RunTrigger) else [])]
        for name in named:
            if await self._engine.store.published(tenant, name) is None:
                published = await StoredSchedules(self._engine).workflows(tenant)
                return tuple(unknown_workflows([spec], published))
        return ()

    async def delete(self, tenant: str, schedule_id: str) -> ScheduleView:
        """Delete a schedule, and return it. Its ledger stays."""
        view = await self._queries.schedule(tenant, schedule_id)
        is_left_over = view.row.origin == "file" and not self.has_files
        await self._schedules.delete(tenant, schedule_id, origin="file" if is_left_over else "api")
        return view

    async def pause(self, tenant: str, schedule_id: str) -> ScheduleView:
        await self._schedules.pause(tenant, schedule_id)
        return await self._queries.schedule(tenant, schedule_id)

    async def resume(self, tenant: str, schedule_id: str, *, missed: bool) -> ScheduleView:
        await self._schedules.resume(tenant, schedule_id, missed=missed)
        return await self._queries.schedule(tenant, schedule_id)

    async def fire(self, tenant: str, schedule_id: str, payload: Any) -> Fired:
        """Start a run of a schedule now. Raise AtLimit if too many of its runs are open."""
        return await self._schedules.fire(tenant, schedule_id, payload)

    async def redeliver(self, tenant: str, schedule_id: str, delivery: str) -> Fired:
        """Start a run for a delivery once more. Raise NotFound, InvalidInputs if its payload was not kept, and AtLimit."""
        return await self._schedules.redeliver(tenant, schedule_id, delivery)

    async def backfill(
        self,
        tenant: str,
        schedule_id: str,
        since: str,
        until: str,
        *,
        max_per_sec: float | None,
        preview: bool,
    ) -> Backfill:
        """Start the occurrences between two times that have no run. Raise InvalidInputs if a time cannot be read."""
        view = await self._queries.schedule(tenant, schedule_id)
        first, last = (
            _instant(since, view.timezone, "from"),
            _instant(until, view.timezone, "to", is_end=True),
        )
        if first > last:
            raise InvalidInputs(f"from ({since}) is after to ({until}); exchange them")
        return await self._schedules.backfill(
            tenant, schedule_id, first, last, max_per_sec=max_per_sec, preview=preview
        )


def _instant(text: str, timezone: str, key: str, *, is_end: bool = False) -> Millis:
    """The instant that a text means in a zone. A date is its first moment, or at the end its last."""
    moment = parse_moment(text)
    if moment is None:
        raise InvalidInputs(
            f"{key} is a date or a time such as 2026-03-29 or 2026-03-29T02:30:00Z, not {text!r}"
        )
    if not moment.is_local:
        return Millis(moment.ms)
    home, (second, rest) = zone(timezone), divmod(moment.ms, 1_000)
    if moment.is_date and is_end:
        return Millis(home.first_instant_of(second + DAY) * 1_000 - 1)
    return Millis(home.first_instant_of(second) * 1_000 + rest)
