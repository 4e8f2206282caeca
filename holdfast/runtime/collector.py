"""Tunes Python's garbage collector for many runs in memory. This affects the whole process, so it is opt-in.

With a thousand runs in memory the collector would traverse all of them again and again.
"""

from __future__ import annotations

import gc
import sys
import threading
from typing import Final

# Default thresholds of CPython up to 3.12, of 3.13, of 3.14, and of free-threaded builds.
THRESHOLDS_OF_PYTHON: Final = frozenset({(700, 10, 10), (2_000, 10, 10), (2_000, 10, 0), (10_000, 10, 10)})
LISTED_BEFORE: Final = (3, 15)
THRESHOLD_AT_IMPORT: Final = gc.get_threshold()
# A collection holds up every thread, about 0.2 ms for a thousand objects. The second generation is collected at 100,000 objects at
# most, the last one as rarely as a server can afford: after 20 million new objects.
THRESHOLD: Final = (25_000, 4, 200)
# Where requests leave reference cycles, as each one does to the MCP SDK, most objects of a collection are garbage, and freeing takes
# several times longer than traversing. So fewer objects at a time; the last generation is collected as rarely as before.
THRESHOLD_WITH_CYCLES: Final = (10_000, 5, 400)
# Whether this process has excluded what was loaded. Python itself would have to count the excluded objects one by one to tell.
HAS_FROZEN: Final = threading.Event()


def tune() -> None:
    """Exclude the objects that are loaded now from collections, and collect less often. Thresholds set by the user
    are kept."""
    if (
        not HAS_FROZEN.is_set()
    ):  # a second engine would keep the garbage of the first one until the process ends
        HAS_FROZEN.set()
        gc.freeze()
    if _is_of_python(gc.get_threshold()):
        gc.set_threshold(*THRESHOLD)


def expect_cycles() -> None:
    """A library was loaded that leaves reference cycles: if the collector was tuned, exclude also what was loaded since (the MCP SDK
    made one collection last 90 ms), and collect less at a time (one lasted 60 ms)."""
    if HAS_FROZEN.is_set():
        gc.freeze()
    if gc.get_threshold() == THRESHOLD:
        gc.set_threshold(*THRESHOLD_WITH_CYCLES)


def _is_of_python(threshold: tuple[int, ...]) -> bool:
    """Whether these are the interpreter's default thresholds. For an interpreter newer than the list: those it had
    when the engine was imported."""
    is_listed = sys.version_info < LISTED_BEFORE
    return threshold in THRESHOLDS_OF_PYTHON or (not is_listed and threshold == THRESHOLD_AT_IMPORT)
