"""Upkeep of a real file: what is old goes whole, a copy is whole, and what is not sound is found."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import tool
from holdfast.errors import NotFound, Refused, SchemaTooOld, StoreUnavailable
from holdfast.ops.backup import back_up
from holdfast.ops.doctor import Finding, examine
from holdfast.ops.upkeep import AGAIN_SECONDS, FIRST_SECONDS, PAUSE_SECONDS, retire
from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.artefacts import SCHEME
from holdfast.store.batch import Batch
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.statements import statements
from holdfast.testing import BEGAN, next_call
from holdfast.values import Millis
from tests.runtime.bench import Bench, bench, opened, rows
from tests.runtime.manual import by_hand, clock, settled

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
    """Of how many runs each table has rows. Run 0 is nobody: an empty row that keeps the newest position from being reused."""
    column = {"run": "no"}
    return {
        table: rows(path, f"SELECT count(DISTINCT nullif({column.get(table, 'run')}, 0)) FROM {table}")[0][0]
        for table in TABLES
    }


def reader(path: Path) -> SqliteStore:
    store = SqliteStore(str(path / "h.db"))
    store.open_file_to_read()
    return store


async def findings(path: Path) -> dict[str, Finding]:
    store = reader(path)
    try:
        async with store.still():
            return {finding.check: finding for finding in await examine(store)}
    finally:
        await store.close()


# --------------------------------------------------------------------------------------------------- retention


@by_hand
async def test_a_run_goes_with_everything_that_belongs_to_it(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 3)
        assert left(tmp_path)["blob"] == 3
        assert await retire(engine.store, engine.committer, Millis(BEGAN + 1_000), 100) == 3
        assert left(tmp_path) == dict.fromkeys(TABLES, 0)


@by_hand
async def test_runs_that_ended_later_stay(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
        await clock().advance(DAY)
        await finished(engine, 2)
        assert await retire(engine.store, engine.committer, Millis(BEGAN + 1_000), 100) == 1
        assert left(tmp_path)["run"] == 2


@by_hand
async def test_an_open_run_stays_however_old_it_is(tmp_path: Path) -> None:
    async with opened(tmp_path, [large, endless], clock()) as engine:
        run = await engine.begin("name: n\nsteps: [{id: s, tool: endless}]")
        await clock().advance(100 * DAY)
        assert await retire(engine.store, engine.committer, clock().now(), 100) == 0
        assert await run.status() == "running"


@by_hand
async def test_no_more_runs_go_than_were_asked_for(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 5)
        assert await retire(engine.store, engine.committer, Millis(BEGAN + 1_000), 3) == 3
        assert left(tmp_path)["run"] == 2


@by_hand
async def test_many_runs_go_in_small_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.ops.upkeep.RETIRED_ROWS_MAX", 5)  # a run of these has two
    sizes: list[int] = []

    def weighed(batch: Batch) -> None:
        sizes.append(len(batch.forgotten))

    async with kept(tmp_path) as engine:
        await finished(engine, 5)
        engine.store.refuse = weighed
        await clock().advance(31 * DAY)
    assert [size for size in sizes if size] == [2, 2, 1]


@by_hand
async def test_a_run_longer_than_a_commit_may_be_goes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.ops.upkeep.RETIRED_ROWS_MAX", 1)
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 2)
        assert await retire(engine.store, engine.committer, Millis(BEGAN + 1_000)) == 1


@by_hand
async def test_old_runs_are_found_without_looking_at_the_others(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()):
        statement = statements("sqlite")["finished_before"]
        plan = " ".join(str(row) for row in rows(tmp_path, f"EXPLAIN QUERY PLAN {statement}", 0, 1))
    assert "run_finished" in plan
    assert "SCAN" not in plan and "TEMP B-TREE" not in plan


# ------------------------------------------------------------------------------------------------- on the side


@asynccontextmanager
async def kept(path: Path, days: float | None = 30) -> AsyncIterator[Bench]:
    """An engine that looks after its file."""
    artefacts = ArtefactFiles(path / "h.db.artefacts")
    engine = bench(path, [large, endless], clock(), artefacts=artefacts, has_upkeep=True, retention_days=days)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


@by_hand
async def test_runs_that_are_too_old_go_some_minutes_after_opening(tmp_path: Path) -> None:
    async with kept(tmp_path) as engine:
        await finished(engine, 2)
    clock().wall_offset_ms += 31 * DAY * 1000
    async with kept(tmp_path):
        await clock().advance(FIRST_SECONDS - 1)
        assert left(tmp_path)["run"] == 2
        await clock().advance(2)
        assert left(tmp_path) == dict.fromkeys(TABLES, 0)


@by_hand
async def test_a_run_goes_in_the_hour_in_which_it_becomes_too_old(tmp_path: Path) -> None:
    async with kept(tmp_path) as engine:
        await finished(engine, 1)
        await clock().advance(30 * DAY - 1)
        assert left(tmp_path)["run"] == 1
        await clock().advance(AGAIN_SECONDS)
        assert left(tmp_path)["run"] == 0


@by_hand
async def test_counts_of_runs_by_minute_are_added_up_after_two_days_and_go_with_the_retention(
    tmp_path: Path,
) -> None:
    def minutes() -> list[tuple[int, int]]:
        return rows(tmp_path, "SELECT minute % 60, runs FROM pulse WHERE beat = 0")

    async with kept(tmp_path) as engine:
        for _ in range(3):
            await finished(engine, 1)
            await clock().advance(90)
        assert len(minutes()) == 3
        await clock().advance(2 * DAY + 2 * AGAIN_SECONDS)
        assert sum(runs for _, runs in minutes()) == 3
        assert {minute for minute, _ in minutes()} == {0}
        await clock().advance(30 * DAY)
        assert minutes() == []


@by_hand
async def test_open_runs_are_never_too_old(tmp_path: Path) -> None:
    async with kept(tmp_path) as engine:
        run = await engine.begin("name: n\nsteps: [{id: s, tool: endless}]")
        waits = await engine.begin("name: n\nsteps: [{id: s, kind: timer, delay_ms: 31536000000}]")
        clock().wall_offset_ms += 90 * DAY * 1000
        await clock().advance(FIRST_SECONDS + 1)
        assert [await run.status(), await waits.status()] == ["running", "waiting"]


@by_hand
async def test_without_an_end_of_retention_runs_stay(tmp_path: Path) -> None:
    async with kept(tmp_path, days=None) as engine:
        await finished(engine, 1)
        clock().wall_offset_ms += 3650 * DAY * 1000
        await clock().advance(FIRST_SECONDS + 1)
        assert left(tmp_path)["run"] == 1


INSERT_KEY = "INSERT INTO key (tenant, scope, key, run, path, output, created_at, expires_at) VALUES"
KEY = f"{INSERT_KEY} ('default', '', ?, 1, 's', ?, 0, ?)"


@by_hand
async def test_answers_that_have_expired_go_and_no_others(tmp_path: Path) -> None:
    soon = BEGAN + 60_000
    async with kept(tmp_path, days=None) as engine:
        run = await engine.begin("name: n\nsteps: [{id: s, tool: endless}]")
        for name, output, expires in [
            ("old", b"1", soon),
            ("new", b"1", BEGAN + 1000 * DAY),
            ("held", None, None),
        ]:
            _change(tmp_path, KEY, name, output, expires)
        await clock().advance(FIRST_SECONDS + 1)
        assert rows(tmp_path, "SELECT key FROM key ORDER BY key") == [("held",), ("new",)]
        assert await run.status() == "running"


@by_hand
async def test_an_answer_that_was_given_anew_since_it_was_looked_at_stays(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        _change(tmp_path, KEY, "k", b"1", BEGAN)
        batch = Batch()
        batch.forgotten_keys = await engine.store.expired_keys(clock().now(), 10)
        _change(tmp_path, "UPDATE key SET created_at = 7, output = '2'")
        engine.store.submit(batch, lambda error: None)
        assert rows(tmp_path, "SELECT output FROM key") == [("2",)]


@by_hand
async def test_files_that_no_run_names_go_after_a_day(tmp_path: Path) -> None:
    artefacts = ArtefactFiles(tmp_path / "h.db.artefacts")
    stored = {name: artefacts.put(iter([name.encode()]))[0] for name in ("named", "old", "young")}
    half = artefacts.folder / ".new-1-ab"
    half.write_text("never finished")
    for path in (*(artefacts.fetch(SCHEME + stored[name], Path) for name in ("named", "old")), half):
        os.utime(path, (BEGAN / 1000 - 2 * DAY,) * 2)
    async with kept(tmp_path) as engine:
        await finished(engine, 1)
        _change(tmp_path, "INSERT INTO artefact VALUES (1, ?, 5, 0)", stored["named"])
        await clock().advance(FIRST_SECONDS + 1)
        assert engine.upkeep is not None and engine.upkeep._round is not None
        await engine.upkeep._round  # threads take real time
        there = [name for name, sha256 in stored.items() if (artefacts.folder / sha256[:2] / sha256).exists()]
    assert there == ["named", "young"]
    assert not half.exists()


@by_hand
async def test_what_a_full_disk_kept_from_being_deleted_goes_an_hour_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with kept(tmp_path, days=0.001) as engine:
        await finished(engine, 1)
        engine.store.refuse = lambda batch: StoreUnavailable("full") if batch.forgotten else None
        await clock().advance(FIRST_SECONDS + 1)
        assert "cannot delete old runs now: full" in caplog.text
        engine.store.refuse = lambda batch: None
        assert left(tmp_path)["run"] == 1
        await clock().advance(AGAIN_SECONDS)
        assert left(tmp_path)["run"] == 0


@by_hand
async def test_closing_waits_for_one_piece_and_not_for_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.ops.upkeep.RETIRED_ROWS_MAX", 1)
    async with kept(tmp_path, days=0.001) as engine:
        await finished(engine, 5)
        await clock().advance(FIRST_SECONDS + PAUSE_SECONDS / 2)
    assert left(tmp_path)["run"] == 4


@by_hand
async def test_runs_get_their_turn_between_two_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.ops.upkeep.RETIRED_ROWS_MAX", 1)
    async with kept(tmp_path, days=0.001) as engine:
        await finished(engine, 5)
        await clock().advance(FIRST_SECONDS + PAUSE_SECONDS / 2)
        await finished(engine, 1)
        assert left(tmp_path)["run"] == 5


@by_hand
async def test_an_idle_engine_has_one_call_to_wait_for_and_a_closed_one_none(tmp_path: Path) -> None:
    async with kept(tmp_path):
        await settled()
        scheduled = [call for call in asyncio.get_running_loop()._scheduled if not call.cancelled()]  # type: ignore[attr-defined]
        assert len(scheduled) == 1
    assert next_call() is None


@by_hand
async def test_an_engine_that_does_not_drive_all_runs_deletes_nothing(tmp_path: Path) -> None:
    artefacts = ArtefactFiles(tmp_path / "h.db.artefacts")
    engine = bench(tmp_path, [large], clock(), artefacts=artefacts, has_upkeep=True, retention_days=30)
    await engine.open(drive=False)
    await finished(engine, 1)
    await clock().advance(60 * DAY)
    assert left(tmp_path)["run"] == 1
    await engine.close()


@by_hand
async def test_a_commit_that_fails_deletes_nothing_and_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
        engine.store.refuse = lambda batch: StoreUnavailable("full") if batch.forgotten else None
        with pytest.raises(StoreUnavailable):
            await retire(engine.store, engine.committer, Millis(BEGAN + 1_000), 100)
        assert left(tmp_path)["run"] == 1


@by_hand
async def test_new_runs_begin_after_all_old_ones_went(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 2)
        await retire(engine.store, engine.committer, Millis(BEGAN + 1_000), 100)
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
        await store.close()
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
        await store.close()
    assert [file.name for file in tmp_path.glob("*copy*")] == ["copy.db"]


@by_hand
async def test_a_copy_has_the_artefacts_too(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
    (tmp_path / "h.db.artefacts/ab").mkdir(parents=True)
    (tmp_path / "h.db.artefacts/ab/cdef").write_text("a file")
    store = reader(tmp_path)
    back_up(store, tmp_path / "copy.db")
    await store.close()
    assert (tmp_path / "copy.db.artefacts/ab/cdef").read_text() == "a file"


@by_hand
async def test_a_copy_overwrites_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
    (tmp_path / "copy.db").write_text("precious")
    store = reader(tmp_path)
    with pytest.raises(Refused, match="already there"):
        back_up(store, tmp_path / "copy.db")
    await store.close()
    assert (tmp_path / "copy.db").read_text() == "precious"


@by_hand
async def test_a_copy_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path, [large], clock()) as engine:
        await finished(engine, 1)
    store = reader(tmp_path)
    with pytest.raises(StoreUnavailable):
        back_up(store, tmp_path / "nowhere" / "copy.db")
    await store.close()
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
        async with store.still():
            before = await store.list_runs("default", None, 10)
            await finished(engine, 1)
            assert await store.list_runs("default", None, 10) == before
        assert len((await store.list_runs("default", None, 10)).rows) == 2
        await store.close()


# ------------------------------------------------------------------------------------------------------ doctor


def _change(path: Path, statement: str, *args: Any) -> None:
    """Do to a file what no release of ours does."""
    db = apsw.Connection(str(path / "h.db"))
    db.execute(statement, args)
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
        ("UPDATE run SET status = 'cancelled'", "journals fold to the stored state of their runs"),
        ("UPDATE run SET owner_epoch = 99", "owners are known"),
        ("DELETE FROM journal", "runs have a journal"),
        ("DELETE FROM version", "runs have a definition"),
        ("DELETE FROM run", "nothing without a run"),
        ("DELETE FROM blob", "large values are there"),
        ("INSERT INTO artefact VALUES (1, 'ab', 4, 0)", "artefacts are there"),
        (f"{INSERT_KEY} ('default', '', 'k', 1, 's', NULL, 0, NULL)", "keys are held by open runs"),
        (
            "INSERT INTO wait (tenant, kind, name, run, path, since) VALUES ('default', 'key', 'k', 1, 's', 0)",
            "only open runs wait",
        ),
        (
            "INSERT INTO workflow VALUES ('default', 'n', 'flow-1', '', 0, 1, 'gone', 0)",
            "published workflows have a definition",
        ),
        (
            "INSERT INTO release VALUES ('default', 'n', 1, 'ver-1', 'gone', 'published', 0)",
            "releases have a definition",
        ),
        ("INSERT INTO assignment VALUES (1, 's', 1, 'x', '', '', 0, 0)", "only open runs have assignments"),
        ("UPDATE tally SET runs = runs + 1", "runs are counted"),
        ("DELETE FROM tally", "runs are counted"),
        ('UPDATE run SET labels = \'{"a":"b"}\'', "labels are found"),
        ("INSERT INTO label VALUES ('default', 'a', 'b', 99)", "nothing without a run"),
        ("UPDATE journal SET body = '[1]' WHERE seq = 2", "journals fold to the stored state of their runs"),
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
    monkeypatch.setattr(f"holdfast.ops.doctor.{limit}", 2**62 if limit == "DISK_BYTES_MIN" else -1)

    @by_hand
    async def look() -> None:
        async with opened(tmp_path, [large], clock()):
            assert (await findings(tmp_path))[check].problems != []

    look()
