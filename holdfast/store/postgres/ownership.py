"""Which node drives a run, on PostgreSQL.

A node has one lease, in its row of `node`. A claim is a mark in the row of a run, with which no other living node claims it; the
first commit of the claimer makes the run its own and removes the mark. Whether a lease has expired is decided by the clock of
the database alone. A node itself trusts its lease for less long, by its monotonic clock, from the moment at which it sent the
last renewal that was answered.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from holdfast.errors import NodeIsOver
from holdfast.store.ownership import Claim, Claimable, Kept, Look, MailRow, NodeRow
from holdfast.store.postgres.asking import Asking, rows, tuples, values
from holdfast.store.postgres.node_clock import NodeClock
from holdfast.store.records import RunRow
from holdfast.values import Millis, RunNo

LEASE_MS: Final = 15_000
RENEW_SECONDS: Final = 5.0
TRUSTED_SECONDS: Final = 13.0  # of the lease: what is left allows for a slow answer
LOOK_SECONDS: Final = 1.0

TAKEN_OVER: Final = (
    "another node has taken over the runs of this one: it has the same name, or the lease of this one expired; "
    "this one can write nothing more"
)


class OwnershipReads(Asking):
    epoch: int
    lease_ms: int
    look_every: float | None = LOOK_SECONDS
    _renewed: float = 0.0
    _trusted_until: float = 0.0

    def __init__(self) -> None:
        super().__init__()
        self._watchers: dict[str, list[Callable[[], None]]] = {}
        self.clock = NodeClock()
        self._counts: set[str] = set()  # each with its name, as of the last look

    sleeping = values("sleeping")
    services_in_need = tuples("services_in_need")
    in_need = tuples("in_need")
    interruptible = values("interruptible")
    owned_runs = tuples("owned_runs")
    resting_runs = tuples("resting_runs")
    nodes = rows("nodes", NodeRow)

    async def next_wake(self, after: int = 0) -> Millis | None:
        at: Millis | None = await self._value("next_wake", after)
        return at

    async def declare(self) -> None:
        await self._ask("declare")

    def trusts_lease(self) -> bool:
        """May this node start anything? Not once its lease may have expired, whatever the database says later."""
        return time.monotonic() < self._trusted_until

    def on_change(self, what: Kept, call: Callable[[], None]) -> None:
        self._watchers.setdefault(what, []).append(call)

    async def look(self, now: Millis) -> Look:
        found = await self._first("look", self.epoch, now, *self.slots)
        if found is None or not found[0]:
            raise NodeIsOver(TAKEN_OVER)
        self._compare(found[-1] or ())
        return Look(*found[1:-1])

    def _compare(self, counts: Sequence[str]) -> None:
        """Report what was changed since the last look."""
        changed = set(counts) - self._counts
        self._counts = set(counts)
        for what in sorted(each.partition(" ")[0] for each in changed):
            self._report(what)

    def _report(self, what: str) -> None:
        for call in self._watchers.get(what, ()):
            call()

    @property
    def _renew_seconds(self) -> float:
        return self.lease_ms / LEASE_MS * RENEW_SECONDS

    async def keep_lease(self) -> None:
        if time.monotonic() - self._renewed >= self._renew_seconds:
            await self.renew()

    async def renew(self) -> None:
        """Prolong the lease. A connection that does not answer soon is broken off: the next one may."""
        sent = time.monotonic()
        asked = self.epoch, self.lease_ms, self.clock.wall_ahead_ms
        found = await self._answer("renew", asked, RENEW_SECONDS)
        if not found:
            raise NodeIsOver(TAKEN_OVER)
        self._lease_is_good(sent)
        self.clock.measured(sent, found[0][0])

    def clock_offset_ms(self) -> int:
        return self.clock.offset_ms

    async def serve_at(self, address: str) -> None:
        await self._ask("set_address", self.epoch, address)

    async def take_duty(self, what: str, seconds: float) -> bool:
        return bool(await self._ask("take_duty", what, self.epoch, int(1000 * seconds)))

    def _lease_is_good(self, sent: float) -> None:
        self._renewed = sent
        self._trusted_until = sent + self.lease_ms / LEASE_MS * TRUSTED_SECONDS

    async def claim(
        self, which: Claimable, now: Millis, limit: int, without: Collection[RunNo] = ()
    ) -> list[Claim]:
        if limit <= 0:
            return []
        asked: tuple[Any, ...] = (self.epoch, limit, list(without))
        found = await (
            self._ask("claim_left", *asked) if which == "left" else self._ask("claim_due", *asked, now)
        )
        found = sorted(found, key=lambda row: row[-1])
        return [Claim(no, epoch + 1, was_released, lane) for no, epoch, was_released, lane, _ in found]

    async def claim_run(self, no: RunNo, seen: RunRow | None = None) -> Claim | None:
        """A run that does not exist is claimed too: loading it finds that out."""
        row = await self._first("claim_run", self.epoch, no)
        if row is None:
            return None if await self._value("has_run", no) else Claim(no, 1, was_released=True)
        no, epoch, was_released, lane = row
        return Claim(no, epoch + 1, was_released, lane)

    async def release(self, claims: Sequence[Claim]) -> None:
        if claims:
            await self._ask("release_claims", self.epoch, [claim.no for claim in claims])

    async def take_mail(self, limit: int) -> list[MailRow]:
        return [MailRow(*row) for row in await self._ask("mail", self.epoch, limit)]

    async def fatal_runs(self) -> str | None:
        found: bytes | None = await self._value("meta", "deaths")
        return None if found is None else found.decode()
