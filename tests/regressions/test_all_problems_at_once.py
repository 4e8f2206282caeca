"""One mistake does not hide another."""

from __future__ import annotations

import pytest

from holdfast import InvalidSpec, WorkflowSpec


def problems(text: str) -> list[tuple[str, int | None]]:
    with pytest.raises(InvalidSpec) as refused:
        WorkflowSpec.from_yaml_str(text).validate()
    return [(problem.code, problem.line) for problem in refused.value.problems]


def test_a_misspelt_tool_is_told_in_its_line_beside_the_other_mistakes_of_the_step() -> None:
    text = "name: w\nsteps:\n  - id: a\n    tol: t\n    retri: {}\n    timeout_secs: 0\n"
    assert problems(text) == [("unknown_key", 4), ("unknown_key", 5), ("invalid_policy", 6)]


def test_a_step_of_an_unknown_kind_reports_its_unknown_keys() -> None:
    text = "name: w\nsteps:\n  - id: a\n    kind: zzz\n    foo: 1\n    items: $.x\n"
    assert problems(text) == [("unknown_kind", 4), ("unknown_key", 5)]


def test_a_broken_input_does_not_hide_the_default_of_another_that_does_not_fit() -> None:
    text = (
        "name: w\ninputs:\n  n: {type: intger}\n  s: {type: string, default: 7}\nsteps: [{id: a, tool: t}]\n"
    )
    assert [(code, line) for code, line in problems(text)][1:] == [("invalid_default", 4)]


def test_a_hint_does_not_offer_the_name_of_a_step_that_has_none() -> None:
    text = "name: w\nsteps: [{tool: t}, {id: b, tool: t, args: {x: '{{steps.zz.output}}'}}]\n"
    with pytest.raises(InvalidSpec) as refused:
        WorkflowSpec.from_yaml_str(text).validate()
    assert all("are ," not in problem.hint for problem in refused.value.problems)
