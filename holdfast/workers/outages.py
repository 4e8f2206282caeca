"""Services without a worker that steps wait for: since when, and one line in the log when it begins and when it ends.

Knows no steps and no runs. A service is mentioned once, however many steps wait for it.
"""

from __future__ import annotations

import logging
import shlex
from datetime import UTC, datetime
from typing import Final

from holdfast.runtime.clock import Clock
from holdfast.values import Millis
from holdfast.workers.registry import WorkerRegistry
from holdfast.workers.worker import Worker

log = logging.getLogger("holdfast.services")

REMEMBERED_MAX: Final = 10_000  # services without a worker; of the rest nothing is logged


class Outages:
    def __init__(self, registry: WorkerRegistry, clock: Clock) -> None:
        self._registry, self._clock = registry, clock
        self._since: dict[tuple[str, str], Millis] = {}  # by tenant and service

    def since(self, tenant: str, service: str, oldest: Millis | None = None) -> Millis | None:
        """Since when no worker serves a service; None if one does. `oldest` is since when a step waits for it, as far as is known."""
        if self._registry.is_served(tenant, service):
            return None
        seen = self._registry.unserved_since(tenant, service)
        if seen is not None:
            return seen
        known = [at for at in (self._since.get((tenant, service)), oldest) if at]
        return min(known, default=self._clock.now())

    def waits(self, tenant: str, service: str) -> None:
        """A step waits for a worker of this service."""
        if (tenant, service) in self._since or len(self._since) >= REMEMBERED_MAX:
            return
        since = self.since(tenant, service) or self._clock.now()
        self._since[tenant, service] = since
        log.warning("service %r has no worker since %s; %s", service, time_text(since), how_to_serve(service))

    def served(self, worker: Worker) -> None:
        for service in worker.services:
            if (since := self._since.pop((worker.tenant, service), None)) is not None:
                seconds = max(0, self._clock.now() - since) / 1000
                log.info("service %r has a worker again, after %.0f s: %s", service, seconds, worker.id)


def how_to_serve(service: str) -> str:
    """How to start a worker for a service."""
    return f"start a worker whose module has a tool named {shlex.quote(service)}: holdfast worker MODULE"


def time_text(at: Millis) -> str:
    """A moment as people read it."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
