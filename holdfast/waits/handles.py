"""Handles of runs that a client keeps between two requests, sealed so that no other client can make or use one."""

from __future__ import annotations

from typing import Final

from holdfast.signing import Capability, opened, sealed
from holdfast.store.base import Store

PURPOSE: Final = "handle"


class Handles:
    def __init__(self, store: Store) -> None:
        self._store = store

    def sealed(self, tenant: str, run_id: str, path: str) -> str:
        """A handle of a run; `path` is the step that asks, so that each question has a handle of its own."""
        return sealed(self._store.server_key, Capability(tenant, run_id, path, 0, PURPOSE))

    def opened(self, tenant: str, text: str) -> str | None:
        """The run that a handle names, if this server gave it out to this tenant."""
        found = opened(self._store.server_key, text, PURPOSE)
        return found.run_id if found is not None and found.tenant == tenant else None
