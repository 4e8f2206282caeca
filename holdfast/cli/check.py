"""`holdfast validate`: every problem of every file, in the order of the command line. Runs nothing, opens no database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.cli.show import give, problem_data, problem_lines, say
from holdfast.errors import InvalidSpec, Problem
from holdfast.spec.workflow import WorkflowSpec


def validate(files: Sequence[Path], *, as_json: bool) -> int:
    """Look at all files; gives the exit code."""
    found = [(file, *_looked_at(file)) for file in files]
    is_valid = not any(problems for _, problems, _ in found)
    if as_json:
        give({"valid": is_valid, "files": [_data(*one) for one in found]})
    else:
        for file, problems, notes in found:
            _tell(file, problems, notes)
    return 0 if is_valid else 2


def _looked_at(file: Path) -> tuple[Sequence[Problem], Sequence[Problem]]:
    """What is wrong with a file, and what is probably not meant."""
    try:
        spec = WorkflowSpec.from_file(file)
        spec.validate()
    except InvalidSpec as error:
        return error.problems, ()
    except OSError as error:
        return [Problem("unreadable", f"cannot be read: {error.strerror}", source=str(file))], ()
    return (), spec.notes


def _tell(file: Path, problems: Sequence[Problem], notes: Sequence[Problem]) -> None:
    for line in (*problem_lines(problems), *problem_lines(notes, "note")):
        print(line)
    if not problems:
        say(f"{file}: valid")


def _data(file: Path, problems: Sequence[Problem], notes: Sequence[Problem]) -> dict[str, Any]:
    return {
        "file": str(file),
        "valid": not problems,
        "problems": [problem_data(problem) for problem in problems],
        "notes": [problem_data(note) for note in notes],
    }
