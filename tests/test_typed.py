"""The package is typed: mypy and pyright accept a correct program and find the mistakes of a wrong one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "typed"
BIN = Path(sys.executable).parent


def mypy(file: Path) -> set[int]:
    """The lines in which it finds an error."""
    command = [str(BIN / "mypy"), "--strict", "--no-incremental", "--config-file=", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1), done.stderr
    return {int(line) for line in re.findall(rf"{file.name}:(\d+): error", done.stdout)}


def pyright(file: Path) -> set[int]:
    command = [str(BIN / "basedpyright"), "--outputjson", "--pythonpath", sys.executable, str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}


@pytest.mark.parametrize("check", [mypy, pyright])
def test_a_correct_program_is_accepted(check: Callable[[Path], set[int]]) -> None:
    assert check(FOLDER / "program.py") == set()


@pytest.mark.parametrize("check", [mypy, pyright])
def test_every_mistake_is_found(check: Callable[[Path], set[int]]) -> None:
    file = FOLDER / "mistakes.py"
    lines = file.read_text().splitlines()
    assert check(file) == {number for number, line in enumerate(lines, 1) if line.endswith("# mistake")}
