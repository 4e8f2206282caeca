"""What settings mean to an engine: the secrets that it knows, and where the files of its runs are."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from holdfast.config import Settings
from holdfast.store.artefact_place import CREDENTIALS, artefacts_at, is_bucket
from holdfast.store.artefacts import Artefacts
from holdfast.store.roots import Protected, Roots
from holdfast.tools.registry import Registry
from holdfast.tools.secrets import Secrets


def secrets_of(settings: Settings) -> Secrets:
    tenants = {name: table.get("secrets", ()) for name, table in settings.tenants.items()}
    known = (
        settings.key,
        settings.resume_secret,
        *(map(os.environ.get, CREDENTIALS) if is_bucket(settings.artefacts or "") else ()),
    )
    return Secrets(tenants=tenants, callback_env=settings.callback_env, known=known)


def artefacts_of(
    place: str | None,
    database: str,
    roots: Iterable[str | os.PathLike[str]],
    registry: Registry,
    others: Iterable[tuple[str, Path]] = (),
) -> Artefacts:
    """The artefacts of a database. Raises RootRefused if a root would expose the server's own files, PlaceRefused if the place of
    artefacts cannot be used."""
    tools = [("the tools", path) for path in registry.sources()]
    protected = Protected(Path(database), [*others, *tools])
    return artefacts_at(place, database, Roots(map(Path, roots), protected))
