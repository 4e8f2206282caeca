"""Reloads WebAssembly plugins whose files are replaced while a server runs.

Knows files and when they have changed. triggers/plugins.py knows what a plugin is and how it replaces another.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from holdfast.ops.watching import watch
from holdfast.plugins.find import WASM, Found, referenced

log = logging.getLogger("holdfast.plugins")

Seen = tuple[int, int, int]  # inode, size, time of change


class PluginFiles:
    """The files among the plugin references. `replace` is called with the new content of a changed file."""

    def __init__(self, references: Iterable[str], replace: Callable[[list[Found]], Awaitable[None]]) -> None:
        self._replace = replace
        self._seen = {one: _seen(one) for one in references if one.endswith(WASM)}
        self._folders = sorted({Path(file).absolute().parent for file in self._seen})

    def __bool__(self) -> bool:
        return bool(self._seen)

    async def scan(self) -> None:
        """Load the files that have changed. If a file was deleted, its plugin stays loaded: the file may be about to
        be replaced."""
        for file, before in self._seen.items():
            now = _seen(file)
            if now is not None and now != before:
                self._seen[file] = now
                await self._replace(referenced([file]))

    async def watch(self) -> None:
        """Look after every change, until cancelled."""
        await watch(self._folders, self.scan, lambda why: log.warning("files of plugins: %s", why))


def _seen(file: str) -> Seen | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
