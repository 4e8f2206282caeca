"""What a route is: one line of the table that the server, the OpenAPI document and the tests read.

Knows no route and no rule. A file of routes exports `ROUTES: tuple[Route, ...]`; server.py puts limits, keys, errors and
idempotency around all of them, so a route's function only says what it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, get_args

import msgspec
from starlette.responses import Response

from holdfast.api.types import Scope
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.api.services import Services
    from holdfast.http.auth import Principal
    from holdfast.http.json_body import Members
    from holdfast.runtime.replies import Kept

T = TypeVar("T")
Method = Literal["GET", "POST", "DELETE", "PUT", "PATCH"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

JSON: Final = "application/json"
ANY: Final = "*/*"


class Ask(msgspec.Struct, frozen=True, gc=False):
    """One request, as a route sees it: whose it is, and what it says, already read into the route's types."""

    services: Services
    principal: Principal
    path: Mapping[str, str]  # what stands in the braces of the route's path
    query: Any  # the route's `query` type
    body: Any  # the route's `body` type, or what its `reads` gave
    raw: bytes
    headers: Mapping[str, str]  # names in lower case
    client: str  # the address that asks, without its port
    leaving: asyncio.Event  # set when the server stops: requests that wait or stream end now
    kept: Kept | None = None  # of a request under a key

    @property
    def tenant(self) -> str:
        return self.principal.tenant

    def keeps(self, answer: Callable[[T], Any]) -> Callable[[T], Kept] | None:
        """For a command that keeps its answer in its own commit: how that is made of what the command finds."""
        kept = self.kept
        return None if kept is None else lambda found: kept.says(200, msgspec.json.encode(answer(found)))

    async def unless_leaving(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What a wait gave; None if the server stops first."""
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self.leaving.wait())
        try:
            await asyncio.wait([task, leaving], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            leaving.cancel()
            task.cancel()


class Signed(msgspec.Struct, frozen=True, gc=False):
    """A body that counts if it is signed: the secret, the signature as it was sent, and the refusal if it does not fit."""

    secret: str
    given: str
    refusal: HoldfastError


class Reply(msgspec.Struct, frozen=True, gc=False):
    """An answer that says more than its value: another status, or headers."""

    value: Any
    status: int = 200
    headers: Mapping[str, str] = {}


class Route(msgspec.Struct, frozen=True, gc=False):
    """What is returned by `do` is JSON; a Reply says more; a Starlette Response passes through as it is.

    A body or query type with `forbid_unknown_fields` refuses what it does not know. `reads` reads the body where it is
    not plain JSON of the type `body` (which is then only documentation). `also` names other answers by their status,
    besides the errors that any route may give.
    """

    method: Method
    path: str  # with names in braces: /runs/{id}
    scope: Scope | None  # None: open to all
    do: Callable[[Ask], Awaitable[Any]]
    summary: str
    tag: str
    body: Any = None
    query: Any = None
    answer: Any = None
    status: int = 200
    also: Mapping[int, Any] = {}
    errors: tuple[str, ...] = ()  # codes that this route gives besides those of all
    body_max: int | None = None  # bytes of its body; None: what limits.body_bytes_max says
    media: tuple[str, ...] = (JSON,)  # of the body; ANY takes whatever it says it is
    answer_media: str = JSON
    reads: Callable[[bytes, str], Any] | None = None  # body and its media type
    # Instead, of an object that may be large: made of the texts of its members, so that no large value is decoded.
    reads_members: Callable[[Members], Any] | None = None
    # Of a route without a scope: asked before the body is read, with an Ask that has none yet. Raises, or gives the
    # answer, if the sender may not send one; gives Signed if that depends on the body; None if the body is accepted.
    admits: Callable[[Ask], Reply | Response | Signed | None] | None = None
    body_optional: bool = False  # an empty body stands for the type's defaults
    replays: bool = (
        True  # a POST under the same Idempotency-Key is answered once; else the route sees to that itself
    )
    fault: Callable[[HoldfastError], Any] | None = (
        None  # the JSON of an error, where it is not that of /api/v1
    )
    is_listed: bool = True  # in the OpenAPI document

    @property
    def takes_key(self) -> bool:
        """Whether the documentation of this route mentions the header Idempotency-Key."""
        return self.method == "POST" and self.fault is None
