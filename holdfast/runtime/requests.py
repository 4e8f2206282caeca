"""Starts under a caller's own id: the same id again, in parallel or years later, means the run that it made.

Knows which of them are under way here; those that are durable stand in the store, written with their runs. Does not
know how a run is started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from holdfast.errors import InvalidInputs, LimitExceeded, RequestConflict
from holdfast.store.base import Store
from holdfast.values import RunId, RunNo, canonical, is_text, sha256

REQUEST_ID_CHARS_MAX: Final = 255

Started = tuple[RunNo, RunId]


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
            await asyncio.wait([known[1]])  # if that one fails, the id is free
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
            return await begin()
        if found[0] != digest:
            raise RequestConflict(key[1], found[2])
        return found[1:]

    def _ended(self, key: tuple[str, str], task: asyncio.Task[Started]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # raised in the callers that still wait, if any


def checked(request_id: Any) -> str:
    if not isinstance(request_id, str) or not request_id:
        raise InvalidInputs(f"a request id is a text that is not empty, not {request_id!r}")
    if not is_text(request_id):
        raise InvalidInputs(f"the request id {request_id!a:.100} has half of a surrogate pair in it")
    if len(request_id) > REQUEST_ID_CHARS_MAX:
        raise LimitExceeded(
            "request_id_chars_max", f"a request id has at most {REQUEST_ID_CHARS_MAX} characters"
        )
    return request_id


def digest_of(workflow: str, inputs: Mapping[str, Any]) -> str:
    """What was asked for, as one text: the name of a workflow or the hash of a definition, and the inputs as given."""
    return sha256(canonical([workflow, inputs]))
