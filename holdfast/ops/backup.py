"""Copying a database with its artefacts while another process writes to it. Reads the original only.

A copy appears under its name when all of it is on disk, or not at all.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from holdfast.errors import Refused, StoreUnavailable
from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.artefact_place import folder_beside
from holdfast.store.base import StoreFile
from holdfast.store.files import create, create_folder, sync


def back_up(store: StoreFile, target: Path, *, as_copy: bool = False) -> list[Path]:
    """Copy the database and its artefacts to a path that does not exist yet. Return the files that were created.

    With `as_copy` the copy gets its own identity: it does not accept job tokens and callback URLs that the original issued.
    """
    names = [target, folder_beside(target)]
    for path in names:
        if path.exists():
            raise Refused(f"{path} is already there, and a backup overwrites nothing; name another file")
    partial = target.with_name(f".{target.name}.partial")
    parts = [partial, folder_beside(partial)]
    try:
        _discard(parts)
        _write(store, *parts, as_copy=as_copy)
        return _publish(parts, names)
    except OSError as error:
        raise StoreUnavailable(
            f"the copy {target} cannot be written, and is not there: {error.strerror or error}"
        ) from error
    finally:
        _discard(parts)


def _write(store: StoreFile, database: Path, artefacts: Path, *, as_copy: bool) -> None:
    """Copy the database first. An artefact is on disk before the row that names it, so a later listing of the folder contains every
    artefact that the copy names."""
    store.copy_to(str(database), as_copy=as_copy)
    sync(database)
    source = folder_beside(Path(store.path))
    if source.is_dir():
        _copy_artefacts(source, artefacts)


def _publish(parts: list[Path], names: list[Path]) -> list[Path]:
    """Rename the copies to their final names, the database last; undo this if it does not reach the disk."""
    made: list[Path] = []
    try:
        for part, name in reversed(list(zip(parts, names, strict=True))):
            if part.exists():
                os.rename(part, name)
                made.append(name)
        sync(names[0].parent)
    except OSError:
        _discard(made)
        raise
    return made[::-1]


def _discard(paths: list[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()


def _copy_artefacts(source: Path, target: Path) -> None:
    create_folder(target)
    for file in (file for shelf in ArtefactFiles(source).shelves() for file in (source / shelf).iterdir()):
        folder = target / file.parent.relative_to(source)
        create_folder(folder)
        with contextlib.suppress(FileNotFoundError):  # deleted during the copy: no row names it
            _copy_file(file, folder / file.name)
    for folder in (*(path for path in target.rglob("*") if path.is_dir()), target):
        sync(folder)


def _copy_file(source: Path, target: Path) -> None:
    with open(source, "rb") as read, os.fdopen(create(target), "wb") as written:
        shutil.copyfileobj(read, written)
        written.flush()
        os.fsync(written.fileno())
    shutil.copystat(source, target)
    target.chmod(0o600)
