"""Many runs at once, and figures of how runs went: `runs cancel` and `runs rerun` with a filter, `flows stats`, `runs pulse`."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Cli, Up

WAITS = "name: waits\nlabels: {team: x}\nsteps: [{id: go, kind: wait_event, signal_key: go}]\n"
FAILS = "name: fails\nsteps: [{id: a, tool: add, args: {a: 1}}, {id: bad, tool: fail}]\n"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cli, Up]]:
    """A server with published workflows, one that fails and one that waits."""
    cli = Cli(tmp_path_factory.mktemp("many"))
    up = cli.up("--tools", "tools")
    for name, text in (("waits", WAITS), ("fails", FAILS)):
        cli.write(f"{name}.yaml", text)
        assert cli.run("flows", "publish", f"{name}.yaml").returncode == 0
    yield cli, up
    up.stop()


def started(cli: Cli, name: str, count: int) -> set[str]:
    return {cli.json("start", name, "--detach")["run_id"] for _ in range(count)}


def failed(cli: Cli, count: int) -> set[str]:
    runs = started(cli, "fails", count)
    for run_id in runs:
        assert cli.run("runs", "watch", run_id).returncode == 1
    return runs


def test_a_preview_lists_the_runs_and_cancels_none(served: tuple[Cli, Up]) -> None:
    cli, _ = served
    runs = started(cli, "waits", 2)
    found = cli.json("runs", "cancel", "--workflow", "waits", "--label", "team=x", "--preview")
    assert runs <= set(found["runs"])
    assert cli.json("runs", "show", runs.pop())["status"] in ("running", "waiting")


def test_many_runs_are_cancelled_by_a_filter(served: tuple[Cli, Up]) -> None:
    cli, _ = served
    runs = started(cli, "waits", 2)
    done = cli.json("runs", "cancel", "--workflow", "waits", "--reason", "wrong day", "--yes")
    assert runs <= {item["run_id"] for item in done["items"]}
    assert all(item["error"] is None for item in done["items"])
    assert cli.json("runs", "show", runs.pop())["status"] == "cancelled"


def test_without_a_terminal_nothing_is_done_until_the_command_says_yes(served: tuple[Cli, Up]) -> None:
    cli, _ = served
    (run_id,) = started(cli, "waits", 1)
    refused = cli.run("runs", "cancel", "--workflow", "waits")
    assert refused.returncode == 2 and "--preview" in refused.stderr and "--yes" in refused.stderr
    assert cli.json("runs", "show", run_id)["status"] in ("running", "waiting")


def test_many_failed_runs_are_rerun_where_they_failed(served: tuple[Cli, Up]) -> None:
    cli, _ = served
    runs = failed(cli, 2)
    done = cli.json("runs", "rerun", "--workflow", "fails", "--status", "failed", "--failed", "--yes")
    again = {item["run_id"]: item["new_run_id"] for item in done["items"]}
    assert runs <= set(again)
    new = again[runs.pop()]
    assert cli.run("runs", "watch", new).returncode == 1
    assert "a" not in [line.split()[0] for line in cli.run("runs", "logs", new).stdout.splitlines() if line]


def test_a_filter_that_matches_nothing_does_nothing(served: tuple[Cli, Up]) -> None:
    cli, _ = served
    found = cli.run("runs", "cancel", "--workflow", "nothing", "--yes")
    assert found.returncode == 0 and "0 runs cancelled" in found.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("runs", "cancel"), "say which run"),
        (("runs", "cancel", "5d1e", "--workflow", "waits"), "not both"),
        (("runs", "rerun", "--workflow", "fails", "--from", "bad"), "--from is for the rerun of one run"),
        (("runs", "pulse", "--buckets", "0"), "--buckets must be a number from 1 to 500"),
        (("runs", "pulse", "--from", "yesterday"), "--from must be a time"),
        (("flows", "stats", "fails", "--last", "many"), "--last must be a number"),
    ],
)
def test_a_command_that_cannot_be_meant_says_why(
    served: tuple[Cli, Up], words: tuple[str, ...], said: str
) -> None:
    found = served[0].run(*words)
    assert found.returncode == 2 and said in found.stderr


def test_runs_of_a_file_without_a_server_are_cancelled_and_not_rerun(cli: Cli) -> None:
    cli.write("waits.yaml", WAITS)
    run = json.loads(cli.run("run", "waits.yaml", "--json").stdout)
    refused = cli.run("runs", "rerun", "--workflow", "waits", "--yes")
    done = cli.json("runs", "cancel", "--workflow", "waits", "--yes")
    assert [item["run_id"] for item in done["items"]] == [run["run_id"]]
    assert refused.returncode == 0 and "0 runs" in refused.stderr  # it is open
    refused = cli.run("runs", "rerun", "--workflow", "waits", "--yes")
    assert refused.returncode == 2 and "start holdfast up" in refused.stderr


def test_stats_of_a_workflow_are_a_sentence_and_a_table_of_steps(served: tuple[Cli, Up]) -> None:
    cli, _ = served
    failed(cli, 1)
    sentence, _, head, *steps = cli.run("flows", "stats", "fails").stdout.splitlines()
    assert sentence.startswith("fails: 0 of the last ") and head.split()[0] == "STEP"
    assert [line.split()[0] for line in steps] == ["a", "bad"]
    assert cli.json("flows", "stats", "fails")["completed"] == 0


def test_the_pulse_counts_runs_over_time(served: tuple[Cli, Up]) -> None:
    cli, _ = served
    failed(cli, 1)
    lines = cli.run("runs", "pulse", "--workflow", "fails").stdout.splitlines()
    assert lines[0].split()[:4] == ["FROM", "STARTED", "COMPLETED", "FAILED"]
    total = cli.json("runs", "pulse", "--workflow", "fails")["total"]
    assert total["failed"] >= 1 and lines[-1].split()[0] == "total"
