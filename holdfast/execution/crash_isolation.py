"""Crash isolation: steps suspected of killing the process run one at a time.

A step that was at work in two crashes is suspected. If suspects ran together, the next crash would not say which of
them caused it; so each starts only when no other suspect is at work. Knows the order of turns, not how a step is run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast.execution.attempt import Key
from holdfast.runtime.door import Door
from holdfast.values import RunNo

ISOLATION_SECONDS: Final = 5.0  # a suspect that has run for this long does not kill the process


class CrashIsolation:
    """`is_here` says whether an attempt of that step is at work in this process, or waits for a place."""

    def __init__(self, door: Door, is_here: Callable[[Key], bool]) -> None:
        self._door, self._is_here, self._is_closed = door, is_here, False
        self._waiting: dict[Key, None] = {}  # in the order of their turns
        self.running: Key | None = None

    def add(self, no: RunNo, path: str) -> None:
        """Start this step in its turn."""
        if (no, path) not in self._waiting and self.running != (no, path):
            self._waiting[no, path] = None
            self.start_next()

    def start_next(self) -> None:
        while self.running is None and self._waiting and not (self._is_closed or self._door.is_stalled):
            no, path = next(iter(self._waiting))
            del self._waiting[no, path]
            resident = self._door.residents.get(no)
            step = None if resident is None else resident.run.steps.get(path)
            if (
                resident is not None
                and step is not None
                and step.state == "ready"
                and step.reason == "suspect"
            ):
                self.running = (no, path)
                self._door.enter_lane(resident, path)
                asyncio.get_running_loop().call_later(ISOLATION_SECONDS, self._has_survived, no, path)

    def ended(self, key: Key) -> None:
        """The attempt of a suspect has ended. The next one starts after what this one answered was handled."""
        if self.running == key:
            self.running = None
            self._door.leave_lane()
            asyncio.get_running_loop().call_soon(self.start_next)

    def drop_lost(self) -> None:
        """Commits work again: if the one that started a suspect had failed, no suspect is at work."""
        if self.running is not None and not self._is_here(self.running):
            self.running = None

    def close(self) -> None:
        """Start no more suspects."""
        self._is_closed = True

    def _has_survived(self, no: RunNo, path: str) -> None:
        if self.running == (no, path):
            self.running = None
            self._door.leave_lane()
            self.start_next()
