"""What holds for all tests: a random search finds today what it found yesterday, and looks elsewhere by command;
and no test leaves this machine.

`pytest --hypothesis-profile=search` takes new seeds and more examples each time. Knows nothing of the product.
"""

from __future__ import annotations

import gc
import ipaddress
import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.postgres import Server, running_server
from tests.s3 import S3, running_s3
from tests.store.yielding import yield_in_all_reads

SLOW = [HealthCheck.too_slow]  # how fast examples are made says how busy the machine is

settings.register_profile(
    "same", derandomize=True, database=None, deadline=None, print_blob=True, suppress_health_check=SLOW
)
settings.register_profile("search", max_examples=2_000, deadline=None, suppress_health_check=SLOW)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    if not config.getoption("hypothesis_profile", None):
        # It draws constants of whatever modules are loaded, and those are others in each process of a run.
        providers._get_local_constants = lambda: providers._local_constants


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Async tests run on asyncio, as the product does."""
    return "asyncio"


# --------------------------------------------------------------------------------------------------- quick on two cores

# The files whose single tests take longest come first, so that no process is left with one of them in the end.
LONGEST = (
    "tests/sim/", "tests/test_typed.py", "tests/crash/", "tests/docs/", "tests/ui/", "tests/schedule/test_simulation.py",
)  # fmt: skip


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests and the modules live until the end: collections need not traverse them each time


# ------------------------------------------------------------------------------------------- nothing leaves the machine

OUTSIDE: list[str] = []  # what the test at work has tried to reach


def _is_inside(host: Any) -> bool:
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    if text in (None, "", "localhost", "<broadcast>"):
        return True
    try:
        address = ipaddress.ip_address(str(text).partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback or address.is_unspecified


def _is_number(host: Any) -> bool:
    try:
        socket.inet_aton(host if isinstance(host, str) else host.decode())  # also 0177.1 and the like
    except (OSError, ValueError):
        return ":" in str(host)
    return True


def _watch(event: str, args: tuple[Any, ...]) -> None:
    """Refuse connections and lookups that would leave the machine, before anything is sent."""
    if event == "socket.getaddrinfo":
        host = args[0]
        if _is_inside(host) or _is_number(host):  # a number is not looked up
            return
        # this name may be tried: here is the resolver that has none
        if not str(host).rstrip(".").endswith("invalid"):
            OUTSIDE.append(f"a lookup of {host!r}")
        raise socket.gaierror(socket.EAI_NONAME, "no name is looked up outside of this machine in tests")
    if event in ("socket.connect", "socket.sendto"):
        made, address = args[0], args[1]
        if made.family in (socket.AF_INET, socket.AF_INET6) and not _is_inside(address[0]):
            OUTSIDE.append(f"a connection to {address!r}")
            raise PermissionError(f"a test connects to {address!r}, which is not this machine")


sys.addaudithook(_watch)


@pytest.fixture(autouse=True)
def stays_on_this_machine() -> Iterator[None]:
    """Whether another address may be called is tested by the resolver and the decision alone."""
    OUTSIDE.clear()
    yield
    assert not OUTSIDE, f"this test tried to leave the machine: {', '.join(OUTSIDE)}"


# --------------------------------------------------------------------------------------------------- reads that suspend

YIELDING = (
    "runtime",
    "waits",
    "workers",
    "deliveries",
    "triggers",
)  # their tests use such a store by default


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--yield-reads",
        metavar="SEED",
        help="let the reads of every store suspend by this seed; off: of none",
    )


@pytest.fixture(autouse=True)
def reads_that_suspend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = request.config.getoption("--yield-reads")
    if seed is None and request.path.parent.name in YIELDING:
        seed = "1"
    if seed not in (None, "off") and request.node.get_closest_marker("plain_reads") is None:
        yield_in_all_reads(monkeypatch, f"{seed} {request.node.nodeid}")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """A PostgreSQL server of this process, started for the first test that needs one."""
    with running_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """A server for buckets, of this process, started for the first test that needs one."""
    with running_s3() as server:
        yield server
