"""No name, no form of an address and no answer of a resolver leads a guarded engine inside."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from holdfast import ToolError
from holdfast.tools.guard import AddressRefused, Guard

INSIDE = [
    "127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.254", "169.254.169.254",
    "172.16.0.1", "172.31.255.255", "192.0.0.1", "192.0.0.170", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1",
    "198.19.255.255", "198.51.100.1", "203.0.113.7", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::10.0.0.1", "::8.8.8.8",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "64:ff9b:1::7f00:1",
    "2002:7f00:1::", "2002:a00:1::1", "2002:a9fe:a9fe::", "2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1", "2001:10::1", "2001:20::1", "2001:db8::1", "3fff::1", "5f00::1", "100::1", "100:0:0:1::1",
    "fc00::1", "fd12:3456::1", "fe80::1", "fe80::1%eth0", "fec0::1", "feff::1", "ff02::1", "ff0e::1", "4000::1",
    "2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:10.0.0.1",
]  # fmt: skip

OUTSIDE = [
    "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.167.1.1", "11.0.0.1",
    "2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450::1", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1",
]  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    with pytest.raises(
        AddressRefused, match=r"may not be called from here; allow its network with --allow-networks"
    ) as caught:
        Guard(guarded=True).judge(address)
    assert caught.value.kind == "refused"


@pytest.mark.parametrize("address", OUTSIDE)
def test_a_public_address_may_be_called(address: str) -> None:
    assert Guard(guarded=True).judge(address) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize("address", INSIDE)
def test_in_local_mode_every_address_may_be_called(address: str) -> None:
    assert Guard().judge(address) is None  # type: ignore[func-returns-value]


@pytest.mark.parametrize("address", ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::a01:203", "fd00::7"])
def test_an_allowed_network_may_be_called_in_every_form(address: str) -> None:
    guard = Guard(guarded=True, allowed=["10.0.0.0/8", "fd00::/8"])
    assert guard.judge(address) is None  # type: ignore[func-returns-value]
    with pytest.raises(AddressRefused):
        guard.judge("192.168.0.1")


def test_a_network_that_cannot_be_read_says_how_to_write_one() -> None:
    with pytest.raises(ValueError, match=r"'10.0.0.0/99' is not a network.*write it as 10\.0\.0\.0/8"):
        Guard(allowed=["10.0.0.0/99"])


HOSTS = [
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "localhost",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "0",
]


@pytest.mark.parametrize("host", HOSTS)
def test_every_way_to_write_this_machine_is_refused(host: str) -> None:
    with pytest.raises(AddressRefused):
        asyncio.run(Guard(guarded=True).targets(f"https://{host}/"))


BAD = [
    "file:///etc/passwd",
    "ftp://example.org/",
    "gopher://x/",
    "http://",
    "https:///x",
    "//host/",
    "http://[::1",
    "http://a:99999/",
    "x",
]


@pytest.mark.parametrize("url", BAD)
def test_what_is_no_address_of_the_web_is_refused(url: str) -> None:
    with pytest.raises(ToolError) as caught:
        asyncio.run(Guard().targets(url))
    assert caught.value.kind == "inputs"


def test_plain_http_is_for_allowed_networks_only() -> None:
    with pytest.raises(AddressRefused, match="only https is allowed here"):
        asyncio.run(Guard(guarded=True).targets("http://8.8.8.8/"))
    allowed = Guard(guarded=True, allowed=["127.0.0.0/8"])
    (target,) = asyncio.run(allowed.targets("http://127.0.0.1:81/"))
    assert target == (socket.AF_INET, "127.0.0.1", 81)


def test_one_inner_address_among_public_ones_refuses_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: Any, **__: Any) -> Any:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in ("8.8.8.8", "10.0.0.1")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with pytest.raises(
        AddressRefused, match=r"two-faced\.example is 10\.0\.0\.1, which is not a public address"
    ):
        asyncio.run(Guard(guarded=True).targets("https://two-faced.example/"))


def test_a_name_that_does_not_resolve_was_not_sent() -> None:
    with pytest.raises(ToolError, match=r"cannot be resolved") as caught:
        asyncio.run(Guard().targets("https://no-such-name.invalid/"))
    assert caught.value.kind == "unsent"
