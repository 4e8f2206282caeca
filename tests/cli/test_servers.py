"""`[servers.<name>]` of holdfast.toml: tools on other MCP servers, called by `tool: server/name`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.cli.conftest import Cli

PROGRAM = Path(__file__).parents[1] / "mcp" / "one_server.py"
FLOW = "name: w\nsteps:\n  - {id: a, tool: one/add, args: {a: 1, b: 2}}\n"


def test_a_step_calls_a_tool_of_a_server_of_the_settings(cli: Cli) -> None:
    cli.write("holdfast.toml", f"[servers.one]\ncommand = {json.dumps([sys.executable, str(PROGRAM)])}\n")
    cli.write("w.yaml", FLOW)
    done = cli.run("run", "w.yaml", "--json")
    assert (done.returncode, json.loads(done.stdout)["output"]) == (0, {"a": 3}), done.stderr


def test_a_server_that_the_settings_do_not_name_is_no_name_of_a_tool(cli: Cli) -> None:
    cli.write("w.yaml", FLOW)
    assert 'invalid tool name "one/add"' in cli.run("validate", "w.yaml").stdout


def test_a_wrong_table_of_a_server_is_a_wrong_setting(cli: Cli) -> None:
    cli.write("holdfast.toml", "[servers.one]\nurl = 'http://x'\ncommand = 'x'\n")
    cli.write("w.yaml", "name: w\nsteps: [{id: a, tool: echo}]\n")
    done = cli.run("run", "w.yaml")
    assert done.returncode == 2 and "[servers.one]" in done.stderr


def test_an_unknown_key_of_a_server_is_answered_with_the_nearest(cli: Cli) -> None:
    cli.write("holdfast.toml", "[servers.one]\ncomand = 'x'\n")
    done = cli.run("up", "--port", "0")
    assert done.returncode == 2
    assert '[servers.one]: unknown key "comand" (did you mean command?)' in done.stderr
