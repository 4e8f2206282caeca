"""Returns freed memory of large values to the system. For the process of a server; glibc only."""

from __future__ import annotations

import contextlib
import ctypes
import sys
from typing import Final

# Blocks over this size are mapped separately, and are returned to the system when they are freed. By default glibc raises this size with the
# largest block it has seen: after the first 24 MiB body such blocks share one heap, and small objects between them keep it.
OWN_PAGES_BYTES: Final = 1024 * 1024
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
FREE_BYTES_MAX: Final = 4 * 1024 * 1024  # at the end of the heap
ARENAS_MAX: Final = (
    2  # each thread would have a heap of its own, with its own free blocks, although only one runs at a time
)


def return_freed_memory() -> bool:
    """Return freed memory to the system from now on. Return whether this C library can."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL(None)
        libc.gnu_get_libc_version  # noqa: B018  # raises where it is not glibc
        tuned = {
            M_MMAP_THRESHOLD: OWN_PAGES_BYTES,
            M_TRIM_THRESHOLD: FREE_BYTES_MAX,
            M_ARENA_MAX: ARENAS_MAX,
        }
        return sum(int(libc.mallopt(what, value)) for what, value in tuned.items()) == len(tuned)
    return False
