"""Log records of the user's code, as they are made: one factory of records for the whole process, with any number of listeners.

A factory sees every record and changes no handler of the user. Listeners come and go in any order, so they must not wrap each
other: an engine that was dropped without being closed would stay in such a chain, and every further engine would lengthen it.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

OUR_LOGGERS: Final = "holdfast"


class Listener(Protocol):
    def heard(self, record: logging.LogRecord) -> None:
        """A record was made by code that is not ours, in this thread."""


class _Factory:
    """What stands in the place of the user's factory while anyone listens."""

    def __init__(self, former: Callable[..., logging.LogRecord]) -> None:
        self.former = former

    def __call__(self, *args: Any, **named: Any) -> logging.LogRecord:
        record = self.former(*args, **named)
        name: object = record.name  # logging itself makes nameless records, to fill them in later
        if _heard.factory is self and isinstance(name, str) and not name.startswith(OUR_LOGGERS):
            for one in _heard.listeners:
                if (listener := one()) is not None:
                    listener.heard(record)
        return record


class _Heard:
    def __init__(self) -> None:
        self.factory: _Factory | None = None
        self.listeners: tuple[weakref.ref[Listener], ...] = ()  # replaced, never changed: any thread reads it


_heard: Final = _Heard()
_lock: Final = threading.Lock()


def listen(listener: Listener) -> None:
    with _lock:
        current = logging.getLogRecordFactory()
        if (
            current is not _heard.factory
        ):  # a factory of the user's may call ours, which must not call it back
            _heard.factory = _Factory(current)
            logging.setLogRecordFactory(_heard.factory)
        _heard.listeners = (*_open(), weakref.ref(listener))


def stop_listening(listener: Listener) -> None:
    """The user's factory is put back with the last listener, unless another one was put on top of ours since."""
    with _lock:
        _heard.listeners = tuple(one for one in _open() if one() is not listener)
        factory = _heard.factory
        if not _heard.listeners and factory is not None and logging.getLogRecordFactory() is factory:
            logging.setLogRecordFactory(factory.former)
            _heard.factory = None


def _open() -> list[weakref.ref[Listener]]:
    return [one for one in _heard.listeners if one() is not None]
