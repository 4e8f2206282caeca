"""Secrets stay out of log lines that a tool writes by itself."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Holdfast

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


IN_PARTS = """
import logging
from holdfast import Context, tool

@tool
async def here(context: Context, token):
    context.log(token[:9])
    context.log(token[9:])

@tool
def by_logging(context: Context, token):
    for part in (token[:9], token[9:]):
        logging.getLogger("theirs").warning(part)

@tool(isolate="process")
def apart(context: Context, token):
    context.log(token[:9])
    context.log(token[9:])
"""


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["here", "apart"])
async def test_a_secret_that_a_tool_logs_in_two_parts_is_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level("INFO", "holdfast.tool")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HOLDFAST_SECRET_TOKEN", "correct-horse-battery")
    (tmp_path / f"parts_{name}.py").write_text(IN_PARTS)
    tools = importlib.import_module(f"parts_{name}")
    step = {"id": "a", "tool": name, "args": {"token": "{{secrets.TOKEN}}"}}
    async with Holdfast(f"sqlite:///{tmp_path}/h.db", tools=[getattr(tools, name)]) as hf:
        await (await hf.start({"name": "flow", "steps": [step]})).result()
    said = [vars(record)["said"]["message"] for record in caplog.records if record.name == "holdfast.tool"]
    assert said == ["***", "***"]


@pytest.mark.anyio
async def test_a_secret_that_a_tool_gives_to_logging_in_two_parts_is_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HOLDFAST_SECRET_TOKEN", "correct-horse-battery")
    (tmp_path / "parts_logged.py").write_text(IN_PARTS)
    tools = importlib.import_module("parts_logged")
    step = {"id": "a", "tool": "by_logging", "args": {"token": "{{secrets.TOKEN}}"}}
    async with Holdfast(f"sqlite:///{tmp_path}/h.db", tools=[tools.by_logging]) as hf:
        run = await hf.start({"name": "flow", "steps": [step]})
        await run.result()
        page = await hf._engine.queries.logs("default", run.id, step=None, level=None, after=0, limit=10)
    assert [line.text for line in page.items] == ["***", "***"]
