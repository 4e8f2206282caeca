"""Keys of callers: shown once, known by their hash, and of no use from the moment in which they are revoked."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast.errors import InvalidInputs, LimitExceeded, NotFound
from holdfast.ops.api_keys import ApiKeys
from holdfast.store.sqlite.store import SqliteStore
from holdfast.testing import ManualClock
from holdfast.tools.registry import Registry
from holdfast.values import Millis
from tests.runtime.bench import engine_on
from tests.small_limits import with_limits

HOUR = 3600


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@asynccontextmanager
async def opened(file: Path, clock: ManualClock) -> AsyncIterator[ApiKeys]:
    engine = engine_on(SqliteStore(str(file)), Registry(), clock)
    await engine.open(drive=False)
    keys = ApiKeys(engine.store, engine.clock, engine.gate)
    await keys.load()
    yield keys
    await keys.close()
    await engine.close()


@pytest.fixture
async def keys(file: Path, clock: ManualClock) -> AsyncIterator[ApiKeys]:
    async with opened(file, clock) as keys:
        yield keys


def column(file: Path, name: str) -> list[Any]:
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [value for (value,) in db.execute(f"SELECT {name} FROM api_key")]
    finally:
        db.close()


@pytest.mark.anyio
async def test_a_key_is_known_again_with_what_it_was_made_for(keys: ApiKeys) -> None:
    made = await keys.create("acme", "ci", ["run", "read"], services=[])
    row = keys.known(made.key)
    assert row is not None
    assert (row.id, row.tenant, row.name, row.scopes) == (made.row.id, "acme", "ci", "read run")


@pytest.mark.anyio
async def test_a_key_has_256_random_bits_and_says_what_it_is(keys: ApiKeys) -> None:
    made = [(await keys.create("default", "one", ["read"])).key for _ in range(50)]
    assert len(set(made)) == 50
    assert all(key.startswith("hf_") and len(key) == 3 + 43 for key in made)


@pytest.mark.anyio
async def test_the_file_never_holds_a_key_itself(keys: ApiKeys, file: Path) -> None:
    made = await keys.create("default", "one", ["admin"])
    bytes_on_disk = b"".join(path.read_bytes() for path in file.parent.iterdir())
    assert made.row.hash.encode() in bytes_on_disk
    assert made.key.encode() not in bytes_on_disk
    assert made.key[3:].encode() not in bytes_on_disk


@pytest.mark.parametrize("wrong", ["", "hf_", "hf_x", "x" * 10_000, "hf_\udcff", "schlüssel"])
@pytest.mark.anyio
async def test_what_is_no_key_is_not_known(keys: ApiKeys, wrong: str) -> None:
    await keys.create("default", "one", ["admin"])
    assert keys.known(wrong) is None


@pytest.mark.anyio
async def test_a_revoked_key_counts_no_longer_at_once(keys: ApiKeys) -> None:
    made = await keys.create("default", "one", ["admin"])
    assert keys.known(made.key) is not None
    await keys.revoke("default", made.row.id)
    assert keys.known(made.key) is None


@pytest.mark.anyio
async def test_revoking_again_keeps_the_first_time(keys: ApiKeys, clock: ManualClock) -> None:
    made = await keys.create("default", "one", ["admin"])
    first = await keys.revoke("default", made.row.id)
    clock.seconds += HOUR
    assert await keys.revoke("default", made.row.id) == first


@pytest.mark.anyio
async def test_another_tenant_cannot_revoke_or_see_a_key(keys: ApiKeys) -> None:
    made = await keys.create("acme", "one", ["admin"])
    with pytest.raises(NotFound):
        await keys.revoke("other", made.row.id)
    assert keys.known(made.key) is not None
    assert keys.of_tenant("other") == []


@pytest.mark.anyio
async def test_keys_are_there_after_the_file_was_opened_again(
    keys: ApiKeys, file: Path, clock: ManualClock
) -> None:
    kept = await keys.create("default", "kept", ["read"])
    clock.seconds += 1
    gone = await keys.create("default", "gone", ["read"])
    await keys.revoke("default", gone.row.id)
    async with opened(file, clock) as again:
        assert again.known(kept.key) is not None
        assert again.known(gone.key) is None
        assert [row.name for row in again.of_tenant("default")] == ["kept", "gone"]


@pytest.mark.anyio
async def test_a_key_counts_until_it_expires_and_not_then(keys: ApiKeys, clock: ManualClock) -> None:
    made = await keys.create("default", "short", ["read"], expires_at=Millis(clock.now() + 1_000))
    clock.seconds += 0.999
    assert keys.known(made.key) is not None
    clock.seconds += 0.001
    assert keys.known(made.key) is None


@pytest.mark.anyio
async def test_when_a_key_was_used_is_written_once_an_hour_at_most(
    keys: ApiKeys, clock: ManualClock, file: Path
) -> None:
    made = await keys.create("default", "one", ["read"])
    began = clock.now()
    for _ in range(100):
        keys.known(made.key)
        clock.seconds += 1
    await keys.close()
    assert column(file, "last_used_at") == [began]
    clock.seconds += HOUR
    keys.known(made.key)
    await keys.close()
    assert column(file, "last_used_at") == [clock.now()]


@pytest.mark.anyio
async def test_a_use_that_is_written_late_does_not_bring_a_revoked_key_back(
    keys: ApiKeys, file: Path
) -> None:
    made = await keys.create("default", "one", ["read"])
    keys.known(made.key)  # its writing has not begun
    await keys.revoke("default", made.row.id)
    await keys.close()
    assert keys.known(made.key) is None
    assert column(file, "revoked_at") != [None]


@pytest.mark.anyio
async def test_a_file_with_revoked_keys_alone_has_had_a_key(keys: ApiKeys) -> None:
    assert not keys.is_any
    made = await keys.create("default", "one", ["admin"])
    await keys.revoke("default", made.row.id)
    assert keys.is_any


@pytest.mark.parametrize(
    ("tenant", "name", "scopes", "services", "says"),
    [
        ("", "k", ["read"], [], "tenant"),
        ("Acme", "k", ["read"], [], "tenant"),
        ("a/b", "k", ["read"], [], "tenant"),
        ("a" * 65, "k", ["read"], [], "tenant"),
        ("default", "", ["read"], [], "name"),
        ("default", "a\nb", ["read"], [], "name"),
        ("default", "\x1b[31m", ["read"], [], "name"),
        ("default", "k" * 201, ["read"], [], "name"),
        ("default", "k", [], [], "needs a scope"),
        ("default", "k", ["write"], [], "no scope 'write'"),
        ("default", "k", ["read"], ["sum"], "scope worker"),
        ("default", "k", ["worker"], ["a b"], "without spaces"),
        ("default", "k", ["worker"], ["s"] * 101, "at most 100"),
    ],
)
@pytest.mark.anyio
async def test_what_a_key_cannot_be_made_of_is_refused_and_makes_none(
    keys: ApiKeys, tenant: str, name: str, scopes: list[str], services: list[str], says: str
) -> None:
    with pytest.raises(InvalidInputs, match=says):
        await keys.create(tenant, name, scopes, services=services)
    assert not keys.is_any


@pytest.mark.anyio
async def test_a_key_that_would_have_expired_already_is_refused(keys: ApiKeys, clock: ManualClock) -> None:
    with pytest.raises(InvalidInputs, match="expired"):
        await keys.create("default", "one", ["read"], expires_at=clock.now())


@pytest.mark.anyio
async def test_keys_are_limited_in_number(keys: ApiKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(monkeypatch, keys_max=1)
    await keys.create("default", "one", ["read"])
    with pytest.raises(LimitExceeded, match="too_many_keys"):
        await keys.create("default", "two", ["read"])
