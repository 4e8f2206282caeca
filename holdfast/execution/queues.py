"""Committed starts that have not begun: they wait for a slot, for a thread or process, or for room for large arguments.

Knows which start waits for what. Does not know how an attempt begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator

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
        self.stopped: deque[Start] = deque()  # starts that were taken out, which the engine is to be told
        self._waiting = (self.ready, large.waiting, *(line.waiting for line in self.lines.values()))
        self.all = (*self._waiting, self.stopped)

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

    def limits_of(self, no: RunNo) -> dict[str, tuple[str, int]]:
        """The limit that each start of a run waits for, by path, and how many slots there are."""
        known = (
            ("attempts_max", self.places, self.ready),
            ("arguments_bytes_max", limits.now.arguments_bytes_max, self.large.waiting),
            *((f"{name}s", line.limit, line.waiting) for name, line in self.lines.items()),
        )
        return {
            path: (name, limit) for name, limit, waiting in known for run, path, _ in waiting if run == no
        }

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

    def take_out(self, stopped: Collection[tuple[RunNo, str]]) -> None:
        """Take starts out of their queues, all at once: a run may have thousands of them."""
        for queue in self._waiting:
            if found := [start for start in queue if start[:2] in stopped]:
                self.stopped.extend(found)
                left = [start for start in queue if start[:2] not in stopped]
                queue.clear()
                queue.extend(left)

    def clear(self) -> None:
        for queue in self.all:
            queue.clear()
