"""Records when no engine was running: occurrences of that time are missed, not merely late.

    process down          from the last heartbeat to the opening of the next process
    machine suspended,    from the last reading of the clocks to the one at which the wall clock had moved
    clock set forward     further than the monotonic clock

The heartbeat is part of the commits that fire schedules, so it costs no commit of its own: an occurrence that was due before the last
of them is decided, and of one that was due after it no engine has reported anything. An outage is stored before anything is
decided by it, and kept until no stored occurrence is before its end: a second crash must not turn missed occurrences into late
ones. Knows no schedule.
"""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.runtime.clock import Clock
from holdfast.runtime.committer import Committer
from holdfast.schedule.records import Outage
from holdfast.store.base import Store
from holdfast.store.batch import Batch
from holdfast.values import Millis

OUTAGES_MAX: Final = 100  # older ones become one

_DECODER: Final = msgspec.json.Decoder(list[tuple[int, int]])


class Outages:
    def __init__(self, store: Store, committer: Committer, clock: Clock) -> None:
        self._store, self._committer, self._clock = store, committer, clock
        self.stretches: tuple[Outage, ...] = ()
        self._slept_from: Millis | None = None  # the start of an outage that is not stored yet

    async def open(self) -> None:
        """Find out since when no engine was awake. Where nothing was due meanwhile, nothing is written."""
        awake_at, text = await self._store.awake()
        self.stretches = tuple(Outage(*pair) for pair in _DECODER.decode(text or "[]"))
        self.cut()
        self.slept_from(awake_at or Millis(0))
        await self.store()

    def slept_from(self, awake_at: Millis) -> None:
        """No engine was awake from then until now. `store` makes it count."""
        self._slept_from = awake_at if self._slept_from is None else min(self._slept_from, awake_at)

    async def store(self) -> None:
        """Make a new outage durable, if any occurrence was due in it."""
        if self._slept_from is None:
            return
        asleep_from, now, soonest = self._slept_from, self._clock.now(), await self._store.next_due()
        self.passed(soonest)
        if soonest is not None and soonest <= now and asleep_from < now:
            stretches = _merged((*self.stretches, Outage(asleep_from, now)))
            batch = Batch()
            batch.awake_at = now
            batch.outages = msgspec.json.encode(
                [(one.asleep_from, one.woke_at) for one in stretches]
            ).decode()
            await self._committer.commit(batch)
            self.stretches = stretches
        self._slept_from = None

    def passed(self, soonest: Millis | None) -> None:
        """The next occurrence of all schedules is due at `soonest`: outages that ended before it concern none."""
        if self.stretches:
            self.stretches = tuple(
                one for one in self.stretches if soonest is not None and soonest < one.woke_at
            )

    def cut(self) -> None:
        """The wall clock was set back: an outage cannot end in the future."""
        now = self._clock.now()
        cut = (Outage(one.asleep_from, min(one.woke_at, now)) for one in self.stretches)
        self.stretches = tuple(one for one in cut if one.asleep_from < one.woke_at)


def _merged(stretches: tuple[Outage, ...]) -> tuple[Outage, ...]:
    if len(stretches) <= OUTAGES_MAX:
        return stretches
    first, second, *rest = stretches
    return (Outage(min(first.asleep_from, second.asleep_from), max(first.woke_at, second.woke_at)), *rest)
