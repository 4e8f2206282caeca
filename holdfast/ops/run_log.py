"""The server's log of runs: one line for each that starts, ends or fails; counted together when there are many in a second.

Reads whole commits, so a step costs nothing. Knows no log format and no terminal: the handlers redact and escape.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from holdfast.engine.events import RunStarted
from holdfast.runtime.door import Door
from holdfast.runtime.entries import Entry
from holdfast.runtime.resident_run import ResidentRun
from holdfast.store.batch import Batch

log = logging.getLogger("holdfast.runs")

LINES_MAX: Final = 10  # lines in one second; further events are counted
MESSAGE_CHARS_MAX: Final = 500


class RunLog:
    def __init__(self, door: Door) -> None:
        self._lines = 0
        self._counts: dict[str, int] = {}  # by what happened, beyond the lines of this second
        self._last_failure = ""
        self._timer: asyncio.TimerHandle | None = None
        door.watchers.append(self._committed)

    def close(self) -> None:
        """Write what was counted and not written yet."""
        if self._timer is not None:
            self._timer.cancel()
            self._second_is_over()

    def _committed(self, batch: Batch, entries: list[Entry], seconds: float) -> None:
        if not batch.new_runs and not any(change.finished_at for change in batch.changes.values()):
            return
        ended = {no for no, change in batch.changes.items() if change.finished_at}
        for resident, event, _, _ in entries:
            if type(event) is RunStarted:
                self._say(resident, "started", logging.INFO, "")
            if resident.run.no in ended and resident.run.over:
                ended.discard(resident.run.no)
                self._ended(resident)

    def _ended(self, resident: ResidentRun) -> None:
        run = resident.run
        if run.status == "completed":
            return self._say(resident, "completed", logging.INFO, f" after {_span(run.at - run.created_at)}")
        level = logging.WARNING if run.status == "failed" else logging.INFO
        error, why = run.error, ""
        if error is not None:
            at = f" at step {error.path}" if error.path else ""
            why = f"{at}: {error.message[:MESSAGE_CHARS_MAX]} [{error.kind}]"
        self._say(resident, run.status, level, why)

    def _say(self, resident: ResidentRun, what: str, level: int, why: str) -> None:
        if not log.isEnabledFor(level):
            return
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(1, self._second_is_over)
        self._lines += 1
        run, name = resident.run, resident.plan.name
        if self._lines > LINES_MAX:
            self._counts[what] = self._counts.get(what, 0) + 1
            if level > logging.INFO:
                self._last_failure = f"run {run.id} of {name} {what}{why}"
            return
        log.log(level, "run %s of %s %s%s", run.id, name, what, why, extra={"run_id": run.id})

    def _second_is_over(self) -> None:
        counts, last = self._counts, self._last_failure
        self._timer, self._lines, self._counts, self._last_failure = None, 0, {}, ""
        if counts:
            said = ", ".join(f"{count:,} {what}" for what, count in counts.items())
            rest = f"; the last failure: {last}" if last else ""
            level = logging.WARNING if last else logging.INFO
            log.log(level, "more runs in this second: %s%s", said, rest)


def _span(millis: int) -> str:
    return f"{millis} ms" if millis < 1000 else f"{millis / 1000:.1f} s"
