"""Creates files that only their owner may read, whatever the umask, and handles the companion files of a database.

Knows names and rights. Does not know what the files contain.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

log = logging.getLogger("holdfast")

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
OTHERS: Final = 0o077
NOT_REGULAR: Final = "{path} is not a regular file; give the name of another file with --db"


COMPANIONS: Final = ("-wal", "-shm", "-journal", ".lock", ".mark", ".deciding")  # files beside a database
FOLDERS: Final = (".artefacts", ".work")


def in_the_way(database: str) -> str:
    """Explain why the companion files of a database cannot be used: one of their names belongs to something else. Empty if they can.

    Opening a FIFO would wait for a writer, and through a link another file could be overwritten.
    """
    for name in (f"{database}{end}" for end in COMPANIONS):
        with contextlib.suppress(FileNotFoundError, PermissionError):  # opening the file reports the reason
            if not stat.S_ISREG(os.lstat(name).st_mode):
                return (
                    f"{name} is not a regular file, but Holdfast keeps a file of its own there; move it away"
                )
    for name in (f"{database}{end}" for end in FOLDERS):
        if os.path.lexists(name) and not os.path.isdir(name):
            return f"{name} is not a folder, but Holdfast keeps a folder of its own there; move it away"
    return ""


def file_of(database: str) -> str:
    """The path of a database that may be given as a URI of SQLite, `file:path?vfs=name`."""
    return unquote(urlsplit(database).path) if database.startswith("file:") else database


def create(path: str | Path) -> int:
    """Create a file that only its owner may read, and return it open for writing. Raise FileExistsError if it exists."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    os.fchmod(fd, FILE_MODE)  # a umask may take rights from the owner too
    return fd


def create_folder(path: Path) -> None:
    """Create a folder that only its owner may enter, with its missing parent folders, unless it exists."""
    if not path.parent.exists():
        create_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=FOLDER_MODE)


def claim(database: str) -> None:
    """Create the database file if it is missing, and remove the rights of other users to it and its companion files."""
    if not os.path.lexists(database):
        with contextlib.suppress(FileExistsError):
            os.close(create(database))
    path = Path(database).resolve()
    companions = [path, *(path.with_name(path.name + end) for end in COMPANIONS)]
    for file in [*companions, *path.parent.glob(f"{_plain(path.name)}.schema-*")]:
        tighten(file)
    tighten_tree(path.with_name(f"{path.name}.artefacts"))


def tighten(path: Path) -> bool:
    """Remove the rights of group and other users to a file or folder; returns whether any were removed."""
    try:
        found = os.stat(path, follow_symlinks=False)
        if not found.st_mode & OTHERS or stat.S_ISLNK(found.st_mode):
            return False
        os.chmod(path, FOLDER_MODE if stat.S_ISDIR(found.st_mode) else FILE_MODE)
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning(
            "%s can be read by other users of this machine, and that cannot be changed (%s); run chmod go= on it as its owner",
            path,
            error.strerror,
        )
        return False
    log.warning("%s could be read by other users of this machine; now only its owner can", path)
    return True


def tighten_tree(folder: Path) -> None:
    """The same for a folder with everything in it; skipped unless other users had rights to the folder itself."""
    if tighten(folder):
        for inner, folders, files in os.walk(folder):
            for name in (*folders, *files):
                with contextlib.suppress(OSError):
                    os.chmod(Path(inner, name), FOLDER_MODE if name in folders else FILE_MODE)


def sync(path: str | Path) -> None:
    """Sync a file, or the directory entries of a folder, to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_regular(path: str) -> bool:
    """Return whether this is a regular file or does not exist. A device must not be opened, nor its rights changed."""
    return os.path.isfile(path) or not os.path.exists(path)


def log_of(database: str) -> str:
    """The path of the WAL of a database, or empty if there is no WAL or nothing in it."""
    path = f"{database}-wal"
    return path if os.path.exists(path) and os.path.getsize(path) else ""


def other_names(database: str) -> list[str]:
    """The other names that a file has in its folder, by hard links."""
    try:
        found = os.stat(database)
        if found.st_nlink < 2:
            return []
        folder = os.path.dirname(os.path.abspath(database))
        with os.scandir(folder) as entries:
            names = [entry.path for entry in entries if entry.inode() == found.st_ino and entry.is_file()]
    except OSError:
        return []
    return [name for name in names if os.path.basename(name) != os.path.basename(database)]


def _plain(name: str) -> str:
    return "".join(f"[{char}]" if char in "*?[" else char for char in name)
