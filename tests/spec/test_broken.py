"""Definitions with mistakes: each is refused with its code at its place, and with a hint that helps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.errors import InvalidSpec, Problem
from holdfast.spec.workflow import WorkflowSpec


class Broken(NamedTuple):
    what: str
    text: str
    code: str
    line: int
    column: int
    hint: str  # a part of it


def problems_of(text: str) -> list[Problem]:
    with pytest.raises(InvalidSpec) as refused:
        WorkflowSpec.from_yaml_str(text, "w.yaml").validate()
    return list(refused.value.problems)


def mistakes() -> Iterator[Broken]:
    """Each case of broken.txt: its name, then code, place and hint, then the text."""
    _, *cases = (Path(__file__).parent / "broken.txt").read_text("utf-8").split("\n=== ")
    for case in cases:
        what, expected, text = case.split("\n", 2)
        code, place, hint = expected.split(" ", 2)
        line, column = map(int, place.split(":"))
        yield Broken(what, text, code, line, column, hint)


ONE_MISTAKE = list(mistakes())


@pytest.mark.parametrize("broken", ONE_MISTAKE, ids=[broken.what for broken in ONE_MISTAKE])
def test_a_mistake_is_told_once_at_its_place_with_a_hint(broken: Broken) -> None:
    (problem,) = problems_of(broken.text)
    assert (problem.code, problem.line, problem.column) == (broken.code, broken.line, broken.column)
    assert broken.hint in problem.hint


def test_each_mistake_is_another() -> None:
    assert len({broken.text for broken in ONE_MISTAKE}) == len(ONE_MISTAKE) >= 60


def told(text: str) -> list[tuple[int, str, str]]:
    return [(problem.line, problem.code, problem.pointer) for problem in problems_of(text)]


def test_names_are_judged_although_other_steps_have_the_wrong_shape() -> None:
    assert told(
        """\
name: w
steps:
  - {id: a, kind: forech, items: $.inputs.x, steps: [{id: b, tool: bad/t}, {id: c, tol: x}]}
  - {id: d, tool: t, args: {v: "{{ nope }} {{ b }} {{ steps.aa.output }}"}}
  - 5
  - {id: e, tool: bad.tool, retry: {}}
  - {id: [1], tool: t, args: {v: "{{ a }}"}}
output: "{{ zz }}"
"""
    ) == [
        (3, "unknown_kind", "/steps/0/kind"),
        (3, "invalid_tool_name", "/steps/0/steps/0/tool"),
        (3, "unknown_key", "/steps/0/steps/1/tol"),
        (4, "unknown_root", "/steps/1/args/v"),
        (4, "out_of_scope", "/steps/1/args/v"),
        (4, "unknown_step", "/steps/1/args/v"),
        (5, "wrong_type", "/steps/2"),
        (6, "invalid_tool_name", "/steps/3/tool"),
        (6, "missing_key", "/steps/3/retry/max_attempts"),
        (7, "wrong_type", "/steps/4/id"),
        (8, "unknown_root", "/output"),
    ]


def test_what_yaml_forbids_does_not_hide_what_the_notation_forbids() -> None:
    assert told(
        """\
name: w
name: x
steps:
  - {id: a, tool: &x t, bad: 1}
  - {id: b, tool: *x, args: .inf}
  - {id: c, tool: t, <<: {args: 1}, timeout_secs: !!int 0}
  - {id: d, tool: "{{ nope }}"}
"""
    ) == [
        (2, "duplicate_key", "/name"),
        (4, "anchor", "/steps/0/tool"),
        (4, "unknown_key", "/steps/0/bad"),
        (5, "alias", "/steps/1/tool"),
        (5, "not_json", "/steps/1/args"),
        (6, "merge", "/steps/2/<<"),
        (6, "tag", "/steps/2/timeout_secs"),
        (7, "invalid_tool_name", "/steps/3/tool"),
    ]


def test_inputs_policies_and_callbacks_are_judged_together() -> None:
    assert told(
        """\
name: ''
labels: {a: 1}
inputs:
  n: {type: integr}
  p: {pattern: '('}
  q: {minimun: 3}
on_complete: [{url: x}, {secret_env: 3}]
timeout_secs: 0
steps:
  - {id: a, tool: t, args: {v: "{{ inputs.nn }} {{ n }}"}, idempotency_key: "{{ m }}", on_conflict: no}
  - {id: a, kind: approve, form: {type: 3}, timeout_secs: -1}
  - {id: '', kind: poll, tool: t, until: x, interval_ms: 0}
"""
    ) == [
        (1, "empty_name", "/name"),
        (2, "wrong_type", "/labels/a"),
        (4, "unknown_type", "/inputs/n/type"),
        (5, "invalid_pattern", "/inputs/p/pattern"),
        (6, "unknown_key", "/inputs/q/minimun"),
        (7, "invalid_url", "/on_complete/0/url"),
        (7, "missing_key", "/on_complete/1/url"),
        (7, "wrong_type", "/on_complete/1/secret_env"),
        (8, "invalid_policy", "/timeout_secs"),
        (10, "unknown_input", "/steps/0/args/v"),
        (10, "unknown_root", "/steps/0/idempotency_key"),
        (10, "invalid_choice", "/steps/0/on_conflict"),
        (11, "duplicate_id", "/steps/1/id"),
        (11, "unknown_type", "/steps/1/form/type"),
        (11, "invalid_policy", "/steps/1/timeout_secs"),
        (12, "empty_id", "/steps/2/id"),
        (12, "invalid_jsonpath", "/steps/2/until"),
        (12, "invalid_policy", "/steps/2/interval_ms"),
    ]


def test_a_hole_in_a_list_of_steps_does_not_move_those_after_it() -> None:
    assert told("name: w\nsteps: [5, [], {id: a, tool: bad/t}]") == [
        (2, "wrong_type", "/steps/0"),
        (2, "wrong_type", "/steps/1"),
        (2, "invalid_tool_name", "/steps/2/tool"),
    ]


def test_a_hole_in_a_list_of_branches_does_not_move_those_after_it() -> None:
    assert told("name: w\nsteps: [{id: p, kind: parallel, branches: [5, [{id: a, tool: bad/t}]]}]") == [
        (2, "wrong_type", "/steps/0/branches/0"),
        (2, "invalid_tool_name", "/steps/0/branches/1/0/tool"),
    ]


@pytest.mark.parametrize(
    "steps",
    [
        "[{id: z, kind: zzz, steps: [{id: inner, tool: t}]}, {id: b, tool: t, args: {v: '{{ inner }}'}}]",
        "[{id: z, kind: branch, on: $.inputs, thn: [{id: inner, tool: t}]}, {id: b, tool: t, args: {v: '{{ inner }}'}}]",
        "[{id: [inner], tool: t}, {id: b, tool: t, args: {v: '{{ steps.inner.output }}'}}]",
        "[{id: p, kind: parallel, branches: [{id: inner, tool: t}]}, {id: b, tool: t, args: {v: '{{ inner }}'}}]",
    ],
)
def test_a_name_that_stands_in_an_unreadable_part_is_not_called_unknown(steps: str) -> None:
    assert len(problems_of(f"name: w\nsteps: {steps}\n")) == 1


def test_an_input_of_an_unreadable_declaration_is_not_called_unknown() -> None:
    text = "name: w\ninputs: [x]\nsteps: [{id: a, tool: t, args: {v: '{{ x }} {{ inputs.x }}'}}]\n"
    assert told(text) == [(2, "wrong_type", "/inputs")]


def test_a_misspelt_key_is_not_missing_as_well() -> None:
    assert told("name: w\nstpes: [{id: a, tool: t}]\n") == [(2, "unknown_key", "/stpes")]


def test_every_problem_has_a_hint() -> None:
    assert [broken.what for broken in ONE_MISTAKE if not problems_of(broken.text)[0].hint] == []
