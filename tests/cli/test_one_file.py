"""Several processes and one file: commands reach the process that has it, and those that need it for themselves wait."""

from __future__ import annotations

import json
import signal

from holdfast import SyncClient
from holdfast.api.types import LEFT_ALONE
from tests.cli.conftest import Cli

HELD = "- {id: held, tool: hold}"
GATE = "- {id: gate, kind: approve, timeout_secs: 60}\n- {id: s, tool: add, args: {a: 1}}"


def test_a_run_is_cancelled_in_the_command_that_executes_it(cli: Cli) -> None:
    process = cli.start("run", cli.flow(HELD), "--tools", "tools")
    cli.until(process, "at work")
    assert cli.run("runs", "cancel", "last").returncode == 0
    process.communicate(timeout=120)
    assert process.wait() == 3


def test_a_second_run_waits_in_line_and_says_so(cli: Cli) -> None:
    first = cli.start("run", cli.flow(HELD), "--tools", "tools")
    cli.until(first, "at work")
    second = cli.start("run", cli.flow("- {id: s, tool: add, args: {a: 1}}"), "--tools", "tools")
    said = cli.until(second, "waiting in line")
    assert "is in use by process" in said and "--wait 0" in said
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=120)
    second.communicate(timeout=120)
    assert second.wait() == 0


def test_a_second_run_with_wait_0_ends_at_once(cli: Cli) -> None:
    first = cli.start("run", cli.flow(HELD), "--tools", "tools")
    cli.until(first, "at work")
    refused = cli.run(
        "run", cli.flow("- {id: s, tool: add, args: {a: 1}}"), "--tools", "tools", "--wait", "0", "--json"
    )
    assert (refused.returncode, json.loads(refused.stdout)["error"]) == (2, "database_in_use")


def test_a_wait_that_is_no_number_of_seconds_is_refused(cli: Cli) -> None:
    for text in ("soon", "-1", "nan", "inf"):
        assert cli.json("run", cli.flow(HELD), "--wait", text)["error"] == "usage"


def test_a_run_that_a_stranger_starts_waits_for_a_server(cli: Cli) -> None:
    """`holdfast run` executes its own run only."""
    first = cli.start("run", cli.flow(HELD), "--tools", "tools")
    cli.until(first, "at work")
    run_id = cli.json("start", cli.flow("- {id: s, tool: add, args: {a: 1}}"), "--detach")["run_id"]
    assert cli.json("runs", "show", run_id)["steps"] == {}
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=120)
    assert cli.run("run", "--continue", run_id, "--tools", "tools").returncode == 0


def test_a_run_that_the_process_with_the_file_does_not_execute_is_shown_as_waiting(cli: Cli) -> None:
    cli.stopped_by(signal.SIGINT, "run", cli.flow(HELD), "--tools", "tools")
    run_id = cli.json("runs", "list")["items"][0]["run_id"]
    second = cli.start("run", cli.flow(HELD), "--tools", "tools")
    cli.until(second, "at work")
    listed = {one["run_id"]: (one["status"], one["reason"]) for one in cli.json("runs", "list")["items"]}
    assert listed.pop(run_id) == ("waiting", LEFT_ALONE)
    assert list(listed.values()) == [("running", None)]
    assert cli.json("runs", "show", run_id)["reason"] == LEFT_ALONE
    why = cli.json("runs", "explain", run_id)
    assert why["status"] == "waiting" and why["reasons"][0]["reason"] == "not_driven"
    with SyncClient(f"unix:{cli.folder / 'holdfast.db.sock'}") as client:
        found, (second_line, first_line) = client.run(run_id), client.runs().items
    assert (found.status, found.reason) == (first_line.status, first_line.reason) == ("waiting", LEFT_ALONE)
    assert (second_line.status, second_line.reason) == ("running", None)


def test_following_a_run_that_the_process_with_the_file_does_not_execute_says_so_and_ends(cli: Cli) -> None:
    cli.stopped_by(signal.SIGINT, "run", cli.flow(HELD), "--tools", "tools")
    run_id = cli.json("runs", "list")["items"][0]["run_id"]
    second = cli.start("run", cli.flow(HELD), "--tools", "tools")
    cli.until(second, "at work")
    for command in (["watch", run_id], ["logs", run_id, "-f"]):
        followed = cli.run("runs", *command)
        assert followed.returncode == 4 and LEFT_ALONE in followed.stderr
        assert f"holdfast run --continue {run_id}" in followed.stderr


def test_commands_need_no_key_where_the_server_runs(cli: Cli) -> None:
    server = cli.up("--tools", "tools", HOLDFAST_API_KEY="a-key-of-the-operator")
    assert server.said["mode"] == "guarded"
    assert cli.run("run", cli.flow("- {id: s, tool: add, args: {a: 1}}")).returncode == 0
    assert cli.json("runs", "list", "--server", server.address)["error"] == "unauthorised"
    assert len(cli.json("runs", "list")["items"]) == 1


def test_what_a_guarded_server_suggests_works_when_it_is_pasted(cli: Cli) -> None:
    (cli.folder / "flows").mkdir()
    cli.write("flows/sum.yaml", "name: sum\nsteps: [{id: s, tool: add, args: {a: 1}}]\n")
    server = cli.start(
        "up",
        "--port",
        "0",
        "--tools",
        "tools",
        "--flows",
        "flows",
        env={"HOLDFAST_API_KEY": "a-key-of-the-operator"},
    )
    said = cli.until(server, "API documentation")
    line = next(line for line in said.splitlines() if " start sum " in line)
    assert cli.shell(line).returncode == 0
    assert "HOLDFAST_API_KEY=" in said
