"""A node of the campaign: `python -m tests.cluster.node URL NAME FOLDER PART PARTS`.

It starts runs whose number belongs to its part until the file `stop` is there, and signals those of the next part. Each request and
each acknowledgement is a line in a file of the folder, and so is each effect of a tool. A node that is over ends, and the campaign
starts another one, which asks again for what was not acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from holdfast import Context, Holdfast, tool
from holdfast.errors import NodeIsOver, RunIsOver, Unavailable

IS_OVER = 3
STEPS = [
    {"id": "a", "tool": "effect"},
    {"id": "b", "tool": "effect"},
    {"id": "go", "kind": "wait_event", "signal_key": "go"},
    {"id": "c", "tool": "effect"},
]
FLOW = {"name": "w", "steps": STEPS}
PAUSE = 0.05  # before the same is asked again
PACE = 0.15  # between two starts, and how long a step takes


def say(file: Path, *words: object) -> None:
    """One write of a short line: lines of several processes do not mix, and a kill leaves whole ones."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(descriptor, (" ".join(map(str, words)) + "\n").encode())
    os.close(descriptor)


def lines(file: Path) -> list[list[str]]:
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


async def start_all(hf: Holdfast, folder: Path, part: int, parts: int) -> None:
    asked = [int(n) for (n,) in lines(folder / "asked") if int(n) % parts == part]
    done = {int(n) for n, _ in lines(folder / "started")}
    for n in asked:
        if n not in done:
            await start(hf, folder, n)
    n = max(asked, default=part - parts)
    while not (folder / "stop").exists():
        n += parts
        say(folder / "asked", n)
        await start(hf, folder, n)
        await asyncio.sleep(PACE)


async def start(hf: Holdfast, folder: Path, n: int) -> None:
    while True:
        try:
            run = await hf.start(FLOW, {"n": n}, request_id=str(n))
            return say(folder / "started", n, run.id)
        except NodeIsOver:
            raise
        except Unavailable:
            await asyncio.sleep(PAUSE)


async def signal_all(hf: Holdfast, folder: Path, part: int, parts: int) -> None:
    done = {int(n) for (n,) in lines(folder / "signalled")}
    while True:
        for number, run_id in lines(folder / "started"):
            n = int(number)
            if n % parts != part or n in done:
                continue
            try:
                with suppress(RunIsOver):  # an earlier signal whose acknowledgement was lost has ended it
                    await hf.signal(run_id, "go", n)
                say(folder / "signalled", n)
                done.add(n)
            except NodeIsOver:
                raise
            except Unavailable:
                pass
        await asyncio.sleep(PAUSE)


async def is_over(hf: Holdfast) -> None:
    """Raise once another node has taken the runs of this one, also where it has nothing left to ask for."""
    while True:
        if hf._engine.committer.is_over:
            raise NodeIsOver("seen by the campaign")
        await asyncio.sleep(PAUSE)


async def main(url: str, name: str, folder: Path, part: int, parts: int) -> int:
    @tool
    async def effect(context: Context) -> str:
        say(folder / "effects", context.run_id, context.path, context.attempt, name)
        await asyncio.sleep(PACE)
        return context.path

    while True:
        try:
            async with Holdfast(url, tools=[effect]) as hf:
                await asyncio.gather(
                    start_all(hf, folder, part, parts),
                    signal_all(hf, folder, (part + 1) % parts, parts),
                    is_over(hf),
                )
        except NodeIsOver:
            return IS_OVER
        except Unavailable:
            await asyncio.sleep(PAUSE)


if __name__ == "__main__":
    url, name, folder, part, parts = sys.argv[1:]
    sys.exit(asyncio.run(main(url, name, Path(folder), int(part), int(parts))))
