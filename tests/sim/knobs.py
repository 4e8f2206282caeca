"""Limits of the product made small, so that what is rare in real life happens in a short simulation."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from holdfast import limits
from holdfast.deliveries import outbox
from holdfast.engine import codec as rows
from holdfast.engine import draft, plain
from holdfast.runtime import ownership as owners
from holdfast.runtime import resident_run, timers

Knobs = tuple[tuple[Any, str, tuple[int, ...]], ...]

SMALL: Final[Knobs] = (
    (draft, "DECISIONS_MAX", (2, 3, 4, 6, 12)),
    (rows, "INLINE_BYTES_MAX", (60, 400)),
    (rows, "SNAPSHOT_PART_BYTES_MAX", (40, 300)),
    (resident_run, "SNAPSHOT_BYTES", (200, 1500)),
    (resident_run, "EVICT_MS", (50, 1000)),
)
SMALL_FOR_WAITS: Final[Knobs] = (
    *SMALL,
    (timers, "WOKEN_AT_ONCE", (1, 2)),
    (owners, "ADOPT_BATCH", (1, 2)),
    (limits, "final_callbacks_max", (1, 2)),
    (outbox, "SENDING_TO_ONE_MAX", (1,)),
)


@contextmanager
def small_limits(rng: random.Random, knobs: Knobs = SMALL) -> Iterator[dict[str, int]]:
    """Each limit is made small in some seeds and left as it is in others."""
    chosen = [
        (module, name, rng.choice(values))
        for module, name, values in knobs
        if rng.random() < 0.4 and (module is limits or hasattr(module, name))
    ]
    # a plain row has no larger values than any other row has inline
    chosen += [(plain, "PLAIN_BYTES_MAX", value) for _, name, value in chosen if name == "INLINE_BYTES_MAX"]
    set_ones = {name: value for module, name, value in chosen if module is limits}
    constants = [(module, name, value) for module, name, value in chosen if module is not limits]
    former = [(module, name, getattr(module, name)) for module, name, _ in constants]
    former.append((limits, "now", limits.now))
    try:
        limits.now = msgspec.structs.replace(limits.now, **set_ones)
        for module, name, value in constants:
            setattr(module, name, value)
        yield {name: value for _, name, value in chosen}
    finally:
        for module, name, value in former:
            setattr(module, name, value)
