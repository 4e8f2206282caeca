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
        self._unstored: tuple[Outage, ...] = ()
        self._is_open = False

    async def open(self) -> None:
        """Find out since when no engine was awake. Where nothing was due meanwhile, nothing is written.

        Asked again after a failure, it reads nothing: what was stored since then is a heartbeat of this process.
        """
        if not self._is_open:
            awake_at, text = await self._store.awake()
            self.stretches = tuple(Outage(*pair) for pair in _DECODER.decode(text or "[]"))
            self.cut()
            self.slept_from(awake_at or Millis(0))
            self._is_open = True
        await self.store()

    def slept_from(self, awake_at: Millis) -> None:
        """No engine was awake from then until now. `store` makes it count."""
        if awake_at < (now := self._clock.now()):
            self._unstored = _merged((*self._unstored, Outage(awake_at, now)))

    @property
    def is_unstored(self) -> bool:
        """Whether an outage was noticed that `store` is still to make durable."""
        return bool(self._unstored)

    def heartbeat(self, now: Millis) -> Millis:
        """The time to which a commit may say that an engine was awake: if the process is killed before an outage is stored, the
        next one has to find it."""
        return min([now, *(Millis(one.asleep_from) for one in self._unstored)])

    async def store(self) -> None:
        """Make new outages durable, if any occurrence was due in them. They end when they were noticed, however late they are stored."""
        if not self._unstored:
            return
        soonest = await self._store.next_due()
        self._passed(soonest)
        new, self._unstored = self._unstored, ()
        found = tuple(one for one in new if soonest is not None and soonest <= one.woke_at)
        if not found:
            return
        stretches = _merged((*self.stretches, *found))
        batch = Batch()
        batch.awake_at = self._clock.now()
        batch.outages = msgspec.json.encode([(one.asleep_from, one.woke_at) for one in stretches]).decode()
        try:
            await self._committer.commit(batch)
        except BaseException:
            self._unstored = (*new, *self._unstored)
            raise
        self.stretches = _cut(stretches, self._clock.now())

    async def forget(self) -> None:
        """Drop outages that ended before the first undecided occurrence. One that is due and waits for a run to end is undecided."""
        if self.stretches:
            self._passed(await self._store.next_due())

    def _passed(self, soonest: Millis | None) -> None:
        self.stretches = tuple(one for one in self.stretches if soonest is not None and soonest < one.woke_at)

    def cut(self) -> None:
        """The wall clock was set back: an outage cannot end in the future."""
        now = self._clock.now()
        self.stretches, self._unstored = _cut(self.stretches, now), _cut(self._unstored, now)


def _cut(stretches: tuple[Outage, ...], now: Millis) -> tuple[Outage, ...]:
    cut = (Outage(one.asleep_from, min(one.woke_at, now)) for one in stretches)
    return tuple(one for one in cut if one.asleep_from < one.woke_at)


def _merged(stretches: tuple[Outage, ...]) -> tuple[Outage, ...]:
    """Outages that overlap are one, so that it has one latest occurrence. They do after the clock was set back; the oldest ones are
    joined, too, where there are very many."""
    merged: list[Outage] = []
    for one in sorted(stretches, key=lambda outage: outage.asleep_from):
        if merged and one.asleep_from < merged[-1].woke_at:
            merged[-1] = _joined(merged[-1], one)
        else:
            merged.append(one)
    surplus = len(merged) - OUTAGES_MAX
    if surplus > 0:
        merged[: surplus + 1] = [_joined(merged[0], merged[surplus])]
    return tuple(merged)


def _joined(first: Outage, last: Outage) -> Outage:
    return Outage(first.asleep_from, max(first.woke_at, last.woke_at))
