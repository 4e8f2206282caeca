"""A run of a plugin as a call of a tool, which is how the engine makes it.

Knows what a plugin's answer means. Must not know when a run is made.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from holdfast.plugins.load import Plugin
from holdfast.plugins.plugin import ScheduledRunCtx
from holdfast.spec.plugin import tool_of
from holdfast.tools.failures import ToolError
from holdfast.tools.registry import Registry, Tool


def add_tools(registry: Registry, plugins: Iterable[Plugin]) -> None:
    """Let runs of these plugins find them, in the place of plugins of the same name."""
    for plugin in plugins:
        registry.add(tool_for(plugin), replace=True)


def tool_for(plugin: Plugin) -> Tool:
    """The tool that runs a plugin: in a thread, or on the event loop if its `run` is a coroutine function."""
    run = plugin.plugin.run
    call = _awaited(run) if inspect.iscoroutinefunction(run) else _plain(run)
    # where its code is, which must not be given out as a file
    call.__module__ = type(plugin.plugin).__module__
    return Tool(call, tool_of(plugin.name))


def _plain(run: Callable[[ScheduledRunCtx], Any]) -> Callable[..., None]:
    def call(ctx: ScheduledRunCtx) -> None:
        _check(run(ctx))

    return call


def _awaited(run: Callable[[ScheduledRunCtx], Any]) -> Callable[..., Any]:
    async def call(ctx: ScheduledRunCtx) -> None:
        _check(await run(ctx))

    return call


def _check(answer: Any) -> None:
    """A returned text is an error, as an exception is; anything else a plugin returns is dropped."""
    if isinstance(answer, str):
        raise ToolError(answer)
    if inspect.iscoroutine(answer):
        answer.close()
        raise ToolError("run() returned a coroutine; write it as `async def run`")
