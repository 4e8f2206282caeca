"""Secrets stay out of log lines that a tool writes by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HOLDFAST = Path(sys.executable).with_name("holdfast")

TOOLS = """
import logging
from holdfast import tool

@tool
def call(token):
    logging.getLogger("mine").warning("calling with %s", token)
"""

FLOW = "name: flow\nsteps: [{id: a, tool: call, args: {token: '{{secrets.TOKEN}}'}}]\n"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_secret_that_a_tool_logs_by_itself_is_redacted(tmp_path: Path, form: str) -> None:
    (tmp_path / "tools.py").write_text(TOOLS)
    (tmp_path / "flow.yaml").write_text(FLOW)
    ended = subprocess.run(
        [HOLDFAST, "run", "flow.yaml", "--tools", "tools", "--log", form],
        cwd=tmp_path,
        env={"HOLDFAST_SECRET_TOKEN": 'canary-"4711'},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "calling with ***" in ended.stderr
    assert "4711" not in ended.stderr
