"""Artefacts: files by their sha256. What every place for them has in common: entries of file_refs become stored files.

A file is stored before the row that refers to it is committed, so a crash cannot leave a row without its file. Files that no row
refers to are deleted after a day. Knows no runs and no steps.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Final, ParamSpec, TypeVar

from holdfast import limits
from holdfast.errors import HoldfastError
from holdfast.store.files import create
from holdfast.store.roots import FileRefused, Roots
from holdfast.threads import in_thread
from holdfast.values import DEFAULT_TENANT, Millis

SCHEME: Final = "artefact://sha256/"
PIECE_BYTES: Final = 1024 * 1024
PATH_CHARS_SHOWN: Final = 200  # of a path in an error
TENANT: Final = "tenant-"  # prefix of the folder of a tenant
GRACE_SECONDS: Final = 24 * 3600  # how long a file without a reference is kept

P = ParamSpec("P")
T = TypeVar("T")

_SCHEME_BYTES = SCHEME.encode()
_NAMED = re.compile(re.escape(_SCHEME_BYTES) + rb"([0-9a-f]{64})")
_NONE: Final = frozenset[str]()
_URI = re.compile(re.escape(SCHEME) + r"([0-9a-f]{64})\Z")


def named_in(text: bytes) -> frozenset[str]:
    """The sha256 of every artefact that a JSON text refers to."""
    return _NONE if text.find(_SCHEME_BYTES) < 0 else frozenset(map(bytes.decode, _NAMED.findall(text)))


def sha256_of(uri: str) -> str:
    found = _URI.match(uri)
    if found is None:
        raise ArtefactError(f"{uri!r} is not an artefact URI; expected {SCHEME}<64 hex digits>")
    return found[1]


class PlaceRefused(HoldfastError, ValueError):
    """A place for artefacts that cannot be used."""

    code = "artefact_place_refused"


class ArtefactError(Exception):
    """An entry of file_refs that cannot be stored, or an address without a file; the message names it and says why."""

    kind = "artefact"


class Found:
    """A stored file: its size, its path if it is on this machine, and how it is read, which may take a while."""

    __slots__ = ("path", "read", "size")

    def __init__(self, size: int, path: Path | None, read: Callable[[int, int], bytes]) -> None:
        self.size, self.path, self.read = size, path, read


class Artefacts(ABC):
    """The artefacts of one tenant, and the way to those of the others: the hash of another tenant's file finds nothing.

    All that may wait for a disk or a network blocks; on an event loop it is called with `work`.
    """

    is_remote: ClassVar = False  # whether files must be fetched from another machine

    def __init__(self, roots: Roots | None = None) -> None:
        self._roots = roots or Roots()
        self._others: dict[str, Artefacts] = {}

    def of(self, tenant: str) -> Artefacts:
        if tenant == DEFAULT_TENANT:
            return self
        found = self._others.get(tenant)
        if found is None:
            found = self._others[tenant] = self._of(tenant)
        return found

    @abstractmethod
    def _of(self, tenant: str) -> Artefacts: ...

    async def work(self, act: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """The result of one of these methods, while the event loop goes on."""
        return await in_thread(act, *args, **named)

    def check(self) -> None:  # noqa: B027
        """Raise ArtefactsUnavailable if files can never be stored as things are, so that a server says so when it starts."""

    @property
    def is_undivided(self) -> bool:
        """Return whether an older release has stored the files of all tenants together here."""
        return False

    def divide(self, made: Iterable[tuple[str, str, bool]]) -> None:  # noqa: B027  # most places have nothing to divide
        """Give each tenant its files. `made` lists tenant, sha256, and whether `default` has the same file."""

    # ------------------------------------------------------------------------------------------------ storing

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
                content = base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                raise ArtefactError(f"{where}.inline_b64 is not base64") from None
            return self.put(iter([content]), where)
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

    @abstractmethod
    def put(self, pieces: Iterator[bytes], where: str = "the artefact") -> tuple[str, int]:
        """Store bytes under their hash; when this returns, they and their name survive a power cut. Gives hash and size."""

    # ------------------------------------------------------------------------------------------------ reading

    @abstractmethod
    def find(self, sha256: str) -> Found | None: ...

    @abstractmethod
    def fetch(self, uri: str, folder: Callable[[], Path]) -> Path:
        """The file behind an address, for reading: where it is stored, or a copy in a folder of the caller's."""

    @abstractmethod
    def is_worth_noting(self, sha256: str) -> bool:
        """Whether a run that was given the name of a file should keep it from being deleted. Asked on the event loop, so it must not wait."""

    # ------------------------------------------------------------------------------------------------ tidying

    @property
    def was_never_used(self) -> bool:
        """Whether nothing can be here, as far as that is known without waiting."""
        return False

    @abstractmethod
    def shelves(self) -> list[str]:
        """The parts that can be cleaned one by one. Each is named by the first two digits of the hashes in it."""

    @abstractmethod
    def sweep(self, shelf: str, named: Collection[str], now: Millis) -> int:
        """Delete the files of a shelf that are older than a day and not in `named`. Return how many were deleted."""

    def sweep_unfinished(self, now: Millis) -> int:
        """Delete what processes left behind that ended while they stored a file. Return how much that was."""
        return 0


@contextlib.contextmanager
def written_down(folder: Path, pieces: Iterator[bytes], where: str) -> Iterator[tuple[Path, str, int]]:
    """A new file with these bytes, which is removed unless the caller renames it; its hash and its size."""
    made = folder / f".new-{os.getpid()}-{os.urandom(8).hex()}"
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
        yield made, digest.hexdigest(), size
    finally:
        made.unlink(missing_ok=True)
