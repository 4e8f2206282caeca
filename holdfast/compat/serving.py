"""A server described by one object, as embedding programs configure it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any, Self

import msgspec

from holdfast import config
from holdfast.http import serve as server
from holdfast.runtime.compose import Registry

log = logging.getLogger("holdfast")


class McpHttpConfig(msgspec.Struct):
    """What a server offers. `enable_scheduler` fires schedules, those of the files in `schedules_dir` among them; `enable_workflows`
    offers workflows as MCP tools. Without them, nothing is fired and no tool is listed."""

    port: int = 8765
    enable_scheduler: bool = False
    schedules_dir: str | os.PathLike[str] | None = None
    enable_workflows: bool = False

    def with_scheduler(self, schedules_dir: str | os.PathLike[str]) -> Self:
        """Serve the schedule files of a folder. Returns this object."""
        self.enable_scheduler, self.schedules_dir = True, schedules_dir
        return self


def serve(
    cfg: McpHttpConfig,
    *,
    tools: Iterable[Any] = (),
    db: str | None = None,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until the process gets SIGTERM, SIGINT or SIGHUP. `ready` is called with the address once requests are accepted.

    The other settings are those of `holdfast up`: holdfast.toml and the environment. Raises DatabaseInUse, InvalidSettings and OSError.
    """
    settings = settings_of(cfg, db)

    def is_ready(serving: server.Serving) -> None:
        log.info("holdfast is up at %s", serving.address)
        if ready is not None:
            ready(serving.address)

    asyncio.run(server.serve(settings, registry=Registry(tools), ready=is_ready))


def settings_of(cfg: McpHttpConfig, db: str | None = None) -> config.Settings:
    """The settings of a server with this configuration."""
    folder = None if cfg.schedules_dir is None else os.fspath(cfg.schedules_dir)
    settings = config.load({"port": cfg.port, "db": db})
    return msgspec.structs.replace(
        settings,
        fires=cfg.enable_scheduler,
        mcp=msgspec.structs.replace(settings.mcp, enabled=cfg.enable_workflows),
        schedules=(folder or settings.schedules) if cfg.enable_scheduler else None,
    )
