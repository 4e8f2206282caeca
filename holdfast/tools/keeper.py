"""The parent of a process that runs tools. When that process ends, it ends everything that was started there (Linux).

    engine ── keeper (subreaper) ── tool process ── everything that a tool starts, including daemons

Orphans below the keeper become its children, including those in their own session, so it finds all of them. It acts when the engine
dies, even by `kill -9`, when the engine sends SIGTERM, and when the tool process ends. Knows nothing about tools and imports
only the standard library: it is forked before anything else is imported.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from typing import Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
SWEEP_SECONDS_MAX: Final = 5.0  # for processes that fork as fast as they are killed
SWEEP_PAUSE_SECONDS: Final = 0.005
WATCHED: Final = (signal.SIGTERM, signal.SIGCHLD)


def keep(parent: int, handle: int) -> int:
    """Become the keeper of a new process; returns only in that process, with the id of its parent.

    Outside Linux there is no keeper, and the process is a child of the engine.
    """
    if sys.platform != "linux":
        return parent
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    keeper, kept = os.getpid(), os.fork()
    if kept == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        return keeper
    os.close(handle)  # the engine detects the end of the tool process by the end of this one
    try:
        _watch(parent, kept)
    finally:
        os._exit(1)


def die_with_parent(parent: int, number: int) -> None:
    """Have the kernel send a signal as soon as the parent dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def _watch(parent: int, kept: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    die_with_parent(parent, signal.SIGTERM)
    status: int | None = None
    while status is None and signal.sigwait(WATCHED) == signal.SIGCHLD:
        status, _ = _reaped(kept)
    last = _sweep(kept)  # it may have exited just before it was signalled
    _end_as(next(found for found in (status, last, int(signal.SIGKILL)) if found is not None))


def _reaped(kept: int) -> tuple[int | None, bool]:
    """Reap ended children. Return the exit status of the tool process, if it has ended, and whether children are left."""
    found: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found, False
        if pid == 0:
            return found, True
        if pid == kept:
            found = status


def _sweep(kept: int) -> int | None:
    """Kill every child, and the orphans they leave, until there are none."""
    found: int | None = None
    until = time.monotonic() + SWEEP_SECONDS_MAX
    while time.monotonic() < until:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        status, has_children = _reaped(kept)
        found = status if found is None else found
        if not has_children:
            break
        signal.sigtimedwait(WATCHED, SWEEP_PAUSE_SECONDS)
    return found


def _children() -> list[int]:
    """Return the ids of all children. Unreaped children keep their ids, so no id can belong to another process."""
    me, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    after_name = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # it has ended
            if int(after_name[1]) == me:
                found.append(int(name))
    return found


def _end_as(status: int) -> None:
    """Exit the way the tool process did, so that the engine sees the same exit status."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
