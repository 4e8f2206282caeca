"""Workflows beside a skill are found, shown with their problems, and searched; nothing outside the skill is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.errors import InvalidSpec, LimitExceeded
from holdfast.spec.catalog import WorkflowCatalog
from tests.small_limits import with_limits


def skill(root: Path, patterns: Any, hint: str = "") -> WorkflowCatalog:
    metadata = {"dcc-mcp.workflows": patterns, "dcc-mcp.workflows.search-hint": hint}
    return WorkflowCatalog.from_skill({"name": "maya", "metadata": metadata}, root)


def write(root: Path, name: str, text: str = "") -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        text or f"name: {file.stem}\ndescription: Does {file.stem}\nsteps: [{{id: a, tool: t}}]\n"
    )


def names(found: WorkflowCatalog) -> list[str]:
    return [entry.name for entry in found.entries()]


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        ("workflows/*.yaml", ["one", "two"]),
        ("workflows/*.yaml, more/**/*.yml", ["deep", "one", "shallow", "two"]),
        (["workflows/one.yaml", "workflows/*.yaml"], ["one", "two"]),
        ("**/*", ["deep", "one", "other", "shallow", "two"]),
        ("**/**/**/deep.yml", ["deep"]),
        ("workflows/[ot]*.yaml", ["one", "two"]),
        ("*.yaml", []),
        ("", []),
        (None, []),
    ],
)
def test_files_are_found_by_patterns_each_once_in_order(
    tmp_path: Path, patterns: Any, found: list[str]
) -> None:
    for file in (
        "workflows/two.yaml",
        "workflows/one.yaml",
        "more/shallow.yml",
        "more/a/b/deep.yml",
        "x/other.txt",
    ):
        write(tmp_path, file)
    assert names(skill(tmp_path, patterns)) == found


def test_an_entry_says_what_the_workflow_is(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a.yaml",
        "name: export\ndescription: Exports\ninputs: {x: {type: string}}\nsteps: [{id: a, tool: t}]",
    )
    (entry,) = skill(tmp_path, "*.yaml").entries()
    assert (entry.skill, entry.name, entry.key) == ("maya", "export", "maya::export")
    assert (entry.description, entry.inputs, entry.path) == (
        "Exports",
        {"x": {"type": "string"}},
        str(tmp_path / "a.yaml"),
    )
    assert entry.problems == ()


def test_a_broken_file_is_an_entry_with_its_problems(tmp_path: Path) -> None:
    write(tmp_path, "export.workflow.yaml", "steps: [")
    write(tmp_path, "render.yaml", "name: render\nsteps: [{id: a, tool: bad/tool}]")
    broken, invalid = skill(tmp_path, "*.yaml").entries()
    assert (broken.name, [problem.code for problem in broken.problems]) == ("export", ["syntax"])
    assert (invalid.name, [problem.code for problem in invalid.problems]) == ("render", ["invalid_tool_name"])


@pytest.mark.parametrize(
    ("query", "found"), [("", 2), ("EXPORT", 1), ("does ren", 1), ("houdini", 2), ("nothing", 0)]
)
def test_name_description_and_hint_are_searched_whatever_their_case(
    tmp_path: Path, query: str, found: int
) -> None:
    write(tmp_path, "export.yaml")
    write(tmp_path, "render.yaml")
    assert len(skill(tmp_path, "*.yaml", "Houdini, Maya").search(query)) == found


@pytest.mark.parametrize("pattern", ["../*.yaml", "/etc/*", "a/../../b", "~/x", "a**b/*.yaml", "[ab", "a\\b"])
def test_a_pattern_that_leads_out_or_cannot_be_read_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        skill(tmp_path, pattern)
    assert [problem.code for problem in refused.value.problems] == ["invalid_pattern"]


def test_a_link_out_of_the_skill_is_not_followed(tmp_path: Path) -> None:
    write(tmp_path, "outside/secret.yaml")
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill" / "file.yaml").symlink_to(tmp_path / "outside" / "secret.yaml")
    (tmp_path / "skill" / "folder").symlink_to(tmp_path / "outside")
    assert names(skill(tmp_path / "skill", "**/*.yaml")) == []


def test_too_many_files_are_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_limits(monkeypatch, folder_files_max=2)
    for i in range(3):
        write(tmp_path, f"{i}.yaml")
    with pytest.raises(LimitExceeded, match="catalog_files_max"):
        skill(tmp_path, "*.yaml")


def test_the_metadata_may_be_an_object(tmp_path: Path) -> None:
    meta = SimpleNamespace(name="maya", metadata={"dcc-mcp.workflows": "*.yaml"})
    write(tmp_path, "export.yaml")
    assert [entry.key for entry in WorkflowCatalog.from_skill(meta, tmp_path).entries()] == ["maya::export"]


def test_graphs_are_found_beside_steps(tmp_path: Path) -> None:
    write(tmp_path, "one.yaml")
    write(tmp_path, "graph.json", '{"description": "d", "start": "a", "nodes": {"a": {"service": "s"}}}')
    write(tmp_path, "odd.json", '{"start": "z", "nodes": {"a": {"service": "s"}}}')
    found = skill(tmp_path, "*.json, *.yaml").entries()
    assert [(entry.name, [problem.code for problem in entry.problems]) for entry in found] == [
        ("graph", []),
        ("odd", ["unknown_node"]),
        ("one", []),
    ]


FORMS: list[dict[str, Any]] = [
    {"dcc-mcp.workflow.specs": "w/a.yaml, w/b.yaml"},
    {"dcc-mcp.workflow.specs": ["w/a.yaml", "w/b.yaml"]},
    {"dcc-mcp": {"workflow": {"specs": ["w/*.yaml"]}}},
    {"dcc-mcp": {"workflow": {"specs": "w/*.yaml"}}},
    {"dcc-mcp": {"workflow.specs": ["w/*.yaml"]}},
    {"dcc-mcp.workflow": {"specs": ["w/*.yaml"]}},
    {"dcc-mcp": {"workflows": "w/a.yaml,w/b.yaml"}},
    {"dcc-mcp": {"workflows": ["w/*.yaml"]}},
    {
        "dcc-mcp.workflows": "w/a.yaml",
        "dcc-mcp": {"workflows": ["w/a.yaml"], "workflow": {"specs": "w/b.yaml"}},
    },
]


@pytest.mark.parametrize("metadata", FORMS, ids=str)
def test_patterns_are_found_flat_and_nested_as_text_and_as_list(
    tmp_path: Path, metadata: dict[str, Any]
) -> None:
    write(tmp_path, "w/b.yaml")
    write(tmp_path, "w/a.yaml")
    found = WorkflowCatalog.from_skill({"name": "maya", "metadata": metadata}, tmp_path)
    assert (names(found), found.warnings) == (["a", "b"], ())


@pytest.mark.parametrize(
    "metadata",
    [
        {"dcc-mcp.workflow.schedules": "s/*.yaml"},
        {"dcc-mcp.workflow.schedules": ["s/*.yaml", "s/b.yaml"]},
        {"dcc-mcp": {"workflow": {"schedules": ["s/*.yaml"]}}},
    ],
    ids=str,
)
def test_schedule_files_are_named_and_are_not_workflows(tmp_path: Path, metadata: dict[str, Any]) -> None:
    write(tmp_path, "s/b.yaml")
    write(tmp_path, "s/a.yaml")
    found = WorkflowCatalog.from_skill({"name": "maya", "metadata": metadata}, tmp_path)
    assert found.schedules == (str(tmp_path / "s/a.yaml"), str(tmp_path / "s/b.yaml"))
    assert found.entries() == ()


def test_a_wide_pattern_finds_no_schedule_files(tmp_path: Path) -> None:
    for file in ("a.yaml", "schedules.yaml", "night.schedules.yml", "fires.yaml"):
        write(tmp_path, file)
    metadata = {"dcc-mcp.workflows": "**/*", "dcc-mcp.workflow.schedules": "fires.yaml"}
    found = WorkflowCatalog.from_skill({"name": "maya", "metadata": metadata}, tmp_path)
    assert names(found) == ["a"]


def test_a_pattern_that_matches_nothing_is_reported(tmp_path: Path) -> None:
    write(tmp_path, "w/a.yaml")
    found = skill(tmp_path, "w/*.yaml, workflow/*.yaml, w/*.yml")
    assert names(found) == ["a"]
    assert [(one.code, one.message) for one in found.warnings] == [
        ("matches_nothing", 'the pattern "workflow/*.yaml" matches no file'),
        ("matches_nothing", 'the pattern "w/*.yml" matches no file'),
    ]


@pytest.mark.parametrize("said", [5, {"a": 1}, [["w/*.yaml"]], True])
def test_a_value_that_is_no_pattern_is_reported_and_matches_nothing(tmp_path: Path, said: Any) -> None:
    write(tmp_path, "w/a.yaml")
    found = skill(tmp_path, said)
    assert (names(found), [one.code for one in found.warnings]) == ([], ["wrong_type"])


@pytest.mark.parametrize(
    "metadata",
    [
        {"dcc-mcp": {"workflow": {"schedule": ["s.yaml"]}}},
        {"dcc-mcp": {"workflow.schedule": "s.yaml"}},
        {"dcc-mcp.workflow.schedule": "s.yaml"},
    ],
)
def test_a_misspelt_key_is_reported_and_keys_of_others_are_not(
    tmp_path: Path, metadata: dict[str, Any]
) -> None:
    others = {"dcc-mcp.groups": [], "dcc-mcp.workflows.search-hint": "x", "workflow": {"schedule": 1}}
    found = WorkflowCatalog.from_skill({"name": "maya", "metadata": metadata | others}, tmp_path)
    assert [(one.message, one.hint) for one in found.warnings] == [
        ('unknown key "dcc-mcp.workflow.schedule"', "did you mean dcc-mcp.workflow.schedules?")
    ]
