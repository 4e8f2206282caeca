"""`holdfast runs`: looking at runs beside the process that drives them, and acting on those that nobody drives."""

from __future__ import annotations

import json
import re
import signal
import socket
import uuid
from pathlib import Path

import pytest

from tests.cli.conftest import Cli

SUM = "- {id: sum, tool: add, args: {a: 1, b: 2}}"
HELD = "- {id: first, tool: note, args: {text: first}}\n- {id: held, tool: hold}"
LOOP = """
- id: loop
  kind: foreach
  items: $.inputs.of
  steps: [{id: one, tool: add, args: {a: 1}}]
- {id: bad, tool: fail, args: {message: out of paper}}
- {id: never, tool: add, args: {a: 1}}
"""


def done(cli: Cli, steps: str = SUM, **top: str) -> str:
    """A run that is over; gives its id."""
    return str(cli.json("run", cli.flow(steps, **top), "--tools", "tools")["run_id"])


def killed(cli: Cli) -> str:
    """A run whose process was killed in the middle of its second step; gives its id."""
    process = cli.start("run", cli.flow(HELD), "--tools", "tools")
    found = re.search(r"run (\S+) of flow", cli.until(process, "at work"))
    process.kill()
    process.communicate()
    assert found is not None
    return found[1]


# -------------------------------------------------------------------------------------------------------- list


def test_a_list_has_the_newest_run_first(cli: Cli) -> None:
    ids = [done(cli) for _ in range(3)]
    assert [run["run_id"] for run in cli.json("runs", "list")["items"]] == ids[::-1]


def test_a_list_shows_workflow_status_age_time_and_labels(cli: Cli) -> None:
    run_id = done(cli, labels="{team: x}")
    head, row = cli.run("runs", "list").stdout.splitlines()
    assert head.split() == ["RUN", "WORKFLOW", "STATUS", "AGE", "TOOK", "LABELS"]
    assert re.fullmatch(rf"{run_id}  flow +✓ completed +[\d.]+ m?s +[\d.]+ m?s +team=x", row)


@pytest.fixture(scope="module")
def three_runs(tmp_path_factory: pytest.TempPathFactory) -> Cli:
    cli = Cli(tmp_path_factory.mktemp("three"))
    done(cli, labels="{team: x}")
    done(cli, labels="{team: y}")
    done(cli, "- {id: s, tool: fail}")
    return cli


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        (("--status", "failed"), 1),
        (("--status", "running"), 0),
        (("--workflow", "flow"), 3),
        (("--workflow", "other"), 0),
        (("--label", "team=x"), 1),
        (("--label", "team"), 2),
        (("--label", "team=x", "--status", "failed"), 0),
    ],
)
def test_a_list_is_of_what_was_asked_for(three_runs: Cli, filters: tuple[str, ...], count: int) -> None:
    assert len(three_runs.json("runs", "list", *filters)["items"]) == count


def test_a_long_list_goes_on_after_its_cursor(cli: Cli) -> None:
    ids = [done(cli) for _ in range(3)]
    first = cli.json("runs", "list", "--limit", "2")
    rest = cli.json("runs", "list", "--limit", "2", "--cursor", first["cursor"])
    assert [run["run_id"] for run in first["items"] + rest["items"]] == ids[::-1]
    assert rest["cursor"] is None


def test_an_empty_list_says_so(cli: Cli) -> None:
    done(cli)
    listed = cli.run("runs", "list", "--status", "failed")
    assert (listed.returncode, listed.stdout) == (0, "")
    assert "no runs in holdfast.db that match" in listed.stderr


@pytest.mark.parametrize("command", [("list",), ("show", "last"), ("explain", "last"), ("cancel", "last")])
def test_to_look_where_no_database_is_makes_none(cli: Cli, command: tuple[str, ...]) -> None:
    looked = cli.run("runs", *command)
    assert (looked.returncode, "there is no database holdfast.db" in looked.stderr) == (2, True)
    assert not list(cli.folder.glob("*.db*"))


# -------------------------------------------------------------------------------------------------------- show


def test_show_tells_of_each_step_what_became_of_it(cli: Cli) -> None:
    cli.run("run", cli.flow(LOOP), "--tools", "tools", "--inputs", '{"of": [1, 2]}')
    shown = cli.run("runs", "show", "last").stdout
    assert re.search(
        r"✓ loop  completed in \S+ m?s, 2 of 2  → \{\"iterations\":\[\{\"one\":1\},\{\"one\":1\}\]\}", shown
    )
    assert "✗ bad  failed: out of paper [error]" in shown
    assert "· never" in shown
    assert shown.splitlines()[-1] == "failed: bad: out of paper [error]"


def test_show_with_all_steps_tells_of_those_in_loops_too(cli: Cli) -> None:
    cli.run("run", cli.flow(LOOP), "--tools", "tools", "--inputs", '{"of": [1, 2]}')
    shown = cli.run("runs", "show", "last", "--all-steps").stdout
    assert "    ✓ loop[1].one  completed" in shown


@pytest.mark.parametrize("more", [(), ("--all-steps",)])
def test_show_lists_each_compensation_once_in_the_order_of_undoing(cli: Cli, more: tuple[str, ...]) -> None:
    undo = "compensate: {tool: echo, args: {value: undone}}"
    calls = "".join(f"- {{id: {name}, tool: echo, args: {{value: 1}}, {undo}}}\n" for name in ("book", "pay"))
    cli.run("run", cli.flow(calls + "- {id: bad, tool: fail}"))
    shown = cli.run("runs", "show", "last", *more).stdout
    assert re.findall(r"[✓✗] (\S+)", shown) == ["book", "pay", "bad", "pay.compensate", "book.compensate"]


def test_show_cuts_what_is_long(cli: Cli) -> None:
    cli.write("big.py", "from holdfast import tool\n@tool\ndef big():\n    return 'x' * 100_000\n")
    cli.run("run", cli.flow("- {id: s, tool: big}"), "--tools", "big")
    assert max(map(len, cli.run("runs", "show", "last").stdout.splitlines())) < 200


def test_json_of_show_has_the_run_whole(cli: Cli) -> None:
    run_id = done(cli, inputs="{a: {type: integer, default: 7}}")
    data = cli.json("runs", "show", run_id)
    assert data["output"] == {"sum": 3} and data["inputs"] == {"a": 7}
    job = data["steps"]["sum"].pop("job_id")
    assert data["steps"]["sum"] == {"status": "completed", "attempts": 1, "output": 3, "error": None}
    assert str(uuid.UUID(job)) == job
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", data["created_at"])


def test_a_run_is_found_by_a_part_of_its_id_that_is_its_own(cli: Cli) -> None:
    ids = [done(cli), done(cli)]
    assert cli.json("runs", "show", ids[0][-6:])["run_id"] == ids[0]


def test_a_part_that_several_runs_share_is_refused_with_all_of_them(cli: Cli) -> None:
    ids = [done(cli), done(cli)]
    refused = cli.run("runs", "show", ids[0][:4])
    assert refused.returncode == 2
    assert all(run_id in refused.stderr for run_id in ids)


def test_what_a_killed_process_did_can_be_seen(cli: Cli) -> None:
    data = cli.json("runs", "show", killed(cli))
    assert data["status"] == "waiting"  # for an engine
    assert data["steps"]["first"]["output"] == "first"


def test_reading_works_while_another_process_has_the_file(cli: Cli) -> None:
    process = cli.start("run", cli.flow(HELD), "--tools", "tools")
    cli.until(process, "at work")
    assert [run["status"] for run in cli.json("runs", "list")["items"]] == ["running"]
    assert cli.json("runs", "show", "last")["steps"]["held"]["status"] == "running"
    why = cli.json("runs", "explain", "last")
    assert (why["driven_by"], why["reasons"][0]["reason"]) == (process.pid, "at_work")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130


# ----------------------------------------------------------------------------------------------------- explain


def test_explain_of_a_killed_run_says_how_to_go_on(cli: Cli) -> None:
    run_id = killed(cli)
    data = cli.json("runs", "explain", run_id)
    assert data["driven_by"] is None
    assert [(reason["path"], reason["reason"]) for reason in data["reasons"]] == [
        ("", "not_driven"),
        ("held", "lost"),
    ]
    assert f"holdfast run --continue {run_id}" in cli.run("runs", "explain", run_id).stdout


def test_explain_names_the_tool_that_is_missing(cli: Cli) -> None:
    cli.run("run", "--continue", killed(cli))
    said = cli.run("runs", "explain", "last").stdout
    assert re.search(r"held  no_tool for .*\n      unblocks: a server that has the tool 'hold'", said)


# ------------------------------------------------------------------------------------------------------ cancel


def test_a_run_that_nobody_drives_can_be_cancelled(cli: Cli) -> None:
    run_id = killed(cli)
    assert cli.json("runs", "cancel", run_id, "--reason", "wrong") == {
        "run_id": run_id,
        "status": "cancelled",
    }
    assert cli.json("runs", "show", run_id)["status"] == "cancelled"
    assert cli.run("run", "--continue", run_id, "--tools", "tools").returncode == 3
    assert cli.notes() == ["first"]


def test_a_run_that_is_over_cannot_be_cancelled(cli: Cli) -> None:
    data = cli.json("runs", "cancel", done(cli))
    assert data["error"] == "run_is_over"


# ------------------------------------------------------------------------------------------------------- rerun

SECOND_FAILS_ONCE = """
- {id: first, tool: note, args: {text: first}}
- {id: second, tool: once}
- {id: third, tool: note, args: {text: third}}
"""
ONCE = """
from pathlib import Path
from holdfast import tool

@tool
def once():
    if not Path("mended").exists():
        raise RuntimeError("broken")
    return "ok"
"""


def failed(cli: Cli) -> str:
    cli.write("once.py", ONCE)
    args = ("--tools", "tools", "--tools", "once")
    return str(cli.json("run", cli.flow(SECOND_FAILS_ONCE), *args)["run_id"])


def test_a_preview_says_what_would_run_and_runs_nothing(cli: Cli) -> None:
    run_id = failed(cli)
    data = cli.json("runs", "rerun", run_id, "--from", "second", "--preview")
    assert data == {"run_id": run_id, "taken_over": ["first"], "runs": ["second", "third"]}
    assert len(cli.json("runs", "list")["items"]) == 1


def test_a_step_that_is_not_there_is_met_with_the_one_that_was_perhaps_meant(cli: Cli) -> None:
    refused = cli.run("runs", "rerun", failed(cli), "--from", "secnod")
    assert (refused.returncode, "did you mean second?" in refused.stderr) == (2, True)


def test_a_rerun_from_a_step_takes_over_what_was_done_before_it(cli: Cli) -> None:
    run_id = failed(cli)
    cli.write("mended", "")
    args = ("--from", "second", "--tools", "tools", "--tools", "once")
    data = cli.json("runs", "rerun", run_id, *args)
    assert data["output"] == {"first": "first", "second": "ok", "third": "third"}
    assert cli.notes() == ["first", "third"]
    assert cli.json("runs", "show", data["run_id"])["rerun_of"] == run_id


def test_a_rerun_without_a_step_does_everything_again(cli: Cli) -> None:
    run_id = failed(cli)
    cli.write("mended", "")
    done_again = cli.run("runs", "rerun", run_id, "--tools", "tools", "--tools", "once")
    assert done_again.returncode == 0
    assert cli.notes() == ["first", "first", "third"]


def test_a_rerun_that_fails_exits_with_1(cli: Cli) -> None:
    args = ("--from", "second", "--tools", "tools", "--tools", "once")
    assert cli.run("runs", "rerun", failed(cli), *args).returncode == 1


def test_a_rerun_says_first_what_will_run(cli: Cli) -> None:
    run_id = failed(cli)
    cli.write("mended", "")
    args = ("--from", "second", "--tools", "tools", "--tools", "once")
    said = cli.run("runs", "rerun", run_id, *args).stderr
    assert "✓ first  copied\n  · second  runs\n  · third  runs\n" in said


def test_a_rerun_cannot_begin_after_a_step_that_did_not_complete(cli: Cli) -> None:
    refused = cli.run("runs", "rerun", failed(cli), "--from", "third", "--preview")
    assert (refused.returncode, "start with that one" in refused.stderr) == (2, True)


def test_an_open_run_is_gone_on_with_instead(cli: Cli) -> None:
    run_id = killed(cli)
    refused = cli.run("runs", "rerun", run_id)
    assert (refused.returncode, f"holdfast run --continue {run_id}" in refused.stderr) == (2, True)


# ---------------------------------------------------------------------------------------------------- settings


def test_settings_of_a_folder_above_are_used(cli: Cli) -> None:
    cli.write("holdfast.toml", 'tools = ["tools"]\ndb = "sqlite:///here.db"\n')
    cli.flow(SUM)
    (cli.folder / "below").mkdir()
    ran = cli.shell('cd below && "$@"', "run", "../flow.yaml")
    assert ran.returncode == 0, ran.stderr
    assert Path(cli.folder / "here.db").exists()
    assert len(cli.json("runs", "list")["items"]) == 1


def test_a_wrong_key_in_the_settings_is_refused_with_its_line(cli: Cli) -> None:
    cli.write("holdfast.toml", 'tools = ["tools"]\ndatabase = "x"\n')
    refused = cli.run("runs", "list")
    assert refused.returncode == 2
    assert 'holdfast.toml:2:1: error: unknown key "database"' in refused.stderr


def test_a_server_that_cannot_be_reached_is_named_without_its_password(cli: Cli) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound and not listening: a connection is refused
        port = free.getsockname()[1]
        refused = cli.run("runs", "list", "--db", f"postgresql://ada:hunter2@127.0.0.1:{port}/holdfast")
    assert refused.returncode == 2
    assert f"127.0.0.1:{port}" in refused.stderr
    assert "hunter2" not in refused.stderr


def test_log_lines_can_be_json_and_nothing_else_is_on_standard_error(cli: Cli) -> None:
    killed(cli)
    went_on = cli.run("run", "--continue", "last", "--tools", "tools", "--log", "json")
    lines = [json.loads(line) for line in went_on.stderr.splitlines()]
    assert any(
        "was lost with its process" in line["message"] and line["level"] == "warning" for line in lines
    )
    assert any(line["message"].startswith("completed in") for line in lines)


def test_logs_and_tracebacks_of_a_run_are_printed(cli: Cli) -> None:
    cli.write(
        "talk.py",
        "import logging, sys\n"
        "from holdfast import tool\n\n"
        '@tool(isolate="process")\n'
        "def apart():\n"
        "    print('printed')\n"
        "    print('half', end='')\n"
        "    raise ValueError('apart failed')\n",
    )
    assert cli.run("run", cli.flow("- {id: a, tool: apart}"), "--tools", "talk").returncode == 1
    done = cli.run("runs", "logs", "last")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].endswith("a#1  stdout  printed")
    assert lines[1].endswith("a#1  stdout  half")
    assert "a#1  traceback  Traceback (most recent call last):" in lines[2]
    assert lines[-1] == "    ValueError: apart failed"
    assert "holdfast/tools" not in done.stdout
    shown = cli.run("runs", "show", "last", "--trace")
    assert "attempt 1 of a raised:" in shown.stdout
    assert "ValueError: apart failed" in shown.stdout
    found = cli.json("runs", "show", "last", "--trace")["tracebacks"]
    assert [(one["path"], one["attempt"]) for one in found] == [("a", 1)]


def test_logs_of_one_step_are_json_lines_for_programs(cli: Cli) -> None:
    steps = "- {id: a, tool: fail}\n- {id: b, tool: fail}\n"
    cli.run("run", cli.flow(steps), "--tools", "tools")
    (line,) = cli.run("runs", "logs", "last", "a", "--json").stdout.splitlines()
    assert json.loads(line)["level"] == "traceback"
    done = cli.run("runs", "logs", "last", "b")
    assert (done.returncode, done.stdout) == (0, "")
    assert "has logged nothing in step b" in done.stderr


def test_logs_are_followed_until_the_run_ends(cli: Cli) -> None:
    cli.up("--tools", "tools")
    run_id = cli.run("start", cli.flow("- {id: a, tool: fail}"), "--detach").stdout.strip()
    done = cli.run("runs", "logs", run_id, "-f")
    assert done.returncode == 0
    assert "RuntimeError: no luck" in done.stdout


def test_a_run_that_no_engine_drives_is_explained_as_waiting(cli: Cli) -> None:
    cli.run("start", cli.flow("- {id: s, tool: echo}"), "--detach")
    assert cli.json("runs", "explain", "last")["status"] == "waiting"


def test_following_the_log_of_a_run_that_no_engine_drives_says_so_and_ends(cli: Cli) -> None:
    cli.run("start", cli.flow("- {id: s, tool: echo}"), "--detach")
    followed = cli.run("runs", "logs", "last", "-f")
    assert followed.returncode == 4 and "no engine has this file open" in followed.stderr


def test_the_log_of_a_step_that_does_not_exist_is_a_mistake(cli: Cli) -> None:
    cli.run("run", cli.flow("- {id: send, tool: echo}"))
    assert cli.run("runs", "logs", "last", "send").returncode == 0
    wrong = cli.run("runs", "logs", "last", "sent[1].x")
    assert wrong.returncode == 2 and "did you mean send?" in wrong.stderr
