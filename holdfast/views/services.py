"""The services that workers offer or that steps wait for: how many workers each has, and how much work waits for one.

Reads the memory of the engine and the rows of evicted runs. Changes nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.runtime.resident_run import SERVICE, lacking, need_of
from holdfast.store.base import Store
from holdfast.values import Millis
from holdfast.views.memory import Memory
from holdfast.workers.outages import how_to_serve

SERVICES_MAX: Final = 10_000  # services without a worker that evicted runs wait for


class ServiceView(msgspec.Struct, frozen=True):
    """A service. `waiting` counts the calls that no worker has begun, `oldest` is since when the first of them waits."""

    name: str
    workers: int
    waiting: int
    oldest: Millis | None
    unserved_since: Millis | None
    start_one: str | None  # how to start a worker, if there is none


async def services_of(store: Store, memory: Memory, tenant: str) -> list[ServiceView]:
    """The services of a tenant, by name."""
    workers = memory.services(tenant)
    waiting: dict[str, tuple[int, Millis]] = {}

    def add(name: str, count: int, since: Millis) -> None:
        known, oldest = waiting.get(name, (0, since))
        waiting[name] = known + count, min(oldest, since)

    for name, count, since in await store.services_in_need(tenant, SERVICES_MAX):
        add(name, count, since)
    for resident in memory.residents.values():
        if resident.lacks and resident.owned and resident.run.tenant == tenant:
            for path, step in lacking(resident):
                need = need_of(resident.plan, path, step)
                if need.startswith(SERVICE):
                    add(need.removeprefix(SERVICE), 1, step.lacks_since)
    for name, (count, since) in memory.offered(tenant).items():
        add(name, count, since)
    return [
        _view(memory, tenant, name, workers.get(name, 0), waiting) for name in sorted({*workers, *waiting})
    ]


def _view(
    memory: Memory, tenant: str, name: str, workers: int, waiting: dict[str, tuple[int, Millis]]
) -> ServiceView:
    count, oldest = waiting.get(name, (0, None))
    since = None if workers else memory.outage(tenant, name, oldest)
    return ServiceView(name, workers, count, oldest, since, None if workers else how_to_serve(name))
