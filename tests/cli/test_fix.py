"""`holdfast validate --fix`: repairs are shown, then written."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli

BROKEN = "# greets\nnaem: w  # name\nsteps:\n  - {id: a, tol: add, timeout: 30s}\n"
FIXED = "# greets\nname: w  # name\nsteps:\n  - {id: a, tool: add, timeout_secs: 30}\n"


def test_a_repaired_file_keeps_its_comments_and_is_valid(cli: Cli) -> None:
    file = cli.write("w.yaml", BROKEN)
    done = cli.run("validate", "--fix", "w.yaml")
    assert (done.returncode, file.read_text()) == (0, FIXED)


def test_the_diff_is_shown_before_anything_is_written(cli: Cli) -> None:
    cli.write("w.yaml", BROKEN)
    shown = cli.run("validate", "--fix", "w.yaml").stderr
    assert "-naem: w  # name\n+name: w  # name\n" in shown
    assert shown.index("+name: w") < shown.index("w.yaml: repaired")


def test_without_fix_the_file_stays_as_it_is(cli: Cli) -> None:
    file = cli.write("w.yaml", BROKEN)
    assert cli.run("validate", "w.yaml").returncode == 2
    assert file.read_text() == BROKEN


def test_problems_that_cannot_be_repaired_are_reported(cli: Cli) -> None:
    cli.write("w.yaml", "nmae: w\nsteps: []\n")
    done = cli.run("validate", "--fix", "w.yaml")
    assert done.returncode == 2
    assert "at least one step" in done.stdout and "unknown key" not in done.stdout


def test_a_valid_file_is_not_written(cli: Cli) -> None:
    file = cli.write("w.yaml", FIXED)
    before = file.stat().st_mtime_ns
    assert cli.run("validate", "--fix", "w.yaml").returncode == 0
    assert file.stat().st_mtime_ns == before


def test_schedules_are_repaired_too(cli: Cli) -> None:
    text = "schedules:\n  # nightly\n  - {id: s, workflow: w, trigger: {kind: cron, expression: 0 3 * * *}}\n"
    file = cli.write("s.schedules.yaml", text)
    assert cli.run("validate", "--fix", "s.schedules.yaml").returncode == 0
    assert file.read_text() == text.replace("0 3 * * *", "0 0 3 * * *")


def test_a_misspelt_tool_becomes_the_one_that_exists(cli: Cli) -> None:
    file = cli.write("w.yaml", "name: w\nsteps: [{id: a, tool: ntoe}]\n")
    assert cli.run("validate", "--fix", "w.yaml", "--tools", "tools").returncode == 0
    assert "tool: note" in file.read_text()


def test_json_has_the_patch_of_each_problem(cli: Cli) -> None:
    cli.write("w.yaml", BROKEN)
    (file,) = json.loads(cli.run("validate", "--json", "w.yaml").stdout)["files"]
    assert {"pointer": "/naem", "patch": [{"op": "move", "from": "/naem", "path": "/name"}]} in file[
        "patches"
    ]
