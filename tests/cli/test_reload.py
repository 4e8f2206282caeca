"""Changed tools: with --reload the server restarts behind its open port, without it the change is reported."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from tests.cli.conftest import Cli, Up

TOOL = """
import asyncio
from holdfast import tool
import helper

@tool
async def word(wait=0.0):
    await asyncio.sleep(wait)
    return helper.WORD
"""


def _served(cli: Cli, *args: str) -> Up:
    cli.write("spoken.py", TOOL)
    cli.write("helper.py", 'WORD = "one"')
    return cli.up("--tools", "spoken", *args)


def _said(cli: Cli, flow: str, *args: str) -> Any:
    return json.loads(cli.run("run", flow, "--json", *args).stdout)["output"]


def _node(server: Up) -> Any:
    """The server answers at any moment: while it restarts, requests wait."""
    with urllib.request.urlopen(f"{server.address}/api/v1/nodes", timeout=60) as answer:
        return json.load(answer)["items"][0]


def _until(server: Up, is_so: Callable[[Any], bool]) -> Any:
    for _ in range(600):
        if is_so(node := _node(server)):
            return node
        time.sleep(0.1)
    raise AssertionError(node)


def test_a_changed_file_restarts_the_server_and_its_runs_go_on(cli: Cli) -> None:
    server = _served(cli, "--reload")
    flow = cli.flow("- {id: s, tool: word}")
    before = _node(server)
    assert before["code_files"] == ["helper.py", "spoken.py"]
    assert _said(cli, flow) == {"s": "one"}
    waiting = cli.json(
        "start", cli.flow("- {id: go, kind: wait_event, signal_key: go}\n- {id: s, tool: word}"), "--detach"
    )
    cli.write("helper.py", 'WORD = "two"')
    after = _until(server, lambda node: node["epoch"] > before["epoch"])
    assert (after["pid"], after["changed_files"]) == (before["pid"], [])
    cli.run("signal", waiting["run_id"], "go")
    assert cli.run("runs", "watch", waiting["run_id"]).returncode == 0
    assert cli.json("runs", "show", waiting["run_id"])["output"]["s"] == "two"


def test_a_mistake_in_a_changed_file_leaves_the_loaded_code_in_use(cli: Cli) -> None:
    server = _served(cli, "--reload")
    flow, before = cli.flow("- {id: s, tool: word}"), _node(server)
    cli.write("helper.py", "WORD = ")
    said = cli.until(server.process, "cannot be loaded")
    assert "SyntaxError" in said and "helper.py" in said
    assert _node(server)["changed_files"] == ["helper.py"]
    assert _said(cli, flow) == {"s": "one"}
    cli.write("helper.py", 'WORD = "mended"')
    _until(server, lambda node: node["epoch"] > before["epoch"])
    assert _said(cli, flow) == {"s": "mended"}


def test_without_reload_a_change_is_logged_and_shown(cli: Cli) -> None:
    server = _served(cli)
    cli.write("helper.py", 'WORD = "two"')
    assert "start it with --reload" in cli.until(server.process, "helper.py changed")
    assert _node(server)["changed_files"] == ["helper.py"]
    ran = cli.run("run", cli.flow("- {id: s, tool: word}"), "--tools", "spoken")
    assert f"the server at {server.address} executes the run" in ran.stderr
    assert "--tools is not used" in ran.stderr and "helper.py changed after that" in ran.stderr
    cli.write("helper.py", 'WORD = "one"')  # as it was loaded
    _until(server, lambda node: node["changed_files"] == [])
