"""`holdfast start`, and `holdfast run` with the name of a published workflow."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli
from tests.cli.test_run import SUM, run_id_in
from tests.runtime.receiver import receiving, standard_signature


def published(cli: Cli) -> None:
    assert cli.run("flows", "publish", cli.flow(SUM, inputs="{a: {type: integer}}")).returncode == 0


@pytest.mark.parametrize("command", ["run", "start"])
def test_a_published_workflow_is_started_by_its_name(cli: Cli, command: str) -> None:
    published(cli)
    done = cli.run(command, "flow", "--tools", "tools", "-i", "a=2")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"sum": 3})
    assert len(cli.json("runs", "list", "--workflow", "flow")["items"]) == 1


def test_a_name_that_is_neither_a_file_nor_published_is_refused_with_the_nearest_name(cli: Cli) -> None:
    published(cli)
    done = cli.run("start", "flaw")
    assert done.returncode == 2
    assert "there is no file flaw" in done.stderr
    assert "did you mean flow?" in done.stderr


def test_a_name_in_a_folder_without_a_database_is_refused(cli: Cli) -> None:
    done = cli.run("start", "flow")
    assert done.returncode == 2
    assert "there is no file flow" in done.stderr
    assert not list(cli.folder.glob("*.db"))


def test_a_file_named_without_its_ending_is_suggested(cli: Cli) -> None:
    (cli.folder / "hello.yaml").write_text("name: hello\nsteps: []\n")
    done = cli.run("run", "helo")
    assert done.returncode == 2
    assert "did you mean hello.yaml?" in done.stderr


def test_inputs_that_do_not_fit_start_nothing(cli: Cli) -> None:
    published(cli)
    assert cli.run("start", "flow", "-i", "a=many").returncode == 2
    assert cli.json("runs", "list")["items"] == []


def test_a_detached_start_without_a_server_executes_nothing_until_one_opens_the_database(cli: Cli) -> None:
    flow = cli.flow("- {id: note, tool: note, args: {text: once}}")
    done = cli.run("start", flow, "--detach", "--label", "team=x", "--json")
    run_id = json.loads(done.stdout)["run_id"]
    assert "no server has this database open" in done.stderr
    assert not (cli.folder / "notes.txt").exists()
    assert cli.json("runs", "show", run_id)["labels"] == {"team": "x"}
    cli.up("--tools", "tools")
    assert cli.run("runs", "watch", run_id).returncode == 0
    assert (cli.folder / "notes.txt").read_text() == "once\n"


def test_a_start_at_a_server_is_followed_to_its_end(cli: Cli) -> None:
    cli.up("--tools", "tools")
    published(cli)
    done = cli.run("start", "flow", "-i", "a=2")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"sum": 3})


def test_a_detached_start_at_a_server_prints_the_id_alone_on_standard_output(cli: Cli) -> None:
    cli.up("--tools", "tools")
    published(cli)
    done = cli.run("start", "flow", "-i", "a=2", "--detach", "--label", "team=x")
    assert done.stdout == f"{run_id_in(done.stdout)}\n"
    shown = cli.run("runs", "watch", done.stdout.strip())
    assert shown.returncode == 0
    assert cli.json("runs", "list", "--label", "team=x")["items"][0]["run_id"] == done.stdout.strip()


@pytest.mark.parametrize("with_server", [False, True], ids=["file", "server"])
def test_a_repeated_request_id_starts_one_run_and_shows_it_again(cli: Cli, *, with_server: bool) -> None:
    if with_server:
        cli.up("--tools", "tools")
    flow = cli.flow("- {id: note, tool: note, args: {text: once}}")
    command = ["start", flow, "--request-id", "order-7", "--tools", "tools"]
    first, second = cli.run(*command), cli.run(*command)
    assert (first.returncode, second.returncode) == (0, 0)
    assert json.loads(first.stdout) == json.loads(second.stdout) == {"note": "once"}
    assert (cli.folder / "notes.txt").read_text() == "once\n"
    assert len(cli.json("runs", "list")["items"]) == 1


def test_a_label_without_a_value_is_refused(cli: Cli) -> None:
    done = cli.run("start", cli.flow(SUM), "--label", "team")
    assert done.returncode == 2
    assert "--label takes name=value" in done.stderr


@pytest.mark.parametrize("with_server", [False, True], ids=["file", "server"])
def test_a_start_names_a_final_callback_and_the_secret_that_signs_it(cli: Cli, *, with_server: bool) -> None:
    key = {"HOLDFAST_SECRET_ORDERS": "correct-horse"}
    if with_server:
        cli.up("--tools", "tools", **key)
    with receiving() as receiver:
        words = ("--final-callback", receiver.url, "--final-callback-secret", "ORDERS")
        flow = cli.flow(SUM, inputs="{a: {type: integer}}")
        done = cli.run("start", flow, "-i", "a=2", "--tools", "tools", *words, **key)
        assert done.returncode == 0, done.stderr
        one = receiver.first()
    assert one.body["status"] == "completed"
    assert one.headers["webhook-signature"] == standard_signature(b"correct-horse", one)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--final-callback", "ftp://x"], "is not a valid URL for a final callback"),
        (["--final-callback-secret", "ORDERS"], "give its URL with --final-callback"),
        (["--final-callback", "http://127.0.0.1:9/", "--final-callback-secret", "MISSING"], "MISSING"),
    ],
)
def test_a_final_callback_that_cannot_be_used_starts_nothing(cli: Cli, words: list[str], said: str) -> None:
    published(cli)
    done = cli.run("start", "flow", "--tools", "tools", "-i", "a=2", *words)
    assert done.returncode == 2 and said in done.stderr
    assert cli.json("runs", "list")["items"] == []


def test_a_file_that_is_alike_only_in_its_ending_is_not_suggested(cli: Cli) -> None:
    cli.write("e.yaml", "name: e\nsteps: [{id: a, tool: echo}]\n")
    assert "did you mean" not in cli.run("run", "nope.yaml").stderr


def test_the_second_word_of_a_command_leads_to_it(cli: Cli) -> None:
    assert "did you mean runs logs?" in cli.run("logs").stderr
    assert "did you mean run?" in cli.run("rn").stderr
