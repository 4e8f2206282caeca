"""Log lines of attempts: what tools say with `context.log`, with `logging` and with `print`, and the traceback of what they raise.

    context.log ────┐                                   ┌─ with the row that ends the attempt
    logging, print ─┼──► lines of the attempt, bounded ─┤
    exception ──────┘                                   └─ after a second, if it goes on

An attempt that logs nothing costs nothing here. Lines are not events: they may be lost with the process that wrote them, and no
decision depends on them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

from holdfast import limits
from holdfast.errors import HoldfastError
from holdfast.execution.attempt import Attempt, Lines
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.runtime.service import Service
from holdfast.store.batch import Batch
from holdfast.store.records import NewLogLine
from holdfast.tools import log_records, prints
from holdfast.tools.secrets import Secrets
from holdfast.tools.tracebacks import shortened

log = logging.getLogger("holdfast")
tracebacks = logging.getLogger("holdfast.tracebacks")

WRITE_AFTER_SECONDS: Final = 1.0
TRACEBACKS_MAX: Final = 10  # in the log, in one second; all of them are stored
TRACEBACK: Final = "traceback"

# The attempt that the code in this task or thread belongs to; the runner of tools that never wait is not a task of theirs.
current: ContextVar[Attempt | None] = ContextVar("holdfast_attempt", default=None)


class Logs(Service):
    def __init__(self, committer: Committer, clock: Clock, secrets: Secrets) -> None:
        self._committer, self._clock, self._secrets = committer, clock, secrets
        self.at_hand: Callable[[], Attempt | None] = lambda: None  # the attempt that the runner performs
        self._unwritten: list[Lines] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._second = self._raised = 0  # how many tracebacks were raised in which second

    # ------------------------------------------------------------------------------------------- open and close

    async def open(self, *, drive: bool) -> None:
        """Hear what tools say with `logging`."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        log_records.listen(self)
        prints.listen(self)

    async def close(self) -> None:
        self._stop_hearing()
        await self._write()

    def abandon(self, error: Exception | None = None) -> None:
        self._stop_hearing()

    def _stop_hearing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        log_records.stop_listening(self)
        prints.stop_listening(self)
        self._loop = None

    # -------------------------------------------------------------------------------------------------- hearing

    def heard(self, record: logging.LogRecord) -> None:
        if self._loop is None:
            return
        attempt = current.get() or (self.at_hand() if threading.get_ident() == self._thread else None)
        if attempt is not None:
            self._hear(attempt, record)

    def printed(self, stream: str, text: str) -> None:
        """A tool of this process has printed, or other code has."""
        if self._loop is None:
            return
        attempt = current.get() or (self.at_hand() if threading.get_ident() == self._thread else None)
        if attempt is None:
            return
        lines = attempt.lines = attempt.lines or Lines()
        begun = lines.printed = lines.printed or {}
        for line in begun.setdefault(stream, prints.Lines()).taken(text):
            self.say(attempt, stream, self._redacted(attempt, line))

    def _hear(self, attempt: Attempt, record: logging.LogRecord) -> None:
        try:
            text = self._redacted(attempt, record.getMessage())
        except Exception:  # noqa: BLE001  # arguments that do not fit the format are reported by logging itself
            return
        self.say(attempt, record.levelname.lower(), text)

    def _redacted(self, attempt: Attempt, text: str) -> str:
        """The line without secrets, also those that began in the lines before it."""
        if not self._secrets.are_known:
            return text
        lines = attempt.lines = attempt.lines or Lines()
        if lines.redact is None:
            lines.redact = self._secrets.lines()
        return self._secrets.redact(lines.redact(text))

    def say(self, attempt: Attempt, level: str, text: str) -> None:
        """Keep a line of an attempt, from any thread. Its secrets are redacted."""
        if threading.get_ident() == self._thread:
            self.add(attempt, level, text)
        elif self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self.add, attempt, level, text)
            except RuntimeError:  # the loop was closed meanwhile
                return

    def add(self, attempt: Attempt, level: str, text: str) -> None:
        """Keep a line of an attempt."""
        if self._loop is None:
            return
        lines = attempt.lines = attempt.lines or Lines()
        if level != TRACEBACK:
            if lines.count >= limits.now.log_lines_max or lines.size >= limits.now.log_bytes_max:
                return
            lines.count, lines.size = lines.count + 1, lines.size + len(text.encode("utf-8", "replace")) + 1
            if lines.count == limits.now.log_lines_max or lines.size >= limits.now.log_bytes_max:
                level, text = "warning", _dropped("an attempt", "log_lines_max", "log_bytes_max")
        mark = _dropped("a run", "run_log_lines_max")
        most, at = limits.now.run_log_lines_max, self._clock.now()
        safe = text.encode("utf-8", "replace").decode()
        row = NewLogLine(attempt.no, attempt.path, attempt.number, at, level, safe, most, mark)
        if not lines.rows:
            self._unwritten.append(lines)
        lines.rows.append(row)
        if self._timer is None:
            self._timer = self._loop.call_later(WRITE_AFTER_SECONDS, self._begin_writing)

    def raised(self, attempt: Attempt, text: str) -> None:
        """Keep the traceback of what the tool of an attempt raised."""
        text = shortened(self._secrets.redact(text))
        if tracebacks.isEnabledFor(logging.INFO):
            self._log_traceback(attempt, text)
        self.add(attempt, TRACEBACK, text)

    def _log_traceback(self, attempt: Attempt, text: str) -> None:
        second = self._clock.now() // 1000
        self._raised = self._raised + 1 if second == self._second else 1
        self._second = second
        if self._raised <= TRACEBACKS_MAX:
            tracebacks.info("attempt %d of step %s raised:\n%s", attempt.number, attempt.path, text.rstrip())
        elif self._raised == TRACEBACKS_MAX + 1:
            tracebacks.info(
                "more attempts failed in this second; holdfast runs show RUN --trace shows their tracebacks"
            )

    # -------------------------------------------------------------------------------------------------- writing

    def ended(self, attempt: Attempt, batch: Batch) -> None:
        """Write the lines of an attempt with the row that ends it."""
        if attempt.lines is None:
            return
        for stream, begun in (attempt.lines.printed or {}).items():
            for line in begun.rest():
                self.add(attempt, stream, self._redacted(attempt, line))
        if attempt.lines.rows:
            batch.logs += attempt.lines.rows
            attempt.lines.rows = []

    def _begin_writing(self) -> None:
        self._timer = None
        if self._writing is None and self._loop is not None:
            self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        """Write the lines of attempts that go on, and of those that logged after their end."""
        batch = Batch()
        for lines in self._unwritten:
            batch.logs += lines.rows
            lines.rows = []
        self._unwritten = []
        try:
            if batch.has_rest:
                await self._committer.commit(batch)
        except HoldfastError as error:
            log.warning("log lines of attempts were dropped: %s", error)
        finally:
            self._writing = None


def _dropped(of: str, *names: str) -> str:
    allowed = " or ".join(
        f"{getattr(limits.now, name):,} {'bytes' if 'bytes' in name else 'lines'}" for name in names
    )
    return f"further lines were dropped: {of} may log {allowed} ({', '.join(map(limits.met, names))})"
