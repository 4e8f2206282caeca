"""The server as one ASGI app: limits, guard, decoding, errors and idempotency around every route.

    head ──► guard ──► route ──► who asks ──► body ──► types ──► do ──► JSON
               │         │           │          │        │       │
               └─────────┴───────────┴──────────┴────────┴───────┴──► an error has one shape and one table of statuses

Knows what a Route is, but not what any route does. Uses no framework middleware: each layer would cost as much as a start.
"""

from __future__ import annotations

import asyncio
import copy
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from holdfast import limits
from holdfast.api.principal import Principal
from holdfast.api.services import Services
from holdfast.api.types import ID_CHARS_MAX, KEY_PATTERN
from holdfast.api.visible import check_path, seen
from holdfast.errors import (
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    Unauthorised,
    UnsupportedMediaType,
)
from holdfast.http.guard import Guard
from holdfast.http.json_body import check_depth, check_keys, read_large_members
from holdfast.http.query import reader
from holdfast.http.request import ClientGone, LargeBodies, Receive, Request, Scope, sent_twice
from holdfast.http.responses import Send, encoded, failure, send_answer
from holdfast.http.router import Router
from holdfast.http.routes.ops import answered
from holdfast.http.table import ANY, Ask, Reply, Route, Signed, Tokens
from holdfast.http.validation import invalid, with_whole_numbers
from holdfast.http.webhooks import Webhooks
from holdfast.runtime.apart import in_turns
from holdfast.runtime.idempotency import Kept, RecentReplies, Replies
from holdfast.values import decode, sha256

# a body up to this size is parsed in a few milliseconds; 1 MiB takes up to 0.1 s
SMALL_BYTES: Final = 64 * 1024

_encode = msgspec.json.Encoder().encode


ANSWERS: Final = (Reply, Response)


class _Ready:
    """A route with everything that can be prepared before the first request."""

    __slots__ = ("decode", "query", "route")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.query = None if route.query is None else reader(route.query)
        self.decode = (
            None
            if route.body is None or route.reads or route.reads_members
            else msgspec.json.Decoder(route.body).decode
        )


class Server:
    def __init__(
        self, services: Services, guard: Guard, routes: Iterable[Route], leaving: asyncio.Event | None = None
    ) -> None:
        self.routes = tuple(routes)
        self.leaving = leaving or asyncio.Event()
        self._services, self._guard = services, guard
        self._router = Router((route, _Ready(route)) for route in self.routes)
        parts = services.engine.store, services.engine.committer, services.clock
        self._replies = {"stored": Replies(*parts), "recent": RecentReplies(*parts)}
        self._large_bodies = LargeBodies()
        kinds = services.engine.kinds
        self._webhooks = Webhooks(kinds.hooks, kinds.occurrences, services.clock, guard, self._large_bodies)

    def behind(self, guard: Guard) -> Server:
        """The same routes and stored replies behind another guard: for callers who come another way."""
        other = copy.copy(self)
        other._guard = guard
        return other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        began = time.perf_counter()
        try:
            answer = encoded(await self._answer(request))
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001  # a bug is answered too
            answer = failure(error, request)
        status = await send_answer(answer, request, scope, receive, send)
        answered(
            self._services,
            request_id=request.id,
            method=request.method,
            route=request.label,
            status=status,
            seconds=time.perf_counter() - began,
            client=request.client,
            key_id=request.key_id,
        )

    async def _answer(self, request: Request) -> Reply | Response:
        request.check_head()
        self._guard.check(request.headers)
        found = self._router.find(request.raw_path)
        if found is None and (hook := self._webhooks.find(request)) is not None:
            return await self._webhooks.answer(hook, request)
        if request.signed_twice:
            raise sent_twice(request.signed_twice)
        if found is None:
            self._guard.asker(None, request.headers, request.client)
            raise NotFound(f"there is no route {request.path[:200]!a}; /docs lists all routes")
        methods, path = found
        ready = methods.get("GET" if request.method == "HEAD" else request.method)
        if ready is None:
            _describe(request, next(iter(methods.values())).route)
            self._guard.asker(None, request.headers, request.client)
            return _other_method(request.method, methods)
        route = ready.route
        _describe(request, route)
        if route.tokens is None:
            principal = self._guard.asker(route.scope, request.headers, request.client)
        else:
            principal = await self._caller(route, route.tokens, request)
        request.key_id = principal.key_id
        try:
            admitted = None if route.admits is None else route.admits(self._ask(request, principal, path))
        except Unauthorised as error:
            raise _challenged(error, route) from None
        if isinstance(admitted, ANSWERS):
            return admitted
        _check_key(route, request.headers)
        if principal.workflows is not None:
            await check_path(self._services, principal, route.path, path)
        query = None if ready.query is None else ready.query(request.query_string)
        if route.method == "GET":
            return await _done(route, self._ask(request, principal, path, query))
        raw = None if admitted is None else await self._signed(request, _body_max(route), admitted)
        if self._large_bodies.is_small(request):  # nearly all are, and enter no context
            return await self._do(ready, request, principal, path, query, raw)
        async with self._large_bodies.place_of(request, principal.tenant):
            return await self._do(ready, request, principal, path, query, raw)

    async def _do(
        self,
        ready: _Ready,
        request: Request,
        principal: Principal,
        path: Mapping[str, str],
        query: Any,
        raw: bytes | None,
    ) -> Reply | Response:
        """Read the body, unless it was read to check its signature, and carry out the request."""
        route = ready.route
        if raw is None:
            raw = await request.body(_body_max(route))
        body = await _read(ready, raw, request.headers)
        if route.method == "POST" and route.replies != "none" and "idempotency-key" in request.headers:
            ask = self._ask(request, principal, path, query, body, raw)
            return await self._once(route, ask, request)
        if route.reads_members is not None:
            raw = b""  # as large as its members, which are all that is needed
        return await _done(route, self._ask(request, principal, path, query, body, raw))

    async def _caller(self, route: Route, tokens: Tokens, request: Request) -> Principal:
        """Who asks at a route that accepts tokens: the holder of one, or of a key, which has no dots."""
        token = request.headers.get("authorization", "").partition(" ")[2].strip()
        try:
            if token.count(".") != 2:
                return self._guard.asker(route.scope, request.headers, request.client)
            return await self._guard.holder(token, tokens, request.client)
        except Unauthorised as error:
            raise _challenged(error, route) from None

    def _ask(
        self,
        request: Request,
        principal: Principal,
        path: Mapping[str, str],
        query: Any = None,
        body: Any = None,
        raw: bytes = b"",
    ) -> Ask:
        return Ask(
            seen(self._services, principal),
            principal,
            path,
            query,
            body,
            raw,
            request.headers,
            request.client,
            self.leaving,
        )

    async def _signed(self, request: Request, bytes_max: int, signed: Signed) -> bytes:
        """Read the body of a sender that its signature proves. The signature is checked before anything else."""
        with self._large_bodies.unproved(request):
            raw = await request.body(bytes_max)
            if not signed.is_genuine(raw):
                raise signed.refusal
            return raw

    async def _once(self, route: Route, ask: Ask, request: Request) -> Reply | Response:
        """Handle a POST with an Idempotency-Key: a repetition gets the first response."""
        first = list[Reply]()  # the response to this call, if it is the first with its key

        async def do(kept: Kept) -> tuple[int, bytes]:
            made = await _done(route, msgspec.structs.replace(ask, kept=kept))
            if not isinstance(made, Reply) or not made.is_kept:
                raise _NotKept(made)
            body = _encode(made.value)
            first.append(msgspec.structs.replace(made, value=msgspec.Raw(body)))
            if route.conceals:
                body = _encode({**msgspec.json.decode(body), route.conceals: None})
            return made.status, body

        who = ask.principal.key_id.encode()  # keys belong to a caller: another caller may use the same one
        said = (who, request.raw_path, request.query_string, ask.raw)
        is_small = len(ask.raw) <= SMALL_BYTES
        digest = sha256(b"\0".join(said)) if is_small else await in_turns(lambda: sha256(b"\0".join(said)))
        key = request.headers["idempotency-key"]
        try:
            status, body = await self._replies[route.replies].once(
                ask.tenant, _scope(route, ask), key, digest, do
            )
        except _NotKept as answered:
            return answered.made
        return first[0] if first else Reply(msgspec.Raw(body), status)


def _challenged(error: Unauthorised, route: Route) -> Unauthorised:
    if route.challenge:
        error.challenge = route.challenge
    return error


class _NotKept(Exception):
    """A response that is sent and not stored."""

    def __init__(self, made: Reply | Response) -> None:
        self.made = made


def _scope(route: Route, ask: Ask) -> str:
    """The scope in which a caller's Idempotency-Key is unique. A caller that holds a URL is known by the URL alone; two
    such callers may belong to different tenants, so their keys must not conflict."""
    capability = ask.path.get("capability")
    return route.path if capability is None else f"{route.path} {sha256(capability.encode())}"


async def _done(route: Route, ask: Ask) -> Reply | Response:
    made = await route.do(ask)
    return made if isinstance(made, ANSWERS) else Reply(made, route.status)


# ----------------------------------------------------------------------------------------------------- reading


def _describe(request: Request, route: Route) -> None:
    request.label, request.fault = route.path, route.fault


def _check_key(route: Route, headers: Mapping[str, str]) -> None:
    key = headers.get("idempotency-key")
    if key is None or not route.takes_key:
        return
    if len(key) > ID_CHARS_MAX or not re.search(KEY_PATTERN, key):
        raise InvalidRequest(f"an Idempotency-Key has 1 to {ID_CHARS_MAX} visible ASCII characters")


def _body_max(route: Route) -> int:
    """Return the limit for a body; one that contains a value has room for the members around it."""
    return limits.now.body_bytes_max if route.body_max is None else route.body_max


async def _read(ready: _Ready, raw: bytes, headers: Mapping[str, str]) -> Any:
    """The body in the types of its route, without stalling the event loop."""
    if ready.route.reads_members is not None:
        _body(ready, raw, headers)
        return await _members(ready.route, raw)
    if len(raw) <= SMALL_BYTES:
        return _body(ready, raw, headers)
    return await in_turns(lambda: _body(ready, raw, headers))


def _body(ready: _Ready, raw: bytes, headers: Mapping[str, str]) -> Any:
    """Decode the body into the type of its route. Raise InvalidRequest or UnsupportedMediaType."""
    route = ready.route
    if not raw and (route.body_optional or route.body is None):
        return None if route.body is None else msgspec.convert({}, route.body)
    if route.body is None and route.reads is None:
        return None
    if not raw:
        raise InvalidRequest("a body is needed here; it is empty")
    media = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media not in route.media and ANY not in route.media:
        raise UnsupportedMediaType(f"the body is {media[:100]!a}, and must be {' or '.join(route.media)}")
    if headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedMediaType("a body is sent as it is, without a content-encoding")
    if route.reads_members is not None:
        return None  # as large a body as this may be is not read here
    check_depth(raw)
    try:
        if ready.decode is None:
            assert route.reads is not None
            return route.reads(raw, media)
        try:
            body = ready.decode(raw)
        except msgspec.ValidationError as error:
            body = with_whole_numbers(decode(raw), route.body, error)
        check_keys(raw)
        return body
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(error, "body", route.body) from None


async def _members(route: Route, raw: bytes) -> Any:
    assert route.reads_members is not None
    try:
        return route.reads_members(await read_large_members(raw))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(error, "body", route.body) from None


# --------------------------------------------------------------------------------------------------- answering


def _other_method(method: str, methods: Mapping[str, object]) -> Reply | Response:
    allowed = sorted({*methods, "OPTIONS"} | ({"HEAD"} if "GET" in methods else set()))
    if method == "OPTIONS":
        return Response(status_code=204, headers={"allow": ", ".join(allowed)})
    raise MethodNotAllowed(method, allowed)
