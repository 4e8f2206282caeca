"""How many bytes of large arguments are in memory at the same time, and which starts and calls wait for room.

Arguments can refer to large values, so a short definition can ask for many large copies. Knows sizes. Does not know what the
arguments are, or how an attempt is made.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from holdfast import limits
from holdfast.values import RunNo

COUNTED_BYTES: Final = 64 * 1024  # smaller arguments are not counted: a thousand of them are small together

Start = tuple[RunNo, str, int]  # run, path and number of an attempt


class LargeArguments:
    """The bytes of large arguments in progress, and the starts and calls that wait until there is room for theirs."""

    def __init__(self) -> None:
        self._bytes = 0
        self.waiting: deque[Start] = deque()
        self._sizes: dict[Start, int] = {}
        self._calls: deque[tuple[int, asyncio.Future[None]]] = deque()

    def take(self, size: int, start: Start) -> bool:
        """Take room for the arguments of a start; if there is none, the start waits in line."""
        if not self._fits(size):
            self._sizes[start] = size
            self.waiting.append(start)
            return False
        self._sizes.pop(start, None)
        self._bytes += size
        return True

    def give_back(self, size: int) -> None:
        self._bytes -= size
        while self._calls and (self._calls[0][1].done() or self._fits(self._calls[0][0])):
            size, call = self._calls.popleft()
            if not call.done():
                self._bytes += size
                call.set_result(None)

    def has_room(self) -> bool:
        """Return whether there is room for the first waiting start."""
        if not self.waiting:
            self._sizes.clear()  # those that were stopped while they waited
            return False
        return self._fits(self._sizes.get(self.waiting[0], 0))

    @contextlib.asynccontextmanager
    async def room_for(self, size: int) -> AsyncIterator[None]:
        """Hold room for the body of one call, waiting for it if necessary."""
        if size <= COUNTED_BYTES:
            yield
            return
        if self._fits(size) and not self._calls:
            self._bytes += size
        else:
            call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._calls.append((size, call))
            try:
                await call
            except asyncio.CancelledError:
                if call.done() and not call.cancelled():
                    self.give_back(size)
                raise
        try:
            yield
        finally:
            self.give_back(size)

    def _fits(self, size: int) -> bool:
        """One may always be in progress, however large it is."""
        return not self._bytes or self._bytes + size <= limits.now.arguments_bytes_max
