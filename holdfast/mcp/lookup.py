"""The tool that finds workflows: those that are published, and files of the folders of workflows and skills that cannot be used.

A file with a mistake is an entry with its problems, so that an agent that wrote it learns why there is no such tool. A text is
searched in the name, in the description, and in the search hint of the skill.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Any, Final

import msgspec

from holdfast.errors import InvalidRequest, Problem
from holdfast.mcp.answers import Result, budget_of
from holdfast.mcp.sees import sees_of
from holdfast.mcp.table import Arguments, Asked
from holdfast.ops.folders import FolderFile

PAGE: Final = 100
PROBLEMS_SHOWN: Final = 5
AFTER, BROKEN = (
    "after:",
    "broken:",
)  # what a cursor follows: a published workflow, or a file that cannot be used


class Lookup(Arguments, frozen=True, kw_only=True):
    skill: Annotated[str, msgspec.Meta(description="Only workflows of this skill.")] | None = None
    name: Annotated[str, msgspec.Meta(description="Only the workflow of this name.")] | None = None
    query: (
        Annotated[str, msgspec.Meta(description="Text in the name, the description or the search hint.")]
        | None
    ) = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20


async def lookup(asked: Asked) -> Result:
    cursor = asked.page_cursor or AFTER
    if not cursor.startswith((AFTER, BROKEN)):
        raise InvalidRequest("this cursor is not one of an earlier answer; send it as it came")

    async def page(limit: int) -> dict[str, Any]:
        found, last = list[dict[str, Any]](), ""
        async for place, entry in _entries(asked, cursor):
            if len(found) == limit:
                return {"workflows": found, "cursor": last}
            found.append(entry)
            last = place
        return {"workflows": found, "cursor": None}

    return await fitting_page(asked, asked.arguments.limit, page)


async def _entries(asked: Asked, cursor: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Every workflow that fits, each with the cursor that follows it."""
    broken = _broken(asked)
    if cursor.startswith(AFTER):
        after: str | None = cursor.removeprefix(AFTER)
        while after is not None:
            offers, after = await asked.services.offers.page(asked.tenant, after, PAGE)
            for one in offers:
                if _fits(asked, one.name, one.description):
                    entry = _entry(one.name, one.description, one.schema, f"workflow://{one.name}")
                    tool = asked.desk.catalogue.tool_name(one.name)
                    yield f"{AFTER}{one.name}", {**entry, "tool": tool, **_said(broken.get(one.name))}
    for name, file in sorted(broken.items()):
        if file.name is None and f"{BROKEN}{name}" > cursor and _fits(asked, name, ""):
            yield f"{BROKEN}{name}", {**_entry(name, "", None, file.file), "tool": None, **_said(file)}


def _broken(asked: Asked) -> dict[str, FolderFile]:
    """The files that cannot be used, by the names of their workflows."""
    folders = [one for one in asked.services.folders.values() if one.tenant == asked.tenant]
    return {file.name or file.called: file for folder in folders for file in folder.broken}


def _fits(asked: Asked, workflow: str, description: str) -> bool:
    wanted: Lookup = asked.arguments
    skill, _, name = workflow.rpartition("::")
    hints = [one.hint_of(workflow) for one in asked.services.folders.values() if one.tenant == asked.tenant]
    return (
        asked.desk.catalogue.sees(workflow)
        and sees_of(asked.talk)(workflow)
        and wanted.skill in (None, skill)
        and wanted.name in (None, name, workflow)
        and (wanted.query or "").casefold() in "\n".join((workflow, description, *hints)).casefold()
    )


def _entry(workflow: str, description: str, inputs: Any, path: str) -> dict[str, Any]:
    skill, _, name = workflow.rpartition("::")
    return {"name": name, "skill": skill or None, "description": description, "inputs": inputs, "path": path}


def _said(file: FolderFile | None) -> dict[str, Any]:
    if file is None:
        return {}
    shown: tuple[Problem, ...] = file.problems[:PROBLEMS_SHOWN]
    return {"problems": msgspec.to_builtins(shown), "file": file.file}


async def fitting_page(asked: Asked, limit: int, page: Callable[[int], Awaitable[dict[str, Any]]]) -> Result:
    """A page that is no larger than the caller wants; at least one item of it."""
    budget = budget_of(asked.arguments.max_tokens or asked.desk.settings.max_tokens)
    while True:
        found = await page(limit)
        if limit == 1 or len(msgspec.json.encode(found)) <= budget:
            return Result(found)
        limit = max(1, limit // 2)
