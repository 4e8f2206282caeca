"""The checker of runs that wait finds what it is there to find: each test takes a good end and spoils one thing of it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections import Counter
from typing import Any

import pytest

from tests.crash.checker import Row
from tests.crash.outside import SECRET, CallbackDelivery, Outside, Said, Server
from tests.crash.waiting_checker import Found, OneRun
from tests.runtime.receiver import Received

RUN = "run-1"
GOOD_LOG = f"run {RUN}: attempt 1 of page was lost with its process"


class End:
    """A run of the race, r3: its first attempt was lost, the second one paused and was answered. And one of a graph, r4,
    that was approved and got its signal."""

    def __init__(self, name: str = "r3") -> None:
        self.outside = Outside(Server(None, ""), 1)  # type: ignore[arg-type]  # nobody is asked anything
        self.view: dict[str, Any] = {
            "run_id": RUN, "inputs": {"name": name}, "status": "completed", "error": None, "output": "r3.2#0",
        }  # fmt: skip
        self.events: list[tuple[list[Any], list[list[Any]]]] = [
            (["run_started", {}], [["start", "page", 1]]),
            (["adopted", ["page"]], [["start", "page", 2]]),
            (["step_paused", "page", 2, "r3.2"], []),
            (["callback_received", "page", 2, "r3.2#0", None, "resume"], [["start", "bound", 1]]),
            (["step_succeeded", "bound", 1, "r3.2#0"], [["finish", "completed", "r3.2#0"]]),
        ]
        self.outside.said = [Said("r3.2", "r3.2#0", "resumed", True, False)]
        self.effects = Counter({(RUN, "bound", 1): 1})
        if name == "r4":
            self.view["output"] = {"ok": True, "go": 1, "got": 1, "shipped": "shipped r4"}
            self.events[2:4] = [
                (["approval_answered", "ok", True, "", "ada", None], []),
                (["signal_received", "go", 1], [["start", "bound", 1]]),
            ]
            self.outside.said = []
            self.outside.decided[RUN, "ok"] = [("ada", True)]
        self.log = GOOD_LOG
        self.paths = ["/start"] if name == "r4" else ["/start", "/workflow"]
        self.outside.deliveries = [self.delivery(path) for path in self.paths]

    def delivery(
        self, path: str, delivery_id: str = "msg_1", at: int = 1, *, taken: bool = True
    ) -> CallbackDelivery:
        raw = json.dumps(self.view).encode()
        signed = hmac.new(SECRET.encode(), f"{delivery_id}.{at}.".encode() + raw, hashlib.sha256).digest()
        headers = {"webhook-id": delivery_id, "webhook-timestamp": str(at)}
        headers["webhook-signature"] = "v1," + base64.b64encode(signed).decode()
        return CallbackDelivery(Received(path, headers, raw), RUN, True, taken)

    def problems(self) -> list[str]:
        rows = [Row(seq, 0, seq, *both) for seq, both in enumerate(self.events, 1)]
        found = Found()
        OneRun(self.view, rows, self.outside, found, []).everything(self.effects, self.log)
        return found.problems


@pytest.mark.parametrize("name", ["r3", "r4"])
def test_a_good_end_has_no_problem(name: str) -> None:
    assert End(name).problems() == []


def spoil_twice_answered(end: End) -> None:
    end.events.insert(4, (["callback_received", "page", 2, "r3.2#1", None, "resume"], []))


def spoil_told_and_not_counted(end: End) -> None:
    end.outside.said = [Said("r3.2", "r3.2#4", "resumed", True, False)]


def spoil_two_told(end: End) -> None:
    end.outside.said.append(Said("r3.2", "r3.2#1", "resumed", True, False))


def spoil_kept_and_not_counted(end: End) -> None:
    end.outside.said = [Said("r3.2", "r3.2#0", "parked", True, False)]
    del end.events[3]


def spoil_done_twice(end: End) -> None:
    end.effects[RUN, "bound", 1] += 1


def spoil_done_unstarted(end: End) -> None:
    end.effects[RUN, "bound", 2] += 1


def spoil_done_again(end: End) -> None:
    end.events.insert(5, (["adopted", []], [["start", "bound", 2]]))


def spoil_lost_while_it_waits(end: End) -> None:
    end.events.insert(3, (["adopted", ["page"]], [["start", "page", 3]]))


def spoil_unexplained(end: End) -> None:
    end.log = ""


def spoil_fetched_and_lost(end: End) -> None:
    end.outside.jobs[RUN, "page", 1] = 1


def spoil_output(end: End) -> None:
    end.view["output"] = "another"


def spoil_not_told(end: End) -> None:
    end.outside.deliveries.pop()


def spoil_two_ids(end: End) -> None:
    end.outside.deliveries.append(end.delivery("/start", "msg_2"))


def spoil_not_taken(end: End) -> None:
    end.outside.deliveries[0] = end.delivery("/start", taken=False)


def spoil_order(end: End) -> None:
    end.outside.deliveries.append(end.delivery("/start", at=0))


SPOILS = {
    spoil_twice_answered: "answered 2 times",
    spoil_told_and_not_counted: "was told that it counts",
    spoil_two_told: "2 answers of r3.2 were told",
    spoil_kept_and_not_counted: "were kept, and none has counted",
    spoil_done_twice: "was done 2 times",
    spoil_done_unstarted: "attempt 2 of bound was done 1 times",
    spoil_done_again: "is done again after it succeeded",
    spoil_lost_while_it_waits: "is lost, and was paused before",
    spoil_unexplained: "the log does not explain",
    spoil_fetched_and_lost: "whoever had fetched it was at it",
    spoil_output: "it gave another",
    spoil_not_told: "its end was told at ['/start'], and not at",
    spoil_two_ids: "under several ids",
    spoil_not_taken: "was not taken at /start",
    spoil_order: "came out of order",
}


@pytest.mark.parametrize("spoil", SPOILS, ids=lambda spoil: spoil.__name__)
def test_what_is_spoiled_is_found(spoil: Any) -> None:
    end = End()
    spoil(end)
    assert any(SPOILS[spoil] in problem for problem in end.problems())


def test_an_answer_that_did_not_count_is_found() -> None:
    end = End("r4")
    end.outside.decided[RUN, "ok"] = [("bob", True)]
    assert any("['bob'] were told that they have answered" in problem for problem in end.problems())


def test_two_who_were_told_that_they_decided_are_found() -> None:
    end = End("r4")
    end.events.insert(3, (["approval_answered", "ok", True, "", "bob", None], []))
    end.outside.decided[RUN, "ok"].append(("bob", True))
    assert any("was decided more than once" in problem for problem in end.problems())


def test_a_signal_that_counts_twice_is_found() -> None:
    end = End("r4")
    end.events.insert(4, (["signal_received", "go", 1], []))
    assert any("it got 2 signals, and 1 were sent" in problem for problem in end.problems())
