"""Files of older releases: brought up to date by whoever writes, with a copy kept, and left alone by whoever reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import apsw
import pytest

from holdfast import Holdfast, SchemaTooNew, SchemaTooOld, StoreUnavailable, tool
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.statements import migrations
from holdfast.testing import TestEngine

SPEC = """
name: n
steps:
  - {id: a, tool: work, args: {x: first}}
  - {id: t, kind: timer, delay_ms: 3600000}
  - {id: b, tool: work, args: {x: second}}
"""
NEWEST = migrations("sqlite")[-1][0]


def read(file: Path, query: str) -> list[Any]:
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return list(db.execute(query))
    finally:
        db.close()


def as_of(release: int, file: Path) -> None:
    """Make a file what it was before the later migrations: its tables of then, with all that is in them."""
    modern = file.with_name("modern.db")
    for ending in ("", "-wal"):
        if Path(f"{file}{ending}").exists():
            Path(f"{file}{ending}").rename(f"{modern}{ending}")
    Path(f"{file}-shm").unlink(missing_ok=True)
    db = apsw.Connection(str(file))
    db.pragma("journal_mode", "wal")
    for number, script in migrations("sqlite"):
        if number <= release:
            db.execute(script)
    db.execute("ATTACH ? AS modern", (str(modern),))
    tables = [name for (name,) in db.execute("SELECT name FROM main.sqlite_schema WHERE type = 'table'")]
    for table in tables:
        columns = ", ".join(name for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,)))
        db.execute(f"INSERT OR REPLACE INTO main.{table} ({columns}) SELECT {columns} FROM modern.{table}")
    db.execute("UPDATE meta SET value = ? WHERE key = 'schema'", (release,))
    db.close()
    for path in (modern, Path(f"{modern}-wal"), Path(f"{modern}-shm")):
        path.unlink(missing_ok=True)


async def test_the_open_runs_of_an_older_file_go_on(engine: TestEngine) -> None:
    work = engine.fake_tool("work", side_effect=lambda x: x)
    runs = [await engine.start(SPEC) for _ in range(3)]
    engine.close()
    as_of(1, engine.file)
    await engine.advance(hours=1)
    assert [(await run.result())["b"] for run in runs] == ["second"] * 3
    assert len(work.calls) == 6
    assert read(engine.file, "SELECT value FROM meta WHERE key = 'schema'") == [(NEWEST,)]


async def test_a_copy_of_the_older_file_is_kept_as_it_was(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await engine.start(SPEC)
    engine.close()
    as_of(1, engine.file)
    everything = "SELECT run, seq, body FROM journal ORDER BY pos"
    before = read(engine.file, everything)
    await engine.advance(hours=1)
    copy = Path(f"{engine.file}.schema-001")
    assert read(copy, everything) == before != read(engine.file, everything)
    assert read(copy, "SELECT value FROM meta WHERE key = 'schema'") == [(1,)]
    assert list(engine.file.parent.glob("*.partial*")) == []


async def test_a_new_file_and_one_of_this_release_are_not_copied(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await engine.start(SPEC)
    await engine.restart()
    assert list(engine.file.parent.glob("*.schema-*")) == []


async def test_a_file_that_cannot_be_copied_is_not_migrated(engine: TestEngine) -> None:
    engine.fake_tool("work")
    await engine.start(SPEC)
    engine.close()
    as_of(1, engine.file)
    Path(f"{engine.file}.schema-001.partial").mkdir()
    with pytest.raises((StoreUnavailable, OSError)):
        await engine.open()
    assert read(engine.file, "SELECT value FROM meta WHERE key = 'schema'") == [(1,)]


async def test_a_reader_does_not_migrate_and_says_who_does(engine: TestEngine) -> None:
    await engine.open()
    engine.close()
    as_of(1, engine.file)
    with pytest.raises(SchemaTooOld, match="holdfast run"):
        await SqliteStore(str(engine.file)).open_to_read()
    assert read(engine.file, "SELECT value FROM meta WHERE key = 'schema'") == [(1,)]


@pytest.mark.anyio
async def test_a_file_of_a_newer_release_is_refused_untouched(tmp_path: Path) -> None:
    @tool
    async def work() -> None: ...

    file = tmp_path / "h.db"
    async with Holdfast(str(file), tools=[work]):
        pass
    db = apsw.Connection(str(file))
    db.execute("UPDATE meta SET value = 999 WHERE key = 'schema'")
    db.close()
    with pytest.raises(SchemaTooNew, match="upgrade holdfast"):
        async with Holdfast(str(file), tools=[work]):
            pass
    assert read(file, "SELECT value FROM meta WHERE key = 'schema'") == [(999,)]


async def test_runs_labels_and_published_workflows_of_an_older_file_are_listed(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=lambda x: x)
    hf = await engine.open()
    await hf.publish(SPEC)
    by_name = await hf.start("n", labels={"team": "x"})
    other = await hf.start(SPEC.replace("name: n", "name: m"))
    engine.close()
    as_of(3, engine.file)
    hf = await engine.open()
    assert [run.id for run in await hf.runs()] == [other.id, by_name.id]
    assert [run.id for run in await hf.runs(workflow="n", status="waiting", label="team=x")] == [by_name.id]
    assert [run.id for run in await hf.runs(label="team")] == [by_name.id]
    engine.close()
    assert read(engine.file, "SELECT sum(runs) FROM tally") == [(2,)]
    assert read(engine.file, "SELECT workflow, number, status FROM release") == [("n", 1, "published")]
    assert read(engine.file, "SELECT workflow, number FROM series ORDER BY 1") == [("m", 0), ("n", 1)]
    (flow_id,) = read(engine.file, "SELECT id FROM workflow")[0]
    assert re.fullmatch(r"flow-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", flow_id)


async def test_the_runs_of_an_older_file_are_counted_over_time_as_they_would_have_been(
    engine: TestEngine,
) -> None:
    engine.fake_tool("work", side_effect=lambda x: x)
    hf = await engine.open()
    for seconds in (0.003, 1, 1.024, 59.999, 600, 40_000):
        run = await hf.start(SPEC)
        await engine.advance(seconds=seconds)
        await hf.cancel(run.id)
    engine.close()
    counted = read(engine.file, "SELECT * FROM pulse")
    assert sum(runs for *_, runs in counted) == 12
    as_of(17, engine.file)
    await engine.open()
    engine.close()
    assert read(engine.file, "SELECT * FROM pulse") == counted


async def test_the_next_release_of_a_workflow_of_an_older_file_is_the_second(engine: TestEngine) -> None:
    engine.fake_tool("work", side_effect=lambda x: x)
    hf = await engine.open()
    await hf.publish(SPEC)
    engine.close()
    as_of(3, engine.file)
    hf = await engine.open()
    await hf.publish(SPEC)
    await hf.publish(SPEC.replace("first", "other"))
    engine.close()
    assert read(engine.file, "SELECT number, status FROM release") == [(1, "published"), (2, "published")]


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_migrations_are_numbered_without_a_gap_and_once(dialect: str) -> None:
    numbers = [number for number, _ in migrations(dialect)]
    assert numbers == list(range(1, len(numbers) + 1))
