"""The store on a PostgreSQL database: opens it, and commits batches in their order. Knows no rule of the engine.

One connection writes: batches are collected while the one before is on its way (runtime/door.py), so more connections would
only make smaller batches. A few others read. A commit is one statement and one round trip (writes.py).

A connection that breaks while a commit is on its way leaves its outcome unknown. The node then connects again and reads how many
of its commits have landed (`node.committed`). If this one is not among them, it sends the same commit again: the count lets
only one of the two land, even if the first is still at work. `done` is called once the outcome is known.

While the server stays away, callers are not kept waiting: after some seconds the commit counts as failed. Its outcome is then
settled before any other commit: it has landed, or its number is used up and it never can. Nothing is decided again in between,
because runs are loaded again only after a later commit.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import asyncpg  # type: ignore[import-untyped]  # it has no stubs

from holdfast.errors import NodeIsOver, StoreGone, StoreUnavailable
from holdfast.signing import new_key
from holdfast.store.base import Fenced
from holdfast.store.batch import Batch
from holdfast.store.jobs import SharedJobs
from holdfast.store.postgres.asking import (
    AWAY,
    READERS_MAX,
    REFUSED,
    TAKEN_BACK,
    answering_within,
    meaning,
    reason_of,
)
from holdfast.store.postgres.ownership import TAKEN_OVER
from holdfast.store.postgres.place import (
    Address,
    connect,
    examine,
    migrated,
    schema_of,
    unreachable,
)
from holdfast.store.postgres.reads import PostgresReads
from holdfast.store.postgres.writes import CHANNEL, Writes, lost_firings
from holdfast.values import RunNo
from holdfast.version import VERSION

COMMIT_SECONDS: Final = 15.0  # a commit that takes longer has lost its connection
UNKNOWN_SECONDS: Final = 5.0  # after this the callers of a commit of unknown outcome learn that it is unknown
CLOSE_SECONDS: Final = 2.0
AGAIN_SECONDS: Final = 0.05
AGAIN_SECONDS_MAX: Final = 2.0
RETRIES: Final = 5  # of a commit that the server took back because of another
SERIES_REMEMBERED_MAX: Final = 10_000
FREE_BYTES: Final = 2**62  # of a disk that is another machine's

# The number of a run: milliseconds since 2020, the node, a counter within the millisecond.
FIRST_MS: Final = 1_577_836_800_000
NODE_BITS, COUNTER_BITS = 10, 11

log = logging.getLogger("holdfast")

Done = Callable[[BaseException | None], None]


class Sending:
    """A commit on its way."""

    def __init__(self, number: int) -> None:
        self.number, self.retries, self.delay = number, RETRIES, AGAIN_SECONDS
        self.is_sent = False  # then its outcome may be unknown
        self.unknown_since = 0.0


class PostgresStore(PostgresReads):
    def __init__(
        self, url: str, *, lease_ms: int | None = None, unknown_seconds: float = UNKNOWN_SECONDS
    ) -> None:
        super().__init__()
        self._unknown_seconds = unknown_seconds
        self._address = Address(url)
        self.path = self._address.shown
        self.node, self.epoch, self.server_key = self._address.node, 0, b""
        self.lease_ms = lease_ms or self._address.lease_ms
        self._number = 0  # of this node, among those that are alive
        self._last_no = 0
        self._committed = 0
        self._is_in_doubt = False  # the last commit was given up, and may have landed
        self._db: Any = None  # the connection that writes
        self._writes: Writes
        self._series: dict[tuple[str, str, int], int] = {}
        self._queue: deque[tuple[Batch, Done]] = deque()
        self._has_work = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._listener: Any = None
        self._hinted: Callable[[], None] | None = None
        self.shared_jobs: SharedJobs | None = self

    # --------------------------------------------------------------------------------------- open and close

    async def open(self) -> None:
        """Bring the database up to date and join its nodes. An older node of the same name ends."""
        try:
            self._db = await connect(self._address)
            await examine(self._db, self._address)
            async with migrated(self._db, self._address):
                await self._join()
            await self._open_readers(READERS_MAX)  # all at once: a server that has too few is found out now
            await self._listen()
        except (*AWAY, asyncpg.PostgresError) as error:
            await self.close()
            raise StoreUnavailable(f"{self.path} cannot be opened: {reason_of(error)}") from error
        except BaseException:
            await self.close()
            raise
        self._writes = Writes(self._sql, self.node, self.epoch)
        self._writer = asyncio.get_running_loop().create_task(self._write_all())

    async def _join(self) -> None:
        db, sql, sent = self._db, self._sql, time.monotonic()
        await db.execute(sql["end_namesakes"], self.node)
        await db.execute(sql["forget_nodes"])
        await db.execute(sql["forget_duties"])
        joined = time.monotonic()
        said = self.node, self.lease_ms, VERSION, os.getpid()
        self.epoch, number, now = await db.fetchrow(sql["join_node"], *said)
        self.clock.measured(joined, now)
        if number is None:
            raise StoreUnavailable(f"{self.path} has 1,024 nodes already, and cannot have more")
        await db.execute(sql["gather_tallies"], self.node)
        await db.execute(sql["add_meta"], "server_key", new_key())
        self.server_key = await db.fetchval(sql["meta"], "server_key")
        self._number = number
        self._lease_is_good(sent)

    def on_hint(self, call: Callable[[], None]) -> None:
        self._hinted = call

    async def _listen(self) -> None:
        """Hear of mail at once. It is only a hint: without it, mail is found by the next look."""
        if self._listener is None or self._listener.is_closed():
            self._listener = await connect(self._address.for_listening)
            with answering_within(self._listener, CLOSE_SECONDS):
                await self._listener.add_listener(CHANNEL, self._heard)

    def _heard(self, connection: Any, pid: int, channel: str, said: str) -> None:
        """The node that mail is for, or 0 for all; or a kind of thing that changed, and the node that must know."""
        what, _, epoch = said.rpartition(" ")
        is_ours = epoch in (str(self.epoch), "0")
        if said == "offers":
            self._report("offers")
        elif what == "jobs" and is_ours:
            self._report("jobs")
        elif self._hinted is not None and is_ours:
            self._hinted()

    async def renew(self) -> None:
        await super().renew()
        with suppress(StoreUnavailable, *AWAY):
            await self._listen()

    async def open_to_read(self, *, any_release: bool = False) -> None:
        """Read the database while nodes write to it: nothing is migrated or changed."""
        self._db = await connect(self._address)
        try:
            await schema_of(self._db, self._address, needs_all=True)
            self.server_key = await self._db.fetchval(self._sql["meta"], "server_key") or b""
            await self._open_readers()
        except AWAY as error:
            raise meaning(error, "read") from error
        finally:
            await self._db.close(timeout=1)
            self._db = None

    async def _open_readers(self, least: int = 1) -> None:
        session = self._address.session()
        try:
            self._pool = await asyncpg.create_pool(
                connect=self._address.reach,
                min_size=least,
                max_size=READERS_MAX,
                reset=_keep_as_it_is,
                **session,
            )
        except (*AWAY, asyncpg.PostgresError) as error:
            raise unreachable(self._address, error) from error

    async def close(self) -> None:
        if self._writer is not None:
            self._queue.append((Batch(), lambda _: None))
            self._has_work.set()
            self._writer.cancel()
            with suppress(asyncio.CancelledError):
                await self._writer
            self._writer = None
            if self._db is not None:  # else it is not connected at the moment, and its lease expires
                with suppress(*AWAY, asyncpg.PostgresError), answering_within(self._db, CLOSE_SECONDS):
                    await self._db.execute(self._sql["leave"], self.epoch)
        if self._pool is not None:
            with suppress(*AWAY, asyncpg.PostgresError), answering_within(self._pool, CLOSE_SECONDS):
                await self._pool.close()
        self.abandon()

    def abandon(self) -> None:
        """Let the connections go where no caller waits for that, as after a crash."""
        if self._writer is not None:
            self._writer.cancel()
            self._writer = None
        if self._db is not None:
            self._db.terminate()
            self._db = None
        if self._listener is not None:
            self._listener.terminate()
            self._listener = None
        if self._pool is not None:
            self._pool.terminate()
            self._pool = None

    def was_touched(self) -> bool:
        return False

    def problem(self) -> StoreGone | None:
        """A server checks its own files."""
        return None

    def condemn(self, why: str) -> StoreGone:
        return StoreGone(why)

    def file_check(self) -> NoCheck:
        return NoCheck()

    def free_bytes(self) -> int:
        return FREE_BYTES

    # ---------------------------------------------------------------------------------------------- writing

    def next_no(self) -> RunNo:
        """Numbers follow the time of creation, and no two nodes give out the same. No other node is asked."""
        ms = self.clock.now() - FIRST_MS
        no = ms << (NODE_BITS + COUNTER_BITS) | self._number << COUNTER_BITS
        last = self._last_no
        if no <= last:  # within one millisecond, or the clock was set back
            no = last + 1
            if not no % (1 << COUNTER_BITS):  # the counter is full: the next millisecond is begun
                no = (last >> (NODE_BITS + COUNTER_BITS)) + 1 << (NODE_BITS + COUNTER_BITS)
                no |= self._number << COUNTER_BITS
        self._last_no = no
        return RunNo(no)

    def submit(self, batch: Batch, done: Done) -> None:
        self._queue.append((batch, done))
        self._has_work.set()

    async def _write_all(self) -> None:
        while True:
            await self._has_work.wait()
            while self._queue:
                batch, done = self._queue.popleft()
                error = await self._commit(batch)
                try:
                    done(error)
                except Exception:  # what follows a commit must not stop the next one
                    log.exception("what follows a commit failed")
            self._has_work.clear()

    async def _commit(self, batch: Batch) -> BaseException | None:
        """The outcome of a commit. Every exception is an outcome."""
        self._writes.without_nul = False
        sending = Sending(self._committed + 1)
        while True:
            try:
                await self._try(batch, sending)
            except Exception as error:
                outcome = await self._outcome(error, batch, sending)
                if outcome is not None:
                    return outcome
            else:
                self._committed = sending.number
                return None

    async def _try(self, batch: Batch, sending: Sending) -> None:
        is_new = self._db is None or self._db.is_closed()
        if is_new:
            self._db = await connect(self._address)
        with answering_within(self._db, COMMIT_SECONDS):
            if is_new:
                await examine(self._db, self._address)  # a server that was put in the place of the other
            await self._write(batch, sending)

    async def _write(self, batch: Batch, sending: Sending) -> None:
        if self._is_in_doubt and not sending.is_sent:
            await self._settle_doubt()
            sending.number = self._committed + 1
        if sending.is_sent and await self._has_landed(sending.number):
            return
        await self._name_series(batch)
        sending.is_sent = True
        await self._send(batch, sending.number)

    async def _outcome(self, error: Exception, batch: Batch, sending: Sending) -> BaseException | None:
        """What a failure means; None if the commit is to be tried again."""
        if isinstance(error, asyncpg.CharacterNotInRepertoireError) and not self._writes.without_nul:
            self._writes.without_nul = True  # text of PostgreSQL cannot have NUL
            return None
        if isinstance(error, ValueError):  # the driver cannot send a value of the batch
            return error
        if isinstance(error, TAKEN_BACK) and not sending.unknown_since:
            sending.retries -= 1
            return (
                None if sending.retries else StoreUnavailable(f"the database cannot be written now: {error}")
            )
        if isinstance(error, REFUSED) and not sending.unknown_since:
            return meaning(error, "written")
        if isinstance(error, (*AWAY, StoreUnavailable)):
            return await self._is_away(error, sending)
        try:
            with answering_within(self._db, COMMIT_SECONDS):
                return await self._meaning(error, batch, sending)
        except (*AWAY, StoreUnavailable) as second:
            return await self._is_away(second, sending)

    async def _is_away(self, error: Exception, sending: Sending) -> BaseException | None:
        self._drop_connection()
        if not sending.is_sent:
            return meaning(error, "written")
        sending.unknown_since = sending.unknown_since or time.monotonic()
        if time.monotonic() - sending.unknown_since >= self._unknown_seconds:
            self._is_in_doubt = True
            return StoreUnavailable(
                f"the database went away during a commit, and whether it was written is not known yet: {error}"
            )
        log.warning("the outcome of a commit is unknown; asking the database: %s", error)
        await asyncio.sleep(sending.delay)
        sending.delay = min(2 * sending.delay, AGAIN_SECONDS_MAX)
        return None

    async def _settle_doubt(self) -> None:
        """The last commit has landed, or never can: its number is used up. One that is still at work is waited for."""
        if not await self._db.fetchval(self._sql["use_up"], self.epoch, self._committed + 1):
            raise NodeIsOver(TAKEN_OVER)
        self._committed += 1
        self._is_in_doubt = False

    def _drop_connection(self) -> None:
        if self._db is not None:
            self._db.terminate()
            self._db = None

    async def _send(self, batch: Batch, number: int) -> None:
        if batch.has_rest and self._writes.is_in_turn(batch):
            async with self._db.transaction():
                await self._writes.in_turn(self._db, batch, number)
        else:
            text, args = self._writes.composed(batch, number)
            await self._db.fetch(text, *args)

    async def _has_landed(self, number: int) -> bool:
        """Raises NodeIsOver if the commit has not landed, and never will."""
        state = await self._db.fetchrow(self._sql["is_alive"], self.epoch)
        if state is not None and state[1] == number:
            # A session that ends while it waits for a standby leaves its commit here alone. A later one waits for both.
            await self._db.execute(self._sql["commit_again"], self.epoch)
            return True
        if state is None or not state[0]:
            raise NodeIsOver(TAKEN_OVER)
        return False

    async def _name_series(self, batch: Batch) -> None:
        for new in batch.new_runs.values():
            key = (new.tenant, new.workflow, new.number or 0)
            known = self._series.get(key)
            if known is None:
                if len(self._series) >= SERIES_REMEMBERED_MAX:
                    self._series.clear()
                known = self._series[key] = await self._db.fetchval(self._sql["series_of"], *key)
            new.series = known

    async def _meaning(self, error: BaseException, batch: Batch, sending: Sending) -> BaseException | None:
        """What a failure means to the committer: this node has been replaced, or fenced off, or a bug in Holdfast. None if the
        first copy of this commit has landed after all, while the second one waited for it."""
        db, sql = self._db, self._sql
        if isinstance(error, asyncpg.DivisionByZeroError):
            state = await db.fetchrow(sql["is_alive"], self.epoch)
            if state is None or not state[0]:
                return NodeIsOver(TAKEN_OVER)
            if state[1] == sending.number and sending.unknown_since and sending.retries:
                sending.retries -= 1  # the next try reads back that it has landed
                return None
            if state[1] != sending.number - 1:
                return NodeIsOver("commits of this node are counted wrong; it can write nothing more")
        if (
            isinstance(error, asyncpg.DivisionByZeroError | asyncpg.CardinalityViolationError)
            and batch.firings
        ):
            return Fenced([], await lost_firings(db, sql, batch.firings))
        if isinstance(error, asyncpg.UniqueViolationError):
            asked = [row[0] for row in batch.rows], [row[1] for row in batch.rows]
            if taken := [row[0] for row in await db.fetch(sql["taken_runs"], *asked)]:
                return Fenced(taken)
            requests = [(one.tenant, one.id, one.run) for one in batch.requests]
            columns = [list(column) for column in zip(*requests, strict=True)] or [[], [], []]
            if taken := [row[0] for row in await db.fetch(sql["taken_requests"], *columns)]:
                return Fenced(taken)  # another node has begun the runs of these requests
        return error


async def _keep_as_it_is(connection: Any) -> None:
    """Reads leave nothing behind in a session, and to reset it would cost each of them another round trip."""


class NoCheck:
    """A server checks its own pages."""

    has_begun = True

    def run(self) -> str:
        return ""

    def stop(self) -> None:
        pass
