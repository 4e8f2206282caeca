"""`holdfast workers`: the services of a server, how many workers each has, and how much work waits for one."""

from __future__ import annotations

from typing import Final

from holdfast.api.types import ServiceLine
from holdfast.cli.file import finished
from holdfast.cli.options import settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import instant, ms_of, table
from holdfast.cli.safe import harmless
from holdfast.cli.server import server_of
from holdfast.cli.source import serving
from holdfast.cli.source_protocol import every_page
from holdfast.cli.streams import UNWRITTEN, give, say, show
from holdfast.config import Settings

HEADS: Final = ("SERVICE", "WORKERS", "WAITING", "OLDEST SINCE", "NO WORKER SINCE")


def command(given: Given) -> int:
    return finished(_list(settings_of(given), as_json=given.has("--json")))


async def _list(settings: Settings, *, as_json: bool) -> int:
    server = server_of(settings)
    found: list[ServiceLine] = []
    if server is not None:
        async with serving(server) as source:
            found = await every_page(source.client.services)
    if as_json:
        return 0 if give({"items": found}) else UNWRITTEN
    if server is None:
        say(
            "no server owns this file, so no worker serves it; start one with holdfast up, or name one with --server"
        )
        return 0
    if not found:
        say("no worker is registered, and no step waits for one; holdfast worker MODULE starts a worker")
        return 0
    if not show(table(HEADS, [_cells(one) for one in found])):
        return UNWRITTEN
    for one in found:
        if one.start_one is not None and one.waiting:
            say(harmless(f"{one.name}: {one.start_one}"))
    return 0


def _cells(one: ServiceLine) -> tuple[str, ...]:
    times = [instant(ms_of(at)) if at else "" for at in (one.oldest_waiting_at, one.no_worker_since)]
    return one.name, str(one.workers), str(one.waiting), *times
