"""`/api/v1`: definitions as readers need them: plans of runs and workflows, versions by hash, and the JSON Schemas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from holdfast.api import present, present_plans
from holdfast.api.types import (
    NoQuery,
    NumberQuery,
    Plan,
    StatsQuery,
    WorkflowStats,
    WorkflowVersion,
    millis_of,
)
from holdfast.http.table import Ask, Route
from holdfast.views.notations import EVERY_SCHEMA

WORKFLOWS, RUNS = "workflows", "runs"


async def plan_of_run(ask: Ask) -> Plan:
    version = await ask.services.queries.version_of_run(ask.tenant, ask.path["id"])
    return await _plan(ask, version)


async def plan_of_workflow(ask: Ask) -> Plan:
    query: NumberQuery = ask.query
    release, _ = await ask.services.queries.catalog.definition(ask.tenant, ask.path["name"], query.number)
    return await _plan(ask, release.version)


async def _plan(ask: Ask, version: str) -> Plan:
    definitions, marks = ask.services.queries.definitions, ask.services.commands.planning.annotations_of
    return present_plans.plan(await definitions.outline(ask.tenant, version, marks))


async def stats(ask: Ask) -> WorkflowStats:
    query: StatsQuery = ask.query
    queries = ask.services.queries
    release, _ = await queries.catalog.definition(ask.tenant, ask.path["name"], query.number)
    found = await queries.stats.of(ask.tenant, release.name, query.number, query.last, millis_of(query.from_))
    kinds = await queries.definitions.kinds(ask.tenant, release.version)
    return present_plans.stats(release.name, query.number, found, kinds)


async def version(ask: Ask) -> WorkflowVersion:
    return present.version(await ask.services.queries.definitions.version(ask.tenant, ask.path["hash"]))


def _schema(name: str, made: Callable[[], Any]) -> Route:
    async def schema(ask: Ask) -> Any:
        return made()

    path, summary = f"/api/v1/schema/{name}", f"Get the JSON Schema of definitions: {name}."
    return Route("GET", path, "read", schema, summary, WORKFLOWS, query=NoQuery, answer=dict[str, Any])


ROUTES: Final = (
    Route(
        "GET",
        "/api/v1/runs/{id}/plan",
        "read",
        plan_of_run,
        "Show the steps of the version that a run was started with, with their lines in its text.",
        RUNS,
        query=NoQuery,
        answer=Plan,
    ),
    Route(
        "GET",
        "/api/v1/workflows/{name}/plan",
        "read",
        plan_of_workflow,
        "Show the steps of a workflow, with their lines in its text.",
        WORKFLOWS,
        query=NumberQuery,
        answer=Plan,
    ),
    Route(
        "GET",
        "/api/v1/workflows/{name}/stats",
        "read",
        stats,
        "Show how the last finished runs of a workflow went, and how long each of its steps took.",
        WORKFLOWS,
        query=StatsQuery,
        answer=WorkflowStats,
        errors=("invalid_inputs",),
    ),
    Route(
        "GET",
        "/api/v1/versions/{hash}",
        "read",
        version,
        "Get a definition by its hash, also of runs that were started with a definition of their own.",
        WORKFLOWS,
        query=NoQuery,
        answer=WorkflowVersion,
    ),
    *(_schema(name, made) for name, made in EVERY_SCHEMA.items()),
)
