"""The composition root: the only place that puts the parts of an engine together.

    Settings ──► engine_of ─┐
    Holdfast ──► embedded ──┴─► parts of a file ──► parts_of ──► Engine

A part takes the parts that it uses as arguments. The door is the one exception: the parts that carry decisions out apply
events to it, so it is connected to them last.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.config import Settings
from holdfast.deliveries.outbox import Outbox
from holdfast.execution.dispatcher import (
    ATTEMPTS_MAX,
    THREADS_MAX,
    TURN_SECONDS_OF_SERVER,
    Dispatch,
)
from holdfast.execution.kept import RemoteTools
from holdfast.execution.logs import Logs
from holdfast.execution.outputs import Outputs
from holdfast.ops.board_keeper import BoardKeeper
from holdfast.ops.upkeep import Upkeep
from holdfast.plugins.call import add_tools
from holdfast.plugins.find import installed, referenced
from holdfast.plugins.load import Loaded, load
from holdfast.runtime.alarms import Alarms
from holdfast.runtime.clock import Clock, SharedClock, SystemClock
from holdfast.runtime.commands import Commands
from holdfast.runtime.committer import Committer
from holdfast.runtime.door import Door
from holdfast.runtime.effects import Effects
from holdfast.runtime.engine import Engine, Parts
from holdfast.runtime.fatal_runs import FatalRuns, mark_beside
from holdfast.runtime.gate import Gate
from holdfast.runtime.nodes import Left, Nodes
from holdfast.runtime.options import Options
from holdfast.runtime.ownership import Ownership
from holdfast.runtime.planning import Planning
from holdfast.runtime.plans import Plans
from holdfast.runtime.resident import Residents
from holdfast.runtime.restore import Restore
from holdfast.runtime.runs import Runs
from holdfast.runtime.service import Service
from holdfast.runtime.settled import artefacts_of, secrets_of
from holdfast.runtime.starts import Starts
from holdfast.runtime.supplies import Supplies
from holdfast.runtime.waiters import Waiters
from holdfast.runtime.wakes import Wakes
from holdfast.store.artefact_place import is_bucket, work_beside
from holdfast.store.artefacts import Artefacts
from holdfast.store.base import Store
from holdfast.store.lock import Lock
from holdfast.store.open import database_path, lock_of, open_url
from holdfast.tools.registry import Registry
from holdfast.tools.secrets import Secrets
from holdfast.triggers.event_runs import EventRuns
from holdfast.triggers.files import Files
from holdfast.triggers.fires import Fires
from holdfast.triggers.hooks import Hooks
from holdfast.triggers.kinds import Kinds
from holdfast.triggers.plugins import Plugins
from holdfast.triggers.run_ends import RunEnds
from holdfast.triggers.schedules import Schedules
from holdfast.triggers.sources import Sources
from holdfast.triggers.waiting import Waiting
from holdfast.views.events import Feed
from holdfast.views.memory import Memory
from holdfast.views.runs import Queries
from holdfast.waits.approvals import Approvals
from holdfast.waits.callback_urls import CallbackUrls
from holdfast.waits.callbacks import Callbacks
from holdfast.waits.polling import Polling
from holdfast.workers.service import Workers

__all__ = [
    "Lock",
    "Options",
    "Registry",
    "database_path",
    "embedded",
    "engine_of",
    "load_plugins",
    "lock_of",
    "parts_of",
]  # a registry without tools, for callers that run no steps


# --------------------------------------------------------------------------------------------------- from the outside


async def load_plugins(settings: Settings, registry: Registry) -> Loaded:
    """The plugins named in the settings, and those of installed packages. Their tools are added to the registry."""
    loaded = await load([*referenced(settings.plugins), *installed()])
    add_tools(registry, loaded.plugins)
    return loaded


def engine_of(
    settings: Settings, registry: Registry, clock: Clock | None = None, plugins: Loaded | None = None
) -> Engine:
    """The engine of a server or of a command, which has the process to itself."""
    path = database_path(settings.db)
    settled = {
        "the settings": settings.file,
        "the flows": settings.flows,
        "the skills": settings.skills,
        "the schedules": settings.schedules,
    }
    others = [(what, Path(place)) for what, place in settled.items() if place]
    if settings.artefacts is not None and not is_bucket(settings.artefacts):
        others.append(("the artefacts", Path(settings.artefacts)))
    store = open_url(settings.db, shares_loop=True)
    options = Options(
        attempts_max=settings.attempts_max or ATTEMPTS_MAX,
        threads=settings.threads or THREADS_MAX,
        processes=settings.processes,
        process_memory_bytes=settings.process_memory_bytes,
        turn_seconds=TURN_SECONDS_OF_SERVER,
        template_env=settings.template_env,
        pending_ttl_ms=1000 * settings.pending_ttl_secs,
        no_worker_wait_ms=1000 * settings.no_worker_wait_secs,
        worker_ttl_secs=settings.worker_ttl_secs,
        worker_lease_secs=settings.worker_lease_secs,
        public_url=settings.public_url,
        secrets=secrets_of(settings),
        limits=limits.chosen(settings.limits) if settings.limits else None,
        tunes_gc=True,
        retention_days=settings.retention_days,
    )
    artefacts = artefacts_of(settings.artefacts, path, settings.artefact_roots, registry, others)
    engine = Engine(parts_of(store, registry, clock, _in_file(options, path, artefacts)))
    if plugins is not None:
        engine.plugins.use(plugins)
    return engine


def embedded(
    database: str,
    registry: Registry,
    clock: Clock | None,
    options: Options,
    *,
    durability: str,
    artefacts: str | None,
    artefact_roots: Iterable[str | os.PathLike[str]],
) -> Engine:
    """The engine inside a user's own program."""
    path = database_path(database)
    store = open_url(database, durability=durability, threads=not options.manual_clock)
    kept = artefacts_of(artefacts, path, artefact_roots, registry)
    return Engine(parts_of(store, registry, clock, _in_file(options, path, kept)))


def _in_file(options: Options, path: str, artefacts: Artefacts) -> Options:
    """The same, with the files that are stored beside the database file."""
    return msgspec.structs.replace(
        options,
        artefacts=artefacts,
        workdirs=work_beside(path),
        mark=mark_beside(path),
        has_upkeep=True,
    )


# ----------------------------------------------------------------------------------------------------------- the parts


class _Core:
    """The parts that all others use: commits, the door, attempts, and runs in memory."""

    def __init__(self, store: Store, registry: Registry, clock: Clock, options: Options) -> None:
        self.store, self.registry, self.clock, self.options = store, registry, clock, options
        bounds = options.limits or limits.now
        self.polls_max = bounds.polls_max
        self.resident_max = options.resident_max or bounds.resident_max
        self.secrets = options.secrets or Secrets()
        self.outputs = Outputs(self.secrets, options.artefacts)
        self.committer = Committer(store)
        self.gate = Gate(self.committer)
        self.fatal_runs = FatalRuns(store, self.committer, options.mark)
        self.door = Door(self.committer, clock, self.fatal_runs)
        self.door.shares_runs = store.look_every is not None
        self.workers = self._workers()
        self.logs = Logs(self.committer, clock, self.secrets)
        self.dispatch = self._dispatch()
        self.feed = Feed(self.door.watchers, self.dispatch.contexts.hearers)
        self.plans = Plans(
            store, frozenset(options.template_env), options.pending_ttl_ms, options.no_worker_wait_ms
        )
        self.residents = Residents(
            store,
            self.door,
            self.plans,
            self.fatal_runs,
            on_loaded=self.dispatch.inputs.know_secrets,
            on_freed=self.dispatch.slot_is_free,
        )
        if self.workers.assignments.shared is not None:
            self.workers.assignments.shared.job_of = partial(self.dispatch.jobs.of_row, self.residents.stored)
        self.waiters = Waiters(store, self.door, self.residents, self.gate)
        self.alarms = Alarms(clock, self.dispatch.isolation, self.waiters, manual_clock=options.manual_clock)
        self.ownership = Ownership(
            store,
            self.door,
            self.dispatch,
            self.residents,
            self.fatal_runs,
            resident_max=self.resident_max,
        )

    def _workers(self) -> Workers:
        options = self.options
        return Workers(
            self.store,
            self.clock,
            self.committer,
            self.registry.guard,
            ttl_secs=options.worker_ttl_secs,
            lease_secs=options.worker_lease_secs,
            manual_clock=options.manual_clock,
        )

    def _dispatch(self) -> Dispatch:
        options, url = self.options, self.options.public_url
        return Dispatch(
            self.door,
            self.registry,
            self.clock,
            self.workers,
            self.outputs,
            self.logs,
            options.artefacts,
            places=options.attempts_max,
            threads=options.threads,
            processes=options.processes,
            process_memory_bytes=options.process_memory_bytes,
            turn_seconds=options.turn_seconds,
            workdirs=options.workdirs,
            callback_url=None if url is None else CallbackUrls(self.store, url).of,
            may_start=self.store.trusts_lease,
        )


def _commands(
    core: _Core, starts: Starts, runs: Runs, approvals: Approvals, callbacks: Callbacks
) -> Commands:
    served = core.workers.is_served
    planning = Planning(starts, core.registry, core.options.template_env, served)
    return Commands(
        core.store, core.clock, core.gate, core.plans, starts, runs, approvals, callbacks, planning
    )


def _nodes(
    core: _Core, runs: Runs, wakes: Wakes, supplies: Supplies, fires: Fires, outbox: Outbox, kinds: Kinds
) -> Nodes:
    core.store.on_change("needs", supplies.look)
    core.store.on_change("schedules", kinds.look_again)
    core.store.on_change("schedules", fires.query)
    offers = core.workers.assignments.pollers.wake_all
    left = Left(wakes.fill, fires.query, outbox.query, core.feed.look, offers, kinds.waiting.look_again)
    return Nodes(core.store, core.committer, core.door, runs, core.ownership, core.waiters, core.clock, left)


def parts_of(
    store: Store, registry: Registry, clock: Clock | None = None, options: Options | None = None
) -> Parts:
    """The parts of an engine on a store."""
    core = _Core(store, registry, clock or _clock_of(store), options or Options())
    clock, door, gate, manual_clock = core.clock, core.door, core.gate, core.options.manual_clock
    starts = _starts(core)
    runs = Runs(store, door, core.residents, core.ownership, core.alarms, core.outputs, gate)
    approvals = Approvals(store, door, runs, core.outputs)
    callbacks = Callbacks(store, clock, door, runs, core.waiters, core.outputs, gate)
    deliver = partial(callbacks.deliver, by="poll")
    polling = Polling(store, clock, door, runs, registry, deliver, polls_max=core.polls_max)
    memory = Memory(clock, door, core.dispatch, core.workers, core.waiters, core.ownership.drives)
    queries = Queries(store, core.plans, memory, core.options.artefacts)
    outbox = Outbox(store, clock, core.committer, queries, registry, core.secrets, manual_clock=manual_clock)
    fires = Fires(store, clock, core.committer, door, starts, runs.cancel, manual_clock=manual_clock)
    kinds = _kinds(core, starts, runs, queries, fires)
    schedules = Schedules(store, clock, core.committer, fires, starts, kinds.occurrences.lock)
    plugins = Plugins(store, registry, fires, schedules)
    schedules.watchers.append(kinds)
    wakes = _wakes(core, polling, outbox)
    supplies = Supplies(core.ownership, core.workers)
    nodes = _nodes(core, runs, wakes, supplies, fires, outbox, kinds)
    upkeep = _upkeep(core)
    works = core.options.has_upkeep and not manual_clock
    keeper = BoardKeeper(store, core.committer, queries, works=works)
    return Parts(
        store=store,
        registry=registry,
        clock=clock,
        committer=core.committer,
        gate=gate,
        fatal_runs=core.fatal_runs,
        door=door,
        effects=_effects(core, callbacks, polling, outbox, fires, kinds, keeper),
        services=_services(
            core, plugins, outbox, upkeep, keeper, polling, callbacks, wakes, supplies, nodes, fires, kinds
        ),
        commands=_commands(core, starts, runs, approvals, callbacks),
        queries=queries,
        memory=memory,
        plans=core.plans,
        starts=starts,
        runs=runs,
        waiters=core.waiters,
        ownership=core.ownership,
        wakes=wakes,
        timers=core.alarms.timers,
        dispatch=core.dispatch,
        workers=core.workers,
        callbacks=callbacks,
        polling=polling,
        approvals=approvals,
        outbox=outbox,
        fires=fires,
        kinds=kinds,
        schedules=schedules,
        plugins=plugins,
        feed=core.feed,
        upkeep=upkeep,
        secrets=core.secrets,
        options=core.options,
    )


def _clock_of(store: Store) -> Clock:
    return SystemClock() if store.look_every is None else SharedClock(store.clock_offset_ms)


def _starts(core: _Core) -> Starts:
    return Starts(
        core.store,
        core.door,
        core.plans,
        core.residents,
        core.clock,
        core.secrets,
        core.gate,
        template_env=frozenset(core.options.template_env),
        resident_max=core.resident_max,
        admit=core.ownership.admit,
    )


def _wakes(core: _Core, polling: Polling, outbox: Outbox) -> Wakes:
    return Wakes(
        core.store,
        core.clock,
        core.door,
        core.dispatch,
        core.residents,
        core.ownership,
        core.alarms,
        polling,
        on_set_back=outbox.set_clock,
    )


def _kinds(core: _Core, starts: Starts, runs: Runs, queries: Queries, fires: Fires) -> Kinds:
    """The triggers without a clock."""
    store, clock, options = core.store, core.clock, core.options
    occurrences = EventRuns(
        store,
        clock,
        core.committer,
        starts,
        fires.targets,
        fires.tally,
        cancel=runs.cancel,
        redacted=core.outputs.redacted,
    )
    waiting = Waiting(store, clock, occurrences)
    return Kinds(
        store,
        occurrences,
        waiting,
        Hooks(core.secrets),
        RunEnds(core.door, waiting, queries),
        Files(store, clock, occurrences, options.retention_days if options.has_upkeep else None),
        Sources(store, clock, occurrences),
    )


def _effects(
    core: _Core,
    callbacks: Callbacks,
    polling: Polling,
    outbox: Outbox,
    fires: Fires,
    kinds: Kinds,
    keeper: BoardKeeper,
) -> Effects:
    return Effects(
        core.clock,
        core.door,
        core.dispatch,
        core.residents,
        core.alarms,
        core.waiters,
        core.feed,
        callbacks,
        polling,
        outbox,
        fires,
        kinds,
        keeper,
        core.options.artefacts,
    )


def _upkeep(core: _Core) -> Upkeep | None:
    options = core.options
    if not options.has_upkeep or options.artefacts is None:
        return None
    return Upkeep(
        core.store,
        core.clock,
        core.committer,
        options.artefacts,
        options.retention_days,
        manual_clock=options.manual_clock,
    )


def _services(
    core: _Core,
    plugins: Plugins,
    outbox: Outbox,
    upkeep: Upkeep | None,
    keeper: BoardKeeper,
    polling: Polling,
    callbacks: Callbacks,
    wakes: Wakes,
    supplies: Supplies,
    nodes: Nodes,
    fires: Fires,
    kinds: Kinds,
) -> list[Service]:
    """Services in the order in which they are opened; they are closed in reverse.

    Runs are released after everything that could wake them has stopped. The outbox stops after that, because runs
    that finish in the last commits may have final callbacks. Callers that wait for a run are handled last. Schedules
    triggered by the end of a run are known before any run is loaded.
    """
    restore = Restore(core.door, core.dispatch, core.ownership, core.residents.load, core.alarms.arm)
    tidying = [] if upkeep is None else [upkeep]
    waiting = [core.feed, core.waiters]
    return [
        RemoteTools(core.registry),
        *waiting,
        core.workers,
        plugins,
        outbox,
        core.ownership,
        core.logs,
        core.dispatch,
        restore,
        *tidying,
        keeper,
        polling,
        callbacks,
        kinds,
        wakes,
        supplies,
        nodes,
        fires,
    ]
