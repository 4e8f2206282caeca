"""Log lines on standard error: as text for people, or one JSON object each for programs, with what people are told."""

from __future__ import annotations

import logging
import sys
from typing import TextIO

import msgspec

from holdfast.cli.streams import speak_through


class ToStderr(logging.StreamHandler[TextIO]):
    """To whatever standard error is at the moment: a live tree takes it over for as long as it is drawn."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        """It is found anew for each line."""


class AsJson(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": round(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def begin(form: str) -> None:
    handler = ToStderr()
    handler.setFormatter(AsJson() if form == "json" else logging.Formatter("%(message)s"))
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO if form == "json" else logging.WARNING)
    if form == "json":
        speak_through(logging.getLogger("holdfast.cli").info)
