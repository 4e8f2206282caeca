"""The store on a real PostgreSQL server: the common suite, and what only PostgreSQL has."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg  # type: ignore[import-untyped]  # it has no stubs
import pytest

from holdfast.errors import NodeIsOver, SchemaTooNew, StoreUnavailable
from holdfast.store.batch import Batch
from holdfast.store.beats import end_beat
from holdfast.store.postgres.store import PostgresStore
from holdfast.store.records import NewLogLine
from holdfast.values import DEFAULT_TENANT, Millis, RunNo
from tests.postgres import Proxy, Server
from tests.store.conformance import StoreConformance
from tests.store.conformance.batches import (
    T0,
    Open,
    appended,
    asks,
    change,
    changed,
    commit,
    due_runs,
    feed_of,
    left_runs,
    mail,
    outcome_of,
    posted,
    row,
    rows_of,
    started,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def database(postgres_server: Server) -> str:
    return await postgres_server.clean_database()


@pytest.fixture
async def store_factory(database: str) -> AsyncIterator[Open]:
    opened: list[PostgresStore] = []

    async def open_again() -> PostgresStore:
        store = PostgresStore(database)
        opened.append(store)
        await store.open()
        return store

    yield open_again
    for store in opened:
        await store.close()


class TestPostgres(StoreConformance):
    """Every promise of a store, on a server."""


# --------------------------------------------------------------------------------- which databases are refused


async def refusal(url: str) -> str:
    store = PostgresStore(url)
    with pytest.raises((StoreUnavailable, SchemaTooNew)) as refused:
        await store.open()
    return str(refused.value)


async def test_a_server_that_does_not_answer_is_named_without_the_password() -> None:
    said = await refusal("postgresql://ada:hunter2@127.0.0.1:1/holdfast")
    assert "127.0.0.1:1" in said and "is the server running" in said and "hunter2" not in said


async def test_a_database_that_does_not_exist_is_refused_with_what_to_do(postgres_server: Server) -> None:
    assert "createdb" in await refusal(postgres_server.address("no_such_database"))


async def test_the_tables_of_another_program_are_left_alone(postgres_server: Server) -> None:
    url = await postgres_server.new_database(empty=True)
    await postgres_server.execute("CREATE TABLE orders (id int)", url)
    assert "tables of another program (orders)" in await refusal(url)


async def test_a_newer_schema_is_refused(postgres_server: Server) -> None:
    url = await postgres_server.new_database()
    await postgres_server.execute("INSERT INTO migration (number, checksum) VALUES (999, '')", url)
    assert "upgrade holdfast" in await refusal(url)


async def test_a_migration_that_was_changed_is_refused_by_its_number(postgres_server: Server) -> None:
    url = await postgres_server.new_database()
    await postgres_server.execute("UPDATE migration SET checksum = 'x'", url)
    assert "migration 001" in await refusal(url)


async def test_a_database_that_does_not_wait_for_the_disk_is_refused(postgres_server: Server) -> None:
    url = await postgres_server.new_database()
    name = urlsplit(url).path[1:]
    await postgres_server.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    assert "synchronous_commit=off" in await refusal(url)


async def test_a_server_without_fsync_is_refused_unless_the_loss_is_accepted(postgres_server: Server) -> None:
    url = await postgres_server.new_database()
    assert "unsafe=1" in await refusal(url.removesuffix("&unsafe=1"))


async def test_a_database_that_can_only_be_read_is_refused(postgres_server: Server) -> None:
    url = await postgres_server.new_database()
    name = urlsplit(url).path[1:]
    await postgres_server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    assert "can only be read" in await refusal(url)


# --------------------------------------------------------------------------------------- connections that break


@pytest.fixture
async def proxy(database: str, tmp_path: Path) -> AsyncIterator[Proxy]:
    async with Proxy(database, tmp_path) as between:
        yield between


@pytest.fixture
async def far(proxy: Proxy) -> AsyncIterator[PostgresStore]:
    """A store behind the proxy."""
    store = PostgresStore(proxy.url)
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("times", [1, 3])
async def test_a_commit_whose_answer_is_lost_lands_once(far: PostgresStore, proxy: Proxy, times: int) -> None:
    await commit(far, started(1))
    proxy.swallows = times
    await commit(far, appended(row(1, 2)))
    assert proxy.swallows == 0
    await commit(far, appended(row(1, 3)))
    assert await rows_of(far, 1) == {1: [1, 2, 3]}


async def test_a_commit_in_several_statements_whose_answer_is_lost_lands_once(
    far: PostgresStore, proxy: Proxy
) -> None:
    await commit(far, started(1, 2))
    for lost in range(1, 9):
        batch = appended(row(1, 1 + lost))
        batch.keys += [asks(1, key=str(lost)), asks(2, key=str(lost))]
        proxy.swallows = 1
        await commit(far, batch)
        assert [verdict[2] for verdict in batch.verdicts] == ["granted", "held"]
    assert await rows_of(far, 1) == {1: list(range(1, 10))}


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON journal EXECUTE FUNCTION refuse()
"""


async def test_a_commit_that_the_server_refuses_is_told_at_once_and_the_next_one_counts(
    postgres_server: Server,
) -> None:
    """A full disk, as the server tells it. Nothing is in doubt, so nobody waits for that to be settled."""
    database = await postgres_server.new_database()
    store = PostgresStore(database, unknown_seconds=600)
    await store.open()
    await commit(store, started(1))
    await postgres_server.execute(REFUSE, database)
    outcome = await outcome_of(store, appended(row(1, 2)))
    assert isinstance(outcome, StoreUnavailable)
    assert "No space left on device; make room on the disk of the server" in str(outcome)
    await postgres_server.execute("DROP TRIGGER refuse ON journal", database)
    await commit(store, appended(row(1, 2)))
    assert await rows_of(store, 1) == {1: [1, 2]}
    await store.close()


@pytest.mark.parametrize("code", ["40P01", "40001", "55P03"])
async def test_a_claim_that_the_server_takes_back_because_of_another_statement_is_tried_again_later(
    postgres_server: Server, code: str
) -> None:
    """A deadlock, a conflict, or a lock that is held for long. No run is at fault."""
    database = await postgres_server.new_database()
    store = PostgresStore(database)
    await store.open()
    await commit(store, started(1, wake_at=T0, owned=False))
    refuse = REFUSE.replace("53100", code).replace("INSERT ON journal", "UPDATE ON run")
    await postgres_server.execute(refuse, database)
    with pytest.raises(StoreUnavailable):
        await store.claim("due", Millis(T0), 1)
    with pytest.raises(StoreUnavailable):
        await store.claim_run(RunNo(1))
    await postgres_server.execute("DROP TRIGGER refuse ON run", database)
    assert [one.no for one in await store.claim("due", Millis(T0), 1)] == [1]
    await store.close()


async def test_rights_that_are_taken_away_are_no_fault_of_a_run(
    postgres_server: Server,
) -> None:
    database = await postgres_server.new_database()
    await postgres_server.execute(REFUSE.replace("53100", "42501"), database)
    store = PostgresStore(database, unknown_seconds=600)
    await store.open()
    outcome = await outcome_of(store, started(1))
    assert isinstance(outcome, StoreUnavailable) and "grant it all rights" in str(outcome)
    await postgres_server.execute("DROP TRIGGER refuse ON journal", database)
    await commit(store, started(1))
    await store.close()


async def test_a_time_limit_for_statements_of_the_role_does_not_cut_a_commit_off(
    postgres_server: Server,
) -> None:
    """It would end the wait for a synchronous standby, and the commit would count without that."""
    database = await postgres_server.new_database()
    name = urlsplit(database).path[1:]
    await postgres_server.execute(f"ALTER DATABASE {name} SET statement_timeout = '1ms'")
    store = PostgresStore(database)
    await store.open()
    assert await store._db.fetchval("SHOW statement_timeout") == "0"
    await commit(store, started(1))
    await store.close()


async def test_the_feed_goes_on_after_a_restore_on_a_server_that_has_made_fewer_transactions(
    postgres_server: Server,
) -> None:
    database = await postgres_server.new_database()
    before = PostgresStore(database)
    await before.open()
    await commit(before, started(1))
    await before.close()
    await postgres_server.execute(
        "UPDATE journal SET xid = (xid::text::bigint + 1000000)::text::xid8", database
    )
    for seq in (2, 3):  # a node that is started again finds the order in place
        restored = PostgresStore(database)
        await restored.open()
        kept = await restored.feed_end()
        await commit(restored, appended(row(1, seq)))
        assert [one.seq for one in (await restored.feed(DEFAULT_TENANT, kept, 9)).rows] == [seq]
        await restored.close()
    last = PostgresStore(database)
    await last.open()
    assert [one.seq for one in await feed_of(last)] == [1, 2, 3]
    await last.close()


async def test_a_commit_that_reaches_the_server_twice_is_written_once(
    database: str, postgres_server: Server
) -> None:
    """Its connection broke, and was sent again; then the first copy arrives. A log line has no key that would stop it."""
    store = PostgresStore(database)
    await store.open()
    await commit(store, started(1))
    batch = Batch()
    batch.logs.append(NewLogLine(RunNo(1), "a", 1, Millis(T0), "info", "once", 10, "more"))
    text, args = store._writes.composed(batch, 2)
    await commit(store, batch)
    late = await postgres_server.connect(database)
    with pytest.raises(asyncpg.DivisionByZeroError):
        await late.fetch(text, *args)
    await late.close()
    assert len(await store.log_lines(RunNo(1), 0, 9, path="a")) == 1
    await store.close()


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Called, it lets a store give a server up soon: a commit only once it has surely reached the server, however busy that is."""

    def give_up_soon() -> None:
        monkeypatch.setattr("holdfast.store.postgres.asking.ANSWER_SECONDS", 0.5)
        monkeypatch.setattr("holdfast.store.postgres.store.COMMIT_SECONDS", 3.0)

    return give_up_soon


async def test_a_server_that_says_nothing_any_more_is_given_up(
    far: PostgresStore, proxy: Proxy, impatience: Callable[[], None]
) -> None:
    """As one whose machine has died. Nothing waits until the network gives up, which takes a quarter of an hour."""
    await commit(far, started(1))
    batch = started(2)
    batch.new_runs[RunNo(2)].workflow = "another"  # whose series is asked for before the commit
    proxy.is_hole = True
    impatience()
    async with asyncio.timeout(60):
        with pytest.raises(StoreUnavailable, match="has not answered for"):
            await far.run_by_no(RunNo(1))
        assert "has not answered for" in str(await outcome_of(far, batch))
    proxy.is_hole = False
    proxy.cut()  # else their pumps wait for what never comes


async def test_a_server_that_says_nothing_any_more_in_a_transaction_is_given_up(
    far: PostgresStore,
    proxy: Proxy,
    database: str,
    postgres_server: Server,
    impatience: Callable[[], None],
) -> None:
    await commit(far, started(1))
    far._unknown_seconds = 0
    batch = appended(row(1, 2))
    batch.keys.append(asks(1))  # written by several statements
    async with row_held(postgres_server, database, RunNo(1), 2) as until_waiting:
        impatience()
        told = outcome_of(far, batch)
        await until_waiting(1)
        proxy.is_hole = True
        async with asyncio.timeout(60):
            assert "has not answered for" in str(await told)
        proxy.is_hole = False
        proxy.cut()


async def test_a_commit_whose_first_copy_lands_while_the_second_waits_for_it_is_acknowledged(
    far: PostgresStore, proxy: Proxy, database: str, postgres_server: Server
) -> None:
    await commit(far, started(1))
    async with row_held(postgres_server, database, RunNo(1), 2) as until_waiting:
        told = outcome_of(far, appended(row(1, 2)))
        await until_waiting(1)
        proxy.cut()
        await until_waiting(2)
    assert await told is None
    await commit(far, appended(row(1, 3)))
    assert await rows_of(far, 1) == {1: [1, 2, 3]}


async def test_a_commit_that_was_given_up_and_lands_later_is_not_taken_for_the_next_one(
    database: str, tmp_path: Path, postgres_server: Server
) -> None:
    """The answer of the next one is lost, too."""
    async with Proxy(database, tmp_path) as proxy:
        store = PostgresStore(proxy.url, unknown_seconds=0)
        await store.open()
        await commit(store, started(1, 2))
        async with row_held(postgres_server, database, RunNo(1), 2) as until_waiting:
            told = outcome_of(store, appended(row(1, 2)))
            await until_waiting(1)
            proxy.cut()
            assert isinstance(await told, StoreUnavailable)
            store._unknown_seconds = 60
            told = outcome_of(store, appended(row(2, 2)))
            await until_waiting(2)
            proxy.cut()
        assert await told is None or isinstance(told.result(), StoreUnavailable)
        if told.result() is not None:
            await commit(store, appended(row(2, 2)))
        assert await rows_of(store, 1, 2) == {1: [1, 2], 2: [1, 2]}
        await store.close()


WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
)


@asynccontextmanager
async def row_held(
    server: Server, database: str, no: RunNo, seq: int
) -> AsyncIterator[Callable[[int], Awaitable[None]]]:
    """Meanwhile a commit that writes this row waits. Gives a function that waits until so many sessions do."""
    holder, other = await server.connect(database), await server.connect(database)

    async def until_waiting(sessions: int) -> None:
        async with asyncio.timeout(60):
            while await other.fetchval(WAITING) < sessions:
                await asyncio.sleep(0.01)

    transaction = holder.transaction()
    await transaction.start()
    await holder.execute(
        "INSERT INTO journal (run, seq, epoch, at, kind, body) VALUES ($1, $2, 1, 0, 'held', '')", no, seq
    )
    try:
        yield until_waiting
    finally:
        await transaction.rollback()
        await holder.close()
        await other.close()


async def test_a_store_that_lost_its_connection_is_closed(far: PostgresStore, proxy: Proxy) -> None:
    proxy.cut()
    proxy.refuses = True
    assert isinstance(await outcome_of(far, started(1)), StoreUnavailable)
    await far.close()


async def test_a_commit_on_a_connection_that_was_cut_is_sent_on_a_new_one(
    far: PostgresStore, proxy: Proxy
) -> None:
    await commit(far, started(1))
    proxy.cut()
    await commit(far, appended(row(1, 2)))
    assert await rows_of(far, 1) == {1: [1, 2]}


async def test_while_no_connection_can_be_made_a_commit_is_refused_or_waits_and_never_lands_twice(
    far: PostgresStore, proxy: Proxy
) -> None:
    await commit(far, started(1))
    proxy.refuses = True
    proxy.cut()
    told = outcome_of(far, appended(row(1, 2)))
    with pytest.raises(StoreUnavailable):
        await far.run_by_no(RunNo(1))
    proxy.refuses = False
    if await told is not None:
        assert isinstance(told.result(), StoreUnavailable)
        await commit(far, appended(row(1, 2)))
    assert await rows_of(far, 1) == {1: [1, 2]}


async def test_a_node_that_was_taken_over_while_its_answer_was_lost_does_not_send_again(
    far: PostgresStore, proxy: Proxy, store_factory: Open
) -> None:
    await commit(far, started(1))
    proxy.is_hole = True
    told = outcome_of(far, appended(row(1, 2)))
    younger = await store_factory()
    proxy.is_hole = False
    proxy.cut()
    assert isinstance(await told, NodeIsOver)
    assert await rows_of(younger, 1) == {1: [1]}


# -------------------------------------------------------------------------------------------------- many nodes


async def test_rows_are_shown_in_the_order_of_commits_and_not_of_their_numbers(
    store_factory: Open, database: str, postgres_server: Server
) -> None:
    store = await store_factory()
    slow = await postgres_server.connect(database)
    await slow.execute("BEGIN")
    await slow.execute(
        "INSERT INTO journal (run, seq, epoch, at, kind, body) VALUES (9, 1, 0, 0, 'step_succeeded', '[1]')"
    )
    await commit(store, started(1))
    assert await feed_of(store) == []  # the row of the older transaction may still come before it
    assert (await store.feed(DEFAULT_TENANT, store.cursor("0"), 9)).rows == []
    await slow.execute("COMMIT")
    await slow.close()
    assert [each.no for each in await feed_of(store)] == [1]
    assert await store.rows_after(store.cursor("0")) == 2


async def test_numbers_of_two_nodes_differ_and_follow_the_time(database: str) -> None:
    stores = [PostgresStore(f"{database}&node={name}") for name in "ab"]
    for store in stores:
        await store.open()
    given = [store.next_no() for _ in range(5_000) for store in stores]
    assert len(set(given)) == len(given)
    for store, mine in zip(stores, (given[::2], given[1::2]), strict=True):
        assert mine == sorted(mine)
        await store.close()


async def test_of_two_living_nodes_neither_claims_what_the_other_drives_or_has_claimed(database: str) -> None:
    one, other = [PostgresStore(f"{database}&node={name}") for name in "ab"]
    await one.open()
    await other.open()
    await commit(one, started(1))
    await commit(one, started(2, status="waiting", owned=False, wake_at=T0))
    assert await left_runs(other) == [] and await other.claim_run(RunNo(1)) is None
    assert await due_runs(one, T0) == [2]
    assert await due_runs(other, T0) == [] and await other.claim_run(RunNo(2)) is None
    await one.close()  # released by its end
    assert await left_runs(other) == [1] and await due_runs(other, T0) == [2]
    await other.close()


async def test_a_run_that_is_released_while_a_letter_is_posted_is_due_at_once(database: str) -> None:
    owner, poster = [PostgresStore(f"{database}&node={name}") for name in "ab"]
    await owner.open()
    await poster.open()
    await commit(owner, started(1))
    await commit(poster, posted(mail(1, "a")))
    await commit(owner, changed(1, change("waiting", owned=False, wake_at=T0 + 10**9)))
    assert await due_runs(poster, T0 + 1) == [1]
    await owner.close()
    await poster.close()


async def test_a_node_whose_lease_expired_is_over_once_another_has_noticed(database: str) -> None:
    slow, quick = PostgresStore(f"{database}&node=a", lease_ms=1), PostgresStore(f"{database}&node=b")
    await slow.open()
    await quick.open()
    await commit(slow, started(1))
    while not await left_runs(quick):
        await quick.declare()
    assert not slow.trusts_lease()
    assert isinstance(await outcome_of(slow, appended(row(1, 2))), NodeIsOver)
    with pytest.raises(NodeIsOver):
        await slow.renew()
    await slow.close()
    await quick.close()


async def test_slow_reads_do_not_delay_the_renewal_of_a_lease(database: str, postgres_server: Server) -> None:
    store = PostgresStore(database)
    await store.open()
    holder = await postgres_server.connect(database)
    transaction = holder.transaction()
    await transaction.start()
    await holder.execute("LOCK TABLE log")
    reads = [asyncio.create_task(store.log_lines(RunNo(1), 0, 9, path="a")) for _ in range(8)]
    async with asyncio.timeout(60):
        while not await holder.fetchval(WAITING):
            await asyncio.sleep(0.01)
    await store.renew()
    assert not any(read.done() for read in reads)
    await transaction.rollback()
    await asyncio.gather(*reads)
    await holder.close()
    await store.close()


async def test_a_duration_is_counted_in_the_same_range_as_on_sqlite(
    postgres_server: Server, database: str
) -> None:
    took = [*range(40), *(2**power + by for power in range(6, 36) for by in (-1, 0, 1)), -5]
    connection = await postgres_server.connect(database)
    found = await connection.fetch("SELECT end_beat('failed', t) FROM unnest($1::bigint[]) t", took)
    await connection.close()
    assert [row[0] for row in found] == [end_beat("failed", ms) for ms in took]


async def test_text_with_nul_is_stored_with_a_replacement_and_the_commit_works(database: str) -> None:
    store = PostgresStore(database)
    await store.open()
    batch = started(1)
    batch.logs.append(NewLogLine(RunNo(1), "a\0b", 1, Millis(T0), "info", "x\0y", 10, "more"))
    await commit(store, batch)
    (line,) = await store.log_lines(RunNo(1), 0, 9, path="a\0b")
    assert line.text == "x\ufffdy"
    await store.close()


async def test_one_node_at_a_time_has_a_duty_until_it_leaves(database: str) -> None:
    one, other = PostgresStore(f"{database}&node=a"), PostgresStore(f"{database}&node=b")
    await one.open()
    await other.open()
    assert await one.take_duty("upkeep", 3600)
    assert await one.take_duty("upkeep", 3600)
    assert not await other.take_duty("upkeep", 3600)
    await one.close()
    assert await other.take_duty("upkeep", 3600)
    await other.close()


async def test_callers_of_a_commit_of_unknown_outcome_are_refused_and_it_is_settled_before_the_next(
    database: str, tmp_path: Path
) -> None:
    """Once with a commit that was written, and once with one that was not."""
    async with Proxy(database, tmp_path) as proxy:
        store = PostgresStore(proxy.url, unknown_seconds=0.2)
        await store.open()
        await commit(store, started(1))
        for seq, is_written in ((2, True), (3, False)):
            proxy.swallows, proxy.drops, proxy.refuses = int(is_written), not is_written, True
            assert isinstance(await outcome_of(store, appended(row(1, seq))), StoreUnavailable)
            proxy.refuses = proxy.drops = False
            probe = Batch()
            probe.is_probe = True
            await commit(store, probe)
            assert (await store.last_seq(RunNo(1)) == seq) is is_written
        await store.close()


@asynccontextmanager
async def missing_standby(server: Server) -> AsyncIterator[None]:
    """Meanwhile commits of the server wait for a standby that it does not have."""
    await set_standbys(server, "missing")
    try:
        yield
    finally:
        await set_standbys(server, "")


async def set_standbys(server: Server, names: str) -> None:
    await server.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    await server.execute("SELECT pg_reload_conf()")
    async with asyncio.timeout(60):
        while await one_commit_waits(server) is not bool(names):
            await asyncio.sleep(0.05)


async def one_commit_waits(server: Server) -> bool:
    """Whether a commit, made by a connection of its own, waits for a standby."""
    connection, other = await server.connect(), await server.connect()
    commit = asyncio.create_task(connection.execute("COMMENT ON DATABASE postgres IS 'asked'"))
    try:
        while not commit.done():
            if await other.fetchval(WAITS_FOR_A_STANDBY, connection.get_server_pid()):
                return True
            await asyncio.sleep(0.01)
        await commit
        return False
    finally:
        connection.terminate()
        other.terminate()
        await asyncio.gather(commit, return_exceptions=True)


WAITS_FOR_A_STANDBY = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep'"
END_OF_THE_WAIT = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'
"""


async def test_a_commit_that_no_standby_has_is_not_acknowledged_when_its_session_ends(
    postgres_server: Server, database: str
) -> None:
    """It can be read then, but only on a server that may be lost."""
    store = PostgresStore(database, unknown_seconds=1.0)
    await store.open()
    await commit(store, started(1))
    other = await postgres_server.connect(database)
    async with missing_standby(postgres_server):
        outcome = outcome_of(store, appended(row(1, 2)))
        ended = 0
        async with asyncio.timeout(60):
            while not outcome.done():
                ended += len(await other.fetch(END_OF_THE_WAIT))
                await asyncio.sleep(0.01)
        assert ended and isinstance(await outcome, StoreUnavailable)
    probe = Batch()
    probe.is_probe = True
    await commit(store, probe)
    assert await store.last_seq(RunNo(1)) == 2
    await other.close()
    await store.close()
