"""The guard of the test suite itself: no test can reach another machine, whatever it does with the error."""

from __future__ import annotations

import contextlib
import socket

import pytest

from tests import conftest


@pytest.mark.parametrize("address", ["192.0.2.1", "10.0.0.1", "169.254.169.254", "8.8.8.8"])
def test_a_connection_to_another_machine_is_refused_and_noted(address: str) -> None:
    with socket.socket() as made, contextlib.suppress(OSError):
        made.connect((address, 80))
    assert [f"a connection to {(address, 80)!r}"] == conftest.OUTSIDE
    conftest.OUTSIDE.clear()


def test_a_lookup_of_a_public_name_is_refused_and_noted() -> None:
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("example.com", 80)
    assert conftest.OUTSIDE == ["a lookup of 'example.com'"]
    conftest.OUTSIDE.clear()


def test_a_name_that_cannot_exist_is_not_looked_up_outside() -> None:
    with pytest.raises(socket.gaierror, match="outside of this machine"):
        socket.getaddrinfo("name.invalid", 80)
    assert conftest.OUTSIDE == []


def test_this_machine_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
        assert socket.getaddrinfo("localhost", 80)
