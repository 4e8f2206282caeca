"""Log lines on standard error: as text for people, or one JSON object each for programs, with what people are told."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any, TextIO

import msgspec

from holdfast.cli.streams import speak_through


class ToStderr(logging.StreamHandler[TextIO]):
    """To whatever standard error is at the moment: a live tree takes it over for as long as it is drawn."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.redact: Callable[[str], str] = str

    def format(self, record: logging.LogRecord) -> str:
        return self.redact(super().format(record))

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
            return super().format(record)
        fields = "".join(f" {name}={value}" for name, value in said["fields"].items())
        return f"  · {record.__dict__['step']}  {said['message']}{fields}"


class AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": round(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (said := getattr(record, "said", None)) is not None:
            about = {name: record.__dict__[name] for name in ("run_id", "step", "attempt")}
            line |= {**about, "message": said["message"], "fields": said["fields"]}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def begin(form: str) -> None:
    handler = ToStderr()
    handler.setFormatter(AsJson() if form == "json" else AsText("%(message)s"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO if form == "json" else logging.WARNING)
    logging.getLogger("holdfast.tool").setLevel(logging.INFO)  # what tools say is for the person
    if form == "json":
        speak_through(logging.getLogger("holdfast.cli").info)


def redact_with(redact: Callable[[str], str]) -> None:
    """Keep what must not be seen out of all lines, also out of those that a tool logs by itself."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, ToStderr):
            handler.redact = redact
