"""Run events as server-sent events: past events from where the reader left off, then new ones as they happen.

    retry: 2000            how long the reader waits before it reconnects
    id: 41                 the reader's position; sent first, so that nothing is missed before the first event

    event: $/dcc.workflowUpdated
    id: 41.1               one event of row 42 was sent; resuming from 41 misses nothing
    data: {"workflow_id": …}

    event: $/dcc.workflowUpdated
    id: 42                 all of row 42 was sent
    data: {…}

Of one run the numbers are those of its journal; of all runs they are cursors of the store, which are numbers on SQLite. What
tools say while they work has no id. A reader keeps a position and no queue: what it does not take waits in the journal. Knows the framing
and when a stream ends, not what the events mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast import limits
from holdfast.errors import HoldfastError, InvalidRequest, TooManyRequests
from holdfast.http.auth import check_again
from holdfast.http.table import Ask, Route
from holdfast.views.all_events import EncodedEvent, encoded
from holdfast.views.events import Tail
from holdfast.views.positions import BEGINNING, At, Position, position_of, row_of

HEARTBEAT_SECS: Final = 15.0
RETRY_MS: Final = 2_000
RETRY_MS_LEAVING: Final = 1_000  # a server that stops is restarted, or another takes its place
GATHER_SECS: Final = 0.02  # between two reads of a journal that grows all the time; none after a pause
CHUNK_BYTES: Final = 64 * 1024
GOODBYE_SECS_MAX: Final = 1.0
MEDIA: Final = "text/event-stream"
NOW: Final = "now"
EVENT_NAME: Final = b"$/dcc.workflowUpdated"


Several = Annotated[list[str], msgspec.Meta(max_length=20)]


class RunEventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`from` is where to begin if no Last-Event-ID says it: `now`, or the `seq` of the run; nothing means the beginning."""

    last_event_id: str | None = None
    begin: str | None = msgspec.field(default=None, name="from")


class EventsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`from` is where to begin if no Last-Event-ID says it: 0 is the beginning of the history, `now` or nothing means now.

    `status` matches the state of the run after the event; `running` matches every event of an open run that has begun.
    """

    last_event_id: str | None = None
    begin: str | None = msgspec.field(default=None, name="from")
    workflow: str | None = None
    status: Several = []
    kind: Several = []


async def run_events(ask: Ask) -> Response:
    parse = partial(position_of, after_of=row_of)
    position = _position(ask, parse)
    if position is None and ask.query.begin != NOW:
        position = _parsed(ask.query.begin, "from", parse) or BEGINNING
    tail = await ask.services.history.of_run(ask.tenant, ask.path["id"], position)
    if tail is None:
        # finished and completely sent: an EventSource does not reconnect after 204
        return Response(status_code=204)
    return _stream(ask, _OfRun(tail))


async def all_events(ask: Ask) -> Response:
    history = ask.services.history
    parse = partial(history.position, ask.tenant)
    position = _position(ask, parse)
    if position is None and ask.query.begin != NOW:
        position = _parsed(ask.query.begin, "from", parse)
    sees = None if ask.principal.workflows is None else ask.principal.rights.sees
    tail = await history.of_all(ask.tenant, position, sees)
    return _stream(ask, tail, _filter(ask.query))


ROUTES: Final = (
    Route("GET", "/api/v1/runs/{id}/events", "read", run_events, "Stream the events of a run.", "runs",
          query=RunEventsQuery, answer=str, answer_media=MEDIA, also={204: None}, errors=("not_found",)),
    Route("GET", "/api/v1/events", "read", all_events, "Stream the events of all runs.", "runs",
          query=EventsQuery, answer=str, answer_media=MEDIA),
)  # fmt: skip


def _position(ask: Ask, parse: Callable[[str], Position[At]]) -> Position[At] | None:
    """Where the reader left off: the id that it remembered takes precedence over the id in its URL, which never
    changes."""
    header = ask.headers.get("last-event-id")
    if header:
        return _parsed(header, "Last-Event-ID", parse)
    return _parsed(ask.query.last_event_id, "last_event_id", parse)


def _parsed(text: str | None, name: str, parse: Callable[[str], Position[At]]) -> Position[At] | None:
    if not text:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise InvalidRequest(f"{name}: {error}; send the last id as it came") from None


def _filter(query: EventsQuery) -> Callable[[EncodedEvent], bool] | None:
    statuses, kinds = _words(query.status), _words(query.kind)
    if query.workflow is None and not statuses and not kinds:
        return None

    def passes(event: EncodedEvent) -> bool:
        return (
            (query.workflow is None or query.workflow == event.workflow)
            and (not statuses or not statuses.isdisjoint(event.statuses))
            and (not kinds or event.kind in kinds)
        )

    return passes


def _words(given: list[str]) -> frozenset[str]:
    return frozenset(word for text in given for word in text.split(","))


# ---------------------------------------------------------------------------------------------------- a stream


class Source(Protocol):
    """Where events come from; read until there is none for now, then wait for more."""

    is_over: bool
    position: Position[Any]

    @property
    def id(self) -> str:
        """The position, as a client gets it."""
        ...

    def close(self) -> None: ...
    async def read(self) -> list[EncodedEvent]: ...
    async def more(self) -> None: ...


class _OfRun:
    """The events of one run, encoded."""

    def __init__(self, tail: Tail) -> None:
        self._tail = tail
        self.position: Position[Any] = tail.position
        self.close, self.more = tail.close, tail.more

    @property
    def is_over(self) -> bool:
        return self._tail.is_over

    @property
    def id(self) -> str:
        return str(self.position)

    async def read(self) -> list[EncodedEvent]:
        found = [encoded(position, event) for position, event in await self._tail.read()]
        self.position = next((one.position for one in reversed(found) if one.position), self.position)
        return found


def _stream(ask: Ask, source: Any, passes: Callable[[EncodedEvent], bool] | None = None) -> Response:
    try:
        places = Places(ask)
    except TooManyRequests:
        source.close()
        raise
    check = partial(check_again, ask.principal, ask.services.api_keys)
    return EventStream(source, passes, check, ask.leaving, places.leave)


class Places:
    """A limited number of streams for a key, and for a tenant."""

    def __init__(self, ask: Ask) -> None:
        self._taken = ask.services.history.places
        self._at = (ask.tenant, ask.principal.key_id)
        if self._taken[self._at] >= limits.now.streams_per_key_max:
            raise _too_many("streams_per_key_max", limits.now.streams_per_key_max)
        if (
            sum(count for (tenant, _), count in self._taken.items() if tenant == ask.tenant)
            >= limits.now.streams_per_tenant_max
        ):
            raise _too_many("streams_per_tenant_max", limits.now.streams_per_tenant_max)
        self._taken[self._at] += 1

    def leave(self) -> None:
        self._taken[self._at] -= 1
        if not self._taken[self._at]:
            del self._taken[self._at]


def _too_many(limit: str, most: int) -> TooManyRequests:
    return TooManyRequests(limit, f"there are {most:,} event streams already", round(HEARTBEAT_SECS))


class EventStream(Response):
    """Sends events until the source ends, the client disconnects, or the server stops."""

    def __init__(
        self,
        source: Source,
        passes: Callable[[EncodedEvent], bool] | None,
        check: Callable[[], None],
        leaving: asyncio.Event,
        done: Callable[[], None],
    ) -> None:
        # A proxy that gathers an answer before it passes it on would hold every event back.
        super().__init__(media_type=MEDIA, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._source, self._passes, self._check, self._leaving = source, passes, check, leaving
        self._done = done
        self._woken_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            if scope["method"] != "HEAD":
                await self._until_the_end(receive, send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._source.close()
            self._done()

    async def _until_the_end(self, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send_events(send))
        ends = {sending, asyncio.ensure_future(_gone(receive)), asyncio.ensure_future(self._leaving.wait())}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        if sending.cancelled() and self._leaving.is_set():
            with suppress(TimeoutError):  # a reader that takes nothing in is not waited for
                await asyncio.wait_for(_send(send, _goodbye("the server stops")), GOODBYE_SECS_MAX)
        elif not sending.cancelled() and (error := sending.exception()) is not None:
            if not isinstance(error, HoldfastError):
                raise error
            await _send(send, _goodbye(error.code))  # the engine is closed, or the run was set aside

    async def _send_events(self, send: Send) -> None:
        source, sent = self._source, self._source.position
        await _send(send, b"retry: %d\nid: %b\n\n" % (RETRY_MS, source.id.encode()))
        while True:
            found = await source.read()
            self._check()  # the key may have been revoked since
            passed = found if self._passes is None else [one for one in found if self._passes(one)]
            for chunk in _chunks(passed):
                await _send(send, chunk)
            if passed and passed[-1].position == source.position:
                sent = source.position
            if source.is_over:
                return
            if found:
                await asyncio.sleep(0)  # let other tasks run
            elif not await self._has_more():
                # What did not pass the filter moves the reader on all the same.
                moved = b"" if sent == source.position else b"id: %b\n" % source.id.encode()
                sent = source.position
                await _send(send, b":\n" + moved + b"\n")

    async def _has_more(self) -> bool:
        try:
            async with asyncio.timeout(HEARTBEAT_SECS):
                await self._source.more()
        except TimeoutError:
            return False
        now = asyncio.get_running_loop().time()
        if now - self._woken_at < GATHER_SECS:  # many readers would otherwise take turns at every commit
            await asyncio.sleep(GATHER_SECS)
        self._woken_at = asyncio.get_running_loop().time()
        return True


def _chunks(events: Iterable[EncodedEvent]) -> Iterator[bytes]:
    frames: list[bytes] = []
    size = 0
    for event in events:
        place = b"id: %b\n" % event.id.encode() if event.id else b""
        frames.append(b"event: %b\n%bdata: %b\n\n" % (EVENT_NAME, place, event.data))
        size += len(frames[-1])
        if size >= CHUNK_BYTES:
            yield b"".join(frames)
            frames, size = [], 0
    if frames:
        yield b"".join(frames)


def _goodbye(why: str) -> bytes:
    return b": %b\nretry: %d\n\n" % (why.encode(), RETRY_MS_LEAVING)


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
