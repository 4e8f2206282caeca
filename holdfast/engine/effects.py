"""What the commit of a row must do beside storing it: reserve and release idempotency keys, record waits.

Returned by fold, whatever ended the step, so that no way of ending can forget it. Replay drops effects: the commits of
those rows have carried them out.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from holdfast.engine.state import Key, Wait


class KeyWork(NamedTuple):
    """A step asks for its idempotency key, or has ended and releases it."""

    path: str
    key: Key
    asks: bool
    output: msgspec.Raw | None = (
        None  # what the step returned, the answer for later steps; None if it did not succeed
    )


class WaitWork(NamedTuple):
    """A step opens a wait, or the wait is closed with an outcome."""

    path: str
    attempt: int
    wait: Wait
    outcome: str | None = None  # None: it is opened


Effect = KeyWork | WaitWork
Effects = list[Effect]
