"""`holdfast up --reload`: a changed file of tools restarts the server, behind the same open port.

    a file changes ──► a process of its own loads the tools ──┬──► fails: the running code stays, and the reason is logged
                                                              └──► works: the server stops gracefully, and this process becomes the new one

The process replaces itself (`exec`) and hands on its listening socket, so requests that arrive meanwhile wait in the queue of the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from typing import Final, NoReturn

from holdfast.cli.streams import hand_on_stdout

log = logging.getLogger("holdfast.tools")

LISTENER: Final = "_HOLDFAST_LISTENER"  # the descriptor of the socket that the former process listened on
PROBE: Final = "_HOLDFAST_PROBE"  # only load settings and tools, and say what is wrong with them
PROBE_SECS_MAX: Final = 60.0
SHOWN_CHARS_MAX: Final = 2_000


def is_probe() -> bool:
    return os.environ.pop(PROBE, "") == "1"


def inherited() -> socket.socket | None:
    """The listening socket of the process that this one replaces."""
    number = os.environ.pop(LISTENER, "")
    if not number.isdecimal():
        return None
    with contextlib.suppress(OSError):
        listener = socket.socket(fileno=int(number))
        listener.set_inheritable(False)
        listener.setblocking(False)
        return listener
    return None


def command_line() -> list[str]:
    """The command that started this process."""
    return [sys.executable, "-m", "holdfast", *sys.argv[1:]]


class Reload:
    """`wanted` is set once changed tools were loaded successfully in another process."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self._probing: asyncio.Task[None] | None = None
        self._changed: list[str] | None = None  # while a probe is under way: changes after it

    def changed(self, files: list[str]) -> None:
        if self._probing is not None and not self._probing.done():
            self._changed = files
            return
        self._probing = asyncio.get_running_loop().create_task(self._probe(files))

    async def _probe(self, files: list[str]) -> None:
        reason = await _wrong()
        while self._changed is not None:
            files, self._changed = self._changed, None
            reason = await _wrong()
        if reason:
            log.warning(
                "%s changed, but cannot be loaded; the server goes on with the loaded code: %s",
                ", ".join(files),
                reason,
            )
            return
        log.warning("%s changed; reloading", ", ".join(files))
        self.wanted.set()

    async def close(self) -> None:
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait([self._probing])


async def _wrong() -> str:
    """Return why the tools cannot be loaded now; empty if they can."""
    process = await asyncio.create_subprocess_exec(
        *(word for word in command_line() if word != "--json"),  # errors are text then
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, PROBE: "1"},
    )
    try:
        async with asyncio.timeout(PROBE_SECS_MAX):
            _, said = await process.communicate()
    except TimeoutError:
        return f"loading takes more than {PROBE_SECS_MAX:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode == 0:
        return ""
    return said.decode(errors="replace").strip()[-SHOWN_CHARS_MAX:] or f"exit code {process.returncode}"


def become_new(listener: socket.socket) -> NoReturn:
    """Start the same command in this process, with the open port. The server has stopped."""
    listener.set_inheritable(True)
    hand_on_stdout()
    words = command_line()
    os.execve(words[0], words, {**os.environ, LISTENER: str(listener.fileno())})
