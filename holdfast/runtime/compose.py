"""An engine put together as the settings say: for those who serve a file, and need not know what it is made of."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from holdfast import limits
from holdfast.config import Settings
from holdfast.execution.dispatcher import ATTEMPTS_MAX, THREADS_MAX, TURN_SECONDS_OF_SERVER
from holdfast.ops.backup import artefacts_of
from holdfast.ops.upkeep import Upkeep
from holdfast.runtime.clock import Clock, SystemClock
from holdfast.runtime.engine import Engine
from holdfast.runtime.fatal_runs import mark_beside
from holdfast.store.artefacts import Artefacts
from holdfast.store.roots import Protected, Roots
from holdfast.store.sqlite.store import SqliteStore
from holdfast.tools.registry import Registry
from holdfast.tools.secrets import Secrets
from holdfast.workers.service import Workers

__all__ = ["Registry", "database_path", "engine_of"]  # the first is handed on to those who know no tools


def engine_of(settings: Settings, registry: Registry, clock: Clock | None = None) -> Engine:
    path = database_path(settings.db)
    store = SqliteStore(path, shares_loop=True, name=database_name(settings.db))
    settled = {"the settings": settings.file, "the flows": settings.flows and Path(settings.flows)}
    others = [(what, place) for what, place in settled.items() if place]
    artefacts = artefacts_beside(path, settings.artefact_roots, registry, others)
    clock = clock or SystemClock()
    workers = Workers(
        store, clock, registry.guard, ttl_secs=settings.worker_ttl_secs, lease_secs=settings.worker_lease_secs
    )
    engine = Engine(
        store,
        registry,
        clock,
        places=settings.attempts_max or ATTEMPTS_MAX,
        threads=settings.threads or THREADS_MAX,
        processes=settings.processes,
        process_memory_bytes=settings.process_memory_bytes,
        template_env=settings.template_env,
        pending_ttl_ms=1000 * settings.pending_ttl_secs,
        secrets=secrets_of(settings),
        artefacts=artefacts,
        workdirs=Path(f"{path}.work").absolute(),
        upkeep=Upkeep(store, artefacts, settings.retention_days),
        workers=workers,
        public_url=settings.public_url,
        mark=mark_beside(path),
        bounds=limits.chosen(settings.limits) if settings.limits else None,
    )
    engine.dispatch.turn_seconds = TURN_SECONDS_OF_SERVER
    return engine


def secrets_of(settings: Settings) -> Secrets:
    tenants = {name: table.get("secrets", ()) for name, table in settings.tenants.items()}
    known = (settings.key, settings.resume_secret)
    return Secrets(tenants=tenants, callback_env=settings.callback_env, known=known)


def artefacts_beside(
    database: str,
    roots: Iterable[str | os.PathLike[str]],
    registry: Registry,
    others: Iterable[tuple[str, Path]] = (),
) -> Artefacts:
    """The artefacts of a database. Raises RootRefused if a root would expose the server's own files."""
    tools = [("the tools", path) for path in registry.sources()]
    protected = Protected(Path(database), [*others, *tools])
    return Artefacts(artefacts_of(Path(database)), Roots(map(Path, roots), protected))


def database_path(database: str) -> str:
    """`sqlite:///file.db` (or a plain path) → the path of the file.

    A link is another name of its file: lock, log and artefacts are found beside the file itself.
    """
    name = database_name(database)
    return os.path.realpath(name) if os.path.islink(name) else name


def database_name(database: str) -> str:
    """The same, but links are left as they are."""
    if ":memory:" in database:
        raise ValueError("a database in memory would survive nothing; give the name of a file")
    for prefix in ("sqlite:///", "sqlite://"):
        if database.startswith(prefix):
            return database[len(prefix) :]
    if "://" in database:
        raise ValueError(f"{database!r} is no SQLite address; write sqlite:///holdfast.db")
    return database
