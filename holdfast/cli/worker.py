"""`holdfast worker MODULE`: serve the tools of a module to a server, until Ctrl-C, SIGTERM or SIGHUP."""

from __future__ import annotations

import asyncio
import os
import sys

import msgspec
import uvloop

from holdfast.cli.options import Usage, load_tools, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.server import server_of
from holdfast.cli.streams import say
from holdfast.sdk.perform import CONCURRENCY
from holdfast.sdk.worker import Worker
from holdfast.stopping import stop_signals


def command(given: Given) -> int:
    modules = (*given.arguments, *given.texts("--tools"))
    if not modules:
        raise Usage("worker needs MODULE, the tools that it serves; for example: holdfast worker tools")
    settings = msgspec.structs.replace(settings_of(given), tools=modules)
    tools, concurrency = list(load_tools(settings)), _concurrency(given.text("--concurrency"))
    named = settings.server or os.environ.get("REGISTRY_URL")
    owner = None if named else server_of(settings)

    async def work() -> None:
        worker = Worker(
            tools,
            named or (owner and owner.address),
            socket=owner and owner.socket,
            pull=given.has("--pull"),
            url=given.text("--url"),
            worker_id=given.text("--id"),
            key=settings.key,
            concurrency=concurrency,
        )
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, worker.stop)
        reporting = asyncio.create_task(_report(worker))
        await worker.run()
        reporting.cancel()

    uvloop.run(work())
    sys.stderr.flush()
    os._exit(0)  # a sync tool that does not return would keep the process here


def _concurrency(text: str | None) -> int:
    if text is None:
        return CONCURRENCY
    if not text.isdecimal() or not int(text):
        raise Usage(f"--concurrency must be a whole number from 1, not {text!r}")
    return int(text)


async def _report(worker: Worker) -> None:
    await worker.is_registered.wait()
    how = f"called at {worker.url}" if worker.url else "fetching its jobs"
    say(f"worker {worker.id} serves {', '.join(worker.services)} for {worker.server}, {how}")
