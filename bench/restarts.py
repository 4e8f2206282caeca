"""W6 and W8: what a crash costs, and a start. Everything here happens in processes of its own."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Final

import msgspec

from bench.figures import Goal, Kind, Measure
from bench.processes import Child
from bench.scale import Scale
from holdfast.runtime.load import load_run
from holdfast.store.open import open_url
from holdfast.values import Millis

AFTER_KILL: Final = Kind("w6_restart", "s", None, Goal(value=1.5), Goal(value=0.5))
# As a ratio: what was executed twice, of the attempts that were open at the kill.
TWICE: Final = Kind("w6_twice", "steps", "open at the kill", Goal(ratio=1))
SCRIPT_START: Final = Kind("w8_python", "s", "bare interpreter", Goal(value=0.3), Goal(value=0.2))
COMMAND_START: Final = Kind("w8_command", "s", "bare interpreter", Goal(value=0.3), Goal(value=0.2))

POLL_SECONDS: Final = 0.001
# All runs go in step, so half of the effects is always the same moment of a batch: leave it to chance which it is.
KILL_SECONDS_PER_RUN: Final = 0.000_04  # about one batch
ALL: Final = 10**9

SCRIPT: Final = """\
import uvloop
from holdfast import Holdfast, tool


@tool
async def note(run: int, step: int) -> int:
    with open("effects", "a") as file:
        file.write(f"{run} {step}\\n")
    return step


async def main() -> None:
    async with Holdfast("sqlite:///w8.db", tools=[note]) as hf:
        run = await hf.start("w8.yaml", {"run": 1})
        print(await run.result(), flush=True)


if __name__ == "__main__":
    uvloop.run(main())
"""
DEFINITION: Final = """\
name: w8
inputs:
  run: {type: integer}
steps:
  - id: only
    tool: note
    args: {run: "{{inputs.run}}", step: 1}
"""


def kill_and_restart(folder: Path, scale: Scale) -> list[Measure]:
    """W6: kill -9 at half of the work; from the start of the next process until every run is complete."""
    db, effects, ids_file = folder / "w6.db", folder / "effects", folder / "ids"
    with Child.doing("work", db=db, effects=effects, runs=scale.runs, steps=scale.steps) as first:
        _await_half(first, effects, scale)
        time.sleep(random.uniform(0, scale.runs * KILL_SECONDS_PER_RUN))
        first.kill()
    done = effects.read_bytes().count(b"\n")
    ids, open_attempts = asyncio.run(_left_behind(_copied(db, folder / "copy")))
    ids_file.write_text("\n".join(ids))
    with Child.doing("go_on", db=db, effects=effects, ids=ids_file) as second:
        told = second.hear()
    twice = _check(effects, scale)
    settings = {
        "runs": scale.runs,
        "steps": scale.steps,
        "done_at_kill": done,
        "open_runs": len(ids),
        "open_attempts": open_attempts,
        "twice": twice,
        "seconds_from_opening": round(told["ended"] - told["began"], 4),
    }
    return [
        Measure(AFTER_KILL, told["ended"] - second.began, None, settings),
        Measure(TWICE, twice, open_attempts, settings),
    ]


def _await_half(child: Child, effects: Path, scale: Scale) -> None:
    lines = [len(f"{run} {step}\n") for run in range(1, scale.runs + 1) for step in range(scale.steps)]
    half = sum(lines) // 2
    while child.process.poll() is None:
        if effects.exists() and effects.stat().st_size >= half:
            return
        time.sleep(POLL_SECONDS)
    raise RuntimeError("the process that was to be killed ended by itself")


def _copied(db: Path, folder: Path) -> Path:
    """To look at a file without opening it: reading its log is already a part of the recovery to be measured."""
    folder.mkdir()
    for file in db.parent.glob(f"{db.name}*"):
        if file.is_file():  # and not the socket of its process
            shutil.copy(file, folder / file.name)
    return folder / db.name


async def _left_behind(db: Path) -> tuple[list[str], int]:
    """The runs that are open in a file, and how many of their attempts are."""
    store = open_url(f"sqlite:///{db}")
    await store.open()
    ids, attempts = [], 0
    for claim in await store.claim("left", Millis(0), ALL):
        stored = await store.load(claim.no)
        assert stored is not None
        run = await load_run(store, stored)
        ids.append(str(run.id))
        attempts += len(run.open_attempts())
    await store.close()
    return ids, attempts


def _check(effects: Path, scale: Scale) -> int:
    """How many effects there are twice; a figure of a restart that lost one would be worth nothing."""
    counts = Counter(effects.read_text().splitlines())
    missing = scale.runs * scale.steps - len(counts)
    if missing:
        raise RuntimeError(f"{missing} effects are missing after the restart")
    return counts.total() - len(counts)


def start_up(folder: Path, scale: Scale) -> list[Measure]:
    """W8: from the start of a process to the result of its first run, in a file that exists."""
    (folder / "w8.py").write_text(SCRIPT)
    (folder / "w8.yaml").write_text(DEFINITION)
    script = ("w8.py",)
    command = ("-m", "holdfast.cli.main", "run", "w8.yaml", "--tools", "w8", "-i", "run=1", "--db", "w8.db")
    for warm in (script, command):  # makes the file, and the bytecode of everything that is imported
        _until_result(folder, *warm)
    bare = _until_result(folder, "-c", "print('up', flush=True)")
    settings = {"until": "the result is printed"}
    return [
        Measure(SCRIPT_START, _until_result(folder, *script), bare, settings),
        Measure(COMMAND_START, _until_result(folder, *command), bare, settings),
    ]


def _until_result(folder: Path, *command: str) -> float:
    with Child(*command, folder=folder) as child:
        if not child.hear_line():
            raise RuntimeError(f"no result from {msgspec.json.encode(command).decode()}")
        took = time.monotonic() - child.began
        child.process.wait(60)
    return took
