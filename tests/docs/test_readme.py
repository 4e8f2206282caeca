"""Every example and every command of README.md, executed; what it shows is what happens.

A block marked ```yaml NAME or ```python NAME is a file; a ```console block holds commands (`$ …`) and what they print. Run ids and
times differ from run to run, and side by side the order of lines may: so lines are compared as a set, times and ids blanked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RUN_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\b(\d+ ms|\d+\.\d s|\d+ min \d+ s)")


class Shown(NamedTuple):
    """A command of the page, and what it says will be printed."""

    command: str
    output: list[str]


def files() -> dict[str, str]:
    return {name: text for _, name, text in BLOCK.findall(README) if name}


def commands() -> list[Shown]:
    found: list[Shown] = []
    for kind, _, text in BLOCK.findall(README):
        for line in text.splitlines() if kind == "console" else ():
            if line.startswith("$ "):
                found.append(Shown(line[2:], []))
            else:
                found[-1].output.append(line)
    return found


def blanked(lines: list[str]) -> list[str]:
    """What is the same each time."""
    return sorted(TIME.sub("TIME", RUN_ID.sub("RUN", line)) for line in lines if line and line != "Killed")


def test_the_page_runs_as_it_is_written(tmp_path: Path) -> None:
    for name, text in files().items():
        (tmp_path / name).write_text(text, "utf-8")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run_id = ""
    for command, expected in commands():
        done = subprocess.run(
            RUN_ID.sub(run_id, command).split(),
            cwd=tmp_path,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert blanked(done.stdout.splitlines()) == blanked(expected), command
        assert done.returncode == code_of(expected), command
        run_id = found.group() if (found := RUN_ID.search(done.stdout)) else run_id


def code_of(expected: list[str]) -> int:
    if "Killed" in expected:
        return -9
    return 2 if any(" error: " in line for line in expected) else 0


def test_the_page_has_commands_and_files_to_run() -> None:
    assert len(commands()) >= 4
    assert set(files()) >= {"hello.yaml", "tools.py", "plug.yaml", "app.py"}


@pytest.mark.parametrize("name", sorted(files()))
def test_the_examples_folder_has_the_files_of_the_page(name: str) -> None:
    assert (ROOT / "examples" / name).read_text("utf-8").endswith(files()[name])


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_every_link_to_a_file_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert target.startswith("http") or (ROOT / target).exists(), target


def test_every_command_named_on_the_page_exists() -> None:
    """`make x` and `holdfast x` in running text too."""
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make (\w+)`", README)) <= targets
    assert set(re.findall(r"`holdfast (\w+)", README)) <= {"run", "validate", "version"}
