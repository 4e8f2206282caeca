"""The registered workers: their addresses and services, their load, and whether they are alive.

Knows workers, not what they are asked to do. A worker that sent no heartbeat for the time to live is stale: it is not
listed, chosen or called. After a restart of the engine, the same holds for all workers until they are heard from; those that
were alive before keep their names and leases for the time to live, and are called where a call would otherwise fail at once.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final

from holdfast import limits
from holdfast.errors import Forbidden, InvalidInputs, LimitExceeded, NotFound
from holdfast.runtime.again import Again
from holdfast.runtime.clock import Clock
from holdfast.runtime.pulse import Pulse
from holdfast.runtime.writes import Writes
from holdfast.spec.names import control_in
from holdfast.store.records import WorkerRow
from holdfast.tools.failures import ToolError
from holdfast.tools.guard import Guard
from holdfast.values import Millis, is_text
from holdfast.workers.worker import Kind, Offered, Worker, WorkerView, registration, service_of, text_of

NAME_CHARS_MAX: Final = 200
LOAD_MAX: Final = 1_000_000_000
FORGET_SECONDS: Final = 86_400.0  # after this time a stale worker is deleted
SWEEP_SECONDS: Final = 1.0
HEARD_SECONDS: Final = 5.0  # between two rows that tell other nodes that a worker is alive
LEFT_MAX: Final = 10_000  # services whose last worker has left
NO_KEY: Final = ("", "local")  # the key ids of callers that need no key


class WorkerRegistry:
    def __init__(
        self,
        writes: Writes,
        clock: Clock,
        pulse: Pulse,
        guard: Guard,
        ttl_secs: float,
        read: Callable[[], Awaitable[list[WorkerRow]]] | None = None,
    ) -> None:
        """`read` reads the stored workers, if other nodes write to them too."""
        self._writes, self._clock, self._guard, self.ttl_secs = writes, clock, guard, ttl_secs
        self._read_rows, self._stored = read, set[tuple[str, str]]()
        self._reading = Again(self.read, "the workers")
        self._pulse = pulse
        pulse.watch(lambda: any(self._tenants.values()), self._paused)
        self._tenants: dict[str, dict[str, Worker]] = {}
        self._serving: dict[tuple[str, str], dict[str, Worker]] = {}
        self._places = 0
        self._sweep: asyncio.TimerHandle | None = None
        # when the last worker of a service left; those that only stopped reporting are still known
        self._left: OrderedDict[tuple[str, str], Millis] = OrderedDict()
        self.when_gone: Callable[[Worker], None] | None = None
        # called when a worker registers, or is heard from again
        self.when_here: list[Callable[[Worker], None]] = []

    def open(self, rows: list[WorkerRow]) -> None:
        """Load the stored workers. They are offline until they send a heartbeat; one that was online has the time to live
        for it, and may go on with the jobs that it has."""
        now = self._clock.monotonic()
        for row in rows:
            worker = self._put(Worker(row, now if row.status == "online" else now - self.ttl_secs))
            # where nodes share the database, another one may hear from it all the time
            worker.is_awaited = worker.is_online and self._read_rows is None
            self._places = max(self._places, row.place)
            self._stored.add((row.tenant, row.id))

    # ---------------------------------------------------------------------------------- heard by other nodes too

    def look(self) -> None:
        """Other nodes may have registered workers, or heard from them."""
        self._reading.ask()

    async def read(self) -> None:
        if self._read_rows is None:
            return
        rows, now = await self._read_rows(), self._clock.now()
        for row in rows:
            self._places = max(self._places, row.place)
            ago = max(0, now - row.heard_at) / 1000 if row.status == "online" else self.ttl_secs
            self._heard_elsewhere(row, self._clock.monotonic() - ago)
        gone = self._stored - {(row.tenant, row.id) for row in rows}
        self._stored = {(row.tenant, row.id) for row in rows}
        for tenant, worker_id in gone:
            if (worker := self.known(tenant, worker_id)) is not None:
                self._drop(worker)

    def _heard_elsewhere(self, row: WorkerRow, heard: float) -> None:
        known = self.known(row.tenant, row.id)
        if known is None or registration(known.row()) != registration(row):
            self._put(Worker(row, heard))
        elif heard > known.heard:
            was_away = self._is_stale(known)
            known.heard, known.heard_at, known.is_online = heard, row.heard_at, True
            known.is_unreached = False
            if was_away and not self._is_stale(known):
                self._is_here(known)

    async def find(self, tenant: str, worker_id: str | None, url: str | None = None) -> None:
        """Read the stored workers if this one is not known here: it may have registered at another node."""
        workers = self._tenants.get(tenant, {})
        is_known = worker_id in workers or any(
            url and each.name[1] == url.rstrip("/") for each in workers.values()
        )
        if self._read_rows is not None and not is_known:
            await self.read()

    def known(self, tenant: str, worker_id: str) -> Worker | None:
        return self._tenants.get(tenant, {}).get(worker_id)

    def _write_heard(self, worker: Worker) -> None:
        """Let other nodes know that a worker is alive, some times while it lives without another heartbeat."""
        if self._read_rows is not None and worker.heard - worker.written >= min(
            HEARD_SECONDS, self.ttl_secs / 3
        ):
            worker.written = worker.heard
            self._writes.batch.heard_workers.append((worker.tenant, worker.id, worker.heard_at))
            self._writes.soon()

    def close(self) -> None:
        self._reading.close()
        if self._sweep is not None:
            self._sweep.cancel()
        for worker in self._all():
            worker.close()

    def _all(self) -> Iterator[Worker]:
        for workers in self._tenants.values():
            yield from workers.values()

    # ------------------------------------------------------------------------------------------- what they tell

    async def register(
        self,
        tenant: str,
        worker_id: str,
        url: str | None,
        services: Sequence[Offered],
        kind: Kind = "http",
        *,
        key_id: str = "",
    ) -> WorkerView:
        """Register a worker, or update the one with this id. It is durable when this returns.

        If outgoing calls are guarded, the guard checks its URL here and again at each connection: a key for workers
        must not give access to the private network of the server.
        """
        offered = [service_of(said) for said in services]
        _check(worker_id, url, [service.name for service in offered], kind)
        await self.find(tenant, worker_id)
        former = self._tenants.get(tenant, {}).get(worker_id)
        if former is None:
            self._make_room(tenant)
        else:
            self._refuse_other(former, key_id)
        row = WorkerRow(
            tenant,
            worker_id,
            kind,
            (url or "").rstrip("/") if kind == "http" else "",
            text_of(offered),
            "online",
            former.place if former else self._next_place(),
            key_id,
            self._clock.now(),
        )
        try:
            worker = Worker(row, self._clock.monotonic())
            if worker.address is not None and self._guard.guarded:
                await self._guard.targets(worker.address.url)
        except ToolError as error:
            refusal = Forbidden if error.kind == "refused" else InvalidInputs
            raise refusal(f"the url of worker {worker_id!r}: {error}") from None
        worker = self._put(worker)
        self._writes.batch.workers.append(worker.row())
        await self._writes.durable()
        return worker.view()

    def heartbeat(
        self,
        tenant: str,
        worker_id: str | None = None,
        url: str | None = None,
        load: int = 0,
        *,
        key_id: str | None = None,
    ) -> Worker:
        """A heartbeat of the worker with that id, otherwise of the one with that URL. Raises NotFound if it is not
        registered."""
        workers = self._tenants.get(tenant, {})
        found = workers.get(worker_id) if worker_id else None
        if found is None and url:
            wanted = url.rstrip("/")
            found = next((worker for worker in workers.values() if worker.name[1] == wanted), None)
        if found is None:
            raise NotFound(f"no worker {worker_id or url!r} is registered here; register it first")
        self._check_key(found, key_id)
        found.says(min(max(0, load), LOAD_MAX))
        self.hear(found)
        return found

    def hear(self, worker: Worker) -> None:
        worker.heard, worker.heard_at = self._clock.monotonic(), self._clock.now()
        was_away = worker.is_unreached or worker.is_awaited or not worker.is_online
        worker.is_unreached = worker.is_awaited = False
        if not worker.is_online:
            worker.is_online = True
            self._writes.batch.workers.append(worker.row())
            self._writes.soon()
        if was_away:
            self._is_here(worker)
        self._write_heard(worker)
        self._watch()

    def unreached(self, worker: Worker) -> None:
        """A call did not reach this worker. It gets no calls until its next heartbeat, which says that it is back."""
        worker.is_unreached = True

    async def forget(self, tenant: str, worker_id: str, *, key_id: str | None = None) -> WorkerView:
        """Remove a worker; returns it as it was."""
        worker = self.worker(tenant, worker_id, key_id)
        self._drop(worker)
        await self._writes.durable()
        return worker.view()

    # -------------------------------------------------------------------------------------------- who is there

    def online(self) -> int:
        """How many are alive, of all tenants."""
        return sum(not worker.is_awaited and not self._is_stale(worker) for worker in self._all())

    def worker(self, tenant: str, worker_id: str, key_id: str | None = None) -> Worker:
        """The worker with that id; with a key, only if it registered with that key."""
        found = self._tenants.get(tenant, {}).get(worker_id)
        if found is None:
            raise NotFound(f"no worker {worker_id!r} is registered here; register it first")
        self._check_key(found, key_id)
        return found

    def views(
        self, tenant: str, service: str | None = None, ttl_secs: float | None = None
    ) -> list[WorkerView]:
        """Workers with a heartbeat within the time to live, or within `ttl_secs`, in the order of registration."""
        if service is not None:
            some = self._serving.get((tenant, service), {})
        else:
            some = self._tenants.get(tenant, {})
        since = self._clock.monotonic() - (self.ttl_secs if ttl_secs is None else ttl_secs)
        return [
            worker.view()
            for worker in some.values()
            if worker.heard - (self.ttl_secs if worker.is_awaited else 0) > since
        ]

    def allocate(self, tenant: str, service: str) -> WorkerView | None:
        """The worker with the lowest load."""
        found = sorted(self.able(tenant, service, "http"), key=lambda worker: worker.burden)
        return found[0].view() if found else None

    def is_served(self, tenant: str, service: str) -> bool:
        """Whether a live worker, push or pull, offers this service."""
        since = self._clock.monotonic() - self.ttl_secs
        serving = self._serving.get((tenant, service), {}).values()
        return any(
            worker.heard > since
            and not worker.is_unreached
            and not (worker.is_awaited and worker.kind == "http")
            for worker in serving
        )

    def unserved_since(self, tenant: str, service: str) -> Millis | None:
        """Since when a service has no live worker: when one was last heard from. None if none is remembered."""
        heard = [worker.heard_at for worker in self._serving.get((tenant, service), {}).values()]
        if (left := self._left.get((tenant, service))) is not None:
            heard.append(left)
        return max(heard, default=None)

    def services(self, tenant: str) -> dict[str, int]:
        """The services of the registered workers, each with the number of those that are alive."""
        since = self._clock.monotonic() - self.ttl_secs
        return {
            service: sum(
                worker.heard > since and not worker.is_unreached and not worker.is_awaited
                for worker in serving.values()
            )
            for (owner, service), serving in self._serving.items()
            if owner == tenant
        }

    def able(self, tenant: str, service: str, kind: Kind, *, even_if_awaited: bool = False) -> list[Worker]:
        """The live workers of a service, in the order of registration. A job that a pull worker can fetch goes to one that is
        heard from in any case."""
        serving = self._serving.get((tenant, service))
        if not serving:
            return []
        since = self._clock.monotonic() - self.ttl_secs
        return [
            worker
            for worker in serving.values()
            if worker.heard > since
            and worker.kind == kind
            and not worker.is_unreached
            and (not worker.is_awaited or kind == "pull" or even_if_awaited)
        ]

    # -------------------------------------------------------------------------------------------------- inside

    def _is_stale(self, worker: Worker) -> bool:
        return self._clock.monotonic() - worker.heard >= self.ttl_secs

    def _is_of(self, worker: Worker, key_id: str | None) -> bool:
        """A worker that registered without a key may be claimed by a caller with a key."""
        return key_id is None or worker.key_id in NO_KEY or worker.key_id == key_id

    def _refuse_other(self, worker: Worker, key_id: str) -> None:
        """While a worker is alive, no other key can take its id; the key is forgotten with the worker."""
        if not self._is_of(worker, key_id) and not self._is_stale(worker):
            raise Forbidden(f"worker {worker.id!r} was registered with another key; use another id")

    def _check_key(self, worker: Worker, key_id: str | None) -> None:
        if self._is_of(worker, key_id):
            return
        if self._is_stale(worker):
            raise NotFound(f"worker {worker.id!r} is not registered with this key; register it first")
        raise Forbidden(f"worker {worker.id!r} was registered with another key")

    def _put(self, worker: Worker) -> Worker:
        workers = self._tenants.setdefault(worker.tenant, {})
        former = workers.get(worker.id)
        if former is not None:
            self._serve_no_more(former)
            former.renew(worker)
            worker = former
        workers[worker.id] = worker
        for service in worker.services:
            serving = self._serving.setdefault((worker.tenant, service), {})
            serving[worker.id] = worker
            if former is not None:  # a worker that registers again keeps its position
                ordered = sorted(serving.items(), key=lambda item: item[1].place)
                serving.clear()
                serving.update(ordered)
        self._watch()
        self._is_here(worker)
        return worker

    def _is_here(self, worker: Worker) -> None:
        for hear in self.when_here:
            hear(worker)

    def _drop(self, worker: Worker) -> None:
        del self._tenants[worker.tenant][worker.id]
        self._serve_no_more(worker)
        for service in worker.services:
            self._left[worker.tenant, service] = self._clock.now()
            self._left.move_to_end((worker.tenant, service))
        while len(self._left) > LEFT_MAX:
            self._left.popitem(last=False)
        worker.is_gone = True
        worker.close()
        if self.when_gone is not None:
            self.when_gone(worker)
        self._writes.batch.forgotten_workers.append((worker.tenant, worker.id))
        self._writes.soon()

    def _serve_no_more(self, worker: Worker) -> None:
        for service in worker.services:
            serving = self._serving[worker.tenant, service]
            serving.pop(worker.id, None)
            if not serving:
                del self._serving[worker.tenant, service]

    def _next_place(self) -> int:
        self._places += 1
        return self._places

    def _make_room(self, tenant: str) -> None:
        workers = self._tenants.get(tenant, {})
        if len(workers) < limits.now.workers_max:
            return
        stalest = min(workers.values(), key=lambda worker: worker.heard)
        if self._clock.monotonic() - stalest.heard <= self.ttl_secs:
            raise LimitExceeded(
                "workers_max", f"there are {limits.now.workers_max:,} workers already, all of them alive"
            )
        self._drop(stalest)

    def _paused(self, seconds: float) -> None:
        """This process was paused: extend deadlines by the length of the pause, up to the time to live."""
        since = self._clock.monotonic() - self.ttl_secs + min(seconds, self.ttl_secs)
        for worker in self._all():
            worker.heard = max(worker.heard + seconds, since) if worker.is_online else worker.heard

    def _watch(self) -> None:
        self._pulse.start()
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep_stale)

    def _sweep_stale(self) -> None:
        """Record workers whose registration expired, and end the calls that wait for them."""
        self._sweep = None
        self._pulse.check()
        now = self._clock.monotonic()
        for worker in list(self._all()):
            silent = now - worker.heard
            if silent > self.ttl_secs / 3 and worker.is_online and self._read_rows is not None:
                self.look()  # another node may have heard from it
            if silent > self.ttl_secs and worker.is_online:
                worker.is_online = False
                self._writes.batch.workers.append(worker.row())
                self._writes.soon()
            if silent > self.ttl_secs:
                for limit in list(worker.limits):
                    limit.expire()
            if silent > FORGET_SECONDS and not worker.in_flight:
                self._drop(worker)
        if any(self._tenants.values()):
            self._watch()


def _check(worker_id: str, url: str | None, services: list[str], kind: str) -> None:
    """Check a registration and report every problem in one error."""
    problems = []
    if why := _misnamed(worker_id):
        problems.append(f"id {why}")
    if kind == "http" and (not url or len(url) > limits.now.url_chars_max):
        most = f"{limits.now.url_chars_max:,} characters ({limits.met('url_chars_max')})"
        problems.append(f"url is the address of the worker, up to {most}")
    if not 1 <= len(services) <= limits.now.worker_services_max:
        problems.append(
            f"services must have 1 to {limits.now.worker_services_max:,} names ({limits.met('worker_services_max')})"
        )
    if why := next(filter(None, map(_misnamed, services)), None):
        problems.append(f"the name of a service {why}")
    if problems:
        raise InvalidInputs("the worker cannot be registered: " + "; ".join(problems))


def _misnamed(name: str) -> str | None:
    """What is wrong with a name, if anything. Names appear in lists, paths and log lines."""
    if not name or len(name) > NAME_CHARS_MAX or not is_text(name):
        return f"must have 1 to {NAME_CHARS_MAX} characters, not {name!a:.50}"
    if (found := control_in(name)) is not None:
        return f"contains a control character: {name!a:.50}; remove {found}"
    return None
