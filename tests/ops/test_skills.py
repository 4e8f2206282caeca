"""A folder of skills: what is published from it, and which schedule files it leads to."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from holdfast.errors import NotFound
from holdfast.ops.skills import SkillFolder
from holdfast.spec.notation import Definition
from tests.small_limits import with_limits

pytestmark = pytest.mark.anyio


class Shelf:
    """A folder of skills, and what was published from it, in order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.published: list[str] = []
        self.folder = SkillFolder(root, self.publish)

    async def publish(self, tenant: str, definition: Definition) -> None:
        self.published.append(f"{definition.name}: {definition.description}")

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def skill(self, folder: str, metadata: str, name: str = "") -> None:
        self.write(
            f"{folder}/SKILL.md",
            f"---\nname: {name or Path(folder).name}\nmetadata: {metadata}\n---\n# A skill\n",
        )

    def workflow(self, file: str, description: str = "") -> None:
        name = Path(file).stem
        self.write(file, f"name: {name}\ndescription: '{description}'\nsteps: [{{id: s, tool: echo}}]\n")

    def codes(self) -> dict[str, list[str]]:
        return {one.file: [problem.code for problem in one.problems] for one in self.folder.broken}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


ALL = '{dcc-mcp.workflows: "*.yaml", dcc-mcp.workflow.schedules: "*.schedules.yaml"}'
ONLY = '{dcc-mcp.workflows: "*.yaml"}'


async def test_workflows_are_published_with_the_name_of_their_skill(shelf: Shelf) -> None:
    shelf.skill("maya", ONLY)
    shelf.skill("deep/down/houdini", ONLY)
    shelf.workflow("maya/export.yaml")
    shelf.workflow("deep/down/houdini/export.yaml")
    await shelf.folder.load()
    assert sorted(shelf.published) == ["houdini::export: ", "maya::export: "]
    assert shelf.codes() == {}


async def test_a_folder_may_itself_be_a_skill(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "maya")
    shelf.skill(".", ONLY, "maya")
    shelf.workflow("export.yaml")
    await shelf.folder.load()
    assert shelf.published == ["maya::export: "]


async def test_the_schedule_files_of_a_skill_are_found(shelf: Shelf) -> None:
    shelf.skill("maya", ALL)
    shelf.workflow("maya/export.yaml")
    shelf.write("maya/night.schedules.yaml", "schedules: []")
    await shelf.folder.load()
    (skill,) = shelf.folder.skills
    assert skill.schedules == (str(shelf.root / "maya/night.schedules.yaml"),)
    assert shelf.published == ["maya::export: "]


async def test_a_changed_workflow_is_published_again_and_no_other(shelf: Shelf) -> None:
    shelf.skill("maya", ONLY)
    shelf.workflow("maya/export.yaml")
    shelf.workflow("maya/render.yaml")
    await shelf.folder.load()
    shelf.workflow("maya/export.yaml", "second")
    await shelf.folder.scan()
    await shelf.folder.scan()
    assert shelf.published == ["maya::export: ", "maya::render: ", "maya::export: second"]


async def test_a_workflow_that_a_new_pattern_names_is_published(shelf: Shelf) -> None:
    shelf.skill("maya", ONLY)
    shelf.workflow("maya/more/render.yaml")
    await shelf.folder.load()
    shelf.skill("maya", '{dcc-mcp.workflows: "more/*.yaml"}')
    await shelf.folder.scan()
    assert shelf.published == ["maya::render: "]


async def test_a_broken_workflow_holds_up_no_other(shelf: Shelf) -> None:
    shelf.skill("maya", ONLY)
    shelf.workflow("maya/export.yaml")
    shelf.write("maya/render.yaml", "name: render\nsteps: [{id: s, toool: echo}]\n")
    await shelf.folder.load()
    assert shelf.published == ["maya::export: "]
    assert "unknown_key" in shelf.codes()["maya/render.yaml"]


async def test_a_skill_with_a_mistake_is_reported_until_it_is_corrected(shelf: Shelf) -> None:
    shelf.write("maya/SKILL.md", "---\nnam: maya\n---\n")
    shelf.skill("houdini", '{dcc-mcp.workflows: "../*.yaml"}')
    await shelf.folder.load()
    assert shelf.codes() == {"maya/SKILL.md": ["missing_key"], "houdini/SKILL.md": ["invalid_pattern"]}
    assert all(problem.source for one in shelf.folder.broken for problem in one.problems)
    for name in ("maya", "houdini"):
        shelf.skill(name, "{}")
    await shelf.folder.scan()
    assert shelf.codes() == {}


async def test_of_two_skills_with_one_name_the_second_is_refused(shelf: Shelf) -> None:
    shelf.skill("one", ONLY, "maya")
    shelf.skill("two", ONLY, "maya")
    shelf.workflow("one/export.yaml")
    shelf.workflow("two/render.yaml")
    await shelf.folder.load()
    assert shelf.published == ["maya::export: "]
    assert shelf.codes() == {"two/SKILL.md": ["duplicate_name"]}


@pytest.mark.parametrize("inner", ["maya/inner", ".git/inner"])
async def test_a_skill_inside_of_a_skill_or_of_a_hidden_folder_is_not_one(shelf: Shelf, inner: str) -> None:
    shelf.skill("maya", ONLY)
    shelf.skill(inner, ONLY)
    shelf.workflow(f"{inner}/export.yaml")
    await shelf.folder.load()
    assert (shelf.published, [skill.name for skill in shelf.folder.skills]) == ([], ["maya"])


async def test_a_pattern_that_matches_nothing_is_a_warning(
    shelf: Shelf, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.skill("maya", '{dcc-mcp.workflows: "gone/*.yaml"}')
    with caplog.at_level(logging.WARNING):
        await shelf.folder.load()
        await shelf.folder.scan()
    assert [record.getMessage() for record in caplog.records] == [
        'maya/SKILL.md: the pattern "gone/*.yaml" matches no file (patterns are relative to the folder of the skill)'
    ]
    assert shelf.codes() == {}


async def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="--skills names a folder"):
        await Shelf(tmp_path / "nowhere").folder.load()


async def test_a_folder_with_too_many_files_is_reported(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_limits(monkeypatch, folder_walk_max=2)
    shelf.skill("maya", ONLY)
    shelf.workflow("maya/export.yaml")
    await shelf.folder.load()
    assert "folder_walk_max" in shelf.folder.problem
