"""The files of a database are moved, replaced, removed or damaged while a process has them open: no commit that the next
process would not find is acknowledged."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from holdfast import Holdfast
from holdfast.errors import StoreDamaged, StoreGone, StoreUnavailable
from holdfast.store.batch import Batch
from holdfast.store.lock import Lock
from holdfast.store.sqlite import store as sqlite
from holdfast.store.sqlite.store import SqliteStore
from tests.store.conformance.batches import appended, row, started

RUNS = range(1, 4)


class Served:
    """A store in a folder of its own, with three runs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"
        self.folder.mkdir()
        self.path = self.folder / "test.db"
        self.log = self.folder / "test.db-wal"
        self.store = SqliteStore(str(self.path), threads=False)
        self.store.open_file()
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
    served.store.close_file()


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
    other.open_file()
    told: list[BaseException | None] = []
    other.submit(started(7), told.append)
    other.close_file()
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
    served.store.close_file()
    assert served.path.read_bytes() == before
    served.store.open_file()


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


# --------------------------------------------------------------------------------------------------- links and names


def test_a_link_that_leads_to_another_file_stops_commits_until_it_leads_back(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    for link, there, elsewhere in (
        (tmp_path / "folder", tmp_path / "one", tmp_path / "two"),
        (tmp_path / "link.db", tmp_path / "one" / "test.db", tmp_path / "two" / "test.db"),
    ):
        link.symlink_to(there)
        name = link if link.suffix else link / "test.db"
        store = SqliteStore(os.path.realpath(name), threads=False, name=str(name))
        store.open_file()
        number = store.next_no()
        assert _submitted(store, started(number)) is None
        link.unlink()
        link.symlink_to(elsewhere)
        assert isinstance(store.problem(), StoreGone)
        assert isinstance(_submitted(store, appended(row(number, 2))), StoreGone)
        link.unlink()
        link.symlink_to(there)
        assert store.problem() is None
        assert _submitted(store, appended(row(number, 2))) is None
        store.close_file()


def _submitted(store: SqliteStore, batch: Batch) -> BaseException | None:
    told: list[BaseException | None] = []
    store.submit(batch, told.append)
    return told[0]


def test_the_index_of_the_log_is_missed_too(served: Served) -> None:
    index = served.folder / "test.db-shm"
    index.rename(served.folder / "away")
    assert isinstance(served.store.problem(), StoreGone)
    assert isinstance(served.commit(), StoreGone)
    (served.folder / "away").rename(index)
    assert served.store.problem() is None
    assert served.commit() is None


def _left(served: Served, to: Path) -> None:
    """The files as a process leaves them that is killed."""
    to.mkdir()
    for file in served.folder.glob("*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, to / file.name)


@pytest.mark.parametrize("harm", [os.link, os.rename])
def test_a_database_is_not_opened_by_a_name_that_its_log_is_not_beside(
    tmp_path: Path, harm: Callable[[Path, Path], None]
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    path = folder / "test.db"
    pid = os.fork()
    if not pid:  # dies as by kill -9, with commits in the log
        store = SqliteStore(str(path), threads=False)
        store.open_file()
        _submitted(store, started(*RUNS))
        os._exit(0)
    os.waitpid(pid, 0)
    other = tmp_path / "other" / "new.db"
    other.parent.mkdir()
    harm(path, other)
    for open_it in (
        SqliteStore(str(other), threads=False).open_file,
        SqliteStore(str(other)).open_file_to_read,
    ):
        with pytest.raises(StoreUnavailable, match=re.escape(f"its log {path}-wal has commits in it")):
            open_it()
    for end in ("-wal", "-shm"):
        other.with_name(f"new.db{end}").unlink(missing_ok=True)
    (folder / "test.db-wal").rename(other.with_name("new.db-wal"))
    store = SqliteStore(str(other), threads=False)
    store.open_file()
    assert store.next_no() == len(RUNS) + 1
    store.close_file()


def test_a_new_database_is_not_made_beside_the_log_of_one_that_is_missing(
    served: Served, tmp_path: Path
) -> None:
    _left(served, tmp_path / "left")
    path = tmp_path / "left" / "test.db"
    path.rename(tmp_path / "kept.db")
    with pytest.raises(StoreUnavailable, match="is not there, but its log"):
        SqliteStore(str(path), threads=False).open_file()
    (tmp_path / "kept.db").rename(path)
    assert rows_in(path) == [(no, served.seq) for no in RUNS]


def test_a_program_that_writes_into_the_database_is_noticed_once(served: Served) -> None:
    assert not served.store.was_touched()
    with open(served.path, "r+b") as file:
        file.seek(5 * 4096)
        file.write(bytes(4096))
    assert served.commit() is None
    assert served.store.was_touched()
    assert not served.store.was_touched()


def test_a_backup_is_not_mixed_with_the_log_of_the_database_that_was_there_before(
    served: Served, tmp_path: Path
) -> None:
    _left(served, tmp_path / "left")
    path, backup = tmp_path / "left" / "test.db", tmp_path / "backup.db"
    served.store.copy_to(str(backup))
    kept = backup.read_bytes()
    backup.replace(path)
    for open_it in (
        SqliteStore(str(path), threads=False).open_file,
        SqliteStore(str(path)).open_file_to_read,
    ):
        with pytest.raises(StoreUnavailable, match="is the log of the database that was here before"):
            open_it()
    assert path.read_bytes() == kept
    path.with_name("test.db-wal").unlink()
    store = SqliteStore(str(path), threads=False)
    store.open_file()
    assert store.next_no() == len(RUNS) + 1
    store.close_file()


def test_what_is_no_database_keeps_its_rights_and_content(tmp_path: Path) -> None:
    text, pipe = tmp_path / "flow.json", tmp_path / "pipe"
    text.write_text('{"name": "a flow"}')
    text.chmod(0o644)
    os.mkfifo(pipe, 0o644)
    for path, why in ((text, "cannot be read as a database"), (pipe, "is not a regular file")):
        with pytest.raises(StoreUnavailable, match=why):
            SqliteStore(str(path), threads=False).open_file()
        assert path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(StoreUnavailable, match="is not a regular file"):
        Lock(str(pipe)).take()
    assert sorted(tmp_path.iterdir()) == [text, pipe]


@pytest.mark.anyio
async def test_a_database_whose_making_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    """The first page was not written whole, and the rollback journal says that the file had no pages before."""
    file = tmp_path / "h.db"
    file.write_bytes(bytes(2048))
    journal = "d9d505f920a163d7" + "00000000" + "68db2cc9" + "00000000" + "00000200" + "00001000"
    Path(f"{file}-journal").write_bytes(bytes.fromhex(journal).ljust(512, b"\0"))
    async with Holdfast(f"sqlite:///{file}") as hf:
        assert await hf.runs() == []
    assert file.read_bytes().startswith(b"SQLite format 3")


def test_a_read_of_a_store_that_is_closed_is_unavailable(tmp_path: Path) -> None:
    store = SqliteStore(str(tmp_path / "h.db"))
    store.open_file()
    store.close_file()
    with pytest.raises(StoreUnavailable, match="is closed: the engine has stopped"):
        asyncio.run(store.next_due())
