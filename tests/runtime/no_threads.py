"""A process that can start no more threads: `python -m tests.runtime.no_threads FILE LIMIT [uvloop|command]`.

LIMIT is `memory` (of its address space; start it with stacks that do not fit into what is left) or `processes` (RLIMIT_NPROC,
which does not hold for root). Prints one line for each thing that it has seen.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
from pathlib import Path

import uvloop

from holdfast import Holdfast, RunFailed, tool
from holdfast.cli.file import finished
from holdfast.ops.health import Health
from holdfast.threads import in_thread
from holdfast.tools import guard

ROOM_BYTES = 200 * 2**20  # for everything but the stack of a thread


@tool
def here() -> str:
    return threading.current_thread().name


def allow_threads(allowed: bool) -> None:
    if sys.argv[2] == "processes":
        most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        resource.setrlimit(resource.RLIMIT_NPROC, (most if allowed else 1, most))
        return
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = resource.RLIM_INFINITY if allowed else used + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


async def failure_of(hf: Holdfast, url: str) -> str:
    call = {"id": "a", "tool": "http_request", "args": {"url": url, "timeout_secs": 1}}
    try:
        return str(await (await hf.start({"name": "h", "steps": [call]})).result())
    except RunFailed as failed:
        return f"{failed.error.kind} {failed.error.message}"


async def main() -> None:
    guard.RESOLVE_SECONDS = 1.0  # type: ignore[misc]
    async with Holdfast(f"sqlite:///{sys.argv[1]}", tools=[here]) as hf:
        await (
            await hf.start({"name": "warm", "steps": [{"id": "a", "tool": "echo", "args": {"value": 1}}]})
        ).result()
        allow_threads(False)
        try:
            threading.Thread(target=print).start()
        except RuntimeError as error:
            print(error, flush=True)
        engine = hf._engine
        health = Health(engine.store, engine.clock, engine.committer, engine.gate)
        health.begin()
        runs = [
            await hf.start({"name": "t", "steps": [{"id": f"s{n}", "tool": "here"} for n in range(2)]})
            for _ in range(10)
        ]
        print(await failure_of(hf, "http://name.invalid/"), flush=True)
        print(await failure_of(hf, "http://127.0.0.1:9/"), flush=True)
        print("waiting", [await run.status() for run in runs].count("running"), flush=True)
        print("pages checked:", health.is_checked, flush=True)
        await health.end()
        health.begin()
        allow_threads(True)
        for run in runs:
            assert (await run.result())["s1"] == "holdfast-tool"
        while not health.is_checked:
            await asyncio.sleep(0.05)
        await health.end()
        print("all done", flush=True)


async def command() -> int:
    """The same as a command of the command line, which can start no threads when it ends either."""
    await main()
    await in_thread(threading.get_ident)
    allow_threads(False)
    return 0


if __name__ == "__main__":
    match sys.argv[3:]:
        case ["command"]:
            sys.exit(finished(command()))
        case ["uvloop"]:
            uvloop.install()
        case _:
            pass
    asyncio.run(main())
