"""`holdfast nodes`: the engine processes of a server."""

from __future__ import annotations

from typing import Final

from holdfast.api.types import Node, NodePage
from holdfast.cli.file import finished
from holdfast.cli.options import settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import instant, ms_of, table
from holdfast.cli.server import Server, server_of
from holdfast.cli.streams import UNWRITTEN, give, say, show
from holdfast.config import Settings
from holdfast.store.open import is_server

HEADS: Final = ("NAME", "EPOCH", "ADDRESS", "VERSION", "SINCE", "RUNS", "STATE")
LEASED: Final = ("LEASE", "CLOCK")  # where several nodes share a database


def command(given: Given) -> int:
    return finished(_list(settings_of(given), as_json=given.has("--json")))


async def _list(settings: Settings, *, as_json: bool) -> int:
    server = server_of(settings)
    page = NodePage([], None) if server is None else await _asked(server)
    if as_json:
        return 0 if give(page) else UNWRITTEN
    if not page.items:
        what = (
            "no server was found for this database on this machine"
            if is_server(settings.db)
            else "no server owns this file"
        )
        say(f"{what}; start one with holdfast up, or name one with --server")
        return 0
    is_shared = any(one.lease_secs is not None for one in page.items)
    rows = [(*_cells(one), *(_leased(one) if is_shared else ())) for one in page.items]
    return 0 if show(table((*HEADS, *LEASED) if is_shared else HEADS, rows)) else UNWRITTEN


async def _asked(server: Server) -> NodePage:
    connection = server.connection()
    try:
        return await connection.ask("GET", "/api/v1/nodes", NodePage)
    finally:
        await connection.close()


def _cells(node: Node) -> tuple[str, ...]:
    since = instant(ms_of(node.since)) if node.since else ""
    return (
        node.name,
        str(node.epoch),
        node.address or "",
        node.version or node.release,
        since,
        str(node.runs),
        node.state,
    )


def _leased(node: Node) -> tuple[str, str]:
    lease = "" if node.lease_secs is None else f"{node.lease_secs:.0f} s"
    return lease, f"{node.clock_ahead_secs:+.1f} s"
