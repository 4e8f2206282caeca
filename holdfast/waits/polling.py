"""Polls a `poll_url` for the result of a pending call; of one that is a task of an MCP server, asks that server.

A poll that finds no result changes nothing. The last poll of a wait decides whether the wait expires. Servers that answer slowly share
a few places, so that they do not keep other polls from being made. If a wait for a task ends in another way, as by a cancel of the run,
the server is asked to stop, a few times if it cannot be reached; it is a courtesy, and no promise outlives the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

from holdfast.engine.events import TimerFired
from holdfast.execution.large_results import compact, large_head_of
from holdfast.plan.answers import AnswerFailed, later
from holdfast.runtime.clock import Clock
from holdfast.runtime.door import Door
from holdfast.runtime.places import Places, Slow
from holdfast.runtime.resident_run import ResidentRun
from holdfast.runtime.runs import Runs
from holdfast.runtime.service import Service
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import RunRow, WaitClosed
from holdfast.tools.failures import ToolError
from holdfast.tools.http import get
from holdfast.tools.registry import Registry
from holdfast.values import TASK_URL, TERMINAL, NotJson, RunId, RunNo, decode, encode
from holdfast.waits.tasks import Tasks

log = logging.getLogger("holdfast")

POLL_SECONDS: Final = 8.0  # limit of one poll: less than the last one of a wait may take
POLLS_TO_ONE_MAX: Final = 32  # polls at once of one server, or of all slow servers together
# a poll that waited longer than this for a place gives its wait that time back
QUEUED_SECONDS_LEAST: Final = 0.1
POLL_AGAIN_SECONDS: Final = 1.0  # doubled each time, during the time that was given back
QUEUED_MAX: Final = 10_000  # waits whose time in the queue is remembered
ANSWERED: Final = ("resume", "poll")  # outcomes of waits that got their result
LET_GO_PAUSE_MAX: Final = 16.0
SLOW: Final = "slow"  # the queue of all servers whose last poll was slow; no origin has this name

# Deliver a result that a poll found: run, path, attempt, JSON text.
Deliver = Callable[[RunRow, str, int, bytes], Awaitable[object]]


class Polling(Service):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        door: Door,
        runs: Runs,
        registry: Registry,
        deliver: Deliver,
        *,
        polls_max: int,
    ) -> None:
        self._store, self._clock, self._door, self._runs = store, clock, door, runs
        self._registry, self._deliver = registry, deliver
        if registry.has_tasks:
            door.watchers.append(self._committed)
        self._tasks = Tasks()
        self._polled: dict[tuple[RunNo, str], asyncio.Task[None]] = {}
        self._last_polls: set[tuple[RunNo, str]] = set()  # polls whose failure ends the wait
        self._polls, self._slow = Places(polls_max, POLLS_TO_ONE_MAX), Slow[tuple[str, str]]()
        # Seconds in which the polls of a wait waited for a place.
        self._queued: OrderedDict[tuple[RunNo, str, int], float] = OrderedDict()

    @property
    def is_busy(self) -> bool:
        return bool(self._polled)

    @property
    def held_back(self) -> int:
        """How many expired waits stay open until their last poll has returned."""
        return len(self._last_polls)

    def abandon(self, error: Exception | None = None) -> None:
        self._tasks.close()

    def poll(self, resident: ResidentRun, path: str, attempt: int) -> None:
        """Poll once for the result of a call. A poll without a result changes nothing."""
        step = resident.run.steps.get(path)
        if step is None or step.wait is None or step.attempt != attempt:
            return
        key = (resident.run.no, path)
        if step.wait.is_last_poll:
            self._last_polls.add(key)
        if key not in self._polled:
            # read now: the wait may have ended when the poll is made
            url = decode(step.wait.detail)["poll_url"]
            self._polled[key] = self._tasks.begin(
                self._poll, resident.run.tenant, resident.run.id, key, attempt, url
            )

    def polls_first(self, resident: ResidentRun, path: str) -> bool:
        """Whether the expiry of a wait is postponed until a last poll has returned. If the process that was to make
        the last poll has ended, it is made now."""
        step = resident.run.steps.get(path)
        if step is None or step.wait is None or not step.wait.is_last_poll:
            return False
        self.poll(resident, path, step.attempt)
        return True

    async def _poll(self, tenant: str, run_id: RunId, key: tuple[RunNo, str], attempt: int, url: str) -> None:
        path = key[1]
        try:
            is_there, answer = await self._poll_once(url, tenant, run_id, (*key, attempt))
            if not is_there and key in self._last_polls:
                is_there, answer = await self._poll_further(url, tenant, run_id, (*key, attempt))
            if is_there:
                row = await self._runs.row_of(run_id, tenant)
                await self._deliver(row, path, attempt, answer)
            elif key in self._last_polls:
                await self._expire(await self._runs.row_of(run_id, tenant), path, attempt)
        finally:
            self._last_polls.discard(key)
            del self._polled[key]

    async def _poll_further(
        self, url: str, tenant: str, run_id: RunId, key: tuple[RunNo, str, int]
    ) -> tuple[bool, bytes]:
        """The wait has expired, but its polls spent some of that time in a queue: continue polling for as long."""
        again = POLL_AGAIN_SECONDS
        left = self._queued.pop(key, 0.0)
        while left > 0:
            delay, again = min(again, left), again * 2
            left -= delay
            await asyncio.sleep(delay)
            is_there, answer = await self._poll_once(url, tenant, run_id, key)
            if is_there:
                return True, answer
            left += self._queued.pop(key, 0.0)
        return False, b""

    async def _poll_once(
        self, url: str, tenant: str, run_id: RunId, key: tuple[RunNo, str, int]
    ) -> tuple[bool, bytes]:
        """Poll once; returns the result if there is one."""
        origin = (tenant, _origin(url))
        asked = self._clock.monotonic()
        async with self._polls.at((tenant, SLOW) if origin in self._slow else origin):
            began, place = self._clock.monotonic(), url
            try:
                if url.startswith(TASK_URL):
                    has_ended, result = await self._registry.poll_task(url)
                    return has_ended, encode(result)
                content, place = await get(self._registry.guard, url, POLL_SECONDS)
                answer = await compact(content)
                return later(await large_head_of(answer)) is None, answer
            except NotJson as error:
                log.info(
                    "run %s: step %s: %s answered something else than JSON: %s", run_id, key[1], place, error
                )
                return False, b""
            except (ToolError, AnswerFailed) as error:
                log.info("run %s: step %s has no answer at its poll_url yet: %s", run_id, key[1], error)
                return False, b""
            finally:
                self._slow.took(origin, self._clock.monotonic() - began)
                self._note_queued(key, began - asked)

    def _committed(self, batch: Batch, entries: object, seconds: float) -> None:
        """Waits that were closed without a result: if one was for a task, its server is asked to stop."""
        for one in batch.closed_waits:
            if one.kind == "callback" and one.outcome not in ANSWERED:
                _ = self._tasks.begin(self._let_go, one)

    async def _let_go(self, closed: WaitClosed) -> None:
        row = await self._store.wait_at(closed.no, closed.path, closed.kind, closed.attempt)
        url = "" if row is None else decode(row.detail.encode()).get("poll_url", "")
        pause = POLL_AGAIN_SECONDS
        while url.startswith(TASK_URL) and pause <= LET_GO_PAUSE_MAX:
            try:
                await self._registry.cancel_task(url)
                return
            except ToolError as error:
                log.info("the task of step %s could not be cancelled: %s", closed.path, error)
            await asyncio.sleep(pause)
            pause *= 2

    def _note_queued(self, key: tuple[RunNo, str, int], seconds: float) -> None:
        if seconds >= QUEUED_SECONDS_LEAST:
            self._queued[key] = self._queued.pop(key, 0.0) + seconds
            if len(self._queued) > QUEUED_MAX:
                self._queued.popitem(last=False)

    async def _expire(self, row: RunRow, path: str, attempt: int) -> None:
        """The last poll brought no result: the wait expires now."""
        if row.status not in TERMINAL:
            resident = await self._runs.hold(row)
            step = resident.run.steps.get(path)
            if (
                step is not None
                and step.attempt == attempt
                and step.wait is not None
                and not resident.is_elsewhere
            ):
                self._door.apply(resident, TimerFired(path, "expiry"))


def _origin(url: str) -> str:
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.hostname}:{parts.port}"
    except ValueError:
        return ""  # it cannot be polled either
