"""Plugins of WebAssembly whose files are replaced while a server runs.

Knows files and when they have changed. What a plugin is, and how it takes the place of another, is known to triggers/plugins.py.
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
    """The files among the references of plugins. `replace` is called with what a changed file is now."""

    def __init__(self, references: Iterable[str], replace: Callable[[list[Found]], Awaitable[None]]) -> None:
        self._replace = replace
        self._seen = {one: _seen(one) for one in references if one.endswith(WASM)}
        self._folders = sorted({Path(file).absolute().parent for file in self._seen})

    def __bool__(self) -> bool:
        return bool(self._seen)

    async def look(self) -> None:
        """Load the files that have changed. One that is gone is left as it was loaded: it may be about to be replaced."""
        for file, before in self._seen.items():
            now = _seen(file)
            if now is not None and now != before:
                self._seen[file] = now
                await self._replace(referenced([file]))

    async def watch(self) -> None:
        """Look after every change, until cancelled."""
        await watch(self._folders, self.look, lambda why: log.warning("files of plugins: %s", why))


def _seen(file: str) -> Seen | None:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
