"""Mistakes of the first hour: a misspelt tool, a file that is not there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast, NotFound


def test_running_a_file_that_names_a_tool_which_is_nowhere_is_refused_before_anything_is_done(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(
        "from holdfast import tool\n\n@tool\ndef look_up() -> int:\n    return 1\n"
    )
    (tmp_path / "a.yaml").write_text(
        "name: a\nsteps:\n  - {id: s, tool: look_up}\n  - {id: t, tool: lok_up}\n"
    )
    command = [sys.executable, "-m", "holdfast", "run", "a.yaml", "--tools", "mine"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if "a.yaml:4:" in line and "error" in line)
    assert "did you mean look_up?" in lines[at + 1]
    assert (done.returncode, "completed" in done.stderr) == (2, False)


def test_starting_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with Holdfast(str(tmp_path / "a.db")) as hf:
            with pytest.raises(NotFound, match=r"no file nosuch\.yaml"):
                await hf.start("nosuch.yaml")

    asyncio.run(main())
