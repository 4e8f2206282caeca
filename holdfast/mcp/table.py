"""The type of a tool: one entry of the table that the server, the documentation and the tests read.

Knows no tool. The arguments of a tool are a record; its JSON Schema is what clients see, and arguments that do not fit are
refused with their pointer before the tool is called.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Annotated, Any, Final

import msgspec

from holdfast.api.services import Services
from holdfast.api.types import Scope
from holdfast.api.visible import seen
from holdfast.config import Mcp
from holdfast.errors import InvalidRequest, NotFound, Problem
from holdfast.mcp.answers import CURSOR_PREFIX, Result, page_of, shown
from holdfast.mcp.calls import Calls
from holdfast.mcp.offers import Catalogue
from holdfast.mcp.sees import sees_of
from holdfast.mcp.talk import Talk, invalid_params
from holdfast.nearest import did_you_mean
from holdfast.runtime.idempotency import Kept
from holdfast.runtime.rights import Rights
from holdfast.views.names import nearest
from holdfast.views.run_view import RunView

TOKENS_MAX: Final = 25_000
_PLACE = re.compile(r" - at `\$(.*)`$")

MaxTokens = Annotated[
    int, msgspec.Meta(ge=100, le=TOKENS_MAX, description="The largest answer, in tokens of four bytes.")
]
Cursor = Annotated[
    str, msgspec.Meta(max_length=1_000, description="The cursor of an earlier answer, for its next part.")
]
RunId = Annotated[str, msgspec.Meta(description="The run: the id that starting it returned.")]


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What every tool accepts."""

    max_tokens: MaxTokens | None = None
    cursor: Cursor | None = None


class Hints(msgspec.Struct, frozen=True):
    """What a client may assume of a tool, in the words of MCP."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False

    def data(self) -> dict[str, bool]:
        return {
            "readOnlyHint": self.read_only,
            "destructiveHint": self.destructive,
            "idempotentHint": self.idempotent,
            "openWorldHint": self.open_world,
        }


READS: Final = Hints(read_only=True, idempotent=True)


class Desk(msgspec.Struct, frozen=True):
    """What the function of a tool has at hand."""

    services: Services
    settings: Mcp
    calls: Calls
    catalogue: Catalogue


class Asked(msgspec.Struct, frozen=True):
    """One call of a tool. `responses` and `state` belong to questions that an earlier answer to the same call asked; `kept` stores
    the answer to a call with an idempotency key."""

    desk: Desk
    talk: Talk
    arguments: Any
    responses: dict[str, Any] | None = None
    state: str | None = None
    kept: Kept | None = None

    @property
    def services(self) -> Services:
        """The services as the caller may use them."""
        return seen(self.desk.services, self.talk.caller.principal)

    @property
    def tenant(self) -> str:
        return self.talk.tenant

    @property
    def rights(self) -> Rights:
        return self.desk.calls.rights(self.talk)

    def keeps(self, answer: Callable[[Any], Result]) -> Callable[[Any], Kept] | None:
        """For a command that stores the answer to this call in its own commit."""
        kept = self.kept
        if kept is None:
            return None
        return lambda done: kept.says(200, msgspec.json.encode(self.shown(answer(done))))

    def shown(self, result: Result) -> dict[str, Any]:
        """A result as the wire has it, or the part of it that the caller wants."""
        cursor = self.arguments.cursor
        is_cut = cursor is not None and cursor.startswith(CURSOR_PREFIX)
        most = self.arguments.max_tokens or self.desk.settings.max_tokens
        return shown(result, most, cursor if is_cut else None, page=self.page_cursor)

    @property
    def page_cursor(self) -> str | None:
        """The cursor of the page of a list that is asked for, or of which a part is."""
        return page_of(self.arguments.cursor)

    async def finished(self, talk: Talk, view: RunView) -> dict[str, Any]:
        """The result of a run, no larger than the caller wants."""
        return await self.desk.calls.finished(talk, view, self.arguments.max_tokens)

    async def published(self, workflow: str) -> str:
        """The name of a published workflow that the caller sees; raises the error of the protocol, with the nearest name."""
        sees, catalogue = sees_of(self.talk), self.desk.catalogue
        try:
            name = (await self.services.queries.catalog.workflow(self.tenant, workflow)).workflow.name
            if catalogue.sees(name) and sees(name):
                return name
        except NotFound:
            pass
        near = nearest(workflow, await catalogue.workflows(self.tenant, sees))
        raise invalid_params(f"there is no workflow {workflow[:100]!a}{near}", error=NotFound.code)


@cache
def schema_of(arguments: type[Arguments]) -> dict[str, Any]:
    """The JSON Schema of the arguments of a tool, without references. Every call needs it, and making it takes a millisecond."""
    _, components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    found = dict(components[arguments.__name__])
    found.pop("title", None)
    found.pop("description", None)
    return found


class Tool(msgspec.Struct, frozen=True):
    """`do` returns a Result, or the whole result of the call as the wire has it."""

    name: str
    scope: Scope
    title: str
    description: str
    arguments: type[Arguments]
    hints: Hints
    do: Callable[[Asked], Awaitable[Result | dict[str, Any]]]
    # Doing it again counts again: a second call with the same idempotency key gets the first answer. Those that start runs have
    # the key with the run.
    is_once: bool = False
    # What an argument that does not fit is called, where a caller expects certain words.
    refusal: Callable[[dict[str, Any]], str | None] = lambda given: None

    @property
    def schema(self) -> dict[str, Any]:
        return schema_of(self.arguments)

    def data(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": self.schema,
            "annotations": {"title": self.title, **self.hints.data()},
        }

    def read(self, given: dict[str, Any]) -> Arguments:
        """The arguments of a call; raises InvalidRequest."""
        if (said := self.refusal(given)) is not None:
            raise InvalidRequest(said)
        known = self.arguments.__struct_fields__
        if (strange := next((name for name in given if name not in known), None)) is not None:
            hint = did_you_mean(strange, known) or f"the arguments are {', '.join(sorted(known))}"
            message = f"{self.name} has no argument {strange[:100]!a}"
            raise InvalidRequest(
                f"{message} ({hint})", [Problem("unknown_key", message, f"/{strange[:100]}", hint=hint)]
            )
        try:
            return msgspec.convert(given, self.arguments)
        except msgspec.ValidationError as error:
            raise _invalid(str(error)) from None


def _invalid(text: str) -> InvalidRequest:
    place = _PLACE.search(text)
    message = text[: place.start()] if place else text
    parts = re.findall(r"\[?([^.\[\]]+)\]?", place[1]) if place else []
    pointer = "".join(f"/{part}" for part in parts)
    return InvalidRequest(f"{pointer or 'arguments'}: {message}", [Problem("wrong_type", message, pointer)])
