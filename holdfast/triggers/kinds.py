"""The trigger kinds without a clock, each with its resources while its schedules exist: a path, a watched folder, a task.

Knows which schedules exist, hands each change to the part that serves its kind, and opens and closes these parts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from holdfast.runtime.again import Again
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.service import Service
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.base import Store
from holdfast.store.schedule_records import Origin, ScheduleRow
from holdfast.triggers.files import Files
from holdfast.triggers.hooks import Hooks
from holdfast.triggers.occurrences import Occurrences
from holdfast.triggers.run_ends import RunEnds
from holdfast.triggers.sources import Sources
from holdfast.triggers.starting import known
from holdfast.triggers.waiting import Waiting

log = logging.getLogger("holdfast")

PAGE: Final = 1_000


class Kind(Protocol):
    """Serves the schedules of one kind."""

    def put(self, tenant: str, spec: ScheduleSpec, origin: Origin) -> None:
        """A schedule of this kind was created or changed."""

    def remove(self, tenant: str, schedule_id: str) -> None:
        """A schedule was deleted, or has another kind now. It may never have had this kind."""


class Kinds(Service):
    def __init__(
        self,
        store: Store,
        occurrences: Occurrences,
        waiting: Waiting,
        hooks: Hooks,
        run_ends: RunEnds,
        files: Files,
        sources: Sources,
    ) -> None:
        self._store = store
        self.occurrences, self.waiting = occurrences, waiting
        self.hooks, self.run_ends, self.files, self.sources = hooks, run_ends, files, sources
        self._kinds: Mapping[str, Kind] = {
            "webhook": hooks,
            "run": run_ends,
            "file": files,
            "source": sources,
        }
        self._served: dict[tuple[str, str], tuple[bytes, Origin]] = {}  # by tenant and id
        self._is_open = self.is_off = False  # off: nothing of these kinds is served
        self._reading = Again(self._read, "the schedules of other nodes")

    async def open(self, *, drive: bool) -> None:
        """Serve the schedules that are stored, in an engine that continues runs by itself."""
        self._is_open = drive and not self.is_off
        if not self._is_open:
            return
        self.waiting.open()
        await self._read()

    def look_again(self) -> None:
        """Another node may have created, changed or deleted schedules."""
        if self._is_open:
            self._reading.ask()

    async def _read(self) -> None:
        """Serve the schedules that are stored, and no others."""
        gone = set(self._served)  # a schedule that is created while this reads is not among them
        for kind in self._kinds:
            after = ("", "")
            while rows := await self._store.schedules_of_kind(kind, after, PAGE):
                for row in rows:
                    self._serve_stored(row)
                    gone.discard((row.tenant, row.id))
                after = rows[-1].tenant, rows[-1].id
        for tenant, schedule_id in gone:
            self.remove(tenant, schedule_id)

    def _serve_stored(self, row: ScheduleRow) -> None:
        try:
            spec = known(row.body).spec
        except Exception:  # a damaged row must not affect the other schedules or the server
            log.exception("schedule %s cannot be read and is not served", row.id)
            return
        self.put(row.tenant, spec, row.origin)

    async def restored(self) -> None:
        self.waiting.query()

    async def close(self) -> None:
        self._reading.close()
        await self.files.close()
        await self.sources.close()
        await self.waiting.close()

    def abandon(self, error: Exception | None = None) -> None:
        self._reading.close()
        self.files.abandon()
        self.sources.abandon()
        self.waiting.abandon()

    def put(self, tenant: str, spec: ScheduleSpec, origin: Origin) -> None:
        """A schedule was created, replaced, paused or resumed. If its definition is unchanged, nothing happens."""
        if not self._is_open or origin == "code":  # the program that declares it serves it
            return
        said = spec.canonical(), origin
        if self._served.get((tenant, spec.id)) != said:
            self._served[tenant, spec.id] = said
            for name, kind in self._kinds.items():
                if name == spec.trigger.kind:
                    kind.put(tenant, spec, origin)
                else:
                    kind.remove(tenant, spec.id)
        self.waiting.room(tenant, spec.id)

    def remove(self, tenant: str, schedule_id: str) -> None:
        self._served.pop((tenant, schedule_id), None)
        for kind in self._kinds.values():
            kind.remove(tenant, schedule_id)

    def problem(self, tenant: str, schedule_id: str) -> str:
        """What keeps the events of a schedule from being noticed in this process; empty if nothing does."""
        key = tenant, schedule_id
        return self.sources.problems.get(key, "") or self.files.problems.get(key, "")

    def run_ended(self, resident: ResidentRun) -> None:
        """The end of a run is durable: schedules may wait for it, and there may be room for an event that waits."""
        if self.run_ends.are_wanted:
            self.run_ends.ended(resident)
        if resident.schedule is not None:
            self.waiting.room(resident.run.tenant, resident.schedule)
