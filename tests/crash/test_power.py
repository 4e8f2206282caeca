"""Power cuts at any write or sync: what was acknowledged is there whole, what was not is there whole or not at all, and
the file is sound."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash.disk import SECTOR, Disk, State
from tests.crash.power import campaign

CUTS = 300  # per seed; more of them by `python -m tests.crash --cuts`


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3, 4))])
def test_no_power_cut_loses_an_acknowledged_batch_or_leaves_half_of_one(
    memory_folder: Path, seed: int
) -> None:
    done = campaign(memory_folder, seed=seed, cuts=CUTS)
    assert done.problems == []
    for place in ("write of -wal", "before sync of -wal", "sync of -wal", "write of file", "sync of file"):
        assert done.where[place] > 0, f"no cut fell on the {place}: the campaign shows nothing of it"
    assert done.landed > 0


def test_relaxed_durability_may_lose_the_last_batches_and_never_damages_the_file(memory_folder: Path) -> None:
    assert campaign(memory_folder, seed=5, cuts=CUTS, durability="relaxed").problems == []


# ------------------------------------------------------------------------------- the disk that the proof rests on


def test_the_campaign_finds_a_store_that_does_not_sync(memory_folder: Path) -> None:
    """Batches that are acknowledged without a sync are lost by some cut, and the campaign says so."""
    relaxed = campaign(memory_folder, seed=6, cuts=100, durability="relaxed", promised="full")
    assert any("acknowledged" in problem for problem in relaxed.problems)


def test_what_was_synced_survives_every_cut() -> None:
    state = State()
    state.write(b"a" * 2_000, 0)
    state.sync()
    state.write(b"b" * 100, 5_000)
    for seed in range(50):
        assert state.after_a_cut(random.Random(seed))[:2_000] == b"a" * 2_000


def test_an_unsynced_write_is_lost_kept_or_torn_at_sectors() -> None:
    state = State(bytes(4 * SECTOR))
    state.write(b"x" * (4 * SECTOR - 100), 50)
    left = {state.after_a_cut(random.Random(seed)) for seed in range(200)}
    assert bytes(4 * SECTOR) in left
    assert any(content.count(b"x") == 4 * SECTOR - 100 for content in left)
    torn = [content for content in left if 0 < content.count(b"x") < 4 * SECTOR - 100]
    assert torn
    for content in torn:
        middle = [content[at : at + SECTOR] for at in (SECTOR, 2 * SECTOR)]
        assert all(sector in (bytes(SECTOR), b"x" * SECTOR) for sector in middle)


def test_an_older_unsynced_write_may_win_over_a_newer_one() -> None:
    state = State(bytes(SECTOR))
    state.write(b"1" * SECTOR, 0)
    state.write(b"2" * SECTOR, 0)
    left = {state.after_a_cut(random.Random(seed))[:1] for seed in range(100)}
    assert left == {b"\0", b"1", b"2"}


def test_a_file_that_was_never_synced_may_not_be_there_at_all(memory_folder: Path) -> None:
    with Disk() as disk:
        disk.current[str(memory_folder / "new")] = State()
        found = {tuple(disk.image(random.Random(seed))) for seed in range(20)}
    assert found == {(), ("new",)}
