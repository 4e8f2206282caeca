"""A server described by one object, as embedding programs configure it."""

from __future__ import annotations

import os
from typing import Self

import msgspec


class McpHttpConfig(msgspec.Struct):
    """What a server offers. `enable_scheduler` serves the schedule files in `schedules_dir`; `enable_workflows` offers workflows as MCP tools."""

    port: int = 8765
    enable_scheduler: bool = False
    schedules_dir: str | os.PathLike[str] | None = None
    enable_workflows: bool = False

    def with_scheduler(self, schedules_dir: str | os.PathLike[str]) -> Self:
        """Serve the schedule files of a folder. Returns this object."""
        self.enable_scheduler, self.schedules_dir = True, schedules_dir
        return self
