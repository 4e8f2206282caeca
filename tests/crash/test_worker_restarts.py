"""The only worker of a service, and the server, are killed again and again during a loop. No run fails, and nothing is left undone."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.processes import Place
from tests.forks import Program
from tests.sdk.processes import House, until

ITEMS = 200
KILLS = 4
LOOP = {
    "id": "l",
    "kind": "foreach",
    "items": "$.inputs.xs",
    "concurrency": 10,
    "collect": "none",
    "steps": [{"id": "s", "service": "pull_add", "input": "{{ item }}", "params": {"plus": 1, "ms": 50}}],
}


def started(house: House) -> str:
    body = {
        "spec": {"name": "n", "inputs": {"xs": {}}, "steps": [LOOP]},
        "inputs": {"xs": list(range(ITEMS))},
    }
    status, answer = house.ask("POST", "/api/v1/runs", body)
    assert status == 202, answer
    return str(answer["run_id"])


def executions(place: Place) -> int:
    return len(place.effects.read_text().splitlines()) if place.effects.exists() else 0


def after_some_work(place: Place, during: Callable[[], None]) -> None:
    """Wait until more of the loop was executed, and then do something to it."""
    before = executions(place)
    until(lambda: executions(place) >= min(before + 20, ITEMS - 5), "the loop goes on")
    during()


@pytest.mark.parametrize("how", [(), ("--pull",)], ids=["push", "pull"])
def test_kills_of_the_only_worker_and_of_the_server_fail_no_run(tmp_path: Path, how: tuple[str, ...]) -> None:
    place = Place(tmp_path)
    house = House(tmp_path, EFFECTS=str(place.effects))

    def a_worker() -> Program:
        return house.worker("--id", "only", *how, module="tests.crash.services:pull_add")[0]

    def another_worker() -> None:
        house.kill(workers.pop())
        time.sleep(0.3)  # some calls find no worker
        workers.append(a_worker())

    def another_server() -> None:
        house.kill(house.server)
        house.up()

    try:
        house.up()
        run = started(house)  # before there is any worker
        until(lambda: house.run(run)["status"] == "waiting", "the run waits for a worker")
        workers = [a_worker()]
        for number in range(KILLS):
            after_some_work(place, another_server if number % 2 else another_worker)
        found = house.ended(run)
        assert (found["status"], found["output"]) == ("completed", {"l": {"count": ITEMS, "failed": 0}})
        assert executions(place) >= ITEMS
    finally:
        house.close()
