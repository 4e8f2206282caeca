"""Log lines on standard error: text for people, or one JSON object per line for programs.

A line may contain text from users, callers and tools, so characters that could start another line or control the
terminal are escaped.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, Final, TextIO

import msgspec

from holdfast.cli.safe import BEYOND_JSON, CONTROLS, harmless, in_unicode
from holdfast.cli.streams import speak_through
from holdfast.tools.secrets import Secrets

OUTAGES: Final = "holdfast.services"  # services without a worker, and those that have one again
TRACEBACKS: Final = "holdfast.tracebacks"  # of what tools raise
_ABOUT: Final = ("run_id", "step", "attempt")  # separate fields of a log line about a run


class ToStderr(logging.StreamHandler[TextIO]):
    """Write to the current standard error: a live tree replaces it while it is drawn."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.secrets: Secrets | None = None
        self._lines: Callable[[str], str] = str

    def redact_with(self, secrets: Secrets) -> None:
        self.secrets, self._lines = secrets, secrets.lines()

    def format(self, record: logging.LogRecord) -> str:
        if self.secrets is None or not self.secrets.are_known:
            return super().format(record)
        if not hasattr(record, "said"):  # what a tool said is redacted already
            record = logging.makeLogRecord(
                {**vars(record), "msg": self._lines(record.getMessage()), "args": None}
            )
        return self.secrets.redact(super().format(record))

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        """Look up standard error for each line."""


class AsText(logging.Formatter):
    """Only the message; for a log line of a tool, also its step. The command shows one run, and has printed its id."""

    has_tracebacks = True

    def format(self, record: logging.LogRecord) -> str:
        said = getattr(record, "said", None)
        if said is None:
            return harmless(super().format(record))
        fields = "".join(f" {name}={value}" for name, value in said["fields"].items())
        text = harmless(f"{record.__dict__['step']}  {said['message']}{fields}")
        return "  · " + text.replace("\n", "\n    ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name that logging calls
        """The message alone; an exception is printed on the lines below it."""
        text = super().formatMessage(record)
        if record.name == TRACEBACKS and not self.has_tracebacks:
            return _what_was_raised(text).translate(CONTROLS)
        if record.name == TRACEBACKS:
            return "\n    ".join(line.translate(CONTROLS) for line in text.split("\n"))
        return text.translate(CONTROLS)


def _what_was_raised(text: str) -> str:
    """A traceback as one line: the attempt, the type of the exception and its message."""
    head, *lines = text.split("\n")
    frames = [number for number, line in enumerate(lines) if line.startswith("  ")]
    return f"{head} {lines[frames[-1] + 1]}" if frames and frames[-1] + 1 < len(lines) else head


class AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": round(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: record.__dict__[name] for name in _ABOUT if name in record.__dict__}
        line |= getattr(record, "request", {})
        if (said := getattr(record, "said", None)) is not None:
            line |= {"message": said["message"], "fields": said["fields"]}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(in_unicode(line)).decode().translate(BEYOND_JSON)


def set_levels(level: str | None, *, quiet: bool) -> None:
    """How much a server says. Without a level: what happens to runs, and warnings; `quiet`: warnings and failed runs only."""
    root, runs = logging.getLogger(), logging.getLogger("holdfast.runs")
    if level is not None:
        root.setLevel(level.upper())
        runs.setLevel(level.upper())
        logging.getLogger("holdfast.tool").setLevel(level.upper())
    elif quiet:
        root.setLevel(logging.WARNING)
        runs.setLevel(logging.WARNING)
        logging.getLogger("holdfast.tool").setLevel(logging.WARNING)
    else:
        runs.setLevel(logging.INFO)
        for name in (OUTAGES, TRACEBACKS):
            logging.getLogger(name).setLevel(logging.INFO)


def begin(form: str) -> None:
    handler = ToStderr()
    handler.setFormatter(AsJson() if form == "json" else AsText("%(message)s"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO if form == "json" else logging.WARNING)
    logging.getLogger("holdfast.tool").setLevel(logging.INFO)  # log lines of tools are for the user
    if form == "json":
        speak_through(logging.getLogger("holdfast.cli").info)


def shorten_tracebacks() -> None:
    """Say in one line what a tool raised; its traceback stays in the database."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler.formatter, AsText):
            handler.formatter.has_tracebacks = False


def redact_with(secrets: Secrets) -> None:
    """Redact secrets in all log lines, also in those that a tool writes itself."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ToStderr):
            handler.redact_with(secrets)
