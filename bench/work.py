"""The work itself, written as a user would: a trivial tool, the definitions that call it, and runs of them.

Small on purpose: the processes whose memory and start are measured import this and nothing else of the bench.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast import Holdfast, WorkflowSpec, tool

Tool = Callable[..., Any]
HOUR_MS = 3_600_000


@contextmanager
def noting(path: Path, begins: Callable[[int], object] | None = None) -> Iterator[Tool]:
    """The trivial step: appends one line to a file and returns its number. `begins` is told of which run
    first, if it is given."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    @tool
    async def note(run: int, step: int) -> int:
        os.write(fd, b"%d %d\n" % (run, step))
        return step

    @tool(name="note")
    async def told(run: int, step: int) -> int:
        assert begins is not None
        begins(run)
        os.write(fd, b"%d %d\n" % (run, step))
        return step

    try:
        yield note if begins is None else told
    finally:
        os.close(fd)


def chain(steps: int) -> WorkflowSpec:
    """So many trivial steps, one after another."""
    calls = [
        {"id": f"s{step}", "tool": "note", "args": {"run": "{{inputs.run}}", "step": step}}
        for step in range(steps)
    ]
    return WorkflowSpec.from_data({"name": "chain", "inputs": {"run": {"type": "integer"}}, "steps": calls})


def loop(concurrency: int, *, collect: str) -> WorkflowSpec:
    """A trivial step for each item."""
    body = [{"id": "s", "tool": "note", "args": {"run": "{{inputs.run}}", "step": "{{item}}"}}]
    each = {
        "id": "each",
        "kind": "foreach",
        "items": "$.inputs.items",
        "concurrency": concurrency,
        "collect": collect,
        "steps": body,
    }
    inputs = {"run": {"type": "integer"}, "items": {"type": "array"}}
    return WorkflowSpec.from_data({"name": "loop", "inputs": inputs, "steps": [each]})


def branches(count: int) -> WorkflowSpec:
    """So many trivial steps at the same time, each written out."""
    calls = [
        {"id": f"s{step}", "tool": "note", "args": {"run": "{{inputs.run}}", "step": step}}
        for step in range(count)
    ]
    spread = {"id": "spread", "kind": "parallel", "steps": calls}
    return WorkflowSpec.from_data(
        {"name": "branches", "inputs": {"run": {"type": "integer"}}, "steps": [spread]}
    )


def waiter(waits_for: str) -> WorkflowSpec:
    """A run that waits: for an hour, for a signal, or for the later answer of the tool `ask`."""
    waits: dict[str, dict[str, Any]] = {
        "waiting": {"kind": "timer", "delay_ms": HOUR_MS},
        "signalled": {"kind": "wait_event", "signal_key": "go"},
        "called_back": {"tool": "ask", "args": {"run": "{{inputs.run}}"}},
    }
    return WorkflowSpec.from_data(
        {
            "name": waits_for,
            "inputs": {"run": {"type": "integer"}},
            "steps": [{"id": "wait", **waits[waits_for]}],
        }
    )


def opened(db: Path | str, *tools: Tool) -> Holdfast:
    """On a file, or at the address of a server."""
    return Holdfast(f"sqlite:///{db}" if isinstance(db, Path) else db, tools=tools, tune_gc=True)


async def whole_run(hf: Holdfast, spec: WorkflowSpec, run: int) -> None:
    await (await hf.start(spec, {"run": run})).result()


async def many_runs(hf: Holdfast, spec: WorkflowSpec, *, runs: int, in_flight: int) -> float:
    """So many runs to their end, so many of them at a time; gives the seconds it took."""
    numbers = iter(range(1, runs + 1))

    async def one_after_another() -> None:
        for number in numbers:
            await whole_run(hf, spec, number)

    began = time.perf_counter()
    await asyncio.gather(*[one_after_another() for _ in range(min(runs, in_flight))])
    return time.perf_counter() - began
