"""The server as one ASGI app: around every route the same limits, guard, reading, errors and idempotency.

    head ──► guard ──► route ──► who asks ──► body ──► types ──► do ──► JSON
               │         │           │          │        │       │
               └─────────┴───────────┴──────────┴────────┴───────┴──► an error has one shape and one table of statuses

Knows what a Route is and nothing that any of them does. No framework's layers: each would cost as much as a start.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import msgspec
from starlette.responses import Response

from holdfast import limits
from holdfast.api.services import Services
from holdfast.api.types import ID_CHARS_MAX, KEY_PATTERN, RETRY_AFTER_SECS, fault_of, status_of
from holdfast.errors import (
    BodyTooLarge,
    HoldfastError,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    TooManyRequests,
    Unavailable,
    UnsupportedMediaType,
)
from holdfast.http.auth import Principal
from holdfast.http.guard import Guard
from holdfast.http.json_body import check_depth, check_keys, read_large_members
from holdfast.http.query import reader
from holdfast.http.router import Router
from holdfast.http.routes.ops import answered, request_id_of
from holdfast.http.table import ANY, Ask, Reply, Route, Signed
from holdfast.http.validation import invalid
from holdfast.runtime.apart import in_turns
from holdfast.runtime.replies import Kept, Replies
from holdfast.signing import is_signed
from holdfast.values import sha256

log = logging.getLogger("holdfast.http")

# Whether a body is signed can be seen only when all of it is there. So many over 1 MiB are read at once for senders
# that may turn out to be strangers: together they hold 100 MiB at most, and small ones are never kept waiting.

SMALL_BYTES: Final = 64 * 1024  # of a body that is read in a few milliseconds; 1 MiB takes up to 0.1 s

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_encode = msgspec.json.Encoder().encode


# Headers that have one value. Of two, one program takes the first and another the last.
ANSWERS: Final = (Reply, Response)
SINGLE: Final = frozenset({
    "authorization", "content-encoding", "content-length", "content-type", "expect", "host", "idempotency-key",
    "last-event-id", "origin", "transfer-encoding", "x-hub-signature-256", "x-request-id",
})  # fmt: skip


class AmbiguousHead(InvalidRequest):
    """The head of a request can be read in two ways. Its connection is closed: where the next one begins is not sure."""


class ClientGone(Exception):
    """Nobody is there any more to be answered."""


class _Ready:
    """A route with all that can be made before the first request."""

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
        self._replies = Replies(services.engine.store, services.engine.committer, services.clock)
        self._unproved = 0  # large bodies that are being read to see whether they are signed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = _Request(scope, receive)
        began = time.perf_counter()
        try:
            answer = _written(await self._answer(request))
        except ClientGone:
            return
        except HoldfastError as error:
            answer = _refusal(error, request)
        except Exception:  # a bug: the response has only its id, since a traceback would reveal too much
            log.exception("request %s %s %a", request.id, request.method, request.path)
            answer = _mistake(request)
        status = await _send(answer, request, scope, receive, send)
        answered(
            self._services,
            request_id=request.id,
            method=request.method,
            route=request.route.path if request.route is not None else "",
            status=status,
            seconds=time.perf_counter() - began,
            client=request.client,
            key_id=request.key_id,
        )

    async def _answer(self, request: _Request) -> Reply | Response:
        request.check_head()
        self._guard.check(request.headers)
        found = self._router.find(request.raw_path)
        if found is None:
            self._guard.asker(None, request.headers, request.client)
            raise NotFound(f"there is nothing at {request.path[:200]!a}; /docs lists what there is")
        methods, path = found
        ready = methods.get("GET" if request.method == "HEAD" else request.method)
        if ready is None:
            request.route = next(iter(methods.values())).route
            self._guard.asker(None, request.headers, request.client)
            return _other_method(request.method, methods)
        route = request.route = ready.route
        principal = self._guard.asker(route.scope, request.headers, request.client)
        request.key_id = principal.key_id
        admitted = None if route.admits is None else route.admits(self._ask(request, principal, path))
        if isinstance(admitted, ANSWERS):
            return admitted
        _check_key(route, request.headers)
        query = None if ready.query is None else ready.query(request.query_string)
        raw, body = b"", None
        if route.method != "GET":
            raw = await self._raw(request, _body_max(route), admitted)
            if len(raw) <= SMALL_BYTES or route.reads_members is not None:
                body = _body(ready, raw, request.headers)
            else:
                body = await in_turns(lambda: _body(ready, raw, request.headers))
            if route.reads_members is not None:
                body = await _members(route, raw)
        ask = self._ask(request, principal, path, query, body, raw)
        if route.method == "POST" and route.replays and "idempotency-key" in request.headers:
            return await self._once(route, ask, request)
        return await _done(route, ask)

    def _ask(
        self,
        request: _Request,
        principal: Principal,
        path: Mapping[str, str],
        query: Any = None,
        body: Any = None,
        raw: bytes = b"",
    ) -> Ask:
        return Ask(
            self._services,
            principal,
            path,
            query,
            body,
            raw,
            request.headers,
            request.client,
            self.leaving,
        )

    async def _raw(self, request: _Request, bytes_max: int, signed: Signed | None) -> bytes:
        """The body of a sender that may send one. A signature is checked before anything else is done with it."""
        if signed is None:
            return await request.body(bytes_max)
        with self._large_unproved(request):
            raw = await request.body(bytes_max)
            if not is_signed(signed.secret, raw, signed.given):
                raise signed.refusal
            return raw

    @contextmanager
    def _large_unproved(self, request: _Request) -> Generator[None]:
        """A body that must be read whole before its sender is known: of large ones there are few at a time."""
        if request.says_at_most(limits.now.body_bytes_max):
            yield
            return
        if self._unproved >= limits.now.large_signed_bodies_max:
            message = f"{self._unproved} large signed bodies are being read"
            raise TooManyRequests("large_signed_bodies_max", message, RETRY_AFTER_SECS)
        self._unproved += 1
        try:
            yield
        finally:
            self._unproved -= 1

    async def _once(self, route: Route, ask: Ask, request: _Request) -> Reply:
        """A POST under a key of its caller: what was answered the first time."""

        async def do(kept: Kept) -> tuple[int, bytes]:
            made = await _done(route, msgspec.structs.replace(ask, kept=kept))
            assert isinstance(made, Reply), f"{route.path} cannot be answered twice"
            return made.status, _encode(made.value)

        who = ask.principal.key_id.encode()  # what one may say twice, another says for the first time
        digest = sha256(b"\0".join((who, request.raw_path, request.query_string, ask.raw)))
        key = request.headers["idempotency-key"]
        status, body = await self._replies.once(ask.tenant, route.path, key, digest, do)
        return Reply(msgspec.Raw(body), status)


async def _done(route: Route, ask: Ask) -> Reply | Response:
    made = await route.do(ask)
    return made if isinstance(made, ANSWERS) else Reply(made, route.status)


# ----------------------------------------------------------------------------------------------------- reading


class _Request:
    """What the server knows of one request, as far as it has got with it."""

    __slots__ = (
        "_head",
        "_receive",
        "client",
        "headers",
        "id",
        "key_id",
        "method",
        "path",
        "query_string",
        "raw_path",
        "route",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive, self._head = receive, scope["headers"]
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.raw_path: bytes = scope["raw_path"]
        self.query_string: bytes = scope["query_string"]
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in self._head}
        self.client: str = scope["client"][0] if scope["client"] else ""
        self.id = request_id_of(self.headers)
        self.key_id = ""
        self.route: Route | None = None

    def check_head(self) -> None:
        """Raises AmbiguousHead if a server in front of this one may have read the head in another way."""
        if len(self._head) != len(self.headers):
            names = [name.decode("latin-1") for name, _ in self._head]
            if twice := sorted(name for name in SINGLE & set(names) if names.count(name) > 1):
                raise AmbiguousHead(f"the header {twice[0]} is there twice; send it once")
        if "transfer-encoding" not in self.headers:
            return
        if "content-length" in self.headers:
            raise AmbiguousHead("a request has a content-length or a transfer-encoding, not both")
        if self.headers["transfer-encoding"].strip().lower() != "chunked":
            raise AmbiguousHead("the only transfer-encoding that is taken here is chunked")

    def says_at_most(self, size: int) -> bool:
        """Does its head say that the body has at most so many bytes?"""
        said = self.headers.get("content-length", "")
        return int(said) <= size if said.isdecimal() else "transfer-encoding" not in self.headers

    async def body(self, bytes_max: int) -> bytes:
        """The whole body; raises BodyTooLarge before it is all there. How long it may take is the connection's to say."""
        said = self.headers.get("content-length", "")
        if not said and "transfer-encoding" not in self.headers:
            return b""
        if said.isdecimal() and int(said) > bytes_max:
            raise _too_large(bytes_max)
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message["body"])
            size += len(parts[-1])
            if size > bytes_max:
                raise _too_large(bytes_max)
            more = message["more_body"]
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _check_key(route: Route, headers: Mapping[str, str]) -> None:
    key = headers.get("idempotency-key")
    if key is None or not route.takes_key:
        return
    if len(key) > ID_CHARS_MAX or not re.search(KEY_PATTERN, key):
        raise InvalidRequest(f"an Idempotency-Key has 1 to {ID_CHARS_MAX} visible ASCII characters")


def _body_max(route: Route) -> int:
    """A body that carries a value has room for what stands around it."""
    return limits.now.body_bytes_max if route.body_max is None else route.body_max


def _too_large(bytes_max: int) -> BodyTooLarge:
    name = "body_bytes_max" if bytes_max == limits.now.body_bytes_max else "value_bytes_max"
    return BodyTooLarge(f"a body has at most {bytes_max:,} bytes here ({limits.met(name)})")


def _body(ready: _Ready, raw: bytes, headers: Mapping[str, str]) -> Any:
    """The body in the types of its route; raises InvalidRequest or UnsupportedMediaType."""
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
        body = ready.decode(raw)
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


def _refusal(error: HoldfastError, request: _Request) -> Reply:
    if status_of(error.code) == 500:
        log.error("request %s %s %a: %s", request.id, request.method, request.path, error, exc_info=error)
    return Reply(_shaped(error, request), status_of(error.code), _headers_of(error))


def _mistake(request: _Request) -> Reply:
    told = InternalError(f"this is a bug in Holdfast; the log has details under {request.id}")
    return Reply(_shaped(told, request), 500)


class InternalError(HoldfastError):
    code = "internal_error"


def _shaped(error: HoldfastError, request: _Request) -> Any:
    shape = request.route.fault if request.route is not None else None
    return fault_of(error) if shape is None else shape(error)


def _headers_of(error: HoldfastError) -> Mapping[str, str]:
    if isinstance(error, TooManyRequests):
        return {"retry-after": str(error.retry_after_secs)}
    if isinstance(error, Unavailable):
        return {"retry-after": str(RETRY_AFTER_SECS)}
    if isinstance(error, MethodNotAllowed):
        return {"allow": ", ".join(error.allowed)}
    if isinstance(error, AmbiguousHead):
        return {"connection": "close"}
    if error.code == "unauthorised":
        return {"www-authenticate": "Bearer"}
    return {}


def _written(answer: Reply | Response) -> Reply | Response:
    """With its value as text, so that one that cannot be written is found before anything was sent."""
    if isinstance(answer, Response):
        return answer
    return Reply(msgspec.Raw(_encode(answer.value)), answer.status, answer.headers)


async def _send(
    answer: Reply | Response, request: _Request, scope: Scope, receive: Receive, send: Send
) -> int:
    """Gives the status that was sent."""
    if isinstance(answer, Response):
        answer.headers["x-request-id"] = request.id
        with suppress(OSError):  # the client disconnected meanwhile
            await answer(scope, receive, send)
        return answer.status_code
    body = b"" if answer.status == 204 else _encode(answer.value)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
        (b"x-request-id", request.id.encode()),
        *[(name.encode(), value.encode("latin-1")) for name, value in answer.headers.items()],
    ]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    return answer.status
