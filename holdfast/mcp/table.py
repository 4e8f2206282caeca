"""The type of a tool: one entry of the table that the server, the documentation and the tests read.

Knows no tool. The arguments of a tool are a record; its JSON Schema is what clients see, and arguments that do not fit are
refused with their pointer before the tool is called.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import msgspec

from holdfast.api.services import Services
from holdfast.api.types import Scope
from holdfast.config import Mcp
from holdfast.errors import InvalidRequest, Problem
from holdfast.mcp.answers import Result
from holdfast.mcp.calls import Calls
from holdfast.mcp.offers import Catalogue
from holdfast.mcp.talk import Talk
from holdfast.runtime.rights import Rights

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
    """One call of a tool. `responses` and `state` belong to questions that an earlier answer to the same call asked."""

    desk: Desk
    talk: Talk
    arguments: Any
    responses: dict[str, Any] | None = None
    state: str | None = None

    @property
    def services(self) -> Services:
        return self.desk.services

    @property
    def tenant(self) -> str:
        return self.talk.tenant

    @property
    def rights(self) -> Rights:
        return self.desk.calls.rights(self.talk)


class Tool(msgspec.Struct, frozen=True):
    """`do` returns a Result, or the whole result of the call as the wire has it."""

    name: str
    scope: Scope
    title: str
    description: str
    arguments: type[Arguments]
    hints: Hints
    do: Callable[[Asked], Awaitable[Result | dict[str, Any]]]
    # What an argument that does not fit is called, where a caller expects certain words.
    refusal: Callable[[dict[str, Any]], str | None] = lambda given: None

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, without references."""
        _, components = msgspec.json.schema_components([self.arguments], ref_template="#/$defs/{name}")
        found = dict(components[self.arguments.__name__])
        found.pop("title", None)
        found.pop("description", None)
        return found

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
        try:
            return msgspec.convert(given, self.arguments)
        except msgspec.ValidationError as error:
            raise _misfit(str(error)) from None


def _misfit(text: str) -> InvalidRequest:
    place = _PLACE.search(text)
    message = text[: place.start()] if place else text
    parts = re.findall(r"\[?([^.\[\]]+)\]?", place[1]) if place else []
    pointer = "".join(f"/{part}" for part in parts)
    return InvalidRequest(f"{pointer or 'arguments'}: {message}", [Problem("wrong_type", message, pointer)])
