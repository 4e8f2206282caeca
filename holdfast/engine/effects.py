"""Effects: what the commit of a row must do besides storing it: reserve and release idempotency keys, record waits.

`fold` returns them for every way in which a step can end, so no way can forget one. Replay drops them, because the commits of
stored rows have already applied them.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.engine.state import Key, Wait


class KeyWork(NamedTuple):
    """A step requests its idempotency key, or has ended and releases it."""

    path: str
    key: Key
    asks: bool
    # The step's output, which later steps with this key receive; None if it did not succeed.
    output: msgspec.Raw | None = None


class WaitWork(NamedTuple):
    """A step opens a wait, or the wait is closed with an outcome."""

    path: str
    attempt: int
    wait: Wait
    outcome: str | None = None  # None: it is opened


Effect = KeyWork | WaitWork
Effects = list[Effect]
