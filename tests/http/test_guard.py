"""What stands before every route: the names of the server, the pages that may ask, keys, and how often."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.config import Settings
from holdfast.errors import Forbidden, KeyNeeded, MisdirectedRequest, TooManyRequests, Unauthorised
from holdfast.http.auth import ANONYMOUS, LOCAL, Keys
from holdfast.http.guard import Guard, Hosts, Rate
from holdfast.ops.api_keys import SCOPES, ApiKeys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.tools.registry import Registry
from tests.runtime.bench import engine_on
from tests.small_limits import with_limits

BOOTSTRAP = "bootstrap-0123456789"
CLIENT = "192.0.2.7"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def api_keys(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ApiKeys]:
    engine = engine_on(SqliteStore(str(tmp_path / "holdfast.db")), Registry(), clock)
    await engine.open(drive=False)
    yield (keys := ApiKeys(engine.store, engine.clock, engine.gate))
    await keys.close()
    await engine.close()


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def made_guard(keys: Keys, clock: ManualClock, **settings: int) -> Guard:
    return Guard(keys, Settings(**settings), "127.0.0.1", clock.monotonic)  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------- host, origin


def is_let_in(hosts: Hosts, host: str | None, origin: str | None = None) -> str:
    headers = {"host": host, "origin": origin}
    try:
        hosts.check({name: value for name, value in headers.items() if value is not None})
    except MisdirectedRequest:
        return "misdirected"
    except Forbidden:
        return "forbidden"
    return "in"


@pytest.mark.parametrize(
    ("host", "becomes"),
    [
        ("127.0.0.1:8070", "in"),
        ("127.0.0.1", "in"),
        ("localhost:8070", "in"),
        ("LOCALHOST:8070", "in"),
        ("[::1]:8070", "in"),
        ("evil.example", "misdirected"),
        ("evil.example:8070", "misdirected"),
        ("localhost.evil.example", "misdirected"),
        ("127.0.0.1.evil.example", "misdirected"),
        ("127.0.0.1@evil.example", "misdirected"),
        ("evil.example/127.0.0.1", "misdirected"),
        ("evil.example#localhost", "misdirected"),
        ("192.0.2.1", "misdirected"),
        ("localhost:99999", "misdirected"),
        ("localhost:x", "misdirected"),
        ("[::1", "misdirected"),
        ("localhost, evil.example", "misdirected"),
        ("", "misdirected"),
        (None, "misdirected"),
    ],
)
def test_a_server_on_loopback_answers_to_names_of_loopback_alone(host: str | None, becomes: str) -> None:
    assert is_let_in(Hosts("127.0.0.1"), host) == becomes


@pytest.mark.parametrize(
    ("host", "becomes"),
    [
        ("10.1.2.3:8070", "in"),
        ("[fd00::1]:8070", "in"),
        ("localhost:8070", "in"),
        ("flows.example", "in"),
        ("extra.example:443", "in"),
        ("evil.example", "misdirected"),
    ],
)
def test_a_server_at_every_address_answers_to_any_number_and_to_the_names_it_was_told(
    host: str, becomes: str
) -> None:
    hosts = Hosts("0.0.0.0", public_url="https://flows.example/x", allowed=["Extra.example:8443"])
    assert is_let_in(hosts, host) == becomes


@pytest.mark.parametrize(
    ("origin", "becomes"),
    [
        (None, "in"),
        ("http://127.0.0.1:8070", "in"),
        ("http://127.0.0.1:3000", "forbidden"),  # another server of the same machine is somebody else
        ("http://localhost:8070", "forbidden"),  # to a browser that is another origin
        ("http://evil.example", "forbidden"),
        ("https://flows.example", "in"),
        ("http://flows.example", "forbidden"),
        ("https://page.example", "in"),
        ("null", "forbidden"),
        ("", "forbidden"),
        ("file://", "forbidden"),
        ("127.0.0.1:8070", "forbidden"),
        ("chrome-extension://127.0.0.1:8070", "forbidden"),
    ],
)
def test_a_page_may_ask_if_it_is_the_servers_own_or_an_allowed_one(origin: str | None, becomes: str) -> None:
    hosts = Hosts("127.0.0.1", public_url="https://flows.example", allowed=["page.example"])
    assert is_let_in(hosts, "127.0.0.1:8070", origin) == becomes


def test_the_default_port_of_an_origin_is_that_of_a_host_without_one() -> None:
    assert is_let_in(Hosts("127.0.0.1"), "localhost", "http://localhost:80") == "in"


def test_a_strange_host_cannot_bring_control_characters_into_the_message() -> None:
    with pytest.raises(MisdirectedRequest) as caught:
        Hosts("127.0.0.1").check({"host": "a\x1b[31m\nb"})
    assert str(caught.value).isprintable()


# ------------------------------------------------------------------------------------------------------------- modes


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8"])
@pytest.mark.anyio
async def test_on_loopback_without_a_key_everybody_is_admin_of_default(api_keys: ApiKeys, host: str) -> None:
    keys = Keys(api_keys, host)
    keys.check_start()
    assert keys.principal_of({}) == LOCAL
    assert (LOCAL.tenant, LOCAL.scopes) == ("default", frozenset(SCOPES))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4", "flows.example"])
@pytest.mark.anyio
async def test_an_address_that_others_reach_is_refused_without_a_key(api_keys: ApiKeys, host: str) -> None:
    keys = Keys(api_keys, host)
    with pytest.raises(KeyNeeded, match="holdfast keys create"):
        keys.check_start()
    with pytest.raises(Unauthorised):
        keys.principal_of({})


@pytest.mark.anyio
async def test_an_address_that_others_reach_is_served_once_a_key_exists(api_keys: ApiKeys) -> None:
    await api_keys.create("default", "me", ["admin"])
    Keys(api_keys, "0.0.0.0").check_start()
    assert Keys(api_keys, "0.0.0.0").is_guarded


@pytest.mark.anyio
async def test_the_first_key_guards_a_running_server_at_once(api_keys: ApiKeys) -> None:
    keys = Keys(api_keys, "127.0.0.1")
    assert keys.principal_of({}) == LOCAL
    made = await api_keys.create("default", "me", ["read"])
    with pytest.raises(Unauthorised, match="Bearer"):
        keys.principal_of({})
    assert keys.principal_of(bearer(made.key)).scopes == {"read"}


@pytest.mark.anyio
async def test_revoking_the_last_key_does_not_open_the_server(api_keys: ApiKeys) -> None:
    keys = Keys(api_keys, "127.0.0.1")
    made = await api_keys.create("default", "me", ["admin"])
    assert keys.principal_of(bearer(made.key)).may("admin")
    await api_keys.revoke("default", made.row.id)
    with pytest.raises(Unauthorised):
        keys.principal_of(bearer(made.key))
    with pytest.raises(Unauthorised):
        keys.principal_of({})


@pytest.mark.anyio
async def test_the_bootstrap_key_is_admin_without_being_stored(api_keys: ApiKeys) -> None:
    keys = Keys(api_keys, "0.0.0.0", BOOTSTRAP)
    keys.check_start()
    principal = keys.principal_of(bearer(BOOTSTRAP))
    assert (principal.tenant, principal.scopes, principal.key_id) == (
        "default",
        frozenset(SCOPES),
        "bootstrap",
    )
    assert not api_keys.is_any


@pytest.mark.anyio
async def test_a_bootstrap_key_that_can_be_guessed_is_refused(api_keys: ApiKeys) -> None:
    with pytest.raises(KeyNeeded, match="openssl rand"):
        Keys(api_keys, "127.0.0.1", "secret")


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic eDp5", "bootstrap-0123456789", f"Bearer {BOOTSTRAP}x", "Bearer ÿ"],
)
@pytest.mark.anyio
async def test_a_guarded_server_takes_nothing_but_a_known_key(api_keys: ApiKeys, header: str) -> None:
    with pytest.raises(Unauthorised):
        Keys(api_keys, "127.0.0.1", BOOTSTRAP).principal_of({"authorization": header})


@pytest.mark.anyio
async def test_admin_may_all_and_another_scope_only_itself(api_keys: ApiKeys, clock: ManualClock) -> None:
    guard = made_guard(Keys(api_keys, "127.0.0.1"), clock)
    made = {scope: (await api_keys.create("default", scope, [scope])).key for scope in SCOPES}
    for scope, key in made.items():
        for wanted in SCOPES:
            if scope in ("admin", wanted):
                assert guard.asker(wanted, bearer(key), CLIENT).tenant == "default"
            else:
                with pytest.raises(Forbidden, match=wanted):
                    guard.asker(wanted, bearer(key), CLIENT)


@pytest.mark.anyio
async def test_a_worker_key_carries_the_services_it_is_for(api_keys: ApiKeys) -> None:
    made = await api_keys.create("acme", "w", ["worker"], services=["sum", "route"])
    principal = Keys(api_keys, "127.0.0.1").principal_of(bearer(made.key))
    assert (principal.tenant, principal.services) == ("acme", frozenset({"sum", "route"}))


# ------------------------------------------------------------------------------------------------------------- rates


def test_a_caller_may_send_a_burst_and_then_as_many_as_the_rate_says(clock: ManualClock) -> None:
    rate = Rate("rate_per_key", 10, clock.monotonic)
    for _ in range(20):
        rate.take("a")
    with pytest.raises(TooManyRequests, match="rate_per_key") as caught:
        rate.take("a")
    assert caught.value.retry_after_secs == 1
    clock.seconds += 0.1
    rate.take("a")
    with pytest.raises(TooManyRequests):
        rate.take("a")


def test_one_caller_does_not_use_up_what_another_has(clock: ManualClock) -> None:
    rate = Rate("rate_per_key", 1, clock.monotonic)
    for _ in range(2):
        rate.take("a")
    with pytest.raises(TooManyRequests):
        rate.take("a")
    rate.take("b")


def test_only_so_many_callers_are_remembered(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(monkeypatch, callers_max=3)
    rate = Rate("rate_per_address", 1, clock.monotonic)
    for number in range(100):
        rate.take(str(number))
    assert len(rate._buckets) == 3


@pytest.mark.anyio
async def test_in_local_mode_nothing_is_counted(api_keys: ApiKeys, clock: ManualClock) -> None:
    guard = made_guard(Keys(api_keys, "127.0.0.1"), clock, rate_per_key=1, rate_per_address=1)
    assert {guard.asker("run", {}, CLIENT) for _ in range(100)} == {LOCAL}


@pytest.mark.anyio
async def test_who_guesses_keys_is_slowed_down_by_address(api_keys: ApiKeys, clock: ManualClock) -> None:
    guard = made_guard(Keys(api_keys, "127.0.0.1", BOOTSTRAP), clock, rate_per_address=1)
    for _ in range(2):
        with pytest.raises(Unauthorised):
            guard.asker("read", bearer("hf_wrong"), CLIENT)
    with pytest.raises(TooManyRequests, match="rate_per_address"):
        guard.asker("read", bearer("hf_wrong"), CLIENT)
    assert guard.asker("read", bearer(BOOTSTRAP), CLIENT).may("read")


@pytest.mark.anyio
async def test_a_key_is_slowed_down_wherever_it_is_used_from(api_keys: ApiKeys, clock: ManualClock) -> None:
    guard = made_guard(Keys(api_keys, "127.0.0.1", BOOTSTRAP), clock, rate_per_key=1)
    for number in range(2):
        guard.asker("read", bearer(BOOTSTRAP), f"192.0.2.{number}")
    with pytest.raises(TooManyRequests, match="rate_per_key"):
        guard.asker("read", bearer(BOOTSTRAP), "192.0.2.9")


@pytest.mark.anyio
async def test_an_open_route_needs_no_key(api_keys: ApiKeys, clock: ManualClock) -> None:
    guard = made_guard(Keys(api_keys, "127.0.0.1", BOOTSTRAP), clock)
    assert guard.asker(None, {}, CLIENT) == ANONYMOUS
    assert ANONYMOUS.scopes == frozenset()
