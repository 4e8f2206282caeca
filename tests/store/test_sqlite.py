"""The store on real SQLite files: the common suite, and what only SQLite has (WAL, syncs, epochs between processes)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from holdfast.errors import SchemaTooNew
from holdfast.store.batch import Batch
from holdfast.store.records import EarlyResult, ReplyRow
from holdfast.store.schedule_records import ScheduleEnd
from holdfast.store.sqlite.store import WAL_BYTES, SqliteStore
from holdfast.store.statements import migrations, schema, statements
from holdfast.values import Millis, RunNo
from tests.crash.disk import Disk
from tests.store.conformance import StoreConformance
from tests.store.conformance.batches import T0, Open, appended, commit, journal_of, row, rows_of, started

ROOT = Path(__file__).parents[2]

OpenFile = Callable[[], SqliteStore]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture
def store_factory(file: Path) -> Iterator[OpenFile]:
    opened: list[SqliteStore] = []

    def open_again() -> SqliteStore:
        store = SqliteStore(str(file))
        store.open_file()
        opened.append(store)
        return store

    yield open_again
    for store in opened:
        store.close_file()


def read(file: Path, query: str) -> list[tuple[object, ...]]:
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(db.execute(query))
    finally:
        db.close()


class TestSqlite(StoreConformance):
    """Every promise of a store, on a file."""

    threads = True

    @pytest.fixture
    async def store_factory(self, file: Path) -> AsyncIterator[Open]:
        opened: list[SqliteStore] = []

        async def open_again() -> SqliteStore:
            store = SqliteStore(str(file), threads=self.threads)
            opened.append(store)
            await store.open()
            return store

        yield open_again
        for store in opened:
            await store.close()


class TestSqliteWithoutThreads(TestSqlite):
    """The same where each commit is made by the caller's own thread."""

    threads = False


# ------------------------------------------------------------------------------------------- durable settings


def test_the_file_is_in_wal_mode(store_factory: OpenFile, file: Path) -> None:
    store_factory()
    assert read(file, "PRAGMA journal_mode") == [("wal",)]


def syncs_per_commit(folder: Path, durability: str) -> list[int]:
    """How often the disk was asked to sync the WAL in each of a few commits, as seen when `done` is called."""
    with Disk() as disk:
        store = SqliteStore(disk.uri(folder / "synced.db"), durability=durability, threads=False)
        store.open_file()
        totals = [disk.syncs]
        for seq in range(1, 6):
            store.submit(appended(row(1, seq)), lambda _: totals.append(disk.syncs))
        store.close_file()
    return [after - before for before, after in pairwise(totals)]


def test_every_commit_is_synced_before_done_is_called(tmp_path: Path) -> None:
    assert all(count >= 1 for count in syncs_per_commit(tmp_path, "full"))


def test_relaxed_durability_does_not_sync_every_commit(tmp_path: Path) -> None:
    assert syncs_per_commit(tmp_path, "relaxed")[1:] == [0, 0, 0, 0]


@pytest.mark.anyio
async def test_the_wal_is_grown_beforehand_so_that_a_commit_changes_no_file_size(
    store_factory: OpenFile, file: Path
) -> None:
    store = store_factory()
    wal = Path(f"{file}-wal")
    assert wal.stat().st_size >= WAL_BYTES
    before = wal.stat().st_size, file.stat().st_size
    for seq in range(1, 20):
        await commit(store, appended(row(1, seq)))
    assert (wal.stat().st_size, file.stat().st_size) == before


# ------------------------------------------------------------------------------------------------- open, close


@pytest.mark.anyio
async def test_a_closed_file_has_only_its_mark_beside_it_and_opens_again(
    store_factory: OpenFile, file: Path
) -> None:
    for count in range(1, 4):
        store = store_factory()
        await commit(store, started(count))
        await store.close()
        assert {entry.name for entry in file.parent.iterdir()} == {file.name, f"{file.name}.mark"}
    assert await rows_of(store_factory(), 1, 2, 3) == {1: [1], 2: [1], 3: [1]}


@pytest.mark.anyio
async def test_a_file_copied_with_its_wal_holds_everything_committed(
    store_factory: OpenFile, file: Path
) -> None:
    await commit(store_factory(), started(1, rows=100))
    copy = file.with_name("copy.db")
    for ending in ("", "-wal"):
        Path(f"{copy}{ending}").write_bytes(Path(f"{file}{ending}").read_bytes())
    store = SqliteStore(str(copy))
    await store.open()
    assert len(await journal_of(store, 1)) == 100
    await store.close()


def test_closing_while_a_batch_is_on_its_way_writes_it_first(file: Path) -> None:
    async def main() -> None:
        store = SqliteStore(str(file))
        await store.open()
        store.submit(appended(*[row(1, seq) for seq in range(1, 3_000)]), lambda error: None)
        await store.close()

    asyncio.run(main())
    assert read(file, "SELECT count(*) FROM journal") == [(2_999,)]


# -------------------------------------------------------------------------------------------------- migrations


def test_migrating_from_zero_gives_the_current_schema(store_factory: OpenFile, file: Path) -> None:
    store_factory()
    by_hand = apsw.Connection(":memory:")
    for _, script in migrations("sqlite"):
        by_hand.execute(script)
    schema = "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
    assert read(file, schema) == list(by_hand.execute(schema))
    assert read(file, "SELECT value FROM meta WHERE key = 'schema'") == [(migrations("sqlite")[-1][0],)]


def test_opening_again_migrates_nothing(store_factory: OpenFile, file: Path) -> None:
    store_factory()
    before = read(file, "PRAGMA schema_version")
    store_factory()
    assert read(file, "PRAGMA schema_version") == before


def test_a_file_of_a_newer_release_is_refused_and_left_as_it_is(store_factory: OpenFile, file: Path) -> None:
    store_factory().close_file()
    db = apsw.Connection(str(file))
    db.execute("UPDATE meta SET value = 999 WHERE key = 'schema'")
    db.close()
    before = read(file, "SELECT * FROM meta")
    store = SqliteStore(str(file))
    with pytest.raises(SchemaTooNew, match="upgrade"):
        store.open_file()
    assert read(file, "SELECT * FROM meta") == before


# ----------------------------------------------------------------------------------------------- two processes

_FORMER = """
import asyncio, sys
from holdfast.store.sqlite.store import SqliteStore
from tests.store.conformance.batches import appended, outcome_of, row

async def main():
    store = SqliteStore(sys.argv[1])
    await store.open()
    print(await outcome_of(store, appended(row(1, 1))), flush=True)
    sys.stdin.readline()  # meanwhile another process opens the file
    print(type(await outcome_of(store, appended(row(1, 2)))).__name__, flush=True)
    print(type(await outcome_of(store, appended(row(2, 1)))).__name__, flush=True)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.anyio
async def test_a_process_that_was_taken_over_can_append_nothing(store_factory: OpenFile, file: Path) -> None:
    former = subprocess.Popen(
        [sys.executable, "-c", _FORMER, str(file)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert former.stdout is not None
    assert former.stdout.readline() == "None\n"
    store = store_factory()
    await commit(store, appended(row(1, 2, epoch=1)))
    rest, _ = former.communicate("go on\n", timeout=120)
    assert rest.split() == ["NodeIsOver", "NodeIsOver"]
    assert former.returncode == 0
    assert [(seq, epoch) for seq, epoch, *_ in await journal_of(store, 1)] == [(1, 0), (2, 1)]
    assert await journal_of(store, 2) == []


@pytest.mark.anyio
async def test_the_wal_left_by_a_killed_process_is_read(store_factory: OpenFile, file: Path) -> None:
    killed = subprocess.run(
        [
            sys.executable,
            "-c",
            _FORMER.replace("sys.stdin.readline()", "import os; os.kill(os.getpid(), 9)"),
            str(file),
        ],
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert killed.returncode == -9
    assert os.path.getsize(f"{file}-wal") > 0
    assert await rows_of(store_factory(), 1) == {1: [1]}


LARGE = "x" * 4_000_000

EARLY = "INSERT INTO early_result (tenant, task_id, meant, expires_at, body) VALUES ('t', 'task', '', 9, ?)"
KEY = """INSERT INTO key (tenant, scope, key, run, path, created_at, expires_at, output)
         VALUES ('t', 's', 'k', 1, 'p', 1, 9, ?)"""
LOOKS = {  # queries that need the rest of a row beside its large value
    "early_room": (EARLY, ("t", 1)),
    "early_of_bytes": (EARLY, ("t", "task", "", 1)),
    "take_key": (KEY, ("t", "s", "k", 2, "p", 2)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_a_row_does_not_read_the_pages_of_its_large_value(look: str) -> None:
    insert, args = LOOKS[look]
    db = apsw.Connection("")
    db.execute(schema("sqlite"))
    db.execute(insert, (LARGE,))
    before = pages_read(db)
    list(db.execute(statements("sqlite")[look], args))
    assert pages_read(db) - before < 20


REPLY = "INSERT INTO reply (tenant, route, key, digest, status, created_at, body) VALUES ('t', 'r', 'k', '', 200, 1, ?)"
SEARCHES = {  # for keys behind that of a large value
    "early_of_bytes": (EARLY, ("t", "task", "run", 9)),
    "key_state": (KEY, ("t", "s", "l")),
    "reply": (REPLY, ("t", "r", "l")),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_does_not_read_the_large_values_that_it_passes(search: str) -> None:
    insert, args = SEARCHES[search]
    db = apsw.Connection("")
    db.execute(schema("sqlite"))
    db.execute(insert, (LARGE,))
    apsw.memory_high_water(True)
    before = apsw.memory_used()
    list(db.execute(statements("sqlite")[search], args))
    assert apsw.memory_high_water() - before < len(LARGE) / 4


VALUE = b"x" * 16_000_000  # more than the page cache of a connection
LARGE_FIELDS: dict[str, Callable[[Batch], None]] = {
    "blob": lambda batch: batch.blobs.append((RunNo(1), "ab", VALUE)),
    "early callback": lambda batch: batch.early_results.append(EarlyResult("t", "T1", "", VALUE, Millis(T0))),
    "reply": lambda batch: batch.replies.append(ReplyRow("t", "r", "k", "d", 200, VALUE, Millis(T0))),
}


@pytest.mark.parametrize("field", LARGE_FIELDS)
def test_a_commit_keeps_no_copy_of_a_large_value(store_factory: OpenFile, field: str) -> None:
    store = store_factory()
    assert store.write_now(started(1)) is None
    before = apsw.memory_used()
    batch = Batch()
    LARGE_FIELDS[field](batch)
    assert store.write_now(batch) is None
    assert apsw.memory_used() - before < len(VALUE) / 4


def test_a_commit_that_ends_many_scheduled_runs_drops_no_prepared_statement(store_factory: OpenFile) -> None:
    store = store_factory()

    def commit_ends() -> int:
        batch = Batch()
        batch.schedule_ends = [ScheduleEnd(RunNo(no), "t", f"s{no}", "", None) for no in range(200)]
        batch.rows = [row(1_000 + store.next_no(), 1)]
        assert store.write_now(batch) is None
        return int(store._write.cache_stats()["misses"])

    commit_ends()  # prepares them
    assert commit_ends() == commit_ends()


def pages_read(db: apsw.Connection) -> int:
    return sum(
        db.status(kind)[0] for kind in (apsw.SQLITE_DBSTATUS_CACHE_HIT, apsw.SQLITE_DBSTATUS_CACHE_MISS)
    )
