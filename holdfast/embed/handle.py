"""A handle of one run: its status, steps, events and result."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import msgspec

from holdfast.arguments import checked
from holdfast.embed.records import RunInfo, StepInfo, run_info, step_info
from holdfast.errors import RunCancelled, RunEnded, RunFailed, RunInterrupted, StoreUnavailable
from holdfast.runtime.engine import Engine
from holdfast.runtime.resident_run import ResidentRun
from holdfast.values import Error, RunId, RunNo
from holdfast.views.events import Events, RunEvent, events_of
from holdfast.views.outputs import output_of
from holdfast.views.step_pages import read_steps

_ENDED: dict[str, type[RunEnded]] = {
    "failed": RunFailed,
    "cancelled": RunCancelled,
    "interrupted": RunInterrupted,
}


class RunHandle:
    """One run, by its id."""

    __slots__ = ("_ended", "_engine", "_no", "id")

    def __init__(self, engine: Engine, no: RunNo, run_id: RunId) -> None:
        self._engine, self._no = engine, no
        self._ended: ResidentRun | None = None
        self.id = run_id

    def __repr__(self) -> str:
        return f"<run {self.id}>"

    async def status(self) -> str:
        """The status of the run, as of its last durable row."""
        return (await self._engine.runs.row_of(self.id)).status

    async def info(self) -> RunInfo:
        """The run as lists show it."""
        return run_info(await self._engine.runs.row_of(self.id))

    @checked
    async def steps(self, *, every: bool = False) -> dict[str, StepInfo]:
        """The steps reached so far, by path: top-level and failed steps, or all of them with `every`."""
        resident = await self._engine.runs.find(self.id)
        found = await read_steps(self._engine.store, resident.plan, resident.run, every=every)
        return {path: step_info(self.id, step) for path, step in found.items()}

    async def events(self) -> AsyncIterator[RunEvent]:
        """Every event of the run from its start, then new ones as they happen, until it ends."""
        row = await self._engine.runs.row_of(self.id)
        plan = await self._engine.plans.of_version(row.tenant, row.version)
        engine = self._engine
        engine.waiters.check(row.no)
        found = events_of(engine.store, engine.feed, row.no, Events(row.id, plan.steps_total))
        async with aclosing(found) as events:
            async for event in events:
                yield event

    @checked
    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the run and return its output; raises RunFailed, RunCancelled or RunInterrupted if it does not complete."""
        if self._ended is None:
            waiters = self._engine.waiters
            self._ended = await (waiters.ended(self._no) if timeout is None else self._wait(timeout))
        resident = self._ended
        run = resident.run
        if run.status == "completed":
            return await output_of(self._engine.store, resident.plan, run)
        error = _ENDED[run.status](run.id, run.error or Error(run.status, f"the run is {run.status}"))
        await self._note_traceback(error)
        raise error

    async def _note_traceback(self, error: RunEnded) -> None:
        """Show where the tool raised below the error, as part of its own traceback."""
        cause = error.error
        while cause.cause is not None:
            cause = cause.cause
        with contextlib.suppress(StoreUnavailable):
            found = await self._engine.store.log_lines(
                self._no, 0, 1, path=cause.path, attempt=cause.attempt, level="traceback"
            )
            for line in found:
                error.add_note(
                    f"in the tool of step {line.path}, attempt {line.attempt}:\n{line.text.rstrip()}"
                )

    async def _wait(self, timeout: float) -> ResidentRun:
        try:
            return await asyncio.wait_for(self._engine.waiters.ended(self._no), timeout)
        except TimeoutError:
            raise TimeoutError(
                f"run {self.id} has not finished after {timeout} s: {await self._why()}"
            ) from None

    async def _why(self) -> str:
        row = await self._engine.runs.row_of(self.id)
        if not row.needs:
            return f"it is {row.status}"
        needs = [name.replace("service:", "a worker for ") for name in msgspec.json.decode(row.needs)]
        return f"it is {row.status} and needs {', '.join(needs)}"
