"""`holdfast plan`: what a workflow would do."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli

TOOLS = """
from holdfast import tool

@tool(destructive=True)
def wipe(path: str) -> None: ...

@tool(read_only=True, idempotent=True)
def look(path: str) -> str: return path
"""
FLOW = """name: clean
steps:
  - {id: see, tool: look, args: {path: x}}
  - id: each
    kind: foreach
    items: $.inputs.of
    steps: [{id: gone, tool: wipe, args: {path: x}}]
  - {id: later, service: mail}
"""


def test_the_plan_shows_steps_tools_and_marks(cli: Cli) -> None:
    cli.write("effects.py", TOOLS)
    cli.write("clean.yaml", FLOW)
    shown = cli.run("plan", "clean.yaml", "--tools", "effects").stdout.splitlines()
    assert shown[:3] == ["clean", "  see: tool look", "  each: foreach $.inputs.of"]
    assert "  wipe (tool, destructive): each.gone" in shown
    assert "  look (tool, read-only, idempotent): see" in shown


def test_the_hash_changes_with_the_definition_and_with_the_marks(cli: Cli) -> None:
    cli.write("effects.py", TOOLS)
    cli.write("harmless.py", TOOLS.replace("destructive=True", "destructive=False"))
    cli.write("clean.yaml", FLOW)

    def hash_of(tools: str) -> str:
        return str(json.loads(cli.run("plan", "clean.yaml", "--tools", tools, "--json").stdout)["plan_hash"])

    first = hash_of("effects")
    assert hash_of("effects") == first != hash_of("harmless")
    cli.write("clean.yaml", FLOW.replace("mail", "post"))
    assert hash_of("effects") != first


def test_a_nested_workflow_beside_the_file_is_part_of_the_plan(cli: Cli) -> None:
    cli.write("inner.yaml", "name: inner\nsteps: [{id: s, tool: echo}]\n")
    cli.write("outer.yaml", "name: outer\nsteps: [{id: child, workflow: inner}]\n")
    plan = json.loads(cli.run("plan", "outer.yaml", "--json").stdout)
    assert plan["workflows"] == ["inner"]
    assert [tool["steps"] for tool in plan["tools"]] == [["child.s"]]


def test_an_invalid_file_has_no_plan(cli: Cli) -> None:
    cli.write("bad.yaml", "name: bad\nsteps: []\n")
    assert cli.run("plan", "bad.yaml").returncode == 2


def test_a_plan_shows_what_follows_the_end_of_the_run_and_what_is_undone(cli: Cli) -> None:
    cli.write(
        "saga.yaml",
        """
name: saga
steps:
  - {id: book, tool: echo, compensate: {tool: log}}
on_error: {steps: [{id: tell, tool: echo}]}
finally: [{id: bye, tool: echo}]
""",
    )
    shown = cli.run("plan", "saga.yaml").stdout
    assert "on_error of the run:\n  tell: tool echo\nfinally of the run:\n  bye: tool echo\n" in shown
    assert "undone if the run fails or is cancelled later:\n  book: by log\n" in shown
    assert [block["of"] for block in cli.json("plan", "saga.yaml")["handlers"]] == ["on_error", "finally"]
