"""One request as it arrives: its head, which must be unambiguous, and its body, which is read up to a limit.

Knows HTTP. Must not know routes, API keys, or what a body means.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from holdfast import limits
from holdfast.api.types import RETRY_AFTER_SECS
from holdfast.errors import BodyTooLarge, HoldfastError, InvalidRequest, TooManyRequests
from holdfast.http.routes.ops import request_id_of
from holdfast.runtime.places import Places

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

# Headers of a signature: of two, a receiver may have checked the other one.
SIGNATURES: Final = frozenset({
    "svix-id", "svix-signature", "svix-timestamp", "webhook-id", "webhook-signature", "webhook-timestamp", "x-hub-signature-256",
})  # fmt: skip
# Headers that have one value. Of two, one program takes the first and another the last.
SINGLE: Final = SIGNATURES | {
    "authorization", "content-encoding", "content-length", "content-type", "expect", "host", "idempotency-key",
    "last-event-id", "origin", "transfer-encoding", "x-github-delivery", "x-request-id",
}  # fmt: skip

WAIT_SECONDS_MAX: Final = 10.0  # how long a request with a large body waits for a slot


class AmbiguousHead(InvalidRequest):
    """The head of a request can be read in two ways. Its connection is closed: where the next request begins is uncertain."""


class ClientGone(Exception):
    """The client disconnected before it sent the whole request."""


class Request:
    """One request. `label` and `fault` are the path and the errors of its route, once that is known; `signed_twice` names a
    header of SIGNATURES that is repeated."""

    __slots__ = (
        "_head",
        "_receive",
        "client",
        "fault",
        "headers",
        "id",
        "key_id",
        "label",
        "method",
        "path",
        "query_string",
        "raw_path",
        "signed_twice",
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
        self.label = self.signed_twice = ""
        self.fault: Callable[[HoldfastError], Any] | None = None

    def check_head(self) -> None:
        """Raise AmbiguousHead if a server in front of this one may have read the head in another way.

        A repeated signature is only noted: a webhook and a route refuse it with different responses.
        """
        if len(self._head) != len(self.headers):
            names = [name.decode("latin-1") for name, _ in self._head]
            twice = sorted(name for name in SINGLE & set(names) if names.count(name) > 1)
            if not SIGNATURES.issuperset(twice):
                raise sent_twice(next(name for name in twice if name not in SIGNATURES))
            self.signed_twice = twice[0] if twice else ""
        if "transfer-encoding" not in self.headers:
            return
        if "content-length" in self.headers:
            raise AmbiguousHead("a request has a content-length or a transfer-encoding, not both")
        if self.headers["transfer-encoding"].strip().lower() != "chunked":
            raise AmbiguousHead("the only transfer-encoding that is accepted here is chunked")

    def says_at_most(self, size: int) -> bool:
        """Whether its head announces a body of at most this many bytes."""
        said = self.headers.get("content-length", "")
        return int(said) <= size if said.isdecimal() else "transfer-encoding" not in self.headers

    async def body(self, bytes_max: int, limit: str | None = None) -> bytes:
        """The whole body; raises BodyTooLarge before all of it has arrived. The connection limits how long it may take."""
        said = self.headers.get("content-length", "")
        if not said and "transfer-encoding" not in self.headers:
            return b""
        if said.isdecimal() and int(said) > bytes_max:
            raise _too_large(bytes_max, limit)
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message["body"])
            size += len(parts[-1])
            if size > bytes_max:
                raise _too_large(bytes_max, limit)
            more = message["more_body"]
        return parts[0] if len(parts) == 1 else b"".join(parts)


class LargeBodies:
    """Limits how many bodies over 1 MiB are in memory at the same time. Small ones never wait for them."""

    def __init__(self) -> None:
        self._unproved = 0
        most = limits.now.large_bodies_max
        self._places = Places(most, max(1, most // 2))

    def is_small(self, request: Request) -> bool:
        """Whether a request needs no place."""
        return request.says_at_most(limits.now.body_bytes_max)

    @asynccontextmanager
    async def place_of(self, request: Request, tenant: str) -> AsyncGenerator[None]:
        """From before the body of this request is read until the request is answered. A request that must wait is not read meanwhile;
        raises TooManyRequests if it waits too long. One tenant has at most half of the places."""
        if self.is_small(request):
            yield
            return
        place = self._places.at(tenant)
        try:
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                await place.__aenter__()
        except TimeoutError:
            most = limits.now.large_bodies_max
            size = limits.size(limits.now.body_bytes_max)
            message = f"at most {most} requests with bodies over {size} are handled at the same time, {most // 2} of one tenant"
            raise TooManyRequests("large_bodies_max", message, RETRY_AFTER_SECS) from None
        try:
            yield
        finally:
            await place.__aexit__(None, None, None)

    @contextmanager
    def unproved(self, request: Request) -> Generator[None]:
        """Limits bodies that are read before their sender is authenticated: whether a body is signed is only known
        when all of it has arrived. Raises TooManyRequests at once, so that unauthenticated senders do not delay
        others."""
        if self.is_small(request):
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


def sent_twice(header: str) -> AmbiguousHead:
    return AmbiguousHead(f"the header {header} is sent twice; send it once")


def _too_large(bytes_max: int, limit: str | None) -> BodyTooLarge:
    name = "body_bytes_max" if bytes_max == limits.now.body_bytes_max else "value_bytes_max"
    return BodyTooLarge(f"a body has at most {bytes_max:,} bytes here ({limits.met(limit or name)})")
