"""A folder of definitions: what is published from it, and when. Real files, a real watcher, a publisher that remembers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
import pytest

from holdfast import limits
from holdfast.errors import NotFound, StoreUnavailable
from holdfast.ops.folders import Folder
from holdfast.spec.notation import Definition

pytestmark = pytest.mark.anyio


class Shelf:
    """Remembers what was published, in order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.published: list[str] = []
        self.is_away = False
        self._more = asyncio.Event()
        self.folder = Folder(root, self.publish)

    async def publish(self, tenant: str, definition: Definition) -> None:
        if self.is_away:
            raise StoreUnavailable("the disk is full")
        self.published.append(f"{definition.name}: {definition.description}")
        self._more.set()

    def write(self, file: str, name: str, description: str = "") -> Path:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        text = f"name: {name}\ndescription: '{description}'\nsteps: [{{id: s, tool: echo, args: {{value: 1}}}}]\n"
        scratch = path.with_name(f".{path.name}.tmp")
        scratch.write_text(text, "utf-8")
        return scratch.rename(path)

    async def until(self, said: str) -> None:
        """Wait until this was published."""
        async with asyncio.timeout(120):
            while said not in self.published:
                self._more.clear()
                await self._more.wait()

    def codes(self) -> dict[str, list[str]]:
        return {one.file: [problem.code for problem in one.problems] for one in self.folder.broken}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


@contextlib.asynccontextmanager
async def watched(shelf: Shelf) -> AsyncIterator[None]:
    """The folder, watched; it is, once a file that is written over and over is noticed."""
    await shelf.folder.load()
    task = asyncio.get_running_loop().create_task(shelf.folder.watch())
    try:
        async with asyncio.timeout(120):
            beat = 0
            while not any(one.startswith("beat") for one in shelf.published):
                shelf.write("beat.yaml", "beat", str(beat := beat + 1))
                await asyncio.sleep(0.02)
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


# ------------------------------------------------------------------------------------------------------ loading


async def test_every_definition_of_the_folder_is_published(shelf: Shelf) -> None:
    shelf.write("a.yaml", "a")
    shelf.write("b.yml", "b")
    shelf.write("inner/c.json", "c")
    await shelf.folder.load()
    assert shelf.published == ["a: ", "b: ", "c: "]
    assert [one.status for one in shelf.folder.files] == ["published"] * 3


async def test_both_notations_are_published(shelf: Shelf) -> None:
    (shelf.root / "graph.yaml").write_text(
        "start: a\nnodes: {a: {kind: executor, service: sum}}\nedges: []\n"
    )
    await shelf.folder.load()
    assert shelf.published == ["graph: "]


async def test_a_broken_file_holds_up_no_other(shelf: Shelf) -> None:
    shelf.write("a.yaml", "a")
    (shelf.root / "b.yaml").write_text("name: b\nsteps: [{id: s, toool: echo}]\n")
    shelf.write("c.yaml", "c")
    await shelf.folder.load()
    assert shelf.published == ["a: ", "c: "]
    assert "unknown_key" in shelf.codes()["b.yaml"]


async def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no folder"):
        await Shelf(tmp_path / "nowhere").folder.load()


@pytest.mark.parametrize(
    "file",
    [
        ".a.yaml",
        "a.yaml~",
        ".a.yaml.swp",
        "#a.yaml#",
        ".#a.yaml",
        "a.txt",
        ".git/a.yaml",
        "holdfast.schema.json",
        "schedules.yaml",
        "night.schedules.yml",
    ],
)
async def test_what_editors_leave_schemas_schedules_and_hidden_files_are_passed_over(
    shelf: Shelf, file: str
) -> None:
    shelf.write(file, "a")
    await shelf.folder.load()
    assert (shelf.published, shelf.folder.files) == ([], [])


async def test_a_project_inside_of_the_folder_is_not_entered(shelf: Shelf) -> None:
    shelf.write("other/a.yaml", "a")
    (shelf.root / "other" / "holdfast.toml").touch()
    await shelf.folder.load()
    assert shelf.folder.files == []


async def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    outside, shelf = Shelf(tmp_path), Shelf(tmp_path / "flows")
    shelf.root.mkdir()
    (shelf.root / "a.yaml").symlink_to(outside.write("secret.yaml", "secret"))
    await shelf.folder.load()
    assert (shelf.published, shelf.codes()) == ([], {"a.yaml": ["outside"]})


async def test_a_link_within_the_folder_is_followed(shelf: Shelf) -> None:
    (shelf.root / "a.yaml").symlink_to(shelf.write(".data/a.yaml", "a"))
    await shelf.folder.load()
    assert shelf.published == ["a: "]


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.fspath(path))


@pytest.mark.parametrize(("make", "what"), [(a_fifo, "a FIFO"), (a_socket, "a socket")])
async def test_what_is_no_regular_file_is_reported_and_not_opened(
    shelf: Shelf, make: Callable[[Path], None], what: str
) -> None:
    make(shelf.root / "bad.yaml")
    shelf.write("good.yaml", "good")
    await asyncio.wait_for(shelf.folder.load(), 60)
    assert shelf.published == ["good: "]
    ((problem,),) = [one.problems for one in shelf.folder.broken]
    assert what in problem.message and shelf.folder.broken[0].file == "bad.yaml"


async def test_a_file_name_that_is_not_utf_8_is_shown_as_text(shelf: Shelf) -> None:
    for name in (b"a\xff.yaml", b"b\x9b.yaml"):
        path = shelf.root / os.fsdecode(name)
        path.write_text("name: [" if name.startswith(b"b") else "name: a\nsteps: [{id: s, tool: echo}]\n")
    await shelf.folder.load()
    await shelf.folder.scan()
    assert [(one.file, one.status) for one in shelf.folder.files] == [
        ("a\\udcff.yaml", "published"),
        ("b\\udc9b.yaml", "broken"),
    ]
    assert msgspec.json.encode(shelf.folder.files)


async def test_a_link_to_nothing_is_passed_over(shelf: Shelf) -> None:
    (shelf.root / "a.yaml").symlink_to(shelf.root / "nothing.yaml")
    await shelf.folder.load()
    assert shelf.folder.files == []


async def test_of_two_files_with_one_name_the_second_is_refused(shelf: Shelf) -> None:
    shelf.write("a.yaml", "same", "first")
    shelf.write("b.yaml", "same", "second")
    await shelf.folder.load()
    assert (shelf.published, shelf.codes()) == (["same: first"], {"b.yaml": ["duplicate_name"]})


async def test_a_name_is_free_again_when_its_file_is_gone(shelf: Shelf) -> None:
    first = shelf.write("a.yaml", "same", "first")
    shelf.write("b.yaml", "same", "second")
    await shelf.folder.load()
    first.unlink()
    await shelf.folder.scan()
    assert (shelf.published[-1], shelf.codes()) == ("same: second", {})


async def test_a_file_that_is_too_large_is_broken(shelf: Shelf) -> None:
    shelf.write("a.yaml", "a", "x" * limits.now.spec_bytes_max)
    await shelf.folder.load()
    assert shelf.codes() == {"a.yaml": ["too_large"]}


async def test_a_folder_with_too_many_files_says_so_and_publishes_none(shelf: Shelf) -> None:
    for number in range(limits.now.folder_files_max + 1):
        (shelf.root / f"{number}.yaml").touch()
    await shelf.folder.load()
    assert shelf.published == []
    assert "folder_files_max" in shelf.folder.problem


async def test_what_cannot_be_stored_now_is_published_at_the_next_look(shelf: Shelf) -> None:
    shelf.write("a.yaml", "a")
    shelf.is_away = True
    await shelf.folder.load()
    shelf.is_away = False
    await shelf.folder.scan()
    assert shelf.published == ["a: "]


# ------------------------------------------------------------------------------------------------------ changes


async def test_only_content_that_changed_is_published_again(shelf: Shelf) -> None:
    shelf.write("a.yaml", "a", "1")
    path = shelf.write("b.yaml", "b", "1")
    await shelf.folder.load()
    path.write_text(path.read_text() + "# a remark changes nothing\n")
    shelf.write("a.yaml", "a", "2")
    await shelf.folder.scan()
    assert shelf.published == ["a: 1", "b: 1", "a: 2"]


async def test_a_file_that_breaks_leaves_what_was_published_and_heals(shelf: Shelf) -> None:
    path = shelf.write("a.yaml", "a", "1")
    await shelf.folder.load()
    path.write_text("name: a\nsteps: [\n")
    await shelf.folder.scan()
    (broken,) = shelf.folder.broken
    assert (broken.name, shelf.published) == ("a", ["a: 1"])
    shelf.write("a.yaml", "a", "2")
    await shelf.folder.scan()
    assert (shelf.folder.broken, shelf.published) == ([], ["a: 1", "a: 2"])


async def test_a_broken_file_is_reported_once(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    (shelf.root / "a.yaml").write_text("steps: 7\n")
    await shelf.folder.load()
    await shelf.folder.scan()
    assert len([one for one in caplog.records if "a.yaml" in one.getMessage()]) == 1


async def test_a_file_that_is_renamed_publishes_nothing_new_under_the_name_of_another(shelf: Shelf) -> None:
    path = shelf.write("a.yaml", "a", "1")
    await shelf.folder.load()
    path.rename(shelf.root / "z.yaml")
    await shelf.folder.scan()
    assert ([one.file for one in shelf.folder.files], shelf.codes()) == (["z.yaml"], {})


async def test_a_file_that_is_deleted_is_only_forgotten(shelf: Shelf) -> None:
    shelf.write("a.yaml", "a").unlink()
    shelf.write("b.yaml", "b")
    await shelf.folder.load()
    (shelf.root / "b.yaml").unlink()
    await shelf.folder.scan()
    assert (shelf.published, shelf.folder.files) == (["b: "], [])


async def test_a_folder_that_goes_away_keeps_its_files_as_they_were(shelf: Shelf, tmp_path: Path) -> None:
    inner = Shelf(tmp_path / "flows")
    inner.write("a.yaml", "a")
    await inner.folder.load()
    os.rename(inner.root, tmp_path / "away")
    await inner.folder.scan()
    assert ([one.name for one in inner.folder.files], "no folder" in inner.folder.problem) == (["a"], True)


# ----------------------------------------------------------------------------------------------------- watching


async def test_a_change_is_noticed(shelf: Shelf) -> None:
    shelf.write("a.yaml", "a", "1")
    async with watched(shelf):
        shelf.write("a.yaml", "a", "2")
        await shelf.until("a: 2")


async def test_a_new_file_in_a_new_folder_is_noticed(shelf: Shelf) -> None:
    async with watched(shelf):
        shelf.write("inner/deep/b.yaml", "b", "new")
        await shelf.until("b: new")


async def test_a_burst_of_changes_ends_with_the_last_one(shelf: Shelf) -> None:
    async with watched(shelf):
        for number in range(50):
            shelf.write("a.yaml", "a", str(number))
        await shelf.until("a: 49")
        assert len(shelf.published) < 60
