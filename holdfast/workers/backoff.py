"""Back off when a service has no worker: the first attempt fails at once, repeated ones wait a little first.

Without that, a graph whose failures lead back to the call that failed would go round as fast as it can. Knows how long,
not what a failure leads to. The wait ends as soon as a worker comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections import OrderedDict
from typing import Final

from holdfast.values import RunNo
from holdfast.workers.push import Job
from holdfast.workers.registry import Worker, WorkerRegistry

WAIT_SECONDS: Final = 0.1  # of a step that found no worker once before; doubled each time
WAIT_SECONDS_MAX: Final = 5.0
REMEMBERED_MAX: Final = 10_000  # steps that found no worker

_VISIT = re.compile(r"~\d+")


class Absence:
    def __init__(self, roster: WorkerRegistry) -> None:
        self._found_nobody: OrderedDict[tuple[RunNo, str], int] = OrderedDict()  # how often in a row
        self._waiting: dict[tuple[str, str], dict[asyncio.Event, None]] = {}  # by tenant and service
        roster.when_here = self._wake

    async def wait(self, job: Job) -> None:
        """Wait for a worker for this job, if the same step has found none before. There may still be none."""
        step = _step_of(job)
        times = self._found_nobody.pop(step, 0)
        self._found_nobody[step] = times + 1
        if len(self._found_nobody) > REMEMBERED_MAX:
            self._found_nobody.popitem(last=False)
        if times:
            await self._somebody(job, min(WAIT_SECONDS * 2 ** min(times - 1, 10), WAIT_SECONDS_MAX))

    def is_over(self, job: Job) -> None:
        """A worker was found for this job."""
        if self._found_nobody:
            self._found_nobody.pop(_step_of(job), None)

    async def _somebody(self, job: Job, seconds: float) -> None:
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
    """All visits of a node on a cycle are one step; the items of a loop are not."""
    return job.no, _VISIT.sub("", job.path)
