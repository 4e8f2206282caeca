"""Artefacts in a bucket: whole and under their hash before anything names them, apart by tenant, and swept when nothing does."""

from __future__ import annotations

import hashlib
import os
import time
from datetime import timedelta
from pathlib import Path

import obstore
import pytest

from holdfast.errors import ArtefactsUnavailable
from holdfast.store import artefact_bucket
from holdfast.store.artefact_bucket import PART_BYTES, ArtefactBucket
from holdfast.store.artefact_place import artefacts_at
from holdfast.store.artefacts import SCHEME, ArtefactError, Artefacts
from holdfast.values import Millis
from tests.s3 import KEY, S3, SECRET
from tests.small_limits import with_limits

TEXT = b"hello"
SHA = hashlib.sha256(TEXT).hexdigest()
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def kept(s3: S3, tmp_path: Path) -> ArtefactBucket:
    s3.make(tmp_path.name.replace("_", "-"))
    return opened(s3.address(tmp_path.name.replace("_", "-")), tmp_path)


def opened(address: str, folder: Path) -> ArtefactBucket:
    found = artefacts_at(address, str(folder / "h.db"))
    assert isinstance(found, ArtefactBucket)
    return found


def put(store: Artefacts, content: bytes = TEXT) -> str:
    return store.put(iter([content]))[0]


def objects(store: ArtefactBucket) -> list[str]:
    return [one["path"] for one in store._all("files", store._prompt)]


def swept(store: ArtefactBucket, named: set[str], *, days: float) -> int:
    """What a sweep deletes that many days from now."""
    now = Millis(int(time.time() * 1000 + days * DAY_MS))
    return sum(store.sweep(shelf, named, now) for shelf in store.shelves())


def test_a_file_is_stored_under_its_hash_and_leaves_nothing_here(
    kept: ArtefactBucket, tmp_path: Path
) -> None:
    assert put(kept) == SHA
    (path,) = objects(kept)
    assert path.startswith(f"files/{SHA[:2]}/{SHA}/")
    assert list((tmp_path / "h.db.work").iterdir()) == []


def test_a_file_is_read_back_whole_or_in_part(kept: ArtefactBucket) -> None:
    found = kept.find(put(kept))
    assert found is not None and found.path is None
    assert (found.size, found.read(0, 99), found.read(1, 3), found.read(5, 9)) == (5, TEXT, b"el", b"")


def test_a_file_is_copied_in_pieces_to_the_folder_of_whoever_fetches_it(
    kept: ArtefactBucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(3_000)
    sha256 = put(kept, content)
    monkeypatch.setattr(artefact_bucket, "PART_BYTES", 1024)
    path = kept.fetch(SCHEME + sha256, lambda: tmp_path)
    assert path.parent == tmp_path and path.read_bytes() == content
    assert kept.fetch(SCHEME + sha256, lambda: tmp_path) == path


def test_a_damaged_file_is_not_handed_out(kept: ArtefactBucket, tmp_path: Path) -> None:
    put(kept)
    obstore.put(kept._prompt, objects(kept)[0], b"HELLO")
    with pytest.raises(ArtefactError, match="is damaged"):
        kept.fetch(SCHEME + SHA, lambda: tmp_path)
    assert [path.name for path in tmp_path.glob("*artefact*")] == []


def test_a_file_that_is_not_there_is_said_so(kept: ArtefactBucket, tmp_path: Path) -> None:
    assert kept.find(SHA) is None
    with pytest.raises(ArtefactError, match="is not here"):
        kept.fetch(SCHEME + SHA, lambda: tmp_path)


def test_files_of_one_tenant_are_not_there_for_another(kept: ArtefactBucket) -> None:
    put(kept.of("acme"))
    assert kept.of("acme").find(SHA) is not None
    assert kept.find(SHA) is None and kept.of("other").find(SHA) is None


def test_the_same_bytes_are_uploaded_once_while_they_are_young(kept: ArtefactBucket) -> None:
    put(kept)
    put(kept)
    assert len(objects(kept)) == 1


def test_bytes_that_are_stored_again_later_become_an_object_of_their_own(
    kept: ArtefactBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(kept)
    monkeypatch.setattr(artefact_bucket, "REUSED", timedelta(seconds=-60))
    put(kept)
    assert len(objects(kept)) == 2


def test_a_large_file_goes_in_parts(kept: ArtefactBucket) -> None:
    content = b"0123456789abcdef" * (PART_BYTES // 16) + b"and the rest"
    found = kept.find(put(kept, content))
    assert found is not None and found.size == len(content)
    assert found.read(PART_BYTES, PART_BYTES + 99) == b"and the rest"


def test_a_file_that_is_too_large_is_never_uploaded(
    kept: ArtefactBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, artefact_bytes_max=1024)
    with pytest.raises(ArtefactError, match="artefact_bytes_max"):
        put(kept, b"x" * 1025)
    assert objects(kept) == []


def test_a_sweep_deletes_what_is_old_and_named_by_nothing(kept: ArtefactBucket) -> None:
    named, other = put(kept), put(kept.of("acme"), b"of a tenant")
    assert swept(kept, set(), days=0.5) == 0
    assert swept(kept, {named}, days=2) == 1
    assert kept.find(named) is not None and kept.of("acme").find(other) is None


def test_a_sweep_leaves_the_newest_of_two_objects_of_a_file(
    kept: ArtefactBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(kept)
    monkeypatch.setattr(artefact_bucket, "REUSED", timedelta(seconds=-60))
    put(kept)
    assert swept(kept, {SHA}, days=2) == 1
    assert kept.find(SHA) is not None


def test_a_sweep_of_one_prefix_leaves_other_prefixes_alone(
    kept: ArtefactBucket, s3: S3, tmp_path: Path
) -> None:
    other = opened(s3.address(kept.bucket.name, "files-of-others"), tmp_path)
    put(other)
    assert swept(kept, set(), days=2) == 0
    assert other.find(SHA) is not None


def test_a_bucket_without_a_prefix_is_used_from_its_root(s3: S3, tmp_path: Path) -> None:
    s3.make("whole-bucket")
    whole = opened(s3.address("whole-bucket", ""), tmp_path)
    put(whole)
    put(whole.of("acme"), b"of a tenant")
    assert sorted(len(shelf.split("/")) for shelf in whole.shelves()) == [1, 2]
    assert swept(whole, set(), days=2) == 2


def test_a_bucket_that_is_missing_is_found_out_at_once(s3: S3, tmp_path: Path) -> None:
    with pytest.raises(ArtefactsUnavailable, match=r"no bucket of that name.*NoSuchBucket") as caught:
        opened(s3.address("no-such-bucket"), tmp_path).check()
    assert caught.value.is_final


def test_a_machine_without_credentials_is_told_which_variables_to_set(kept: ArtefactBucket) -> None:
    asked = OSError("Error performing PUT http://169.254.169.254/latest/api/token in 1s")
    assert "there are no credentials; set AWS_ACCESS_KEY_ID" in str(kept._away("read", asked))


def test_a_server_that_is_away_is_no_reason_not_to_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(artefact_bucket, "PROMPT", {"max_retries": 0})
    away = opened("s3://bucket/files?endpoint=http://127.0.0.1:1", tmp_path)
    away.check()
    assert "steps cannot store files until it can be reached" in caplog.text
    with pytest.raises(ArtefactsUnavailable, match="cannot be read now") as caught:
        away.find(SHA)
    assert SECRET not in str(caught.value) and KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("s3://id:word@bucket/x", "must not have credentials"),
        ("s3:///x", "names no bucket"),
        ("s3://bucket/x?acl=public", "it may have endpoint and region"),
        ("s3://bucket/x?endpoint=ftp://somewhere", "must begin with https"),
        ("gs://bucket/x", "is no place for artefacts"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=says) as caught:
        artefacts_at(address, str(tmp_path / "h.db"))
    assert "word" not in str(caught.value)


def test_a_folder_can_be_named_instead(tmp_path: Path) -> None:
    shared = artefacts_at(str(tmp_path / "shared"), str(tmp_path / "h.db"))
    put(shared)
    assert (tmp_path / "shared" / SHA[:2] / SHA).read_bytes() == TEXT
