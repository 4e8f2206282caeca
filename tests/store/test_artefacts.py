"""Artefacts: files by their hash, on disk before anything names them, and swept when nothing does."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import limits
from holdfast.store import artefacts as module
from holdfast.store.artefact_files import ArtefactFiles
from holdfast.store.artefacts import SCHEME, ArtefactError
from holdfast.store.batch import Batch
from holdfast.store.roots import Roots
from holdfast.store.sqlite.store import SqliteStore
from holdfast.values import Millis, RunNo
from tests.small_limits import with_limits
from tests.store.conformance.batches import T0, commit, started

TEXT = b"hello"
SHA = hashlib.sha256(TEXT).hexdigest()


def swept(store: ArtefactFiles, named: set[str]) -> int:
    now = Millis(int(time.time() * 1000))
    return sum(store.sweep(shelf, named, now) for shelf in store.shelves())


@pytest.fixture
def kept(tmp_path: Path) -> ArtefactFiles:
    (tmp_path / "work").mkdir()
    return ArtefactFiles(tmp_path / "artefacts", Roots([tmp_path / "work"]))


def files(store: ArtefactFiles) -> list[str]:
    return sorted(str(path.relative_to(store.folder)) for path in store.folder.rglob("*") if path.is_file())


def keep(
    store: ArtefactFiles, *entries: Any, workdir: Path | None = None
) -> tuple[list[Any], list[tuple[str, int]]]:
    return store.keep(list(entries), "job", workdir)


def test_a_file_is_stored_under_its_hash_and_its_entry_says_where(
    kept: ArtefactFiles, tmp_path: Path
) -> None:
    (tmp_path / "work" / "a.txt").write_bytes(TEXT)
    (entry,), stored = keep(kept, {"path": "a.txt", "name": "the file"})
    assert entry == {"name": "the file", "uri": SCHEME + SHA, "size": 5, "producer_job_id": "job"}
    assert (stored, files(kept)) == ([(SHA, 5)], [f"{SHA[:2]}/{SHA}"])
    assert kept.fetch(entry["uri"], Path).read_bytes() == TEXT


def test_the_same_bytes_are_stored_once(kept: ArtefactFiles) -> None:
    inline = {"inline_b64": base64.b64encode(TEXT).decode()}
    _, stored = keep(kept, inline, dict(inline))
    assert (stored, len(files(kept))) == ([(SHA, 5)] * 2, 1)


def test_an_entry_that_has_an_address_is_left_as_it_is(kept: ArtefactFiles) -> None:
    assert keep(kept, {"uri": "s3://elsewhere", "x": 1}) == ([{"uri": "s3://elsewhere", "x": 1}], [])


def test_a_file_of_the_working_folder_is_found_there_first(kept: ArtefactFiles, tmp_path: Path) -> None:
    workdir = tmp_path / "own"
    workdir.mkdir()
    (workdir / "a.txt").write_bytes(TEXT)
    (tmp_path / "work" / "a.txt").write_bytes(b"another")
    assert keep(kept, {"path": "a.txt"}, workdir=workdir)[1] == [(SHA, 5)]


def test_files_of_one_tenant_are_not_there_for_another(kept: ArtefactFiles) -> None:
    inline = {"inline_b64": base64.b64encode(TEXT).decode()}
    kept.of("acme").keep([inline], "job", None)
    assert kept.of("acme").fetch(SCHEME + SHA, Path).read_bytes() == TEXT
    for other in (kept, kept.of("other")):
        assert not other.is_worth_noting(SHA)
        with pytest.raises(ArtefactError, match="not here"):
            other.fetch(SCHEME + SHA, Path)


def test_folders_and_files_of_tenants_are_private(kept: ArtefactFiles, tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        kept.of("acme").put(iter([TEXT]))
        kept.divide([("other", SHA, False)])
    finally:
        os.umask(umask)
    found = [kept.folder, *kept.folder.rglob("*")]
    assert len(found) >= 6
    assert [path for path in found if path.stat().st_mode & 0o077] == []


def test_files_that_an_older_release_kept_together_go_to_their_tenants_once(kept: ArtefactFiles) -> None:
    shared, own = (kept.put(iter([text]))[0] for text in (b"shared", b"own"))
    kept.divide(
        [("acme", own, False), ("other", own, False), ("acme", shared, True), ("acme", "0" * 64, False)]
    )
    assert [kept.of(tenant).is_worth_noting(own) for tenant in ("acme", "other", "default")] == [
        True,
        True,
        False,
    ]
    assert (
        kept.of("acme").is_worth_noting(shared)
        and kept.is_worth_noting(shared)
        and not kept.of("other").is_worth_noting(shared)
    )
    kept.divide([("other", shared, True)])
    assert not kept.of("other").is_worth_noting(shared)


@pytest.mark.parametrize("path", ["../secret", "{}/secret", "link", "folder/../../secret", "linked/secret"])
def test_nothing_outside_of_the_roots_is_stored(kept: ArtefactFiles, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_bytes(b"not yours")
    (tmp_path / "work" / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "work" / "linked").symlink_to(tmp_path)
    (tmp_path / "work" / "folder").mkdir()
    with pytest.raises(ArtefactError, match="outside"):
        keep(kept, {"path": path.format(tmp_path)})
    assert not kept.folder.exists() or files(kept) == []


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("text", "must be an object"),
        ({}, "none of"),
        ({"path": 3}, "none of"),
        ({"path": "nowhere"}, "there is no file"),
        ({"path": "."}, "is a folder, not a file"),
        ({"path": "a\0b"}, "NUL"),
        ({"inline_b64": "not base64!"}, "not base64"),
    ],
    ids=str,
)
def test_an_entry_that_cannot_be_stored_says_which_and_why(
    kept: ArtefactFiles, entry: Any, says: str
) -> None:
    with pytest.raises(ArtefactError, match=rf"file_refs\[0\].*{says}"):
        keep(kept, entry)


def test_file_refs_are_a_list_of_bounded_length(kept: ArtefactFiles) -> None:
    wrong: list[Any] = [{}, "x", [{"uri": "x"}] * (limits.now.file_refs_max + 1)]
    for entries in wrong:
        with pytest.raises(ArtefactError, match="must be a list"):
            kept.keep(entries, "job", None)


def test_a_file_that_is_too_large_is_refused_and_leaves_nothing(
    kept: ArtefactFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, artefact_bytes_max=4)
    with pytest.raises(ArtefactError, match="is over"):
        kept.put(iter([TEXT]))
    assert files(kept) == []


def test_whoever_fails_while_storing_leaves_nothing(kept: ArtefactFiles) -> None:
    def pieces() -> Iterator[bytes]:
        yield TEXT
        raise OSError("the tape is torn")

    with pytest.raises(OSError, match="torn"):
        kept.put(pieces())
    assert files(kept) == []


def test_a_file_has_its_name_only_when_its_bytes_are_synced(
    kept: ArtefactFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    sync, name = os.fsync, os.replace

    def synced(fd: int) -> None:
        done.append(f"sync {Path(os.readlink(f'/proc/self/fd/{fd}')).name}")
        sync(fd)

    def named(source: Path, target: Path) -> None:
        done.append("name")
        name(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", named)
    kept.put(iter([TEXT]))
    assert done[0] == f"sync {kept.folder.parent.name}"
    assert done[1].startswith("sync .new-")
    assert done[-2:] == ["name", f"sync {SHA[:2]}"]
    assert "sync artefacts" in done


@pytest.mark.parametrize(
    "uri", ["", "x", SCHEME, SCHEME + "0" * 63, SCHEME + "../" + "0" * 61, SCHEME + SHA + "\n"]
)
def test_an_address_that_is_none_of_ours_is_no_path(kept: ArtefactFiles, uri: str) -> None:
    with pytest.raises(ArtefactError, match="is not an artefact URI"):
        kept.fetch(uri, Path)


def test_an_artefact_that_is_not_here_is_said_so(kept: ArtefactFiles) -> None:
    with pytest.raises(ArtefactError, match="not here"):
        kept.fetch(SCHEME + SHA, Path)


def test_the_sweep_removes_what_nothing_names_once_it_is_old(kept: ArtefactFiles) -> None:
    old, young, named = (kept.put(iter([text]))[0] for text in (b"old", b"young", b"named"))
    long_ago = time.time() - module.GRACE_SECONDS - 10
    for sha256 in (old, named):
        os.utime(kept.fetch(SCHEME + sha256, Path), (long_ago, long_ago))
    of_a_tenant = kept.of("acme").put(iter([b"acme"]))[0]
    os.utime(kept.of("acme").fetch(SCHEME + of_a_tenant, Path), (long_ago, long_ago))
    assert swept(kept, {named}) == 2
    assert {Path(file).name for file in files(kept)} == {young, named}


def test_storing_the_same_bytes_again_makes_them_young(kept: ArtefactFiles) -> None:
    long_ago = time.time() - module.GRACE_SECONDS - 10
    sha256, _ = kept.put(iter([TEXT]))
    os.utime(kept.fetch(SCHEME + sha256, Path), (long_ago, long_ago))
    kept.put(iter([TEXT]))
    assert swept(kept, set()) == 0


# ------------------------------------------------------------------------------------------- the rows that name them


def test_rows_of_artefacts_are_written_with_their_batch_and_go_with_their_run(tmp_path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(str(tmp_path / "a.db"))
        await store.open()
        batch = started(1, 2)
        batch.artefacts += [(RunNo(no), SHA, 5, Millis(T0)) for no in (1, 2, 2)]
        await commit(store, batch)
        assert [row async for row in store.artefacts_named()] == [("default", SHA, 5)]
        for no, left in ((1, [("default", SHA, 5)]), (2, [])):
            batch = Batch()
            batch.forgotten.append(RunNo(no))
            await commit(store, batch)
            assert [row async for row in store.artefacts_named()] == left
        await store.close()

    asyncio.run(main())
