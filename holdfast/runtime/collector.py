"""Tunes Python's garbage collector for many runs in memory. This affects the whole process, so it is opt-in.

With a thousand runs in memory the collector would traverse all of them again and again.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

# Default thresholds of CPython up to 3.12, of 3.13, of 3.14, and of free-threaded builds.
THRESHOLDS_OF_PYTHON: Final = frozenset({(700, 10, 10), (2_000, 10, 10), (2_000, 10, 0), (10_000, 10, 10)})
LISTED_BEFORE: Final = (3, 15)
THRESHOLD_AT_IMPORT: Final = gc.get_threshold()
THRESHOLD: Final = (50_000, 20, 20)


def tune() -> None:
    """Exclude the objects that are loaded now from collections, and collect less often. Thresholds set by the user
    are kept."""
    if not gc.get_freeze_count():  # a second engine would keep the garbage of the first for ever
        gc.freeze()
    if _is_of_python(gc.get_threshold()):
        gc.set_threshold(*THRESHOLD)


def exclude_loaded() -> None:
    """Exclude also what was loaded since, if the collector was tuned: the MCP SDK made one collection last 90 ms."""
    if gc.get_freeze_count():
        gc.freeze()


def _is_of_python(threshold: tuple[int, ...]) -> bool:
    """Whether these are the interpreter's default thresholds. For an interpreter newer than the list: those it had
    when the engine was imported."""
    is_listed = sys.version_info < LISTED_BEFORE
    return threshold in THRESHOLDS_OF_PYTHON or (not is_listed and threshold == THRESHOLD_AT_IMPORT)
