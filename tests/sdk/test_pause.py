"""A server that is stopped for longer than a lease, a worker's time to live and a time-out: its workers are not at fault."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.sdk.processes import House, until, written

# A worker that gets no CPU for a third of its lease has lost it, so it is not as short as it could be.
LEASE_SECS = 6
STOPPED_SECS = 10.0  # longer than a lease, the time to live of a worker, and the time-out of the step


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path, HOLDFAST_WORKER_TTL_SECS="8", HOLDFAST_WORKER_LEASE_SECS=str(LEASE_SECS))
    house.up()
    try:
        yield house
    finally:
        house.server.send_signal(signal.SIGCONT)
        house.close()


def stopped(house: House, meanwhile: Any) -> None:
    house.server.send_signal(signal.SIGSTOP)
    meanwhile()
    time.sleep(STOPPED_SECS)
    house.server.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("how", [(), ("--pull",)], ids=["push", "pull"])
def test_an_answer_given_while_the_server_was_stopped_counts(
    house: House, how: tuple[str, ...], tmp_path: Path
) -> None:
    house.worker("--id", "mine", *how)
    begun, end = tmp_path / "begun", tmp_path / "end"
    given = {"file": str(begun), "until": str(end)}
    run_id = house.start(
        {"id": "a", "service": "noted", "input": given, "on_crash": "fail", "timeout_secs": 8}
    )
    until(lambda: written(begun), "the job has begun")
    stopped(house, end.touch)
    view = house.ended(run_id)
    assert (view["status"], view["output"]) == ("completed", {"a": "done"}), view["error"]
    assert begun.read_text() == ("a 1\n" if how else " 0\n")
    assert house.workers() == ["mine"]


def test_requests_on_a_kept_connection_that_waited_in_the_socket_are_accepted(house: House) -> None:
    with closing(HTTPConnection("127.0.0.1", house.port, timeout=120)) as kept:

        def send(path: str, body: dict[str, Any]) -> None:
            kept.request(
                "POST", f"/api/v1/{path}", msgspec.json.encode(body), {"Content-Type": "application/json"}
            )

        def heard() -> Any:
            answer = kept.getresponse()
            assert answer.status in (200, 201), answer.read()
            return msgspec.json.decode(answer.read())

        send("workers", {"id": "w", "kind": "pull", "services": ["work"]})
        heard()
        run_id = house.start({"id": "a", "service": "work", "on_crash": "fail"})
        send("assignments/poll", {"worker_id": "w", "wait_secs": 60})
        (job,) = heard()["assignments"]
        stopped(house, lambda: send(f"assignments/{job['id']}/heartbeat", {"token": job["token"]}))
        assert heard() == {"lease_secs": LEASE_SECS, "cancel": False}
        stopped(
            house, lambda: send(f"assignments/{job['id']}/complete", {"token": job["token"], "result": 7})
        )
        heard()
        assert house.ended(run_id)["output"] == {"a": 7}
