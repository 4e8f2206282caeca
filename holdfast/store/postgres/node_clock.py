"""The clock of this node's machine, as the store needs it: for the numbers of runs, and to compare it with the database's.

Not the clock of the engine, which tests move by hand: nothing is due by this one.
"""

from __future__ import annotations

import time


def wall_ms() -> int:
    return time.time_ns() // 1_000_000
