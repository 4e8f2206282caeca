"""Which runs a node takes up, on SQLite. The lock of the file makes this process the only node, so a claim writes nothing: the
commit of the first row says whose the run is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from holdfast.errors import NodeIsOver
from holdfast.store.jobs import SharedJobs
from holdfast.store.ownership import Claim, Claimable, Kept, Look, MailRow, NodeRow
from holdfast.store.records import RunRow
from holdfast.store.sqlite.asking import Asking
from holdfast.values import Millis, RunNo


class OwnershipReads(Asking):
    look_every: float | None = None  # no other process can claim a run, or post mail
    trusts_lease: Callable[[], bool] | None = None
    shared_jobs: SharedJobs | None = None
    _lane: str | None = None  # the isolated attempt of the process that had the file before

    def clock_offset_ms(self) -> int:
        return 0  # there is no clock but this machine's

    async def nodes(self) -> list[NodeRow]:
        return []

    async def serve_at(self, address: str) -> None:
        """The lock of the file says it (lock.py)."""

    async def take_duty(self, what: str, seconds: float) -> bool:
        return True

    def on_hint(self, call: Callable[[], None]) -> None:
        """There is no other node that could post mail."""

    def on_change(self, what: Kept, call: Callable[[], None]) -> None:
        """There is no other node that could change anything."""

    async def look(self, now: Millis) -> Look:
        await self.renew()
        return Look(*([True] * len(Look._fields)))  # each is sooner read than asked for

    async def declare(self) -> None:
        """Opening the file has ended every other incarnation."""

    async def keep_lease(self) -> None:
        await self.renew()

    async def renew(self) -> None:
        self._end_look()  # what another process wrote this very moment counts
        if self._ask("read_epoch").get != self.epoch:
            raise NodeIsOver("another process has taken this file over; this one can write nothing more")

    async def claim(
        self, which: Claimable, now: Millis, limit: int, without: Collection[RunNo] = ()
    ) -> list[Claim]:
        if limit <= 0:
            return []
        most = limit + len(without)  # sooner read than excluded by the statement
        if which == "left":
            found = self._ask("left_runs", (self.epoch, most))
            claims = [Claim(no, epoch + 1, False, self._lane or "") for no, epoch in found]
        else:
            claims = [Claim(no, epoch + 1, True) for no, epoch in self._ask("due_runs", (now, most))]
        return [claim for claim in claims if claim.no not in without][:limit]

    async def claim_run(self, no: RunNo, seen: RunRow | None = None) -> Claim | None:
        """A run that does not exist is claimed too: loading it finds that out."""
        if seen is None:
            owner, epoch = self._ask("owner_of", (no,)).get or (None, 0)
        else:
            owner, epoch = seen.owner, seen.epoch
        was_released = owner is None
        return Claim(no, epoch + 1, was_released, "" if was_released else self._lane or "")

    async def release(self, claims: Sequence[Claim]) -> None:
        """Nothing was written for them."""

    async def take_mail(self, limit: int) -> list[MailRow]:
        return [MailRow(*row) for row in self._ask("mail", (limit,))]

    async def sleeping(self, limit: int) -> list[RunNo]:
        """Released runs that wake at some time, the soonest first."""
        return [no for (no,) in self._ask("sleeping_runs", (limit,))]

    async def next_wake(self, after: int = 0) -> Millis | None:
        at: Millis | None = self._ask("next_wake", (after,)).get
        return at

    async def latest_at(self, rows: int) -> Millis | None:
        at: Millis | None = self._ask("latest_at", (rows,)).get
        return at

    async def services_in_need(self, tenant: str, limit: int) -> list[tuple[str, int, Millis]]:
        """Services that steps of released runs wait for: how many steps, and since when the oldest does."""
        return list(self._ask("services_in_need", (tenant, limit)))

    async def in_need(self, after: RunNo, limit: int) -> list[tuple[RunNo, str, str]]:
        return list(self._ask("runs_in_need", (after, limit)))

    async def interruptible(self, after: RunNo, limit: int) -> list[RunNo]:
        return [no for (no,) in self._ask("interruptible_runs", (after, limit))]

    async def owned_runs(self, after: RunNo, limit: int) -> list[tuple[RunNo, int]]:
        """Open runs with an owner, and the epoch of the engine that owns them."""
        return list(self._ask("owned_runs", (after, limit)))

    async def resting_runs(self, after: RunNo, limit: int) -> list[tuple[RunNo, bool]]:
        """Open runs without an owner or a wake time, and whether each waits for something with a name."""
        return [(no, bool(waits)) for no, waits in self._ask("resting_runs", (after, limit))]

    async def fatal_runs(self) -> str | None:
        return self._ask("read_deaths").get  # type: ignore[no-any-return]
