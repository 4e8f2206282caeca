"""Tuning Python's garbage collector for many runs in memory. It concerns the whole process, so an engine must be asked for it.

With a thousand runs in memory the collector would examine all of them again and again.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

# What interpreters begin with: up to 3.12, 3.13, 3.14, and builds without the global lock.
THRESHOLDS_OF_PYTHON: Final = frozenset({(700, 10, 10), (2_000, 10, 10), (2_000, 10, 0), (10_000, 10, 10)})
LISTED_BEFORE: Final = (3, 15)
THRESHOLD_AT_IMPORT: Final = gc.get_threshold()
THRESHOLD: Final = (50_000, 20, 20)


def tune() -> None:
    """Exclude what is loaded now from collections, and collect less often. Thresholds that the user chose are left."""
    gc.freeze()
    if _is_of_python(gc.get_threshold()):
        gc.set_threshold(*THRESHOLD)


def _is_of_python(threshold: tuple[int, ...]) -> bool:
    """Are these the thresholds that the interpreter begins with? Of one that is newer than the list, those that it had
    when the engine was imported."""
    is_listed = sys.version_info < LISTED_BEFORE
    return threshold in THRESHOLDS_OF_PYTHON or (not is_listed and threshold == THRESHOLD_AT_IMPORT)
