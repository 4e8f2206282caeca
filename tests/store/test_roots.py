"""Files leave the machine only from the attempt's own folder and from those that the operator lists."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.store.roots import FileRefused, Protected, RootRefused, Roots


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A server's folder: database, settings, tools and flows, with one folder to hand out from."""
    for name in ("out", "flows", "pack", "h.db.artefacts", "h.db.work"):
        (tmp_path / name).mkdir()
    for name in (
        "h.db",
        "h.db-wal",
        "h.db-shm",
        "h.db.lock",
        "h.db.schema-003",
        "holdfast.toml",
        "tools.py",
        "flows/a.yaml",
        "pack/tools.py",
        "out/ok",
    ):
        (tmp_path / name).write_text(f"of {name}")
    return tmp_path


def protected(place: Path) -> Protected:
    others = [
        ("the settings", place / "holdfast.toml"),
        ("the tools", place / "tools.py"),
        ("the tools", place / "pack"),
        ("the flows", place / "flows"),
    ]
    return Protected(place / "h.db", others)


def roots(place: Path) -> Roots:
    return Roots([place / "out"], protected(place))


def read(found: Roots, path: str, workdir: Path | None = None) -> str:
    with found.open(path, workdir) as file:
        return file.read().decode()


@pytest.mark.parametrize(
    "root",
    [".", "..", "/", "flows", "pack", "pack/deeper", "h.db.artefacts", "h.db.artefacts/ab", "h.db.work", "/proc",
     "/proc/self", "/dev", "/dev/shm", "/sys", "link-to-here", "out/.."],
)  # fmt: skip
def test_a_root_that_holds_or_is_inside_the_servers_own_files_is_refused(place: Path, root: str) -> None:
    (place / "link-to-here").symlink_to(place)
    (place / "pack" / "deeper").mkdir()
    (place / "h.db.artefacts" / "ab").mkdir()
    with pytest.raises(RootRefused, match=r"artefact_roots: .*which tenants must not read"):
        Roots([place / root], protected(place))


@pytest.mark.parametrize("root", ["missing", "out/ok"])
def test_a_root_that_is_not_a_folder_is_refused(place: Path, root: str) -> None:
    with pytest.raises(RootRefused, match="there is no folder"):
        Roots([place / root], protected(place))


def test_a_database_that_is_a_link_protects_both_places(place: Path) -> None:
    (place / "real").mkdir()
    (place / "names").mkdir()
    (place / "real" / "x.db").write_text("x")
    (place / "names" / "x.db").symlink_to(place / "real" / "x.db")
    for root in ("real", "names"):
        with pytest.raises(RootRefused):
            Roots([place / root], Protected(place / "names" / "x.db"))


def test_files_of_listed_folders_are_opened_by_relative_and_absolute_paths(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    for path in ("out/ok", "ok", str(place / "out" / "ok"), "flows/../out/ok"):
        assert read(roots(place), path) == "of out/ok"


def test_without_a_listed_folder_only_the_work_folder_gives_files(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    workdir = place / "h.db.work" / "mine"
    workdir.mkdir()
    (workdir / "f").write_text("mine")
    nothing = Roots((), protected(place))
    assert read(nothing, "f", workdir) == read(nothing, str(workdir / "f"), workdir) == "mine"
    for path in ("h.db", "out/ok", "holdfast.toml", str(place / "h.db")):
        for folder in (None, workdir):
            with pytest.raises((FileRefused, FileNotFoundError)):
                read(nothing, path, folder)


def tricks(place: Path, target: Path) -> Iterator[str]:
    out = place / "out"
    yield str(target)
    yield os.path.relpath(target, out)
    yield f"../{target.relative_to(place)}"
    yield f"x/../../{target.relative_to(place)}"
    (out / "soft").symlink_to(target)
    yield "soft"
    (out / "folder").symlink_to(target.parent)
    yield f"folder/{target.name}"
    yield f"/proc/self/root{target}"
    yield f"/proc/self/cwd/{target.relative_to(place)}"
    os.link(target, out / "hard")
    yield "hard"


@pytest.mark.parametrize(
    "name",
    ["h.db", "h.db-wal", "h.db-shm", "h.db.lock", "h.db.schema-003", "holdfast.toml", "tools.py", "pack/tools.py",
     "flows/a.yaml"],
)  # fmt: skip
def test_no_trick_opens_a_file_of_the_server(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    found = roots(place)
    for path in tricks(place, place / name):
        with pytest.raises((FileRefused, FileNotFoundError)):
            read(found, path)
    with open(place / name, "rb") as held, pytest.raises(FileRefused):
        read(found, f"/proc/self/fd/{held.fileno()}")


def test_a_hard_link_to_the_database_is_refused_in_the_work_folder_too(place: Path) -> None:
    workdir = place / "h.db.work" / "mine"
    workdir.mkdir()
    os.link(place / "h.db", workdir / "innocent.txt")
    with pytest.raises(FileRefused, match="a file of the server itself"):
        read(roots(place), "innocent.txt", workdir)


def test_a_hard_link_to_another_file_of_the_root_is_a_file_like_any(place: Path) -> None:
    os.link(place / "out" / "ok", place / "out" / "twin")
    assert read(roots(place), str(place / "out" / "twin")) == "of out/ok"


def test_a_work_folder_replaced_by_a_link_gives_nothing(place: Path) -> None:
    workdir = place / "h.db.work" / "mine"
    workdir.symlink_to(place)
    with pytest.raises((FileRefused, OSError)):
        read(roots(place), "h.db", workdir)


def test_another_attempts_work_folder_gives_nothing(place: Path) -> None:
    for name in ("mine", "theirs"):
        (place / "h.db.work" / name).mkdir()
        (place / "h.db.work" / name / "f").write_text(name)
    for path in ("../theirs/f", str(place / "h.db.work" / "theirs" / "f")):
        with pytest.raises(FileRefused, match="outside"):
            read(roots(place), path, place / "h.db.work" / "mine")


def test_pipes_sockets_devices_and_folders_are_not_opened(place: Path) -> None:
    out, found = place / "out", roots(place)
    os.mkfifo(out / "pipe")
    (out / "zero").symlink_to("/dev/zero")
    (out / "sub").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        here = os.getcwd()
        os.chdir(out)  # the name of a socket has at most 107 bytes
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        for name in ("pipe", "socket"):
            with pytest.raises(FileRefused, match="not a regular file"):
                read(found, str(out / name))
    for name in ("zero", "/dev/zero", "/dev/stdin", "/dev/fd/0"):
        with pytest.raises(FileRefused, match="outside"):
            read(found, str(out / name))
    for name in ("sub", "."):
        with pytest.raises(FileRefused, match="a folder, not a file"):
            read(found, str(out / name))


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "", "x" * 5_000, "/".join(["a"] * 3_000)])
def test_a_path_that_names_no_file_is_refused(place: Path, path: str) -> None:
    with pytest.raises((FileRefused, OSError)):
        read(roots(place), path)


def test_a_folder_swapped_for_a_link_meanwhile_gives_nothing(place: Path) -> None:
    """Whoever swaps a folder for a link between the check and the opening gets an error or the right file."""
    (place / "h.db").write_text("SECRET")
    out = place / "out"
    (out / "sub").mkdir()
    (out / "sub" / "h.db").write_text("harmless")
    found, stop = roots(place), threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(out / "sub", out / "away")
            (out / "sub").symlink_to(place)
            (out / "sub").unlink()
            os.rename(out / "away", out / "sub")

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen = set()
    try:
        for _ in range(3_000):
            try:
                seen.add(read(found, str(out / "sub" / "h.db")))
            except (FileRefused, OSError):
                continue
    finally:
        stop.set()
        swapper.join()
    assert seen <= {"harmless"}
