"""Folders that tools may return files from: the work folder of the attempt, and the folders that the operator lists.

Knows which folders and files a tool must never return, and how to open a file so that links, special files and races
cannot lead to another file. Does not know how the file is used.
"""

from __future__ import annotations

import contextlib
import glob
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from holdfast.errors import HoldfastError

# These expose the server's own memory, environment and open files.
KERNEL_FOLDERS: Final = (Path("/proc"), Path("/sys"), Path("/dev"))
FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without O_NONBLOCK, opening a pipe that replaced the file at the last moment would block the thread forever.
FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RootRefused(HoldfastError, ValueError):
    """A folder in `artefact_roots` that cannot be used."""

    code = "artefact_root_refused"


class FileRefused(Exception):
    """A file that a tool may not return; the message says why."""


class Protected:
    """The files that a tool may never return: the database and its companion files, the settings, the tools."""

    def __init__(self, database: Path | None = None, others: Iterable[tuple[str, Path]] = ()) -> None:
        self._databases = (
            [] if database is None else [database.parent.resolve() / database.name, database.resolve()]
        )
        self.named = [("the database", path) for path in self._databases]
        for suffix, what in ((".artefacts", "the artefacts"), (".work", "the work folders")):
            self.named += [(what, path.with_name(path.name + suffix).resolve()) for path in self._databases]
        self._others = [(what, path.resolve()) for what, path in others]
        self.named += self._others

    def refuse_root(self, root: Path) -> None:
        named = [*self.named, *(("a folder of the kernel", folder) for folder in KERNEL_FOLDERS)]
        for what, path in named:
            if path.is_relative_to(root) or root.is_relative_to(path):
                how = "holds" if path.is_relative_to(root) else "is inside"
                raise RootRefused(
                    f"artefact_roots: {root} {how} {what} ({path}), which tenants must not read; "
                    "list a folder that has only files to hand out"
                )

    def __contains__(self, found: os.stat_result) -> bool:
        """Return whether this is one of the protected files, under whatever name it was opened."""
        for path in self._files(also_in_folders=found.st_nlink > 1):
            with contextlib.suppress(OSError):  # removed in the meantime
                if os.path.samestat(found, os.stat(path)):
                    return True
        return False

    def _files(self, *, also_in_folders: bool) -> Iterator[str]:
        for database in self._databases:
            yield from glob.glob(f"{glob.escape(str(database))}*")
        for _, path in self._others:
            yield str(path)
            if also_in_folders:
                yield from (os.path.join(at, name) for at, _, names in os.walk(path) for name in names)


class Roots:
    def __init__(self, roots: Iterable[Path] = (), protected: Protected | None = None) -> None:
        self._protected = protected or Protected()
        self._roots = tuple(self._checked(root) for root in roots)

    def _checked(self, given: Path) -> Path:
        root = given.resolve()
        if not root.is_dir():
            raise RootRefused(f"artefact_roots: there is no folder {root}; make it, or leave it out")
        self._protected.refuse_root(root)
        return root

    def open(self, path: str, workdir: Path | None) -> BinaryIO:
        """A file of the work folder or of a listed folder. A relative path starts from the work folder; if the tool has
        none, from the working folder of the server, then from each listed one. Raises FileRefused or OSError."""
        try:
            os.fsencode(path)
        except ValueError:
            raise FileRefused("its path is not text that can name a file") from None
        if "\0" in path:
            raise FileRefused("its path has a NUL in it")
        # The folder itself is not resolved: a tool may have replaced it with a link.
        own = None if workdir is None else workdir.parent.resolve() / workdir.name
        roots = self._roots if own is None else (own, *self._roots)
        bases = (Path.cwd(), *self._roots) if own is None else (own,)
        places = (place for base in bases if (place := _place(Path(base, path), roots)))
        place = next((place for place in places if os.path.lexists(os.path.join(*place))), None)
        if (
            place is None
        ):  # the same words for both: whether a file exists elsewhere is not the tenant's to know
            raise FileRefused(
                "there is no file of that name, or it is outside of the folders that files may be taken from; write it "
                "to context.workdir, or let the operator list its folder in artefact_roots"
            )
        return self._open(*place)

    def _open(self, root: str, below: str) -> BinaryIO:
        """Open the path one folder at a time without following links, because it may have changed since it was resolved."""
        *folders, name = Path(below).parts or ("",)
        if not name:
            raise FileRefused("it is a folder, not a file")
        at = os.open(root, FOLDER_FLAGS)
        try:
            for folder in folders:
                inner = os.open(folder, FOLDER_FLAGS, dir_fd=at)
                os.close(at)
                at = inner
            # Checked before it is opened: opening a device can have side effects, and closing the database file would
            # release SQLite's locks.
            self._refuse(os.stat(name, dir_fd=at, follow_symlinks=False))
            fd = os.open(name, FILE_FLAGS, dir_fd=at)
        finally:
            os.close(at)
        file = os.fdopen(fd, "rb")
        try:
            self._refuse(os.fstat(fd))
        except BaseException:
            file.close()
            raise
        return file

    def _refuse(self, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            raise FileRefused("it is a folder, not a file")
        if not stat.S_ISREG(found.st_mode):
            raise FileRefused("it is not a regular file")
        if found in self._protected:
            raise FileRefused("it is a file of the server itself: its database, settings or tools")


def _place(path: Path, roots: Iterable[Path]) -> tuple[str, str] | None:
    """Return the root that contains a path after links are resolved, and the path below that root."""
    real = Path(os.path.realpath(path))
    root = next((root for root in roots if real.is_relative_to(root)), None)
    return None if root is None else (str(root), str(real.relative_to(root)))
