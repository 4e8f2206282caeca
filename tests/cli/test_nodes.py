"""`holdfast nodes`: who serves a file."""

from __future__ import annotations

from tests.cli.conftest import Cli


def test_nodes_are_listed_with_the_keys_of_the_api(cli: Cli) -> None:
    up = cli.up()
    found = cli.json("nodes", "--server", up.address)
    (node,) = found["items"]
    assert (node["address"], node["state"], node["runs"]) == (up.address, "ready", 0)
    assert node["name"] and node["epoch"] and node["version"] and node["since"].endswith("Z")
    shown = cli.run("nodes", "--server", up.address)
    assert shown.stdout.split()[:7] == ["NAME", "EPOCH", "ADDRESS", "VERSION", "SINCE", "RUNS", "STATE"]
    assert up.address in shown.stdout and "ready" in shown.stdout


def test_without_a_server_there_are_no_nodes(cli: Cli) -> None:
    assert cli.json("nodes")["items"] == []
    assert "holdfast up" in cli.run("nodes").stderr
