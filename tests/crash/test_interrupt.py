"""Runs that ask not to survive a restart are interrupted by the next process, at work or parked; the others go on."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.crash.checker import effects, journals, query_file
from tests.crash.processes import Driver, Place, Told

AT_WORK = """
name: at-work
on_restart: interrupt
steps:
  - {id: work, tool: blocked, args: {value: 1}}
  - {id: after, tool: add, args: {a: 1, b: 1}}
"""
PARKED = """
name: parked
on_restart: interrupt
steps:
  - {id: before, tool: add, args: {a: 1, b: 1}}
  - {id: sleep, kind: timer, delay_ms: 3600000}
"""
STAYS = """
name: stays
steps:
  - {id: work, tool: blocked, args: {value: 1}}
"""
SPECS = {1: AT_WORK, 2: PARKED, 3: STAYS}


class Restarted:
    def __init__(self, folder: Path, end: signal.Signals) -> None:
        self.place, self.told = Place(folder), Told()
        first = Driver(self.place.order(start=[(n, spec, {}) for n, spec in SPECS.items()]))
        first.wait_for("started", len(SPECS))
        while query_file(self.place, "SELECT count(*) FROM run WHERE owner IS NULL") != [(1,)]:
            assert first.hears(0.01), "the driver ended"
        while len(effects(self.place)) < len(SPECS):
            assert first.hears(0.01), "the driver ended"
        first.send_signal(end)
        first.end()
        self.told.take(first)
        self.place.gate.touch()
        second = Driver(self.place.order(attach=self.told.open))
        self.code = second.end()
        self.told.take(second)

    def ended(self, n: int) -> tuple[str, object]:
        [run] = [run for run, number in self.told.started.items() if number == n]
        return self.told.ended[run]


@pytest.fixture(scope="module", params=[signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def restarted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Restarted:
    return Restarted(tmp_path_factory.mktemp("interrupt"), request.param)


def test_a_run_that_was_at_work_is_interrupted(restarted: Restarted) -> None:
    status, error = restarted.ended(1)
    assert status == "interrupted"
    assert isinstance(error, dict) and error["kind"] == "interrupted"


def test_a_parked_run_is_interrupted_too(restarted: Restarted) -> None:
    assert restarted.ended(2)[0] == "interrupted"


def test_a_run_that_did_not_ask_goes_on(restarted: Restarted) -> None:
    assert restarted.code == 0
    assert restarted.ended(3)[0] == "completed"


def test_nothing_of_an_interrupted_run_is_executed_again(restarted: Restarted) -> None:
    interrupted = [run for run, n in restarted.told.started.items() if n != 3]
    done = [(effect.run, effect.path) for effect in effects(restarted.place) if effect.run in interrupted]
    assert len(done) == len(set(done)) == 2


def test_an_interrupted_run_ends_with_the_row_that_took_it_up(restarted: Restarted) -> None:
    for run, rows in journals(restarted.place).items():
        if restarted.told.started[run] != 3:
            assert rows[-1].event[0] == "adopted"
            assert [order[:2] for order in rows[-1].decisions] == [["finish", "interrupted"]]
