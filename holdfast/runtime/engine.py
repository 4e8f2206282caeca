"""The engine of one process: opens the store, takes runs up, carries decisions out, and stops in order.

Puts the parts together and knows none of their rules. No HTTP, no YAML beyond reading a stored definition.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.deliveries.outbox import Outbox
from holdfast.engine.events import CancelRequested, Event, SignalReceived, TimerFired
from holdfast.engine.state import timer_of
from holdfast.engine.waits import would_keep
from holdfast.errors import (
    EngineClosed,
    LimitExceeded,
    NodeIsOver,
    NotFound,
    Refused,
    RunIsOver,
    StoreUnavailable,
    Unavailable,
)
from holdfast.execution.dispatcher import ATTEMPTS_MAX, THREADS_MAX, Dispatch
from holdfast.ops.upkeep import Upkeep
from holdfast.plan.graph import PENDING_TTL_MS, Plan
from holdfast.runtime.clock import SET_BACK_MS_LEAST, Clock, SystemClock
from holdfast.runtime.committer import Committer
from holdfast.runtime.delays import Delays
from holdfast.runtime.door import ANY_TIME, Advance, Live
from holdfast.runtime.fatal_runs import WATCHED_SECONDS, Deaths
from holdfast.runtime.ownership import Owners
from holdfast.runtime.plans import Plans
from holdfast.runtime.replies import Kept
from holdfast.runtime.resident import Residents
from holdfast.runtime.restore import Restore
from holdfast.runtime.starts import Starts, encoded
from holdfast.runtime.timers import Timers
from holdfast.runtime.waiters import Waiters, set_aside_error
from holdfast.store.artefacts import Artefacts
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import RunRow
from holdfast.tools.registry import Registry
from holdfast.tools.secrets import Secrets
from holdfast.values import (
    DEFAULT_TENANT,
    TERMINAL,
    Millis,
    RunId,
    RunNo,
    Status,
    is_text,
)
from holdfast.views.events import Events, Feed, RunEvent, events_of
from holdfast.views.runs import Queries
from holdfast.waits.approvals import Approvals
from holdfast.waits.callbacks import Callbacks
from holdfast.waits.polling import Polling
from holdfast.workers.service import Workers

log = logging.getLogger("holdfast")

LOOK_AGAIN_MS: Final = 1_000
FOR_EVER: Final = Millis(2**62)
ROWS_LOOKED_AT: Final = 1_000  # of the journal, the last ones, for times that are in the future
# What interpreters begin with: up to 3.12, 3.13, 3.14, and builds without the global lock.
GC_THRESHOLDS_OF_PYTHON: Final = frozenset({(700, 10, 10), (2_000, 10, 10), (2_000, 10, 0), (10_000, 10, 10)})
GC_LISTED_BEFORE: Final = (3, 15)
GC_THRESHOLD_AT_IMPORT: Final = gc.get_threshold()
GC_THRESHOLD: Final = (50_000, 20, 20)

CLOSED: Final = "the engine was closed before the run had finished; the run continues when it is opened again"


class Engine:
    def __init__(
        self,
        store: Store,
        registry: Registry,
        clock: Clock | None = None,
        *,
        places: int = ATTEMPTS_MAX,
        resident: int | None = None,
        template_env: Collection[str] = (),
        pending_ttl_ms: int = PENDING_TTL_MS,
        secrets: Secrets | None = None,
        artefacts: Artefacts | None = None,
        workdirs: Path | None = None,
        threads: int = THREADS_MAX,
        processes: int | None = None,
        process_memory_bytes: int | None = None,
        upkeep: Upkeep | None = None,
        workers: Workers | None = None,
        public_url: str | None = None,
        mark: Path | None = None,
        bounds: limits.Limits | None = None,
    ) -> None:
        self.store, self.registry, self._workdirs = store, registry, workdirs
        self.upkeep = upkeep
        self.clock: Clock = clock or SystemClock()
        self.committer = Committer(store)
        self.deaths = Deaths(store, self.committer, mark)
        self.advance = Advance(self.committer, self.clock, self, self.deaths)
        self.dispatch = Dispatch(
            self.advance,
            registry,
            self.clock,
            places=places,
            threads=threads,
            processes=processes,
            process_memory_bytes=process_memory_bytes,
            secrets=secrets,
            artefacts=artefacts,
            workdirs=workdirs,
            workers=workers or Workers(store, self.clock),
        )
        self.workers = self.dispatch.workers
        self.workers.writes.committer = self.committer
        self.start_attempt, self.stop_attempt = self.dispatch.start, self.dispatch.stop
        self.put_jobs, self.jobs_are_put = self.dispatch.jobs.put, self.dispatch.jobs.are_put
        self.timers = Timers(self.clock, self._timer_due, self._take_up, self._set_back)
        self.delays = Delays(self.clock)
        self._waking: set[asyncio.Task[None]] = set()
        self._has_filled = False
        self._limits = bounds  # None: those of the process
        self.resident = resident or (bounds or limits.now).resident_max
        self.template_env = frozenset(template_env)
        self.plans: Plans = Plans(store, self.template_env, pending_ttl_ms)
        self.owners: Owners
        self.residents = Residents(store, self.advance, self.plans, self.deaths, self.dispatch.know_secrets)
        self.waiters = Waiters(store, self.advance, self.residents, self._check_open)
        self.starts = Starts(
            store,
            self.advance,
            self.plans,
            self.residents,
            self.clock,
            self.dispatch.secrets,
            template_env=self.template_env,
            resident_max=self.resident,
            admit=self._makes_own,
            check_open=self._check_open,
        )
        self._filling: asyncio.Task[None] | None = None
        self._fill_again = False  # asked while it fills
        self._restoring: asyncio.Task[None] | None = None
        self._watching: asyncio.TimerHandle | None = None
        self.is_open = False
        self.drives_all = True
        self._own: set[RunNo] = set()  # what is driven here where not all is
        self.listeners = self.advance.listeners
        self.feed = Feed(self.advance.watchers, self.dispatch.hearers)
        self.callbacks = Callbacks(self, public_url)
        self.polling = Polling(
            self, partial(self.callbacks.deliver, by="poll"), (bounds or limits.now).polls_max
        )
        self.approvals = Approvals(self)
        self.outbox = Outbox(
            store,
            self.clock,
            self.committer,
            Queries(store, self.plans, self),
            registry,
            self.dispatch.secrets,
        )
        if public_url is not None:
            self.dispatch.inputs.callback_url = self.callbacks.address
        self.waiters.looks_for = self.callbacks.looks_for

    # ------------------------------------------------------------------------------------------ open and close

    async def open(self, *, drive: bool = True) -> None:
        """Make the file ours. With `drive`, go on with every open run in it; without, touch only what is asked for."""
        with contextlib.ExitStack() as undo:  # if opening fails
            limits.hold(self, self._limits)
            undo.callback(limits.let_go, self)
            self.store.open()
            undo.callback(self.store.close)
            await self._take_over(drive=drive)
            undo.pop_all()

    async def _take_over(self, *, drive: bool) -> None:
        if self._workdirs is not None:
            shutil.rmtree(self._workdirs, ignore_errors=True)  # of attempts that a former process left behind
        if self.dispatch.artefacts is not None:
            self.dispatch.artefacts.divide(self.store.artefacts_of_tenants())
        _spare_the_collector()
        self.advance.quarantined.update(await self.deaths.open(self.clock))
        self.advance.watch(self.deaths)
        await self.workers.open()
        self.is_open = True
        self.drives_all = self.advance.parks = self.outbox.drives_all = drive
        self.owners = Owners(
            self.store,
            self.advance,
            self.dispatch,
            self.residents.bring_in,
            self.residents.bring_in_many,
            self._timer_due,
            lambda: self.polling.held_back,
            self.deaths.held if drive else set(),
            self.residents.loading,
            resident=self.resident,
        )
        if drive:
            await self.callbacks.look()
            await self.owners.interrupt()
            await self.owners.supply(self.registry.has)
            self._take_up()
            if self.owners.held:
                self._watching = asyncio.get_running_loop().call_later(WATCHED_SECONDS, self._take_up_watched)
            self.outbox.look()
            if self.upkeep is not None:
                self.upkeep.begin(self.clock, self.committer)

    async def close(self) -> None:
        """Stop gracefully: give open attempts back, write that down, and let the file go."""
        self.is_open = False
        with (
            contextlib.ExitStack() as last
        ):  # from the last to the first, and all of them whatever one raises
            last.callback(self._tell_waiters, EngineClosed(CLOSED))
            last.callback(limits.let_go, self)
            last.callback(self.deaths.mark.close)
            last.callback(self.store.close)
            last.callback(self.committer.close)
            last.callback(self.workers.close)
            last.callback(self.dispatch.abandon)
            last.callback(self.outbox.abandon)
            await self._stop()

    async def _stop(self) -> None:
        self.timers.close()
        for task in self._waking:
            task.cancel()
        self.callbacks.close()
        self.polling.close()
        if self._watching is not None:
            self._watching.cancel()
        if self._filling is not None:
            self._filling.cancel()
        if self.upkeep is not None:
            await self.upkeep.close()
        if self._restoring is not None:
            await self._restoring
        if not (self.advance.is_over or self.advance.is_stalled):
            self.dispatch.release()
            await self.advance.drained()
            await self._release_runs()
            await self.outbox.close()

    async def _release_runs(self) -> None:
        for live in list(self.advance.live.values()):
            self.advance.release(live)
        await self.advance.drained()

    def _check_open(self) -> None:
        if not self.is_open:
            raise EngineClosed("the engine is not open; use it inside `async with Holdfast(...)`")

    def _drives(self, no: RunNo) -> bool:
        return self.drives_all or no in self._own

    def _makes_own(self, no: RunNo) -> None:
        if not self.drives_all:
            self._own.add(no)

    @property
    def is_taking_up(self) -> bool:
        """Runs of former owners are being adopted, or will be once there is room, or the store can write."""
        waits = self.dispatch.when_free is not None or self._filling is not None
        return self.is_open and (waits or self.advance.is_stalled)

    def _take_up_watched(self) -> None:
        """The other runs have had their time: now those that may have crashed a process."""
        self.owners.let_go()
        self._take_up()

    def _take_up(self) -> None:
        """Take runs up in the background, as far as there is room."""
        self.dispatch.when_free = None
        is_able = self.drives_all and not (self.advance.is_over or self.advance.is_stalled)
        self._fill_again = is_able
        if is_able and self._filling is None:
            self._filling = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        try:
            while self._fill_again:  # asked for again meanwhile: what was read is out of date
                self._fill_again = False
                await self._fill_once()
        except StoreUnavailable as error:
            log.warning("runs cannot be read now, and are taken up later: %s", error)
            self.timers.parked_until(Millis(self.clock.now() + LOOK_AGAIN_MS))
        finally:
            self._filling = None

    async def _fill_once(self) -> None:
        while not self.advance.is_stalled:
            now = self.clock.now()
            if not self._has_filled:
                await self._look_for_set_back(now)
            found = await self.owners.fill(now)
            if not (found and self.owners.has_more) or self.owners.room <= 0:
                break
            await asyncio.sleep(0)
        if self.advance.is_stalled:
            return  # checked again when commits work
        if self.owners.has_more:
            self.dispatch.when_free = self._take_up
        if self.owners.room > 0:
            await self._sleep_until_due(now)

    async def _sleep_until_due(self, looked: Millis) -> None:
        """What was due at the last look is in memory, or set aside: the file says so later or never, and nobody else is to
        wait for that."""
        first = await self.store.next_wake()
        if first is not None and first <= looked:
            self.timers.parked_until(Millis(looked + LOOK_AGAIN_MS))
        self.timers.parked_until(await self.store.next_wake(looked))

    # ------------------------------------------------------------------------------------------------ commands

    async def commit(self, batch: Batch) -> None:
        """Write what belongs to no run; it is durable when this returns."""
        self._check_open()
        await self.committer.commit(batch, self.starts.forget_names if batch.published else lambda: None)

    def events(self, no: RunNo, run_id: RunId, plan: Plan) -> AsyncGenerator[RunEvent, None]:
        """Every event of a run, from its first to its last."""
        if self.advance.is_over:
            raise NodeIsOver("another process has taken this file over")
        if no in self.advance.quarantined:
            raise set_aside_error(self.advance, no)
        return events_of(self.store, self.feed, no, Events(run_id, plan.steps_total))

    async def cancel(self, run_id: RunId, reason: str = "", *, tenant: str = DEFAULT_TENANT) -> None:
        """Ask a run to stop. When this returns, the request is durable and nothing new starts."""
        await self.tell(
            await self._held_open(run_id, tenant), CancelRequested(self.dispatch.secrets.redact(reason))
        )

    async def signal(
        self,
        run_id: RunId,
        name: str,
        value: Any,
        *,
        correlation: str | None = None,
        tenant: str = DEFAULT_TENANT,
        keep: Callable[[Status], Kept] | None = None,
    ) -> Status:
        """Say something to a run: a variable of a graph is written, a step that waits for it takes it, or it is kept.
        It is durable when this returns, with the status that the run has by it."""
        text = await self.dispatch.redacted(encoded(value, "the value of the signal is"))
        live = await self._held_open(run_id, tenant)
        said = SignalReceived(name, msgspec.Raw(text), correlation)
        _check_room(live, said)
        return await self.tell(live, said, keep)

    async def _held_open(self, run_id: RunId, tenant: str) -> Live:
        """An unfinished run, loaded into memory, to apply an event to it."""
        live = await self.hold(await self.row_of(run_id, tenant))
        if live.run.over:
            await self.advance.drained()
            row = await self.row_of(run_id, tenant)
            if row.status not in TERMINAL:
                raise StoreUnavailable("the end of the run could not be written; try again")
            raise RunIsOver(run_id, row.status)
        return live

    async def tell(self, live: Live, event: Event, keep: Callable[[Status], Kept] | None = None) -> Status:
        """Give a run a fact, wait until it is durable, and say what status the run has by it.
        What `keep` makes of that goes into the same commit."""
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.advance.offer(live, event, reply)
        status = live.run.status
        if keep is not None and not reply.done():
            self.advance.batch.run_replies.append((live.run.no, keep(status).row()))
        await reply
        return status

    def looked(self, live: Live) -> None:
        """No answer came before its call paused, or it was given."""
        self.waiters.resting(live)

    async def row_of(self, run_id: RunId, tenant: str = DEFAULT_TENANT) -> RunRow:
        self._check_open()
        row = await self.store.run_by_id(tenant, run_id) if is_text(run_id) else None
        if row is None:
            raise NotFound(f"no run {ascii(run_id)[1:-1]} in this database")
        return row

    async def find(self, run_id: RunId, tenant: str = DEFAULT_TENANT) -> Live:
        """A run to read. An evicted one stays a row: reading does not load it into memory."""
        row = await self.row_of(run_id, tenant)
        live = self.advance.live.get(row.no) or await self.residents.stored(row.no)
        assert live is not None
        return live

    async def take_up(self, run_id: RunId) -> Live:
        """Continue one run, whichever process owned it last; its row is durable when this returns."""
        row = await self.row_of(run_id)
        self._makes_own(row.no)
        live = await self.owners.adopt(row.no, restarted=True)
        if live is None:
            raise set_aside_error(self.advance, row.no)
        await self.advance.drained()
        return live

    async def retry(self, run_id: RunId, *, tenant: str = DEFAULT_TENANT) -> None:
        """Take up a run that was set aside; where not all runs are driven, let the next process do so."""
        row = await self.row_of(run_id, tenant)
        has_killed = await self.deaths.forget(row.no)
        if self.advance.quarantined.pop(row.no, None) is None and not has_killed:
            raise Refused(
                f"run {run_id} was not set aside; holdfast runs explain {run_id} says what it waits for"
            )
        if self.drives_all:
            if await self.owners.adopt(row.no, restarted=has_killed) is None:
                raise set_aside_error(self.advance, row.no)
            await self.advance.drained()

    async def hold(self, row: RunRow) -> Live:
        """A run in memory, ours to append to. Where all runs are driven it goes on; else nothing of it starts."""
        known = self.advance.live.get(row.no)
        if known is not None:
            return known
        if row.no in self.advance.away:
            raise StoreUnavailable("the database cannot be written now; try again")
        if row.owner is not None and row.status not in TERMINAL:
            live = await self.owners.adopt(row.no, drive=self.drives_all)
        else:
            live = await self.owners.wake(row.no, drive=self.drives_all)
        if live is None:
            raise set_aside_error(self.advance, row.no)
        if self.drives_all and not live.run.over:
            self.committed(live)  # if nothing is said to it after all, it must not sleep through its time
        return live

    # --------------------------------------------------------------------------- carrying decisions out (Hands)

    def run_ended(self, live: Live) -> None:
        no = live.run.no
        self.timers.disarm(no)
        self.delays.forget(no)
        if live.run.destinations:
            self.outbox.note(no)
        if self.dispatch.when_free is not None:
            self.dispatch.when_free()
        self.waiters.run_ended(live)

    def paused(self, live: Live, path: str, task_id: str) -> None:
        self.callbacks.paused(live, path, task_id)
        self.waiters.resting(live)

    def poll(self, live: Live, path: str, attempt: int) -> None:
        self.polling.poll(live, path, attempt)

    def committed(self, live: Live) -> None:
        """A run has timers or suspects: see that they get their turn."""
        self.waiters.resting(live)
        wake_at = self.delays.next(live.run)
        if wake_at is not None:
            self.timers.arm(live.run.no, wake_at)
        for path in live.run.suspects():
            self.dispatch.isolation.add(live.run.no, path)

    def parked(self, live: Live, wake_at: Millis | None) -> None:
        self.residents.evicted(live)
        self.waiters.resting(live)
        self.timers.disarm(live.run.no)
        self.timers.parked_until(wake_at)
        self._arm_parked(live)
        if self.dispatch.when_free is not None:
            self.dispatch.when_free()

    def has_artefact(self, tenant: str, sha256: str) -> bool:
        artefacts = self.dispatch.artefacts
        return artefacts is not None and artefacts.of(tenant).has(sha256)

    def is_due(self) -> None:
        """An evicted run was made due by the commit of another run."""
        self.timers.parked_until(self.clock.now())

    def set_aside(self, no: RunNo) -> None:
        self.feed.end(set_aside_error(self.advance, no), no)
        self.waiters.set_aside(no)

    def restored(self) -> None:
        """The store can write again: reload what was dropped and offer again what nobody will send twice."""
        self._restoring = asyncio.get_running_loop().create_task(self._restore())

    async def _restore(self) -> None:
        restore = Restore(self.advance, self.dispatch, self.owners, self.residents.load, self.committed)
        while self.is_open and not self.committer.is_shut:
            try:
                await restore.run(self._drives)
                await self.callbacks.look()
                break
            except StoreUnavailable as error:
                log.warning("runs cannot be read now, and are restored later: %s", error)
                await asyncio.sleep(LOOK_AGAIN_MS / 1000)
        self._take_up()

    def over(self, error: BaseException) -> None:
        self.dispatch.abandon()
        self.workers.abandon()
        self.timers.close()
        self.callbacks.close()
        self.polling.close()
        self.outbox.abandon()
        if self.upkeep is not None:
            self.upkeep.stop()
        if isinstance(error, SystemExit):
            log.critical("%s", error)
            os._exit(70)
        self._tell_waiters(error if isinstance(error, Exception) else NodeIsOver(str(error)))

    def _tell_waiters(self, error: Exception) -> None:
        self.feed.end(error)
        self.waiters.fail(error)

    # -------------------------------------------------------------------------------------------------- timers

    def _timer_due(self, no: RunNo) -> None:
        live = self.advance.live.get(no)
        if live is None:
            if self.delays.has(no):
                self._in_background(partial(self._wake_delayed, no))
            return
        now, run = self.clock.now(), live.run
        due = [(key, run.timers[key]) for key, at in self.delays.hours(run).items() if at <= now]
        is_held = False
        for key, at in due:
            timer, path = timer_of(key)
            if timer == "expiry" and self.polling.looks_first(live, path):
                is_held = True
                continue
            # The run's own time goes on where that of the wall clock was set back.
            not_before = at if at > now and self.delays.has(no) else ANY_TIME
            self.advance.offer(live, TimerFired(path, timer), not_before=not_before)
        if is_held:
            self._arm_others(live, now)
        elif not due:
            self.committed(live)  # the clock was set back this very moment

    def _arm_others(self, live: Live, now: Millis) -> None:
        """The end of a wait is held back: that must not keep the other timers of the run from firing."""
        others = [at for at in self.delays.hours(live.run).values() if at > now]
        self.timers.arm(live.run.no, min([*others, Millis(now + LOOK_AGAIN_MS)]))

    # ------------------------------------------------------------------------------ a wall clock that was set back

    def _set_back(self) -> None:
        """The wall clock was set back: delays go on by the monotonic clock, of runs in memory and of parked ones."""
        log.warning("the wall clock was set back; retries and polls go on by the monotonic clock")
        self.delays.is_on = True
        for live in list(self.advance.live.values()):
            self.committed(live)
        if self.drives_all:
            self._in_background(self._look_for_delayed)

    async def _look_for_set_back(self, now: Millis) -> None:
        """Was the wall clock set back while no process had the file, or while another had it?"""
        latest = await self.store.latest_at(ROWS_LOOKED_AT)
        self._has_filled = True
        if latest is not None and latest - now >= SET_BACK_MS_LEAST:
            self.outbox.set_clock(latest)
            self._set_back()

    async def _look_for_delayed(self) -> None:
        """Read the parked runs that are due next, as many as may be in memory, for delays among their timers."""
        for no in await self.store.due(FOR_EVER, self.resident):
            if no in self.advance.live or no in self.advance.quarantined:
                continue
            try:
                live = await self.residents.stored(no)
            except Unavailable:
                raise
            except Exception:
                log.exception("run number %d cannot be read for its delays", no)
                continue
            if live is not None and no not in self.advance.live:
                self._arm_parked(live)
            await asyncio.sleep(0)

    def _arm_parked(self, live: Live) -> None:
        at = self.delays.next(live.run) if self.delays.is_on else None
        if at is not None and self.delays.has(live.run.no):
            self.timers.arm(live.run.no, at)

    async def _wake_delayed(self, no: RunNo) -> None:
        if self.advance.is_stalled:
            return self.timers.arm(no, Millis(self.clock.now() + LOOK_AGAIN_MS))
        live = await self.owners.wake(no)
        if live is not None and not live.run.over:
            self._timer_due(no)
        else:
            self.delays.forget(no)

    def _in_background(self, work: Callable[[], Awaitable[None]]) -> None:
        async def tried_until_it_is_done() -> None:
            while self.is_open:
                try:
                    return await work()
                except Unavailable as error:
                    log.warning("delays are checked again later: %s", error)
                    await asyncio.sleep(LOOK_AGAIN_MS / 1000)

        task = asyncio.get_running_loop().create_task(tried_until_it_is_done())
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)


def _check_room(live: Live, said: SignalReceived) -> None:
    """Is there room for a signal, which may be written, or kept until something waits for it?"""
    run, size, key = live.run, len(said.value), said.name
    if run.vars_bytes + size - len(run.frames[""].vars.get(key, b"")) > limits.now.vars_bytes_max:
        raise LimitExceeded(
            "vars_too_large",
            f"the variables of the run would be over {limits.size(limits.now.vars_bytes_max)}",
            "vars_bytes_max",
        )
    shelf = run.shelf
    of_key, in_all = len(shelf.by_name.get(key, ())), len(run.signals)
    is_full = (
        of_key >= limits.now.signals_of_key_max
        or in_all >= limits.now.signals_max
        or shelf.bytes + size > limits.now.value_bytes_max
    )
    if not is_full or not would_keep(live.plan, run, said):
        return  # a signal that is awaited is never refused
    if of_key >= limits.now.signals_of_key_max:
        raise LimitExceeded(
            "signals_of_key_max",
            f"{of_key:,} signals {key!a:.100} of the run are kept and nothing waits for them yet; the limit is "
            f"{limits.now.signals_of_key_max:,} per key",
        )
    if in_all >= limits.now.signals_max:
        raise LimitExceeded(
            "signals_max",
            f"{in_all:,} signals of the run are kept and nothing waits for them yet; the limit is {limits.now.signals_max:,}",
        )
    raise LimitExceeded(
        "signals_too_large",
        f"the signals that the run keeps would be over {limits.size(limits.now.value_bytes_max)} together",
        "value_bytes_max",
    )


def _spare_the_collector() -> None:
    """What is loaded now stays: let the garbage collector pass it over, and look less often than for a small script.

    With a thousand runs in flight it would look at all of them again and again. Thresholds that the user chose are left.
    """
    gc.freeze()
    if _is_of_python(gc.get_threshold()):
        gc.set_threshold(*GC_THRESHOLD)


def _is_of_python(threshold: tuple[int, ...]) -> bool:
    """Are these the thresholds that the interpreter begins with? Of one that is newer than the list, those that it had
    when the engine was imported."""
    is_listed = sys.version_info < GC_LISTED_BEFORE
    return threshold in GC_THRESHOLDS_OF_PYTHON or (not is_listed and threshold == GC_THRESHOLD_AT_IMPORT)
