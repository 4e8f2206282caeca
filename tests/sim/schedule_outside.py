"""What events come from in a simulation: a queue, a folder, and senders of webhooks who repeat until they are answered."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from holdfast.triggers import files
from holdfast.triggers.arrivals import Arrival


class Outside:
    """What happened outside, and what was acknowledged of it."""

    def __init__(self) -> None:
        self.queue: list[str] = []
        self.acknowledged: set[str] = set()
        self.folder: list[Arrival] = []

    def arrive(self, name: str, at_ms: int) -> None:
        self.folder.append(Arrival(name, len(name), at_ms * 1_000_000, at_ms * 1_000_000, len(self.folder)))


OUTSIDE = [Outside()]  # of the world that runs now


async def events(position: str | None) -> AsyncIterator[tuple[str, Any]]:
    """A queue that sends again what was not acknowledged."""
    outside = OUTSIDE[0]
    while True:
        for name in [one for one in outside.queue if one not in outside.acknowledged]:
            yield name, {"n": name}
            outside.acknowledged.add(name)
        await asyncio.sleep(1.0)


async def _inline(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


async def _watch(
    roots: Sequence[Path], look: Callable[[], Awaitable[None]], tell: Callable[[str], None]
) -> None:
    while True:
        await asyncio.sleep(5.0)
        await look()


def _content(folder: str, one: Arrival) -> str:
    return hashlib.sha256(one.name.encode()).hexdigest()


@contextmanager
def simulated(outside: Outside) -> Iterator[None]:
    """No threads and no files: the folder is a list."""
    OUTSIDE[0] = outside
    with mock.patch.multiple(
        files,
        in_thread=_inline,
        watch=_watch,
        content_of=_content,
        arrivals=lambda folder, pattern: list(outside.folder),
    ):
        yield
