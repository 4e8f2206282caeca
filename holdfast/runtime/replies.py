"""Requests under a caller's own key: the same one again, in parallel or a day later, is answered and not done again.

Knows which are under way here; what was answered stands in the store. Where doing it again would count again, the answer
is kept in the very commit of what it answers (Kept). A start of a run is not here: its key is durable with the run itself
(requests.py). Does not know what a request does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from holdfast.errors import InvalidRequest, RequestConflict
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import ReplyRow
from holdfast.values import is_text

KEY_CHARS_MAX: Final = 255
BODY_BYTES_MAX: Final = 1024 * 1024  # a larger answer is not kept

Answer = tuple[int, bytes]  # status, body
Name = tuple[str, str, str]  # tenant, route, key


class Kept:
    """The answer to one request, for a command that writes it in its own commit: neither is there without the other."""

    def __init__(self, name: Name, digest: str, clock: Clock) -> None:
        self._name, self._digest, self._clock = name, digest, clock
        self.answer: Answer | None = None

    def says(self, status: int, body: bytes) -> Kept:
        self.answer = status, body
        return self

    def row(self) -> ReplyRow:
        assert self.answer is not None
        return ReplyRow(*self._name, self._digest, *self.answer, self._clock.now())


class Replies:
    def __init__(self, store: Store, committer: Committer, clock: Clock) -> None:
        self._store, self._committer, self._clock = store, committer, clock
        self._under_way: dict[Name, asyncio.Future[None]] = {}

    async def once(
        self, tenant: str, route: str, key: str, digest: str, do: Callable[[Kept], Awaitable[Answer]]
    ) -> Answer:
        """What is answered to this request; `do` is asked if it never was. A failure is not kept: it may be tried again."""
        name = (tenant, route, _checked(key))
        while (other := self._under_way.get(name)) is not None:
            await asyncio.wait([other])
        self._under_way[name] = ended = asyncio.get_running_loop().create_future()
        try:
            found = await self._store.reply(*name)
            if found is None:
                return await self._done(name, digest, do)
            if found.digest != digest:
                raise RequestConflict(key)
            return found.status, found.body
        finally:
            del self._under_way[name]
            ended.set_result(None)

    async def _done(self, name: Name, digest: str, do: Callable[[Kept], Awaitable[Answer]]) -> Answer:
        kept = Kept(name, digest, self._clock)
        status, body = await do(kept)
        if kept.answer is not None:
            return kept.answer
        if len(body) <= BODY_BYTES_MAX:
            await self._keep(ReplyRow(*name, digest, status, body, self._clock.now()))
        return status, body

    async def _keep(self, row: ReplyRow) -> None:
        batch = Batch()
        batch.replies.append(row)
        await self._committer.commit(batch)


def _checked(key: str) -> str:
    if not 1 <= len(key) <= KEY_CHARS_MAX or not is_text(key):
        raise InvalidRequest(f"an Idempotency-Key has 1 to {KEY_CHARS_MAX} characters")
    return key
