"""The front matter of a SKILL.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import InvalidSpec
from holdfast.spec.catalog import WorkflowCatalog
from holdfast.spec.skill import skill_from_file, skill_from_text

SEED = """\
---
name: scene-maintenance
description: Nightly cleaning and checks.
metadata:
  dcc-mcp:
    workflow:
      specs: [workflows.yaml]
      schedules: [schedules.yaml]
license: MIT
---
# Scene maintenance
---
Not front matter.
"""


def problems_of(text: str) -> list[tuple[str, int, int]]:
    with pytest.raises(InvalidSpec) as refused:
        skill_from_text(text, "SKILL.md")
    assert all(problem.hint and problem.source == "SKILL.md" for problem in refused.value.problems)
    return [(problem.code, problem.line, problem.column) for problem in refused.value.problems]


def test_the_front_matter_leads_to_schedule_files(tmp_path: Path) -> None:
    (tmp_path / "SKILL.md").write_text(SEED)
    (tmp_path / "schedules.yaml").write_text("schedules: []")
    skill = skill_from_file(tmp_path / "SKILL.md")
    assert (skill.name, skill.description) == ("scene-maintenance", "Nightly cleaning and checks.")
    assert WorkflowCatalog.from_skill(skill, tmp_path).schedules == (
        str((tmp_path / "schedules.yaml").resolve()),
    )


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", [("no_front_matter", 1, 1)]),
        ("# Title\n---\nname: a\n---\n", [("no_front_matter", 1, 1)]),
        ("---\nname: a\n", [("no_front_matter", 1, 1)]),
        ("---\n- a\n---\n", [("wrong_type", 2, 1)]),
        ("---\ndescription: a\n---\n", [("missing_key", 2, 1)]),
        ("---\nname: 5\nmetadata: []\n---\n", [("wrong_type", 2, 7), ("wrong_type", 3, 11)]),
        ("---\nname: [\n---\n", [("syntax", 3, 1)]),
        ("---\nname: ' '\n---\n", [("empty_name", 2, 7)]),
        ("---\nname: a::b\n---\n", [("invalid_name", 2, 7)]),
        ("---\nname: a\nschedules:\n  - {id: x}\n---\n", [("inline_schedule", 4, 5)]),
        (
            "---\nname: a\nmetadata: {dcc-mcp.workflow.schedules: {id: x}}\n---\n",
            [("inline_schedule", 3, 40)],
        ),
        (
            "---\nname: a\nmetadata: {dcc-mcp: {workflow: {schedules: [a.yaml, {id: x}]}}}\n---\n",
            [("inline_schedule", 3, 53)],
        ),
    ],
)
def test_a_mistake_is_reported_with_its_line(text: str, problems: list[tuple[str, int, int]]) -> None:
    assert problems_of(text) == problems


def test_windows_line_ends_are_read() -> None:
    assert skill_from_text(SEED.replace("\n", "\r\n")).name == "scene-maintenance"
