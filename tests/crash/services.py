"""What real workers, and the tools of a server, do in the campaigns of killed servers. Each execution leaves a line in
$EFFECTS, which outlives them."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from holdfast import Context, tool


def _effect(kind: str, context: Context) -> None:
    """One whole line: who calls a worker says only the key, who gives jobs out says all."""
    words = (
        kind,
        context.idempotency_key,
        context.run_id or "-",
        context.path or "-",
        context.attempt,
        time.time_ns(),
    )
    line = " ".join(map(str, words)) + "\n"
    with open(os.environ["EFFECTS"], "ab", buffering=0) as file:
        file.write(line.encode())


@tool
async def push_add(context: Context, input: int, params: dict[str, Any]) -> int:  # noqa: A002
    _effect("push", context)
    await asyncio.sleep(0.1)
    return input + int(params["plus"])


@tool
async def pull_add(context: Context, input: int, params: dict[str, Any]) -> int:  # noqa: A002
    _effect("pull", context)
    await asyncio.sleep(params["ms"] / 1000)
    return input + int(params["plus"])


@tool
async def note(context: Context, value: Any) -> Any:
    _effect("note", context)
    await asyncio.sleep(0.01)
    return value
