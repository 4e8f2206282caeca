"""kill -9 of a real `holdfast up` while clients start runs and workers do their jobs: nothing acknowledged is lost, one
run for each key, and no job of a worker that fetches is done twice."""

from __future__ import annotations

from pathlib import Path

from tests.crash.servers import campaign

KILLS, RUNS = 4, 24


def test_what_a_server_acknowledged_is_there_whatever_kills_it(tmp_path: Path) -> None:
    done = campaign(tmp_path, seed=1, kills=KILLS, runs=RUNS)
    assert done.problems == []
    assert (done.kills, done.runs) == (KILLS, RUNS)
    assert done.asked_again > 0, "no client met a server that was away: the campaign shows nothing"
    assert done.jobs_over_a_kill > 0, "no job outlived its server: the campaign shows nothing"
