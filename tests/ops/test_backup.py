"""A backup is there whole or not at all, and a copy that is to be used beside the original has an identity of its own."""

from __future__ import annotations

import errno
import logging
import os
from pathlib import Path

import apsw
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.ops.backup import back_up
from holdfast.ops.doctor import examine
from holdfast.signing import Capability, opened, sealed
from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.batch import Batch
from holdfast.store.records import AssignmentRow
from holdfast.store.sqlite.store import SqliteStore
from holdfast.values import Millis, RunNo

NAMES = ["copy.db", ".copy.db.partial", "copy.db.artefacts", ".copy.db.partial.artefacts"]


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A database with an artefact and a job that a worker has."""
    path = tmp_path / "a.db"
    store = SqliteStore(str(path), threads=False)
    store.open_file()
    batch = Batch()
    batch.assignments.append(AssignmentRow(RunNo(1), "s", 1, "service", "worker", "token", 1, Millis(1)))
    told: list[BaseException | None] = []
    store.submit(batch, told.append)
    assert told == [None]
    store.close_file()
    ArtefactFiles(tmp_path / "a.db.artefacts").put(iter([b"made"]))
    return path


def copied(original: Path, *, as_copy: bool = False) -> Path:
    reader = SqliteStore(str(original))
    reader.open_file_to_read()
    try:
        back_up(reader, original.with_name("copy.db"), as_copy=as_copy)
    finally:
        reader.close_file()
    return original.with_name("copy.db")


def test_a_backup_whose_last_sync_fails_is_not_there(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    fsync, failing = os.fsync, 0

    def counted(fd: int) -> None:
        calls.append(fd)
        fsync(fd)
        if len(calls) == failing:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", counted)
    copied(original)
    for name in ("copy.db", "copy.db.artefacts"):
        os.rename(original.with_name(name), original.with_name(f"first-{name}"))
    for failing in range(1, len(calls) + 1):  # read by the one above
        calls.clear()
        with pytest.raises(StoreUnavailable, match="cannot be written, and is not there"):
            copied(original)
        assert [name for name in NAMES if original.with_name(name).exists()] == [], failing


def _opened(path: Path) -> SqliteStore:
    store = SqliteStore(str(path), threads=False)
    store.open_file()
    return store


@pytest.mark.parametrize("as_copy", [False, True])
def test_a_copy_with_its_own_identity_accepts_nothing_that_the_original_gave_out(
    original: Path, as_copy: bool
) -> None:
    first = _opened(original)
    address = sealed(first.server_key, Capability("default", "r", "s", 1))
    first.close_file()
    store = _opened(copied(original, as_copy=as_copy))
    accepted = opened(store.server_key, address, "resume")
    tokens = list(store._read.execute("SELECT worker, token FROM assignment"))
    store.close_file()
    assert (accepted is None) == as_copy
    assert tokens == ([("", "")] if as_copy else [("worker", "token")])


def _warnings(path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        _opened(path).close_file()
    return [record.getMessage() for record in caplog.records if "--as-copy" in record.getMessage()]


def test_the_first_start_of_a_restored_copy_says_how_to_give_it_an_identity(
    original: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy = copied(original)
    assert len(_warnings(copy, caplog)) == 1
    assert _warnings(copy, caplog) == []
    assert _warnings(original, caplog) == []


def test_a_copy_made_as_one_and_a_file_that_was_moved_start_without_a_word(
    original: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert _warnings(copied(original, as_copy=True), caplog) == []
    moved = original.rename(original.with_name("moved.db"))
    assert _warnings(moved, caplog) == []


@pytest.mark.anyio
@pytest.mark.parametrize("as_copy", [False, True])
async def test_doctor_says_of_a_copy_that_it_is_one(original: Path, as_copy: bool) -> None:
    db = apsw.Connection(str(original))
    db.execute("DELETE FROM assignment")
    db.close()
    store = SqliteStore(str(copied(original, as_copy=as_copy)))
    await store.open_to_read()
    found = {finding.check: finding for finding in await examine(store)}
    await store.close()
    assert ("--as-copy" in found["identity"].note) != as_copy
    assert found["identity"].problems == []
