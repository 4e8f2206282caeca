"""Commands end, whatever the tools that they ran do."""

from __future__ import annotations

import subprocess
import sys

LEAVES_A_STUBBORN_TASK_BEHIND = """
import asyncio
from holdfast.cli.file import finished

async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def work():
    asyncio.get_running_loop().kept = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    print("said")
    return 3

raise SystemExit(finished(work()))
"""


def test_a_command_ends_although_a_tool_swallows_its_cancellation() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEAVES_A_STUBBORN_TASK_BEHIND],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (3, "said\n")
