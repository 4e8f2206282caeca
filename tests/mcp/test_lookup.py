"""Workflows of skills, and files that cannot be used, are found by an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.config import Settings
from tests.mcp.conftest import asked

pytestmark = pytest.mark.anyio

SKILL = """---
name: maya
description: Cleans scenes.
metadata:
  dcc-mcp.workflows: "workflows/*.yaml"
  dcc-mcp.workflows.search-hint: "vendor intake, nightly"
---
"""
GOOD = "name: clean\nsteps:\n  - {id: a, tool: echo, args: {value: 1}}\n"


@pytest.fixture
def skills(settings: Settings, tmp_path: Path) -> Settings:
    folder = tmp_path / "skills" / "maya" / "workflows"
    folder.mkdir(parents=True)
    (folder.parent / "SKILL.md").write_text(SKILL)
    (folder / "clean.yaml").write_text(GOOD)
    (folder / "broken.workflow.yaml").write_text("name: broken\nstepz: []\n")
    return msgspec.structs.replace(settings, skills=str(tmp_path / "skills"))


async def found(settings: Settings, **wanted: Any) -> list[dict[str, Any]]:
    async with asked(settings) as ask:
        entries, cursor = list[dict[str, Any]](), None
        while True:
            given = {**wanted, **({"cursor": cursor} if cursor else {})}
            said = (await ask.tool("workflows_lookup", given))["structuredContent"]
            entries += said["workflows"]
            cursor = said["cursor"]
            if cursor is None:
                return entries


async def test_a_file_that_cannot_be_used_is_an_entry_with_its_problems(skills: Settings) -> None:
    entries = await found(skills, skill="maya", limit=1)
    assert [(one["name"], one["tool"] is None) for one in entries] == [("clean", False), ("broken", True)]
    assert "stepz" in entries[1]["problems"][0]["message"] and "problems" not in entries[0]


async def test_the_search_hint_of_a_skill_is_searched(skills: Settings) -> None:
    assert {one["name"] for one in await found(skills, query="VENDOR intake")} == {"clean", "broken"}
    assert await found(skills, query="no such text") == []


async def test_a_file_that_cannot_be_used_cannot_be_started(skills: Settings) -> None:
    async with asked(skills) as ask:
        run = {"name": "workflows_run", "arguments": {"skill": "maya", "name": "broken"}}
        assert (await ask("tools/call", run)).code == -32602
