"""One registered worker: what it said of itself, its load, and when it was last heard from. Knows no other worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from holdfast.store.records import WorkerRow
from holdfast.tools.limit import Limit
from holdfast.tools.post import Address
from holdfast.values import Millis

Kind = Literal["http", "pull"]


class Service(msgspec.Struct, frozen=True, omit_defaults=True):
    """A service of a worker. `supports_async_callback`: its calls receive a callback URL for a later result."""

    name: str
    supports_async_callback: bool = False


Offered = str | Service  # a service that only has a name

_offered: Final = msgspec.json.Decoder(list[Offered]).decode


class WorkerView(msgspec.Struct, frozen=True):
    """A worker as lists show it."""

    id: str
    url: str
    services: tuple[str, ...]
    load: int
    last_heartbeat: Millis
    status: Literal["online", "offline"]
    type: Kind
    called_back: tuple[str, ...] = ()  # services whose calls receive a callback URL
    place: int = 0  # position in the order of registration


class Worker:
    """One worker. `heard` is the monotonic time of its last heartbeat or request."""

    __slots__ = (
        "address", "beside", "called_back", "heads", "heard", "heard_at", "id", "in_flight", "is_awaited", "is_gone", "is_online", "is_unreached", "key_id", "kind",
        "limits", "load", "name", "place", "services", "tenant", "written",
    )  # fmt: skip

    def __init__(self, row: WorkerRow, heard: float) -> None:
        offered = {service.name: service for service in map(service_of, _offered(row.services))}
        self.tenant, self.id, self.kind, self.services = row.tenant, row.id, row.kind, tuple(offered)
        self.called_back = frozenset(name for name, said in offered.items() if said.supports_async_callback)
        self.place, self.key_id, self.heard, self.heard_at = row.place, row.key_id, heard, row.heard_at
        self.address = Address(row.url) if row.url else None
        self.name = (row.id, row.url)
        self.written = heard  # when its row last said that it was heard, where other nodes read it
        self.is_online = row.status == "online"
        self.is_awaited = False  # it was online before a restart, and was not heard from since
        self.is_gone = False  # it was removed from the registry
        self.is_unreached = False  # a call did not reach it, and it was not heard from since
        self.load = 0  # as reported by the worker
        self.beside = 0  # the part of `load` that is not from our calls
        self.in_flight = 0
        self.heads: dict[str, bytes] = {}  # request heads, by service
        # timeouts of calls that have no other limit than the life of the worker
        self.limits: set[Limit] = set()

    @property
    def burden(self) -> int:
        """The known load. Our own calls are counted here, so that their number is always current."""
        return self.beside + self.in_flight

    def says(self, load: int) -> None:
        self.load, self.beside = load, max(0, load - self.in_flight)

    def row(self) -> WorkerRow:
        services = text_of([Service(name, name in self.called_back) for name in self.services])
        url = self.address.url if self.address else ""
        status: Literal["online", "offline"] = "online" if self.is_online else "offline"
        return WorkerRow(
            self.tenant,
            self.id,
            self.kind,
            url,
            services,
            status,
            self.place,
            self.key_id,
            self.heard_at,
        )

    def view(self) -> WorkerView:
        status: Literal["online", "offline"] = (
            "online" if self.is_online and not self.is_awaited else "offline"
        )
        called_back = tuple(name for name in self.services if name in self.called_back)
        return WorkerView(
            self.id,
            self.name[1],
            self.services,
            self.load,
            self.heard_at,
            status,
            self.kind,
            called_back,
            self.place,
        )

    def renew(self, said: Worker) -> None:
        """It has registered again. Calls in progress continue."""
        self.close()
        self.key_id, self.called_back = said.key_id, said.called_back
        self.kind, self.services, self.address, self.name = said.kind, said.services, said.address, said.name
        self.heard, self.heard_at, self.is_online, self.heads = said.heard, said.heard_at, True, {}
        self.is_unreached = self.is_awaited = False
        self.says(0)

    def close(self) -> None:
        if self.address is not None:
            self.address.close()


def names_in(services: str) -> set[str]:
    """The services in the row of a worker."""
    return {service.name for service in map(service_of, _offered(services))}


def registration(row: WorkerRow) -> tuple[object, ...]:
    """What a worker said of itself when it registered."""
    return row.kind, row.url, row.services, row.place, row.key_id


def service_of(said: Offered) -> Service:
    return Service(said) if isinstance(said, str) else said


def text_of(services: Sequence[Service]) -> str:
    plain = [service if service.supports_async_callback else service.name for service in services]
    return msgspec.json.encode(plain).decode()
