"""Answers a repeated request, concurrent or later, without carrying it out a second time.

    starts    the id is stored with the run that it started, and refers to it as long as the run exists
    others    the response is stored for a day under the caller's key; where carrying the request out again would count twice
              (a signal, an answer to an approval), in the commit of what it reports (`Kept`)

Knows which requests are in progress here; the rest is in the store. Does not know what a request does.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from holdfast.errors import InvalidInputs, InvalidRequest, LimitExceeded, NodeIsOver, RequestConflict
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import ReplyRow
from holdfast.values import RunId, RunNo, canonical, is_text, sha256

REQUEST_ID_CHARS_MAX: Final = 255
KEY_CHARS_MAX: Final = 255
BODY_BYTES_MAX: Final = 1024 * 1024  # larger responses are not stored
RECENT_MAX: Final = 10_000  # responses of the worker protocol that are kept in memory
RECENT_BYTES_MAX: Final = 8 * 1024 * 1024

Started = tuple[RunNo, RunId]
Answer = tuple[int, bytes]  # status, body
Name = tuple[str, str, str]  # tenant, route, key


# ------------------------------------------------------------------------------------------------ starts of runs


class Requests:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._under_way: dict[tuple[str, str], tuple[str, asyncio.Task[Started]]] = {}

    async def once(
        self, tenant: str, request_id: str, digest: str, begin: Callable[[], Awaitable[Started]]
    ) -> Started:
        """The run of this request; `begin` starts it if there is none yet."""
        key = (tenant, request_id)
        while (known := self._under_way.get(key)) is not None and known[0] != digest:
            await asyncio.wait([known[1]])  # if that request fails, the id can be used again
        # A separate task: the first caller may give up, and the rest still get the result.
        task = known[1] if known else asyncio.ensure_future(self._find_or_begin(key, digest, begin))
        if known is None:
            self._under_way[key] = digest, task
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)

    async def _find_or_begin(
        self, key: tuple[str, str], digest: str, begin: Callable[[], Awaitable[Started]]
    ) -> Started:
        found = await self._store.request(*key)
        if found is None:
            try:
                return await begin()
            except NodeIsOver:  # of that run alone, if another node was asked the same at the same moment
                found = await self._store.request(*key)
                if found is None:
                    raise
        if found[0] != digest:
            raise RequestConflict(key[1], found[2])
        return found[1:]

    def _ended(self, key: tuple[str, str], task: asyncio.Task[Started]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # raised in callers that still wait


def checked_request_id(request_id: Any) -> str:
    if not isinstance(request_id, str) or not request_id:
        raise InvalidInputs(f"a request id must be non-empty text, not {request_id!r}")
    if not is_text(request_id):
        raise InvalidInputs(f"the request id {request_id!a:.100} contains half of a surrogate pair")
    if len(request_id) > REQUEST_ID_CHARS_MAX:
        raise LimitExceeded(
            "request_id_chars_max", f"a request id must have at most {REQUEST_ID_CHARS_MAX} characters"
        )
    return request_id


def digest_of(workflow: str, inputs: Mapping[str, Any]) -> str:
    """What was asked for, as one text: the name of a workflow or the hash of a definition, and the inputs as given."""
    return sha256(canonical([workflow, inputs]))


# ------------------------------------------------------------------------------------------------ other requests


class Kept:
    """The response to one request, for a command that stores it in its own commit, so that both are durable or
    neither is."""

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
        """The response to this request; `do` makes it if there is none yet. A failure is not stored, so the caller
        may retry."""
        name = (tenant, route, _checked_key(key))
        while (other := self._under_way.get(name)) is not None:
            await asyncio.wait([other])
        self._under_way[name] = ended = asyncio.get_running_loop().create_future()
        try:
            found = await self._found(name)
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

    async def _found(self, name: Name) -> ReplyRow | None:
        return await self._store.reply(*name)

    async def _keep(self, row: ReplyRow) -> None:
        batch = Batch()
        batch.replies.append(row)
        await self._committer.commit(batch)


class RecentReplies(Replies):
    """The same for the worker protocol, in memory: a poll or heartbeat must not write, and a job contains secrets, which are never
    written. After a restart such a request is carried out again: leases restart with the process, and the token of a job makes its
    result count once."""

    def __init__(self, store: Store, committer: Committer, clock: Clock) -> None:
        super().__init__(store, committer, clock)
        self._recent: OrderedDict[Name, ReplyRow] = OrderedDict()  # the oldest first
        self._bytes = 0

    async def _found(self, name: Name) -> ReplyRow | None:
        return self._recent.get(name)

    async def _keep(self, row: ReplyRow) -> None:
        self._recent[row.tenant, row.route, row.key] = row
        self._bytes += len(row.body)
        while len(self._recent) > RECENT_MAX or self._bytes > RECENT_BYTES_MAX:
            self._bytes -= len(self._recent.popitem(last=False)[1].body)


def _checked_key(key: str) -> str:
    if not 1 <= len(key) <= KEY_CHARS_MAX or not is_text(key):
        raise InvalidRequest(f"an Idempotency-Key must have 1 to {KEY_CHARS_MAX} characters")
    return key
