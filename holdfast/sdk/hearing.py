"""What a call of a worker logs and prints: `context.log`, `logging`, standard output and standard error.

Knows calls as contexts of Python. Installed while a worker runs; what other code of the process says is only passed on. The
server keeps the lines with the attempt, and removes the secrets, which a worker does not know.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, Self, TextIO

from holdfast import limits
from holdfast.tools import log_records
from holdfast.tools.context import line_of

UNFINISHED_CHARS_MAX: Final = 10_000  # of a line that has no end yet

current: ContextVar[Heard | None] = ContextVar("holdfast_call", default=None)


class Heard:
    """The lines of one call, as many as an attempt may log. `when_first` is called when there are lines to send."""

    def __init__(self, when_first: Callable[[], None] = lambda: None) -> None:
        self._lines: list[dict[str, str]] = []
        self._count = self._size = 0
        self._begun: dict[str, str] = {}  # lines without an end, by stream
        self._when_first = when_first

    def add(self, level: str, text: str) -> None:
        """Keep a line, from any thread. The server says that further lines were dropped, as it counts too."""
        if self._count > limits.now.log_lines_max or self._size > limits.now.log_bytes_max:
            return
        self._count, self._size = self._count + 1, self._size + len(text) + 1
        self._lines.append({"level": level, "message": text})
        if len(self._lines) == 1:
            self._when_first()

    def emit(self, kind: str, data: dict[str, Any]) -> None:
        """What `context.log` says."""
        if kind == "log":
            self.add(data.get("stream", "info"), line_of(data))

    def printed(self, stream: str, text: str) -> None:
        *lines, rest = (self._begun.get(stream, "") + text).split("\n")
        if len(rest) > UNFINISHED_CHARS_MAX:
            lines, rest = [*lines, rest], ""
        self._begun[stream] = rest
        for line in lines:
            self.add(stream, line)

    def taken(self, *, is_end: bool = False) -> list[dict[str, str]]:
        """The lines since the last call of this."""
        if is_end:
            for stream, rest in self._begun.items():
                if rest:
                    self.add(stream, rest)
            self._begun = {}
        taken, self._lines = self._lines, []
        return taken


class Hearing:
    """Hears calls while this context is open."""

    def __enter__(self) -> Self:
        log_records.listen(self)
        both = {"stdout": sys.stdout, "stderr": sys.stderr}
        # a process without a terminal may have none
        self._streams = {name: _Stream(under, name) for name, under in both.items() if under is not None}
        for name, stream in self._streams.items():
            setattr(sys, name, stream)
        return self

    def __exit__(self, *_: object) -> None:
        log_records.stop_listening(self)
        for name, stream in self._streams.items():
            if getattr(sys, name) is stream:
                setattr(sys, name, stream.under)

    def heard(self, record: logging.LogRecord) -> None:
        call = current.get()
        if call is not None:
            # arguments that do not fit the format are reported by logging itself
            with contextlib.suppress(Exception):
                call.add(record.levelname.lower(), record.getMessage())


class _Stream:
    """A standard stream that also gives what a call prints to the call."""

    def __init__(self, under: TextIO, name: str) -> None:
        self.under, self._name = under, name

    def write(self, text: str) -> int:
        heard = current.get()
        # A handler of `logging` writes here too; the line was heard already.
        if heard is not None and not _is_logging():
            heard.printed(self._name, text)
        return self.under.write(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def close(self) -> None:
        """Only flush: the worker and its other calls go on writing here."""
        self.under.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.under, name)


def _is_logging() -> bool:
    return sys._getframe(2).f_globals.get("__name__") == "logging"
