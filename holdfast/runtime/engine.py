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
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.deliveries.destinations import destinations
from holdfast.deliveries.outbox import Outbox
from holdfast.engine.events import CancelRequested, Destination, Event, RunStarted, SignalReceived, TimerFired
from holdfast.engine.state import Run, timer_of
from holdfast.engine.waits import would_keep
from holdfast.errors import (
    EngineClosed,
    HoldfastError,
    InvalidInputs,
    LimitExceeded,
    NodeIsOver,
    NotFound,
    Refused,
    RunIsOpen,
    RunIsOver,
    RunSetAside,
    StoreUnavailable,
    Unavailable,
)
from holdfast.execution.dispatcher import ATTEMPTS_MAX, THREADS_MAX, Dispatch
from holdfast.ops.upkeep import Upkeep
from holdfast.plan.graph import PENDING_TTL_MS, Plan
from holdfast.runtime.clock import SET_BACK_MS_LEAST, Clock, SystemClock
from holdfast.runtime.committer import Committer
from holdfast.runtime.delays import Delays
from holdfast.runtime.door import Advance, Live
from holdfast.runtime.fatal_runs import LOADED, LOADING, WATCHED_SECONDS, Deaths
from holdfast.runtime.load import load_run
from holdfast.runtime.ownership import Owners
from holdfast.runtime.plans import Plans, Ready
from holdfast.runtime.remembered import Remembered
from holdfast.runtime.replies import Kept
from holdfast.runtime.requests import Requests, Started, checked, digest_of
from holdfast.runtime.rerun import Again, restart
from holdfast.runtime.restore import Restore
from holdfast.runtime.timers import Timers
from holdfast.spec.labels import label_problem
from holdfast.spec.notation import Definition, path_beside
from holdfast.spec.problems import did_you_mean
from holdfast.store.artefacts import Artefacts
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import NewRun, Request, RunRow, Stored
from holdfast.tools.registry import Registry
from holdfast.tools.secrets import Secrets, SecretUnavailable
from holdfast.values import (
    DEFAULT_TENANT,
    TERMINAL,
    Millis,
    NotJson,
    RunId,
    RunNo,
    Status,
    decode,
    encode,
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
EVICTED_BYTES_MIN: Final = (
    4 * 1024
)  # states of evicted runs that are kept at hand; smaller ones are read as quickly
EVICTED_BYTES_MAX: Final = 32 * 1024 * 1024
EVICTED_MAX: Final = 1_000
FOR_EVER: Final = Millis(2**62)
ROWS_LOOKED_AT: Final = 1_000  # of the journal, the last ones, for times that are in the future
NAMES_LOOKED_AT_MAX: Final = 1_000  # for the nearest to a name that is not there
MEANINGS_MAX: Final = 1_000  # published names whose definition is remembered
# What interpreters begin with: up to 3.12, 3.13, 3.14, and builds without the global lock.
GC_THRESHOLDS_OF_PYTHON: Final = frozenset({(700, 10, 10), (2_000, 10, 10), (2_000, 10, 0), (10_000, 10, 10)})
GC_LISTED_BEFORE: Final = (3, 15)
GC_THRESHOLD_AT_IMPORT: Final = gc.get_threshold()
GC_THRESHOLD: Final = (50_000, 20, 20)

CLOSED: Final = "the engine was closed before the run was over; the run goes on when it is opened again"

Waiter = asyncio.Future[Live]


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
        self._waiters: dict[RunNo, list[Waiter]] = {}
        self._meanings: dict[
            tuple[str, str], tuple[Definition, int]
        ] = {}  # only this process can change them
        self._filling: asyncio.Task[None] | None = None
        self._restoring: asyncio.Task[None] | None = None
        self._watching: asyncio.TimerHandle | None = None
        self.is_open = False
        self.drives_all = True
        self._own: set[RunNo] = set()  # what is driven here where not all is
        self.listeners = self.advance.listeners
        self.feed = Feed(self.advance.watchers, self.dispatch.hearers)
        self.requests = Requests(store)
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
        self._resting: dict[RunNo, list[Waiter]] = {}
        # A run that is signalled often would be folded anew from its whole journal each time.
        self._evicted: Remembered[RunNo, Live] = Remembered(
            count_max=EVICTED_MAX, bytes_max=EVICTED_BYTES_MAX
        )

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
            self.load,
            self.load_many,
            self._timer_due,
            lambda: self.polling.held_back,
            self.deaths.held if drive else set(),
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
        """Runs that others left behind are being taken up, or will be once there is room, or the store can write."""
        waits = self.dispatch.when_free is not None or self._filling is not None
        return self.is_open and (waits or self.advance.is_stalled)

    def _take_up_watched(self) -> None:
        """The others have had their time: now those that a process may have died of."""
        self.owners.let_go()
        self._take_up()

    def _take_up(self) -> None:
        """Take runs up in the background, as far as there is room."""
        self.dispatch.when_free = None
        is_able = self.drives_all and not (self.advance.is_over or self.advance.is_stalled)
        if is_able and self._filling is None:
            self._filling = asyncio.get_running_loop().create_task(self._fill())

    async def _fill(self) -> None:
        try:
            while not self.advance.is_stalled:
                now = self.clock.now()
                if not self._has_filled:
                    await self._look_for_set_back(now)
                found = await self.owners.fill(now)
                if not (found and self.owners.has_more) or self.owners.room <= 0:
                    break
                await asyncio.sleep(0)
            if self.advance.is_stalled:
                return  # looked at again when commits work
            if self.owners.has_more:
                self.dispatch.when_free = self._take_up
            if self.owners.room > 0:
                await self._sleep_until_due(now)
        except StoreUnavailable as error:
            log.warning("runs cannot be read now, and are taken up later: %s", error)
            self.timers.parked_until(Millis(self.clock.now() + LOOK_AGAIN_MS))
        finally:
            self._filling = None

    async def _sleep_until_due(self, looked: Millis) -> None:
        """What was due at the last look is in memory, or set aside: the file says so later or never, and nobody else is to
        wait for that."""
        first = await self.store.next_wake()
        if first is not None and first <= looked:
            self.timers.parked_until(Millis(looked + LOOK_AGAIN_MS))
        self.timers.parked_until(await self.store.next_wake(looked))

    # ------------------------------------------------------------------------------------------------ commands

    async def start(
        self,
        spec: Definition,
        inputs: dict[str, Any],
        labels: dict[str, str] | None = None,
        *,
        tenant: str = DEFAULT_TENANT,
        number: int | None = None,
        parent_job_id: str | None = None,
        request: tuple[str, str] | None = None,
        trace: str = "",
        tell: Sequence[Destination] = (),
    ) -> Live:
        """Begin a run. When this returns, the run is durable, and so is the request (id, digest) that asked for it.

        `number` is the release that the definition was found under, if it was found by name. `tell` is who is told of
        its end, besides those that its workflow names.
        """
        self._check_open()
        ready = self.plans.of_spec(spec) or await self.plans.of_whole(spec, partial(self._named, tenant))
        plan = ready.plan
        started = RunStarted(msgspec.Raw(_encoded(ready.inputs.filled(inputs))), env=self._environment(plan))
        started.destinations = destinations(spec, tell)
        return await self._begin(
            tenant, ready, started, labels, parent_job_id, request, number=number, trace=trace
        )

    async def _begin(
        self,
        tenant: str,
        ready: Ready,
        started: RunStarted,
        labels: dict[str, str] | None = None,
        parent_job_id: str | None = None,
        request: tuple[str, str] | None = None,
        rerun_of: RunId | None = None,
        number: int | None = None,
        trace: str = "",
    ) -> Live:
        spec, plan = ready.whole.spec, ready.plan
        self._check_callbacks(tenant, started)
        no, at = self.store.next_no(), self.clock.now()
        run = Run(no, self.clock.new_id(), plan.version, tenant)
        live = Live(run, plan, owned=True, status=None, trace=trace)
        merged = {**spec.labels, **labels} if labels else spec.labels
        if labels and rerun_of is None:
            _check_labels(labels, len(merged))
        on_restart = "interrupt" if plan.interrupted_by_restart else None
        new = NewRun(
            no, run.tenant, run.id, plan.version, on_restart, encode(merged).decode() if merged else None, at
        )
        new.parent_job_id, new.rerun_of = parent_job_id, rerun_of
        new.workflow, new.number = spec.name, number
        if ready.stored_for != tenant:
            self.plans.store_with(self.advance.batch, tenant, ready.whole, plan.version, at)
        if trace and not (self.advance.is_stalled or self.advance.is_over):
            self.advance.batch.traces.append((no, trace))
        self._makes_own(no)
        started.drive = len(self.advance.live) < self.resident
        reply: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asked = None if request is None else Request(run.tenant, *request, no, at)
        self.advance.begin(live, new, started, reply, asked)
        await reply
        if ready.stored_for != tenant:
            ready.stored_for = tenant
            self.plans.is_durable(tenant, plan.version)
        return live

    def _check_callbacks(self, tenant: str, started: RunStarted) -> None:
        """Refuse a start whose callbacks could never be signed, while its caller can still hear of it."""
        for one in started.destinations:
            if one.secret_env is not None:
                try:
                    self.dispatch.secrets.for_callback(one.secret_env, tenant)
                except SecretUnavailable as error:
                    raise InvalidInputs(str(error)) from None

    def _environment(self, plan: Plan) -> dict[str, str | None]:
        """What the plan names of the environment, as it is now: a run sees the same for ever."""
        return {name: os.environ.get(name) for name in plan.env if name in self.template_env}

    async def _named(self, tenant: str, name: str, by: Definition) -> Definition:
        """What a name means in a definition: the file of that name beside it, if it was read from one, else what is
        published."""
        beside = path_beside(by, name)
        if beside is not None:
            return self.plans.read_file(beside)
        return (await self.published(name, tenant))[0]

    async def rerun(
        self,
        run_id: RunId,
        again: Again | None = None,
        inputs: Mapping[str, Any] | None = None,
        *,
        tenant: str = DEFAULT_TENANT,
        request: tuple[str, str] | None = None,
    ) -> Live:
        """A new run of the same version. `again` says what of it is done once more, and the rest is taken over; `inputs`
        replace those of the same name."""
        row, before = await self.past(run_id, tenant)
        plan, run = before.plan, before.run
        ready = await self.plans.again(row.tenant, row.version)
        given = run.inputs
        if inputs:
            given = msgspec.Raw(_encoded(ready.inputs.filled({**decode(run.inputs), **inputs})))
        had = await restart(self.store, plan, run, again or Again())
        labels = msgspec.json.decode(row.labels, type=dict[str, str]) if row.labels else None
        started = RunStarted(given, env=run.env, destinations=run.destinations)
        started.taken, started.vars, started.first = dict(had.taken), dict(had.vars), had.first
        return await self._begin(
            tenant, ready, started, labels, row.parent_job_id, request, run_id, row.number
        )

    async def past(self, run_id: RunId, tenant: str = DEFAULT_TENANT) -> tuple[RunRow, Live]:
        """A run that is over, to look at."""
        row = await self.row_of(run_id, tenant)
        if row.status not in TERMINAL:
            raise RunIsOpen(run_id, row.status)
        live = await self._load(row.no)
        assert live is not None
        return row, live

    async def start_once(
        self,
        request_id: str,
        workflow: str,
        spec: Definition,
        inputs: dict[str, Any],
        *,
        tenant: str = DEFAULT_TENANT,
        **rest: Any,
    ) -> tuple[RunNo, RunId, bool]:
        """Begin a run unless this request has one; tells whether it was begun now.

        `workflow` is what the caller named: a workflow, or a hash.
        """
        self._check_open()
        _encoded(inputs)
        digest = digest_of(workflow, inputs)

        async def begin() -> Live:
            return await self.start(spec, inputs, tenant=tenant, request=(request_id, digest), **rest)

        return await self._once(tenant, request_id, digest, begin)

    async def rerun_once(
        self,
        request_id: str,
        run_id: RunId,
        again: Again,
        inputs: Mapping[str, Any] | None = None,
        *,
        tenant: str = DEFAULT_TENANT,
    ) -> tuple[RunNo, RunId, bool]:
        self._check_open()
        _encoded(inputs)
        digest = digest_of(f"rerun {run_id}", {"again": msgspec.to_builtins(again), "inputs": inputs or {}})

        async def begin() -> Live:
            return await self.rerun(run_id, again, inputs, tenant=tenant, request=(request_id, digest))

        return await self._once(tenant, request_id, digest, begin)

    async def _once(
        self, tenant: str, request_id: str, digest: str, begin: Callable[[], Awaitable[Live]]
    ) -> tuple[RunNo, RunId, bool]:
        is_new = False

        async def made() -> Started:
            nonlocal is_new  # of those who ask at once, only one's own is called
            run = (await begin()).run
            is_new = True
            return run.no, run.id

        found = await self.requests.once(tenant, checked(request_id), digest, made)
        return *found, is_new

    async def commit(self, batch: Batch) -> None:
        """Write what belongs to no run; it is durable when this returns."""
        self._check_open()
        await self.committer.commit(batch, self._meanings.clear if batch.published else lambda: None)

    async def published(self, name: str, tenant: str = DEFAULT_TENANT) -> tuple[Definition, int]:
        """The definition that a name means now, and the number of its release."""
        self._check_open()
        known = self._meanings.get((tenant, name))
        if known is not None:
            return known
        found = await self.store.published(tenant, name) if is_text(name) else None
        if found is None:
            near = did_you_mean(name, await self.store.workflow_names(tenant, NAMES_LOOKED_AT_MAX))
            hint = near or "publish it first, or give a definition, or the path of a .yaml file"
            raise NotFound(f"no workflow {name!a} is published here; {hint}")
        version, definition, number = found
        if len(self._meanings) >= MEANINGS_MAX:
            self._meanings.clear()
        meant = self._meanings[tenant, name] = self.plans.spec_of(version, definition), number
        return meant

    def events(self, no: RunNo, run_id: RunId, plan: Plan) -> AsyncGenerator[RunEvent, None]:
        """Every event of a run, from its first to its last."""
        if self.advance.is_over:
            raise NodeIsOver("another process has taken this file over")
        if no in self.advance.quarantined:
            raise self._set_aside(no)
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
        text = await self.dispatch.redacted(_encoded(value, "the value of the signal is"))
        live = await self._held_open(run_id, tenant)
        said = SignalReceived(name, msgspec.Raw(text), correlation)
        _check_room(live, said)
        return await self.tell(live, said, keep)

    async def _held_open(self, run_id: RunId, tenant: str) -> Live:
        """A run that is not over, in memory, to tell it something."""
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

    async def ended(self, no: RunNo) -> Live:
        """Wait for the end of a run, as its rows on disk tell it."""
        self._check_open()
        if self.advance.is_over:
            raise NodeIsOver("another process has taken this file over")
        if no not in self.advance.live:
            row = await self.store.run_by_no(no)
            if no in self.advance.quarantined:
                raise self._set_aside(no)
            if row is not None and row.status in TERMINAL and (live := await self.load(no)) is not None:
                return live
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(no, []).append(waiter)
        try:
            return await waiter
        finally:
            waiters = self._waiters.get(no)
            if waiters and waiter in waiters:
                waiters.remove(waiter)

    async def rests(self, no: RunNo) -> None:
        """Wait until all that is open of a run waits for callbacks that are not here yet, as its rows on disk tell it."""
        while True:
            waiter: Waiter = asyncio.get_running_loop().create_future()
            self._resting.setdefault(no, []).append(waiter)
            try:
                live = self.advance.live.get(no) or await self._load(no)
                if live is None or self._is_resting(live):
                    return await self.advance.caught_up()
                await waiter
            finally:
                self._resting[no].remove(waiter)
                if not self._resting[no]:
                    del self._resting[no]

    def _is_resting(self, live: Live) -> bool:
        return live.run.only_called_back and not self.callbacks.looks_for(live.run.no)

    def _tell_resting(self, live: Live) -> None:
        if self._is_resting(live):
            for waiter in self._resting.get(live.run.no, ()):
                if not waiter.done():
                    waiter.set_result(live)

    def looked(self, live: Live) -> None:
        """No answer came before its call paused, or it was given."""
        if self._resting:
            self._tell_resting(live)

    async def row_of(self, run_id: RunId, tenant: str = DEFAULT_TENANT) -> RunRow:
        self._check_open()
        row = await self.store.run_by_id(tenant, run_id) if is_text(run_id) else None
        if row is None:
            raise NotFound(f"no run {ascii(run_id)[1:-1]} in this database")
        return row

    async def find(self, run_id: RunId, tenant: str = DEFAULT_TENANT) -> Live:
        """A run to look at. A parked one stays a row: looking does not bring it back to memory."""
        row = await self.row_of(run_id, tenant)
        live = self.advance.live.get(row.no) or await self._load(row.no)
        assert live is not None
        return live

    async def take_up(self, run_id: RunId) -> Live:
        """Go on with one run, whoever drove it last; its row is durable when this returns."""
        row = await self.row_of(run_id)
        self._makes_own(row.no)
        live = await self.owners.adopt(row.no, restarted=True)
        if live is None:
            raise self._set_aside(row.no)
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
                raise self._set_aside(row.no)
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
            raise self._set_aside(row.no)
        if self.drives_all and not live.run.over:
            self.committed(live)  # if nothing is said to it after all, it must not sleep through its time
        return live

    def _set_aside(self, no: RunNo) -> HoldfastError:
        reason, retry = self.advance.quarantined[no]
        return RunSetAside(f"the run was set aside: {reason}; {retry}")

    async def load(self, no: RunNo) -> Live | None:
        """A run from memory or from the store. An open one is in memory from here on, and its caller acts on it."""
        if (known := self.advance.live.get(no)) is not None:
            return known
        if no in self.advance.quarantined:
            return None
        return await self._taken_in(no, self._remembered(no))

    async def _remembered(self, no: RunNo) -> Live | None:
        """An evicted run whose state is still at hand, else the run as it is stored. Only this process appends to it, so
        both are the same."""
        return self._evicted.take(no) or await self._load(no)

    async def load_many(self, runs: Sequence[RunNo]) -> list[Live]:
        """The same for runs that are not in memory: those of them that can be read."""
        try:
            stored = await self.store.load_many(runs)
        except Unavailable:
            raise  # no run is to blame, and they are read again later
        except Exception:  # noqa: BLE001  # one of them cannot be read: it is found by itself
            return [live for no in runs if (live := await self.load(no)) is not None]
        taken = [await self._taken_in(each.row.no, self._folded(each)) for each in stored]
        return [live for live in taken if live is not None]

    async def _taken_in(self, no: RunNo, loading: Awaitable[Live | None]) -> Live | None:
        try:
            live = await loading
        except Unavailable:
            raise
        except Exception as error:  # one run whose rows cannot be read must not keep the others from going on
            log.exception("run number %d cannot be loaded and is set aside", no)
            self.advance.set_aside(no, error)
            return None
        if (known := self.advance.live.get(no)) is not None:
            return known  # somebody else was quicker
        if live is not None and not live.run.over:
            self.advance.live[no] = live
            self._evicted.take(no)  # it goes on from here, and that state would be an old one
            self.dispatch.know_secrets(live)
        return live

    async def _load(self, no: RunNo) -> Live | None:
        stored = await self.store.load(no)
        return None if stored is None else await self._folded(stored)

    async def _folded(self, stored: Stored) -> Live:
        plan, no = await self.plans.of_version(stored.row.tenant, stored.row.version), stored.row.no
        now = self.deaths.mark.now
        if no in self.deaths.watched:
            self.deaths.begins(no, LOADING)
        now[LOADED] = no
        try:
            run = await load_run(self.store, stored)
        finally:
            now[LOADED] = 0
        live = Live(run, plan, owned=False, status=stored.row.status, trace=stored.trace)
        live.lacks_tool = run.active > 0 and any(step.reason == "no_tool" for step in run.steps.values())
        live.journal_bytes = sum([len(row[-1]) for row in stored.rows])
        if stored.parts:
            live.snapshot_at = max(live.snapshot_at, len(stored.parts[0][1]))
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
        for waiter in self._waiters.pop(no, ()):
            if not waiter.done():
                waiter.set_result(live)

    def paused(self, live: Live, path: str, task_id: str) -> None:
        self.callbacks.paused(live, path, task_id)
        if self._resting:
            self._tell_resting(live)

    def poll(self, live: Live, path: str, attempt: int) -> None:
        self.polling.poll(live, path, attempt)

    def committed(self, live: Live) -> None:
        """A run has timers or suspects: see that they get their turn."""
        if self._resting:
            self._tell_resting(live)
        wake_at = self.delays.next(live.run)
        if wake_at is not None:
            self.timers.arm(live.run.no, wake_at)
        for path in live.run.suspects():
            self.dispatch.isolation.add(live.run.no, path)

    def parked(self, live: Live, wake_at: Millis | None) -> None:
        if (size := live.bytes) > EVICTED_BYTES_MIN:
            self._evicted.put(live.run.no, live, size)
        if self._resting:
            self._tell_resting(live)
        self.timers.disarm(live.run.no)
        self.timers.parked_until(wake_at)
        self._arm_parked(live)
        if self.dispatch.when_free is not None:
            self.dispatch.when_free()

    def has_artefact(self, tenant: str, sha256: str) -> bool:
        artefacts = self.dispatch.artefacts
        return artefacts is not None and artefacts.of(tenant).has(sha256)

    def is_due(self) -> None:
        """A parked run was made due by a commit of another."""
        self.timers.parked_until(self.clock.now())

    def set_aside(self, no: RunNo) -> None:
        self.feed.end(self._set_aside(no), no)
        for waiter in self._waiters.pop(no, ()):
            if not waiter.done():
                waiter.set_exception(self._set_aside(no))

    def restored(self) -> None:
        """The store can write again: reload what was dropped and offer again what nobody will send twice."""
        self._restoring = asyncio.get_running_loop().create_task(self._restore())

    async def _restore(self) -> None:
        restore = Restore(self.advance, self.dispatch, self.owners, self.load, self.committed)
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
        for waiters in self._waiters.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)

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
            if at > now and self.delays.has(no):
                run.at = max(run.at, at)  # its own time goes on where that of the wall clock was set back
            self.advance.offer(live, TimerFired(path, timer))
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
            self.outbox.clock.at_least(latest)
            self.outbox.look()
            self._set_back()

    async def _look_for_delayed(self) -> None:
        """Read the parked runs that are due next, as many as may be in memory, for delays among their timers."""
        for no in await self.store.due(FOR_EVER, self.resident):
            if no in self.advance.live or no in self.advance.quarantined:
                continue
            try:
                live = await self._load(no)
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
                    log.warning("delays are looked at again later: %s", error)
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


def _check_labels(labels: Mapping[Any, Any], count: int) -> None:
    """Refuse labels that a start may not give; `count` is how many its run would have, with those of its workflow."""
    if count > limits.now.labels_max:
        raise LimitExceeded(
            "too_many_labels",
            f"a run has at most {limits.now.labels_max} labels, not {count:,}",
            "labels_max",
        )
    for name, value in labels.items():
        problem = label_problem(name, value)
        if problem is not None and problem.is_limit:
            raise LimitExceeded(problem.code, problem.message, "label_chars_max")
        if problem is not None:
            raise InvalidInputs(problem.message)


def _encoded(value: Any, what: str = "the inputs are") -> bytes:
    try:
        text = encode(value)
    except NotJson as error:
        raise InvalidInputs(f"{what} not JSON: {error}") from None
    if len(text) > limits.now.value_bytes_max:
        raise LimitExceeded(
            "input_too_large",
            f"{what} over {limits.size(limits.now.value_bytes_max)}; pass a path or a reference instead",
            "value_bytes_max",
        )
    return text


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
