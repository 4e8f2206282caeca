"""A process that is asked to stop gives its open attempts back, uncounted, and the next one goes on with them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.crash.checker import check, effects, journals, query_file
from tests.crash.processes import Driver, Place, Told

# One attempt is allowed, so a release that counted would fail the step.
WAITS = """
name: waits
inputs: {n: {type: integer}, ms: {type: integer, default: 0}}
steps:
  - id: both
    kind: parallel
    branches:
      - [{id: async, tool: blocked, args: {value: "{{inputs.n}}"}, retry: {max_attempts: 1}}]
      - [{id: sync, tool: sync_blocked, args: {value: "{{inputs.n}}"}, retry: {max_attempts: 1}}]
  - {id: last, tool: add, args: {a: "{{steps.async.output}}", b: 4}}
output: {n: "{{inputs.n}}", d: "{{steps.last.output}}"}
"""


class Stopped:
    """A process stopped by SIGTERM while two attempts were at work, and the one after it."""

    def __init__(self, folder: Path) -> None:
        self.place, self.told = Place(folder), Told()
        first = Driver(self.place.order(start=[(1, WAITS, {"n": 1})]))
        first.wait_for("started")
        while len(effects(self.place)) < 2:
            assert first.hears(0.01), "the driver ended"
        first.send_signal(signal.SIGTERM)
        self.first_code = first.end()
        self.last_word = first.told[-1]
        self.told.take(first)
        self.rows_between = next(iter(journals(self.place).values()))
        self.runs_between = query_file(self.place, "SELECT status, owner, owner_epoch FROM run")
        self.place.gate.touch()
        second = Driver(self.place.order(attach=self.told.open))
        self.second_code = second.end()
        self.told.take(second)
        self.rows = next(iter(journals(self.place).values()))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    return Stopped(tmp_path_factory.mktemp("graceful"))


def test_a_process_that_is_asked_to_stop_ends_in_good_order(stopped: Stopped) -> None:
    assert (stopped.first_code, stopped.last_word) == (0, ("over",))


def test_open_attempts_are_given_back_with_the_reason_stopping(stopped: Stopped) -> None:
    released = [row.event[1:4] for row in stopped.rows_between if row.event[0] == "attempt_released"]
    assert sorted(released) == [["both[0].async", 1, "stopping"], ["both[1].sync", 1, "stopping"]]


def test_a_stopped_process_leaves_no_run_owned(stopped: Stopped) -> None:
    assert stopped.runs_between == [("running", None, None)]


def test_the_next_process_goes_on_with_the_next_attempt(stopped: Stopped) -> None:
    starts = [order[1:3] for row in stopped.rows for order in row.decisions if order[0] == "start"]
    assert ["both[0].async", 2] in starts and ["both[1].sync", 2] in starts
    assert not [start for start in starts if start[1] > 2]


def test_a_release_counts_neither_as_a_try_nor_as_a_loss(stopped: Stopped) -> None:
    assert stopped.second_code == 0
    assert [status for status, _ in stopped.told.ended.values()] == ["completed"]
    lost = [path for row in stopped.rows if row.event[0] == "adopted" for path in (row.event[1:2] or [[]])[0]]
    assert lost == []
    found = check(stopped.place, stopped.told)
    assert found.problems == []
    assert (found.released, found.lost) == (2, 0)


def test_stopping_again_and_again_costs_a_step_nothing(tmp_path: Path) -> None:
    place, told = Place(tmp_path), Told()
    for stop in range(1, 6):
        start = [] if told.started else [(1, WAITS, {"n": 1})]
        driver = Driver(place.order(start=start, attach=told.open))
        driver.wait_for("open")
        while len(effects(place)) < 2 * stop:
            assert driver.hears(0.01), "the driver ended"
        driver.send_signal(signal.SIGTERM)
        assert driver.end() == 0
        told.take(driver)
    place.gate.touch()
    last = Driver(place.order(attach=told.open))
    assert last.end() == 0
    told.take(last)
    assert [status for status, _ in told.ended.values()] == ["completed"]
    found = check(place, told)
    assert found.problems == []
    assert (found.released, found.lost) == (10, 0)
