"""Which node drives a run: claims, and mail for runs that another node drives.

    declare ──► claim ──► load the run ──► append to it ──► release (a commit that says so, or `release` if nothing was written)
    post mail to a run of another node ──► its owner takes the mail ──► the commit of its event removes it

A database that one process locks has one node: its claims are reads, nothing is declared or renewed, and there is no mail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Literal, NamedTuple, Protocol

from holdfast.store.records import RunRow
from holdfast.values import Millis, RunNo

# Runs whose owner did not release them and is gone, or released runs whose time has come or that have mail.
Claimable = Literal["left", "due"]


class Claim(NamedTuple):
    """A run that this node may drive from now on: no other node appends to it.

    `epoch` is that of the run from its next row on. A run that its owner did not release must begin with a row that adopts it,
    because attempts may be open.
    """

    no: RunNo
    epoch: int
    was_released: bool
    isolated: str = ""  # the attempt that was under crash isolation on the node that is gone: run id and path


class NewMail(NamedTuple):
    """An event for a run that another node drives. The same `dedup` of a run is stored once."""

    no: RunNo
    dedup: str
    at: Millis
    body: str


# Kinds of things that nodes keep in memory and that another node may change. The jobs of pull workers: fetched or reported on
# at another node, or offered by it.
Kept = Literal["jobs", "keys", "needs", "offers", "schedules", "workers"]


class Look(NamedTuple):
    """What a node finds when it looks for what other nodes have left."""

    has_expired: bool  # leases of other nodes
    has_mail: bool
    has_left: bool  # runs whose owner is gone
    has_due: bool  # released runs
    has_due_schedules: bool
    has_due_deliveries: bool
    has_offers: bool  # jobs that pull workers may fetch


class NodeRow(NamedTuple):
    """An incarnation of a node. One that has ended is shown until its runs have been adopted."""

    name: str
    epoch: int
    is_over: bool
    began_at: Millis
    lease_left_ms: int
    release: str
    address: str
    pid: int
    clock_ahead_ms: int
    runs: int


class MailRow(NamedTuple):
    """The same as its owner reads it."""

    no: RunNo
    dedup: str
    body: str


class Ownership(Protocol):
    """Mail is posted by a commit (Batch.posted_mail), and a commit releases a run by its RunChange."""

    # How often another node may have left runs or posted mail, in seconds; None if there is no other node.
    look_every: float | None

    # Whether the lease of this node surely holds: asked before each start of an attempt. None if there is no other node.
    @property
    def trusts_lease(self) -> Callable[[], bool] | None: ...

    def clock_offset_ms(self) -> int:
        """How far the clock that the nodes share is ahead of the monotonic clock of this machine."""

    async def nodes(self) -> list[NodeRow]:
        """The nodes that share the database, this one included; none if there is no other."""

    async def serve_at(self, address: str) -> None:
        """Let other nodes show where this one is served."""

    async def take_duty(self, what: str, seconds: float) -> bool:
        """Whether this node does a work now that one node does for all. No other gets it for so long, unless this one dies."""

    def on_hint(self, call: Callable[[], None]) -> None:
        """Call this when another node has posted mail, as a hint: it may come late or never."""

    def on_change(self, what: Kept, call: Callable[[], None]) -> None:
        """Call this when a poll finds that a node, this one or another, has changed things that are kept in memory."""

    async def look(self, now: Millis) -> Look:
        """Look for what other nodes have left. Raise NodeIsOver if the lease of this one has expired and another has noticed."""

    async def declare(self) -> None:
        """End the incarnations of nodes whose lease has expired: their runs can be claimed from now on."""

    async def keep_lease(self) -> None:
        """Prolong the lease of this node if a third of it has passed, as renew() does."""

    async def renew(self) -> None:
        """Prolong the lease of this node. Raise NodeIsOver if it has expired and another node has noticed."""

    async def claim(
        self, which: Claimable, now: Millis, limit: int, without: Collection[RunNo] = ...
    ) -> list[Claim]:
        """Claim up to `limit` runs, except some. A run of which nothing is committed yet may be claimed by this node again."""

    async def claim_run(self, no: RunNo, seen: RunRow | None = ...) -> Claim | None:
        """Claim one run, or None if another node drives it. `seen` is its row, if the caller has just read it."""

    async def release(self, claims: Sequence[Claim]) -> None:
        """Give claimed runs back of which nothing was committed."""

    async def take_mail(self, limit: int) -> list[MailRow]:
        """The oldest mail of runs that no other node drives. It stays until a commit removes it (Batch.read_mail)."""
