"""Processes a large text in a separate process, so that the event loop is not blocked.

Decoding 24 MiB of small values is a single call into C code. It holds the interpreter lock for seconds, whichever
thread makes it, and the gigabyte that it allocates is not returned to the system. A process for each call costs 0.1 s
on another core, and its memory is released when it ends. Does not know what the work is: that is a function of bytes,
found by its name.
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
from holdfast.threads import in_pool, no_thread_now

T = TypeVar("T")

LARGE_BYTES: Final = 1024 * 1024  # below this size, starting a process takes longer than the work itself
SECONDS_MAX: Final = 60.0
THREAD_SECONDS_MAX: Final = 10.0  # without a thread, before a caller is asked to come again

# At most two at a time: each takes a core from the server, and up to a gigabyte of memory.
_CALLERS: Final = ThreadPoolExecutor(2, "holdfast-apart")
_IN_TURNS: Final = ThreadPoolExecutor(1, "holdfast-bodies")
_PROGRAM: Final = "import sys; sys.path = {path!r}; from holdfast.runtime import apart; apart.main({work!r})"


async def apart(work: Callable[[bytes], bytes], text: bytes) -> bytes:
    """Apply a module-level function to a text in a separate process. Raises Unavailable if no process can be started."""
    name = f"{work.__module__}:{work.__qualname__}"
    return await _in_pool(_CALLERS, lambda: _call(name, text))


async def yield_after(text: bytes) -> None:
    """Let the event loop run other tasks between two pieces of work on a large text."""
    if len(text) > LARGE_BYTES:
        await asyncio.sleep(0)


async def in_turns(work: Callable[[], T]) -> T:
    """Run work that takes up to 0.1 s in a thread, so that the event loop stays responsive. Raises Unavailable if no thread can be
    started."""
    return await _in_pool(_IN_TURNS, work)


async def _in_pool(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    try:
        return await in_pool(pool, work, wait_secs=THREAD_SECONDS_MAX)
    except RuntimeError as error:
        if not no_thread_now(error):
            raise
        raise Unavailable("a large value could not be read: the system starts no more threads") from error


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
        raise Unavailable(f"a large value could not be read in a separate process: {error}") from error


def _file() -> IO[bytes]:
    """Use a memory file where the system has them: text that is not redacted yet must not be written to disk."""
    if sys.platform == "linux":
        return open(os.memfd_create("holdfast"), "w+b", buffering=0)  # closed by the caller
    return tempfile.TemporaryFile(buffering=0)


def main(name: str) -> None:
    """The main function of the process: it reads its text, works, writes the result and ends. It never collects
    garbage."""
    import gc

    gc.disable()
    module, _, function = name.partition(":")
    work: Any = getattr(importlib.import_module(module), function)
    made = work(sys.stdin.buffer.read())
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        out.write(made)
        out.flush()
    os._exit(0)  # ends without freeing millions of objects one by one
