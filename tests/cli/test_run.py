"""`holdfast run`: what it prints where, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from tests.cli.conftest import Cli

RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")

SUM = """
- id: sum
  tool: add
  args: {a: "{{inputs.a}}", b: 1}
"""
GATED = "- {id: s, kind: wait_event, signal_key: go}"
HELD = """
- id: first
  tool: note
  args: {text: first}
- id: held
  tool: hold
- id: last
  tool: note
  args: {text: last}
"""
LOOP = """
- id: loop
  kind: foreach
  items: $.inputs.of
  on_any_fail: continue
  steps:
    - {id: one, tool: add, args: {a: "{{item}}", b: 1}}
- {id: after, tool: add, args: {a: 1}}
"""


def run_id_in(text: str) -> str:
    found = RUN_ID.search(text)
    assert found is not None, text
    return found.group()


# --------------------------------------------------------------------------------------------- output and codes


def test_a_completed_run_exits_with_0_and_prints_its_output_alone_on_standard_output(cli: Cli) -> None:
    done = cli.run("run", cli.flow(SUM), "--tools", "tools", "-i", "a=2")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"sum": 3})


def test_a_failed_run_exits_with_1_and_says_where_and_why(cli: Cli) -> None:
    done = cli.run("run", cli.flow("- {id: broken, tool: fail}"), "--tools", "tools")
    assert (done.returncode, done.stdout) == (1, "")
    assert "broken" in done.stderr and "no luck" in done.stderr


def test_an_invalid_file_exits_with_2_and_names_line_column_and_hint(cli: Cli) -> None:
    done = cli.run("run", cli.flow("- {id: s, tool: add, arg: {a: 1}}"), "--tools", "tools")
    assert done.returncode == 2
    assert re.search(r"flow\.yaml:3:\d+: error: .*arg", done.stderr)
    assert "hint: did you mean args?" in done.stderr


def test_a_file_that_is_not_there_exits_with_2(cli: Cli) -> None:
    done = cli.run("run", "none.yaml")
    assert done.returncode == 2
    assert "none.yaml" in done.stderr


def test_a_misspelt_file_is_met_with_the_one_that_was_perhaps_meant(cli: Cli) -> None:
    cli.flow(SUM)
    assert "did you mean flow.yaml?" in cli.run("run", "flwo.yaml").stderr


def test_an_unknown_option_exits_with_2(cli: Cli) -> None:
    assert cli.run("run", cli.flow(SUM), "--no-such-thing").returncode == 2


def test_neither_file_nor_run_exits_with_2(cli: Cli) -> None:
    assert cli.run("run").returncode == 2


def test_a_cancelled_run_exits_with_3(cli: Cli) -> None:
    """There is no command to cancel with yet, so the run is cancelled through the Python door."""
    code, said = cli.stopped_by(signal.SIGINT, "run", cli.flow(HELD), "--tools", "tools")
    assert code == 130
    run_id = run_id_in(said)

    async def cancel() -> None:
        async with Holdfast(str(cli.folder / "holdfast.db")) as hf:
            await hf.cancel(run_id)

    asyncio.run(cancel())
    assert cli.run("run", "--continue", run_id).returncode == 3


def test_what_tools_print_does_not_mix_with_the_output(cli: Cli) -> None:
    done = cli.run("run", cli.flow("- {id: s, tool: note, args: {text: hello}}"), "--tools", "tools")
    assert json.loads(done.stdout) == {"s": "hello"}
    assert "noting hello" in done.stderr


SHOUT = """
print("while importing")
import os, subprocess
from holdfast import tool

@tool
def shout():
    subprocess.run(["echo", "from a child"], check=True)
    os.write(1, b"past Python\\n")
"""


def test_nothing_but_the_result_reaches_standard_output_by_whatever_way(cli: Cli) -> None:
    cli.write("shout.py", SHOUT)
    done = cli.run("run", cli.flow("- {id: s, tool: shout}"), "--tools", "shout")
    assert json.loads(done.stdout) == {"s": None}
    for words in ("while importing", "from a child", "past Python"):
        assert words in done.stderr


@pytest.mark.parametrize("closing", [">/dev/full", ">&-"])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_result_that_cannot_be_written_exits_with_2_and_one_line(
    cli: Cli, closing: str, form: tuple[str, ...]
) -> None:
    done = cli.shell(f'"$@" {closing}', "run", cli.flow(SUM), "--tools", "tools", "-i", "a=2", *form)
    assert done.returncode == 2
    assert done.stderr.count("cannot write to standard output") == 1
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_read_enough_is_no_mistake(cli: Cli) -> None:
    """The other end of the pipe is closed before the command begins."""
    line = 'exec 3> >(exec <&-); wait $!; "$@" >&3'
    done = cli.shell(line, "run", cli.flow(SUM), "--tools", "tools", "-i", "a=2")
    assert done.returncode == 0
    assert "cannot write" not in done.stderr and "Traceback" not in done.stderr


def test_without_standard_error_the_result_is_still_alone(cli: Cli) -> None:
    steps = "- {id: s, tool: note, args: {text: hello}}"
    done = cli.shell('"$@" 2>&-', "run", cli.flow(steps), "--tools", "tools")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"s": "hello"})


@pytest.mark.parametrize("step_id", ["a", "step"])
def test_the_failed_step_is_named_also_if_its_id_is_a_word_of_the_message(cli: Cli, step_id: str) -> None:
    steps = f"- {{id: {step_id}, tool: fail, args: {{message: a bad step}}}}"
    done = cli.run("run", cli.flow(steps), "--tools", "tools")
    assert re.search(rf"failed after .*: {step_id}: a bad step \[", done.stderr)


def test_a_failed_step_shows_how_often_it_was_tried(cli: Cli) -> None:
    steps = "- {id: s, tool: fail, retry: {max_attempts: 3, initial_delay_ms: 1}}"
    done = cli.run("run", cli.flow(steps), "--tools", "tools")
    assert "s  failed, attempt 3: no luck" in done.stderr


def test_all_steps_tells_of_each_child_of_a_large_loop(cli: Cli) -> None:
    many = json.dumps({"of": list(range(30))})
    few = cli.run("run", cli.flow(LOOP), "--tools", "tools", "--inputs", many)
    every = cli.run("run", cli.flow(LOOP), "--tools", "tools", "--inputs", many, "--all-steps")
    assert (few.stderr.count("✓ loop["), every.stderr.count("✓ loop[")) == (0, 30)


def test_steps_that_are_tried_again_are_seen_to_be(cli: Cli) -> None:
    steps = "- {id: s, tool: flaky, args: {times: 2}, retry: {max_attempts: 3, initial_delay_ms: 1}}"
    done = cli.run("run", cli.flow(steps), "--tools", "tools")
    assert "s  attempt 1 failed: busy" in done.stderr
    assert "attempt 3" in done.stderr


# --------------------------------------------------------------------------------------------------------- JSON


def test_json_has_exactly_the_promised_keys(cli: Cli) -> None:
    data = cli.json("run", cli.flow(SUM), "--tools", "tools", "-i", "a=2")
    assert list(data) == ["run_id", "status", "output", "error", "steps"]
    assert RUN_ID.fullmatch(data.pop("run_id"))
    step = {"status": "completed", "attempts": 1, "output": 3, "error": None}
    assert data == {"status": "completed", "output": {"sum": 3}, "error": None, "steps": {"sum": step}}


def test_with_json_the_person_is_told_which_run_it_is(cli: Cli) -> None:
    done = cli.run("run", cli.flow(SUM), "--tools", "tools", "-i", "a=2", "--json")
    assert f"run {json.loads(done.stdout)['run_id']} of flow" in done.stderr


def test_json_of_a_failed_run_has_its_error_as_data(cli: Cli) -> None:
    data = cli.json("run", cli.flow("- {id: broken, tool: fail}"), "--tools", "tools")
    assert data["status"] == "failed"
    assert data["error"]["message"] == "no luck"
    assert data["steps"]["broken"]["status"] == "failed"


def test_json_shows_top_level_and_failed_steps(cli: Cli) -> None:
    data = cli.json("run", cli.flow(LOOP), "--tools", "tools", "--inputs", '{"of": [1, "x", 3]}')
    assert list(data["steps"]) == ["loop", "loop[1].one", "after"]
    assert data["steps"]["loop[1].one"]["status"] == "failed"


def test_json_shows_what_a_loop_gave(cli: Cli) -> None:
    data = cli.json("run", cli.flow(LOOP), "--tools", "tools", "--inputs", '{"of": [1, 2]}')
    assert data["steps"]["loop"]["output"] == {"iterations": [{"one": 2}, {"one": 3}]}


def test_all_steps_shows_every_step(cli: Cli) -> None:
    data = cli.json("run", cli.flow(LOOP), "--tools", "tools", "--inputs", '{"of": [1, 2]}', "--all-steps")
    assert list(data["steps"]) == ["loop", "loop[0].one", "loop[1].one", "after"]


def test_json_holds_a_large_output_whole(cli: Cli) -> None:
    cli.write("big.py", "from holdfast import tool\n@tool\ndef big():\n    return 'x' * 100_000\n")
    data = cli.json("run", cli.flow("- {id: s, tool: big}"), "--tools", "big")
    assert data["steps"]["s"]["output"] == "x" * 100_000


def test_what_is_refused_is_json_too(cli: Cli) -> None:
    data = cli.json("run", cli.flow("- {id: s, tool: add, arg: 1}"))
    assert data["error"] == "invalid_spec"
    assert data["details"][0]["line"] == 3
    assert data["details"][0]["hint"] == "did you mean args?"


@pytest.mark.parametrize(
    "wrong", [("run", "flow.yaml", "--no-such-thing"), ("run", "--db"), ("no-such-command",)]
)
def test_a_command_line_that_cannot_be_read_is_refused_in_json_too(cli: Cli, wrong: tuple[str, ...]) -> None:
    cli.flow(SUM)
    done = cli.run(*wrong, "--json")
    assert (done.returncode, json.loads(done.stdout)["error"]) == (2, "usage")


def test_inputs_that_do_not_fit_are_one_detail_each(cli: Cli) -> None:
    file = cli.flow(SUM, inputs="{a: {type: integer}, b: {type: integer}}")
    data = cli.json("run", file, "--tools", "tools", "-i", "a=much")
    assert data["error"] == "invalid_inputs"
    assert [(detail["message"], detail["hint"]) for detail in data["details"]] == [
        ('missing input "b"', "give it with -i b=…"),
        ('input "a" must be integer, not text', "it is declared as integer"),
    ]


# ------------------------------------------------------------------------------------------------------- inputs


@pytest.mark.parametrize(
    ("given", "a"),
    [
        ("a=2", 3),  # JSON where it is JSON
        ("a=2.5", 3.5),
        ("a=[4]", None),  # a list, to which 1 cannot be added
    ],
)
def test_an_input_is_read_as_json_where_it_is_json(cli: Cli, given: str, a: float | None) -> None:
    data = cli.json("run", cli.flow(SUM), "--tools", "tools", "-i", given)
    assert data["output"] == (None if a is None else {"sum": a})


def test_an_input_that_is_no_json_is_text(cli: Cli) -> None:
    steps = '- {id: s, tool: note, args: {text: "{{inputs.a}}"}}'
    assert cli.json("run", cli.flow(steps), "--tools", "tools", "-i", "a=b=c")["output"] == {"s": "b=c"}


def test_inputs_may_come_from_a_file_and_single_ones_stand_over_it(cli: Cli) -> None:
    cli.write("in.json", '{"a": 1, "unused": true}')
    data = cli.json("run", cli.flow(SUM), "--tools", "tools", "--inputs", "@in.json", "-i", "a=10")
    assert data["output"] == {"sum": 11}


@pytest.mark.parametrize(
    ("file", "why"),
    [("fifo", "is a FIFO"), ("/dev/zero", "is a device"), ("large", "more than 25 MiB"), (".", "directory")],
)
def test_inputs_are_read_from_regular_files_of_bounded_size(cli: Cli, file: str, why: str) -> None:
    os.mkfifo(cli.folder / "fifo")
    with open(cli.folder / "large", "wb") as large:
        large.truncate(26 * 2**20)
    done = cli.run("run", cli.flow(SUM), "--tools", "tools", "--inputs", f"@{file}")
    assert done.returncode == 2 and f"cannot read the inputs from {file}" in done.stderr
    assert why in done.stderr


@pytest.mark.parametrize(
    "given", [("-i", "a"), ("--inputs", "{"), ("--inputs", "[]"), ("--inputs", "@none.json")]
)
def test_inputs_that_cannot_be_read_exit_with_2(cli: Cli, given: tuple[str, str]) -> None:
    assert cli.run("run", cli.flow(SUM), "--tools", "tools", *given).returncode == 2


def test_inputs_that_do_not_fit_the_workflow_exit_with_2_and_start_nothing(cli: Cli) -> None:
    file = cli.flow(SUM, inputs="{a: {type: integer}}")
    done = cli.run("run", file, "--tools", "tools", "-i", "a=much")
    assert done.returncode == 2
    assert 'input "a" must be integer' in done.stderr
    assert not list(cli.folder.glob("*.db"))


def test_a_missing_input_is_named_with_the_flag_to_give_it(cli: Cli) -> None:
    done = cli.run("run", cli.flow(SUM, inputs="{a: {type: integer}}"), "--tools", "tools")
    assert done.returncode == 2
    assert 'missing input "a"' in done.stderr and "-i a=" in done.stderr


@pytest.mark.parametrize(
    ("declared", "given", "meant"),
    [
        ("{a: {type: string}}", "5", "5"),  # not the number
        ("{a: {type: string}}", "true", "true"),
        ("{a: {type: string}}", '"x"', '"x"'),  # as it was typed
        ('{properties: {a: {type: [string, "null"]}}}', "5", "5"),  # only text fits
        ('{properties: {a: {type: [string, "null"]}}}', "null", None),
        ("{a: {type: [string, integer]}}", "5", 5),  # both fit: JSON where it is JSON
        ("{a: {}}", "5", 5),
    ],
)
def test_an_input_that_is_declared_as_a_string_is_taken_as_it_is(
    cli: Cli, declared: str, given: str, meant: Any
) -> None:
    cli.write("same.py", "from holdfast import tool\n@tool\ndef same(a):\n    return a\n")
    file = cli.flow('- {id: s, tool: same, args: {a: "{{inputs.a}}"}}', inputs=declared)
    assert cli.json("run", file, "--tools", "same", "-i", f"a={given}")["output"] == {"s": meant}


# -------------------------------------------------------------------------------------------------------- tools


def waiting_for_its_tool(cli: Cli) -> str:
    """A run that was accepted in a file whose commands have no such tool."""
    return str(cli.json("start", cli.flow(SUM), "-i", "a=2", "--detach")["run_id"])


def test_a_missing_tool_is_an_error_at_once_and_starts_nothing(cli: Cli) -> None:
    done = cli.run("run", cli.flow(SUM), "-i", "a=2")
    assert done.returncode == 2
    assert 'unknown tool "add"' in done.stderr
    assert "tools were looked for in the built-in tools only" in done.stderr
    assert not (cli.folder / "holdfast.db").exists()


def test_a_run_that_waits_for_a_tool_exits_with_4_and_names_it_and_the_flag(cli: Cli) -> None:
    run_id = waiting_for_its_tool(cli)
    done = cli.run("run", "--continue", run_id)
    assert (done.returncode, done.stderr.count("waits for its tool")) == (4, 1)
    assert f"run {run_id} waits for the tool 'add' of step sum" in done.stderr
    assert f"holdfast run --continue {run_id} --tools tools" in done.stderr  # tools.py is in the folder


def test_a_run_that_waited_for_a_tool_goes_on_with_it(cli: Cli) -> None:
    run_id = waiting_for_its_tool(cli)
    assert cli.run("run", "--continue", run_id).returncode == 4
    done = cli.run("run", "--continue", run_id, "--tools", "tools")
    assert (done.returncode, json.loads(done.stdout)) == (0, {"sum": 3})


def test_a_run_that_waits_for_a_key_exits_with_4_and_names_who_holds_it(cli: Cli) -> None:
    file = cli.flow("- {id: held, tool: begin, idempotency_key: order-7, idempotency_scope: global}")
    process = cli.start("run", file, "--tools", "tools")
    holder = run_id_in(cli.until(process, "at work"))
    process.kill()
    process.communicate()
    done = cli.run("run", file, "--tools", "tools")
    assert done.returncode == 4
    assert f"waits for the key 'order-7' of step held, which step held of run {holder} holds" in done.stderr
    assert f"holdfast run --continue {holder}" in done.stderr


def test_a_misspelt_tool_is_met_with_the_one_that_was_perhaps_meant(cli: Cli) -> None:
    done = cli.run("run", cli.flow("- {id: s, tool: ntoe}"), "--tools", "tools")
    assert done.returncode == 2
    assert 'unknown tool "ntoe"' in done.stderr and "did you mean note?" in done.stderr
    assert "--tools tools" in done.stderr


def test_what_can_be_done_is_done_before_a_run_waits_for_a_tool(cli: Cli) -> None:
    steps = """
- id: both
  kind: parallel
  steps:
    - {id: missing, tool: nowhere}
    - {id: slow, tool: flaky, args: {times: 2}, retry: {max_attempts: 3, initial_delay_ms: 20}}
    - {id: here, tool: note, args: {text: here}}
"""
    run_id = cli.json("start", cli.flow(steps), "--detach")["run_id"]
    data = cli.json("run", "--continue", run_id, "--tools", "tools", "--all-steps")
    assert {path: step["status"] for path, step in data["steps"].items() if path != "both"} == {
        "both[0].missing": "waiting",
        "both[1].slow": "completed",
        "both[2].here": "completed",
    }


def test_one_object_of_a_module_can_be_named(cli: Cli) -> None:
    assert cli.json("run", cli.flow(SUM), "--tools", "tools:add", "-i", "a=2")["output"] == {"sum": 3}


def test_a_module_that_is_not_there_exits_with_2(cli: Cli) -> None:
    done = cli.run("run", cli.flow(SUM), "--tools", "nowhere")
    assert done.returncode == 2
    assert "nowhere" in done.stderr


def test_a_module_that_cannot_be_imported_exits_with_2_and_says_at_which_line(cli: Cli) -> None:
    cli.write("broken.py", "x = 1\nx.y\n")
    done = cli.run("run", cli.flow(SUM), "--tools", "broken")
    assert done.returncode == 2
    assert "AttributeError" in done.stderr and "broken.py:2" in done.stderr


def test_a_module_that_is_no_python_exits_with_2_and_says_at_which_line(cli: Cli) -> None:
    cli.write("broken.py", "x = 1\ndef y(:\n")
    done = cli.run("run", cli.flow(SUM), "--tools", "broken", "-i", "a=1")
    assert done.returncode == 2
    assert "SyntaxError" in done.stderr and "broken.py:2" in done.stderr
    assert "frozen" not in done.stderr


def test_a_module_that_exits_while_it_is_imported_exits_with_2(cli: Cli) -> None:
    cli.write("leaves.py", "import sys\nsys.exit(0)\n")
    done = cli.run("run", cli.flow(SUM), "--tools", "leaves", "-i", "a=1")
    assert done.returncode == 2
    assert "leaves.py:2" in done.stderr


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("tools.py", "tools"),
        ("./tools", "tools"),
        ("./tools.py:add", "tools:add"),
        ("flows/tools.py", "flows.tools"),
        ("../tools.py", "tools in the folder .."),
    ],
)
def test_a_path_to_tools_is_met_with_the_module_to_write(cli: Cli, path: str, module: str) -> None:
    done = cli.run("run", cli.flow(SUM), "--tools", path, "-i", "a=1")
    assert done.returncode == 2
    assert f"write {module}" in done.stderr


def test_an_object_that_is_no_tool_exits_with_2(cli: Cli) -> None:
    cli.write("thing.py", "number = 5\n")
    done = cli.run("run", cli.flow(SUM), "--tools", "thing:number", "-i", "a=1")
    assert done.returncode == 2
    assert "not a tool" in done.stderr and "Traceback" not in done.stderr


def test_two_tools_of_one_name_exit_with_2(cli: Cli) -> None:
    cli.write("other.py", "from holdfast import tool\n@tool\ndef add(a, b):\n    return a - b\n")
    done = cli.run("run", cli.flow(SUM), "--tools", "tools", "--tools", "other", "-i", "a=1")
    assert done.returncode == 2
    assert "add" in done.stderr and "Traceback" not in done.stderr


def test_a_tool_that_is_named_twice_is_one_tool(cli: Cli) -> None:
    done = cli.run("run", cli.flow(SUM), "--tools", "tools", "--tools", "tools:add", "-i", "a=1")
    assert done.returncode == 0


def test_a_module_without_tools_exits_with_2(cli: Cli) -> None:
    cli.write("empty.py", "def add(a, b): return a\n")
    done = cli.run("run", cli.flow(SUM), "--tools", "empty")
    assert done.returncode == 2
    assert "@tool" in done.stderr


def test_the_environment_can_name_database_and_tools(cli: Cli) -> None:
    done = cli.run(
        "run", cli.flow(SUM), "-i", "a=1", HOLDFAST_DB="sqlite:///other.db", HOLDFAST_TOOLS="tools"
    )
    assert done.returncode == 0
    assert (cli.folder / "other.db").exists() and not (cli.folder / "holdfast.db").exists()


# ----------------------------------------------------------------------------------------- stopping and going on


def test_ctrl_c_says_how_to_go_on(cli: Cli) -> None:
    code, said = cli.stopped_by(signal.SIGINT, "run", cli.flow(HELD), "--tools", "tools")
    assert code == 130
    assert f"holdfast run --continue {run_id_in(said)} --tools tools" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_asks_to_stop_gives_attempts_back_and_is_the_exit_code(
    cli: Cli, number: signal.Signals
) -> None:
    code, said = cli.stopped_by(number, "run", cli.flow(HELD), "--tools", "tools")
    assert code == 128 + number
    assert "was lost" not in cli.run("run", "--continue", run_id_in(said), "--tools", "tools").stderr


def test_a_hangup_that_nohup_ignores_is_ignored(cli: Cli) -> None:
    """The interrupt comes after the hangup and is the one that stops it."""
    process = cli.start("run", cli.flow(HELD), "--tools", "tools", deaf_to=signal.SIGHUP)
    cli.until(process, "at work")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    assert process.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_step_that_must_not_be_done_twice_is_lost_by_stopping(cli: Cli, number: signal.Signals) -> None:
    file = cli.flow("- {id: once, tool: begin, on_crash: fail}")
    _, said = cli.stopped_by(number, "run", file, "--tools", "tools")
    assert "step once was running and must not run twice" in said
    data = cli.json("run", "--continue", run_id_in(said), "--tools", "tools")
    assert (data["status"], data["error"]["kind"]) == ("failed", "lost")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_run_that_was_stopped_goes_on_and_repeats_nothing_that_was_done(
    cli: Cli, number: signal.Signals
) -> None:
    _, said = cli.stopped_by(number, "run", cli.flow(HELD), "--tools", "tools")
    done = cli.run("run", "--continue", run_id_in(said), "--tools", "tools")
    assert (done.returncode, cli.notes()) == (0, ["first", "last"])


def test_a_run_goes_on_with_the_version_that_it_began_with(cli: Cli) -> None:
    _, said = cli.stopped_by(signal.SIGINT, "run", cli.flow(HELD), "--tools", "tools")
    done = cli.run("run", cli.flow(SUM), "--continue", run_id_in(said), "--tools", "tools")
    assert json.loads(done.stdout) == {"first": "first", "held": 2, "last": "last"}
    assert "has changed since" in done.stderr


def test_a_file_that_is_as_it_was_is_not_said_to_have_changed(cli: Cli) -> None:
    _, said = cli.stopped_by(signal.SIGINT, "run", cli.flow(HELD), "--tools", "tools")
    done = cli.run("run", cli.flow(HELD), "--continue", run_id_in(said), "--tools", "tools")
    assert (done.returncode, "has changed" in done.stderr) == (0, False)


def test_what_to_do_after_a_failure_names_the_database_that_was_given(cli: Cli) -> None:
    done = cli.run("run", cli.flow("- {id: s, tool: fail}"), "--db", "other.db")
    shown = next(line for line in done.stderr.splitlines() if "holdfast runs show" in line)
    assert shown.endswith(" --db other.db")


def test_a_file_of_another_workflow_is_said_to_be_unused(cli: Cli) -> None:
    _, said = cli.stopped_by(signal.SIGINT, "run", cli.flow(HELD), "--tools", "tools")
    cli.write("other.yaml", "name: other\nsteps: [{id: s, tool: add, args: {a: 1}}]\n")
    done = cli.run("run", "other.yaml", "--continue", run_id_in(said), "--tools", "tools")
    assert "the run is of flow; other.yaml is not used" in done.stderr
    assert "has changed" not in done.stderr


def test_to_go_on_with_a_finished_run_gives_its_result_again(cli: Cli) -> None:
    first = cli.json("run", cli.flow(SUM), "--tools", "tools", "-i", "a=2")
    assert cli.json("run", "--continue", first["run_id"]) == first


def test_a_run_that_is_not_there_exits_with_2(cli: Cli) -> None:
    cli.run("run", cli.flow(SUM), "-i", "a=2", "--tools", "tools")
    done = cli.run("run", "--continue", "01890000-0000-7000-8000-000000000000")
    assert done.returncode == 2
    assert "no run 01890000" in done.stderr and "holdfast runs list" in done.stderr


def test_to_go_on_without_a_database_makes_none(cli: Cli) -> None:
    done = cli.run("run", "--continue", "01890000-0000-7000-8000-000000000000")
    assert (done.returncode, "there is no database" in done.stderr) == (2, True)
    assert not list(cli.folder.glob("*.db*"))


def test_a_run_can_be_named_by_the_end_of_its_id(cli: Cli) -> None:
    waiting = cli.json("run", cli.flow(GATED))
    cli.run("signal", waiting["run_id"], "go", "1")
    done = cli.run("run", "--continue", waiting["run_id"][-8:], "--tools", "tools")
    assert done.returncode == 0


def test_last_is_the_newest_run_that_is_open(cli: Cli) -> None:
    waiting = cli.json("run", cli.flow(GATED))
    cli.run("run", cli.flow(SUM), "-i", "a=2", "--tools", "tools")
    assert cli.json("run", "--continue", "last", "--tools", "tools")["run_id"] == waiting["run_id"]


def test_a_failed_run_says_how_to_run_it_again_from_where_it_failed(cli: Cli) -> None:
    steps = "- {id: first, tool: note, args: {text: hello}}\n- {id: second, tool: fail}"
    done = cli.run("run", cli.flow(steps), "--tools", "tools")
    assert f"holdfast runs rerun {run_id_in(done.stderr)} --from second --tools tools" in done.stderr


def test_a_run_that_goes_on_takes_no_inputs(cli: Cli) -> None:
    assert cli.run("run", "--continue", "x", "-i", "a=1").returncode == 2


def test_it_drives_only_its_own_run(cli: Cli) -> None:
    """The second run takes its time, in which the first one would end if anyone drove it."""
    cli.stopped_by(signal.SIGKILL, "run", cli.flow(HELD), "--tools", "tools")
    slow = "- {id: s, tool: flaky, args: {times: 1}, retry: {max_attempts: 2, initial_delay_ms: 700}}"
    done = cli.run("run", cli.flow(slow), "--tools", "tools")
    assert (done.returncode, cli.notes()) == (0, ["first"])


def test_a_run_that_must_not_survive_a_restart_ends_interrupted(cli: Cli) -> None:
    file = cli.flow(HELD, on_restart="interrupt")
    _, said = cli.stopped_by(signal.SIGKILL, "run", file, "--tools", "tools")
    done = cli.run("run", "--continue", run_id_in(said), "--tools", "tools")
    assert (done.returncode, cli.notes()) == (1, ["first"])


def test_a_second_process_on_the_same_file_exits_with_2_and_says_what_to_do(cli: Cli) -> None:
    process = cli.start("run", cli.flow(HELD), "--tools", "tools")
    cli.until(process, "at work")
    done = cli.run("run", cli.flow(SUM), "--tools", "tools", "-i", "a=1", "--wait", "0")
    assert done.returncode == 2
    assert str(process.pid) in done.stderr and "--db" in done.stderr
    refused = cli.json("run", cli.flow(SUM), "--tools", "tools", "-i", "a=1", "--wait", "0")
    assert refused["error"] == "database_in_use"


def test_a_folder_that_is_not_there_exits_with_2(cli: Cli) -> None:
    done = cli.run("run", cli.flow(SUM), "--tools", "tools", "-i", "a=1", "--db", "none/holdfast.db")
    assert done.returncode == 2
    assert "none/holdfast.db" in done.stderr


def test_a_database_of_another_kind_exits_with_2(cli: Cli) -> None:
    done = cli.run("run", cli.flow(SUM), "--tools", "tools", "-i", "a=1", "--db", "mysql://here/there")
    assert done.returncode == 2
    assert "sqlite:///" in done.stderr


def test_a_file_that_is_no_database_exits_with_2(cli: Cli) -> None:
    cli.write("holdfast.db", "this is no database, and it is long enough to be one" * 50)
    done = cli.run("run", cli.flow(SUM), "--tools", "tools", "-i", "a=1")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_nothing_is_left_of_the_lock_when_it_ends(cli: Cli) -> None:
    cli.run("run", cli.flow(SUM), "--tools", "tools", "-i", "a=1")
    assert Path(cli.folder / "holdfast.db.lock").read_bytes() == b""


LOGS = "from holdfast import Context, tool\n@tool\ndef says(context: Context):\n    context.log('looking', page=1)\n"


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_what_a_tool_logs_reaches_the_person(cli: Cli, flags: tuple[str, ...]) -> None:
    cli.write("says.py", LOGS)
    done = cli.run("run", cli.flow("- {id: s, tool: says}"), "--tools", "says", *flags)
    assert "  · s  looking page=1\n" in done.stderr
    assert "looking" not in done.stdout


def test_what_a_tool_logs_is_a_line_of_json_if_log_lines_are(cli: Cli) -> None:
    cli.write("says.py", LOGS)
    done = cli.run("run", cli.flow("- {id: s, tool: says}"), "--tools", "says", "--log", "json")
    (line,) = [
        line for line in map(json.loads, done.stderr.splitlines()) if line["logger"] == "holdfast.tool"
    ]
    assert (line["step"], line["attempt"], line["message"], line["fields"]) == (
        "s",
        1,
        "looking",
        {"page": 1},
    )


@pytest.mark.parametrize(
    ("step", "what"),
    [
        ("{id: s, kind: approve, prompt: Sure?}", "an answer: holdfast approve RUN s"),
        ("{id: s, kind: wait_event, signal_key: go}", "the signal 'go': holdfast signal RUN go JSON"),
        ("{id: s, tool: later}", "the result of task 'T1': holdfast resume T1 --result JSON"),
    ],
)
def test_a_run_that_waits_for_the_outside_exits_with_4_and_says_what_would_end_it(
    cli: Cli, step: str, what: str
) -> None:
    later = (
        "from holdfast import tool\n\n@tool\ndef later():\n    return {'pending': True, 'task_id': 'T1'}\n"
    )
    (cli.folder / "later.py").write_text(later)
    done = cli.run("run", cli.flow(f"- {step}"), "--tools", "later", "--json")
    run_id = json.loads(done.stdout)["run_id"]
    assert done.returncode == 4
    assert f"step s waits for {what.replace('RUN', run_id)}" in done.stderr


def test_a_run_at_a_server_that_waits_for_the_outside_exits_with_4_too(cli: Cli) -> None:
    cli.up()
    done = cli.run("run", cli.flow("- {id: s, kind: wait_event, signal_key: go}"))
    assert done.returncode == 4
    assert re.search(r"the signal 'go': holdfast signal \S+ go JSON", done.stderr), done.stderr
    assert "continues there" in done.stderr
