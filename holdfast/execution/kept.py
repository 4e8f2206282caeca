"""Commands that end with the engine, and the servers behind remote tools, which end with it too."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from holdfast.runtime.service import Service
from holdfast.tools.registry import Registry

# Found by its path, so that nothing of the engine's environment is needed for it.
_LAUNCH: Final = "import sys; sys.path.insert(0, {folder!r}); from holdfast.tools.launch import main; sys.path.pop(0); main()"


def kept(command: Sequence[str]) -> list[str]:
    """A command under a keeper, which ends it and whatever it starts when the engine ends (Linux)."""
    if sys.platform != "linux":
        return [*command]
    folder = str(Path(__file__).parents[2])
    return [sys.executable, "-I", "-c", _LAUNCH.format(folder=folder), str(os.getpid()), *command]


class RemoteTools(Service):
    """Ends the connections to the servers of remote tools with the engine."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def close(self) -> None:
        await self._registry.stop_servers()
