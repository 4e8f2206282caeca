"""A process that was frozen and taken over, and two that want the same file: only one of them ever writes."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.crash.checker import check, effects, journals, query_file
from tests.crash.processes import Driver, Place, Told
from tests.crash.workloads import EVERY_KIND, every_kind

# A blocked step in each run: the process is frozen in the middle of its work, not before or after it.
BLOCKED = EVERY_KIND.replace(
    """tool: add
    args: {a: "{{inputs.n}}", b: 1, ms: "{{inputs.ms}}"}""",
    """tool: blocked
    args: {value: "{{inputs.n}}", plus: 1}""",
)
RUNS = 10


def blocked(n: int) -> tuple[int, str, dict[str, object]]:
    return n, BLOCKED, every_kind(n)[2]


def contents(place: Place) -> list[list[tuple[object, ...]]]:
    return [
        query_file(place, f"SELECT * FROM {table}")
        for table in ("journal", "run", "snapshot", "meta", "node")
    ]


def wait_for_effects(place: Place, driver: Driver, count: int) -> None:
    """The effects are in a file that nobody announces: look until they are there, while the driver lives."""
    while len(effects(place)) < count:
        assert driver.hears(0.01), "the driver ended"


class Takeover:
    """A frozen in the middle of its work, its lock file deleted, B has finished the runs, A is thawed."""

    def __init__(self, folder: Path) -> None:
        self.place, self.told = Place(folder), Told()
        a = Driver(self.place.order(start=[blocked(n) for n in range(RUNS)]))
        a.wait_for("started", RUNS)
        wait_for_effects(self.place, a, RUNS)
        a.send_signal(signal.SIGSTOP)
        os.unlink(f"{self.place.db}.lock")
        self.place.gate.touch()
        self.told.take(a)
        b = Driver(self.place.order(attach=self.told.open))
        self.b_code = b.end()
        self.told.take(b)
        self.at_b_end = contents(self.place)
        a.send_signal(signal.SIGCONT)
        self.a_code = a.end()
        self.a_told = a.told
        self.at_a_end = contents(self.place)


@pytest.fixture(scope="module")
def takeover(tmp_path_factory: pytest.TempPathFactory) -> Takeover:
    return Takeover(tmp_path_factory.mktemp("stale"))


def test_the_process_that_takes_over_finishes_every_run(takeover: Takeover) -> None:
    assert takeover.b_code == 0
    assert [status for status, _ in takeover.told.ended.values()] == ["completed"] * RUNS


def test_a_process_that_was_taken_over_appends_nothing(takeover: Takeover) -> None:
    assert takeover.at_a_end == takeover.at_b_end


def test_a_process_that_was_taken_over_reports_that_it_is_over(takeover: Takeover) -> None:
    assert takeover.a_told[-1][:2] == ("refused", "node_is_over")
    assert not [told for told in takeover.a_told if told[0] == "ended"]
    assert takeover.a_code == 0  # it ended by itself, in good order


def test_what_a_frozen_process_does_late_is_an_attempt_that_was_started_before_the_takeover(
    takeover: Takeover,
) -> None:
    """Every effect of either process has its durable start, its key, and a row that explains what became of it."""
    found = check(takeover.place, takeover.told)
    assert found.problems == []
    assert found.lost == RUNS


def test_the_takeover_raises_the_epoch_of_every_run_by_an_adopted_row(takeover: Takeover) -> None:
    for rows in journals(takeover.place).values():
        first_of_epoch = {row.epoch: row.event[0] for row in reversed(rows)}
        assert first_of_epoch == {0: "run_started", 1: "adopted"}


# ---------------------------------------------------------------------------------------------- the polite case


@pytest.fixture
def owner(tmp_path: Path) -> Driver:
    driver = Driver(Place(tmp_path).order(stay=True))
    driver.wait_for("open")
    return driver


def test_a_second_process_is_told_who_has_the_file(tmp_path: Path, owner: Driver) -> None:
    second = Driver(Place(tmp_path).order())
    assert second.end() == 0
    [(what, code, message)] = second.told
    assert (what, code) == ("refused", "database_in_use")
    assert str(owner.pid) in message
    owner.kill()


def test_a_refused_process_does_not_disturb_the_owner(tmp_path: Path, owner: Driver) -> None:
    before = contents(Place(tmp_path))
    assert Driver(Place(tmp_path).order()).end() == 0
    assert contents(Place(tmp_path)) == before
    owner.kill()


def test_after_a_kill_the_next_process_gets_in_at_once(tmp_path: Path, owner: Driver) -> None:
    owner.kill()
    second = Driver(Place(tmp_path).order())
    assert second.end() == 0
    assert [told[0] for told in second.told] == ["open", "over"]


def test_a_file_that_was_left_in_order_can_be_opened_by_the_next(tmp_path: Path) -> None:
    for _ in range(3):
        driver = Driver(Place(tmp_path).order())
        assert driver.end() == 0
        assert [told[0] for told in driver.told] == ["open", "over"]
