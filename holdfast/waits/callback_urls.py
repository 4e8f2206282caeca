"""Callback URLs: the address to which the result of one attempt may be sent. The URL itself is the only credential."""

from __future__ import annotations

from typing import Final

from holdfast.runtime.resident_run import ResidentRun
from holdfast.signing import Capability, sealed
from holdfast.store.base import Store

RESUME_PATH: Final = "/workflows/resume"


class CallbackUrls:
    """`public_url` is the server's public URL."""

    def __init__(self, store: Store, public_url: str) -> None:
        self._store, self._public_url = store, public_url.rstrip("/")

    def of(self, resident: ResidentRun, path: str, attempt: int) -> str:
        capability = Capability(resident.run.tenant, resident.run.id, path, attempt)
        return f"{self._public_url}{RESUME_PATH}/{sealed(self._store.server_key, capability)}"
