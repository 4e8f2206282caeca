"""The package is typed: mypy and pyright accept a correct program and find the mistakes of a wrong one."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "typed"
BIN = Path(sys.executable).parent


def mypy(folder: Path) -> dict[str, set[int]]:
    """The lines in which it finds an error, by file."""
    command = [
        str(BIN / "mypy"),
        "--strict",
        "--no-incremental",
        "--config-file=",
        *map(str, folder.glob("*.py")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode in (0, 1), done.stderr
    return _by_file(re.findall(r"([\w.]+):(\d+): error", done.stdout))


def pyright(folder: Path) -> dict[str, set[int]]:
    command = [
        str(BIN / "basedpyright"),
        "--outputjson",
        "--pythonpath",
        sys.executable,
        *map(str, folder.glob("*.py")),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, check=False)
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = [one for one in found if one["severity"] == "error"]
    return _by_file((Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors)


def _by_file(found: Iterable[tuple[str, str | int]]) -> dict[str, set[int]]:
    lines: dict[str, set[int]] = {}
    for name, line in found:
        lines.setdefault(name, set()).add(int(line))
    return lines


# Both programs at once: to read the package takes a checker half a minute, and the programs no time.
@pytest.mark.parametrize("check", [mypy, pyright])
def test_a_correct_program_is_accepted_and_every_mistake_is_found(
    check: Callable[[Path], dict[str, set[int]]],
) -> None:
    lines = (FOLDER / "mistakes.py").read_text().splitlines()
    mistakes = {number for number, line in enumerate(lines, 1) if line.endswith("# mistake")}
    assert mistakes
    assert check(FOLDER) == {"mistakes.py": mistakes}
