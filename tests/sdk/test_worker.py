"""`holdfast worker` against a real server: both are processes, and are killed, stopped and restarted."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sdk.processes import House, port_of, until, written


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    # nobody falls silent here, however busy the machine
    house = House(tmp_path, HOLDFAST_WORKER_TTL_SECS="120")
    house.up()
    try:
        yield house
    finally:
        house.close()


def step(name: str, service: str, given: Any = None, **more: Any) -> dict[str, Any]:
    return {"id": name, "service": service, "input": given, **more}


STEPS = (
    step("d", "double", 4),
    step("s", "slow_add", {"a": 1}, params={"b": 2, "unknown": 3}),
    step("h", "heavy", {"n": 10}),
    step("w", "who", [1], params={"k": 1}),
)


@pytest.mark.parametrize("how", [(), ("--pull",)], ids=["push", "pull"])
def test_a_worker_serves_tools_of_every_kind(house: House, how: tuple[str, ...]) -> None:
    house.worker("--id", "mine", *how)
    view = house.ended(house.start(*STEPS))
    assert view["status"] == "completed", view["error"]
    output = view["output"]
    assert (output["d"], output["s"], output["h"]) == (8, 3, 45)
    assert (output["w"]["input"], output["w"]["params"], len(output["w"]["key"])) == ([1], {"k": 1}, 64)
    assert output["w"]["path"] == ("w" if how else "")
    _, page = house.ask("GET", f"/api/v1/runs/{view['run_id']}/steps")
    assert [item["worker"][0] for item in page["items"]] == ["mine"] * 4


@pytest.mark.parametrize("how", [(), ("--pull",)], ids=["push", "pull"])
def test_a_tool_that_fails_says_how(house: House, how: tuple[str, ...]) -> None:
    house.worker(*how)
    error = house.ended(house.start(step("f", "fails", "x")))["error"]
    assert (error["kind"], error["message"].removeprefix("all workers failed: ")) == ("picky", "cannot: x")
    mismatch = house.ended(house.start(step("m", "slow_add", {"a": 1, "c": 2})))["error"]
    assert mismatch["kind"] == "inputs" and "'b' is missing" in mismatch["message"]


def test_a_port_that_is_taken_is_replaced_by_one_that_is_free(house: House) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _, said = house.worker("--url", f"http://127.0.0.1:{port}")
        assert port_of(said) != port
        assert house.ended(house.start(step("d", "double", 1)))["output"] == {"d": 2}


def test_a_worker_waits_for_its_server_and_registers_again_when_it_was_forgotten(tmp_path: Path) -> None:
    house = House(tmp_path)
    try:
        early, log = house.begin(
            "worker",
            "tests.sdk.tools",
            "--id",
            "early",
            REGISTRY_URL=house.address,
            WORKER_URL="http://127.0.0.1:0",
        )
        until(lambda: "not registered yet" in log.read_text(), "the worker has tried")
        house.up()
        until(lambda: house.workers() == ["early"], "the worker is registered")
        early.send_signal(signal.SIGSTOP)  # else it may be back before we look
        assert house.ask("DELETE", "/api/v1/workers/early")[0] == 200
        assert house.workers() == []
        early.send_signal(signal.SIGCONT)
        until(lambda: house.workers() == ["early"], "the worker is registered again")
        assert early.poll() is None
    finally:
        house.close()


@pytest.mark.parametrize("how", [(), ("--pull",)], ids=["push", "pull"])
def test_a_worker_that_is_told_to_stop_finishes_what_it_is_at(
    house: House, tmp_path: Path, how: tuple[str, ...]
) -> None:
    worker, _ = house.worker(*how)
    notes, go = tmp_path / "notes", tmp_path / "go"
    run_id = house.start(step("n", "noted", {"file": str(notes), "until": str(go)}, timeout_secs=60))
    until(lambda: written(notes), "the job has begun")
    worker.terminate()
    until(lambda: house.workers() == [], "the worker has left the list")
    go.touch()
    assert house.ended(run_id)["output"] == {"n": "done"}
    assert worker.wait(120) == 0
    assert notes.read_text().count("\n") == 1


@pytest.mark.parametrize("how", [(), ("--pull",)], ids=["push", "pull"])
def test_a_cancel_reaches_the_tool(house: House, tmp_path: Path, how: tuple[str, ...]) -> None:
    house.worker(*how)
    notes = tmp_path / "notes"
    given = {"file": str(notes), "until": str(tmp_path / "never")}
    run_id = house.start(step("n", "noted", given, timeout_secs=60))
    until(lambda: written(notes), "the job has begun")
    house.ask("POST", f"/api/v1/runs/{run_id}/cancel", {})
    until(lambda: "cancelled" in notes.read_text(), "the tool was cancelled")
    assert house.ended(run_id)["status"] == "cancelled"


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_jobs_at_pull_workers_outlive_the_server_and_are_done_once(
    house: House, tmp_path: Path, how: str
) -> None:
    house.worker("--pull")
    go = tmp_path / "go"
    notes = [tmp_path / f"notes{number}" for number in range(5)]
    runs = [
        house.start(step("n", "noted", {"file": str(file), "until": str(go)}), step("d", "double", 2))
        for file in notes
    ]
    until(lambda: all(written(file) for file in notes), "every job has begun")
    getattr(house, how)(house.server)
    house.up()
    go.touch()
    for run_id in runs:
        assert house.ended(run_id)["output"] == {"n": "done", "d": 4}
    assert [file.read_text() for file in notes] == ["n 1\n"] * 5


def test_a_job_that_ends_while_the_server_is_away_is_answered_when_it_is_back(
    house: House, tmp_path: Path
) -> None:
    _, said = house.worker("--pull")
    assert "fetching" in said
    notes, go = tmp_path / "notes", tmp_path / "go"
    run_id = house.start(step("n", "noted", {"file": str(notes), "until": str(go)}))
    until(lambda: written(notes), "the job has begun")
    house.kill(house.server)
    go.touch()
    log = max(house.folder.glob("*.log"))
    until(lambda: "cannot report a result" in log.read_text(), "the worker has tried to answer")
    house.up()
    assert house.ended(run_id)["output"] == {"n": "done"}
    assert notes.read_text() == "n 1\n"


def test_a_job_of_a_killed_pull_worker_is_done_by_another(tmp_path: Path) -> None:
    # Short, and longer than a busy machine keeps anybody: one who lives must not lose it.
    house = House(tmp_path, HOLDFAST_WORKER_LEASE_SECS="10")
    try:
        house.up()
        first, _ = house.worker("--pull")
        notes, go = tmp_path / "notes", tmp_path / "go"
        run_id = house.start(step("n", "noted", {"file": str(notes), "until": str(go)}))
        until(lambda: written(notes), "the job has begun")
        house.kill(first)
        go.touch()
        house.worker("--pull")
        assert house.ended(run_id)["output"] == {"n": "done"}
        assert notes.read_text() == "n 1\nn 1\n"
    finally:
        house.close()


def test_the_demo_services_do_what_they_say(house: House) -> None:
    house.worker(module="holdfast.sdk.demo")
    cases: dict[str, tuple[str, Any, dict[str, Any], Any]] = {
        "a": ("transform", "aB", {"op": "upper"}, "AB"),
        "b": ("transform", "aB", {"op": "lower"}, "ab"),
        "c": ("transform", 4, {"mul": 2.5}, 10),
        "d": ("transform", 1.5, {}, 1.5),
        "e": ("sum", [1, 2.5, "3", "x", True, None], {}, 6.5),
        "f": ("sum", [], {}, 0),
        "g": ("route", None, {}, {"action": "goB"}),
        "h": ("route", 1, {"action": "goC"}, {"action": "goC"}),
    }
    steps = [step(name, service, given, params=params) for name, (service, given, params, _) in cases.items()]
    view = house.ended(house.start(*steps))
    assert view["error"] is None
    assert view["output"] == {name: expected for name, (*_, expected) in cases.items()}
    for service, given, says in (
        ("transform", "x", "unsupported op"),
        ("transform", True, "bad input"),
        ("transform", None, "bad input"),
        ("sum", "12", "bad input"),
    ):
        error = house.ended(house.start(step("x", service, given)))["error"]
        assert error["message"] == f"all workers failed: {says}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_worker_that_is_told_to_stop_leaves_the_list(house: House, number: signal.Signals) -> None:
    worker, _ = house.worker("--id", "mine", "--pull")
    assert house.workers() == ["mine"]
    worker.send_signal(number)
    assert worker.wait(120) == 0
    assert house.workers() == []
