"""Checks before a request is routed: its Host and Origin headers, and the rate limit.

A page in a browser can send requests to any address that the browser reaches, this one included, and by changing what its
own name resolves to it can even read the answers. So the Host must be a name of this server, and an Origin, which
browsers send along and programs do not, must be this server's own or an allowed one.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final
from urllib.parse import urlsplit

from holdfast import limits
from holdfast.api.principal import Principal
from holdfast.config import Settings
from holdfast.errors import Forbidden, MisdirectedRequest, TooManyRequests, Unauthorised
from holdfast.http.auth import ANONYMOUS, LOCAL, OWNER, Keys

LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
EVERY_ADDRESS: Final = frozenset({"0.0.0.0", "::"})
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
GOOD_MAX: Final = 1_000  # cached Host headers


class Guard:
    """The checks in front of all routes of one server. `host` is the address that it is bound to."""

    def __init__(self, keys: Keys, settings: Settings, host: str, monotonic: Callable[[], float]) -> None:
        self.keys = keys
        self.hosts = Hosts(host, public_url=settings.public_url, allowed=settings.allow_hosts)
        self._of_keys = Rate("rate_per_key", settings.rate_per_key, monotonic)
        self._of_addresses = Rate("rate_per_address", settings.rate_per_address, monotonic)
        self._of_webhooks = Rate("rate_per_webhook", settings.rate_per_webhook, monotonic)

    def check(self, headers: Mapping[str, str]) -> None:
        """Check Host and Origin. Raise MisdirectedRequest or Forbidden. Header names are in lower case."""
        self.hosts.check(headers)

    def asker(self, scope: str | None, headers: Mapping[str, str], client: str) -> Principal:
        """Return the caller of a route with this scope. Raise Unauthorised, Forbidden or TooManyRequests. `client` is an address.

        In local mode nothing is counted. Requests without a valid API key are counted by client address, before the 401.
        """
        if not self.keys.is_guarded:
            return LOCAL
        if scope is None and "authorization" not in headers:
            self._of_addresses.take(client)
            return ANONYMOUS
        try:
            principal = self.keys.principal_of(headers)
        except Unauthorised:
            self._of_addresses.take(client)
            raise
        self._of_keys.take(principal.key_id)
        if scope is not None:
            principal.need(scope)
        return principal

    @property
    def is_guarded(self) -> bool:
        return self.keys.is_guarded

    async def holder(
        self, token: str, check: Callable[[str], Awaitable[Principal]], client: str
    ) -> Principal:
        """Return the holder of a token that `check` accepts; counted like a key. Raise Unauthorised, Forbidden or TooManyRequests."""
        try:
            principal = await check(token)
        except (Unauthorised, Forbidden):
            self._of_addresses.take(client)
            raise
        self._of_keys.take(principal.key_id)
        return principal

    def count_webhook(self, path: str, client: str) -> None:
        """Count a request to a webhook by its path and the sender's address, before any work; raises TooManyRequests."""
        if self.keys.is_guarded:
            self._of_webhooks.take(f"{client} {path}")


class OwnerGuard(Guard):
    """In front of the local socket: the permissions of its file have admitted the caller, so no key is needed and nothing is counted.
    Browsers cannot reach it, but programs that pass requests on can: Host and Origin are checked all the same."""

    def asker(self, scope: str | None, headers: Mapping[str, str], client: str) -> Principal:
        return OWNER

    async def holder(
        self, token: str, check: Callable[[str], Awaitable[Principal]], client: str
    ) -> Principal:
        return OWNER


class Hosts:
    """The allowed Host names of this server, and the allowed Origins."""

    def __init__(self, bind: str, *, public_url: str | None = None, allowed: Iterable[str] = ()) -> None:
        bind = bind.strip("[]").lower()
        # DNS rebinding needs a name, so an IP address as Host is safe. A server that listens on all addresses accepts any.
        self._takes_numbers = bind in EVERY_ADDRESS
        self._others = frozenset(host[0] for name in allowed if (host := _host(name)) is not None)
        self._names = LOOPBACK_NAMES | {bind} | self._others
        self._good: set[str] = set()  # as they were sent: most callers always send the same
        self._public: tuple[str, str, int | None] | None = None
        if public_url is not None and (place := _origin(public_url)) is not None:
            self._public = place
            self._names |= {place[1]}

    def check(self, headers: Mapping[str, str]) -> None:
        """Raises MisdirectedRequest or Forbidden."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if origin is None and host in self._good:
            return
        place = _host(host)
        if place is None or not (place[0] in self._names or self._takes_numbers and _is_number(place[0])):
            raise MisdirectedRequest(
                f"this server is not called {host[:100]!a}; if it is, allow_hosts or HOLDFAST_ALLOW_HOSTS says so"
            )
        if len(self._good) < GOOD_MAX:
            self._good.add(host)
        if origin is not None and not self._is_own(origin, place):
            raise Forbidden(
                f"a page of {origin[:100]!a} is not allowed to call this server; allow its host with allow_hosts or HOLDFAST_ALLOW_HOSTS"
            )

    def _is_own(self, origin: str, host: tuple[str, int | None]) -> bool:
        came_from = _origin(origin)
        if came_from is None:
            return False
        scheme, name, port = came_from
        if name in self._others or came_from == self._public:
            return True
        default = DEFAULT_PORTS[scheme]
        return name == host[0] and (port or default) == (host[1] or default)


def _host(text: str) -> tuple[str, int | None] | None:
    """Split `name:port`; None if the text has another form."""
    try:
        parts = urlsplit(f"//{text}")
        name, port = parts.hostname, parts.port
    except ValueError:
        return None
    is_plain = not (parts.path or parts.query or parts.fragment or "@" in text)
    return (name, port) if name and is_plain else None


def _origin(text: str) -> tuple[str, str, int | None] | None:
    scheme, separator, rest = text.partition("://")
    place = _host(rest.split("/", 1)[0]) if separator else None
    return (scheme.lower(), *place) if place is not None and scheme.lower() in DEFAULT_PORTS else None


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


# ------------------------------------------------------------------------------------------------------ rates


class Rate:
    """The rate limit of each caller: a token bucket that refills at a steady rate and allows bursts."""

    def __init__(self, limit: str, per_sec: int, monotonic: Callable[[], float]) -> None:
        self.limit, self._per_sec, self._monotonic = limit, per_sec, monotonic
        self._full = float(per_sec * limits.now.burst_secs_max)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # caller → tokens, and when

    def take(self, caller: str) -> None:
        """Count one request of a caller. Raise TooManyRequests with the time until the next one is allowed."""
        now = self._monotonic()
        tokens, then = self._buckets.get(caller, (self._full, now))
        tokens = min(self._full, tokens + (now - then) * self._per_sec)
        is_allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if is_allowed else tokens, now)
        self._buckets.move_to_end(caller)
        if len(self._buckets) > limits.now.callers_max:
            self._buckets.popitem(last=False)
        if not is_allowed:
            raise TooManyRequests(
                self.limit,
                f"more than {self._per_sec:,} requests a second",
                max(1, math.ceil((1 - tokens) / self._per_sec)),
            )
