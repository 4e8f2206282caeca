"""The first five minutes: an empty folder, `holdfast init`, and what it promises."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from holdfast.cli.init import FILES
from tests.cli.conftest import Cli
from tests.inner import PLAIN


@pytest.fixture
def empty(cli: Cli) -> Cli:
    (cli.folder / "tools.py").unlink()
    return cli


def test_init_writes_what_it_says(empty: Cli) -> None:
    done = empty.run("init")
    assert done.returncode == 0
    assert sorted(path.name for path in empty.folder.iterdir()) == sorted(FILES)
    assert all(name in done.stdout for name in FILES)


def test_what_init_writes_runs_as_it_is(empty: Cli) -> None:
    empty.run("init")
    assert empty.json("run", "hello.yaml", "-i", "name=Ada")["output"] == {"posted": 4}


def test_what_init_writes_is_valid_with_its_tools(empty: Cli) -> None:
    empty.run("init")
    assert empty.json("validate", "hello.yaml")["valid"] is True


def test_the_test_that_init_writes_passes(empty: Cli) -> None:
    empty.run("init")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "holdfast.testing",
        "-p",
        "no:cacheprovider",
        *PLAIN,
    ]
    done = subprocess.run(
        command, cwd=empty.folder, capture_output=True, text=True, timeout=120, check=False, env=_plain()
    )
    assert "2 passed" in done.stdout, done.stdout


def _plain() -> dict[str, str]:
    """An environment in which pytest does not know that it is inside another one."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "HOLDFAST"))}


def test_the_workflow_names_the_schema_that_lies_beside_it(empty: Cli) -> None:
    empty.run("init")
    found = re.match(r"# yaml-language-server: \$schema=(\S+)\n", (empty.folder / "hello.yaml").read_text())
    assert found is not None
    assert json.loads((empty.folder / found[1]).read_text())["type"] == "object"


def test_the_schema_is_what_the_command_prints(empty: Cli) -> None:
    empty.run("init")
    assert empty.run("schema").stdout == (empty.folder / "holdfast.schema.json").read_text()


def test_a_file_that_is_there_is_never_touched(empty: Cli) -> None:
    (empty.folder / "tools.py").write_text("mine")
    done = empty.run("init")
    assert done.returncode == 2
    assert "already exist: tools.py" in done.stderr and "--force" in done.stderr
    assert [path.name for path in empty.folder.iterdir()] == ["tools.py"]
    assert (empty.folder / "tools.py").read_text() == "mine"


def test_force_overwrites(empty: Cli) -> None:
    (empty.folder / "tools.py").write_text("mine")
    assert empty.run("init", "--force").returncode == 0
    assert "look_up" in (empty.folder / "tools.py").read_text()


def test_a_folder_is_made(empty: Cli) -> None:
    done = empty.run("init", "a/b c")
    assert done.returncode == 0
    assert "cd 'a/b c'" in done.stdout
    assert (empty.folder / "a/b c/hello.yaml").exists()


def test_a_folder_that_cannot_be_made_exits_with_2(empty: Cli) -> None:
    (empty.folder / "file").write_text("")
    done = empty.run("init", "file/below")
    assert (done.returncode, "cannot write to file/below" in done.stderr) == (2, True)


def test_init_speaks_json(empty: Cli) -> None:
    assert empty.json("init", "x") == {"folder": "x", "files": list(FILES)}


def test_a_run_killed_in_the_middle_goes_on_and_repeats_nothing(empty: Cli) -> None:
    empty.run("init")
    process = empty.start("run", "hello.yaml")
    empty.until(process, "pause  waits")
    process.kill()
    process.communicate()
    done = empty.run("run", "--continue", "last")
    assert (done.returncode, msgspec.json.decode(done.stdout)) == (0, {"posted": 4})
    assert "friends  completed" in done.stderr and "attempt 4" not in done.stderr


def test_a_typo_is_found_on_its_line(empty: Cli) -> None:
    empty.run("init")
    file = Path(empty.folder / "hello.yaml")
    file.write_text(file.read_text().replace("concurrency:", "concurency:"))
    done = empty.run("validate", "hello.yaml")
    assert done.returncode == 2
    assert re.search(r"hello.yaml:16:5: error: .*concurency", done.stdout)
    assert "did you mean concurrency?" in done.stdout


def test_the_schema_of_the_graph_notation_is_printed_too(empty: Cli) -> None:
    assert json.loads(empty.run("schema", "--graph").stdout)["title"] == "Holdfast graph"
    assert empty.run("schema", "graph").stdout == empty.run("schema", "--graph").stdout


def test_the_schema_of_schedule_files_is_printed_too(empty: Cli) -> None:
    assert json.loads(empty.run("schema", "schedules").stdout)["title"] == "Holdfast schedules"
