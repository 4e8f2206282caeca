"""Watched folders: each file that arrives and stands still starts one run, across restarts too."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, tool
from holdfast.spec.schedule import schedule_from_data
from holdfast.spec.schedule_record import ScheduleSpec
from holdfast.store.batch import Batch
from holdfast.triggers.arrivals import Arrival, Stillness, arrivals, content_of
from tests.small_limits import with_limits

# ------------------------------------------------------------------------------------------------------- arrivals


def names(folder: Path, pattern: str = "*") -> list[str]:
    return sorted(one.name for one in arrivals(str(folder), pattern))


def test_regular_files_that_match_are_found(tmp_path: Path) -> None:
    for name in ("a.csv", "b.txt", ".hidden.csv", "C.CSV"):
        (tmp_path / name).write_text("x")
    (tmp_path / "folder.csv").mkdir()
    assert names(tmp_path, "*.csv") == ["a.csv"]
    assert names(tmp_path) == ["C.CSV", "a.csv", "b.txt"]


def test_links_and_pipes_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "outside")
    os.mkfifo(folder / "pipe")
    assert names(folder) == []
    seen = Arrival("link", 6, 0, 0, 0)
    assert content_of(str(folder), seen) is None
    assert content_of(str(folder), seen._replace(name="pipe")) is None


def test_the_content_of_a_file_that_has_changed_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (seen,) = arrivals(str(tmp_path), "*")
    assert (
        content_of(str(tmp_path), seen) == "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    )
    (tmp_path / "a").write_text("three")
    assert content_of(str(tmp_path), seen) is None


def test_a_name_that_is_not_utf8_is_left_out(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff")).write_text("x")
    assert names(tmp_path) == []


def test_a_folder_with_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(monkeypatch, watched_files_max=1)
    for name in "ab":
        (tmp_path / name).write_text("x")
    with pytest.raises(Exception, match="watched_files_max"):
        arrivals(str(tmp_path), "*")


def test_a_file_is_due_once_it_has_stood_still() -> None:
    still, seen = Stillness(5), Arrival("a", 1, 1, 1, 1)
    assert still.due([seen], 100.0) == ([], 5.0)
    assert still.due([seen], 104.0) == ([], 1.0)
    grown = seen._replace(size=2)
    assert still.due([grown], 105.0) == ([], 5.0)
    assert still.due([grown], 110.0) == ([grown], None)
    assert still.due([], 111.0) == ([], None)
    assert still.due([grown], 112.0) == ([], 5.0)  # it was gone meanwhile


def test_with_no_time_to_stand_still_a_file_is_due_at_once() -> None:
    seen = Arrival("a", 1, 1, 1, 1)
    assert Stillness(0).due([seen], 1.0) == ([seen], None)


def test_a_file_is_due_once_the_seconds_that_were_left_have_passed() -> None:
    seen = Arrival("a", 1, 1, 1, 1)
    for since in (3.011, 8.0110000001, 0.1, 1e6 / 3):  # sums and differences of such numbers are rounded
        still = Stillness(5)
        _, left = still.due([seen], since)
        assert left is not None and still.due([seen], since + left) == ([seen], None)


# ------------------------------------------------------------------------------------------------ on a real engine


WORK = {"name": "work", "steps": [{"id": "a", "tool": "seen", "args": {"payload": "{{inputs.payload}}"}}]}


class Folder:
    """A watched folder, a database, and the payloads of the runs that were started."""

    def __init__(self, path: Path) -> None:
        self.path, self._db = path / "in", path / "h.db"
        self.path.mkdir()
        self.payloads: list[dict[str, Any]] = []
        self._called = asyncio.Event()

    def write(self, name: str, text: str = "x") -> None:
        """As senders do it that want no half file to be seen."""
        (self.path / f".{name}.part").write_text(text)
        (self.path / f".{name}.part").rename(self.path / name)

    def spec(self, **trigger: Any) -> ScheduleSpec:
        given = {"kind": "file", "path": str(self.path), "stable_secs": 0, **trigger}
        data = {
            "id": "s",
            "workflow": "work",
            "inputs": {"payload": "{{trigger.payload}}"},
            "max_concurrent": 0,
        }
        return schedule_from_data({**data, "trigger": given})

    @asynccontextmanager
    async def watched(self, retention_days: float | None = 30, **trigger: Any) -> AsyncIterator[Holdfast]:
        @tool
        async def seen(payload: dict[str, Any]) -> None:
            self.payloads.append(payload)
            self._called.set()

        async with Holdfast(f"sqlite:///{self._db}", tools=[seen], retention_days=retention_days) as hf:
            await hf.publish(WORK)
            await hf._engine.schedules.put("default", self.spec(**trigger), origin="file")
            yield hf

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._called.clear()
                await self._called.wait()

    @property
    def names(self) -> list[str]:
        return [payload["name"] for payload in self.payloads]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.anyio
async def test_a_file_that_arrives_starts_a_run(folder: Folder) -> None:
    async with folder.watched(pattern="*.csv"):
        folder.write("a.txt")
        folder.write("a.csv", "hello")
        await folder.until(lambda: len(folder.payloads) == 1)
    (payload,) = folder.payloads
    assert (payload["path"], payload["name"], payload["size"]) == (str(folder.path / "a.csv"), "a.csv", 5)
    assert payload["modified_at"].endswith("Z")


@pytest.mark.anyio
async def test_a_restart_repeats_no_file_and_misses_none(folder: Folder) -> None:
    folder.write("before")
    async with folder.watched():
        await folder.until(lambda: folder.names == ["before"])
    folder.write("meanwhile")
    async with folder.watched():
        await folder.until(lambda: "meanwhile" in folder.names)
        folder.write("after")
        await folder.until(lambda: "after" in folder.names)
    assert sorted(folder.names) == ["after", "before", "meanwhile"]


@pytest.mark.anyio
async def test_a_file_that_is_replaced_is_another_event(folder: Folder) -> None:
    async with folder.watched():
        folder.write("a", "one")
        await folder.until(lambda: len(folder.payloads) == 1)
        folder.write("a", "three")
        await folder.until(lambda: len(folder.payloads) == 2)
    assert [payload["size"] for payload in folder.payloads] == [3, 5]


@pytest.mark.anyio
async def test_with_identity_content_the_same_content_is_one_event(folder: Folder) -> None:
    async with folder.watched(identity="content"):
        folder.write("a", "same")
        await folder.until(lambda: len(folder.payloads) == 1)
        folder.write("b", "same")
        folder.write("c", "other")
        await folder.until(lambda: len(folder.payloads) == 2)
    assert folder.names == ["a", "c"]
    assert len({payload["sha256"] for payload in folder.payloads}) == 2


@pytest.mark.anyio
async def test_a_file_is_not_an_event_again_once_its_row_of_the_ledger_is_deleted(folder: Folder) -> None:
    folder.write("old")
    async with folder.watched() as hf:
        await folder.until(lambda: folder.names == ["old"])
        run = (await hf._engine.store.list_runs("default", None, 10)).rows[0]
        await hf._engine.waiters.ended(run.no)
        batch = Batch()
        batch.forgotten.append(run.no)
        await hf._engine.committer.commit(batch)
    async with folder.watched(retention_days=1e-9):  # so that the file is older than what the ledger keeps
        folder.write("new")
        await folder.until(lambda: "new" in folder.names)
    assert folder.names == ["old", "new"]


@pytest.mark.anyio
async def test_a_folder_that_is_not_there_is_a_problem_of_its_schedule(
    folder: Folder, tmp_path: Path
) -> None:
    async with folder.watched(path=str(tmp_path / "gone")) as hf:
        while not (problem := hf._engine.kinds.problem("default", "s")):
            await asyncio.sleep(0)
    assert problem.startswith(f"its folder {tmp_path / 'gone'} cannot be read")


@pytest.mark.anyio
async def test_a_folder_that_is_made_later_is_watched_then(folder: Folder, tmp_path: Path) -> None:
    later = tmp_path / "later"
    async with folder.watched(path=str(later)):
        later.mkdir()
        (later / "a").write_text("x")
        await folder.until(lambda: folder.names == ["a"])
