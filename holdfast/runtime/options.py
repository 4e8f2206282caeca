"""The settings of an engine, as `compose.py` passes them to its parts. Checks nothing."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from holdfast import limits
from holdfast.execution.dispatcher import ATTEMPTS_MAX, THREADS_MAX, TURN_SECONDS
from holdfast.plan.graph import NO_WORKER_WAIT_MS, PENDING_TTL_MS
from holdfast.store.artefacts import Artefacts
from holdfast.tools.secrets import Secrets
from holdfast.workers.service import LEASE_SECS, TTL_SECS


class Options(msgspec.Struct, kw_only=True, frozen=True):
    """The defaults are those of an engine inside a user's own program."""

    attempts_max: int = ATTEMPTS_MAX
    threads: int = THREADS_MAX
    processes: int | None = None  # one per core
    process_memory_bytes: int | None = None  # half of the machine's
    turn_seconds: float = TURN_SECONDS
    resident_max: int | None = None  # the limit of that name
    template_env: Collection[str] = ()
    pending_ttl_ms: int = PENDING_TTL_MS
    no_worker_wait_ms: int = NO_WORKER_WAIT_MS
    worker_ttl_secs: float = TTL_SECS
    worker_lease_secs: float = LEASE_SECS
    public_url: str | None = None
    secrets: Secrets | None = None
    limits: limits.Limits | None = None  # those of the process
    tunes_gc: bool = False
    manual_clock: bool = False  # the clock only moves when the caller moves it, as in a test
    # Of a database in a file.
    artefacts: Artefacts | None = None
    workdirs: Path | None = None
    mark: Path | None = None  # the file that names the run being decided
    has_upkeep: bool = False
    retention_days: float | None = None
