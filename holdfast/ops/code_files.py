"""The files of the tools and plugins that a process has loaded, and which of them have changed since.

Knows modules and files. Python keeps the code that it has loaded, so a change takes effect with the next start; `cli/reload.py`
restarts a server for it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from holdfast.ops.watching import watch
from holdfast.values import Millis

log = logging.getLogger("holdfast.tools")

FILES_MAX: Final = 10_000
INSTALLED: Final = ("site-packages", "dist-packages")


class CodeFiles:
    """Files under `folders`, without installed packages, and `settings`. `when_changed` is called after every change, with the
    files that differ from what is loaded; without it, a change is logged."""

    def __init__(
        self, folders: Iterable[Path], settings: Path | None, loaded_at: Millis, *, is_reloading: bool = False
    ) -> None:
        self.loaded_at = loaded_at
        self.changed: list[str] = []  # relative to the working folder where they are in it
        self.when_changed: Callable[[list[str]], None] = self._log
        self._is_reloading = is_reloading
        files = _of_modules([str(folder.absolute()) for folder in folders])
        if is_reloading and settings is not None:
            files.append(settings)
        self._loaded = {file: _hash(file) for file in files}
        self._found = self._loaded  # as they were at the last scan

    @property
    def names(self) -> list[str]:
        return [_shown(file) for file in self._loaded]

    def scan(self) -> None:
        found = {file: _hash(file) for file in self._loaded}
        if found == self._found:
            return
        self._found = found
        self.changed = [_shown(file) for file, before in self._loaded.items() if found[file] != before]
        if self.changed:
            self.when_changed(self.changed)

    async def watch(self) -> None:
        """Scan the files after every change, until cancelled."""
        folders = sorted({file.parent for file in self._loaded})

        async def scan() -> None:
            self.scan()

        if folders:
            await watch(folders, scan, lambda why: log.warning("files of tools: %s", why), recursive=False)

    def _log(self, changed: list[str]) -> None:
        log.warning(
            "%s changed after the server loaded it; the server goes on with the loaded code. Restart it, or start it with --reload",
            ", ".join(changed),
        )


def _of_modules(folders: list[str]) -> list[Path]:
    inside = tuple(folder.rstrip(os.sep) + os.sep for folder in folders)
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    found: list[Path] = []
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or file.startswith(own):
            continue
        path = os.path.abspath(file)
        if path.startswith(inside) and not set(path.split(os.sep)) & set(INSTALLED):
            found.append(Path(path))
    return sorted(found)[:FILES_MAX]


def _hash(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return ""


def _shown(file: Path) -> str:
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)
