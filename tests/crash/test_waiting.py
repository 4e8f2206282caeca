"""kill -9 of a real `holdfast up` while runs wait for everything that a run can wait for: nothing is lost, nothing doubled."""

from __future__ import annotations

from pathlib import Path

from tests.crash.waiting import campaign

KILLS, RUNS = 3, 5


def test_runs_that_wait_go_on_whatever_kills_their_server(tmp_path: Path) -> None:
    done = campaign(tmp_path, seed=1, kills=KILLS, runs=RUNS)
    assert done.problems == []
    assert (done.kills, sum(done.found.statuses.values())) == (KILLS, RUNS)
    assert done.found.outlived > 0, "no wait outlived its server: the campaign shows nothing"
    assert done.asked_again > 0, "nobody met a server that was away: the campaign shows nothing"
    assert {"resumed", "parked", "already_resumed"} <= done.found.answers.keys()
    assert done.scrapes > 0 and done.explained > 0
