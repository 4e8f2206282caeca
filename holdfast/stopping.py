"""How a process is asked to stop (Ctrl-C, TERM, and HUP, which a terminal sends when it is closed), and how long it may take."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from typing import Final, Protocol

log = logging.getLogger("holdfast")

LATE: Final = 75  # the exit code of a process that did not stop in time


class Cancellable(Protocol):
    def cancel(self) -> None: ...


def stop_signals() -> list[signal.Signals]:
    """HUP is left out where it is ignored: `nohup` starts what is to outlive its terminal."""
    asked = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        asked.append(signal.SIGHUP)
    return asked


def end_within(seconds: float) -> Cancellable:
    """End this process after so many seconds, however far its stop is by then.

    A stop writes to the disk, and a disk may not answer. The journal has everything that was acknowledged, so an end
    without the rest is an end as by a kill.
    """
    timer = threading.Timer(seconds, _end, (seconds,))
    timer.daemon = True
    try:
        timer.start()
    except RuntimeError:  # the system gives no more threads
        return asyncio.get_running_loop().call_later(seconds, _end, seconds)
    return timer


def _end(seconds: float) -> None:
    log.critical(
        "the stop is not done after %g s (limits.drain_secs_max), as when the disk does not answer; the process ends now. "
        "Nothing that was acknowledged is lost; attempts that were at work are lost and tried again by the next start",
        seconds,
    )
    os._exit(LATE)
