"""Waiting for a run until it has finished, or until it asks for something that a caller can give.

Looks into the memory of the engine that drives the run; what it returns is read from committed rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from holdfast.errors import RunSetAside, Unavailable
from holdfast.runtime.resident_run import ResidentRun
from holdfast.values import TERMINAL, RunNo
from holdfast.views.events import Feed
from holdfast.views.open_waits import Wait
from holdfast.views.run_view import RunView
from holdfast.views.runs import Queries

ASKED: Final = frozenset({"approval", "signal", "condition"})  # waits that a caller of a tool can end


class Asking:
    def __init__(self, queries: Queries, feed: Feed, residents: Mapping[RunNo, ResidentRun]) -> None:
        self._queries, self._feed, self._residents = queries, feed, residents

    def through(self, queries: Queries) -> Asking:
        """The same for a caller with queries of its own."""
        return Asking(queries, self._feed, self._residents)

    async def wait_for(self, tenant: str, run_id: str, seconds: float) -> RunView:
        """Return the run once it has finished or asks for something, or as it is when the time is up."""
        try:
            async with asyncio.timeout(seconds):
                return await self._settled(tenant, run_id)
        except TimeoutError:
            pass
        except Unavailable:
            raise
        except RunSetAside:
            pass  # it is shown as it is
        return await self._queries.run(tenant, run_id)

    async def _settled(self, tenant: str, run_id: str) -> RunView:
        no = await self._queries.number_of_run(tenant, run_id)
        reader = self._feed.follow(no)
        try:
            while True:
                reader.more.clear()  # before looking: later commits set it again
                if reader.error is not None:
                    raise reader.error
                resident = self._residents.get(no)
                if resident is None or is_resting(resident):
                    view = await self._queries.run(tenant, run_id)  # what memory knows may not be durable yet
                    if view.status in TERMINAL or asks(view) or view.set_aside is not None:
                        return view
                await reader.more.wait()
        finally:
            self._feed.leave(no, reader)


def asks(view: RunView) -> list[Wait]:
    """What a run waits for that a caller can give."""
    return [wait for wait in view.waits if wait.kind in ASKED]


def is_resting(resident: ResidentRun) -> bool:
    """Whether a run has finished, or nothing of it is in progress."""
    run = resident.run
    return run.over or not any(step.state in ("running", "ready") for step in run.steps.values())
