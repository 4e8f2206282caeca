"""`holdfast doctor` finds on a server what it finds in a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.ops.doctor import Finding, examine_server
from holdfast.ops.promote import promote
from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.open import open_move, open_server
from tests.ops.test_doctor import filled
from tests.postgres import Server

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def moved(tmp_path_factory: pytest.TempPathFactory, postgres_server: Server) -> tuple[str, Path]:
    """A database with runs of many kinds, and the folder of its artefacts."""
    folder = tmp_path_factory.mktemp("moved")

    async def fill_and_move() -> str:
        await filled(folder / "h.db")
        url = await postgres_server.new_database()
        source, target = open_move(str(folder / "h.db"), url)
        source.open_file()
        try:
            places = ArtefactFiles(folder / "h.db.artefacts"), ArtefactFiles(folder / "files")
            await promote(source, target, places, 1_000, lambda line: None)
        finally:
            await target.close()
            source.close_file()
        return url

    return asyncio.run(fill_and_move()), folder / "files"


async def problems(url: str, files: Path | None = None) -> dict[str, Finding]:
    store = open_server(url)
    await store.open_to_read()
    try:
        async with store.still():
            found = await examine_server(store, None if files is None else ArtefactFiles(files))
    finally:
        await store.close()
    return {finding.check: finding for finding in found if finding.problems}


async def test_a_sound_database_has_no_problem(moved: tuple[str, Path]) -> None:
    assert await problems(*moved) == {}


async def test_artefacts_are_looked_for_where_they_are_said_to_be(
    moved: tuple[str, Path], tmp_path: Path
) -> None:
    assert list(await problems(moved[0], tmp_path)) == ["artefacts are there"]


@pytest.mark.parametrize(
    ("statement", "check", "says"),
    [
        ("DELETE FROM wait", "waits have their row", "step s of run"),
        ("UPDATE wait SET tenant = 'b'", "waits are of the tenant of their run", "of the tenant b"),
        ("UPDATE run SET wake_at = NULL", "waiting runs wake in time", "has a timer"),
        ("DELETE FROM blob", "large values are there", "is not there"),
        ("UPDATE blob SET body = body || 'y'", "large values have their hash", "other content"),
        ("UPDATE version SET definition = '{}'", "definitions have their hash", "cannot be read"),
        ("UPDATE journal SET at = 1 WHERE seq = 2", "times never fall", "run number"),
        ("UPDATE journal SET kind = 'x'", "rows say what they are", "is called x"),
        ("UPDATE journal SET body = '[0,[9' WHERE seq = 1", "ends of runs are told", "cannot be read"),
        ("DELETE FROM journal WHERE seq = 1", "journal without gaps", "run number"),
        ('UPDATE run SET labels = \'{"a":"b"}\'', "labels are found", "has labels"),
        ("DELETE FROM series", "series are known", "is not there"),
        ("DELETE FROM tally", "runs are counted", "counted as 0"),
        ("DELETE FROM cursor", "schedules have a cursor", "schedule s of tenant default"),
        ("DELETE FROM schedule", "cursors have a schedule", "schedule s"),
        ("UPDATE schedule SET kind = 'at'", "schedules have the kind of their trigger", "is of kind at"),
        ("DELETE FROM ledger", "runs of schedules are in the ledger", "by schedule s"),
        (
            "INSERT INTO mail (run, dedup, at, body) VALUES (999, 'd', 1, '')",
            "nothing without a run",
            "a letter",
        ),
        ("UPDATE run SET owner = 'n', owner_epoch = 999", "owners are known", "incarnation 999"),
        ("UPDATE run SET status = 'failed'", "journals fold to the stored state of their runs", "is failed"),
        ("DROP TABLE board", "schema", "no table 'board'"),
        ("DROP INDEX run_due", "schema", "no index 'run_due'"),
        ("DROP VIEW tasks", "schema", "no view 'tasks'"),
    ],
)
async def test_damage_is_found(
    moved: tuple[str, Path], postgres_server: Server, statement: str, check: str, says: str
) -> None:
    url = await postgres_server.copy_of(moved[0])
    await postgres_server.execute(statement, url)
    found = (await problems(url))[check]
    assert says in found.problems[0] and found.hint
