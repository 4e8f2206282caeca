"""What tools print in this process. The standard streams of Holdfast's own commands redact it, and pass it to the
engines, which keep the lines of each attempt.

    print ──► Stream ──┬──► the stream of the command, redacted
                       └──► listeners: whose attempt is it?

Only commands install these streams: in a program that embeds an engine, the standard streams belong to the program.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterable
from typing import Any, Protocol, TextIO

from holdfast.tools.secrets import Secrets


class Listener(Protocol):
    def printed(self, stream: str, text: str) -> None:
        """Code in this thread has printed to `stdout` or `stderr`."""


_listeners: weakref.WeakSet[Listener] = weakref.WeakSet()


def listen(listener: Listener) -> None:
    _listeners.add(listener)


def stop_listening(listener: Listener) -> None:
    _listeners.discard(listener)


class Stream:
    """A standard stream of a command."""

    def __init__(self, under: TextIO, name: str, secrets: Secrets) -> None:
        self._under, self._name = under, name
        self._redacted = secrets.lines()  # a value may be written in pieces

    def write(self, text: str) -> int:
        if not _is_logging():  # a handler of `logging` writes here too; its line was heard already
            for listener in tuple(_listeners):
                listener.printed(self._name, text)
        return self.pass_on(text)

    def pass_on(self, text: str) -> int:
        self._under.write(self._redacted(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def close(self) -> None:
        """Only flush: without its standard streams the command would end at its next message."""
        self._under.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._under, name)


def install(secrets: Secrets) -> None:
    """Pass on what tools print to the standard streams of this process, without secrets."""
    for name in ("stdout", "stderr"):
        if (stream := getattr(sys, name)) is not None and not isinstance(stream, Stream):
            setattr(sys, name, Stream(stream, name, secrets))


def show(stream: str, line: str) -> None:
    """Print a line that was heard before, from another process."""
    found = getattr(sys, stream)
    with contextlib.suppress(OSError, ValueError):  # its reader may be gone
        if isinstance(found, Stream):
            found.pass_on(f"{line}\n")
            found.flush()
        else:
            print(line, file=found, flush=True)


def _is_logging() -> bool:
    return sys._getframe(2).f_globals.get("__name__") == "logging"


class Lines:
    """Splits text that arrives in pieces into lines. A line that grows too long is cut."""

    CHARS_MAX = 10_000

    def __init__(self) -> None:
        self._begun = ""

    def taken(self, text: str) -> list[str]:
        """The lines that end in this piece."""
        *lines, self._begun = (self._begun + text).split("\n")
        if len(self._begun) > self.CHARS_MAX:
            lines.append(self._begun)
            self._begun = ""
        return [line.removesuffix("\r") for line in lines if line]

    def rest(self) -> list[str]:
        """The text after the last end of a line."""
        rest, self._begun = self._begun, ""
        return [rest] if rest else []
