"""Carries out what durable rows decided: starts and stops attempts, opens waits, arms timers, sends deliveries, wakes callers.

The door calls this after each commit. Knows which part does what, and none of their rules.
"""

from __future__ import annotations

from holdfast.deliveries.outbox import Outbox
from holdfast.execution.dispatcher import Dispatch
from holdfast.ops.board_keeper import BoardKeeper
from holdfast.runtime.alarms import Alarms
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import Door
from holdfast.runtime.resident import Residents
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.waiters import Waiters, set_aside_error
from holdfast.store.artefacts import Artefacts
from holdfast.triggers.fires import Fires
from holdfast.triggers.kinds import Kinds
from holdfast.values import Millis, RunNo
from holdfast.views.events import Feed
from holdfast.views.stored_board import LONG_ROWS
from holdfast.waits.callbacks import Callbacks
from holdfast.waits.polling import Polling


class Effects:
    def __init__(
        self,
        clock: Clock,
        door: Door,
        dispatch: Dispatch,
        residents: Residents,
        alarms: Alarms,
        waiters: Waiters,
        feed: Feed,
        callbacks: Callbacks,
        polling: Polling,
        outbox: Outbox,
        fires: Fires,
        kinds: Kinds,
        keeper: BoardKeeper,
        artefacts: Artefacts | None,
    ) -> None:
        self._clock, self._door, self._dispatch, self._residents = clock, door, dispatch, residents
        self._alarms, self._waiters, self._feed = alarms, waiters, feed
        self._callbacks, self._polling = callbacks, polling
        self._outbox, self._fires, self._kinds, self._artefacts = outbox, fires, kinds, artefacts
        self._keeper = keeper
        # Called for every step, so it is a plain reference without a method in between.
        self.start_attempt, self.stop_attempts = dispatch.start, dispatch.stop_all
        self.start_attempts = dispatch.start_all
        self.put_jobs, self.jobs_are_put = dispatch.jobs.put, dispatch.jobs.are_put
        self.committed = alarms.arm

    def paused(self, resident: ResidentRun, path: str, task_id: str) -> None:
        self._callbacks.paused(resident, path, task_id)
        self._waiters.resting(resident)

    def poll(self, resident: ResidentRun, path: str, attempt: int) -> None:
        self._polling.poll(resident, path, attempt)

    def run_ended(self, resident: ResidentRun) -> None:
        self._alarms.forget(resident.run.no)
        if resident.run.destinations:
            self._outbox.note(resident.run.no)
        if resident.schedule is not None:
            self._fires.run_ended(resident)
        if resident.schedule is not None or self._door.ends is not None:
            self._kinds.run_ended(resident)
        if self._dispatch.when_free is not None:
            self._dispatch.when_free()
        if resident.run.seq >= LONG_ROWS:
            self._keeper.note(resident.run.no)
        self._waiters.run_ended(resident)

    def parked(self, resident: ResidentRun, wake_at: Millis | None) -> None:
        self._residents.evicted(resident)
        if resident.run.seq >= LONG_ROWS:
            self._keeper.parked(resident.run.no, resident.run.seq)
        self._alarms.evicted(resident, wake_at)
        self._dispatch.slot_is_free()

    def is_due(self) -> None:
        """An evicted run was made due by the commit of another run."""
        self._alarms.timers.due_in_store(self._clock.now())

    def notes_artefact(self, tenant: str, sha256: str) -> bool:
        return self._artefacts is not None and self._artefacts.of(tenant).is_worth_noting(sha256)

    def set_aside(self, no: RunNo) -> None:
        self._feed.end(set_aside_error(self._door, no), no)
        self._waiters.set_aside(no)
