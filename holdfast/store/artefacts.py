"""Artefacts: files by their sha256 in a folder beside the database. Knows no runs and no steps.

A file and its directory entry are synced before a row that refers to the file is committed, so a power cut cannot leave a row
without its file. Files that no row refers to are deleted after a day.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import re
import threading
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from holdfast import limits
from holdfast.store.files import create, create_folder, sync
from holdfast.store.roots import FileRefused, Roots
from holdfast.values import DEFAULT_TENANT, Millis

SCHEME: Final = "artefact://sha256/"
PIECE_BYTES: Final = 1024 * 1024
PATH_CHARS_SHOWN: Final = 200  # of a path in an error
TENANT: Final = "tenant-"  # prefix of the folder of a tenant
DIVIDED: Final = ".by-tenant"  # marks that files of older releases were moved to their tenants
GRACE_SECONDS: Final = 24 * 3600  # how long a file without a reference is kept

_SCHEME_BYTES = SCHEME.encode()
_NAMED = re.compile(re.escape(_SCHEME_BYTES) + rb"([0-9a-f]{64})")
_NONE: Final = frozenset[str]()
_URI = re.compile(re.escape(SCHEME) + r"([0-9a-f]{64})\Z")


def named_in(text: bytes) -> frozenset[str]:
    """The sha256 of every artefact that a JSON text refers to."""
    return _NONE if text.find(_SCHEME_BYTES) < 0 else frozenset(map(bytes.decode, _NAMED.findall(text)))


class ArtefactError(Exception):
    """An entry of file_refs that cannot be stored; the message names it and says why."""

    kind = "artefact"


class Artefacts:
    """The artefacts of one tenant. Each tenant has its own folder, so the hash of another tenant's file finds nothing.

    The artefacts of `default` are in the folder itself, where older releases stored the files of all tenants.
    """

    def __init__(self, folder: Path, roots: Roots | None = None) -> None:
        self.folder = folder
        self._roots = roots or Roots()
        self._naming = threading.Lock()  # keeps a file from being deleted while it is stored again
        self._others: dict[str, Artefacts] = {}

    def of(self, tenant: str) -> Artefacts:
        if tenant == DEFAULT_TENANT:
            return self
        found = self._others.get(tenant)
        if found is None:
            found = self._others[tenant] = Artefacts(self.folder / (TENANT + tenant), self._roots)
            found._naming = self._naming
        return found

    @property
    def is_undivided(self) -> bool:
        """Return whether this is the folder of an older release, which stored the files of all tenants together."""
        return self.folder.is_dir() and not (self.folder / DIVIDED).exists()

    def divide(self, made: Iterable[tuple[str, str, bool]]) -> None:
        """Move the files of other tenants out of the folder of `default`, where older releases stored them. `made` lists tenant,
        sha256, and whether `default` has the same file."""
        if not self.is_undivided:
            return
        moved, folders = set(), {self.folder}
        for tenant, sha256, is_shared in made:
            source, target = self._place(sha256), self.of(tenant)._place(sha256)
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

    def keep(
        self, entries: Any, job_id: str, workdir: Path | None, *, from_outside: bool = False
    ) -> tuple[list[Any], list[tuple[str, int]]]:
        """Store the files of file_refs. Return the entries with their addresses, and (sha256, size) of the stored files. With
        `from_outside`, an entry must contain its file: a path would let the sender read files of this machine."""
        if not isinstance(entries, list) or len(entries) > limits.now.file_refs_max:
            raise ArtefactError(
                f"file_refs must be a list of at most {limits.now.file_refs_max:,} entries ({limits.met('file_refs_max')})"
            )
        kept, stored = [], []
        for index, entry in enumerate(entries):
            where = f"file_refs[{index}]"
            if not isinstance(entry, dict):
                raise ArtefactError(f"{where} must be an object with `path`, `inline_b64` or `uri`")
            if entry.get("uri") is not None:
                kept.append(entry)  # the file is stored already
                continue
            if from_outside and "path" in entry:
                raise ArtefactError(
                    f"{where}.path: an answer from outside cannot name files of this machine; send `inline_b64` or a `uri`"
                )
            sha256, size = self._put_entry(entry, where, workdir)
            rest = {key: value for key, value in entry.items() if key not in ("path", "inline_b64")}
            kept.append({**rest, "uri": SCHEME + sha256, "size": size, "producer_job_id": job_id})
            stored.append((sha256, size))
        return kept, stored

    def _put_entry(self, entry: dict[str, Any], where: str, workdir: Path | None) -> tuple[str, int]:
        if isinstance(text := entry.get("inline_b64"), str):
            try:
                return self.put(iter([base64.b64decode(text, validate=True)]), where)
            except (binascii.Error, ValueError):
                raise ArtefactError(f"{where}.inline_b64 is not base64") from None
        if not isinstance(path := entry.get("path"), str):
            raise ArtefactError(f"{where} has none of `path`, `inline_b64` and `uri`")
        shown = ascii(path)[:PATH_CHARS_SHOWN]
        try:
            with self._roots.open(path, workdir) as file:
                return self.put(iter(lambda: file.read(PIECE_BYTES), b""), where)
        except FileRefused as error:
            raise ArtefactError(f"{where}: {shown} cannot be handed out: {error}") from None
        except OSError as error:
            raise ArtefactError(f"{where}: {shown} cannot be stored: {error.strerror or error}") from None

    def put(self, pieces: Iterator[bytes], where: str = "the artefact") -> tuple[str, int]:
        """Store bytes under their hash; when this returns, they and their name survive a power cut."""
        if not self.folder.is_dir():
            is_first = not self.folder.parent.is_dir()  # of any tenant
            create_folder(self.folder)
            sync(self.folder.parent)
            if is_first:
                sync(self.folder.parent.parent)
        made = self.folder / f".new-{os.getpid()}-{os.urandom(8).hex()}"
        digest, size = hashlib.sha256(), 0
        try:
            with os.fdopen(create(made), "wb") as file:
                for piece in pieces:
                    size += len(piece)
                    if size > limits.now.artefact_bytes_max:
                        raise ArtefactError(
                            f"{where} is over {limits.size(limits.now.artefact_bytes_max)} ({limits.met('artefact_bytes_max')})"
                        )
                    digest.update(piece)
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            self._name(made, digest.hexdigest())
        finally:
            made.unlink(missing_ok=True)
        return digest.hexdigest(), size

    def _name(self, made: Path, sha256: str) -> None:
        target = self._place(sha256)
        if not target.parent.exists():
            create_folder(target.parent)
            sync(self.folder)
        with self._naming:
            os.replace(made, target)
        sync(target.parent)

    def path(self, uri: str) -> Path:
        """The file behind an address. Callers must not write to it."""
        found = _URI.match(uri)
        if found is None:
            raise ArtefactError(f"{uri!r} is not an artefact URI; expected {SCHEME}<64 hex digits>")
        if not self.has(found[1]):
            raise ArtefactError(f"the artefact {uri} is not here")
        return self._place(found[1])

    def has(self, sha256: str) -> bool:
        return self._place(sha256).is_file()

    def _place(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256

    def shelves(self) -> list[str]:
        """The folders that can be cleaned one by one. Each is named by the first two digits of the hashes in it."""
        folders = (*self.folder.glob("[0-9a-f][0-9a-f]"), *self.folder.glob(f"{TENANT}*/[0-9a-f][0-9a-f]"))
        return sorted(str(path.relative_to(self.folder)) for path in folders)

    def stored(self) -> Iterator[tuple[str, Path]]:
        """Every file of every tenant: tenant, path. Its name is its hash."""
        for shelf in self.shelves():
            tenant = shelf.partition("/")[0].removeprefix(TENANT) if "/" in shelf else DEFAULT_TENANT
            for path in sorted((self.folder / shelf).iterdir()):
                yield tenant, path

    def sweep(self, shelf: str, named: Collection[str], now: Millis) -> int:
        """Delete the files of a shelf that are older than a day and not in `named`. Return how many were deleted."""
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
