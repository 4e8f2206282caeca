"""The configuration of a server as one object."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from holdfast import McpHttpConfig


def test_nothing_is_enabled_unless_it_is_asked_for() -> None:
    config = McpHttpConfig(port=8765)
    assert (config.port, config.enable_scheduler, config.schedules_dir, config.enable_workflows) == (
        8765, False, None, False,
    )  # fmt: skip


def test_with_scheduler_enables_it_for_a_folder() -> None:
    config = McpHttpConfig(port=8765)
    assert config.with_scheduler("/opt/schedules") is config
    assert (config.enable_scheduler, config.schedules_dir) == (True, "/opt/schedules")


def test_a_misspelt_option_is_an_error() -> None:
    with pytest.raises(AttributeError):
        McpHttpConfig(port=8765).enable_schedular = True  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------------------ serve

PROGRAM = """
import sys
import holdfast
from holdfast import McpHttpConfig

@holdfast.tool
def add(a: int, b: int = 0) -> int:
    return a + b

cfg = McpHttpConfig(port=0)
cfg.enable_scheduler = sys.argv[1] == "on"
cfg.schedules_dir = "schedules"
holdfast.serve(cfg, tools=[add], ready=lambda address: print(address, flush=True))
"""
SCHEDULES = """
schedules:
  - id: hook
    workflow: sum
    inputs: {a: "{{trigger.payload.a}}"}
    trigger: {kind: webhook, path: /hooks/sum}
  - id: often
    workflow: sum
    inputs: {a: 1}
    trigger: {kind: interval, every: 100ms}
"""
FLOW = """
name: sum
inputs: {a: {type: integer}}
steps:
  - {id: s, tool: add, args: {a: "{{inputs.a}}"}}
"""

WAITS = {"name": "waits", "steps": [{"id": "t", "kind": "timer", "delay_ms": 350}]}
PATIENCE = 90  # seconds, on a machine that has much else to do: httpx gives up after five


@contextmanager
def served(folder: Path, switch: str) -> Iterator[str]:
    command = [sys.executable, "-c", PROGRAM, switch]
    env = {**os.environ, "HOLDFAST_FLOWS": "flows"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=env)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.stdout.close()
        assert process.wait(60) == 0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("schedules/a.schedules.yaml", SCHEDULES), ("flows/sum.yaml", FLOW)):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    return tmp_path


def runs_of(address: str, schedule: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{address}/api/v1/schedules/{schedule}/ledger", timeout=PATIENCE)
    return list(answer.json()["items"])


def test_an_enabled_scheduler_serves_the_webhooks_and_fires_the_schedules_of_its_folder(folder: Path) -> None:
    with served(folder, "on") as address:
        answer = httpx.post(f"{address}/hooks/sum", json={"a": 4}, timeout=PATIENCE)
        assert answer.status_code == 202, answer.text
        while not any(row["outcome"] == "fired" for row in runs_of(address, "often")):
            time.sleep(0.02)


def test_without_the_scheduler_nothing_fires_although_schedules_are_stored(folder: Path) -> None:
    with served(folder, "on") as address:
        while not runs_of(address, "often"):
            time.sleep(0.02)
    with served(folder, "off") as address:
        answer = httpx.post(f"{address}/hooks/sum", json={"a": 4}, timeout=PATIENCE)
        assert answer.status_code == 404
        before = len(runs_of(address, "often"))
        # The timer of this run is due after three occurrences that would have fired before it.
        asked = {"spec": WAITS, "wait_secs": 60}
        assert httpx.post(f"{address}/api/v1/runs", json=asked, timeout=PATIENCE).status_code == 200
        assert len(runs_of(address, "often")) == before
