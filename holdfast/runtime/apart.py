"""Work on a large text in a process of its own, so that the event loop gets its turns.

To decode 24 MiB of small values is one call of C code: it holds the interpreter for seconds, whichever thread makes it, and takes
a gigabyte that is not given back. A process per call costs 0.1 s on another core, and its memory goes with it. Knows no work:
that is a function of bytes which is found by its name.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Final, TypeVar

from holdfast.errors import Unavailable
from holdfast.tools.threads import in_pool

T = TypeVar("T")

LARGE_BYTES: Final = 1024 * 1024  # what is smaller takes less time here than a process takes to start
SECONDS_MAX: Final = 60.0

# Two at a time: more would take the cores from the server, and a gigabyte each.
_CALLERS: Final = ThreadPoolExecutor(2, "holdfast-apart")
_IN_TURNS: Final = ThreadPoolExecutor(1, "holdfast-bodies")
_PROGRAM: Final = "import sys; sys.path = {path!r}; from holdfast.runtime import apart; apart.main({work!r})"


async def apart(work: Callable[[bytes], bytes], text: bytes) -> bytes:
    """What a function at the top of a module makes of a text. Raises Unavailable where no process can be had."""
    name = f"{work.__module__}:{work.__qualname__}"
    return await in_pool(_CALLERS, lambda: _call(name, text))


async def yield_after(text: bytes) -> None:
    """Let the event loop take a turn after work on a large text, before the next piece of work on it."""
    if len(text) > LARGE_BYTES:
        await asyncio.sleep(0)


async def in_turns(work: Callable[[], T]) -> T:
    """The result of work that takes up to 0.1 s in small steps: in a thread, while the event loop gets its turns."""
    return await in_pool(_IN_TURNS, work)


def _call(name: str, text: bytes) -> bytes:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HOLDFAST_")}
    command = [sys.executable, "-c", _PROGRAM.format(path=sys.path, work=name)]
    try:
        with _file() as given, _file() as made:
            given.write(text)
            given.seek(0)
            subprocess.run(
                command, stdin=given, stdout=made, env=environment, start_new_session=True, timeout=SECONDS_MAX, check=True
            )  # fmt: skip
            made.seek(0)
            return made.read()
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(f"a large value could not be read in a process of its own: {error}") from error


def _file() -> IO[bytes]:
    """In memory where the system can: what has not been redacted yet is not written to a disk."""
    if sys.platform == "linux":
        return open(os.memfd_create("holdfast"), "w+b", buffering=0)  # closed by the caller
    return tempfile.TemporaryFile(buffering=0)


def main(name: str) -> None:
    """What the process does: it reads its text, works, writes and ends, so nothing needs to be collected."""
    import gc

    gc.disable()
    module, _, function = name.partition(":")
    work: Any = getattr(importlib.import_module(module), function)
    made = work(sys.stdin.buffer.read())
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(made)
        out.flush()
    os._exit(0)  # without taking millions of objects apart
