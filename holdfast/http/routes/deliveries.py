"""`/api/v1/dead-letters` and the deliveries of a run: list, redeliver, discard.

Knows how deliveries are shown, not how they are sent.
"""

from __future__ import annotations

from typing import Final

from holdfast.api import present
from holdfast.api.types import CallbackDelivery, CallbackDeliveryPage, NoQuery, PageQuery
from holdfast.http.table import Ask, Route

TAG: Final = "dead letters"


async def listed(ask: Ask) -> CallbackDeliveryPage:
    query: PageQuery = ask.query
    page = await ask.services.queries.dead_letters(ask.tenant, cursor=query.cursor, limit=query.limit)
    return CallbackDeliveryPage([present.callback_delivery(one) for one in page.items], page.cursor)


async def of_run(ask: Ask) -> CallbackDeliveryPage:
    found = await ask.services.queries.callback_deliveries(ask.tenant, ask.path["id"])
    return CallbackDeliveryPage([present.callback_delivery(one) for one in found], None)


async def replay(ask: Ask) -> CallbackDelivery:
    return present.callback_delivery(await ask.services.engine.outbox.replay(ask.tenant, ask.path["id"]))


async def discard(ask: Ask) -> CallbackDelivery:
    return present.callback_delivery(await ask.services.engine.outbox.discard(ask.tenant, ask.path["id"]))


ROUTES: Final = (
    Route(
        "GET",
        "/api/v1/runs/{id}/callbacks",
        "read",
        of_run,
        "List the final callbacks of a run and their delivery state. Empty until the run has finished.",
        "runs",
        query=NoQuery,
        answer=CallbackDeliveryPage,
    ),
    Route(
        "GET",
        "/api/v1/dead-letters",
        "read",
        listed,
        "List final callbacks that could not be delivered, oldest first.",
        TAG,
        query=PageQuery,
        answer=CallbackDeliveryPage,
        errors=("invalid_inputs",),
    ),
    Route(
        "POST",
        "/api/v1/dead-letters/{id}/replay",
        "admin",
        replay,
        "Send a dead letter again, with the same webhook-id and all retries.",
        TAG,
        query=NoQuery,
        answer=CallbackDelivery,
        errors=("refused",),
    ),
    Route(
        "DELETE",
        "/api/v1/dead-letters/{id}",
        "admin",
        discard,
        "Discard a dead letter. It is no longer listed, and is deleted with its run.",
        TAG,
        query=NoQuery,
        answer=CallbackDelivery,
        errors=("refused",),
    ),
)
