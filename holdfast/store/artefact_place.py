"""Where artefacts are stored: from the setting, if there is one, or beside the database. The only module that knows all places."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.artefacts import Artefacts, PlaceRefused
from holdfast.store.roots import Roots

S3: Final = "s3://"
CREDENTIALS: Final = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)  # variables that no tool and no log may show


def is_bucket(place: str) -> bool:
    return place.lower().startswith(S3)


def folder_beside(database: str | Path) -> Path:
    """The folder of the artefacts of a database for which no other place is set."""
    path = Path(database)
    return path.with_name(f"{path.name}.artefacts")


def work_beside(database: str | Path) -> Path:
    """The folder of what attempts have on this machine, emptied when the database is opened."""
    path = Path(database)
    return path.with_name(f"{path.name}.work").absolute()


def artefacts_at(place: str | None, database: str, roots: Roots | None = None) -> Artefacts:
    """`place` is a folder, `s3://BUCKET/PREFIX`, or None for the folder beside the database. Raises PlaceRefused if it cannot be used."""
    if place is None:
        return ArtefactFiles(folder_beside(database), roots)
    if not is_bucket(place):
        scheme, separator, _ = place.partition("://")
        if separator:
            raise PlaceRefused(
                f"{scheme[:50]!a}:// is no place for artefacts; give a folder or s3://BUCKET/PREFIX"
            )
        return ArtefactFiles(Path(place), roots)
    try:
        from holdfast.store.artefact_bucket import ArtefactBucket, Bucket
    except ModuleNotFoundError as error:
        if error.name != "obstore":
            raise
        raise PlaceRefused(
            "artefacts on S3 need a package that is not installed: pip install 'holdfast-engine[s3]'"
        ) from None
    return ArtefactBucket(Bucket(place), work_beside(database), roots)
