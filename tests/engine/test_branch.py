"""Branches: which values are true, what runs, what the output says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Case, completed, finish, starts, was_cut

BOTH = """
name: n
steps:
  - {id: br, kind: branch, on: $.inputs.v, then: [{id: yes_, tool: t}, {id: yes2, tool: t}], else: [{id: no_, tool: t}]}
  - {id: after, tool: t, args: {way: "{{ br.taken }}", of: "{{ br.condition }}", y: "{{ yes_ }}", n: "{{ no_ }}"}}
"""


@pytest.mark.parametrize(
    ("value", "first"),
    [
        (None, "br.no_"),
        (False, "br.no_"),
        (0, "br.no_"),
        (0.0, "br.no_"),
        ("", "br.no_"),
        ([], "br.no_"),
        ({}, "br.no_"),
        (True, "br.yes_"),
        (1, "br.yes_"),
        (-0.5, "br.yes_"),
        ("0", "br.yes_"),
        ("false", "br.yes_"),
        (" ", "br.yes_"),
        ([0], "br.yes_"),
        ([None], "br.yes_"),
        ({"a": None}, "br.yes_"),
    ],
)
def test_truth_is_everything_but_null_false_zero_and_the_empty(value: Any, first: str) -> None:
    assert starts(Case(BOTH, {"v": value}).start()) == [first]


def test_a_path_that_hits_nothing_is_false() -> None:
    assert starts(Case(BOTH).start()) == ["br.no_"]


def test_the_steps_of_the_way_taken_run_in_order_and_the_rest_follows() -> None:
    case = Case(BOTH, {"v": {"deep": 1}})
    case.start()
    assert starts(case.succeed("br.yes_", "Y")) == ["br.yes2"]
    assert starts(case.succeed("br.yes2")) == ["after"]
    assert case.args("after") == {"way": "then", "of": {"deep": 1}, "y": "Y", "n": None}


def test_the_output_of_a_branch_is_its_condition_and_the_way_taken() -> None:
    case = Case(BOTH, {"v": 0})
    case.start()
    case.succeed("br.no_")
    case.succeed("after", 1)
    assert case.output() == {"br": {"condition": 0, "taken": "else"}, "after": 1}


def test_a_way_without_steps_takes_no_row_of_its_own() -> None:
    case = Case(
        "name: n\nsteps: [{id: br, kind: branch, on: $.inputs.v, then: [{id: a, tool: t}]}, {id: b, tool: t}]"
    )
    decisions = case.start()
    assert (completed(decisions), starts(decisions)) == (["br"], ["b"])


def test_a_failure_inside_a_branch_fails_the_run_with_the_path_of_its_step() -> None:
    case = Case(BOTH, {"v": 1})
    case.start()
    error = finish(case.fail("br.yes_")).error
    assert error is not None and error.path == "br.yes_"


def test_a_condition_may_search() -> None:
    case = Case(
        "name: n\nsteps: [{id: br, kind: branch, on: '$.inputs.xs[?@.ok]', then: [{id: a, tool: t}]}]",
        {"xs": [{"ok": False}, {"ok": 1}]},
    )
    assert starts(case.start()) == ["br.a"]


def test_a_condition_that_looks_at_too_much_fails_its_step_with_a_kind_of_its_own() -> None:
    chain: object = [1] * 10
    for _ in range(40):
        chain = [chain, *range(10)]
    case = Case(
        "name: n\nsteps: [{id: br, kind: branch, on: '$..*..*..*..*', then: [{id: a, tool: t}]}]",
        {"xs": chain},
        checks=False,
    )
    end = finish(case.start())
    assert end.error is not None and (end.error.kind, end.error.path) == ("expression_too_costly", "br")


def test_branches_that_search_much_data_are_decided_in_rows_of_their_own() -> None:
    search = "{id: b%d, kind: branch, on: '$.inputs.a[?@[0] == 9]', then: [], else: []}"
    definition = f"name: n\nsteps: [{', '.join(search % number for number in range(4))}]\n"
    case = Case(definition, {"a": [[1, 2]] * 10_000})
    rows = [case.start(), *case.go_on()]
    assert [was_cut(row) for row in rows] == [True, True, True, True, False]
    assert finish(rows[-1]).status == "completed"
