"""Committed starts that have not begun: they wait for a slot, for a thread or process, or for room for large arguments.

Knows which start waits for what. Does not know how an attempt begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from holdfast import limits
from holdfast.runtime.door import Door
from holdfast.runtime.large_arguments import LargeArguments, Start
from holdfast.runtime.resident_run import ResidentRun
from holdfast.values import RunNo


class Line:
    """Threads or processes: how many exist, how many are in use, and the starts that wait for one."""

    __slots__ = ("limit", "taken", "waiting")

    def __init__(self, limit: int) -> None:
        self.limit, self.taken, self.waiting = limit, 0, deque[Start]()


class Queues:
    """Each queue of waiting starts, by the limit that it waits for."""

    def __init__(self, door: Door, places: int, large: LargeArguments, threads: int, processes: int) -> None:
        self._door, self.places, self.large = door, places, large
        self.ready: deque[Start] = deque()  # starts that wait for a slot
        self.lines = {"thread": Line(threads), "process": Line(processes)}
        self.all = (self.ready, large.waiting, *(line.waiting for line in self.lines.values()))

    def __len__(self) -> int:
        return sum(map(len, self.all))

    def __iter__(self) -> Iterator[Start]:
        for queue in self.all:
            yield from queue

    @property
    def counts(self) -> dict[str, int]:
        """How many starts wait for which limit."""
        lines = {name: len(line.waiting) for name, line in self.lines.items()}
        return {"place": len(self.ready), "room": len(self.large.waiting), **lines}

    def limit_of(self, no: RunNo, path: str) -> tuple[str, int] | None:
        """The limit that a start waits for if it has not begun, and how many slots there are."""
        found = (
            ("attempts_max", self.places, self.ready),
            ("arguments_bytes_max", limits.now.arguments_bytes_max, self.large.waiting),
            *((f"{name}s", line.limit, line.waiting) for name, line in self.lines.items()),
        )
        for name, limit, waiting in found:
            if any(start[:2] == (no, path) for start in waiting):
                return name, limit
        return None

    def has(self, no: RunNo, path: str) -> bool:
        return any(start[:2] == (no, path) for start in self)

    def first(self, waiting: deque[Start]) -> tuple[ResidentRun, str, int] | None:
        """Take the first start whose run is in memory; none while its run is dropped, until commits work again."""
        while waiting:
            no, path, number = waiting[0]
            resident = self._door.residents.get(no)
            if resident is None and no in self._door.away:
                return None
            waiting.popleft()
            if resident is not None:
                return resident, path, number
        return None

    def remove(self, no: RunNo, path: str) -> int | None:
        """Take a start out of its queue. Returns the number of its attempt, or None if none waits."""
        for queue in self.all:
            for start in queue:
                if start[:2] == (no, path):
                    queue.remove(start)
                    return start[2]
        return None

    def clear(self) -> None:
        for queue in self.all:
            queue.clear()
