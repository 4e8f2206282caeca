"""The files of a database are moved, replaced, removed or damaged while a process has them open: no commit that the next
process would not find is acknowledged."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.errors import StoreDamaged, StoreGone, StoreUnavailable
from holdfast.store import sqlite
from holdfast.store.base import Batch
from holdfast.store.sqlite import SqliteStore
from tests.store.conformance import appended, row, started

RUNS = range(1, 4)


class Served:
    """A store in a folder of its own, with three runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self.folder.mkdir()
        self.path = self.folder / "test.db"
        self.log = self.folder / "test.db-wal"
        self.store = SqliteStore(str(self.path), threads=False)
        self.store.open()
        assert self.submit(started(*RUNS)) is None
        self.seq = 1
        assert self.commit() is None

    def submit(self, batch: Batch) -> BaseException | None:
        told: list[BaseException | None] = []
        self.store.submit(batch, told.append)
        return told[0]

    def commit(self) -> BaseException | None:
        """One more row for each run."""
        error = self.submit(appended(*(row(no, self.seq + 1) for no in RUNS)))
        self.seq += error is None
        return error


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.store.close()


def rows_in(path: Path) -> list[tuple[int, int]]:
    """What the next process finds there: (run, rows), after the one that has it open was killed."""
    taken = path.parent.parent / "taken"
    taken.mkdir()
    for file in path.parent.glob("*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, taken / file.name)
    db = apsw.Connection(str(taken / path.name))
    found = list(db.execute("SELECT run, count(*) FROM journal GROUP BY run"))
    db.close()
    return found


def remove_folder(served: Served) -> None:
    shutil.rmtree(served.folder)


def move_folder(served: Served) -> None:
    served.folder.rename(served.folder.with_name("elsewhere"))


def move_file(served: Served) -> None:
    served.path.rename(served.folder / "moved.db")


def replace_file(served: Served) -> None:
    other = served.folder / "other.db"
    shutil.copy(served.path, other)
    other.replace(served.path)


def overwrite_file(served: Served) -> None:
    served.path.write_bytes(served.path.read_bytes() + bytes(4096))


def remove_log(served: Served) -> None:
    served.log.unlink()


def move_log(served: Served) -> None:
    served.log.rename(served.folder / "moved-wal")


def replace_log(served: Served) -> None:
    other = served.folder / "other-wal"
    other.write_bytes(served.log.read_bytes())
    other.replace(served.log)


def cut_log(served: Served) -> None:
    os.truncate(served.log, 0)


def cut_part_of_the_log(served: Served) -> None:
    os.truncate(served.log, 4096)


def overwrite_log(served: Served) -> None:
    served.log.write_bytes(os.urandom(served.log.stat().st_size))


TRICKS = [
    remove_folder, move_folder, move_file, replace_file, overwrite_file, remove_log, move_log, replace_log, cut_log,
    cut_part_of_the_log, overwrite_log,
]  # fmt: skip


@pytest.mark.parametrize("trick", TRICKS, ids=lambda trick: trick.__name__)
def test_no_commit_is_acknowledged_after_the_files_were_tampered_with(
    served: Served, trick: Callable[[Served], None]
) -> None:
    trick(served)
    errors = [served.commit() for _ in range(3)]
    assert all(isinstance(error, StoreGone) for error in errors), errors
    assert isinstance(served.store.problem(), StoreGone)


@pytest.mark.parametrize(
    "trick", [trick for trick in TRICKS if trick is not overwrite_log], ids=lambda trick: trick.__name__
)
def test_an_idle_store_sees_it_too(served: Served, trick: Callable[[Served], None]) -> None:
    assert served.store.problem() is None
    trick(served)
    if trick is overwrite_file:  # seen by a probe, which writes
        assert isinstance(served.commit(), StoreDamaged)
    assert isinstance(served.store.problem(), StoreGone)


@pytest.mark.parametrize("trick", [remove_log, move_log])
def test_what_was_acknowledged_before_the_log_went_is_in_the_database(
    served: Served, trick: Callable[[Served], None]
) -> None:
    for _ in range(20):
        assert served.commit() is None
    trick(served)
    assert isinstance(served.commit(), StoreGone)
    assert rows_in(served.path) == [(no, served.seq) for no in RUNS]


def test_a_file_that_was_moved_away_alone_has_all_that_was_acknowledged(served: Served) -> None:
    move_file(served)
    assert isinstance(served.commit(), StoreGone)
    served.log.unlink()  # it was left behind
    assert rows_in(served.folder / "moved.db") == [(no, served.seq) for no in RUNS]


def test_a_log_left_behind_is_not_written_into_the_file_that_took_the_place(
    served: Served, tmp_path: Path
) -> None:
    other = SqliteStore(str(tmp_path / "other.db"), threads=False)
    other.open()
    told: list[BaseException | None] = []
    other.submit(started(7), told.append)
    other.close()
    (tmp_path / "other.db").replace(served.path)
    assert isinstance(served.commit(), StoreGone)
    assert rows_in(served.path) == [(7, 1)]


def test_a_file_that_is_moved_back_is_used_again(served: Served) -> None:
    served.path.rename(served.folder / "moved.db")
    assert isinstance(served.commit(), StoreGone)
    (served.folder / "moved.db").rename(served.path)
    assert served.store.problem() is None
    assert [served.commit() for _ in range(3)] == [None] * 3
    assert rows_in(served.path) == [(no, served.seq) for no in RUNS]


def test_a_folder_that_is_moved_back_is_used_again(served: Served) -> None:
    move_folder(served)
    assert isinstance(served.commit(), StoreGone)
    served.folder.with_name("elsewhere").rename(served.folder)
    assert [served.commit() for _ in range(3)] == [None] * 3
    assert rows_in(served.path) == [(no, served.seq) for no in RUNS]


def test_a_log_that_is_moved_back_is_used_again(served: Served) -> None:
    move_log(served)
    assert isinstance(served.commit(), StoreGone)
    (served.folder / "moved-wal").rename(served.log)
    assert [served.commit() for _ in range(3)] == [None] * 3
    assert rows_in(served.path) == [(no, served.seq) for no in RUNS]


def test_closing_does_not_write_the_log_into_a_file_that_was_overwritten(served: Served) -> None:
    overwrite_file(served)
    assert isinstance(served.commit(), StoreDamaged)
    before = served.path.read_bytes()
    served.store.close()
    assert served.path.read_bytes() == before
    served.store.open()


def test_reading_from_a_log_that_was_cut_says_that_the_store_is_damaged(served: Served) -> None:
    cut_log(served)
    with pytest.raises(StoreUnavailable):
        asyncio.run(served.store.journal(RUNS[0], 0, 100))  # type: ignore[arg-type]
    assert isinstance(served.store.problem(), StoreDamaged)


# ------------------------------------------------------------------------------------------- what is no harm


def test_many_checkpoints_and_new_logs_are_no_harm(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", 3)
    assert [served.commit() for _ in range(50)] == [None] * 50


def test_a_reader_that_holds_a_checkpoint_back_is_no_harm(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "CHECKPOINT_PAGES", 3)
    reader = apsw.Connection(str(served.path), flags=apsw.SQLITE_OPEN_READONLY)
    for _ in range(5):
        reader.execute("BEGIN; SELECT count(*) FROM run")
        assert [served.commit() for _ in range(7)] == [None] * 7
        reader.execute("ROLLBACK")
        assert [served.commit() for _ in range(7)] == [None] * 7
    reader.close()


@pytest.mark.parametrize("mode", ["PASSIVE", "FULL", "RESTART", "TRUNCATE"])
def test_a_checkpoint_by_another_program_is_no_harm(served: Served, mode: str) -> None:
    for _ in range(3):
        other = apsw.Connection(str(served.path))
        other.execute(f"PRAGMA wal_checkpoint({mode})")
        assert served.store.problem() is None
        assert [served.commit() for _ in range(3)] == [None] * 3
        other.close()


def test_touching_the_file_is_no_harm(served: Served) -> None:
    os.utime(served.path, (1, 1))
    assert served.commit() is None
