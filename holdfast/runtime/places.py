"""Limits calls to the outside: how many at once, and how many of them to one destination.

Each destination has its own queue, and the queues take turns, so a destination that hangs does not delay calls to
other destinations. Knows keys and counts, not what is called.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Hashable, Iterator
from contextlib import asynccontextmanager
from typing import Final, Generic, TypeVar

SLOW_SECONDS: Final = 4.0  # a call that took at least this long marks its destination as slow
SLOW_MAX: Final = 1_000  # destinations remembered as slow

Waiter = asyncio.Future[None]
Key = TypeVar("Key", bound=Hashable)


class Places:
    def __init__(self, overall: int, each: int) -> None:
        self._free, self._each = overall, each
        self._taken: Counter[Hashable] = Counter()
        self._lines: OrderedDict[Hashable, deque[Waiter]] = OrderedDict()  # the first one is served next

    @asynccontextmanager
    async def at(self, key: Hashable) -> AsyncGenerator[None, None]:
        """Wait for a place at a destination, and hold it."""
        await self._take(key)
        try:
            yield
        finally:
            self._give(key)

    def has_room(self, key: Hashable) -> bool:
        return self._free > 0 and self._taken[key] < self._each and key not in self._lines

    async def _take(self, key: Hashable) -> None:
        if self.has_room(key):
            return self._hold(key)
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._lines.setdefault(key, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._give(key)  # it got its place at the moment it stopped waiting
            raise

    def _hold(self, key: Hashable) -> None:
        self._free -= 1
        self._taken[key] += 1

    def _give(self, key: Hashable) -> None:
        self._free += 1
        self._taken[key] -= 1
        if not self._taken[key]:
            del self._taken[key]
        while self._free > 0 and self._serve_next():
            pass

    def _serve_next(self) -> bool:
        """The first queue whose destination has room. Few destinations are full, so only a few are examined."""
        for key, line in self._lines.items():
            while line and line[0].done():
                _ = line.popleft()  # it stopped waiting
            if not line or self._taken[key] < self._each:
                break
        else:
            return False
        self._lines.pop(key)
        if line:
            line.popleft().set_result(None)
            self._hold(key)
            if line:
                self._lines[key] = line  # serve the other queues first
        return True


class Slow(Generic[Key]):
    """Destinations whose last call was slow. Together they get as many places as one fast destination."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, None] = OrderedDict()

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._known))

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def took(self, key: Key, seconds: float) -> None:
        """A call has ended, with or without success."""
        self._known.pop(key, None)
        if seconds >= SLOW_SECONDS:
            self._known[key] = None
            if len(self._known) > SLOW_MAX:
                self._known.popitem(last=False)
