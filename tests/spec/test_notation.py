"""Either notation is read by the same call, and what tells them apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidSpec
from holdfast.spec.flow import FlowSpec
from holdfast.spec.notation import (
    checked,
    definition_from,
    definition_from_file,
    definition_from_stored,
    definition_from_text,
    path_beside,
)
from holdfast.spec.read import parsed, text_of
from holdfast.spec.workflow import WorkflowSpec
from tests.spec.flows import FULL, flow

STEPS = {"name": "w", "steps": [{"id": "a", "tool": "t"}]}


@pytest.mark.parametrize("data", [flow(), {"nodes": {"a": {"service": "s"}}, "start": "a", "name": "f"}])
def test_what_has_nodes_or_a_start_is_a_graph(data: Any) -> None:
    assert isinstance(definition_from(data), FlowSpec)


def test_anything_else_is_a_list_of_steps() -> None:
    assert isinstance(definition_from(STEPS), WorkflowSpec)


@pytest.mark.parametrize("data", [{"start": "a", "name": "f"}, {"nodes": {}, "name": "f"}])
def test_half_a_graph_is_told_what_it_lacks_as_a_graph(data: Any) -> None:
    with pytest.raises(InvalidSpec) as refused:
        definition_from(data)
    assert {problem.pointer for problem in refused.value.problems} <= {"/nodes", "/start"}


@pytest.mark.parametrize("data", [None, 5, "x", [], {}])
def test_what_is_neither_is_refused(data: Any) -> None:
    with pytest.raises(InvalidSpec):
        definition_from(data)


@pytest.mark.parametrize("data", [STEPS, FULL])
def test_a_name_from_outside_counts_in_both(data: Any) -> None:
    assert definition_from(data, name="other").name == "other"


@pytest.mark.parametrize("data", [STEPS, FULL])
def test_a_text_with_a_name_from_outside_keeps_its_places(data: Any) -> None:
    text = definition_from(data).to_yaml() + "colour: red\n"
    with pytest.raises(InvalidSpec) as refused:
        definition_from_text(text, name="other")
    assert [problem.line for problem in refused.value.problems] == [text.count("\n")]


@pytest.mark.parametrize("data", [STEPS, FULL])
def test_what_was_stored_is_read_in_its_notation(data: Any) -> None:
    spec = definition_from(data)
    assert definition_from_stored(spec.canonical()) == spec == definition_from_text(spec.to_yaml())


def test_a_file_is_read_in_its_notation(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text(FlowSpec.from_data(FULL).to_yaml())
    assert definition_from_file(path) == FlowSpec.from_data(FULL)


def test_a_name_may_mean_a_graph_in_the_file_beside(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("name: w\nsteps: [{id: a, workflow: g}]\n")
    (tmp_path / "g.json").write_text('{"start": "a", "nodes": {"a": {"service": "s"}}}')
    beside = path_beside(definition_from_file(tmp_path / "w.yaml"), "g")
    assert beside == str(tmp_path / "g.json")
    found = definition_from_file(beside)
    assert isinstance(found, FlowSpec) and found.name == "g"
    assert path_beside(found, "w") == str(tmp_path / "w.yaml")


def test_a_file_of_either_notation_is_looked_at_with_what_the_caller_knows(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text('{"start": "b", "nodes": {"a": {"kind": "local", "service": "t"}}}')
    document = parsed(text_of(path), str(path))
    spec, problems = checked(document, (), lambda _, report: report.add("unknown_tool", ("nodes", "a"), "no"))
    assert spec.name == "g"
    assert [problem.code for problem in problems] == ["unknown_node", "unknown_tool"]


@pytest.mark.parametrize(
    "data",
    [
        {"name": "w\n", "steps": [{"id": "a\a", "service": "s\t"}]},
        flow({"a\n": {"kind": "local", "service": "t"}}),
    ],
)
def test_names_that_were_stored_while_they_were_allowed_are_still_read(data: Any) -> None:
    made = definition_from(data)
    with pytest.raises(InvalidSpec):
        made.validate()
    assert definition_from_stored(made.canonical()).canonical() == made.canonical()
