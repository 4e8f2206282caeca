"""`holdfast doctor` finds what was really done to files, and a server on damaged files is not ready."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import pytest

from holdfast import Context, Holdfast, tool
from holdfast.config import Settings
from holdfast.errors import StoreUnavailable
from holdfast.http.serve import serving
from holdfast.ops.doctor import Finding, examine
from holdfast.spec.schedule import schedule_from_data
from holdfast.store.sqlite.mark import forget_mark
from holdfast.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.anyio

WAITS = "name: w\nsteps: [{id: s, tool: later}]"
LARGE = "name: l\nsteps: [{id: s, tool: large}]"
FILE = "name: f\nsteps: [{id: s, tool: make}]"
SIMPLE = "name: e\nsteps: [{id: s, tool: echo, args: {value: 1}}]"


@tool
async def later() -> dict[str, Any]:
    return {"pending": True, "task_id": "T1"}


@tool
async def large() -> str:
    return "x" * 100_000


@tool
def make(ctx: Context) -> dict[str, Any]:
    (ctx.workdir / "made.txt").write_text("made")
    return {"file_refs": [{"path": "made.txt"}]}


async def _until_it_waits(run: Any) -> None:
    async with asyncio.timeout(60):
        while await run.status() != "waiting":
            await asyncio.sleep(0.01)


async def filled(path: Path) -> None:
    """A run that waits, one with a large value, one with an artefact, and some more."""
    async with Holdfast(f"sqlite:///{path}", tools=[later, large, make]) as hf:
        waiting = await hf.start(WAITS)
        for flow in (LARGE, FILE, *[SIMPLE] * 30):
            await (await hf.start(flow)).result(timeout=60)
        await _until_it_waits(waiting)
        await hf.publish(SIMPLE)
        daily = {"id": "s", "workflow": "e", "trigger": {"kind": "cron", "expression": "0 0 0 * * *"}}
        await hf._engine.schedules.put("default", schedule_from_data(daily))
        fired = await hf._engine.schedules.fire("default", "s")
        await (await hf.run(fired.run_id)).result(timeout=60)


async def _looked_at(path: Path) -> dict[str, Finding]:
    store = SqliteStore(str(path))
    await store.open_to_read()
    async with store.still():
        found = {finding.check: finding for finding in await examine(store)}
    await store.close()
    return found


async def _problems(path: Path) -> dict[str, Finding]:
    return {check: finding for check, finding in (await _looked_at(path)).items() if finding.problems}


def _change(path: Path, statement: str) -> None:
    db = apsw.Connection(str(path))
    db.execute(statement)
    db.close()


async def test_a_sound_file_has_no_problem(tmp_path: Path) -> None:
    await filled(tmp_path / "h.db")
    assert await _problems(tmp_path / "h.db") == {}


@pytest.mark.parametrize(
    ("statement", "check", "says"),
    [
        ("DELETE FROM wait", "waits have their row", "step s of run"),
        ("UPDATE wait SET resolved_at = 1, outcome = 'x'", "waits have their row", "no row says so"),
        ("UPDATE blob SET body = replace(body, 'x', 'y')", "large values have their hash", "other content"),
        ("UPDATE wait SET name = 'other'", "waits have their row", "another name"),
        ("UPDATE wait SET attempt = 7", "waits have their row", "another name, attempt"),
        ("UPDATE wait SET expires_at = NULL", "waits have their row", "or end"),
        ("UPDATE wait SET tenant = 'b'", "waits are of the tenant of their run", "of the tenant b"),
        ("UPDATE run SET wake_at = NULL WHERE no = 1", "waiting runs wake in time", "has a timer"),
        ("UPDATE run SET wake_at = wake_at + 1 WHERE no = 1", "waiting runs wake in time", "has a timer"),
        (
            "INSERT INTO assignment VALUES (1, 's', 1, 'v', 'w', 't', 1, 1)",
            "jobs are of open attempts",
            "worker",
        ),
        ("UPDATE version SET definition = '{}'", "definitions have their hash", "cannot be read"),
        ("UPDATE version SET definition = '[1, '", "definitions have their hash", "cannot be read"),
        (
            "UPDATE version SET definition = replace(definition, 'large', 'other')",
            "definitions have their hash",
            "of l",
        ),
        ("UPDATE journal SET at = 1 WHERE run = 3 AND seq = 2", "times never fall", "run number 3"),
        ("UPDATE journal SET kind = 'x' WHERE run = 3", "rows say what they are", "is called x"),
        ("DELETE FROM series", "series are known", "is not there"),
        ("DELETE FROM cursor", "schedules have a cursor", "schedule s of tenant default"),
        ("DELETE FROM schedule", "cursors have a schedule", "schedule s"),
        ("UPDATE cursor SET next_at = 'soon'", "numbers and times are numbers", "'soon' is not a number"),
        (
            "UPDATE schedule SET created_at = 'x'",
            "numbers and times are numbers",
            "the creation of schedule s",
        ),
        ("UPDATE run SET finished_at = x'00'", "numbers and times are numbers", "the end of run"),
        ("UPDATE schedule SET kind = 'at'", "schedules have the kind of their trigger", "is of kind at"),
        ("DELETE FROM ledger", "runs of schedules are in the ledger", "by schedule s"),
        ("UPDATE ledger SET run = 999", "nothing without a run", "an occurrence of run number 999"),
        ("DROP TABLE blob", "schema", "no table 'blob'"),
        ("DROP INDEX run_due", "schema", "no index 'run_due'"),
        ("UPDATE meta SET value = 'x' WHERE key = 'epoch'", "schema", "'epoch'"),
        ("DELETE FROM journal WHERE run = 2 AND seq = 1", "journal without gaps", "run number 2"),
        (
            "UPDATE journal SET body = '[0,[9' WHERE run = 1 AND seq = 2",
            "journals fold to the stored state of their runs",
            "cannot",
        ),
    ],
)
async def test_what_was_done_to_the_data_is_found_with_its_place_and_what_to_do(
    tmp_path: Path, statement: str, check: str, says: str
) -> None:
    await filled(tmp_path / "h.db")
    _change(tmp_path / "h.db", statement)
    finding = (await _problems(tmp_path / "h.db"))[check]
    assert says in finding.problems[0]
    assert "backup" in finding.hint


async def test_a_file_that_does_not_say_its_schema_is_refused_with_what_to_do(tmp_path: Path) -> None:
    await filled(tmp_path / "h.db")
    _change(tmp_path / "h.db", "DELETE FROM meta")
    with pytest.raises(StoreUnavailable, match=r"does not say which schema.*backup"):
        await _problems(tmp_path / "h.db")
    with pytest.raises(StoreUnavailable, match=r"does not say which schema.*backup"):
        async with Holdfast(f"sqlite:///{tmp_path / 'h.db'}"):
            pass


async def test_an_artefact_with_other_content_is_found(tmp_path: Path) -> None:
    await filled(tmp_path / "h.db")
    (file,) = (
        path for path in (tmp_path / "h.db.artefacts").rglob("*") if path.is_file() and len(path.name) == 64
    )
    file.write_text("MADE")
    finding = (await _problems(tmp_path / "h.db"))["artefacts have their hash"]
    assert file.name in finding.problems[0]


def _damage(path: Path, page: int) -> None:
    with open(path, "r+b") as file:
        file.seek(4096 * (page - 1))
        file.write(b"\xff" * 4096)


async def _readiness(settings: Settings) -> tuple[int, Any]:
    async with (
        serving(settings) as server,
        aiohttp.ClientSession() as session,
        session.get(f"{server.address}/readyz") as answer,
    ):
        return answer.status, await answer.json()


async def test_a_server_on_a_file_with_damaged_pages_is_not_ready(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    store = SqliteStore(str(path), threads=False)
    await store.open()
    await store.close()
    db = apsw.Connection(str(path))  # pages that no start reads
    db.execute("INSERT INTO blob SELECT 1, key, randomblob(3000) FROM json_each(?)", (json.dumps([0] * 50),))
    root = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'blob'").get
    db.close()
    settings = Settings(db=f"sqlite:///{path}", port=0)
    assert await _readiness(settings) == (200, {"ready": True, "reasons": []})
    _damage(path, root)
    assert "file" in await _problems(path)
    assert await _readiness(settings) == (503, {"ready": False, "reasons": ["store_damaged"]})


# ------------------------------------------------------------------------------------------- a WAL that stopped early


PROGRAM = """
import asyncio, os, signal, sys
from holdfast import Holdfast

async def main():
    async with Holdfast(f"sqlite:///{sys.argv[1]}") as hf:
        for _ in range(20):
            await (await hf.start(sys.argv[2])).result()
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def _killed(folder: Path) -> Path:
    """The files as a process that was killed after its last acknowledged commit left them."""
    path = folder / "h.db"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(path), SIMPLE], check=False)
    assert done.returncode == -signal.SIGKILL
    (folder / "h.db-shm").unlink()
    return path


def _cut(wal: Path) -> None:
    os.truncate(wal, 32 + 20 * 4120)


def _flip(wal: Path) -> None:
    """One bit in the middle: SQLite passes over all that comes after it."""
    with open(wal, "r+b") as file:
        file.seek(32 + 20 * 4120 + 2000)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("harm", [_cut, _flip])
async def test_a_wal_that_stops_early_is_found_and_the_server_is_not_ready_until_the_loss_is_accepted(
    tmp_path: Path, harm: Any
) -> None:
    path = await asyncio.to_thread(_killed, tmp_path)
    assert await _problems(path) == {}
    harm(tmp_path / "h.db-wal")
    (tmp_path / "h.db-shm").unlink(missing_ok=True)
    finding = (await _looked_at(path))["acknowledged commits are there"]
    assert "commits are missing at the end of" in finding.problems[0]
    assert "--accept-loss" in finding.hint
    settings = Settings(db=f"sqlite:///{path}", port=0)
    for _ in range(2):
        assert await _readiness(settings) == (503, {"ready": False, "reasons": ["store_damaged"]})
    forget_mark(str(path))
    assert await _readiness(settings) == (200, {"ready": True, "reasons": []})


async def test_a_restored_backup_is_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await filled(path)
    store = SqliteStore(str(path))
    await store.open_to_read()
    store.copy_to(str(tmp_path / "copy.db"))
    await store.close()
    async with Holdfast(f"sqlite:///{path}", tools=[later]) as hf:
        await (await hf.start(SIMPLE)).result(timeout=60)
    path.write_bytes((tmp_path / "copy.db").read_bytes())  # the same inode, with the old mark beside it
    assert await _problems(path) == {}
    assert await _readiness(Settings(db=f"sqlite:///{path}", port=0)) == (200, {"ready": True, "reasons": []})


async def _ran(path: Path, times: int = 1) -> None:
    async with Holdfast(f"sqlite:///{path}", tools=[later]) as hf:
        for _ in range(times):
            await (await hf.start(SIMPLE)).result(timeout=60)


async def test_an_older_copy_over_a_closed_database_is_found_until_it_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await _ran(path)
    older = path.read_bytes()
    await _ran(path)
    path.write_bytes(older)  # the same inode
    finding = (await _looked_at(path))["acknowledged commits are there"]
    assert "an older copy was put in its place" in finding.problems[0]
    assert "--accept-loss" in finding.hint
    settings = Settings(db=f"sqlite:///{path}", port=0)
    for _ in range(2):
        assert await _readiness(settings) == (503, {"ready": False, "reasons": ["store_damaged"]})
    forget_mark(str(path))
    assert await _readiness(settings) == (200, {"ready": True, "reasons": []})


async def test_an_older_copy_that_lacks_no_journal_row_is_found(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    await _ran(path)
    older = path.read_bytes()
    await _ran(path, times=0)
    path.write_bytes(older)
    assert (
        "it was opened 1 times, but 2 times"
        in (await _problems(path))["acknowledged commits are there"].problems[0]
    )
    settings = Settings(db=f"sqlite:///{path}", port=0)
    for _ in range(3):
        assert await _readiness(settings) == (503, {"ready": False, "reasons": ["store_damaged"]})


async def test_an_older_file_in_the_place_of_the_database_is_used_and_said_to_be_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "h.db"
    await _ran(path)
    (tmp_path / "older.db").write_bytes(path.read_bytes())
    await _ran(path)
    (tmp_path / "older.db").replace(path)
    finding = (await _looked_at(path))["acknowledged commits are there"]
    assert (finding.problems, "had commits up to 4" in finding.note) == ([], True)
    assert await _readiness(Settings(db=f"sqlite:///{path}", port=0)) == (200, {"ready": True, "reasons": []})
    assert "ends at position 2; the database that was in its place before had commits up to 4" in caplog.text
    assert await _problems(path) == {}


async def test_the_mark_of_another_database_is_ignored(tmp_path: Path) -> None:
    path, other = tmp_path / "h.db", tmp_path / "other.db"
    await _ran(other, times=3)
    await _ran(path)
    mark, inode = (tmp_path / "other.db.mark").read_text().split(), path.stat().st_ino
    mark[1] = f"{inode:020}"  # a new file may get the inode of one that was deleted
    (tmp_path / "h.db.mark").write_text(" ".join(mark) + "\n")
    assert await _problems(path) == {}
    assert await _readiness(Settings(db=f"sqlite:///{path}", port=0)) == (200, {"ready": True, "reasons": []})


@pytest.mark.parametrize("mark", [None, "", "x", "00000000000000000001 00000000000000000002", "1 2 3"])
async def test_a_closed_database_needs_no_mark(tmp_path: Path, mark: str | None) -> None:
    path = tmp_path / "h.db"
    await _ran(path)
    (tmp_path / "h.db.mark").unlink()
    if mark is not None:
        (tmp_path / "h.db.mark").write_text(mark)
    path.rename(tmp_path / "moved.db")
    (tmp_path / "moved.db").rename(path)
    assert await _problems(path) == {}
    assert await _readiness(Settings(db=f"sqlite:///{path}", port=0)) == (200, {"ready": True, "reasons": []})
