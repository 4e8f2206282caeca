"""`holdfast validate`, `holdfast version` and the help."""

from __future__ import annotations

import json

import pytest

import holdfast
from tests.cli.conftest import Cli

GOOD = "name: good\nsteps:\n  - {id: s, tool: add}\n"
BAD = "name: bad\nsteps:\n  - id: s\n    tool: add\n    arg: 1\n  - id: t\n    kind: nothing\n"


def test_valid_files_exit_with_0(cli: Cli) -> None:
    cli.write("good.yaml", GOOD)
    assert cli.run("validate", "good.yaml").returncode == 0


def test_every_problem_of_every_file_is_reported_with_its_place(cli: Cli) -> None:
    cli.write("good.yaml", GOOD)
    cli.write("bad.yaml", BAD)
    cli.write("worse.yaml", "name: [")
    done = cli.run("validate", "bad.yaml", "good.yaml", "worse.yaml", "none.yaml")
    assert done.returncode == 2
    places = [line.split(" ")[0] for line in done.stdout.splitlines() if " error: " in line]
    assert places[:2] == ["bad.yaml:5:5:", "bad.yaml:7:11:"]
    assert places[2].startswith("worse.yaml:")
    assert places[3] == "none.yaml:"


def test_validate_speaks_json(cli: Cli) -> None:
    cli.write("good.yaml", GOOD)
    cli.write("bad.yaml", BAD)
    done = cli.run("validate", "good.yaml", "bad.yaml", "--json")
    data = json.loads(done.stdout)
    assert done.returncode == 2
    assert data["valid"] is False
    assert [file["valid"] for file in data["files"]] == [True, False]
    problem = data["files"][1]["problems"][0]
    assert list(problem) == ["code", "pointer", "line", "column", "message", "hint"]
    assert (problem["line"], problem["column"], problem["pointer"]) == (5, 5, "/steps/0/arg")


NESTED = """name: nested
steps:
  - {id: good, tool: add}
  - id: loop
    kind: foreach
    items: $.inputs.of
    steps:
      - {id: bad, tool: ntoe}
      - {id: worse, tool: zzzzzz}
"""


def test_with_tools_every_tool_that_is_not_there_is_a_problem(cli: Cli) -> None:
    cli.write("nested.yaml", NESTED)
    done = cli.run("validate", "nested.yaml", "--tools", "tools")
    assert done.returncode == 2
    assert (
        'nested.yaml:8:25: error: step "bad": unknown tool "ntoe"\n    hint: did you mean note?'
        in done.stdout
    )
    assert 'step "worse": unknown tool "zzzzzz"\n    hint: the tools are add, ' in done.stdout


HANDLED = """\
name: w
steps:
  - {id: a, tool: note, args: {text: x}, compensate: {tool: ntoe}}
finally:
  - {id: last, tool: zzzzzz}
"""


def test_unknown_tools_of_compensations_and_final_steps_are_reported(cli: Cli) -> None:
    cli.write("handled.yaml", HANDLED)
    said = cli.run("validate", "handled.yaml", "--tools", "tools").stdout
    assert 'step "a": compensate: unknown tool "ntoe"' in said
    assert 'step "last": unknown tool "zzzzzz"' in said


def test_arguments_that_do_not_fit_a_tool_are_warned_of_with_their_place(cli: Cli) -> None:
    flow = cli.flow("- {id: a, tool: note, args: {txt: x}}")
    done = cli.run("validate", flow, "--tools", "tools")
    assert done.returncode == 0
    assert 'takes no argument "txt"' in done.stdout and "did you mean text?" in done.stdout
    assert 'needs the argument "text"' in done.stdout


def test_an_unknown_tool_is_reported_beside_mistakes_of_shape(cli: Cli) -> None:
    flow = cli.flow("- {id: a, tool: ntoe, args: {text: x}}\n- {id: b, tool: note, argz: {text: x}}")
    said = cli.run("validate", flow, "--tools", "tools").stdout
    assert ('unknown tool "ntoe"' in said, 'unknown key "argz"' in said) == (True, True)


def test_with_tools_other_problems_are_reported_too(cli: Cli) -> None:
    cli.write("both.yaml", "name: both\nsteps:\n  - {id: s, tool: ntoe, args: {a: '{{nowhere}}'}}\n")
    problems = json.loads(cli.run("validate", "both.yaml", "--tools", "tools", "--json").stdout)["files"][0][
        "problems"
    ]
    assert [problem["pointer"] for problem in problems] == ["/steps/0/tool", "/steps/0/args/a"]


def test_with_all_tools_there_a_file_is_valid(cli: Cli) -> None:
    cli.write("good.yaml", GOOD)
    assert cli.run("validate", "good.yaml", "--tools", "tools").returncode == 0


def test_without_tools_no_tool_is_looked_for(cli: Cli) -> None:
    cli.write("nested.yaml", NESTED)
    assert cli.run("validate", "nested.yaml").returncode == 0


def test_what_tools_print_while_they_are_imported_does_not_mix_with_the_json(cli: Cli) -> None:
    cli.write("good.yaml", GOOD)
    cli.write("loud.py", "print('hello')\nfrom tools import add\n")
    done = cli.run("validate", "good.yaml", "--tools", "loud", "--json")
    assert json.loads(done.stdout)["valid"] is True


@pytest.mark.parametrize(
    "command", [("validate", "bad.yaml"), ("validate", "bad.yaml", "--json"), ("version",)]
)
def test_what_cannot_be_written_exits_with_2_and_one_line(cli: Cli, command: tuple[str, ...]) -> None:
    cli.write("bad.yaml", BAD)
    done = cli.shell('"$@" >/dev/full', *command)
    assert done.returncode == 2
    assert done.stderr == "holdfast: cannot write to standard output: No space left on device\n"


def test_validate_opens_no_database(cli: Cli) -> None:
    cli.write("good.yaml", GOOD)
    cli.run("validate", "good.yaml")
    assert not list(cli.folder.glob("*.db*"))


def test_version_is_that_of_the_package(cli: Cli) -> None:
    assert cli.run("version").stdout.strip() == holdfast.__version__
    assert json.loads(cli.run("version", "--json").stdout) == {"version": holdfast.__version__}


def test_a_variable_that_the_settings_allow_may_be_named(cli: Cli) -> None:
    file = cli.flow("- {id: s, tool: echo, args: {value: '{{env.HOME}}'}}")
    assert cli.run("validate", file).returncode == 2
    assert cli.run("validate", file, HOLDFAST_TEMPLATE_ENV="HOME").returncode == 0
    assert json.loads(cli.run("run", file, HOLDFAST_TEMPLATE_ENV="HOME", HOME="/nowhere").stdout) == {
        "s": "/nowhere"
    }


GRAPH = '{"start": "a", "nodes": {"a": {"kind": "local", "service": "ntoe"}}}'


def test_a_graph_is_validated_as_one(cli: Cli) -> None:
    cli.write("graph.json", '{"start": "b", "nodes": {\n"a": {"kind": "executor"}}}')
    done = cli.run("validate", "graph.json", "--json")
    problems = json.loads(done.stdout)["files"][0]["problems"]
    assert done.returncode == 2
    assert [(one["code"], one["pointer"], one["line"]) for one in problems] == [
        ("unknown_node", "/start", 1),
        ("missing_key", "/nodes/a/service", 2),
    ]


def test_with_tools_a_tool_that_a_graph_calls_and_that_is_not_there_is_a_problem(cli: Cli) -> None:
    cli.write("graph.json", GRAPH)
    done = cli.run("validate", "graph.json", "--tools", "tools")
    assert done.returncode == 2
    assert 'node "a": unknown tool "ntoe"' in done.stdout and "did you mean note?" in done.stdout


def test_what_is_odd_about_a_graph_is_noted(cli: Cli) -> None:
    cli.write("graph.yaml", "start: a\nnodes:\n  a: {service: s}\n  b: {service: s}\n")
    done = cli.run("validate", "graph.yaml")
    assert done.returncode == 0
    assert "graph.yaml:4:6: note: " in done.stdout and "b" in done.stdout


SCHEDULE = "schedules:\n  - id: a\n    workflow: w\n    trigger: {kind: cron, expression: %s}\n"


@pytest.mark.parametrize("name", ["schedules.yaml", "night.schedules.yml", "any-name.yaml"])
def test_a_schedule_file_is_validated_as_one(cli: Cli, name: str) -> None:
    cli.write(name, SCHEDULE % '"0 3 * * *"')
    done = cli.run("validate", name)
    assert done.returncode == 2
    assert f"{name}:4:39: error: " in done.stdout and 'hint: write "0 0 3 * * *"' in done.stdout


def test_a_schedule_that_never_fires_is_noted(cli: Cli) -> None:
    cli.write("schedules.yaml", SCHEDULE % '"0 0 3 30 2 *"')
    done = cli.run("validate", "schedules.yaml", "--json")
    (file,) = json.loads(done.stdout)["files"]
    assert (done.returncode, [note["code"] for note in file["notes"]]) == (0, ["never_fires"])


def test_ids_that_two_schedule_files_share_are_a_problem_of_the_second(cli: Cli) -> None:
    for name in ("one", "two"):
        cli.write(f"{name}.schedules.yaml", SCHEDULE % '"@daily"')
    done = cli.run("validate", "one.schedules.yaml", "two.schedules.yaml")
    assert done.returncode == 2
    assert 'two.schedules.yaml:2:9: error: duplicate schedule id "a"' in done.stdout
    assert "hint: the first is in one.schedules.yaml, line 2" in done.stdout


def test_the_front_matter_of_a_skill_is_validated(cli: Cli) -> None:
    cli.write("SKILL.md", "---\nname: maya\nschedules:\n  - {id: x}\n---\n")
    done = cli.run("validate", "SKILL.md")
    assert (done.returncode, "SKILL.md:4:5: error: " in done.stdout) == (2, True)


def test_patterns_of_a_skill_that_match_nothing_are_noted_and_those_that_lead_out_refused(cli: Cli) -> None:
    head = "---\nname: maya\nmetadata: {dcc-mcp.workflows: '%s'}\n---\n"
    cli.write("SKILL.md", head % "gone/*.yaml")
    done = cli.run("validate", "SKILL.md")
    assert (done.returncode, 'SKILL.md: note: the pattern "gone/*.yaml" matches no file' in done.stdout) == (
        0,
        True,
    )
    cli.write("SKILL.md", head % "../*.yaml")
    done = cli.run("validate", "SKILL.md")
    assert (done.returncode, "SKILL.md: error: " in done.stdout) == (2, True)
