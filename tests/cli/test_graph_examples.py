"""The graphs among the examples do what they say, at a server with the worker of the demo."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Cli

EXAMPLES = Path(__file__).parents[2] / "examples" / "graph"


@pytest.mark.parametrize(
    ("file", "inputs", "output"),
    [
        ("two_ways.json", [], {"decision": {"action": "goB"}, "result": "HOLD FAST"}),
        ("two_ways.json", ["-i", "action=goC"], {"decision": {"action": "goC"}, "result": "hold fast"}),
        ("fan_out.yaml", [], {"doubled": [2, 4, 6, 8], "total": 20, "answers": [20]}),
        ("later.yaml", ["-i", "delay_ms=10"], {"inner": {"shouted": "PATIENCE"}, "result": "PATIENCE"}),
        ("doubling.json", ["-i", "number=5", "-i", "limit=40"], {"number": 80}),
        ("doubling.json", ["-i", "number=-1"], {"number": -1}),
    ],
)
def test_an_example_gives_what_it_says(cli: Cli, file: str, inputs: list[str], output: Any) -> None:
    shutil.copy(EXAMPLES / file, cli.folder)
    cli.up("--demo")
    done = cli.json("run", file, *inputs)
    assert (done["status"], done["output"]) == ("completed", output)


def test_every_example_is_published_from_its_folder(cli: Cli) -> None:
    shutil.copytree(EXAMPLES, cli.folder / "graph")
    cli.up("--flows", "graph")
    found = cli.json("flows", "list")
    assert {one["name"] for one in found["items"]} == {path.stem for path in EXAMPLES.iterdir()}
