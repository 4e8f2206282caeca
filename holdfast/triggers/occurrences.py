"""Occurrences of event triggers: webhook deliveries, finished runs, files, events of a source.

    deliver ──► a duplicate? ──► room for a run? ──► run and ledger row in one commit ──► the reply, stored with them
                     │                    └──► waits: a ledger row with its payload, until a run of the schedule ends
                     └──► the stored reply again

An occurrence has a name within its schedule; the ledger has at most one row of each, so an event that is reported twice starts
one run. Decisions about a schedule with a limit of open runs are made one after the other. Does not know HTTP, how each kind
detects its events, or what an event starts: a subclass does (event_runs.py starts runs).
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from holdfast import limits
from holdfast.engine.events import TriggeredBy
from holdfast.errors import HoldfastError
from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.schedule.records import Cursor, Reason
from holdfast.schedule.template import Rendered
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.base import Fenced, Store
from holdfast.store.batch import Batch
from holdfast.store.schedule_records import (
    Firing,
    LedgerEntry,
    LedgerKey,
    LedgerOutcome,
    LedgerRow,
    NewCursor,
)
from holdfast.triggers.payloads import InvalidPayload, rendered
from holdfast.triggers.skips import Skips
from holdfast.triggers.starting import (
    Occasion,
    UnresolvedTemplate,
    detail_of,
    is_final,
    reason_of,
    warnings_of,
)
from holdfast.triggers.tally import Tally
from holdfast.values import Millis, RunId

log = logging.getLogger("holdfast")

SLOT: Final = ""  # the slot of schedules without a clock: all nodes share it
DELAYED: Final = "delayed"  # why an event waits that is due later; all other events wait for a run to end
TRIES_MAX: Final = 10  # if the cursor of the schedule changes meanwhile

_CURSOR: Final = msgspec.json.Decoder(Cursor)


class Accepted(NamedTuple):
    """What the reply to an accepted event can say. An event that waits, or goes to another system, has no run id."""

    spec: ScheduleSpec
    inputs: Any
    run_id: RunId | None
    is_waiting: bool = False


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event for a schedule. Under the same `occurrence` it starts at most one run."""

    tenant: str
    spec: ScheduleSpec
    occurrence: str
    payload: bytes = b"{}"  # JSON text
    scheduled_at: Millis
    # Makes the reply that is stored, and given again to each repetition.
    reply: Callable[[Accepted], bytes] | None = None
    # Its sender learns that it was skipped or failed, and may send it again: then it starts a run.
    may_come_again: bool = False
    position: str | None = None  # of its source, stored by the same commit
    row: LedgerRow | None = None  # of an event that has been waiting
    slot: str = SLOT

    @property
    def key(self) -> LedgerKey:
        return LedgerKey(self.tenant, self.spec.id, self.slot, self.occurrence)

    @property
    def takes(self) -> LedgerKey | None:
        return None if self.row is None else self.key


class Delivered(NamedTuple):
    """The outcome of an event. If it `is_repeated`, the outcome of its first delivery."""

    outcome: LedgerOutcome
    reason: str = ""
    message: str = ""
    reply: bytes | None = None
    run_id: RunId | None = None
    is_repeated: bool = False
    in_flight: int = 0  # the open runs, of an event that is skipped because of them
    placeholders: tuple[str, ...] = ()  # of a strict schedule: placeholders that the payload lacks


class Occurrences(ABC):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        committer: Committer,
        tally: Tally,
        *,
        redacted: Callable[[bytes], Awaitable[bytes]],
    ) -> None:
        self._store, self._clock, self._committer = store, clock, committer
        self._tally, self._redacted = tally, redacted
        self._locks: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()
        self.skips = Skips(committer)
        # Called before an event may begin to wait: waiting.py, which starts those that wait, notes its schedule.
        self.on_buffered: Callable[[str, str], None] = lambda tenant, schedule_id: None

    @abstractmethod
    async def _start(self, delivery: Delivery, made: Rendered) -> Delivered:
        """Start what an event is for. It has room, and `made` are its inputs."""

    @abstractmethod
    def _check(self, occasion: Occasion, made: Rendered) -> None:
        """Raise if nothing can be started with these inputs."""

    @abstractmethod
    async def _open_runs(self, tenant: str, schedule_id: str) -> int:
        """How many runs of a schedule are open."""

    @abstractmethod
    async def _cancel_oldest(self, tenant: str, schedule_id: str) -> None:
        """Make room for an event that waits."""

    async def deliver(self, delivery: Delivery) -> Delivered:
        """Accept an event. Its outcome is durable when this returns, unless it was skipped and may be sent again.

        Raises InvalidPayload, or Unavailable if nothing could be written.
        """
        before = await self._before(delivery)
        if before is not None:
            return before
        delivery = msgspec.structs.replace(delivery, payload=await self._without_secrets(delivery.payload))
        made = await self._rendered(delivery)
        # Without a limit only repetitions of the same event have to wait for each other.
        spec = delivery.spec
        lock = self.lock(delivery.tenant, spec.id, *(() if limit_of(spec) else (delivery.occurrence,)))
        async with lock:
            before = await self._before(delivery)  # another repetition has been decided meanwhile
            return (
                before if before is not None else self._counted(delivery, await self._decide(delivery, made))
            )

    async def reject(self, delivery: Delivery, error: HoldfastError) -> None:
        """Record an event that can never start a run, unless something was decided about it before."""
        async with self.lock(delivery.tenant, delivery.spec.id):
            if await self._before(delivery) is None:
                self._counted(delivery, await self._fail(delivery, error))

    async def position(self, tenant: str, schedule_id: str) -> str:
        """How far the source of a schedule has come; empty at the beginning."""
        states = await self._store.schedule_states([(tenant, schedule_id)])
        return _CURSOR.decode(states[0].cursor.body).position if states else ""

    def lock(self, *key: str) -> asyncio.Lock:
        """Held while something is decided about a schedule, or about one occurrence of it."""
        return self._locks.setdefault(key, asyncio.Lock())

    def _counted(self, delivery: Delivery, decided: Delivered) -> Delivered:
        """Count the outcome of an event for metrics. One that waits is counted when it is decided."""
        if decided.outcome != "buffered" and not decided.is_repeated:
            self._tally.add(delivery.spec.id, decided.outcome, decided.reason)
        return decided

    async def _before(self, delivery: Delivery) -> Delivered | None:
        row = await self._store.ledger_row(delivery.key)
        if row is None or delivery.may_come_again and not _was_accepted(row):
            return None
        return Delivered(row.outcome, row.reason, reply=row.reply, run_id=row.run_id, is_repeated=True)

    async def _without_secrets(self, payload: bytes) -> bytes:
        try:
            return await self._redacted(payload)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InvalidPayload("the body is not JSON") from None

    def _occasion(self, delivery: Delivery) -> Occasion:
        spec = delivery.spec
        by = TriggeredBy(spec.id, spec.trigger.kind, delivery.occurrence, delivery.scheduled_at)
        return Occasion(delivery.tenant, spec, by, self._clock.now())

    async def _rendered(self, delivery: Delivery) -> Rendered | HoldfastError:
        """The inputs of the run, or why there can be none."""
        occasion = self._occasion(delivery)
        try:
            made = await rendered(delivery.payload, delivery.spec.inputs, occasion.trigger)
            self._check(occasion, made)
        except InvalidPayload:
            raise
        except HoldfastError as error:
            if not is_final(error):
                raise
            return error
        return made

    # --------------------------------------------------------------------------------------------------- deciding

    async def _decide(self, delivery: Delivery, made: Rendered | HoldfastError) -> Delivered:
        tenant, spec = delivery.tenant, delivery.spec
        if isinstance(made, HoldfastError):
            return await self._fail(delivery, made)
        if await self._is_paused(tenant, spec.id):
            return await self._skip(delivery, "paused")
        limit = limit_of(spec)
        if limit:
            waiting = 0
            if spec.overlap != "skip":
                self.on_buffered(tenant, spec.id)  # before the count: a run may end after it, and make room
            open_runs = await self._open_runs(tenant, spec.id)
            if spec.overlap != "skip":
                waiting = await self._store.buffered_count(tenant, spec.id, SLOT, limits.now.buffered_max)
            if open_runs >= limit or waiting:
                return await self._at_limit(delivery, made, open_runs, waiting)
        return await self._start(delivery, made)

    async def go_on(self, delivery: Delivery) -> Delivered | None:
        """Decide a waiting event, under the lock of its schedule; None if it must wait longer."""
        decided = await self._go_on(delivery)
        return None if decided is None else self._counted(delivery, decided)

    async def _go_on(self, delivery: Delivery) -> Delivered | None:
        assert delivery.row is not None
        tenant, spec = delivery.tenant, delivery.spec
        if not spec.enabled:
            return None
        made = await self._rendered(delivery)
        if delivery.row.reason == DELAYED:
            return await self._decide(delivery, made)
        if await self._is_paused(tenant, spec.id):
            return None
        limit = limit_of(spec)
        if limit and await self._open_runs(tenant, spec.id) >= limit:
            if spec.overlap == "cancel_previous":
                await self._cancel_oldest(tenant, spec.id)
            return None
        if isinstance(made, HoldfastError):
            return await self._fail(delivery, made)
        return await self._start(delivery, made)

    async def _at_limit(self, delivery: Delivery, made: Rendered, open_runs: int, waiting: int) -> Delivered:
        spec = delivery.spec
        is_full = waiting >= limits.now.buffered_max
        if spec.overlap == "skip" or spec.overlap == "buffer_one" and waiting or is_full:
            return await self._skip(delivery, "overlap", open_runs)
        reply = (
            None
            if delivery.reply is None
            else delivery.reply(Accepted(spec, made.value, None, is_waiting=True))
        )
        entry = self._entry(
            delivery, "buffered", warnings=warnings_of(made), reply=reply, payload=delivery.payload
        )
        if spec.overlap == "cancel_previous":
            superseded = await self._superseded(delivery)
            await self._write(delivery, entry, *superseded)
            self._tally.add(spec.id, "skipped", "superseded", len(superseded))
            await self._cancel_oldest(delivery.tenant, spec.id)
        else:
            await self._write(delivery, entry)
        return Delivered("buffered", reply=reply)

    async def _superseded(self, delivery: Delivery) -> list[Firing]:
        """The events that wait are not started any more, because a newer one is."""
        now, most = self._clock.now(), limits.now.buffered_max
        rows = await self._store.buffered(delivery.tenant, delivery.spec.id, SLOT, now, most)
        entries = [_again(row, "skipped", "superseded", now) for row in rows if row.reason != DELAYED]
        return [Firing((entry,), takes=entry.key) for entry in entries]

    async def _is_paused(self, tenant: str, schedule_id: str) -> bool:
        states = await self._store.schedule_states([(tenant, schedule_id)])
        cursors = [_CURSOR.decode(state.cursor.body) for state in states]
        return any(pause.until is None for cursor in cursors for pause in cursor.pauses)

    # ------------------------------------------------------------------------------------------------ carrying out

    async def _skip(self, delivery: Delivery, reason: Reason, in_flight: int = 0) -> Delivered:
        if delivery.may_come_again and delivery.row is None:
            self.skips.note(delivery.tenant, delivery.spec.id, reason, self._clock.now())
        else:
            await self._write(delivery, self._entry(delivery, "skipped", reason))
        return Delivered("skipped", reason, in_flight=in_flight)

    async def _fail(self, delivery: Delivery, error: HoldfastError) -> Delivered:
        reason = reason_of(error)
        log.warning("schedule %s could not start its run: %s", delivery.spec.id, error)
        reply = None if delivery.row is None else delivery.row.reply
        await self._write(delivery, self._entry(delivery, "failed", reason, message=str(error), reply=reply))
        placeholders = error.placeholders if isinstance(error, UnresolvedTemplate) else ()
        return Delivered("failed", reason, str(error), placeholders=placeholders)

    def _entry(
        self,
        delivery: Delivery,
        outcome: LedgerOutcome,
        reason: str = "",
        *,
        message: str = "",
        warnings: tuple[str, ...] = (),
        reply: bytes | None = None,
        payload: bytes | None = None,
    ) -> LedgerEntry:
        """The row of an event. A small payload is kept in it, so that the event can be delivered again."""
        if payload is None and len(delivery.payload) <= limits.now.delivery_bytes_max:
            payload = delivery.payload
        return LedgerEntry(
            *delivery.key,
            outcome,
            reason,
            delivery.scheduled_at,
            until=None,
            times=1,
            at=self._clock.now(),
            detail=detail_of(message=message, warnings=warnings),
            reply=reply,
            payload=payload,
        )

    async def _write(self, delivery: Delivery, entry: LedgerEntry, *others: Firing) -> None:
        """Write a decision that starts no run."""
        for tries in range(1, TRIES_MAX + 1):
            batch = Batch()
            batch.firings += others
            batch.firings.append(Firing((entry,), *await self._moved(delivery), takes=delivery.takes))
            try:
                return await self._committer.commit(batch)
            except Fenced:
                if tries == TRIES_MAX or delivery.position is None:
                    raise

    async def _moved(self, delivery: Delivery) -> tuple[NewCursor | None, int | None]:
        """The cursor with the position of an event's source, and the revision that it must still have."""
        if delivery.position is None:
            return None, None
        states = await self._store.schedule_states([(delivery.tenant, delivery.spec.id)])
        row = states[0].cursor
        body = msgspec.structs.replace(_CURSOR.decode(row.body), position=delivery.position)
        moved = msgspec.structs.replace(body, revision=row.revision + 1)
        text = msgspec.json.encode(moved).decode()
        return NewCursor(*row[:3], moved.revision, row.next_at, row.owes, text), row.revision


def limit_of(spec: ScheduleSpec) -> int:
    """How many runs of a schedule may be open at once; 0 for any number."""
    return 0 if spec.overlap == "allow" else spec.max_concurrent


def _was_accepted(row: LedgerRow) -> bool:
    """Whether its sender was told that it is accepted, whatever has become of the event since."""
    return row.outcome in ("fired", "buffered") or row.reply is not None


def _again(row: LedgerRow, outcome: LedgerOutcome, reason: str, at: Millis) -> LedgerEntry:
    """A row that was read, with another outcome."""
    return LedgerEntry(
        *row[1:5],
        outcome,
        reason,
        row.scheduled_at,
        row.until,
        row.times,
        at,
        detail=row.detail,
        reply=row.reply,
    )
