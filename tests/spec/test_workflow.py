"""What an author may write, what it means, and how every mistake is reported."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import limits
from holdfast.errors import InvalidInputs, InvalidSpec, Problem
from holdfast.spec.inputs import input_names
from holdfast.spec.policy import NO_POLICY, BackoffKind, RetryPolicy, StepPolicy
from holdfast.spec.read import DATA_PER_TEXT
from holdfast.spec.scope import Scope, StepAddress
from holdfast.spec.steps import (
    PLAIN_ANSWER,
    Answer,
    ApproveBody,
    BranchBody,
    Escalation,
    FinalCallback,
    ForeachBody,
    NestedBody,
    ParallelBody,
    PollBody,
    PollRule,
    Quorum,
    RemoteBody,
    ResultRule,
    ServiceBody,
    TimerBody,
    ToolBody,
    WaitEventBody,
    WorkflowStep,
    blocks,
    policy_inside,
    walk,
)
from holdfast.spec.workflow import WorkflowSpec, with_defaults

FULL = """\
name: nightly
description: Looks at every file
inputs:
  root: {type: string, default: /tmp, description: where to look}
  limit: {type: integer}
labels: {team: blue}
on_restart: interrupt
timeout_secs: 3600
steps:
  - id: list
    tool: list_files
    description: finds them
    args: {path: "{{ inputs.root }}", top: "{{ limit }}", token: "Bearer {{ secrets.KEY }}"}
    timeout_secs: 1.5
    on_crash: fail
    retry: {max_attempts: 3, backoff: linear, jitter: 0.25, retry_on: [transient, timeout]}
  - id: each
    kind: foreach
    items: $.list.files
    as: file
    concurrency: 4
    on_any_fail: continue
    collect: none
    retry: {max_attempts: 2}
    steps:
      - {id: show, tool: echo, args: {all: ["{{ file.name }}", "{{ item }}", "{{ list }}"]}}
      - id: maybe
        kind: branch
        on: $.steps.show.output.ok
        then: [{id: yes_step, tool: echo}]
        else: [{id: no_step, tool: echo}]
      - {id: after, tool: echo, args: {a: "{{ yes_step }}", b: "{{ no_step.x }}"}}
  - id: both
    kind: parallel
    branches:
      - [{id: left, tool: a}, {id: left_too, tool: a, args: {v: "{{ left }}"}}]
      - [{id: right, tool: b}]
  - {id: pause, kind: timer, delay_ms: "{{ inputs.limit }}"}
output: {all: "{{ steps.list.output }}", left: "{{ left_too }}", text: "{{ right }} of {{ inputs.root }}"}
"""


def full() -> WorkflowSpec:
    return WorkflowSpec.from_yaml_str(FULL)


def workflow(steps: str, **top: str) -> str:
    head = "".join(f"{key}: {value}\n" for key, value in top.items())
    return f"name: w\n{head}steps:\n{steps}"


def problems_of(text: str) -> list[Problem]:
    with pytest.raises(InvalidSpec) as refused:
        WorkflowSpec.from_yaml_str(text, "w.yaml").validate()
    return list(refused.value.problems)


def reference_problem(args: str, before: str = "", **top: str) -> str:
    """The code of what is wrong with a template in the last of some steps; empty if nothing is."""
    text = workflow(before + f"  - {{id: last, tool: t, args: {{v: '{args}'}}}}\n", **top)
    try:
        WorkflowSpec.from_yaml_str(text).validate()
    except InvalidSpec as refused:
        return ",".join(problem.code for problem in refused.problems)
    return ""


# ----------------------------------------------------------------------------------------------------- records


def test_a_definition_becomes_records() -> None:
    spec = full()
    assert (spec.name, spec.on_restart, spec.timeout_secs, spec.labels) == (
        "nightly",
        "interrupt",
        3600,
        {"team": "blue"},
    )
    assert [step.kind for step in spec.steps] == ["tool", "foreach", "parallel", "timer"]


def test_a_call_has_its_policy() -> None:
    retry = RetryPolicy(3, BackoffKind.LINEAR, jitter=0.25, retry_on=("transient", "timeout"))
    assert full().steps[0].policy == StepPolicy(timeout_secs=1.5, retry=retry, on_crash="fail")


def test_a_foreach_has_its_body() -> None:
    body = full().steps[1].body
    assert isinstance(body, ForeachBody)
    assert (body.items, body.as_, body.concurrency, body.on_any_fail, body.collect) == (
        "$.list.files",
        "file",
        4,
        "continue",
        "none",
    )
    assert [step.id for step in body.steps] == ["show", "maybe", "after"]


def test_the_full_example_is_valid() -> None:
    full().validate()


def test_steps_are_counted_at_the_top_and_walked_through_the_tree() -> None:
    assert full().step_count == 4
    assert len(list(walk(full().steps))) == 12


def test_nothing_said_means_the_defaults() -> None:
    spec = WorkflowSpec.from_yaml_str(
        workflow(
            "  - {id: a, tool: t}\n"
            "  - {id: b, kind: foreach, items: $.a}\n"
            "  - {id: c, kind: parallel}\n"
            "  - {id: d, kind: branch, on: $.a}\n"
        )
    )
    spec.validate()
    assert [step.body for step in spec.steps] == [
        ToolBody("t"),
        ForeachBody("$.a", "item", (), 1, "abort", "outputs"),
        ParallelBody((), "steps", "abort"),
        BranchBody("$.a", (), ()),
    ]
    assert all(step.policy.is_empty for step in spec.steps)


def test_a_null_means_the_same_as_a_key_left_out() -> None:
    spec = WorkflowSpec.from_yaml_str(
        workflow(
            "  - {id: a, tool: t, retry: null, timeout_secs: ~, description: ~}\n", labels="", output="~"
        )
    )
    assert spec == WorkflowSpec.from_yaml_str(workflow("  - {id: a, tool: t}\n"))


def test_each_step_of_a_parallel_is_a_branch() -> None:
    spec = WorkflowSpec.from_yaml_str(
        workflow("  - {id: p, kind: parallel, steps: [{id: a, tool: t}, {id: b, tool: t}]}\n")
    )
    body = spec.steps[0].body
    assert isinstance(body, ParallelBody)
    assert [[step.id for step in branch] for branch in body.branches] == [["a"], ["b"]]


def test_records_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        full().steps[0].id = "other"  # type: ignore[misc]


def test_a_file_is_read_and_named_in_problems(tmp_path: Path) -> None:
    file = tmp_path / "w.yaml"
    file.write_text("name: w\nstep: []\n")
    with pytest.raises(InvalidSpec) as refused:
        WorkflowSpec.from_file(file)
    assert refused.value.problems[0].source == str(file)


def test_a_policy_mistake_is_found_when_the_text_is_read() -> None:
    with pytest.raises(ValueError, match='step "a"'):
        WorkflowSpec.from_yaml_str(workflow("  - {id: a, tool: t, timeout_secs: 0}\n"))


@pytest.mark.parametrize(
    "text", ["name: w\nsteps: []", workflow("  - {id: a, tool: t, args: {v: '{{ nope }}'}}\n")]
)
def test_a_mistake_in_the_contents_is_found_by_validation(text: str) -> None:
    spec = WorkflowSpec.from_yaml_str(text)
    with pytest.raises(ValueError):
        spec.validate()


# -------------------------------------------------------------------------------------------------- round trip


def test_a_definition_survives_being_written() -> None:
    assert WorkflowSpec.from_yaml_str(full().to_yaml()) == full()
    assert WorkflowSpec.from_data(full().to_data()) == full()


def test_the_canonical_form_is_the_definition_itself() -> None:
    assert WorkflowSpec.from_yaml_str(full().canonical()) == full()
    assert WorkflowSpec.from_stored(full().canonical()) == full()


def test_the_canonical_form_of_the_largest_text_can_be_read_again() -> None:
    text = workflow("  - {id: a, tool: t, args: {v: [" + "~," * 45_000 + f"{'x' * 100_000}]}}}}\n")
    spec = WorkflowSpec.from_yaml_str(text)
    assert len(spec.canonical()) > limits.now.spec_bytes_max > len(text)
    assert WorkflowSpec.from_stored(spec.canonical()) == spec


def test_data_that_no_text_could_spell_is_too_large() -> None:
    steps = [{"id": "a", "tool": "t", "args": "x" * DATA_PER_TEXT * limits.now.spec_bytes_max}]
    with pytest.raises(InvalidSpec) as refused:
        WorkflowSpec.from_data({"name": "w", "steps": steps})
    assert [problem.code for problem in refused.value.problems] == ["too_large"]


@pytest.mark.parametrize(
    "other",
    [
        "{steps: [{tool: t, id: a}], name: w}",
        '{"name": "w", "steps": [{"id": "a", "kind": "tool", "tool": "t"}]}',
        "# why\nname: w\nsteps:\n  - id: a # which\n    tool: t\n",
        'name: "w"\non_restart: resume\nsteps: [{id: a, tool: t, on_crash: retry, description: ""}]',
        "name: w\ninputs: {}\nlabels: {}\nsteps: [{id: a, tool: t, args: ~}]",
    ],
)
def test_the_canonical_form_does_not_depend_on_how_it_was_written(other: str) -> None:
    one = WorkflowSpec.from_yaml_str(workflow("  - {id: a, tool: t}\n"))
    assert WorkflowSpec.from_yaml_str(other).canonical() == one.canonical()


def test_seconds_mean_the_same_with_and_without_a_point() -> None:
    one, other = (WorkflowSpec.from_yaml_str(workflow("", timeout_secs=secs)) for secs in ("5", "5.0"))
    assert one.canonical() == other.canonical()


def test_the_canonical_form_tells_different_definitions_apart() -> None:
    texts = [
        workflow("  - {id: a, tool: t}\n"),
        workflow("  - {id: a, tool: t, args: {}}\n"),
        workflow("  - {id: a, tool: t, args: {v: 1}}\n"),
        workflow("  - {id: a, tool: t, args: {v: 1.0}}\n"),
        workflow("  - {id: a, tool: t, args: {v: '1'}}\n"),
        workflow("  - {id: a, tool: t, retry: {max_attempts: 1}}\n"),
        workflow("  - {id: a, tool: t, retry: {max_attempts: 1, retry_on: []}}\n"),
        workflow("  - {id: a, kind: parallel, steps: []}\n"),
        workflow("  - {id: a, kind: parallel, branches: []}\n"),
    ]
    assert len({WorkflowSpec.from_yaml_str(text).canonical() for text in texts}) == len(texts)


def test_the_canonical_form_is_what_it_was_in_the_first_release() -> None:
    # Versions of running workflows are hashes of this text: if it changes, every stored version changes its name.
    spec = WorkflowSpec.from_yaml_str(
        workflow("  - {id: a, tool: t, timeout_secs: 5, args: {z: 1, b: [x]}}\n  - {id: p, kind: parallel}\n")
    )
    assert spec.canonical() == (
        b'{"name":"w","steps":[{"args":{"b":["x"],"z":1},"id":"a","timeout_secs":5.0,"tool":"t"},'
        b'{"id":"p","kind":"parallel"}]}'
    )


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
scalars = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | names | st.floats(-1e9, 1e9)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner), max_leaves=6
)
retries = st.builds(
    RetryPolicy,
    st.integers(1, 9),
    st.sampled_from(BackoffKind),
    st.integers(0, 100),
    st.integers(100, 10_000),
    st.floats(0, 1),
    st.none() | st.lists(names.filter(lambda kind: kind != "lost"), max_size=2).map(tuple),
)
seconds = st.none() | st.floats(0.001, 1e6)
call_policies = st.builds(
    StepPolicy,
    seconds,
    st.none() | retries,
    st.sampled_from(["retry", "fail"]),
    st.sampled_from([None, "k", "k_{{ inputs.x }}"]),
    st.sampled_from(["workflow", "global"]),
    st.none() | st.integers(1, 10**6),
    st.sampled_from(["wait", "fail"]),
)
intervals = {"interval_ms": st.integers(1, 9), "max_ms": st.integers(9, 99)}
answers = st.builds(
    Answer,
    st.none()
    | st.builds(ResultRule, st.booleans(), st.none() | st.just("$.x"), st.sampled_from([None, "json"])),
    seconds,
    st.none() | st.builds(PollRule, **intervals),
    st.booleans(),
)
container_policies = st.builds(StepPolicy, st.none() | st.floats(0.001, 1e6), st.none() | retries)


no_policies = st.just(NO_POLICY)


plain_answers = st.just(PLAIN_ANSWER)


def step_of(kind: str, bodies: Any, policies: Any = no_policies, answers: Any = plain_answers) -> Any:
    return st.builds(WorkflowStep, names, st.just(kind), bodies, st.just("") | names, policies, answers)


arguments = st.none() | st.dictionaries(st.text(max_size=5), json_values, max_size=3)
label_texts = st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), min_size=1).filter(str.strip)
calls = (
    step_of("tool", st.builds(ToolBody, st.just("t"), arguments), call_policies, answers)
    | step_of("tool_remote", st.builds(RemoteBody, names, st.just("t"), arguments), call_policies, answers)
    | step_of(
        "service",
        st.builds(
            ServiceBody, names, json_values, arguments, st.integers(0, 9), st.integers(0, 9), st.booleans()
        ),
        call_policies,
        answers,
    )
)
others = (
    step_of("workflow", st.builds(NestedBody, names, st.none() | st.dictionaries(names, json_values)))
    | step_of(
        "approve",
        st.builds(
            ApproveBody,
            st.just("") | names,
            seconds,
            st.none() | st.just({"type": "object"}),
            st.none() | st.builds(Quorum, st.just(1), st.lists(names, max_size=2).map(tuple)),
            st.none() | st.builds(Escalation, st.floats(0.001, 1e6), names),
        ),
    )
    | step_of("wait_event", st.builds(WaitEventBody, names, correlation=json_values, timeout_secs=seconds))
    | step_of("wait_event", st.builds(WaitEventBody, any_=st.lists(names, min_size=1, max_size=2).map(tuple)))
    | step_of("poll", st.builds(PollBody, st.just("$.x"), st.just("t"), args=arguments, **intervals))
)
timers = step_of(
    "timer",
    st.builds(TimerBody, st.integers(0, 10**6)) | st.builds(TimerBody, st.none(), st.integers(0, 10**12)),
)


def containers(inner: Any) -> Any:
    lists = st.lists(inner, max_size=2).map(tuple)
    fails = st.sampled_from(["abort", "continue"])
    single = st.lists(inner.map(lambda step: (step,)), max_size=2).map(tuple)
    return (
        step_of(
            "foreach",
            st.builds(
                ForeachBody,
                st.just("$.a"),
                st.sampled_from(["item", "x"]),
                lists,
                st.integers(1, 9),
                fails,
                st.sampled_from(["outputs", "none"]),
            ),
            container_policies,
        )
        | step_of("parallel", st.builds(ParallelBody, single, st.just("steps"), fails), container_policies)
        | step_of(
            "parallel",
            st.builds(ParallelBody, st.lists(lists, max_size=2).map(tuple), st.just("branches"), fails),
            container_policies,
        )
        | step_of("branch", st.builds(BranchBody, st.just("$.a"), lists, lists))
    )


specs = st.builds(
    WorkflowSpec,
    name=names,
    description=names,
    steps=st.lists(st.recursive(calls | timers | others, containers, max_leaves=5), max_size=3).map(tuple),
    output=json_values,
    on_restart=st.sampled_from(["resume", "interrupt"]),
    timeout_secs=st.none() | st.floats(0.001, 1e6),
    labels=st.dictionaries(label_texts, label_texts, max_size=2),
    on_complete=st.lists(st.builds(FinalCallback, st.just("https://x.y"), st.none() | names), max_size=2).map(
        tuple
    ),
)


@given(specs)
def test_any_definition_survives_being_written(spec: WorkflowSpec) -> None:
    again = WorkflowSpec.from_yaml_str(spec.to_yaml())
    assert again == spec
    assert again.canonical() == spec.canonical()


@given(json_values)
def test_any_data_is_a_definition_or_has_problems(data: Any) -> None:
    shapes = [
        data,
        {"name": "w", "steps": data},
        {"name": "w", "steps": [data]},
        {"name": "w", "inputs": data},
    ]
    for shape in shapes:
        try:
            WorkflowSpec.from_data(shape).validate()
        except InvalidSpec as refused:
            assert refused.problems


# ---------------------------------------------------------------------------------------------------- problems

A = "  - {id: a, tool: t}\n"

BROKEN: list[tuple[str, str, int]] = [
    # the top level
    ("[]", "wrong_type", 1),
    ("just text", "wrong_type", 1),
    ("steps:\n" + A, "missing_key", 1),
    ("name:\nsteps:\n" + A, "missing_key", 1),
    ("name: ''\nsteps:\n" + A, "empty_name", 1),
    (f"name: {'n' * 201}\nsteps:\n" + A, "name_too_long", 1),
    ('name: "w\\tw"\nsteps:\n' + A, "invalid_name", 1),
    ("name: 5\nsteps:\n" + A, "wrong_type", 1),
    ("name: w", "no_steps", 1),
    ("name: w\nsteps: []", "no_steps", 2),
    ("name: w\nsteps: {a: b}", "wrong_type", 2),
    (workflow(A, stepz="1"), "unknown_key", 2),
    (workflow(A, on_restart="restart"), "invalid_choice", 2),
    (workflow(A, timeout_secs="-1"), "invalid_policy", 2),
    (workflow(A, labels="{a: 1}"), "wrong_type", 2),
    (workflow(A, labels="[a]"), "wrong_type", 2),
    (workflow(A, labels="{'': a}"), "invalid_label", 2),
    (workflow(A, labels="{' ': a}"), "invalid_label", 2),
    (workflow(A, labels='{"a\\e[2J": b}'), "invalid_label", 2),
    (workflow(A, labels='{a: "b\\nc"}'), "invalid_label", 2),
    (workflow(A, labels=f"{{{'k' * 1001}: a}}"), "label_too_long", 2),
    (workflow(A, labels=f"{{a: {'v' * 1001}}}"), "label_too_long", 2),
    (workflow(A, labels="{" + ", ".join(f"k{i}: v" for i in range(101)) + "}"), "too_many_labels", 2),
    # what a call is given
    (workflow("  - id: a\n    tool: t\n    args: [1, 2]\n"), "wrong_type", 5),
    (workflow("  - id: a\n    tool: t\n    args: text\n"), "wrong_type", 5),
    (workflow("  - id: a\n    tool: t\n    args: 5\n"), "wrong_type", 5),
    (workflow("  - id: a\n    tool: t\n    args: false\n"), "wrong_type", 5),
    (workflow("  - id: a\n    tool: t\n    args: 'x {{ inputs }}'\n"), "wrong_type", 5),
    (workflow("  - id: a\n    tool: t\n    dcc: d\n    args: [1]\n"), "wrong_type", 6),
    (workflow("  - id: a\n    service: s\n    params: [1]\n"), "wrong_type", 5),
    (workflow("  - id: a\n    workflow: w2\n    inputs: [1]\n"), "wrong_type", 5),
    (workflow("  - id: a\n    kind: poll\n    until: $.x\n    tool: t\n    args: [1]\n"), "wrong_type", 7),
    (workflow("  - id: a\n    kind: poll\n    until: $.x\n    service: s\n    params: x\n"), "wrong_type", 7),
    (workflow(A, output="'{{ nope }}'"), "unknown_root", 2),
    (workflow(A, output="'{{ secrets.K }}'"), "misplaced_secret", 2),
    # inputs
    (workflow(A, inputs="[x]"), "wrong_type", 2),
    (workflow(A, inputs="{x: string}"), "wrong_type", 2),
    (workflow(A, inputs="{x: {type: strin}}"), "unknown_type", 2),
    (workflow(A, inputs="{x: {typ: string}}"), "unknown_key", 2),
    (workflow(A, inputs="{x: {type: integer, default: a}}"), "invalid_default", 2),
    (workflow(A, inputs="{type: string}"), "wrong_type", 2),
    (workflow(A, inputs="{type: object, properties: {x: {type: [string, nul]}}}"), "unknown_type", 2),
    # steps
    (workflow("  - 5\n"), "wrong_type", 3),
    (workflow("  - {tool: t}\n"), "missing_key", 3),
    (workflow("  - id: ''\n    tool: t\n"), "empty_id", 3),
    (workflow("  - id: ' '\n    tool: t\n"), "empty_id", 3),
    (workflow("  - id: 7\n    tool: t\n"), "wrong_type", 3),
    (workflow(f"  - id: {'i' * 201}\n    tool: t\n"), "name_too_long", 3),
    (workflow('  - id: "a\\u001b[2J"\n    tool: t\n'), "invalid_name", 3),
    (workflow('  - id: a\n    service: "s\\n"\n'), "invalid_name", 4),
    (workflow(A + A), "duplicate_id", 4),
    (
        workflow(A + "  - id: b\n    kind: parallel\n    steps:\n    - id: a\n      tool: t\n"),
        "duplicate_id",
        7,
    ),
    (workflow("  - id: a\n    kind: tol\n"), "unknown_kind", 4),
    (workflow("  - id: a\n    kind: 3\n"), "wrong_type", 4),
    (workflow("  - id: a\n"), "missing_key", 3),
    (workflow("  - id: a\n    kind: tool\n"), "missing_key", 3),
    (workflow("  - id: a\n    tool: bad/tool\n"), "invalid_tool_name", 4),
    (workflow("  - id: a\n    tool: a.b\n"), "invalid_tool_name", 4),
    (workflow("  - id: a\n    tool: ''\n"), "invalid_tool_name", 4),
    (workflow(f"  - id: a\n    tool: {'t' * 65}\n"), "invalid_tool_name", 4),
    (workflow("  - id: a\n    tool: größe\n"), "invalid_tool_name", 4),
    (workflow("  - id: a\n    tool: t\n    arg: 1\n"), "unknown_key", 5),
    (workflow("  - id: a\n    tool: t\n    max_lost: 1\n"), "unknown_key", 5),
    (workflow("  - id: a\n    tool: t\n    items: $.x\n"), "unknown_key", 5),
    (workflow("  - id: a\n    tool: t\n    description: [x]\n"), "wrong_type", 5),
    # policies
    (workflow("  - id: a\n    tool: t\n    timeout_secs: 0\n"), "invalid_policy", 5),
    (workflow("  - id: a\n    tool: t\n    timeout_secs: 5s\n"), "wrong_type", 5),
    (workflow("  - id: a\n    tool: t\n    timeout_secs: true\n"), "wrong_type", 5),
    (workflow("  - id: a\n    tool: t\n    timeout_secs: 99999999999\n"), "invalid_policy", 5),
    (workflow("  - id: a\n    tool: t\n    on_crash: explode\n"), "invalid_choice", 5),
    (workflow("  - id: a\n    tool: t\n    retry: 3\n"), "wrong_type", 5),
    (workflow("  - id: a\n    tool: t\n    retry: {}\n"), "missing_key", 5),
    (workflow("  - id: a\n    tool: t\n    retry:\n      max_attempts: 0\n"), "invalid_policy", 6),
    (workflow("  - id: a\n    tool: t\n    retry:\n      max_attempts: 1.5\n"), "wrong_type", 6),
    (
        workflow("  - id: a\n    tool: t\n    retry: {max_attempts: 2, max_delay_ms: 100}\n"),
        "invalid_policy",
        5,
    ),
    (
        workflow("  - id: a\n    tool: t\n    retry: {max_attempts: 2, initial_delay_ms: -1}\n"),
        "invalid_policy",
        5,
    ),
    (workflow("  - id: a\n    tool: t\n    retry: {max_attempts: 2, backoff: Fixed}\n"), "invalid_choice", 5),
    (workflow("  - id: a\n    tool: t\n    retry: {max_attempts: 2, delay: 3}\n"), "unknown_key", 5),
    (workflow("  - id: a\n    tool: t\n    retry: {max_attempts: 2, retry_on: timeout}\n"), "wrong_type", 5),
    (
        workflow("  - id: a\n    tool: t\n    retry: {max_attempts: 2, retry_on: [lost]}\n"),
        "invalid_policy",
        5,
    ),
    (workflow("  - id: a\n    tool: t\n    retry: {max_attempts: 2, retry_on: [4]}\n"), "wrong_type", 5),
    (
        workflow(A + "  - id: b\n    kind: branch\n    on: $.a\n    retry: {max_attempts: 2}\n"),
        "invalid_policy",
        7,
    ),
    (workflow(A + "  - id: b\n    kind: branch\n    on: $.a\n    timeout_secs: 2\n"), "invalid_policy", 7),
    (
        workflow("  - id: b\n    kind: timer\n    delay_ms: 1\n    retry: {max_attempts: 2}\n"),
        "invalid_policy",
        6,
    ),
    (workflow("  - id: b\n    kind: parallel\n    on_crash: fail\n"), "invalid_policy", 5),
    # bodies
    (workflow("  - id: l\n    kind: foreach\n"), "missing_key", 3),
    (workflow("  - id: l\n    kind: foreach\n    items: files\n"), "invalid_jsonpath", 5),
    (workflow("  - id: l\n    kind: foreach\n    items: '{{ inputs.x }}'\n"), "invalid_jsonpath", 5),
    (workflow("  - id: l\n    kind: foreach\n    items: $.nope\n"), "unknown_root", 5),
    (workflow("  - id: l\n    kind: foreach\n    items: $.env.X\n"), "unknown_root", 5),
    (workflow("  - id: l\n    kind: foreach\n    items: $.steps.nope.output\n"), "unknown_step", 5),
    (workflow("  - id: l\n    kind: foreach\n    items: $.inputs.x[?@.a == $.nope.b]\n"), "unknown_root", 5),
    (workflow("  - id: l\n    kind: foreach\n    items: $.inputs.x\n    as: steps\n"), "reserved_name", 6),
    (workflow("  - id: l\n    kind: foreach\n    items: $.inputs.x\n    as: a.b\n"), "invalid_name", 6),
    (
        workflow("  - id: l\n    kind: foreach\n    items: $.inputs.x\n    concurrency: 0\n"),
        "invalid_policy",
        6,
    ),
    (
        workflow("  - id: l\n    kind: foreach\n    items: $.inputs.x\n    collect: all\n"),
        "invalid_choice",
        6,
    ),
    (workflow("  - id: g\n    kind: branch\n    on: a.b\n"), "invalid_jsonpath", 5),
    (workflow("  - id: g\n    kind: branch\n    on: $.inputs[?match(@.a, 'x')]\n"), "invalid_jsonpath", 5),
    (workflow("  - id: g\n    kind: branch\n    on: $.inputs.x\n    otherwise: []\n"), "unknown_key", 6),
    (workflow("  - id: p\n    kind: parallel\n    steps: []\n    branches: []\n"), "exclusive_keys", 6),
    (workflow("  - id: p\n    kind: parallel\n    branches:\n      - {id: x, tool: t}\n"), "wrong_type", 6),
    (workflow("  - id: p\n    kind: parallel\n    on_any_fail: ignore\n"), "invalid_choice", 5),
    (workflow("  - id: p\n    kind: timer\n"), "missing_key", 3),
    (workflow("  - id: p\n    kind: timer\n    delay_ms: 5\n    until: 6\n"), "exclusive_keys", 6),
    (workflow("  - id: p\n    kind: timer\n    delay_ms: 5s\n"), "wrong_type", 5),
    (workflow("  - id: p\n    kind: timer\n    delay_ms: -5\n"), "out_of_range", 5),
    (workflow("  - id: p\n    kind: timer\n    until: tomorrow\n"), "wrong_type", 5),
    (workflow("  - id: p\n    kind: timer\n    until: 2026-01-31T09:00:00\n"), "wrong_type", 5),
    # templates
    (workflow("  - id: a\n    tool: t\n    args:\n      x: '{{ inputs.x'\n"), "invalid_template", 6),
    (workflow("  - id: a\n    tool: t\n    args:\n      b: ['{{}}']\n"), "invalid_template", 6),
    (workflow("  - id: a\n    tool: t\n    args: {v: '{{ a b }}'}\n"), "invalid_template", 5),
    (workflow("  - id: p\n    kind: timer\n    delay_ms: '{{ secrets.X }}'\n"), "misplaced_secret", 5),
]


@pytest.mark.parametrize("args", ["{{ inputs }}", "  {{ inputs.all }} "])
def test_arguments_may_be_one_placeholder_for_a_whole_mapping(args: str) -> None:
    WorkflowSpec.from_yaml_str(workflow(f"  - {{id: a, tool: t, args: '{args}'}}\n")).validate()


def test_a_stored_definition_keeps_arguments_and_labels_that_are_refused_today() -> None:
    stored = '{"name":"w","labels":{"":"x"},"steps":[{"id":"a","kind":"tool","tool":"t","args":[1]}]}'
    spec = WorkflowSpec.from_stored(stored)
    spec.validate()
    assert (spec.labels, spec.to_data()["steps"][0]["args"]) == ({"": "x"}, [1])


@pytest.mark.parametrize(("text", "code", "line"), BROKEN)
def test_a_mistake_is_reported_once_with_its_code_and_line(text: str, code: str, line: int) -> None:
    assert [(problem.code, problem.line) for problem in problems_of(text)] == [(code, line)]


@pytest.mark.parametrize("text", [text for text, _, _ in BROKEN])
def test_a_problem_says_where_and_what(text: str) -> None:
    for problem in problems_of(text):
        assert problem.source == "w.yaml"
        assert problem.column >= 1
        assert problem.message and problem.hint
        assert problem.pointer or problem.line == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: w\nsteps: []", "workflow spec must declare at least one step"),
        (workflow("  - {id: '', tool: t}\n"), "empty step id"),
        (workflow(A + A), 'duplicate step id: "a"'),
        (workflow("  - {id: a, tool: bad/tool}\n"), 'step "a": invalid tool name "bad/tool": '),
        (workflow("  - {id: g, kind: branch, on: a.b}\n"), 'step "g": invalid JSONPath expression '),
        (workflow("  - {id: a, tool: t, args: {v: '{{ nope }}'}}\n"), 'references unknown identifier "nope"'),
        (
            workflow("  - {id: a, kind: x}\n"),
            "the kinds are tool, tool_remote, service, foreach, parallel, branch, workflow, approve, timer, wait",
        ),
    ],
)
def test_messages_have_the_words_that_users_know(text: str, message: str) -> None:
    assert message in problems_of(text)[0].message


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (workflow(A, lables="{}"), "labels"),
        (workflow("  - {id: a, tool: t, arg: 1}\n"), "args"),
        (workflow("  - {id: a, kind: forech, items: $.x}\n"), "foreach"),
        (workflow("  - {id: a, items: $.x}\n"), "kind: foreach"),
        (workflow("  - {id: a, tool: bad/tool}\n"), "bad_tool"),
        (workflow("  - {id: a, tool: t, args: {v: '{{ input.x }}'}}\n"), "inputs"),
        (workflow(A + "  - {id: b, tool: t, args: {v: '{{ steps.aa.output }}'}}\n"), "did you mean a?"),
        (workflow(A, inputs="{root: {type: str}}"), "string"),
        (workflow("  - {id: a, tool: t, args: {v: '{{ inputs.rot }}'}}\n", inputs="{root: {}}"), "root"),
        (workflow(A + A), "line 3"),
        (workflow("  - {id: a, tool: t, on_crash: retri}\n"), "retry"),
        (workflow("  - {id: a, tool: t, retry: {max_attempts: 2, backoff: LINEAR}}\n"), "linear"),
        (workflow(A, inputs="{x: {type: string, default: ~}}"), "add 'null' to its types"),
    ],
)
def test_a_hint_says_what_was_probably_meant(text: str, hint: str) -> None:
    assert hint in problems_of(text)[0].hint


def test_all_problems_of_a_file_are_reported_at_once_in_their_order() -> None:
    text = workflow(
        "  - {id: a, tool: bad/tool, retry: {}}\n"
        "  - {id: a, kind: foreach, as: 3, steps: [{id: '', tool: t, arg: 1}]}\n"
        "  - {id: c, kind: branch, on: x, then: 5}\n"
        "  - {id: d, tool: t, args: {v: '{{'}}\n",
        onrestart="x",
    )
    assert [(problem.line, problem.code) for problem in problems_of(text)] == [
        (2, "unknown_key"),
        (4, "invalid_tool_name"),
        (4, "missing_key"),
        (5, "missing_key"),
        (5, "duplicate_id"),
        (5, "wrong_type"),
        (5, "empty_id"),
        (5, "unknown_key"),
        (6, "invalid_jsonpath"),
        (6, "wrong_type"),
        (7, "invalid_template"),
    ]


def test_every_unknown_name_of_a_text_is_reported() -> None:
    assert len(problems_of(workflow("  - {id: a, tool: t, args: {v: '{{ x }} {{ y }}'}}\n"))) == 2


def test_names_are_not_judged_while_the_steps_they_could_mean_are_unreadable() -> None:
    text = workflow(
        "  - {id: a, kind: zzz, steps: [{id: inner_of_a, tool: t}]}\n"
        "  - {id: b, tool: t, args: {v: '{{ inner_of_a }}'}}\n"
    )
    assert [problem.code for problem in problems_of(text)] == ["unknown_kind"]


def test_a_problem_in_json_has_its_place_too() -> None:
    text = json.dumps({"name": "w", "steps": [{"id": "a", "tool": "bad/tool"}]}, indent=2)
    assert [(problem.line, problem.column) for problem in problems_of(text)] == [(6, 15)]


def test_data_that_is_not_json_is_refused() -> None:
    with pytest.raises(InvalidSpec):
        WorkflowSpec.from_data({"name": "w", "steps": [{"id": "a", "tool": "t", "args": float("nan")}]})


def test_a_spec_made_by_hand_meets_the_same_rules() -> None:
    step = WorkflowStep("a", "tool", ToolBody("t"), policy=StepPolicy(timeout_secs=-1))
    with pytest.raises(InvalidSpec) as refused:
        WorkflowSpec("w", steps=(step,)).validate()
    assert refused.value.problems[0].code == "invalid_policy"


def test_a_spec_made_by_hand_with_the_wrong_kind_is_refused() -> None:
    with pytest.raises(InvalidSpec):
        WorkflowSpec("w", steps=(WorkflowStep("a", "timer", ToolBody("t")),)).validate()


def test_too_many_steps_are_refused() -> None:
    steps = [{"id": f"s{i}", "tool": "t"} for i in range(10_001)]
    with pytest.raises(InvalidSpec) as refused:
        WorkflowSpec.from_data({"name": "w", "steps": steps}).validate()
    assert refused.value.problems[0].code == "too_many_steps"


def test_a_large_definition_full_of_misspelt_names_is_judged_quickly() -> None:
    good = [{"id": f"step_{i}", "tool": "t"} for i in range(490)]
    bad = [{"id": f"bad_{i}", "tool": "t", "args": f"{{{{ stpe_{i} }}}}"} for i in range(5000)]
    spec = WorkflowSpec.from_data({"name": "w", "steps": good + bad})
    began = time.thread_time()
    with pytest.raises(InvalidSpec):
        spec.validate()
    assert time.thread_time() - began < 5


# -------------------------------------------------------------------------------------------------- visibility

LOOP = "  - {id: loop, kind: foreach, items: $.inputs.x, as: f, steps: [{id: body, tool: t}]}\n"
PAR = "  - {id: par, kind: parallel, branches: [[{id: l, tool: t}], [{id: r, tool: t}]]}\n"
BRANCH = "  - {id: br, kind: branch, on: $.inputs.x, then: [{id: th, tool: t}], else: [{id: el, tool: t}]}\n"


@pytest.mark.parametrize(
    ("args", "before", "code"),
    [
        ("{{ inputs.anything }}", "", ""),
        ("{{ inputs }}", "", ""),
        ("{{ secrets.KEY }}", "", ""),
        ("{{ steps.a.output.x }} {{ steps.a.file_refs[0].uri }} {{ a.x }}", A, ""),
        ("{{ item }}", "", "unknown_root"),
        ("{{ nope }}", A, "unknown_root"),
        ("{{ steps.nope.output }}", A, "unknown_step"),
        ("{{ last }}", "", "out_of_scope"),
        ("{{ steps.last.output }}", "", "out_of_scope"),
        ("{{ loop.iterations }}", LOOP, ""),
        ("{{ body }}", LOOP, "out_of_scope"),
        ("{{ steps.body.output }}", LOOP, "out_of_scope"),
        ("{{ f }}", LOOP, "unknown_root"),
        ("{{ l }} {{ steps.r.output }} {{ par }}", PAR, ""),
        ("{{ th }} {{ el }} {{ br.taken }}", BRANCH, ""),
    ],
)
def test_a_step_sees_what_ran_before_it(args: str, before: str, code: str) -> None:
    assert reference_problem(args, before) == code


VISIBLE = [
    """
  - id: a
    tool: t
  - id: p
    kind: parallel
    branches: [[{id: x, tool: t}, {id: y, tool: t, args: {v: "{{ x }} {{ a }}"}}]]
""",
    """
  - id: p
    kind: foreach
    items: $.inputs.x
    as: f
    steps:
      - id: q
        kind: foreach
        items: $.f.parts
        as: g
        steps: [{id: x, tool: t, args: {v: "{{ f }} {{ g }} {{ item }}"}}]
""",
    """
  - id: p
    kind: parallel
    steps: [{id: b, kind: branch, on: $.inputs, then: [{id: x, tool: t}]}]
  - {id: y, tool: t, args: {v: "{{ x }}"}}
""",
]


@pytest.mark.parametrize("steps", VISIBLE, ids=["same branch and before", "bindings around", "inner branch"])
def test_what_can_be_seen_can_be_named(steps: str) -> None:
    WorkflowSpec.from_yaml_str(workflow(steps)).validate()


HIDDEN = {
    "a later step": """
  - {id: b, tool: t, args: {v: "{{ c }}"}}
  - {id: c, tool: t}
""",
    "a sibling step of a parallel": """
  - id: p
    kind: parallel
    steps: [{id: x, tool: t}, {id: y, tool: t, args: {v: "{{ x }}"}}]
""",
    "a sibling branch of a parallel": """
  - id: p
    kind: parallel
    branches: [[{id: x, tool: t}], [{id: y, tool: t, args: {v: "{{ x }}"}}]]
""",
    "the other side of a branch": """
  - id: p
    kind: branch
    on: $.inputs
    then: [{id: x, tool: t}]
    else: [{id: y, tool: t, args: {v: "{{ x }}"}}]
""",
    "the step around it": """
  - id: p
    kind: parallel
    steps: [{id: x, tool: t, args: {v: "{{ p }}"}}]
""",
    "a step of an inner loop, after it": """
  - id: p
    kind: foreach
    items: $.inputs.x
    steps:
      - {id: q, kind: foreach, items: $.item, steps: [{id: x, tool: t}]}
      - {id: y, tool: t, args: {v: "{{ x }}"}}
""",
    "a step of a loop in a parallel, after it": """
  - id: p
    kind: parallel
    steps: [{id: q, kind: foreach, items: $.inputs, steps: [{id: z, tool: t}]}]
  - {id: y, tool: t, args: {v: "{{ z }}"}}
""",
}


@pytest.mark.parametrize("steps", HIDDEN.values(), ids=HIDDEN.keys())
def test_what_cannot_be_seen_is_out_of_scope(steps: str) -> None:
    assert [problem.code for problem in problems_of(workflow(steps))] == ["out_of_scope"]


@pytest.mark.parametrize("items", ["$.f", "$.item"])
def test_the_items_of_a_loop_do_not_see_its_own_item(items: str) -> None:
    text = workflow(f"  - {{id: p, kind: foreach, items: {items}, as: f}}\n")
    assert [problem.code for problem in problems_of(text)] == ["unknown_root"]


@pytest.mark.parametrize(
    ("inputs", "args", "code"),
    [
        ("{x: {type: string}}", "{{ x }} {{ inputs.x }}", ""),
        ("{x: {type: string}}", "{{ inputs.y }}", "unknown_input"),
        ("{type: object, properties: {x: {}}}", "{{ x }} {{ inputs.y }}", ""),
        (
            "{type: object, properties: {x: {}}, additionalProperties: false}",
            "{{ inputs.y }}",
            "unknown_input",
        ),
        ("{item: {}}", "{{ item }}", ""),
    ],
)
def test_inputs_are_seen_by_their_names(inputs: str, args: str, code: str) -> None:
    assert reference_problem(args, inputs=inputs) == code


@pytest.mark.parametrize("inputs", ["{}", "{env: {}}"])
def test_a_name_of_the_environment_is_unknown_unless_a_setting_allows_it(inputs: str) -> None:
    text = workflow("  - {id: a, tool: t, args: {v: '{{ env.HOME }}'}}\n", inputs=inputs)
    (problem,) = problems_of(text)
    assert problem.code == "unknown_root"
    assert '"env.HOME"' in problem.message
    assert problem.hint == "env names must be allowed by the setting template_env"


def test_the_environment_is_never_proposed() -> None:
    (problem,) = problems_of(workflow("  - {id: a, tool: t, args: {v: '{{ envs.HOME }}'}}\n"))
    assert (problem.code, problem.hint) == ("unknown_root", "the names known here are inputs, secrets, steps")


def test_names_that_stand_for_two_things_are_noted() -> None:
    text = workflow("  - {id: inputs, tool: t}\n  - {id: x, tool: t}\n", inputs="{x: {}, steps: {}}")
    spec = WorkflowSpec.from_yaml_str(text)
    spec.validate()
    assert [(note.code, note.pointer) for note in spec.notes] == [
        ("shadowed", "/inputs/steps"),
        ("shadowed", "/steps/0/id"),
        ("shadowed", "/steps/1/id"),
    ]


def test_an_item_that_hides_another_name_is_noted() -> None:
    text = workflow(
        "  - {id: a, tool: t}\n  - {id: l, kind: foreach, items: $.inputs.x, as: a}\n", inputs="{x: {}}"
    )
    spec = WorkflowSpec.from_yaml_str(text)
    spec.validate()
    assert [(note.code, note.pointer) for note in spec.notes] == [("shadowed", "/steps/1/as")]


def test_jitter_outside_its_range_is_clamped_and_noted() -> None:
    spec = WorkflowSpec.from_yaml_str(workflow("  - {id: a, tool: t, retry: {max_attempts: 2, jitter: 3}}\n"))
    assert spec.steps[0].policy.retry == RetryPolicy(2, jitter=1.0)
    assert [(note.code, note.line) for note in spec.notes] == [("clamped", 3)]


def test_two_containers_with_one_id_are_reported_once() -> None:
    text = workflow(
        "  - {id: p, kind: parallel}\n"
        "  - {id: b, tool: t, args: {v: '{{ x }}'}}\n"
        "  - {id: p, kind: parallel, steps: [{id: x, tool: t}]}\n"
    )
    assert [problem.code for problem in problems_of(text)] == ["out_of_scope", "duplicate_id"]


# ------------------------------------------------------------------------------------------------------- scope

NESTED = WorkflowSpec.from_data(
    {
        "name": "w",
        "inputs": {"size": {"type": "integer"}},
        "steps": [
            {"id": "a b", "tool": "t"},
            {
                "id": "par",
                "kind": "parallel",
                "branches": [
                    [{"id": "l", "tool": "t"}],
                    [{"id": "br", "kind": "branch", "on": "$.l", "then": [{"id": "in", "tool": "t"}]}],
                ],
            },
            {
                "id": "outer",
                "kind": "foreach",
                "items": "$.size",
                "as": "row",
                "steps": [
                    {"id": "first", "tool": "t"},
                    {
                        "id": "inner",
                        "kind": "foreach",
                        "items": "$.row",
                        "as": "cell",
                        "steps": [{"id": "x", "tool": "t"}, {"id": "probe", "tool": "t"}],
                    },
                ],
            },
            {"id": "end", "tool": "t"},
        ],
    }
)


def scope_at(spec: WorkflowSpec, target: str) -> Scope:
    """The scope in which a step is read, walked to as a compiler walks."""

    def visit(steps: tuple[WorkflowStep, ...], scope: Scope) -> Scope | None:
        for step in steps:
            if step.id == target:
                return scope
            for block in blocks(step):
                found = visit(block.steps, scope.inside(step, block))
                if found:
                    return found
            scope.finish(step)
        return None

    scope = visit(spec.steps, Scope.of(spec))
    assert scope
    return scope


@pytest.mark.parametrize(
    ("step", "address"),
    [
        ("a b", StepAddress(0, '["a b"]')),
        ("par", StepAddress(0, "par")),
        ("l", StepAddress(0, "par[0].l")),
        ("br", StepAddress(0, "par[1].br")),
        ("in", StepAddress(0, "par[1].br.in")),
        ("first", StepAddress(1, "first")),
        ("x", StepAddress(2, "x")),
        ("probe", None),
        ("end", None),
        ("nowhere", None),
    ],
)
def test_the_address_of_a_step_starts_in_the_frame_that_it_shares(
    step: str, address: StepAddress | None
) -> None:
    assert scope_at(NESTED, "probe").step(step) == address


@pytest.mark.parametrize(
    ("name", "depth"), [("row", 1), ("cell", 2), ("item", 2), ("size", None), ("first", None)]
)
def test_a_binding_is_found_in_the_frame_of_its_item(name: str, depth: int | None) -> None:
    assert scope_at(NESTED, "probe").binding(name) == depth


@pytest.mark.parametrize(
    ("name", "meaning"),
    [("row", "binding"), ("size", "input"), ("first", "step"), ("end", None), ("zzz", None)],
)
def test_a_bare_name_means_the_nearest_thing_of_that_name(name: str, meaning: str | None) -> None:
    assert scope_at(NESTED, "probe").lookup(name) == meaning


@pytest.mark.parametrize(
    ("at", "step", "reason"),
    [
        ("end", "x", 'inside the foreach "outer"'),
        ("probe", "inner", "not over"),
        ("probe", "probe", "does not run before"),
        ("probe", "end", "does not run before"),
        ("br", "l", 'another branch of "par"'),
        ("l", "in", 'another branch of "par"'),
        ("end", "in", None),
        ("end", "zzz", None),
    ],
)
def test_a_hidden_step_has_a_reason(at: str, step: str, reason: str | None) -> None:
    found = scope_at(NESTED, at).hidden(step)
    assert found is None if reason is None else reason in (found or "")


# --------------------------------------------------------------------------------------------------- policies


def test_a_container_gives_its_policy_to_the_calls_inside() -> None:
    spec = WorkflowSpec.from_yaml_str(
        workflow(
            "  - id: p\n    kind: parallel\n    timeout_secs: 9\n    retry: {max_attempts: 9}\n    steps:\n"
            "    - id: l\n      kind: foreach\n      items: $.inputs.x\n      timeout_secs: 5\n      steps:\n"
            "      - id: b\n        kind: branch\n        on: $.item\n"
            "        then: [{id: call, tool: t, retry: {max_attempts: 2}}]\n"
        )
    )
    spec.validate()
    around = NO_POLICY
    steps = spec.steps
    while steps[0].id != "call":
        around = policy_inside(steps[0], around)
        steps = blocks(steps[0])[0].steps
    assert around == StepPolicy(timeout_secs=5, retry=RetryPolicy(max_attempts=9))
    assert steps[0].policy.within(around) == StepPolicy(timeout_secs=5, retry=RetryPolicy(max_attempts=2))


# ----------------------------------------------------------------------------------------------------- inputs

SHORT = "{root: {type: string, default: /tmp}, limit: {type: integer}}"
SCHEMA = (
    "{type: object, required: [limit], properties: "
    "{root: {type: string, default: /tmp}, limit: {type: integer}}}"
)


@pytest.mark.parametrize("declared", [SHORT, SCHEMA])
def test_defaults_are_filled_in(declared: str) -> None:
    spec = WorkflowSpec.from_yaml_str(workflow(A, inputs=declared))
    assert with_defaults(spec, {"limit": 3}) == {"root": "/tmp", "limit": 3}


@pytest.mark.parametrize("declared", [SHORT, SCHEMA])
@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, 'missing input "limit"'),
        ({"limit": "3"}, 'input "limit" must be integer, not text'),
        ({"limit": True}, 'input "limit" must be integer, not true or false'),
        ({"limit": 1.5}, 'input "limit" must be integer, not a number'),
        ({"limit": 1, "root": None}, 'input "root" must be string, not null'),
        ({"root": 3}, 'missing input "limit"; input "root" must be string'),
    ],
)
def test_inputs_that_do_not_fit_are_refused(declared: str, inputs: dict[str, Any], message: str) -> None:
    spec = WorkflowSpec.from_yaml_str(workflow(A, inputs=declared))
    with pytest.raises(InvalidInputs) as refused:
        with_defaults(spec, inputs)
    assert message in str(refused.value)


def test_an_undeclared_input_is_refused_with_the_nearest_name() -> None:
    spec = WorkflowSpec.from_yaml_str(workflow(A, inputs=SHORT))
    with pytest.raises(InvalidInputs, match=r'unknown input "limits" \(did you mean limit\?\)'):
        with_defaults(spec, {"limit": 1, "limits": 2})


def test_inputs_that_are_no_object_are_refused() -> None:
    with pytest.raises(InvalidInputs):
        with_defaults(full(), [1])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("types", "value"),
    [
        ("integer", 1.0),
        ("integer", 10**400),
        ("number", 1),
        ("[string, 'null']", None),
        ("array", []),
        ("object", {}),
    ],
)
def test_values_of_the_declared_type_are_taken(types: str, value: Any) -> None:
    spec = WorkflowSpec.from_yaml_str(workflow(A, inputs=f"{{x: {{type: {types}}}}}"))
    assert with_defaults(spec, {"x": value}) == {"x": value}


def test_without_a_declaration_any_input_is_taken() -> None:
    spec = WorkflowSpec.from_yaml_str(workflow(A))
    assert input_names(spec.inputs) is None
    assert with_defaults(spec, {"x": 1}) == {"x": 1}


@pytest.mark.parametrize("declared", ["{}", "{x: {}}"])
def test_the_inputs_of_a_run_are_not_those_of_the_caller(declared: str) -> None:
    sent = {"x": 1}
    filled = with_defaults(WorkflowSpec.from_yaml_str(workflow(A, inputs=declared)), sent)
    assert filled == sent and filled is not sent


def test_a_default_is_not_shared_between_runs() -> None:
    spec = WorkflowSpec.from_yaml_str(workflow(A, inputs="{x: {type: array, default: []}}"))
    with_defaults(spec, {})["x"].append(1)
    assert with_defaults(spec, {}) == {"x": []}


@pytest.mark.parametrize(
    ("declared", "names_known"),
    [
        (SHORT, {"root", "limit"}),
        (SCHEMA, None),
        ("{additionalProperties: false, properties: {x: {}}}", {"x"}),
        ("{type: {type: string}}", {"type"}),
        ("{properties: {type: array}}", {"properties"}),
    ],
)
def test_the_two_forms_of_inputs_are_told_apart(declared: str, names_known: set[str] | None) -> None:
    spec = WorkflowSpec.from_yaml_str(workflow(A, inputs=declared))
    assert input_names(spec.inputs) == names_known


@pytest.mark.parametrize("step", ["- {{id: s{}, tool: t}}\n", "- {{id: s{},tool: t,args: {{a: 1}}}}\n"])
def test_ten_thousand_steps_in_a_text_of_the_largest_size_are_valid(step: str) -> None:
    count = min(10_000, (limits.now.spec_bytes_max - 20) // len(step.format(9_999)))
    text = "name: w\nsteps:\n" + "".join(step.format(i) for i in range(count))
    assert count > 7_000 and len(text) <= limits.now.spec_bytes_max
    spec = WorkflowSpec.from_yaml_str(text)
    assert spec.step_count == count
