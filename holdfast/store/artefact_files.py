"""Artefacts in a folder, which is beside the database or on a disk that several nodes share.

A file and its directory entry are synced before a row that refers to the file is committed.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from holdfast.store.artefacts import (
    GRACE_SECONDS,
    TENANT,
    ArtefactError,
    Artefacts,
    Found,
    sha256_of,
    written_down,
)
from holdfast.store.files import create, create_folder, sync
from holdfast.store.roots import Roots
from holdfast.values import DEFAULT_TENANT, Millis

DIVIDED: Final = ".by-tenant"  # marks that files of older releases were moved to their tenants


class ArtefactFiles(Artefacts):
    """The artefacts of `default` are in the folder itself, where older releases stored those of all tenants; each other tenant
    has a folder in it."""

    def __init__(
        self, folder: Path, roots: Roots | None = None, naming: threading.Lock | None = None
    ) -> None:
        super().__init__(roots)
        self.folder = folder
        self._naming = naming or threading.Lock()  # keeps a file from being deleted while it is stored again

    def _of(self, tenant: str) -> Artefacts:
        return ArtefactFiles(self.folder / (TENANT + tenant), self._roots, self._naming)

    @property
    def is_undivided(self) -> bool:
        return self.folder.is_dir() and not (self.folder / DIVIDED).exists()

    def divide(self, made: Iterable[tuple[str, str, bool]]) -> None:
        """Move the files of other tenants out of the folder of `default`."""
        if not self.is_undivided:
            return
        moved, folders = set(), {self.folder}
        for tenant, sha256, is_shared in made:
            own = self.folder if tenant == DEFAULT_TENANT else self.folder / (TENANT + tenant)
            source, target = self._place(sha256), own / sha256[:2] / sha256
            create_folder(target.parent)
            folders |= {target.parent, target.parent.parent}
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.link(source, target)
            if not is_shared:
                moved.add(source)
        for folder in folders:  # so that a power cut cannot leave a file without a directory entry
            sync(folder)
        for source in moved:  # after all links are made: several tenants may have the same file
            source.unlink(missing_ok=True)
        os.close(create(self.folder / DIVIDED))

    def put(self, pieces: Iterator[bytes], where: str = "the artefact") -> tuple[str, int]:
        if not self.folder.is_dir():
            is_first = not self.folder.parent.is_dir()  # of any tenant
            create_folder(self.folder)
            sync(self.folder.parent)
            if is_first:
                sync(self.folder.parent.parent)
        with written_down(self.folder, pieces, where) as (made, sha256, size):
            sync(made)
            self._name(made, sha256)
        return sha256, size

    def _name(self, made: Path, sha256: str) -> None:
        target = self._place(sha256)
        if not target.parent.exists():
            create_folder(target.parent)
            sync(self.folder)
        with self._naming:
            os.replace(made, target)
        sync(target.parent)

    def find(self, sha256: str) -> Found | None:
        path = self._place(sha256)
        if not path.is_file():
            return None

        def read(start: int, end: int) -> bytes:
            with open(path, "rb") as file:
                file.seek(start)
                return file.read(end - start)

        return Found(path.stat().st_size, path, read)

    def fetch(self, uri: str, folder: Callable[[], Path]) -> Path:
        path = self._place(sha256_of(uri))
        if not path.is_file():
            raise ArtefactError(f"the artefact {uri} is not here")
        return path

    def is_worth_noting(self, sha256: str) -> bool:
        return self._place(sha256).is_file()

    def _place(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256

    @property
    def was_never_used(self) -> bool:
        return not self.folder.is_dir()

    def shelves(self) -> list[str]:
        folders = (*self.folder.glob("[0-9a-f][0-9a-f]"), *self.folder.glob(f"{TENANT}*/[0-9a-f][0-9a-f]"))
        return sorted(str(path.relative_to(self.folder)) for path in folders)

    def stored(self) -> Iterator[tuple[str, Path]]:
        """Every file of every tenant: tenant, path. Its name is its hash."""
        for shelf in self.shelves():
            tenant = shelf.partition("/")[0].removeprefix(TENANT) if "/" in shelf else DEFAULT_TENANT
            for path in sorted((self.folder / shelf).iterdir()):
                yield tenant, path

    def sweep(self, shelf: str, named: Collection[str], now: Millis) -> int:
        return self._remove((path for path in self.folder.glob(f"{shelf}/*") if path.name not in named), now)

    def sweep_unfinished(self, now: Millis) -> int:
        """Delete the temporary files of processes that ended while they stored a file."""
        return self._remove((*self.folder.glob(".new-*"), *self.folder.glob(f"{TENANT}*/.new-*")), now)

    def _remove(self, paths: Iterable[Path], now: Millis) -> int:
        removed, before = 0, now / 1000 - GRACE_SECONDS
        for path in paths:
            with self._naming, contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()
                    removed += 1
        return removed
