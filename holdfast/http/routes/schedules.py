"""`/api/v1/schedules`: what starts runs, when it fires next, and why it did or did not fire.

Knows how schedules are shown, not when they are due or how a fire starts a run.
"""

from __future__ import annotations

from typing import Any, Final

from holdfast import limits
from holdfast.api import present_schedules as present
from holdfast.api.types import (
    Backfill,
    BackfillSchedule,
    FiredSchedule,
    FireSchedule,
    LedgerPage,
    LedgerQuery,
    NextFires,
    NextQuery,
    NoQuery,
    PageQuery,
    PauseSchedule,
    Redeliver,
    ResumeSchedule,
    Schedule,
    SchedulePage,
    WhyQuery,
    WhyReport,
)
from holdfast.errors import InvalidRequest
from holdfast.http.json_body import read_json
from holdfast.http.routes.workflows import YAML
from holdfast.http.table import JSON, Ask, Reply, Route

TAG: Final = "schedules"


async def listed(ask: Ask) -> SchedulePage:
    query: PageQuery = ask.query
    page = await ask.services.schedules.schedules(
        ask.tenant, cursor=query.cursor, limit=limits.page(query.limit)
    )
    sees = ask.principal.rights.sees
    seen = [present.schedule_line(view) for view in page.items if sees(view.spec.workflow)]
    return SchedulePage(seen, page.cursor)


async def shown(ask: Ask) -> Schedule:
    return present.schedule(await ask.services.schedules.schedule(ask.tenant, ask.path["id"]))


async def ledger(ask: Ask) -> LedgerPage:
    query: LedgerQuery = ask.query
    page = await ask.services.schedules.ledger(
        ask.tenant,
        ask.path["id"],
        cursor=query.cursor,
        limit=limits.page(query.limit),
        unfired=query.unfired,
    )
    return LedgerPage([present.ledger_line(row) for row in page.items], page.cursor)


async def next_fires(ask: Ask) -> NextFires:
    return present.next_fires(
        *await ask.services.schedules.next_fires(ask.tenant, ask.path["id"], ask.query.limit)
    )


async def why(ask: Ask) -> WhyReport:
    query: WhyQuery = ask.query
    return present.why(await ask.services.why.why(ask.tenant, ask.path["id"], query.when, query.limit))


def _definition(raw: bytes, media: str) -> str:
    """A schedule as it was sent: as text, so that mistakes are reported with their line."""
    if media == JSON and not isinstance(read_json(raw), dict):
        raise InvalidRequest("a schedule is an object")
    return raw.decode()


async def put(ask: Ask) -> Reply:
    view, is_new = await ask.services.schedule_commands.put_text(ask.tenant, ask.path["id"], ask.body)
    return Reply(present.schedule(view), 201 if is_new else 200)


async def delete(ask: Ask) -> Schedule:
    return present.schedule(await ask.services.schedule_commands.delete(ask.tenant, ask.path["id"]))


async def fire(ask: Ask) -> Reply:
    body: FireSchedule = ask.body
    fired = await ask.services.schedule_commands.fire(ask.tenant, ask.path["id"], body.payload)
    return Reply(present.fired(fired), 202)


async def redeliver(ask: Ask) -> Reply:
    body: Redeliver = ask.body
    commands = ask.services.schedule_commands
    return Reply(present.fired(await commands.redeliver(ask.tenant, ask.path["id"], body.delivery)), 202)


async def pause(ask: Ask) -> Schedule:
    return present.schedule(await ask.services.schedule_commands.pause(ask.tenant, ask.path["id"]))


async def resume(ask: Ask) -> Schedule:
    body: ResumeSchedule = ask.body
    commands = ask.services.schedule_commands
    return present.schedule(await commands.resume(ask.tenant, ask.path["id"], missed=body.missed))


async def backfill(ask: Ask) -> Reply:
    body: BackfillSchedule = ask.body
    found = await ask.services.schedule_commands.backfill(
        ask.tenant, ask.path["id"], body.from_, body.to, max_per_sec=body.max_per_sec, preview=body.preview
    )
    return Reply(present.backfill(found, preview=body.preview), 200 if body.preview else 202)


ROUTES: Final = (
    Route(
        "GET",
        "/api/v1/schedules",
        "read",
        listed,
        "List schedules by id.",
        TAG,
        query=PageQuery,
        answer=SchedulePage,
    ),
    Route(
        "GET",
        "/api/v1/schedules/{id}",
        "read",
        shown,
        "Get a schedule with its definition, state and next fire.",
        TAG,
        query=NoQuery,
        answer=Schedule,
        errors=("not_found",),
    ),
    Route(
        "GET",
        "/api/v1/schedules/{id}/next",
        "read",
        next_fires,
        "List the next occurrences of a schedule, in its time zone and in UTC, with what clock changes do to them.",
        TAG,
        query=NextQuery,
        answer=NextFires,
        errors=("not_found",),
    ),
    Route(
        "GET",
        "/api/v1/schedules/{id}/ledger",
        "read",
        ledger,
        "List the occurrences of a schedule with their outcomes, newest first. Also works for a deleted schedule.",
        TAG,
        query=LedgerQuery,
        answer=LedgerPage,
        errors=("not_found", "invalid_inputs"),
    ),
    Route(
        "GET",
        "/api/v1/schedules/{id}/why",
        "read",
        why,
        "Explain why a schedule did or did not fire: the last occurrences, or those of a time or day, past or future.",
        TAG,
        query=WhyQuery,
        answer=WhyReport,
        errors=("not_found", "invalid_inputs"),
    ),
    Route(
        "PUT",
        "/api/v1/schedules/{id}",
        "admin",
        put,
        "Create or replace a schedule. An edit keeps how far the schedule has come.",
        TAG,
        body=dict[str, Any],
        reads=_definition,
        media=(JSON, YAML),
        query=NoQuery,
        answer=Schedule,
        also={201: Schedule},
        errors=("invalid_spec", "managed_by_file", "limit_exceeded"),
    ),
    Route(
        "DELETE",
        "/api/v1/schedules/{id}",
        "admin",
        delete,
        "Delete a schedule, and return it as it was. Its runs go on, and its ledger stays.",
        TAG,
        query=NoQuery,
        answer=Schedule,
        errors=("not_found", "managed_by_file"),
    ),
    Route(
        "POST",
        "/api/v1/schedules/{id}/fire",
        "run",
        fire,
        "Fire a schedule now, in addition to its scheduled times. The response contains the outcome.",
        TAG,
        body=FireSchedule,
        body_optional=True,
        query=NoQuery,
        answer=FiredSchedule,
        status=202,
        errors=("not_found", "max_concurrent_exceeded", "invalid_inputs", "unresolved_template"),
    ),
    Route(
        "POST",
        "/api/v1/schedules/{id}/redeliver",
        "run",
        redeliver,
        "Start a run for a delivery of the ledger once more, with the payload that was kept.",
        TAG,
        body=Redeliver,
        query=NoQuery,
        answer=FiredSchedule,
        status=202,
        errors=("not_found", "max_concurrent_exceeded", "invalid_inputs", "unresolved_template"),
    ),
    Route(
        "POST",
        "/api/v1/schedules/{id}/pause",
        "run",
        pause,
        "Pause a schedule. Occurrences that become due before it is resumed do not fire, and are recorded in its ledger.",
        TAG,
        body=PauseSchedule,
        body_optional=True,
        query=NoQuery,
        answer=Schedule,
        errors=("not_found",),
    ),
    Route(
        "POST",
        "/api/v1/schedules/{id}/resume",
        "run",
        resume,
        "Resume a paused schedule; with `missed`, the occurrences of the pause are caught up.",
        TAG,
        body=ResumeSchedule,
        body_optional=True,
        query=NoQuery,
        answer=Schedule,
        errors=("not_found",),
    ),
    Route(
        "POST",
        "/api/v1/schedules/{id}/backfill",
        "run",
        backfill,
        "Start the occurrences of a period that have no run; with `preview`, only list them.",
        TAG,
        body=BackfillSchedule,
        query=NoQuery,
        answer=Backfill,
        status=202,
        also={200: Backfill},
        errors=("not_found", "invalid_inputs", "limit_exceeded"),
    ),
)
