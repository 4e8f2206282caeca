"""A time limit for a call to another process. A response that is already in the socket wins over a limit that has just passed.

Event loops run timers before they read sockets, so after a pause of this process (stopped, suspended, a slow disk) a plain
timeout would discard a response that arrived in time.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Final, Self

LAST_CHECK_SECONDS: Final = (
    0.02  # to read a response that has already arrived; longer if the timeout was noticed late
)


class Limit:
    """Used like asyncio.timeout; without `seconds` there is no limit until `expire` is called."""

    __slots__ = ("_handle", "_seconds", "_timeout", "_when")

    def __init__(self, seconds: float | None) -> None:
        self._seconds, self._timeout = seconds, asyncio.timeout(None)
        self._handle: asyncio.TimerHandle | None = None
        self._when = 0.0

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        if self._seconds is not None:
            loop = asyncio.get_running_loop()
            self._when = loop.time() + self._seconds
            self._handle = loop.call_at(self._when, self._check_last)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
        await self._timeout.__aexit__(kind, error, trace)

    def expire(self) -> None:
        """The time limit is reached now."""
        self._timeout.reschedule(asyncio.get_running_loop().time())

    def _check_last(self) -> None:
        assert self._seconds is not None
        loop = asyncio.get_running_loop()
        late = loop.time() - self._when
        self._handle = loop.call_later(max(LAST_CHECK_SECONDS, min(late, self._seconds)), self.expire)
