"""Published workflows as tools, prompts and resources: which are offered to whom, under which names.

A workflow says by its labels how it is offered:

    mcp: tool | prompt | resource      a tool unless it says otherwise
    mcp.uri: notes://{topic}           of a resource; the names in braces are inputs
    mcp.task: optional | required | forbidden
    mcp.wait_secs: "0"                 how long a call waits before it becomes a task
    mcp.ask: task | call               whether questions come with the task or as the result of the call
    mcp.requires: elicitation          a capability that the client must have declared

Knows labels and names. Does not know how a run is started or shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

import msgspec

from holdfast.errors import NotFound
from holdfast.mcp.names import is_spelled, tool_name
from holdfast.mcp.talk import invalid_params
from holdfast.runtime.rights import matches
from holdfast.values import is_text
from holdfast.views.offers import Offer, Offers

PAGE: Final = 100
CURSOR_PREFIX: Final = "after:"
KINDS: Final = ("tool", "prompt", "resource")
_VARIABLE = re.compile(r"\{([A-Za-z0-9_]+)\}")

Sees = Callable[[str], bool]  # whether a caller may see the workflow of this name


class Manner(msgspec.Struct, frozen=True):
    """How a workflow is offered, by its labels."""

    kind: str = "tool"
    uri: str = ""
    task: str = "optional"
    wait_secs: float | None = None
    asks_in_call: bool = False
    requires: str = ""

    @classmethod
    def of(cls, offer: Offer) -> Manner:
        said = offer.labels
        kind, task = said.get("mcp", "tool"), said.get("mcp.task", "optional")
        wait = said.get("mcp.wait_secs", "")
        return cls(
            kind if kind in KINDS else "tool",
            said.get("mcp.uri", ""),
            task if task in ("optional", "required", "forbidden") else "optional",
            float(wait) if re.fullmatch(r"\d{1,3}(\.\d+)?", wait) else None,
            said.get("mcp.ask") == "call",
            said.get("mcp.requires", ""),
        )


class Catalogue:
    """What is published, by tenant. `taken` are the names of tools that are not workflows."""

    def __init__(self, offers: Offers, taken: Collection[str], exposed: Collection[str]) -> None:
        self._offers, self._taken, self._exposed = offers, taken, exposed
        self._names: dict[str, dict[str, str]] = {}  # tenant → spelled tool name → workflow

    def forget(self, tenant: str) -> None:
        """Something was published."""
        self._names.pop(tenant, None)

    def sees(self, name: str) -> bool:
        return matches(name, self._exposed)

    def tool_name(self, workflow: str) -> str:
        return tool_name(workflow, self._taken)

    async def page(
        self, tenant: str, cursor: str | None, sees: Sees, kind: str = "tool", *, own: int = 0
    ) -> tuple[list[Offer], str | None]:
        """The next workflows of a kind, and the cursor of the next page. The first page has room for `own` other entries."""
        after, found = _after(cursor), list[Offer]()
        room = PAGE - (own if cursor is None else 0)
        while True:
            offers, more = await self._offers.page(tenant, after, PAGE)
            for one in offers:
                if Manner.of(one).kind == kind and self.sees(one.name) and sees(one.name):
                    if len(found) == room:
                        return found, f"{CURSOR_PREFIX}{found[-1].name}"
                    found.append(one)
            if more is None:
                return found, None
            after = more

    async def named(self, tenant: str, name: str, sees: Sees) -> Offer:
        workflow = name
        if name in self._taken or is_spelled(name):
            workflow = (await self._spelled(tenant)).get(name, name)
        if not (self.sees(workflow) and sees(workflow)):
            raise NotFound(f"no workflow {name!a} is offered here")
        return await self._offers.named(tenant, workflow)

    async def names(self, tenant: str, sees: Sees) -> list[str]:
        """The tool names of all workflows, for searching."""
        return [self.tool_name(one) for one in await self.workflows(tenant, sees)]

    async def workflows(self, tenant: str, sees: Sees) -> list[str]:
        """Their own names."""
        return [one for one in await self._offers.names(tenant) if self.sees(one) and sees(one)]

    async def resource(self, tenant: str, uri: str, sees: Sees) -> tuple[Offer, dict[str, str]] | None:
        """The workflow that gives the resource at an address, and the inputs that the address names."""
        cursor: str | None = None
        while True:
            offers, cursor = await self.page(tenant, cursor, sees, "resource")
            for one in offers:
                if (inputs := variables(Manner.of(one).uri, uri)) is not None:
                    return one, inputs
            if cursor is None:
                return None

    async def _spelled(self, tenant: str) -> dict[str, str]:
        known = self._names.get(tenant)
        if known is None:
            every = await self._offers.names(tenant)
            known = {called: one for one in every if (called := self.tool_name(one)) != one}
            self._names[tenant] = known
        return known


def _after(cursor: str | None) -> str:
    """The name that the page of a cursor follows; raises the error of the protocol for one that this server did not give."""
    if cursor is None:
        return ""
    name = cursor.removeprefix(CURSOR_PREFIX)
    if name == cursor or not is_text(name):
        raise invalid_params(
            "this cursor is not one of an earlier answer; send it as it came, or list from the start"
        )
    return name


def is_template(uri: str) -> bool:
    return _VARIABLE.search(uri) is not None


def variables(template: str, uri: str) -> dict[str, str] | None:
    """The values of the names in braces, if an address fits a template: each is as short as possible, and within one segment.

    Searched from left to right without going back, since authors of workflows write templates and callers write addresses. So a
    template whose names follow each other without text between them, or that has a name twice, fits nothing."""
    first, *rest = _VARIABLE.split(template)
    names, literals = rest[::2], rest[1::2]
    if not names:
        return {} if template and uri == template else None
    if not (uri.startswith(first) and uri.endswith(literals[-1])):
        return None
    found, at, end = dict[str, str](), len(first), len(uri) - len(literals[-1])
    for name, literal in zip(names, literals[:-1], strict=False):
        after = uri.find(literal, at + 1, end) if literal else -1
        if after < 0:
            return None
        found[name], at = uri[at:after], after + len(literal)
    found[names[-1]] = uri[at:end]
    fits = len(found) == len(names) and all(_is_segment(value) for value in found.values())
    return found if fits else None


def _is_segment(value: str) -> bool:
    return value != "" and not any(mark in value for mark in "/?#")
