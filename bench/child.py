"""What the processes of the bench do: `python -m bench.child WHAT ORDER`. They say how far they are in JSON lines.

Imports as little as a user's program would, for its memory and its start are measured.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import uvloop

from bench.work import chain, many_runs, noting, opened, waiter
from holdfast import Holdfast, WorkflowSpec, tool

Order = dict[str, Any]
STARTS_AT_ONCE: Final = 1_000


def say(**what: Any) -> None:
    sys.stdout.write(msgspec.json.encode(what).decode() + "\n")
    sys.stdout.flush()


async def wait(order: Order) -> None:
    """Open the file, start so many runs that wait for an hour, or for others, and stay."""

    @tool
    async def ask(run: int) -> dict[str, Any]:
        return {"pending": True, "task_id": f"task-{run}"}

    async with opened(Path(order["db"]), ask) as hf:
        await start_many(hf, waiter(order["waits_for"]), order["runs"])
        say(ready=True)
        await asyncio.Event().wait()


async def write(order: Order) -> None:
    """Many runs to their end, and the bytes that this process sent to disk meanwhile, the closing included."""
    with noting(Path(order["effects"])) as note:
        async with opened(Path(order["db"]), note) as hf:
            before, _ = written_bytes()
            await many_runs(hf, chain(order["steps"]), runs=order["runs"], in_flight=order["in_flight"])
    after, counted_by = written_bytes()
    say(bytes=after - before, at_open=before, counted_by=counted_by)


async def write_limit(order: Order) -> None:
    """The same for the limit program, whose table is the least that such a step can be."""
    from bench.limits import step_rows  # not above: the processes that are weighed do without it

    before, _ = written_bytes()
    await step_rows(Path(order["db"]), order["in_flight"], order["steps"], order["rounds"])
    say(bytes=written_bytes()[0] - before)


async def work(order: Order) -> None:
    """Runs of so many steps, all at once, until this process is killed."""
    with noting(Path(order["effects"])) as note:
        async with opened(Path(order["db"]), note) as hf:
            await many_runs(hf, chain(order["steps"]), runs=order["runs"], in_flight=order["runs"])
            await asyncio.Event().wait()  # whoever kills it may be late


async def go_on(order: Order) -> None:
    """After a kill: every run that was left open, to its end."""
    with noting(Path(order["effects"])) as note:
        began = time.monotonic()
        async with opened(Path(order["db"]), note) as hf:
            runs = [await hf.run(run_id) for run_id in _words(order["ids"])]
            await asyncio.gather(*[run.result() for run in runs])
            say(began=began, ended=time.monotonic())


async def hold(order: Order) -> None:
    """Start so many runs whose first step never returns, and stay."""

    @tool
    async def note(run: int, step: int) -> int:
        await asyncio.Event().wait()
        return step

    async with opened(Path(order["db"]), note) as hf:
        await start_many(hf, chain(1), order["runs"])
        say(ready=True)
        await asyncio.Event().wait()


async def recover(order: Order) -> None:
    """After a kill: when the first and the last of so many lost steps begin again."""
    begins: list[float] = []
    all_begun = asyncio.Event()

    def begin(run: int) -> None:
        begins.append(time.monotonic())
        if len(begins) == order["runs"]:
            all_begun.set()

    with noting(Path(order["effects"]), begin) as note:
        opening = time.monotonic()
        async with opened(Path(order["db"]), note):
            await all_begun.wait()
            say(opening=opening, first=begins[0], last=begins[-1])


async def start_many(hf: Holdfast, spec: WorkflowSpec, runs: int) -> None:
    for first in range(0, runs, STARTS_AT_ONCE):
        numbers = range(first, min(runs, first + STARTS_AT_ONCE))
        await asyncio.gather(*[hf.start(spec, {"run": number}) for number in numbers])


def _words(file: str) -> list[str]:
    return Path(file).read_text().split()


def written_bytes() -> tuple[int, str]:
    """What this process has sent towards the disk so far, and who counted it."""
    try:
        rows = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_oublock * 512, "blocks of getrusage"
    counts = dict(row.split(": ") for row in rows)
    return int(counts["write_bytes"]), "write_bytes of /proc/self/io"


DOES: Final[dict[str, Callable[[Order], Awaitable[None]]]] = {
    does.__name__: does for does in (wait, write, write_limit, work, go_on, hold, recover)
}


async def main() -> None:
    what, order = sys.argv[1], msgspec.json.decode(sys.argv[2])
    if what in DOES:
        return await DOES[what](order)
    from bench import schedule_child  # not above: the processes that are weighed do without it

    await getattr(schedule_child, what)(order, say)


if __name__ == "__main__":
    uvloop.run(main())
