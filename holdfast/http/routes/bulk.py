"""`/api/v1/runs/bulk`: cancel or rerun many runs at once, a part at a time, with a preview.

A run that the action is not for is left alone and says why; the others are not held up by it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from holdfast.api.types import BulkFilter, BulkItem, BulkPage, BulkRuns, NoQuery, millis_of
from holdfast.errors import HoldfastError, InvalidInputs, NotFound, RunIsOpen, RunIsOver, Unavailable
from holdfast.http.table import Ask, Route
from holdfast.runtime.rerun import Again
from holdfast.values import TERMINAL, RunId
from holdfast.views.runs import RunRow

AT_ONCE_MAX: Final = 50  # runs that are asked together, so that they share commits


async def bulk(ask: Ask) -> BulkPage:
    wanted: BulkRuns = ask.body
    if (mistake := wanted.filter.mistake()) is not None:
        raise InvalidInputs(mistake)
    rows, missing, cursor = await _found(ask, wanted)
    items = list(missing)
    for start in range(0, len(rows), AT_ONCE_MAX):
        part = rows[start : start + AT_ONCE_MAX]
        items += await asyncio.gather(*(_one(ask, wanted, row) for row in part))
    matched = sum(item.error is None for item in items)
    return BulkPage(wanted.action, wanted.preview, items, matched, cursor)


async def _found(ask: Ask, wanted: BulkRuns) -> tuple[list[RunRow], list[BulkItem], str | None]:
    """The runs of this part, what is said of ids that no run has, and the cursor of the next part."""
    queries, chosen = ask.services.queries, wanted.filter
    if not chosen.ids:
        return await _listed(ask, wanted, chosen)
    if wanted.cursor is not None:
        raise InvalidInputs("only a filter without `ids` has a cursor")
    rows, missing = [], []
    for run_id in dict.fromkeys(chosen.ids):
        try:
            rows.append(await queries.row(ask.tenant, run_id))
        except NotFound as error:
            missing.append(BulkItem(run_id, None, None, error.code, str(error)))
    return rows, missing, None


async def _listed(
    ask: Ask, wanted: BulkRuns, chosen: BulkFilter
) -> tuple[list[RunRow], list[BulkItem], str | None]:
    page = await ask.services.queries.runs(
        ask.tenant,
        status=chosen.status,
        workflow=chosen.workflow,
        number=chosen.number,
        label=chosen.label,
        created_from=millis_of(chosen.from_),
        created_to=millis_of(chosen.to),
        cursor=wanted.cursor,
        limit=wanted.limit,
    )
    return page.items, [], page.cursor


async def _one(ask: Ask, wanted: BulkRuns, row: RunRow) -> BulkItem:
    try:
        _check(wanted, row)
        if wanted.preview:
            return BulkItem(row.id, row.status)
        if wanted.action == "cancel":
            await ask.services.engine.runs.cancel(RunId(row.id), wanted.reason, tenant=ask.tenant)
            now = await ask.services.queries.row(ask.tenant, row.id)
            return BulkItem(row.id, now.status)
        made = await ask.services.commands.rerun(
            ask.tenant, row.id, Again((), wanted.failed), None, _request_id(ask, row), ask.principal.rights
        )
    except Unavailable:
        raise  # no run is to blame: the caller asks again
    except HoldfastError as error:
        return BulkItem(row.id, row.status, None, error.code, str(error))
    return BulkItem(row.id, row.status, made.id)


def _check(wanted: BulkRuns, row: RunRow) -> None:
    is_over = row.status in TERMINAL
    if wanted.action == "cancel" and is_over:
        raise RunIsOver(row.id, row.status)
    if wanted.action == "rerun" and not is_over:
        raise RunIsOpen(row.id, row.status)


def _request_id(ask: Ask, row: RunRow) -> str | None:
    """So that a request that was cut off can be sent again under its key without a second rerun of any run."""
    key = ask.headers.get("idempotency-key")
    return None if key is None else f"{key} {row.id}"


ROUTES: Final = (
    Route(
        "POST",
        "/api/v1/runs/bulk",
        "run",
        bulk,
        "Cancel or rerun many runs, by ids or by a filter; with preview, only report which.",
        "runs",
        query=NoQuery,
        body=BulkRuns,
        answer=BulkPage,
        errors=("invalid_inputs", "limit_exceeded"),
    ),
)
