"""`holdfast approve`, `signal` and `resume`: the same at a server and in a file that nobody has."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from holdfast.sdk.sync import SyncClient
from holdfast.values import TERMINAL
from tests.cli.conftest import Cli, Up

GATE = "- {id: gate, kind: approve, prompt: Sure?}"
FORM = """
- id: gate
  kind: approve
  form: {type: object, required: [amount], properties: {amount: {type: integer}}}
"""
QUORUM = "- {id: gate, kind: approve, quorum: {need: 2, of: [ada, bob]}}"
TWO = "- {id: both, kind: parallel, steps: [{id: a, kind: approve}, {id: b, kind: approve}]}"
EVENT = "- {id: paid, kind: wait_event, signal_key: paid, correlation: order-7}"
LATER = "- {id: call, tool: later}"
TOOL = """
from holdfast import tool

@tool
def later():
    return {"pending": True, "task_id": "T9"}
"""


class Place:
    """A folder in which runs wait, with a server or without: what follows holds in both."""

    def __init__(self, cli: Cli, up: Up | None) -> None:
        self.cli, self.up = cli, up
        self.run = cli.run
        cli.write("asks.py", TOOL)

    def waiting(self, steps: str) -> str:
        """A run that waits for the outside; gives its id."""
        flow = self.cli.flow(steps)
        if self.up is None:
            said = self.cli.run("run", flow, "--tools", "asks", "--json")
            assert said.returncode == 4, said.stderr
            return str(json.loads(said.stdout)["run_id"])
        with SyncClient(self.up.address) as client:
            run_id = client.start((self.cli.folder / flow).read_text()).run_id
            self._until(client, run_id, ("waiting",))
        return run_id

    def ended(self, run_id: str) -> dict[str, Any]:
        """The run at its end; in a file it has to be gone on with."""
        if self.up is None and self.shown(run_id)["status"] not in TERMINAL:
            self.cli.run("run", "--continue", run_id, "--tools", "asks")
        elif self.up is not None:
            with SyncClient(self.up.address) as client:
                self._until(client, run_id, tuple(TERMINAL))
        return self.shown(run_id)

    def shown(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cli.json("runs", "show", run_id)
        return found

    @staticmethod
    def _until(client: SyncClient, run_id: str, statuses: tuple[str, ...]) -> None:
        deadline = time.monotonic() + 120
        while client.run(run_id).status not in statuses:
            assert time.monotonic() < deadline, client.run(run_id)
            time.sleep(0.01)


@pytest.fixture(params=["server", "file"])
def place(request: pytest.FixtureRequest, cli: Cli) -> Place:
    cli.write("asks.py", TOOL)
    return Place(cli, cli.up("--tools", "asks") if request.param == "server" else None)


@pytest.fixture
def served(cli: Cli) -> Place:
    return Place(cli, cli.up())


# ----------------------------------------------------------------------------------------------------- approve


def test_a_gate_is_approved(place: Place) -> None:
    run_id = place.waiting(GATE)
    said = place.run("approve", run_id, "gate", "--reason", "why not", "--by", "ada")
    assert (said.returncode, f"gate of run {run_id} is approved" in said.stderr) == (0, True), said.stderr
    run = place.ended(run_id)
    assert run["output"]["gate"] == {"approved": True, "reason": "why not", "by": "ada", "form": None}


def test_a_gate_is_denied(place: Place) -> None:
    run_id = place.waiting(FORM)
    assert place.run("approve", run_id, "--deny", "--reason", "too dear").returncode == 0
    assert place.ended(run_id)["error"]["message"] == "approval denied: too dear"


def test_the_only_gate_of_the_last_run_need_not_be_named(place: Place) -> None:
    run_id = place.waiting(GATE)
    told = place.cli.json("approve", "last")
    assert told == {"run_id": run_id, "path": "gate", "approved": True, "decided": True}
    assert place.ended(run_id)["output"]["gate"]["by"] == "local"


def test_of_several_gates_one_must_be_named(place: Place) -> None:
    run_id = place.waiting(TWO)
    said = place.run("approve", run_id)
    assert said.returncode == 2 and "has open approvals at both[0].a, both[1].b; name one" in said.stderr
    assert place.run("approve", run_id, "a").returncode == 0
    assert place.cli.json("approve", run_id)["path"] == "both[1].b"
    assert place.ended(run_id)["status"] == "completed"


@pytest.mark.parametrize("form", ['{"amount": 7}', "@form.json"])
def test_a_form_is_given_as_json_or_in_a_file(place: Place, form: str) -> None:
    place.cli.write("form.json", '{"amount": 7}')
    run_id = place.waiting(FORM)
    assert place.run("approve", run_id, "--form", form).returncode == 0
    assert place.ended(run_id)["output"]["gate"]["form"] == {"amount": 7}


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--form", '{"amount": "x"}'], "the form: amount: must be integer, not text"),
        (["--form", "{"], "--form is not JSON"),
        (["--form", "@nowhere.json"], "cannot read --form from nowhere.json"),
        (["--link", "--deny"], "--link only creates a link"),
        (["nowhere"], "nowhere has no open approval"),
    ],
)
def test_an_answer_that_cannot_be_used_changes_nothing(place: Place, flags: list[str], why: str) -> None:
    run_id = place.waiting(FORM)
    said = place.run("approve", run_id, *flags)
    assert said.returncode == 2 and why in said.stderr, said.stderr
    assert place.shown(run_id)["status"] == "waiting"


def test_whoever_comes_later_is_told(place: Place) -> None:
    run_id = place.waiting(GATE)
    place.run("approve", run_id, "gate")
    place.ended(run_id)
    for words in ([run_id, "gate"], [run_id]):
        said = place.run("approve", *words)
        assert said.returncode == 2, said.stderr
        assert "gate has already been approved" in said.stderr or "has no open approval" in said.stderr


def test_a_quorum_takes_several_answers(place: Place) -> None:
    run_id = place.waiting(QUORUM)
    assert "only ada, bob may" in place.run("approve", run_id, "--by", "eve").stderr
    assert "more answers are needed" in place.run("approve", run_id, "--by", "ada").stderr
    assert place.cli.json("approve", run_id, "--by", "bob")["decided"] is True
    assert place.ended(run_id)["status"] == "completed"


def test_a_link_is_printed_and_answers_nothing(served: Place) -> None:
    run_id = served.waiting(QUORUM)
    assert served.up is not None
    said = served.run("approve", run_id, "--link", "--by", "ada")
    assert said.returncode == 0 and said.stdout.startswith(f"{served.up.address}/approve/")
    assert served.cli.json("approve", run_id, "--link", "--by", "ada")["url"] == said.stdout.strip()
    assert "name the approver the link is for" in served.run("approve", run_id, "--link").stderr
    assert served.shown(run_id)["status"] == "waiting"


def test_a_link_of_a_file_leads_to_where_it_will_be_served(cli: Cli) -> None:
    run_id = Place(cli, None).waiting(GATE.replace("gate", "ask"))
    public = {"HOLDFAST_PUBLIC_URL": "https://flows.example.org"}
    assert cli.run("approve", run_id, "--link", **public).stdout.startswith(public["HOLDFAST_PUBLIC_URL"])
    said = cli.run("approve", run_id, "--link")
    assert said.returncode == 2 and "a link would not work" in said.stderr


def test_links_stand_in_why_a_run_waits_where_there_is_a_public_address(cli: Cli) -> None:
    place = Place(cli, cli.up("--public-url", "https://flows.example.org"))
    run_id = place.waiting(QUORUM)
    shown = cli.run("runs", "explain", run_id).stdout
    assert shown.count("https://flows.example.org/approve/") == 2 and "as ada: https://" in shown


# ------------------------------------------------------------------------------------------------------ signal


@pytest.mark.parametrize(("word", "value"), [('{"n": 1}', {"n": 1}), ("yes", "yes"), ("true", True)])
def test_a_signal_brings_its_value(place: Place, word: str, value: Any) -> None:
    run_id = place.waiting(EVENT)
    said = place.run("signal", run_id, "paid", word, "--correlation", "order-7")
    assert said.returncode == 0, said.stderr
    assert place.ended(run_id)["output"] == {"paid": value}


def test_a_signal_without_a_value_is_null(place: Place) -> None:
    run_id = place.waiting(EVENT)
    told = place.cli.json("signal", "last", "paid", "--correlation", "order-7")
    assert told["run_id"] == run_id
    assert place.ended(run_id)["output"] == {"paid": None}


def test_a_signal_for_something_else_is_kept_and_the_step_waits_on(place: Place) -> None:
    run_id = place.waiting(EVENT)
    assert place.run("signal", run_id, "paid", "1", "--correlation", "order-8").returncode == 0
    assert place.shown(run_id)["status"] == "waiting"


def test_a_signal_without_a_name_is_refused_as_no_mistake_of_a_definition(place: Place) -> None:
    run_id = place.waiting(EVENT)
    refused = place.run("signal", run_id, "")
    assert (refused.returncode, refused.stderr.startswith("holdfast: ")) == (2, True)


def test_a_run_that_is_over_takes_no_signal(place: Place) -> None:
    run_id = place.waiting(EVENT)
    place.run("runs", "cancel", run_id)
    place.ended(run_id)
    said = place.run("signal", run_id, "paid")
    assert said.returncode == 2 and "cancelled" in said.stderr, said.stderr


# ------------------------------------------------------------------------------------------------------ resume


@pytest.mark.parametrize("result", ['{"n": 1}', "@answer.json"])
def test_a_result_becomes_the_output(place: Place, result: str) -> None:
    place.cli.write("answer.json", '{"n": 1}')
    run_id = place.waiting(LATER)
    said = place.run("resume", "T9", "--result", result)
    assert (said.returncode, "task T9: the step continues with it" in said.stderr) == (0, True), said.stderr
    assert place.ended(run_id)["output"] == {"call": {"n": 1}}


def test_a_second_result_changes_nothing(place: Place) -> None:
    run_id = place.waiting(LATER)
    results = [place.cli.json("resume", "T9", "--result", text) for text in ("1", "2")]
    assert results == [
        {"resumed": True, "reason": "resumed"},
        {"resumed": False, "reason": "already_resumed"},
    ]
    assert place.ended(run_id)["output"] == {"call": 1}


def test_an_error_fails_the_step(place: Place) -> None:
    run_id = place.waiting(LATER)
    assert place.run("resume", "T9", "--error", "no such wiki").returncode == 0
    run = place.ended(run_id)
    assert run["status"] == "failed" and "no such wiki" in run["error"]["message"]


def test_of_two_runs_with_the_same_task_one_must_be_named(place: Place) -> None:
    first, second = place.waiting(LATER), place.waiting(LATER)
    said = place.run("resume", "T9", "--result", "1")
    assert said.returncode == 2 and "T9" in said.stderr
    assert place.run("resume", "T9", "--result", "1", "--run", first).returncode == 0
    assert place.run("resume", "T9", "--result", "2", "--run", second).returncode == 0
    assert [place.ended(run_id)["output"]["call"] for run_id in (first, second)] == [1, 2]


def test_a_result_that_comes_before_its_time_is_kept(place: Place) -> None:
    place.waiting(GATE)  # so that there is a file
    said = place.run("resume", "T9", "--result", "5")
    assert said.returncode == 0 and "kept for a day" in said.stderr
    assert place.cli.run("run", place.cli.flow(LATER), "--tools", "asks").stdout == '{\n  "call": 5\n}\n'


def test_what_nobody_waits_for_is_told_by_the_exit_code(place: Place) -> None:
    run_id = place.waiting(GATE)
    place.run("runs", "cancel", run_id)
    place.ended(run_id)
    said = place.run("resume", "T9", "--result", "5", "--run", run_id)
    assert said.returncode == 1 and "no run is waiting for it" in said.stderr, said.stderr


@pytest.mark.parametrize("flags", [[], ["--result", "1", "--error", "no"]])
def test_a_result_or_an_error_is_given_and_not_both(cli: Cli, flags: list[str]) -> None:
    said = cli.run("resume", "T9", *flags)
    assert said.returncode == 2 and "--result JSON, or a failure with --error TEXT" in said.stderr
