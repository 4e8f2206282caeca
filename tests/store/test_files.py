"""The files of a database belong to its owner alone, whatever the umask and whatever an earlier release left."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Holdfast, tool
from holdfast.errors import StoreUnavailable
from holdfast.ops.backup import back_up
from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.sqlite.store import SqliteStore

FLOW = "name: n\nsteps: [{id: s, tool: make}]"


@pytest.fixture
def no_umask() -> Iterator[None]:
    former = os.umask(0)
    yield
    os.umask(former)


def open_to_others(folder: Path) -> dict[str, str]:
    found = ((path, path.lstat().st_mode) for path in folder.rglob("*"))
    return {str(path.relative_to(folder)): stat.filemode(mode) for path, mode in found if mode & 0o077}


@pytest.mark.anyio
async def test_every_file_is_for_its_owner_alone_also_without_a_umask(tmp_path: Path, no_umask: None) -> None:
    seen: list[dict[str, str]] = []

    @tool
    def make(ctx: Context) -> dict[str, Any]:
        (ctx.workdir / "made.txt").write_text("made")
        (ctx.workdir / "made.txt").chmod(0o600)  # its own business
        seen.append(open_to_others(tmp_path))
        return {"file_refs": [{"path": "made.txt"}]}

    async with Holdfast(f"sqlite:///{tmp_path / 'a.db'}", tools=[make]) as hf:
        run = await hf.start(FLOW)
        output = await run.result(timeout=60)
        assert "artefact://" in str(output)
        names = {path.name for path in tmp_path.iterdir()}
        assert names >= {"a.db", "a.db-wal", "a.db-shm", "a.db.lock", "a.db.artefacts", "a.db.work"}
        seen.append(open_to_others(tmp_path))
    reader = SqliteStore(str(tmp_path / "a.db"))
    await reader.open_to_read()
    assert len(back_up(reader, tmp_path / "copy.db")) == 2
    await reader.close()
    seen.append(open_to_others(tmp_path))
    assert seen == [{}, {}, {}]


def test_files_that_others_may_read_are_tightened_at_open_and_the_log_says_so(
    tmp_path: Path, no_umask: None, caplog: pytest.LogCaptureFixture
) -> None:
    store = SqliteStore(str(tmp_path / "a.db"))
    store.open_file()
    store.close_file()
    ArtefactFiles(tmp_path / "a.db.artefacts").put(iter([b"made"]))
    (tmp_path / "a.db.schema-010").write_bytes(b"")
    (tmp_path / "a.db.lock").write_bytes(b"")
    for path in tmp_path.rglob("*"):
        path.chmod(0o777 if path.is_dir() else 0o666)
    assert len(open_to_others(tmp_path)) == 7
    with caplog.at_level(logging.WARNING):
        store = SqliteStore(str(tmp_path / "a.db"))
        store.open_file()
    found = open_to_others(tmp_path)
    store.close_file()
    assert found == {}
    assert f"{tmp_path / 'a.db'} could be read by other users" in caplog.text


def test_the_copy_that_a_migration_keeps_is_for_its_owner_alone(tmp_path: Path, no_umask: None) -> None:
    store = SqliteStore(str(tmp_path / "a.db"), threads=False)
    store.open_file()
    store._keep_copy(7)
    store._read = store._connect()
    found = open_to_others(tmp_path)
    store.close_file()
    assert (tmp_path / "a.db.schema-007").exists()
    assert found == {}


@pytest.mark.anyio
@pytest.mark.parametrize(
    "end", ["-wal", "-shm", "-journal", ".lock", ".mark", ".deciding", ".artefacts", ".work"]
)
@pytest.mark.parametrize("make", ["fifo", "link"])
async def test_something_else_in_the_place_of_a_companion_is_reported(
    tmp_path: Path, end: str, make: str
) -> None:
    database, other = tmp_path / "h.db", tmp_path / "precious"
    other.write_text("kept")
    place = tmp_path / f"h.db{end}"
    os.mkfifo(place) if make == "fifo" else place.symlink_to(other)
    with pytest.raises(StoreUnavailable, match=f"h.db{end} is not a .*; move it away"):
        async with Holdfast(f"sqlite:///{database}"):
            pass
    assert other.read_text() == "kept"
