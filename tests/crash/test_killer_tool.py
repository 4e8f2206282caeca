"""One step that kills its process every time, among healthy runs: the healthy ones complete, the bad one fails as lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.crash.checker import Found, check, journals, unfinished
from tests.crash.processes import Driver, Place, Told
from tests.crash.workloads import chain

HEALTHY = 100
RESTARTS_MAX = 30
BAD = 1_000_000  # the n of the run with the bad step

KILLER = """
name: killer
inputs: {n: {type: integer}}
steps:
  - {id: before, tool: add, args: {a: 1, b: 1}}
  - {id: bad, tool: killer, args: {}}
  - {id: never, tool: add, args: {a: 1, b: 1}}
"""


class Aftermath:
    """Processes are started again until one of them lives to see all runs end."""

    def __init__(self, folder: Path) -> None:
        self.place, self.told, self.restarts = Place(folder), Told(), 0
        waiting = [chain(n, ms=5) for n in range(HEALTHY)]
        waiting.insert(HEALTHY // 2, (BAD, KILLER, {"n": BAD}))
        code = -9
        while code != 0:
            driver = Driver(self.place.order(start=waiting, attach=unfinished(self.place, self.told)))
            code = driver.end()
            assert code in (0, -9)
            self.told.take(driver)
            acknowledged = set(self.told.started.values())
            waiting = [each for each in waiting if each[0] not in acknowledged]
            self.restarts += 1
            assert self.restarts < RESTARTS_MAX, "the bad step is never given up"

    def bad_runs(self) -> list[str]:
        """Usually one; a start that was durable when the process died before saying so is made twice."""
        return [run for run, rows in journals(self.place).items() if rows[0].event[1]["n"] == BAD]

    def check(self) -> Found:
        def expected(inputs: Any) -> str:
            return "failed" if inputs["n"] == BAD else "completed"

        return check(self.place, self.told, expected_status=expected)


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    return Aftermath(tmp_path_factory.mktemp("killer"))


def test_every_healthy_run_completes_beside_a_step_that_kills_the_process(after: Aftermath) -> None:
    found = after.check()
    assert found.problems == []
    assert found.statuses["completed"] >= HEALTHY


def test_the_step_that_kills_its_process_fails_with_kind_lost(after: Aftermath) -> None:
    ended = [after.told.ended[run] for run in after.bad_runs() if run in after.told.ended]
    assert ended
    for status, error in ended:
        assert status == "failed"
        assert (error["kind"], error["path"]) == ("lost", "bad")


def test_only_losses_of_the_step_alone_in_the_lane_count_and_there_are_three(after: Aftermath) -> None:
    for run in after.bad_runs():
        adopted = [row.event for row in journals(after.place)[run] if row.event[0] == "adopted"]
        alone = [event for event in adopted if len(event) > 2 and event[2] == "bad"]
        assert len(alone) == 3
        assert all(event[1] == ["bad"] for event in alone)


def test_no_healthy_step_is_ever_counted_as_alone(after: Aftermath) -> None:
    for rows in journals(after.place).values():
        for row in rows:
            if row.event[0] == "adopted" and len(row.event) > 2:
                assert row.event[2] in ("", "bad")


def test_a_step_that_must_not_run_twice_fails_at_its_first_loss(tmp_path: Path) -> None:
    place, told = Place(tmp_path), Told()
    once = KILLER.replace("tool: killer, args: {}", "tool: killer, args: {}, on_crash: fail")
    first = Driver(place.order(start=[(BAD, once, {"n": BAD})]))
    assert first.end() == -9
    told.take(first)
    second = Driver(place.order(attach=told.open))
    assert second.end() == 0
    told.take(second)
    assert [(status, error["kind"]) for status, error in told.ended.values()] == [("failed", "lost")]
    assert place.effects.read_text().count(" bad ") == 1
