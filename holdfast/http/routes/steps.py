"""`/api/v1/runs/{id}/…`: the steps of a run in pages, one with all that is known of it, and all over time."""

from __future__ import annotations

from typing import Final

from holdfast import limits
from holdfast.api import present_steps
from holdfast.api.types import StepDetail, StepPage, StepsQuery, Timeline, TimelineQuery, ValuesQuery
from holdfast.http.table import Ask, Route
from holdfast.views.cursors import cursor_of, number_of

RUNS: Final = "runs"


async def steps(ask: Ask) -> StepPage:
    query: StepsQuery = ask.query
    queries, run_id = ask.services.queries, ask.path["id"]
    part = await queries.run_steps.page(
        await queries.row(ask.tenant, run_id),
        every=query.every,
        under=query.under,
        statuses=query.status,
        kinds=query.kind,
        values=query.values,
        after=0 if query.cursor is None else number_of(query.cursor),
        limit=limits.page(query.limit),
    )
    cursor = None if part.after is None else cursor_of(part.after)
    return present_steps.steps(part, await queries.step_names(ask.tenant, run_id), cursor)


async def step(ask: Ask) -> StepDetail:
    query: ValuesQuery = ask.query
    row = await ask.services.queries.row(ask.tenant, ask.path["id"])
    found = await ask.services.queries.run_steps.detail(row, ask.path["path"], query.values)
    return present_steps.detail(row.id, found)


async def timeline(ask: Ask) -> Timeline:
    query: TimelineQuery = ask.query
    queries = ask.services.queries
    row = await queries.row(ask.tenant, ask.path["id"])
    found = await queries.run_steps.timeline(row, query.under, query.buckets, ask.services.clock.now())
    return present_steps.timeline(row, *found)


ROUTES: Final = (
    Route(
        "GET",
        "/api/v1/runs/{id}/steps",
        "read",
        steps,
        "List the steps that a run has reached.",
        RUNS,
        query=StepsQuery,
        answer=StepPage,
        errors=("invalid_inputs", "limit_exceeded"),
    ),
    Route(
        "GET",
        "/api/v1/runs/{id}/steps/{path}",
        "read",
        step,
        "Get one step with its attempts, its input and output, its files and its newest log lines.",
        RUNS,
        query=ValuesQuery,
        answer=StepDetail,
        errors=("limit_exceeded",),
    ),
    Route(
        "GET",
        "/api/v1/runs/{id}/timeline",
        "read",
        timeline,
        "Show when each attempt of a run ran and when its steps waited; large fan-outs are counted over time.",
        RUNS,
        query=TimelineQuery,
        answer=Timeline,
        errors=("limit_exceeded",),
    ),
)
