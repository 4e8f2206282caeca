"""A command that needs the file for itself waits until the process that has it ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from holdfast.cli.options import Usage
from holdfast.cli.streams import say
from holdfast.errors import DatabaseInUse

WAIT_SECS: Final = 600.0
WAIT_SECS_MAX: Final = 86_400.0
AGAIN_SECS: Final = 0.2


def waits_in_line(given: str | None, attempt: Callable[[], int]) -> int:
    """The result of `attempt`, which is repeated while another process has the file; raises DatabaseInUse when the time to wait has passed."""
    secs = _seconds(given)
    until = time.monotonic() + secs
    is_said = False
    while True:
        try:
            return attempt()
        except DatabaseInUse as error:
            if error.pid is None or time.monotonic() >= until:
                raise
            if not is_said:
                say(f"waiting in line, {secs:g} s at most (--wait 0 does not wait): {error}")
                is_said = True
            asyncio.run(asyncio.sleep(AGAIN_SECS))


def _seconds(given: str | None) -> float:
    if given is None:
        return WAIT_SECS
    try:
        secs = float(given)
    except ValueError:
        secs = -1.0
    if not 0 <= secs <= WAIT_SECS_MAX:
        raise Usage(f"--wait must be a number of seconds from 0 to {WAIT_SECS_MAX:,.0f}, not {given!r}")
    return secs
