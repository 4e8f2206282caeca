"""One process per database, whatever it is called; and a database that cannot be written is reported as that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.config import Settings
from holdfast.errors import DatabaseInUse, StoreUnavailable
from holdfast.http.serve import serving
from holdfast.runtime.compose import database_path
from holdfast.store.lock import Lock, holder_of

ANONYMOUS = 65534


def _symlink(path: Path) -> Path:
    link = path.with_name("link.db")
    link.symlink_to(path)
    return link


def _hard_link(path: Path) -> Path:
    link = path.with_name("link.db")
    link.hardlink_to(path)
    return link


def _hard_link_elsewhere(path: Path) -> Path:
    (path.parent / "other").mkdir()
    link = path.parent / "other" / "same.db"
    link.hardlink_to(path)
    return link


def _folder_link(path: Path) -> Path:
    folder = path.parent / "folder"
    folder.symlink_to(path.parent)
    return folder / path.name


NAMES = [_symlink, _hard_link, _hard_link_elsewhere, _folder_link]


@pytest.mark.anyio
@pytest.mark.parametrize("name", NAMES)
async def test_another_name_of_a_file_is_the_same_file(tmp_path: Path, name: object) -> None:
    async with Holdfast(f"sqlite:///{tmp_path / 'a.db'}"):
        other = name(tmp_path / "a.db")  # type: ignore[operator]
        with pytest.raises(DatabaseInUse, match="in use by process"):
            async with Holdfast(f"sqlite:///{other}"):
                pass


@pytest.mark.parametrize("name", [_symlink, _hard_link, _folder_link])
def test_the_holder_of_a_file_is_found_under_its_other_names(tmp_path: Path, name: object) -> None:
    (tmp_path / "a.db").touch()
    lock = Lock(str(tmp_path / "a.db"), "http://127.0.0.1:1")
    lock.take()
    other = name(tmp_path / "a.db")  # type: ignore[operator]
    assert holder_of(database_path(str(other))) == {"pid": os.getpid(), "address": "http://127.0.0.1:1"}
    lock.free()
    assert holder_of(database_path(str(other))) == {}


def test_a_refused_lock_leaves_the_holder_as_it_is(tmp_path: Path) -> None:
    first, second = Lock(str(tmp_path / "a.db"), "http://127.0.0.1:1"), Lock(str(tmp_path / "a.db"))
    first.take()
    for _ in range(2):
        with pytest.raises(DatabaseInUse, match=r"http://127\.0\.0\.1:1"):
            second.take()
    second.free()
    first.free()
    second.take()
    second.free()


def test_a_file_is_not_opened_under_a_name_that_its_log_is_not_beside(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    (tmp_path / "a.db-wal").write_bytes(b"left by a process that was killed")
    other = _hard_link(tmp_path / "a.db")
    with pytest.raises(DatabaseInUse, match="use it by that name"):
        Lock(str(other)).take()
    lock = Lock(str(tmp_path / "a.db"))
    lock.take()
    lock.free()


# ------------------------------------------------------------------------------------------- that cannot be written


@pytest.fixture
def not_root(tmp_path: Path) -> Iterator[None]:
    """Root may write everything."""
    "".encode("idna")  # getaddrinfo loads this codec late, and another user may not read root's Python
    former = os.geteuid()
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    if former == 0:
        os.seteuid(ANONYMOUS)
    yield
    if former == 0:
        os.seteuid(former)


@pytest.mark.anyio
async def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, not_root: None) -> None:
    if os.geteuid() != ANONYMOUS:
        tmp_path.chmod(0o500)
    with pytest.raises(StoreUnavailable, match=r"the database .*a\.db cannot be written: Permission denied"):
        async with Holdfast(f"sqlite:///{tmp_path / 'a.db'}"):
            pass
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        async with serving(Settings(db=f"sqlite:///{tmp_path / 'a.db'}", port=0)):
            pass


@pytest.mark.anyio
async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match=f"there is no folder {tmp_path / 'missing'}"):
        async with serving(Settings(db=f"sqlite:///{tmp_path / 'missing' / 'a.db'}", port=0)):
            pass
