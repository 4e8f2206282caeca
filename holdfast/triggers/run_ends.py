"""The end of a run as an event of other schedules. The commit that ends the run writes the event, as it does final callbacks.

    run ends ──► its last row and a ledger row `buffered` per schedule, in one commit ──► started when it is due (waiting.py)

An event has the id of the run that ended, so it starts one run, also after a crash. What the ended run returned is read when
the event starts a run. Knows which schedules wait for which workflow.
"""

from __future__ import annotations

from holdfast.deliveries.message import text_of
from holdfast.errors import NotFound
from holdfast.runtime.door import Door
from holdfast.runtime.resident_run import ResidentRun
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.spec.triggers import RunTrigger
from holdfast.store.schedule_records import Firing, LedgerEntry, LedgerRow, Origin
from holdfast.triggers.occurrences import DELAYED, SLOT
from holdfast.triggers.waiting import Waiting
from holdfast.values import Millis, rfc3339, written
from holdfast.views.runs import Queries

Key = tuple[str, str]  # tenant, and the id of a schedule or the name of a workflow


class RunEnds:
    def __init__(self, door: Door, waiting: Waiting, queries: Queries) -> None:
        self._door, self._waiting, self._queries = door, waiting, queries
        waiting.payloads["run"] = self._payload
        self._specs: dict[Key, tuple[ScheduleSpec, RunTrigger]] = {}  # by tenant and id
        self._by_workflow: dict[Key, list[tuple[ScheduleSpec, RunTrigger]]] = {}

    @property
    def are_wanted(self) -> bool:
        return bool(self._specs)

    def put(self, tenant: str, spec: ScheduleSpec, origin: Origin) -> None:
        self.remove(tenant, spec.id)
        if spec.enabled and isinstance(spec.trigger, RunTrigger):
            entry = self._specs[tenant, spec.id] = (spec, spec.trigger)
            self._by_workflow.setdefault((tenant, spec.trigger.workflow), []).append(entry)
            self._door.ends = self.firings

    def remove(self, tenant: str, schedule_id: str) -> None:
        entry = self._specs.pop((tenant, schedule_id), None)
        if entry is None:
            return
        same = self._by_workflow[tenant, entry[1].workflow]
        same.remove(entry)
        if not same:
            del self._by_workflow[tenant, entry[1].workflow]
        if not self._specs:
            self._door.ends = None

    def firings(self, resident: ResidentRun) -> list[Firing]:
        """The rows that the commit of a run's end writes for the schedules triggered by it."""
        run = resident.run
        about = {
            "run_id": run.id,
            "workflow": resident.plan.name,
            "status": run.status,
            "finished_at": rfc3339(run.at),
        }
        return [
            Firing((_entry(resident, spec, trigger, written(about)),), no=run.no)
            for spec, trigger in self._found(resident)
        ]

    def ended(self, resident: ResidentRun) -> None:
        """The end of a run is durable, with its events."""
        for spec, trigger in self._found(resident):
            self._waiting.delayed_until(resident.run.tenant, spec.id, _due_at(resident, trigger))

    async def _payload(self, row: LedgerRow) -> bytes | None:
        """The run that ended as final callbacks show it; None if it has been deleted since."""
        try:
            return text_of(await self._queries.run(row.tenant, row.occurrence))
        except NotFound:
            return None

    def _found(self, resident: ResidentRun) -> list[tuple[ScheduleSpec, RunTrigger]]:
        found = self._by_workflow.get((resident.run.tenant, resident.plan.name), ())
        return [entry for entry in found if resident.run.status in entry[1].statuses]


def _due_at(resident: ResidentRun, trigger: RunTrigger) -> Millis:
    return Millis(resident.run.at + trigger.delay_secs * 1_000)


def _entry(resident: ResidentRun, spec: ScheduleSpec, trigger: RunTrigger, payload: bytes) -> LedgerEntry:
    run = resident.run
    return LedgerEntry(
        run.tenant,
        spec.id,
        SLOT,
        run.id,
        "buffered",
        DELAYED,
        _due_at(resident, trigger),
        until=None,
        times=1,
        at=run.at,
        payload=payload,
    )
