"""The checker finds what it is there to find: each planted wrong makes it speak, and says so in its own words."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw
import pytest

from tests.crash.checker import check, effects, unfinished
from tests.crash.processes import Driver, Place, Told
from tests.crash.workloads import chain, every_kind


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Told]:
    """What two lives left, the first one killed: nothing is wrong with it."""
    place, told = Place(tmp_path_factory.mktemp("sound")), Told()
    for kill_commit in (4, 0):
        start = [] if told.started else [every_kind(1), every_kind(2)]
        driver = Driver(place.order(start=start, attach=unfinished(place, told), kill_commit=kill_commit))
        driver.end()
        told.take(driver)
    assert check(place, told).problems == []
    return place.folder, told


@pytest.fixture
def place(sound: tuple[Path, Told], tmp_path: Path) -> Place:
    shutil.copytree(sound[0], tmp_path / "copy")
    return Place(tmp_path / "copy")


def tamper(place: Place, statement: str) -> None:
    db = apsw.Connection(str(place.db))
    db.execute(statement)
    db.close()


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("DELETE FROM journal WHERE pos = (SELECT max(pos) FROM journal)", "ends"),
        ("DELETE FROM journal WHERE seq = 3", "not 1..n"),
        ("UPDATE journal SET epoch = 0 WHERE seq > 8", "epoch falls"),
        ("UPDATE journal SET epoch = 7 WHERE seq = 2", "epoch falls"),
        ("UPDATE run SET status = 'running'", "still open"),
        ("UPDATE journal SET body = replace(body, '\"again\":1', '\"again\":9')", "right is"),
        ("DELETE FROM run WHERE no = 1", "acknowledged and is lost"),
        (
            "UPDATE journal SET body = replace(body, '[\"adopted\",[\"', '[\"adopted\",[\"no.such.') WHERE kind = 'adopted'",
            "lost",
        ),
    ],
)
def test_a_journal_that_was_tampered_with_is_found(
    place: Place, sound: tuple[Path, Told], statement: str, words: str
) -> None:
    tamper(place, statement)
    assert any(words in problem for problem in check(place, sound[1]).problems)


def test_an_attempt_that_was_executed_twice_is_found(place: Place, sound: tuple[Path, Told]) -> None:
    lines = place.effects.read_text().splitlines(keepends=True)
    place.effects.write_text("".join([*lines, lines[0]]))
    assert any("executed 2 times" in problem for problem in check(place, sound[1]).problems)


def test_an_effect_without_a_durable_start_is_found(place: Place, sound: tuple[Path, Told]) -> None:
    first = effects(place)[0]
    with place.effects.open("a") as file:
        file.write(f"{first.run} {first.path} 9 {first.key}\n")
    assert any("no durable row starts it" in problem for problem in check(place, sound[1]).problems)


def test_an_outcome_without_an_effect_is_found(place: Place, sound: tuple[Path, Told]) -> None:
    place.effects.write_text("".join(place.effects.read_text().splitlines(keepends=True)[:-1]))
    assert any("never executed" in problem for problem in check(place, sound[1]).problems)


def test_a_loss_that_the_log_does_not_explain_is_found(place: Place, sound: tuple[Path, Told]) -> None:
    place.log.write_text("")
    assert any("the log does not explain" in problem for problem in check(place, sound[1]).problems)


def test_an_engine_that_acts_before_its_commit_is_durable_is_found(tmp_path: Path) -> None:
    """Killed once the first runs were acknowledged: some of that, or an effect's start, is not in the file."""
    place, told = Place(tmp_path), Told()
    liar = Driver(place.order(start=[chain(n) for n in range(20)], lies=True))
    liar.wait_for("started", 5)
    liar.kill()
    told.take(liar)
    last = Driver(place.order())
    assert last.end() == 0
    problems = check(place, told).problems
    assert any("acknowledged and is lost" in problem for problem in problems)
