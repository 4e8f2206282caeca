"""Tools for workers in processes of their own."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from holdfast import Context, ToolError, tool


@tool
async def double(x: int) -> int:
    return 2 * x


@tool
def slow_add(a: int, b: int, wait: float = 0.0) -> int:
    time.sleep(wait)
    return a + b


@tool(isolate="process")
def heavy(n: int) -> int:
    return os.getpid() * 0 + sum(range(n))


@tool
async def fails(input: str) -> None:  # noqa: A002
    raise ToolError(f"cannot: {input}", kind="picky")


@tool
async def who(ctx: Context, input: Any, params: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    return {"input": input, "params": params, "run": ctx.run_id, "path": ctx.path, "key": ctx.idempotency_key}


@tool
async def noted(ctx: Context, file: str, until: str) -> str:
    """Appends a line when it begins, and returns once a file is there."""
    note(file, f"{ctx.path} {ctx.attempt}")
    ctx.progress(0.5, message="begun")
    try:
        while not Path(until).exists():
            await asyncio.sleep(0.02)
    except asyncio.CancelledError:
        note(file, "cancelled")
        raise
    return "done"


def note(file: str, line: str) -> None:
    with Path(file).open("a") as out:
        out.write(f"{line}\n")
