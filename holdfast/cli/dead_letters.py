"""`holdfast dead-letters`: list, replay and discard, on the server that owns the database or in a file without an owner."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final, Literal
from urllib.parse import quote

from holdfast.api import present
from holdfast.api.types import CallbackDelivery, CallbackDeliveryPage
from holdfast.cli.file import acting, finished, reading
from holdfast.cli.options import load_tools, settings_of
from holdfast.cli.parser import Given
from holdfast.cli.render import instant, ms_of, shortened, table
from holdfast.cli.server import Server, server_of
from holdfast.cli.source_protocol import PAGE
from holdfast.cli.streams import UNWRITTEN, give, say, show
from holdfast.config import Settings
from holdfast.runtime.plans import Plans
from holdfast.sdk.connection import Connection
from holdfast.values import DEFAULT_TENANT
from holdfast.views.runs import Queries

API: Final = "/api/v1/dead-letters"
HEADS: Final = ("ID", "TO", "TRIES", "DEAD SINCE", "WHY")
CELL_CHARS: Final = 60

Act = Literal["replay", "discard"]


def list_command(given: Given) -> int:
    return finished(_list(settings_of(given), given))


def replay_command(given: Given) -> int:
    return finished(_act(settings_of(given), given, "replay"))


def discard_command(given: Given) -> int:
    return finished(_act(settings_of(given), given, "discard"))


async def _list(settings: Settings, given: Given) -> int:
    found = await _all(settings)
    if given.has("--json"):
        return 0 if give({"items": found}) else UNWRITTEN
    if not found:
        say("there are no dead letters")
        return 0
    return 0 if show(table(HEADS, [_cells(one) for one in found])) else UNWRITTEN


def _cells(one: CallbackDelivery) -> tuple[str, ...]:
    since = instant(ms_of(one.done_at)) if one.done_at else ""
    return (
        one.id,
        shortened(one.url, CELL_CHARS),
        str(one.tries),
        since,
        shortened(one.last_error, CELL_CHARS),
    )


async def _all(settings: Settings) -> list[CallbackDelivery]:
    server = server_of(settings)
    if server is None:
        async with reading(settings) as store:  # while another process may own the file
            return await _all_of(Queries(store, Plans(store, ())))
    found: list[CallbackDelivery] = []
    cursor: str | None = None
    async with _connected(server) as connection:
        while True:
            page = await connection.ask(
                "GET", API, CallbackDeliveryPage, query={"cursor": cursor, "limit": PAGE}
            )
            found += page.items
            if (cursor := page.cursor) is None:
                return found


async def _all_of(queries: Queries) -> list[CallbackDelivery]:
    found: list[CallbackDelivery] = []
    cursor: str | None = None
    while True:
        page = await queries.dead_letters(DEFAULT_TENANT, cursor=cursor, limit=PAGE)
        found += map(present.callback_delivery, page.items)
        if (cursor := page.cursor) is None:
            return found


async def _act(settings: Settings, given: Given, act: Act) -> int:
    delivery_id, server = given.argument or "", server_of(settings)
    if server is None:
        delivery = await _act_on_file(settings, delivery_id, act)
    else:
        path = f"{API}/{quote(delivery_id, safe='')}"
        async with _connected(server) as connection:
            if act == "replay":
                delivery = await connection.ask("POST", f"{path}/replay", CallbackDelivery)
            else:
                delivery = await connection.ask("DELETE", path, CallbackDelivery)
    if given.has("--json"):
        return 0 if give(delivery) else UNWRITTEN
    say(_said(delivery))
    return 0


async def _act_on_file(settings: Settings, delivery_id: str, act: Act) -> CallbackDelivery:
    """Send a replayed dead letter from this process, with a single attempt."""
    async with acting(settings, load_tools(settings), may_create=False) as engine:
        if act == "discard":
            return present.callback_delivery(await engine.outbox.discard(DEFAULT_TENANT, delivery_id))
        await engine.outbox.replay(DEFAULT_TENANT, delivery_id)
        await engine.outbox.rests()
        now = await engine.store.callback_delivery(DEFAULT_TENANT, delivery_id)
        assert now is not None
        return present.callback_delivery(now)


def _said(delivery: CallbackDelivery) -> str:
    match delivery.status:
        case "discarded":
            return f"{delivery.id} is discarded"
        case "delivered":
            return f"{delivery.id} is delivered"
        case "dead":
            return f"{delivery.id} is dead again: {delivery.last_error}"
        case "waiting":
            why = f"; the first attempt failed: {delivery.last_error}" if delivery.tries else ""
            return f"{delivery.id} is pending again{why}"


@contextlib.asynccontextmanager
async def _connected(server: Server) -> AsyncIterator[Connection]:
    connection = server.connection()
    try:
        yield connection
    finally:
        await connection.close()
