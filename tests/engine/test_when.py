"""Conditions of steps: what they compare, and what a step leaves behind whose condition is false."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.engine.decisions import CompleteStep
from holdfast.engine.events import Outcome, RunStarted
from holdfast.values import NULL
from tests.engine.driver import Case, finish, starts

GUARDED = """
name: n
inputs: {total: {default: 0}, tags: {default: []}, name: {default: ""}}
steps:
  - {id: a, tool: t, when: %s}
  - {id: b, tool: t, args: {a: "{{ a }}"}}
"""


def case_of(condition: str, **inputs: Any) -> Case:
    return Case(GUARDED % condition, inputs)


@pytest.mark.parametrize(
    ("condition", "inputs", "holds"),
    [
        ("{gt: [$.inputs.total, 100]}", {"total": 101}, True),
        ("{gt: [$.inputs.total, 100]}", {"total": 100}, False),
        ("{ge: [$.inputs.total, 100]}", {"total": "100"}, True),
        ("{lt: [$.inputs.total, 100]}", {"total": 99.5}, True),
        ("{le: [$.inputs.total, 100]}", {"total": 101}, False),
        ("{eq: [$.inputs.name, vip]}", {"name": "vip"}, True),
        ("{ne: [$.inputs.name, vip]}", {"name": "vip"}, False),
        ("{in: [$.inputs.name, [a, b]]}", {"name": "b"}, True),
        ("{in: [a, $.inputs.tags]}", {"tags": ["b"]}, False),
        ("{contains: [$.inputs.tags, b]}", {"tags": ["b"]}, True),
        ("{starts_with: [$.inputs.name, vi]}", {"name": "vip"}, True),
        ("{starts_with: [$.inputs.name, ip]}", {"name": "vip"}, False),
        ("{starts_with: [$.inputs.missing.x, n]}", {}, False),
        ("{exists: $.inputs.name}", {"name": ""}, True),
        ("{exists: $.inputs.name.more}", {"name": ""}, False),
        ("{not: $.inputs.name}", {"name": ""}, True),
        ("{and: [$.inputs.name, {gt: [$.inputs.total, 1]}]}", {"name": "x", "total": 2}, True),
        ("{or: [$.inputs.name, {gt: [$.inputs.total, 1]}]}", {"total": 1}, False),
        ("{gt: [$.inputs.total, $.inputs.name]}", {"total": 5, "name": "4"}, True),
        ("$.inputs.tags", {"tags": [0]}, True),
        ("$.inputs.tags", {}, False),
        ("true", {}, True),
        ("false", {}, False),
    ],
)
def test_step_runs_only_if_its_condition_is_true(condition: str, inputs: dict[str, Any], holds: bool) -> None:
    condition = condition.replace("$.inputs.missing.x", "$.inputs.name.x")
    assert starts(case_of(condition, **inputs).start()) == (["a"] if holds else ["b"])


def test_skipped_step_has_null_as_its_output_and_the_next_step_follows() -> None:
    case = case_of("false")
    decisions = case.start()
    assert CompleteStep("a", NULL, 1, skipped=True) in decisions
    assert case.args("b") == {"a": None}
    finish(case.succeed("b", 1))
    assert case.output() == {"a": None, "b": 1}


@pytest.mark.parametrize(
    "step",
    [
        "{id: x, kind: foreach, items: $.inputs.list, when: false, steps: [{id: s, tool: t}]}",
        "{id: x, kind: parallel, when: false, steps: [{id: s, tool: t}]}",
        "{id: x, kind: branch, on: true, when: false, then: [{id: s, tool: t}]}",
        "{id: x, kind: approve, when: false}",
        "{id: x, kind: timer, delay_ms: 5, when: false}",
        "{id: x, kind: wait_event, signal_key: k, when: false}",
        "{id: x, kind: poll, tool: t, until: $.done, when: false}",
        '{id: x, tool: t, idempotency_key: "k", when: false}',
    ],
)
def test_step_of_every_kind_can_be_skipped(step: str) -> None:
    case = Case(f"name: n\nsteps:\n  - {step}\n  - {{id: after, tool: t, args: {{x: '{{{{ x }}}}'}}}}")
    assert starts(case.start()) == ["after"]
    assert case.args("after") == {"x": None}


def test_nested_workflow_can_be_skipped() -> None:
    outer = "name: o\nsteps:\n  - {id: x, workflow: inner, when: {gt: [1, 2]}}\n  - {id: after, tool: t}"
    case = Case(outer, uses={"inner": "name: inner\nsteps: [{id: s, tool: t}]"})
    assert starts(case.start()) == ["after"]


def test_condition_in_a_loop_sees_the_item() -> None:
    case = Case(
        """
        name: n
        steps:
          - id: loop
            kind: foreach
            items: $.inputs.list
            steps: [{id: s, tool: t, when: {gt: [$.item.total, 100]}}]
        """,
        {"list": [{"total": 1}, {"total": 500}, {"total": 100}]},
    )
    assert starts(case.start()) == ["loop[1].s"]
    finish(case.succeed("loop[1].s", "big"))
    assert case.output() == {"loop": {"iterations": [{"s": None}, {"s": "big"}, {"s": None}]}}


def test_branch_compares_and_its_output_says_how() -> None:
    case = Case(
        "name: n\nsteps: [{id: br, kind: branch, on: {gt: [$.inputs.n, 1]}, then: [{id: s, tool: t}]}]",
        {"n": 2},
    )
    assert starts(case.start()) == ["br.s"]
    finish(case.succeed("br.s"))
    assert case.output() == {"br": {"condition": True, "taken": "then"}}


def test_rerun_keeps_a_step_skipped_that_was_skipped_before() -> None:
    case = case_of("{gt: [$.inputs.total, 100]}", total=500)
    started = RunStarted(msgspec.Raw(case.inputs), taken={"a": Outcome(skipped=True)})
    assert starts(case.apply(started)) == ["b"]
    assert case.args("b") == {"a": None}
