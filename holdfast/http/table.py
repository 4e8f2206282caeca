"""The type of a route: one entry of the table that the server, the OpenAPI document and the tests read.

Knows no route and no rule. A module of routes exports `ROUTES: tuple[Route, ...]`; server.py adds limits, keys, errors and
idempotency to all of them, so the function of a route contains only its own logic.
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
    from holdfast.api.principal import Principal
    from holdfast.api.services import Services
    from holdfast.http.json_body import Members
    from holdfast.runtime.idempotency import Kept

T = TypeVar("T")
Method = Literal["GET", "POST", "DELETE", "PUT", "PATCH"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)

JSON: Final = "application/json"
ANY: Final = "*/*"


class Ask(msgspec.Struct, frozen=True, gc=False):
    """One request as its route receives it: the caller, and the decoded path, query and body."""

    services: Services
    principal: Principal
    path: Mapping[str, str]  # what stands in the braces of the route's path
    query: Any  # the route's `query` type
    body: Any  # the route's `body` type, or what its `reads` gave
    raw: bytes
    headers: Mapping[str, str]  # names in lower case
    client: str  # the address that asks, without its port
    leaving: asyncio.Event  # set when the server stops: waiting and streaming requests end
    kept: Kept | None = None  # stores the reply to a request with an Idempotency-Key

    @property
    def tenant(self) -> str:
        return self.principal.tenant

    def keeps(self, answer: Callable[[T], Any]) -> Callable[[T], Kept] | None:
        """Return how a command makes the response that it stores in its own commit."""
        kept = self.kept
        return None if kept is None else lambda found: kept.says(200, msgspec.json.encode(answer(found)))

    async def unless_leaving(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Return the result of a wait; None if the server stops first."""
        task = asyncio.ensure_future(work)
        leaving = asyncio.ensure_future(self.leaving.wait())
        try:
            await asyncio.wait([task, leaving], return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            leaving.cancel()
            task.cancel()


Tokens = Callable[[str], Awaitable["Principal"]]  # the holder of a token; raises Unauthorised or Forbidden


class Signed(msgspec.Struct, frozen=True, gc=False):
    """A signed body: how the signature is checked over its raw bytes, and the error if it is invalid."""

    is_genuine: Callable[[bytes], bool]
    refusal: HoldfastError


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A response with another status or with headers."""

    value: Any
    status: int = 200
    headers: Mapping[str, str] = {}
    # for a request under a key; False: nothing was done, so the same request may be repeated
    is_kept: bool = True


class Route(msgspec.Struct, frozen=True, gc=False):
    """The value that `do` returns is encoded as JSON; a Reply adds status or headers; a Starlette Response is sent as it is.

    A body or query type with `forbid_unknown_fields` refuses what it does not know. `reads` reads the body where it is
    not plain JSON of the type `body` (which is then only documentation). `also` names other answers by their status,
    besides the errors that any route may give.
    """

    method: Method
    path: str  # with names in braces: /runs/{id}
    scope: Scope | None  # None: open without a key
    do: Callable[[Ask], Awaitable[Any]]
    summary: str
    tag: str
    body: Any = None
    query: Any = None
    answer: Any = None
    status: int = 200
    also: Mapping[int, Any] = {}
    errors: tuple[str, ...] = ()  # error codes of this route, besides those of all routes
    body_max: int | None = None  # bytes of its body; None: what limits.body_bytes_max says
    media: tuple[str, ...] = (JSON,)  # accepted media types of the body; ANY accepts all
    answer_media: str = JSON
    reads: Callable[[bytes, str], Any] | None = None  # body and its media type
    takes_any_text: bool = False  # a body that is not JSON is examined, whatever it says, and not refused
    # Instead of `reads`, for an object that may be large: built from the texts of its members, so that no large value is decoded.
    reads_members: Callable[[Members], Any] | None = None
    # Of a route without a scope: asked before the body is read, with an Ask that has none yet. Raises, or gives the
    # answer, if the sender may not send one; gives Signed if that depends on the body; None if the body is accepted.
    admits: Callable[[Ask], Reply | Response | Signed | None] | None = None
    body_optional: bool = False  # an empty body stands for the type's defaults
    # A POST with the same Idempotency-Key is handled once. "recent": only this process knows the responses, for requests that
    # must not write, such as polls and heartbeats, or whose response contains secrets. "none": the header has no meaning in the protocol of this route.
    replies: Literal["stored", "recent", "none"] = "stored"
    conceals: str = ""  # a member of the first response that must not be stored: it is null in repeated ones
    # The JSON of an error, if it differs from /api/v1.
    fault: Callable[[HoldfastError], Any] | None = None
    is_listed: bool = True  # in the OpenAPI document
    example: Any = None  # a body that works on any server, for the document
    # The holder of a token that is no key of ours; None: only keys are accepted. `challenge` is sent with a 401.
    tokens: Tokens | None = None
    challenge: str = ""

    @property
    def takes_key(self) -> bool:
        """Whether the documentation of this route mentions the header Idempotency-Key."""
        return self.method == "POST" and self.fault is None
