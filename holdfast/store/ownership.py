"""Which node drives a run: claims, and mail for runs that another node drives. The verbs are in base.py.

    declare ──► claim ──► load the run ──► append to it ──► release (a commit that says so, or `release` if nothing was written)
    post mail to a run of another node ──► its owner takes the mail ──► the commit of its event removes it

A database that one process locks has one node: its claims are reads, nothing is declared or renewed, and there is no mail.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

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
    """An incarnation of a node. One that is over is shown until its runs are taken over."""

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
