"""Outgoing calls: a name is resolved once, its addresses are checked, and only checked addresses are connected to.

In local mode every address may be called. In guarded mode only public addresses, over https, and the networks that the operator
allows. Addresses are checked, never names: a name says nothing about its addresses (`0177.0.0.1` and `2130706433` are names too),
and DNS answers change.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import socket
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

from holdfast.threads import in_pool
from holdfast.tools.failures import ToolError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

RESOLVE_SECONDS: Final = 10.0
LOOKUPS_MAX: Final = 32  # concurrent DNS lookups

# Python's own `is_global` accepts several of these, and `is_private` misses more.
_DENIED_V4: Final = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
)  # fmt: skip
# Public IPv6 is 2000::/3 without these; all other ranges are for special use.
_PUBLIC_V6: Final = ipaddress.IPv6Network("2000::/3")
_DENIED_V6: Final = tuple(
    ipaddress.IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20")
)
# Mapped and NAT64: the call goes to the embedded address, so only that one is checked.
_TRANSPARENT: Final = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))
_CARRIERS: Final = (*_TRANSPARENT, ipaddress.IPv6Network("::/96"), ipaddress.IPv6Network("::ffff:0:0:0/96"))
_ISATAP: Final = (0x00005EFE, 0x02005EFE)  # the third quarter of such an address


class AddressRefused(ToolError):
    """An address that may not be called. Nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, kind="refused")


class Target(NamedTuple):
    """A checked address, in the form that a socket needs."""

    family: int
    host: str
    port: int


class Guard:
    """Which addresses may be called: all of them, or public ones and those of `allowed` networks."""

    def __init__(self, *, guarded: bool = False, allowed: Iterable[str] = ()) -> None:
        self.guarded = guarded
        self._allowed = tuple(_network(text) for text in allowed)

    async def targets(self, url: str) -> list[Target]:
        """Return the checked addresses of a URL, or raise AddressRefused. Connect to these and to nothing else."""
        parts = _split(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
        found = await _resolved(host, port)
        for target in found:
            self.judge(target.host, named=host)
        if (
            self.guarded
            and parts.scheme != "https"
            and not all(self._is_allowed(target.host) for target in found)
        ):
            raise AddressRefused(f"{host} is called by http, and only https is allowed here; {_HINT}")
        return found

    def judge(self, address: str, *, named: str = "") -> None:
        """Refuse one numeric address, in any of the forms in which IPv6 can carry IPv4."""
        if not self.guarded or self._is_allowed(address):
            return
        if not all(_is_public(form) for form in _forms(_address(address))):
            of = f"{named} is {address}, which" if named and named != address else address
            raise AddressRefused(f"{of} is not a public address and may not be called from here; {_HINT}")

    def _is_allowed(self, address: str) -> bool:
        innermost = list(_forms(_address(address)))[-1]
        return any(innermost in network for network in self._allowed if network.version == innermost.version)


_HINT: Final = "allow its network with --allow-networks"


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port  # accessing it validates it
    except ValueError as error:
        raise ToolError(f"the address cannot be read: {error}", kind="inputs") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ToolError("an address begins with http:// or https:// and a host", kind="inputs")
    return parts


async def _resolved(host: str, port: int) -> list[Target]:
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            return await looked_up(host, port)
    except TimeoutError:
        raise ToolError(
            f"the name {host} was not resolved within {RESOLVE_SECONDS:g} s", kind="unsent"
        ) from None
    except (OSError, UnicodeError) as error:
        raise ToolError(f"the name {host} cannot be resolved: {error}", kind="unsent") from None


async def looked_up(host: str, port: int) -> list[Target]:
    """Resolve a name. Not by the event loop: uvloop ends the process if it cannot start a thread. A numeric address needs no thread."""
    ask = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        found = ask(flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await in_pool(_names(), ask)
    return [Target(int(family), str(address[0]), int(address[1])) for family, _, _, _, address in found]


@functools.cache
def _names() -> ThreadPoolExecutor:
    """Threads reserved for DNS: lookups that hang must not hold up files and other work."""
    return ThreadPoolExecutor(LOOKUPS_MAX, "holdfast-names")


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text.strip(), strict=False)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a network: {error}; write it as 10.0.0.0/8") from None


def _address(text: str) -> Address:
    try:
        return ipaddress.ip_address(text.partition("%")[0])  # without its zone
    except ValueError:
        raise AddressRefused(f"{text} is not an address") from None


def _forms(address: Address) -> Iterator[Address]:
    """Return an address and the IPv4 addresses embedded in it, which a gateway or the kernel may connect to instead."""
    yield address
    if isinstance(address, ipaddress.IPv4Address):
        return
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in _CARRIERS):
        yield low
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        yield low


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _DENIED_V4)
    carries = any(address in network for network in _TRANSPARENT)
    return carries or (address in _PUBLIC_V6 and not any(address in network for network in _DENIED_V6))
