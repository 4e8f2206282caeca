"""Backs off when a service has no worker: the first attempt fails at once, repeated attempts wait first.

Without this, a graph whose error edge leads back to the failed call would loop as fast as it can. Knows how long to
wait, not what a failure leads to. The wait ends as soon as a worker registers.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from typing import Final

from holdfast.values import RunNo
from holdfast.workers.push import Job
from holdfast.workers.registry import WorkerRegistry
from holdfast.workers.worker import Worker

WAIT_SECONDS: Final = 0.1  # of a step that found no worker once before; doubled each time
WAIT_SECONDS_MAX: Final = 5.0
REMEMBERED_MAX: Final = 10_000  # steps that found no worker

_VISIT = re.compile(r"~\d+")


class Backoff:
    def __init__(self, registry: WorkerRegistry) -> None:
        # how often in a row each step found no worker
        self._misses: OrderedDict[tuple[RunNo, str], int] = OrderedDict()
        self._waiting: dict[tuple[str, str], dict[asyncio.Event, None]] = {}  # by tenant and service
        registry.when_here.append(self._wake)

    async def wait(self, job: Job) -> None:
        """If the same step has found no worker before, wait for one. There may still be none afterwards."""
        step = _step_of(job)
        times = self._misses.pop(step, 0)
        self._misses[step] = times + 1
        if len(self._misses) > REMEMBERED_MAX:
            self._misses.popitem(last=False)
        if times:
            await self._worker_came(job, min(WAIT_SECONDS * 2 ** min(times - 1, 10), WAIT_SECONDS_MAX))

    def is_over(self, job: Job) -> None:
        """A worker was found for this job."""
        if self._misses:
            self._misses.pop(_step_of(job), None)

    async def _worker_came(self, job: Job, seconds: float) -> None:
        place, event = (job.tenant, job.service), asyncio.Event()
        self._waiting.setdefault(place, {})[event] = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await event.wait()
        finally:
            del self._waiting[place][event]
            if not self._waiting[place]:
                del self._waiting[place]

    def _wake(self, worker: Worker) -> None:
        for service in worker.services:
            for event in self._waiting.get((worker.tenant, service), ()):
                event.set()


def _step_of(job: Job) -> tuple[RunNo, str]:
    """All visits of a node on a cycle count as one step; the items of a loop do not."""
    return job.no, _VISIT.sub("", job.path)
