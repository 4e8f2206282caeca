"""The nodes that share a database, as lists show them."""

from __future__ import annotations

import msgspec

from holdfast.store.base import Store
from holdfast.values import Millis


class NodeView(msgspec.Struct, frozen=True):
    name: str
    epoch: int
    is_over: bool  # its lease expired, and its runs are being taken over
    began_at: Millis
    lease_secs: float
    release: str
    address: str | None
    pid: int
    clock_ahead_secs: float
    runs: int


async def nodes_of(store: Store) -> list[NodeView]:
    """Those that are alive, and those whose runs are not taken over yet; none if no other node can use the database."""
    return [
        NodeView(
            row.name,
            row.epoch,
            row.is_over,
            row.began_at,
            max(0, row.lease_left_ms) / 1000,
            row.release,
            row.address or None,
            row.pid,
            row.clock_ahead_ms / 1000,
            row.runs,
        )
        for row in await store.nodes()
        if not row.is_over or row.runs
    ]
