"""kill -9 of the real engine, at random moments and between any two commits: nothing acknowledged is lost, no step is
executed again once its outcome is durable, and a row explains every attempt that was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.checker import Found, check, query_file, unfinished
from tests.crash.kills import campaign
from tests.crash.processes import Driver, Place, Told
from tests.crash.workloads import every_kind, large

KILLS, RUNS = 40, 200  # per seed


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))])
def test_runs_survive_kills_at_random_moments(tmp_path: Path, seed: int) -> None:
    done = campaign(tmp_path, seed=seed, kills=KILLS, runs=RUNS)
    assert done.found.problems == []
    assert done.kills == KILLS
    assert done.found.runs >= RUNS
    assert done.found.statuses == {"completed": done.found.runs}
    assert done.found.lost > 0, "no kill met an open attempt: the campaign shows nothing"


def test_runs_with_blobs_and_snapshots_survive_kills(tmp_path: Path) -> None:
    """Two megabytes of outputs: what a later process folds is a snapshot in parts, the rows after it, and blobs."""
    place, told = Place(tmp_path), Told()
    for _ in range(6):
        start = [] if told.started else [large(1)]
        driver = Driver(place.order(start=start, attach=told.open, kill_commit=5))  # long before its end
        assert driver.end() == -9
        told.take(driver)
    last = Driver(place.order(attach=told.open))
    assert last.end() == 0
    told.take(last)
    found = check(place, told)
    assert found.problems == []
    assert found.lost > 0
    assert query_file(place, "SELECT count(*) > 1 FROM snapshot") == [(1,)]
    assert query_file(place, "SELECT count(*) > 0 FROM blob") == [(1,)]


# ------------------------------------------------------------------------------------- between any two commits

SMALL = [every_kind(0), every_kind(1, items=0)]


def commits_of_the_small_workload(folder: Path) -> int:
    """How many commits there are to be killed at: the first number that is never reached."""
    low, high = 1, 128
    while low < high:
        middle = (low + high) // 2
        place = Place(_made(folder / f"probe-{middle}"))
        if Driver(place.order(start=SMALL, kill_commit=middle)).end() == 0:
            high = middle
        else:
            low = middle + 1
    return low


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def killed_at(folder: Path, *commits: int, after: bool) -> Found:
    """One process after the other dies at its n-th commit; the last one finishes what there is."""
    place, told = Place(_made(folder)), Told()
    waiting = SMALL
    for kill_commit in (*commits, 0):
        order = place.order(
            start=waiting, attach=unfinished(place, told), kill_commit=kill_commit, kill_after=after
        )
        driver = Driver(order)
        code = driver.end()
        assert code == 0 or kill_commit and code == -9
        told.take(driver)
        acknowledged = set(told.started.values())
        waiting = [each for each in SMALL if each[0] not in acknowledged]
    assert not told.open and not waiting
    return check(place, told)


@pytest.mark.parametrize("after", [False, True], ids=["right before", "right after"])
def test_every_run_ends_well_wherever_between_two_commits_it_is_killed(tmp_path: Path, after: bool) -> None:
    last = commits_of_the_small_workload(tmp_path)
    assert last > 12, "the small workload is too small to show anything"
    for commit in range(1, last + 3):  # how rows are grouped differs a little from life to life
        found = killed_at(tmp_path / f"{commit}", commit, after=after)
        assert found.problems == [], f"killed at commit {commit}"
        assert found.statuses.keys() == {"completed"}


def test_a_second_kill_while_the_first_one_is_made_good_changes_nothing(tmp_path: Path) -> None:
    for commit in range(1, 16, 2):
        for again in (1, 2, 3):
            found = killed_at(tmp_path / f"{commit}-{again}", commit, again, after=commit % 4 == 1)
            assert found.problems == [], f"killed at commit {commit}, then at {again}"


@pytest.mark.parametrize("commit", [2, 3, 6])
@pytest.mark.parametrize("then", [(1, 1), (1, 2), (1, 1, 1), (1, 1, 2), (1, 1, 2, 1, 3)], ids=str)
def test_a_suspect_that_waited_for_its_turn_when_its_process_died_gets_it_in_the_next(
    tmp_path: Path, commit: int, then: tuple[int, ...]
) -> None:
    """Two losses make a suspect; the next kills fall between that row, its turn and its answer."""
    found = killed_at(tmp_path / "place", commit, *then, after=True)
    assert found.problems == []
    assert found.lost >= 2
