"""The outbox: delivers final callbacks, retries until they are accepted, and keeps dead letters.

    run ends ═ commit with deliveries ═► query ─► send ─┬─ 2xx ────────────► delivered
                                           ▲            ├─ 410 ────────────► dead
                                           └─── wait ◄──┴─ anything else ──► due later; dead after three days

Deliveries are rows: only those being sent are in memory. Knows nothing of why a run ended. No query runs
while no run has a destination; due times come from timers, not from polling.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from typing import Final

from holdfast import limits
from holdfast.deliveries.destinations import delivered, discarded, failed, replayed
from holdfast.deliveries.message import headers_of, text_of
from holdfast.errors import NodeIsOver, NotFound, Refused
from holdfast.runtime.clock import Clock, Steady
from holdfast.runtime.committer import Committer
from holdfast.runtime.places import Slow
from holdfast.runtime.service import Service
from holdfast.runtime.timers import Timers
from holdfast.runtime.writes import Writes
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.store.records import CallbackDelivery, CallbackDeliveryTried
from holdfast.tools.failures import ToolError
from holdfast.tools.http import post
from holdfast.tools.registry import Registry
from holdfast.tools.secrets import Secrets, SecretUnavailable
from holdfast.values import Millis, RunNo, is_text
from holdfast.views.runs import Queries

log = logging.getLogger("holdfast")

SENDING_TO_ONE_MAX: Final = (
    16  # of these, to one server or to all slow servers, so that slots are left for the rest
)
SEND_SECONDS: Final = 30.0
ANSWER_BYTES_MAX: Final = 64 * 1024
CLOSE_SECONDS: Final = 5.0  # for deliveries in flight when the engine is closed
QUERY_AGAIN_MS: Final = 5_000  # after a query that failed


class Outbox(Service):
    def __init__(
        self,
        store: Store,
        clock: Clock,
        committer: Committer,
        queries: Queries,
        registry: Registry,
        secrets: Secrets,
        *,
        manual_clock: bool = False,
    ) -> None:
        self._store, self._committer, self._queries = store, committer, queries
        self._registry, self._secrets = registry, secrets
        self._wall_clock = clock
        self.clock = Steady(clock)  # decides when a try is due; recorded times are those of the wall clock
        self.drives_all = True  # otherwise only the callbacks of runs that were noted here are sent
        self.timers = Timers(self.clock, manual_clock=manual_clock)
        self.timers.begin(lambda no: None, self.query)
        self.writes = Writes(committer)
        self._sending: dict[int, asyncio.Task[None]] = {}
        self._to: Counter[str] = Counter()  # of these, by the server that they go to
        self._slow = Slow[str]()  # servers that took long when they were last sent something
        self.counts: Counter[str] = Counter()  # outcomes of attempts, and of dead letters
        self._querying: asyncio.Task[None] | None = None
        self._own: set[RunNo] = set()  # the only runs whose deliveries are sent, if not all are
        self._is_asked = False
        self._is_closed = False

    @property
    def is_busy(self) -> bool:
        """Whether a delivery is being sent, or a query is running."""
        return bool(self._sending) or self._querying is not None

    async def open(self, *, drive: bool) -> None:
        self.drives_all = drive
        self.clock.begin()  # a database that has a clock of its own is open now
        if drive:
            self.query()

    # ------------------------------------------------------------------------------------------------- sending

    def note(self, no: RunNo) -> None:
        """A run has deliveries that are due."""
        if not self.drives_all:
            self._own.add(no)
        self.query()

    def query(self) -> None:
        """Send what is due."""
        self._is_asked = True
        if self._querying is None and not self._is_closed:
            self._querying = asyncio.get_running_loop().create_task(self._query())

    def set_clock(self, at: Millis) -> None:
        """Set the least time of the clock: the wall clock was set back from it before this process started."""
        self.clock.at_least(at)
        self.timers.read_clock()
        self.query()

    async def _query(self) -> None:
        try:
            while self._is_asked:
                self._is_asked = False
                queried_at = self.clock.now()  # deliveries that become due during the query are not missed
                await self._take(queried_at)
                self.timers.due_in_store(await self._store.next_callback_delivery(queried_at))
        except Exception:  # a failed query must not be the last one
            log.exception("cannot query due deliveries now")
            self.timers.due_in_store(Millis(self.clock.now() + QUERY_AGAIN_MS))
        finally:
            self._querying = None

    async def _take(self, now: Millis) -> None:
        """Send the deliveries that are due, as far as there are free slots."""
        while (room := limits.now.final_callbacks_max - len(self._sending)) > 0 and not self._is_closed:
            full = [origin for origin, count in self._to.items() if count >= SENDING_TO_ONE_MAX]
            if self._slow_sending >= SENDING_TO_ONE_MAX:
                full += self._slow
            runs = None if self.drives_all else sorted(self._own)
            sending = set(self._sending)  # before asking: one that is sent meanwhile was due when it was read
            due = await self._store.callback_deliveries_due(now, full, runs, room + len(sending))
            fresh = [delivery for delivery in due if delivery.pos not in sending]
            if not fresh:
                return
            for delivery in fresh[:room]:
                if self._has_room(delivery.origin):
                    self._begin(delivery)

    def _has_room(self, origin: str) -> bool:
        if self._to[origin] >= SENDING_TO_ONE_MAX:
            return False
        return origin not in self._slow or self._slow_sending < SENDING_TO_ONE_MAX

    @property
    def _slow_sending(self) -> int:
        return sum(count for origin, count in self._to.items() if origin in self._slow)

    def _begin(self, delivery: CallbackDelivery) -> None:
        self._to[delivery.origin] += 1
        self._sending[delivery.pos] = asyncio.get_running_loop().create_task(self._send(delivery))

    async def _send(self, delivery: CallbackDelivery) -> None:
        began = self.clock.monotonic()
        try:
            result = await self._tried(delivery)
            self._slow.took(delivery.origin, self.clock.monotonic() - began)
            await self._written(result)
        except NodeIsOver:
            pass  # the process that owns the file now sends it again
        finally:
            del self._sending[delivery.pos]
            self._to[delivery.origin] -= 1
            if not self._to[delivery.origin]:
                del self._to[delivery.origin]
            self.query()

    async def _tried(self, delivery: CallbackDelivery) -> CallbackDeliveryTried:
        """Make one try and return the resulting state of the delivery."""
        try:
            await self._post(delivery)
        except ToolError as error:
            return self._failed(delivery, str(error), for_good=error.kind == "gone")
        except Exception as error:  # a delivery that cannot be built must not stop the rest
            log.exception("delivery %s cannot be sent", delivery.id)
            return self._failed(delivery, f"cannot be sent: {error!r}", for_good=False)
        return delivered(delivery, self._wall_clock.now())

    async def _post(self, delivery: CallbackDelivery) -> None:
        secret = self._secret(delivery)
        text = text_of(await self._queries.run(delivery.tenant, delivery.run_id))
        try:
            headers = headers_of(delivery, text, self._wall_clock.now(), secret)
        except ValueError as error:
            raise ToolError(
                f"the secret {delivery.secret_env} does not hold a valid signing key: {error}", kind="inputs"
            ) from None
        await post(self._registry.guard, delivery.url, headers, text, SEND_SECONDS, ANSWER_BYTES_MAX)

    def _secret(self, delivery: CallbackDelivery) -> str | None:
        if delivery.secret_env is None:
            return None
        try:
            return self._secrets.for_callback(delivery.secret_env, delivery.tenant)
        except SecretUnavailable as error:
            raise ToolError(str(error), kind=error.kind) from None

    def _failed(self, delivery: CallbackDelivery, error: str, *, for_good: bool) -> CallbackDeliveryTried:
        message = self._secrets.redact(error)
        result = failed(delivery, self.clock.now(), message, for_good=for_good)
        if result.outcome is None:
            log.warning("final callback of run %s failed; retrying: %s", delivery.run_id, message)
        else:
            log.error(
                "final callback of run %s failed for good; delivery %s is dead: %s",
                delivery.run_id,
                delivery.id,
                message,
            )
        return result

    async def _written(self, result: CallbackDeliveryTried) -> None:
        """Wait until a result is on disk: a delivery whose result is not written yet must not be sent a second time."""
        self.writes.batch.tried.append(result)
        while True:
            try:
                await self.writes.durable()
                break
            except NodeIsOver:
                raise
            except Exception:  # noqa: BLE001  # it is kept, and written once that is possible
                continue
        self.counts[result.outcome or "failed"] += 1

    # ------------------------------------------------------------------------------------------------ the dead

    async def replay(self, tenant: str, delivery_id: str) -> CallbackDelivery:
        """Redeliver a dead letter, as if it were new."""
        delivery = await self._dead(tenant, delivery_id)
        return await self._decided(delivery, replayed(delivery, self.clock.now()))

    async def discard(self, tenant: str, delivery_id: str) -> CallbackDelivery:
        """Discard a dead letter: it is no longer listed, but stays with its run."""
        delivery = await self._dead(tenant, delivery_id)
        return await self._decided(delivery, discarded(delivery, self._wall_clock.now()))

    async def _dead(self, tenant: str, delivery_id: str) -> CallbackDelivery:
        delivery = await self._store.callback_delivery(tenant, delivery_id) if is_text(delivery_id) else None
        if delivery is None:
            raise NotFound(f"no delivery {delivery_id!a:.80}; see holdfast dead-letters list")
        if delivery.outcome != "dead":
            raise Refused(f"delivery {delivery.id} is {delivery.outcome or 'pending'}, not dead")
        return delivery

    async def _decided(self, delivery: CallbackDelivery, result: CallbackDeliveryTried) -> CallbackDelivery:
        batch = Batch()
        batch.tried.append(result)
        await self._committer.commit(batch)
        self.counts[result.outcome or "replayed"] += 1
        self.note(delivery.no)
        return delivery._replace(
            tries=result.tries, due_at=result.due_at, done_at=result.done_at, outcome=result.outcome
        )

    # ----------------------------------------------------------------------------------------------------- end

    async def rests(self) -> None:
        """Wait until every due delivery has been tried."""
        while tasks := self._tasks:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Wait a moment for deliveries in flight. Those that do not finish are sent again when the file is next opened."""
        if self._committer.is_shut:  # no result could be written
            return self.abandon()
        self.timers.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.rests()
        tasks = self._tasks
        self.abandon()
        await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self, error: Exception | None = None) -> None:
        """Send nothing more."""
        self._is_closed = True
        self.timers.close()
        for task in self._tasks:
            task.cancel()
        self.writes.abandon()

    @property
    def _tasks(self) -> list[asyncio.Task[None]]:
        return [*self._sending.values(), *([] if self._querying is None else [self._querying])]
