"""Upkeep of a real file: what is old goes whole, a copy is whole, and what is not sound is found."""

from __future__ import annotations

import asyncio
from pathlib import Path

import apsw
import pytest

from holdfast import tool
from holdfast.errors import NotFound, Refused, SchemaTooOld, StoreUnavailable
from holdfast.runtime.upkeep import Finding, back_up, examine, retire
from holdfast.store.base import Batch
from holdfast.store.sqlite import SqliteStore
from holdfast.testing import BEGAN
from holdfast.values import Millis
from tests.runtime.bench import Bench, opened, rows
from tests.runtime.manual import by_hand, clock

DAY = 24 * 60 * 60
LARGE = "name: n\nsteps: [{id: s, tool: large}]"
TABLES = ("run", "journal", "snapshot", "blob")


@tool
async def large(size: int = 40_000) -> str:
    return "x" * size


@tool
async def endless() -> None:
    await asyncio.Event().wait()


async def finished(engine: Bench, count: int) -> None:
    for _ in range(count):
        await (await engine.begin(LARGE)).result()


def left(path: Path) -> dict[str, int]:
    """How many rows of how many runs each table has."""
    column = {"run": "no"}
    return {
        table: rows(path, f"SELECT count(DISTINCT {column.get(table, 'run')}) FROM {table}")[0][0]
        for table in TABLES
    }


def reader(path: Path) -> SqliteStore:
    store = SqliteStore(str(path / "h.db"))
    store.open_to_read()
    return store


async def findings(path: Path) -> dict[str, Finding]:
    store = reader(path)
    try:
        with store.still():
            return {finding.check: finding for finding in await examine(store)}
    finally:
        store.close()


# --------------------------------------------------------------------------------------------------- retention


@by_hand
async def test_a_run_goes_with_everything_that_belongs_to_it(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 3)
        assert left(tmp_path)["blob"] == 3
        assert await retire(engine.store, Millis(BEGAN + 1_000), 100) == 3
        assert left(tmp_path) == dict.fromkeys(TABLES, 0)


@by_hand
async def test_runs_that_ended_later_stay(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
        await clock().advance(DAY)
        await finished(engine, 2)
        assert await retire(engine.store, Millis(BEGAN + 1_000), 100) == 1
        assert left(tmp_path)["run"] == 2


@by_hand
async def test_an_open_run_stays_however_old_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path, [large, endless], clock()) as engine:
        run = await engine.begin("name: n\nsteps: [{id: s, tool: endless}]")
        await clock().advance(100 * DAY)
        assert await retire(engine.store, clock().now(), 100) == 0
        assert await run.status() == "running"


@by_hand
async def test_no_more_runs_go_than_were_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 5)
        assert await retire(engine.store, Millis(BEGAN + 1_000), 3) == 3
        assert left(tmp_path)["run"] == 2


@by_hand
async def test_many_runs_go_in_small_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.runtime.upkeep.RETIRED_MAX", 2)
    sizes: list[int] = []

    def weighed(batch: Batch) -> None:
        sizes.append(len(batch.forgotten))

    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 5)
        engine.store.refuse = weighed
        assert await retire(engine.store, Millis(BEGAN + 1_000), 100) == 5
    assert [size for size in sizes if size] == [2, 2, 1]


@by_hand
async def test_a_commit_that_fails_deletes_nothing_and_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
        engine.store.refuse = lambda batch: StoreUnavailable("full") if batch.forgotten else None
        with pytest.raises(StoreUnavailable):
            await retire(engine.store, Millis(BEGAN + 1_000), 100)
        assert left(tmp_path)["run"] == 1


@by_hand
async def test_new_runs_begin_after_all_old_ones_went(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 2)
        await retire(engine.store, Millis(BEGAN + 1_000), 100)
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
    assert all(not finding.problems for finding in (await findings(tmp_path)).values())


# ------------------------------------------------------------------------------------------------------ backup


@by_hand
async def test_a_copy_made_while_runs_go_on_is_whole_and_can_be_gone_on_with(tmp_path: Path) -> None:
    (copies := tmp_path / "copies").mkdir()
    async with opened(tmp_path, [large, endless], clock()) as engine:
        await finished(engine, 2)
        run = await engine.begin("name: n\nsteps: [{id: a, tool: large}, {id: b, tool: endless}]")
        store = reader(tmp_path)
        back_up(store, copies / "h.db")
        store.close()
        await finished(engine, 1)

    @tool(name="endless")
    async def ends() -> str:
        return "done"

    async with opened(copies, [large, ends], clock()) as engine:
        assert (await (await engine.attach(run.id)).result())["b"] == "done"
    assert left(copies)["run"] == 3


@by_hand
async def test_a_copy_is_one_file(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
        store = reader(tmp_path)
        back_up(store, tmp_path / "copy.db")
        store.close()
    assert [file.name for file in tmp_path.glob("*copy*")] == ["copy.db"]


@by_hand
async def test_a_copy_has_the_artefacts_too(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
    (tmp_path / "h.db.artefacts/ab").mkdir(parents=True)
    (tmp_path / "h.db.artefacts/ab/cdef").write_text("a file")
    store = reader(tmp_path)
    back_up(store, tmp_path / "copy.db")
    store.close()
    assert (tmp_path / "copy.db.artefacts/ab/cdef").read_text() == "a file"


@by_hand
async def test_a_copy_overwrites_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
    (tmp_path / "copy.db").write_text("precious")
    store = reader(tmp_path)
    with pytest.raises(Refused, match="already there"):
        back_up(store, tmp_path / "copy.db")
    store.close()
    assert (tmp_path / "copy.db").read_text() == "precious"


@by_hand
async def test_a_copy_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
    store = reader(tmp_path)
    with pytest.raises(StoreUnavailable):
        back_up(store, tmp_path / "nowhere" / "copy.db")
    store.close()
    assert not list(tmp_path.glob("**/*copy*"))


# ----------------------------------------------------------------------------------------------------- reading


def test_a_database_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no database"):
        reader(tmp_path)
    assert not list(tmp_path.iterdir())


@by_hand
async def test_a_reader_migrates_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()):
        pass
    _change(tmp_path, "UPDATE meta SET value = 0 WHERE key = 'schema'")
    with pytest.raises(SchemaTooOld, match="holdfast run brings it up to date"):
        reader(tmp_path)
    assert rows(tmp_path, "SELECT value FROM meta WHERE key = 'schema'") == [(0,)]


@by_hand
async def test_what_is_read_within_one_look_is_of_one_moment(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
        store = reader(tmp_path)
        with store.still():
            before = await store.list_runs("default", None, 10)
            await finished(engine, 1)
            assert await store.list_runs("default", None, 10) == before
        assert len(await store.list_runs("default", None, 10)) == 2
        store.close()


# ------------------------------------------------------------------------------------------------------ doctor


def _change(path: Path, statement: str) -> None:
    """Do to a file what no release of ours does."""
    db = apsw.Connection(str(path / "h.db"))
    db.execute(statement)
    db.close()


def _damage(path: Path) -> None:
    file = path / "h.db"
    raw = bytearray(file.read_bytes())
    raw[4096 * 3 : 4096 * 4] = b"\xff" * 4096
    file.write_bytes(raw)


@by_hand
async def test_a_sound_file_has_no_problem(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 2)
    found = await findings(tmp_path)
    assert [finding for finding in found.values() if finding.problems] == []
    assert found["large values are there"].note == "2 references"
    assert found["lock"].note == "free"


@pytest.mark.parametrize(
    ("statement", "check"),
    [
        ("DELETE FROM journal WHERE seq = 1", "journal without gaps"),
        ("UPDATE journal SET epoch = 7 WHERE seq = 1", "epochs never fall"),
        ("UPDATE run SET owner = 'local', owner_epoch = 1", "finished runs are at rest"),
        ("UPDATE run SET status = 'running'", "open runs have no end"),
        ("UPDATE run SET status = 'cancelled'", "journals fold to what the runs are"),
        ("UPDATE run SET owner_epoch = 99", "owners are known"),
        ("DELETE FROM journal", "runs have a journal"),
        ("DELETE FROM version", "runs have a definition"),
        ("DELETE FROM run", "nothing without a run"),
        ("DELETE FROM blob", "large values are there"),
        ("INSERT INTO artefact VALUES (1, 'ab', 4, 0)", "artefacts are there"),
        ("INSERT INTO key VALUES ('default', '', 'k', 1, 's', NULL, 0, NULL)", "keys are held by open runs"),
        ("INSERT INTO wait VALUES (1, 'default', 'key', '', 'k', 1, 's', 0)", "only open runs wait"),
        (
            "INSERT INTO workflow VALUES ('default', 'n', 'gone', 0)",
            "published workflows have a definition",
        ),
        ("UPDATE journal SET body = '[1]' WHERE seq = 2", "journals fold to what the runs are"),
    ],
)
def test_what_must_not_be_is_found(tmp_path: Path, statement: str, check: str) -> None:
    @by_hand
    async def look() -> None:
        async with opened(tmp_path, [large], clock()) as engine:
            await finished(engine, 1)
        _change(tmp_path, statement)
        assert (await findings(tmp_path))[check].problems != []

    look()


@by_hand
async def test_a_damaged_page_is_found(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 3)
    _damage(tmp_path)
    assert (await findings(tmp_path))["file"].problems != []


@pytest.mark.parametrize(("limit", "check"), [("DISK_BYTES_MIN", "disk"), ("WAL_BYTES_MAX", "log")])
def test_a_machine_that_runs_short_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, check: str
) -> None:
    monkeypatch.setattr(f"holdfast.runtime.upkeep.{limit}", 2**62 if limit == "DISK_BYTES_MIN" else -1)

    @by_hand
    async def look() -> None:
        async with opened(tmp_path, [large], clock()):
            assert (await findings(tmp_path))[check].problems != []

    look()
