"""Tools that an author of workflows learns from: how to write one, and the tools that its steps may call here.

Knows what an agent is shown of the registry. Starts a configured server only when its tools are asked for by name.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from holdfast.errors import InvalidInputs, InvalidRequest
from holdfast.mcp import lessons
from holdfast.mcp.answers import Result
from holdfast.mcp.lookup import fitting_page
from holdfast.mcp.table import Arguments, Asked
from holdfast.nearest import did_you_mean

DESCRIPTION_CHARS: Final = 1_000  # of a tool of somebody else's server
AFTER: Final = "after:"


class Help(Arguments, frozen=True, kw_only=True):
    topic: Annotated[
        str, msgspec.Meta(description="workflow, schedule, or the name of an example; the answer lists them.")
    ] = lessons.WORKFLOW


async def help_(asked: Asked) -> Result:
    topic, known = asked.arguments.topic, lessons.topics()
    if topic not in known:
        near = did_you_mean(topic, known) or f"there are {', '.join(known)}"
        raise InvalidInputs(f"there is no topic {topic[:100]!a} ({near})")
    return Result({"topic": topic, "text": lessons.text_of(topic), "topics": known})


class ToolsList(Arguments, frozen=True, kw_only=True):
    query: Annotated[str, msgspec.Meta(description="Text in the name or the description.")] = ""
    server: (
        Annotated[
            str, msgspec.Meta(description="The tools of this MCP server; without it, those that are here.")
        ]
        | None
    ) = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50


async def tools_list(asked: Asked) -> Result:
    wanted: ToolsList = asked.arguments
    cursor = asked.page_cursor or AFTER
    if not cursor.startswith(AFTER):
        raise InvalidRequest("this cursor is not one of an earlier answer; send it as it came")
    after, text = cursor.removeprefix(AFTER), wanted.query.casefold()
    every = await (_here(asked) if wanted.server is None else _of_server(asked, wanted.server))
    found = sorted(
        (
            one
            for one in every
            if asked.rights.allows(one["name"])
            and one["name"] > after
            and text in f"{one['name']}\n{one.get('description', '')}".casefold()
        ),
        key=lambda one: str(one["name"]),
    )
    servers = sorted(asked.services.engine.registry.servers)

    async def page(limit: int) -> dict[str, Any]:
        shown = found[:limit]
        more = f"{AFTER}{shown[-1]['name']}" if len(found) > limit else None
        return {"tools": shown, "servers": servers, "cursor": more}

    return await fitting_page(asked, wanted.limit, page)


async def _here(asked: Asked) -> list[dict[str, Any]]:
    """The tools of this process, and the services of workers; where both have a name, a step says which it means."""
    tools = [
        {
            "name": tool.name,
            "call": {"tool": tool.name},
            "description": str(schema.pop("description", "")),
            "args": schema,
            **_marks(tool.annotations.destructive, tool.annotations.read_only),
        }
        for tool in asked.services.engine.registry.here()
        for schema in (tool.schema,)
    ]
    services = await asked.services.queries.services(asked.tenant)
    return tools + [
        {"name": one.name, "call": {"service": one.name}, "description": "", "workers": one.workers}
        for one in services
    ]


async def _of_server(asked: Asked, server: str) -> list[dict[str, Any]]:
    registry = asked.services.engine.registry
    if server not in registry.servers:
        near = did_you_mean(server, registry.servers) or "holdfast.toml names the servers, [servers.<name>]"
        raise InvalidInputs(f"there is no server {server[:100]!a} ({near})")
    await registry.learn(server)
    return [
        {
            "name": name,
            "call": {"tool": name},
            "description": description[:DESCRIPTION_CHARS],
            "args": schema,
            **_marks(marks.destructive, marks.read_only),
        }
        for name, description, schema in registry.learnt(server)
        if (marks := registry.annotations_of(name)) is not None
    ]


def _marks(destructive: bool | None, read_only: bool | None) -> dict[str, bool]:
    """What a plan is held against; a tool that says neither may change things, and needs no approval."""
    said = {"destructive": destructive, "read_only": read_only}
    return {name: True for name, value in said.items() if value}
