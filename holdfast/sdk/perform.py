"""Calls of @tool functions in a worker: sync ones in threads, isolated ones in processes, async ones on the loop.

Knows tools. Does not know the caller, or how the result is sent.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final

from holdfast.sdk.hearing import Heard, current
from holdfast.threads import in_pool
from holdfast.tools.context import Context
from holdfast.tools.failures import OutputTooLarge, ToolError, described
from holdfast.tools.processes import Processes
from holdfast.tools.registry import Registry
from holdfast.tools.tracebacks import shortened, traceback_of
from holdfast.values import VALUE_BYTES_MAX, encode

log = logging.getLogger("holdfast.worker")

CONCURRENCY: Final = 32


class Performer:
    """Calls tools, `concurrency` of them at a time; the rest wait in a queue."""

    def __init__(self, tools: Iterable[Any], concurrency: int = CONCURRENCY) -> None:
        self._tools = {tool.name: tool for tool in Registry(tools)}
        self.concurrency = concurrency
        self.in_progress = 0  # those in line counted
        self._places = asyncio.Semaphore(concurrency)
        self._threads: ThreadPoolExecutor | None = None
        self._processes: Processes | None = None

    @property
    def services(self) -> list[str]:
        return list(self._tools)

    @property
    def called_back(self) -> list[str]:
        """The services that support a callback for a later result."""
        return [name for name, tool in self._tools.items() if tool.takes_callback]

    async def perform(self, service: str, given: Any, params: Any, context: Context, heard: Heard) -> bytes:
        """Call a tool and return the JSON text of its result. Raises what the tool raises. To be called in a task of its own."""
        current.set(heard)
        tool = self._tools.get(service)
        if tool is None:
            raise ToolError(f"this worker has no service {service!r}", kind="no_service")
        self.in_progress += 1
        try:
            async with self._places:
                args = tool.spread(given, params if isinstance(params, dict) else {})
                if tool.isolated:
                    text = await self._in_process(tool, args, context)
                else:
                    args = tool.bind(args)
                    if tool.context is not None:
                        args = {**args, tool.context: context}
                    text = tool.result(
                        await tool.fn(**args) if tool.is_async else await self._in_thread(tool.fn, args)
                    )
        except (
            SystemExit,
            KeyboardInterrupt,
        ) as error:  # they would end the worker, which has other calls
            raise ToolError(f"the tool raised {type(error).__name__}: {error}") from error
        finally:
            self.in_progress -= 1
            context.close()
        if len(text) > VALUE_BYTES_MAX:
            raise OutputTooLarge
        return text

    async def _in_thread(self, fn: Any, args: dict[str, Any]) -> Any:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.concurrency, "holdfast-tool")
        return await in_pool(
            self._threads, functools.partial(copy_context().run, functools.partial(fn, **args))
        )

    async def _in_process(self, tool: Any, args: dict[str, Any], context: Context) -> bytes:
        if self._processes is None:
            self._processes = Processes()
        return await self._processes.call(tool, args, context)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._processes is not None:
            self._processes.close()


def failed(work: asyncio.Future[bytes]) -> dict[str, str] | None:
    """Return message, kind and traceback of the exception that a tool raised, as the server takes them."""
    error = asyncio.CancelledError() if work.cancelled() else work.exception()
    if error is None:
        return None
    kind, message = described(error)
    found = {"error": message or kind, "error_kind": kind}
    text = "" if work.cancelled() else shortened(traceback_of(error))
    return found | ({"traceback": text} if text else {})


def answer(result: bytes, logs: list[dict[str, str]]) -> bytes:
    """Return the response of a push worker for a completed call."""
    return b'{"result":%b,"error":""%b}' % (result, b',"logs":%b' % encode(logs) if logs else b"")


def refusal(message: str, kind: str, **more: Any) -> bytes:
    """Return its response for a failed call."""
    return encode({"result": None, "error": message, "error_kind": kind, **more})
