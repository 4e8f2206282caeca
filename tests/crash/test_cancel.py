"""A cancel that was acknowledged holds through kills: nothing starts any more, and the run ends cancelled."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.checker import effects, journals
from tests.crash.processes import Driver, Place, Told

# The tool does not hear that it is to stop, so the run is still `cancelling` when its process dies.
DEAF = """
name: deaf
steps:
  - {id: work, tool: sync_blocked, args: {value: 1}, retry: {max_attempts: 5}}
  - {id: after, tool: add, args: {a: 1, b: 1}}
"""


class Killed:
    """Processes killed right after the cancel was acknowledged, and the one that found the run so."""

    def __init__(self, folder: Path, kills: int) -> None:
        self.place, self.told = Place(folder), Told()
        first = Driver(self.place.order(start=[(1, DEAF, {})], cancel=True))
        first.wait_for("cancelled")
        first.kill()
        self.told.take(first)
        for _ in range(kills - 1):
            Driver(self.place.order(kill_commit=1)).end()
        last = Driver(self.place.order(attach=self.told.open))
        self.code = last.end()
        self.told.take(last)


@pytest.fixture(scope="module", params=[1, 2], ids=["killed once", "killed twice"])
def killed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("cancel"), request.param)


def test_a_run_whose_cancel_was_acknowledged_ends_cancelled(killed: Killed) -> None:
    assert killed.code == 0
    assert [status for status, _ in killed.told.ended.values()] == ["cancelled"]


def test_nothing_starts_after_the_cancel_was_acknowledged(killed: Killed) -> None:
    [rows] = journals(killed.place).values()
    asked = next(row.seq for row in rows if row.event[0] == "cancel_requested")
    assert not [order for row in rows if row.seq >= asked for order in row.decisions if order[0] == "start"]
    assert len(effects(killed.place)) <= 1
