"""`/api/v1/workflows`: publishing definitions, for both notations, and their versions. One short function per endpoint."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from holdfast.api import present
from holdfast.api.types import (
    Diff,
    DiffQuery,
    NoQuery,
    PageQuery,
    PublishQuery,
    Release,
    ReleasePage,
    RollBack,
    Workflow,
    WorkflowPage,
)
from holdfast.errors import InvalidRequest, NotFound
from holdfast.http.table import JSON, Ask, Route

YAML: Final = "application/yaml"
HELLO: Final[dict[str, Any]] = {  # a definition that every server can execute, for the document
    "name": "hello",
    "inputs": {"name": {"type": "string", "default": "World"}},
    "steps": [{"id": "say", "tool": "echo", "args": {"value": "Hello, {{inputs.name}}!"}}],
}
_NUMBER: Final = re.compile(r"[1-9][0-9]{0,9}")
WORKFLOWS: Final = "workflows"


def definition(raw: bytes, media: str) -> Any:
    """A definition as it was sent: text keeps the places of its mistakes, whichever of the two it is."""
    text = raw.decode()
    if media == JSON and not isinstance(msgspec.json.decode(raw), dict):
        raise InvalidRequest("a definition is an object")
    return text


async def publish(ask: Ask) -> Release:
    query: PublishQuery = ask.query
    release = await ask.services.commands.publish(
        ask.tenant,
        ask.body,
        number=query.number,
        draft=query.draft,
        strict=query.strict,
        rights=ask.principal.rights,
    )
    return present.release(release, await ask.services.commands.lacks(ask.tenant, ask.body))


async def workflows(ask: Ask) -> WorkflowPage:
    query: PageQuery = ask.query
    page = await ask.services.queries.catalog.workflows(ask.tenant, cursor=query.cursor, limit=query.limit)
    sees = ask.principal.rights.sees
    seen = [present.workflow_line(one) for one in page.items if sees(one.workflow.name)]
    return WorkflowPage(seen, page.cursor)


async def workflow(ask: Ask) -> Workflow:
    return await _workflow(ask, None)


async def releases(ask: Ask) -> ReleasePage:
    query: PageQuery = ask.query
    page = await ask.services.queries.catalog.releases(
        ask.tenant, ask.path["name"], cursor=query.cursor, limit=query.limit
    )
    return ReleasePage([present.release(one) for one in page.items], page.cursor)


async def release(ask: Ask) -> Workflow:
    number = ask.path["number"]
    if not _NUMBER.fullmatch(number):
        raise NotFound(f"a version has a number from 1 on, not {number[:50]!a}")
    return await _workflow(ask, int(number))


async def _workflow(ask: Ask, number: int | None) -> Workflow:
    queries = ask.services.queries
    found, spec = await queries.catalog.definition(ask.tenant, ask.path["name"], number)
    return present.workflow(found, spec, await queries.definitions.text(ask.tenant, found.version))


async def diff(ask: Ask) -> Diff:
    query: DiffQuery = ask.query
    return present.diff(
        await ask.services.queries.catalog.diff(ask.tenant, ask.path["name"], query.from_, query.to)
    )


async def roll_back(ask: Ask) -> Release:
    wanted: RollBack = ask.body
    return present.release(await ask.services.commands.roll_back(ask.tenant, ask.path["name"], wanted.number))


ROUTES: Final = (
    Route(
        "POST",
        "/api/v1/workflows",
        "run",
        publish,
        "Publish a definition in either notation as the current version of its name.",
        WORKFLOWS,
        body=dict[str, Any],
        reads=definition,
        media=(JSON, YAML),
        example=HELLO,
        query=PublishQuery,
        answer=Release,
        errors=("invalid_spec", "invalid_inputs", "limit_exceeded", "version_conflict"),
    ),
    Route(
        "GET",
        "/api/v1/workflows",
        "read",
        workflows,
        "List workflows by name, each with its current version.",
        WORKFLOWS,
        query=PageQuery,
        answer=WorkflowPage,
        errors=("invalid_inputs",),
    ),
    Route(
        "GET",
        "/api/v1/workflows/{name}",
        "read",
        workflow,
        "Get the current version of a workflow, with its definition.",
        WORKFLOWS,
        query=NoQuery,
        answer=Workflow,
    ),
    Route(
        "GET",
        "/api/v1/workflows/{name}/versions",
        "read",
        releases,
        "List the versions of a workflow, including drafts, newest first.",
        WORKFLOWS,
        query=PageQuery,
        answer=ReleasePage,
        errors=("invalid_inputs",),
    ),
    Route(
        "GET",
        "/api/v1/workflows/{name}/versions/{number}",
        "read",
        release,
        "Get one version, with its definition.",
        WORKFLOWS,
        query=NoQuery,
        answer=Workflow,
    ),
    Route(
        "GET",
        "/api/v1/workflows/{name}/diff",
        "read",
        diff,
        "Compare two versions.",
        WORKFLOWS,
        query=DiffQuery,
        answer=Diff,
        errors=("limit_exceeded",),
    ),
    Route(
        "POST",
        "/api/v1/workflows/{name}/rollback",
        "run",
        roll_back,
        "Make an earlier version the current one again. Runs keep the version they started with.",
        WORKFLOWS,
        query=NoQuery,
        body=RollBack,
        answer=Release,
        errors=("invalid_inputs",),
    ),
)
