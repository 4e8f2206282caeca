"""Log lines on standard error: as text for people, or one JSON object each for programs, including the messages for people.

What users, callers and tools wrote may stand in a line, so what could begin another line or speak to a terminal is
written as an escape.
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

_ABOUT: Final = ("run_id", "step", "attempt")  # fields of their own, where a line is about a run


class ToStderr(logging.StreamHandler[TextIO]):
    """To whatever standard error is at the moment: a live tree takes it over for as long as it is drawn."""

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
        """It is found anew for each line."""


class AsText(logging.Formatter):
    """Just the message; of what a tool said, whose step said it: the command shows one run, and has named it."""

    def format(self, record: logging.LogRecord) -> str:
        said = getattr(record, "said", None)
        if said is None:
            return harmless(super().format(record))
        fields = "".join(f" {name}={value}" for name, value in said["fields"].items())
        text = harmless(f"{record.__dict__['step']}  {said['message']}{fields}")
        return "  · " + text.replace("\n", "\n    ")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name that logging calls
        """The message alone: an exception below it has lines of its own."""
        return super().formatMessage(record).translate(CONTROLS)


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


def begin(form: str) -> None:
    handler = ToStderr()
    handler.setFormatter(AsJson() if form == "json" else AsText("%(message)s"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO if form == "json" else logging.WARNING)
    logging.getLogger("holdfast.tool").setLevel(logging.INFO)  # what tools say is for the person
    if form == "json":
        speak_through(logging.getLogger("holdfast.cli").info)


def redact_with(secrets: Secrets) -> None:
    """Keep what must not be seen out of all lines, also out of those that a tool logs by itself."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ToStderr):
            handler.redact_with(secrets)
