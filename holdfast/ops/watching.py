"""Call a function whenever something in a folder changes.

Knows folders and file system notifications, not the contents of files. The function must scan whole folders, so that bursts,
renames and lost notifications need no special rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

BURST_MS: Final = 50  # without a change for so long, a burst of changes has ended
BURST_MS_MAX: Final = 1_000
RESCAN_MS: Final = 5_000  # without any notice: some file systems give none


async def watch(
    roots: Sequence[Path],
    scan: Callable[[], Awaitable[None]],
    report: Callable[[str], None],
    *,
    recursive: bool = True,
) -> None:
    """Call `scan` after every change, until cancelled. `report` receives the reason why a folder cannot be watched. Without
    `recursive`, folders in them are left out."""
    from watchfiles import awatch

    while True:
        try:
            async for _ in awatch(
                *roots,
                watch_filter=None,
                recursive=recursive,
                debounce=BURST_MS_MAX,
                step=BURST_MS,
                rust_timeout=RESCAN_MS,
                yield_on_timeout=True,
                ignore_permission_denied=True,
            ):
                await scan()
                if not all(root.is_dir() for root in roots):
                    break
        except OSError as error:  # a folder is missing; it may return
            report(f"cannot be watched: {error.strerror or error}")
        await asyncio.sleep(RESCAN_MS / 1000)
        await scan()
