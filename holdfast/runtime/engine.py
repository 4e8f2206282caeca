"""The engine of one process: opens the store and its services in order, and closes them in reverse.

Knows when each part begins and ends, and none of their rules. `compose.py` puts the parts together.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from holdfast import limits
from holdfast.deliveries.outbox import Outbox
from holdfast.errors import EngineClosed, NodeIsOver, StoreUnavailable
from holdfast.execution.dispatcher import Dispatch
from holdfast.ops.upkeep import Upkeep
from holdfast.runtime import collector
from holdfast.runtime.clock import Clock
from holdfast.runtime.commands import Commands
from holdfast.runtime.committer import Committer
from holdfast.runtime.door import Door
from holdfast.runtime.effect_handler import EffectHandler
from holdfast.runtime.fatal_runs import FatalRuns
from holdfast.runtime.gate import Gate
from holdfast.runtime.options import Options
from holdfast.runtime.ownership import Ownership
from holdfast.runtime.plans import Plans
from holdfast.runtime.runs import Runs
from holdfast.runtime.service import Service
from holdfast.runtime.starts import Starts
from holdfast.runtime.timers import Timers
from holdfast.runtime.waiters import CLOSED, Waiters
from holdfast.runtime.wakes import Wakes
from holdfast.store.base import Store
from holdfast.tools.registry import Registry
from holdfast.tools.secrets import Secrets
from holdfast.triggers.fires import Fires
from holdfast.triggers.kinds import Kinds
from holdfast.triggers.plugins import Plugins
from holdfast.triggers.schedules import Schedules
from holdfast.views.events import Feed
from holdfast.views.memory import Memory
from holdfast.views.runs import Queries
from holdfast.waits.approvals import Approvals
from holdfast.waits.callbacks import Callbacks
from holdfast.waits.polling import Polling
from holdfast.workers.service import Workers

log = logging.getLogger("holdfast")

AGAIN_SECONDS: Final = 1.0  # after a restoration that failed


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """The parts of an engine. `services` are the parts that are opened and closed, in this order."""

    store: Store
    registry: Registry
    clock: Clock
    committer: Committer
    gate: Gate
    fatal_runs: FatalRuns
    door: Door
    effects: EffectHandler
    services: list[Service]
    commands: Commands
    queries: Queries
    memory: Memory
    plans: Plans
    starts: Starts
    runs: Runs
    waiters: Waiters
    ownership: Ownership
    wakes: Wakes
    timers: Timers
    dispatch: Dispatch
    workers: Workers
    callbacks: Callbacks
    polling: Polling
    approvals: Approvals
    outbox: Outbox
    fires: Fires
    kinds: Kinds
    schedules: Schedules
    plugins: Plugins
    feed: Feed
    upkeep: Upkeep | None
    secrets: Secrets
    options: Options


class Engine:
    def __init__(self, parts: Parts) -> None:
        self.store, self.registry, self.clock = parts.store, parts.registry, parts.clock
        self.committer, self.gate, self.door = parts.committer, parts.gate, parts.door
        self.commands, self.queries, self.memory = parts.commands, parts.queries, parts.memory
        self.plans, self.starts, self.runs, self.waiters = (
            parts.plans,
            parts.starts,
            parts.runs,
            parts.waiters,
        )
        self.ownership, self.wakes, self.timers = parts.ownership, parts.wakes, parts.timers
        self.dispatch, self.workers = parts.dispatch, parts.workers
        self.callbacks, self.polling, self.approvals = parts.callbacks, parts.polling, parts.approvals
        self.outbox, self.feed, self.upkeep = parts.outbox, parts.feed, parts.upkeep
        self.fires, self.kinds = parts.fires, parts.kinds
        self.schedules, self.plugins = parts.schedules, parts.plugins
        self.secrets, self.artefacts = parts.secrets, parts.options.artefacts
        self.services = parts.services
        self._fatal_runs, self._options = parts.fatal_runs, parts.options
        self._restoring: set[asyncio.Task[None]] = set()
        self.taken_over: Exception | None = None  # why this engine can write nothing more
        self._tell_over: Callable[[], None] = lambda: None
        self.door.connect(parts.effects, self)

    @property
    def is_open(self) -> bool:
        return self.gate.is_open

    # ------------------------------------------------------------------------------------------ open and close

    async def open(self, *, drive: bool = True) -> None:
        """Claim the database. With `drive`, continue every open run in it; otherwise act only on the runs that a
        caller names."""
        async with contextlib.AsyncExitStack() as undo:  # if opening fails
            limits.hold(self, self._options.limits)
            undo.callback(limits.let_go, self)
            await self.store.open()
            undo.push_async_callback(self.store.close)
            undo.callback(self._fail_to_open)
            await self._open(drive=drive)
            undo.pop_all()

    def _fail_to_open(self) -> None:
        self.gate.is_open = False
        self.abandon()

    async def _open(self, *, drive: bool) -> None:
        if self._options.workdirs is not None:
            # of attempts that an earlier process left open
            shutil.rmtree(self._options.workdirs, ignore_errors=True)
        if self.artefacts is not None:
            if self.artefacts.is_undivided:
                self.artefacts.divide(await self.store.artefacts_of_tenants())
            if self.artefacts.is_remote:
                await self.artefacts.work(self.artefacts.check)
        if self._options.tunes_gc:
            collector.tune()
        self.door.quarantined.update(await self._fatal_runs.open(self.clock))
        self.door.watch(self._fatal_runs)
        self.gate.is_open = True
        for service in self.services:
            await service.open(drive=drive)

    async def close(self) -> None:
        """Stop gracefully: give back open attempts, commit that, and release the database."""
        self.gate.is_open = False
        # in reverse; an error in one does not keep the others from closing
        async with contextlib.AsyncExitStack() as last:
            last.callback(limits.let_go, self)
            last.callback(self._fatal_runs.mark.close)
            last.push_async_callback(self.store.close)
            last.callback(self.committer.close)
            await self._close_services()

    async def _close_services(self) -> None:
        left = list(self.services)
        try:
            if self._restoring:
                await asyncio.wait(self._restoring)  # they finish soon, because the gate is closed
            while left:
                await left[-1].close()
                left.pop()
        finally:
            for service in reversed(left):
                service.abandon(EngineClosed(CLOSED))

    def abandon(self, error: Exception | None = None) -> None:
        """Stop every service at once, as a kill would: nothing more is written. `error` is raised in callers that
        wait for a run."""
        for task in self._restoring:
            task.cancel()
        for service in reversed(self.services):
            service.abandon(error)

    # ---------------------------------------------------------------------------- what the committer says (Process)

    def restored(self) -> None:
        """Commits work again: every service does what it missed."""
        task = asyncio.get_running_loop().create_task(self._restore())
        self._restoring.add(task)
        task.add_done_callback(self._restoring.discard)

    async def _restore(self) -> None:
        # Also while the engine is being closed: otherwise attempts of dropped runs could not be given back.
        while not self.committer.is_shut:
            try:
                for service in self.services:
                    await service.restored()
                break
            except StoreUnavailable as error:
                if not self.is_open:
                    break
                log.warning("cannot read runs now; retrying later: %s", error)
                await asyncio.sleep(AGAIN_SECONDS)

    def over(self, error: BaseException) -> None:
        """This process may not write any more."""
        if isinstance(error, SystemExit):
            self.abandon()
            log.critical("%s", error)
            os._exit(70)
        self.taken_over = error if isinstance(error, Exception) else NodeIsOver(str(error))
        log.error("%s", error)
        self.abandon(self.taken_over)
        self._tell_over()

    def when_over(self, call: Callable[[], None]) -> None:
        """To be called once this engine can write nothing more."""
        self._tell_over = call
        if self.taken_over is not None:
            call()
