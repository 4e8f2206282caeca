"""Crash isolation: steps suspected of crashing the process run one at a time.

A step that was running in two crashes is suspected. If suspected steps ran together, the next crash would not show
which one caused it, so each starts only when no other suspected step is running. Knows the order, not how a step
runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from holdfast.execution.attempt import Key
from holdfast.runtime.door import Door
from holdfast.values import RunNo

ISOLATION_SECONDS: Final = 5.0  # a suspected step that has run for this long is cleared


class CrashIsolation:
    """`is_here` says whether an attempt of that step is running in this process, or waits for a slot."""

    def __init__(self, door: Door, is_here: Callable[[Key], bool]) -> None:
        self._door, self._is_here, self._is_closed = door, is_here, False
        self._waiting: dict[Key, None] = {}  # in the order in which they will run
        self.running: Key | None = None

    def add(self, no: RunNo, path: str) -> None:
        """Start this step when it is its turn."""
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
                self._door.enter_isolation(resident, path)
                asyncio.get_running_loop().call_later(ISOLATION_SECONDS, self._has_survived, no, path)

    def ended(self, key: Key) -> None:
        """The attempt of a suspected step has ended. The next one starts after its outcome was handled."""
        if self.running == key:
            self.running = None
            self._door.leave_isolation()
            asyncio.get_running_loop().call_soon(self.start_next)

    def drop_lost(self) -> None:
        """Commits work again: if the commit that started a suspected step had failed, none is running."""
        if self.running is not None and not self._is_here(self.running):
            self.running = None

    def close(self) -> None:
        """Start no more suspected steps."""
        self._is_closed = True

    def _has_survived(self, no: RunNo, path: str) -> None:
        if self.running == (no, path):
            self.running = None
            self._door.leave_isolation()
            self.start_next()
