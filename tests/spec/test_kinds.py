"""Every kind of step and every key: what it becomes, and that it survives being written."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import InvalidSpec
from holdfast.spec.policy import NO_POLICY, RetryPolicy, StepPolicy
from holdfast.spec.steps import (
    PLAIN_ANSWER,
    Answer,
    ApproveBody,
    Body,
    Escalation,
    FinalCallback,
    NestedBody,
    PollBody,
    PollRule,
    Quorum,
    RemoteBody,
    ResultRule,
    ServiceBody,
    ToolBody,
    WaitEventBody,
    WorkflowStep,
)
from holdfast.spec.workflow import WorkflowSpec


def spec_of(*steps: dict[str, Any], **top: Any) -> WorkflowSpec:
    spec = WorkflowSpec.from_data({"name": "w", "steps": list(steps), **top})
    spec.validate()
    return spec


def step_of(**keys: Any) -> WorkflowStep:
    return spec_of({"id": "a", **keys}).steps[0]


BODIES: list[tuple[dict[str, Any], str, Body]] = [
    ({"tool": "t"}, "tool", ToolBody("t")),
    ({"tool": "t", "dcc": "maya"}, "tool_remote", RemoteBody("maya", "t")),
    ({"tool": "t", "server": "maya", "args": {"n": 1}}, "tool_remote", RemoteBody("maya", "t", {"n": 1})),
    ({"kind": "tool_remote", "tool": "t", "dcc": "maya"}, "tool_remote", RemoteBody("maya", "t")),
    ({"service": "s"}, "service", ServiceBody("s")),
    (
        {
            "service": "s",
            "input": 1,
            "params": {"p": 2},
            "max_attempts": 3,
            "attempt_delay_ms": 4,
            "weighted_by_load": True,
        },
        "service",
        ServiceBody("s", 1, {"p": 2}, 3, 4, True),
    ),
    ({"workflow": "other"}, "workflow", NestedBody("other")),
    ({"workflow": "other", "inputs": {"x": 1}}, "workflow", NestedBody("other", {"x": 1})),
    ({"kind": "approve"}, "approve", ApproveBody()),
    (
        {
            "kind": "approve",
            "prompt": "sure?",
            "timeout_secs": 60,
            "form": {"type": "object", "properties": {"why": {"type": "string"}}},
            "quorum": {"need": 2, "of": ["ann", "bob", "eve"]},
            "escalate": {"after_secs": 30, "to": "boss"},
        },
        "approve",
        ApproveBody(
            "sure?",
            60.0,
            {"type": "object", "properties": {"why": {"type": "string"}}},
            Quorum(2, ("ann", "bob", "eve")),
            Escalation(30.0, "boss"),
        ),
    ),
    ({"kind": "wait_event", "signal_key": "go"}, "wait_event", WaitEventBody("go")),
    (
        {"kind": "wait_event", "any": ["x", "y"], "correlation": {"order": 7}, "timeout_secs": 5},
        "wait_event",
        WaitEventBody(None, ("x", "y"), None, {"order": 7}, 5.0),
    ),
    ({"kind": "wait_event", "all": ["x"]}, "wait_event", WaitEventBody(None, None, ("x",))),
    ({"kind": "poll", "tool": "t", "until": "$.done"}, "poll", PollBody("$.done", "t")),
    (
        {"kind": "poll", "service": "s", "input": 1, "until": "$.done", "interval_ms": 10, "max_ms": 20},
        "poll",
        PollBody("$.done", service="s", input=1, interval_ms=10, max_ms=20),
    ),
    (
        {"kind": "poll", "tool": "t", "dcc": "maya", "args": {}, "until": "$.done", "timeout_secs": 9},
        "poll",
        PollBody("$.done", "t", "maya", {}, timeout_secs=9.0),
    ),
]


@pytest.mark.parametrize(("keys", "kind", "body"), BODIES)
def test_a_step_becomes_the_record_of_its_kind(keys: dict[str, Any], kind: str, body: Body) -> None:
    step = step_of(**keys)
    assert (step.kind, step.body) == (kind, body)


@pytest.mark.parametrize("keys", [keys for keys, _, _ in BODIES])
def test_a_step_of_any_kind_survives_being_written(keys: dict[str, Any]) -> None:
    spec = spec_of({"id": "a", **keys})
    assert WorkflowSpec.from_yaml_str(spec.to_yaml()) == spec
    assert WorkflowSpec.from_data(spec.to_data()).canonical() == spec.canonical()


def test_a_kind_that_goes_without_saying_is_not_written() -> None:
    steps = [step for keys, _, _ in BODIES for step in spec_of({"id": "a", **keys}).to_data()["steps"]]
    silent = {"tool", "tool_remote", "service", "workflow"}
    assert {step["kind"] for step in steps if "kind" in step} == {"approve", "wait_event", "poll"}
    assert all("kind" not in step for step, (_, kind, _) in zip(steps, BODIES, strict=True) if kind in silent)


# -------------------------------------------------------------------------------------------------------- calls


@pytest.mark.parametrize("call", [{"tool": "t"}, {"tool": "t", "dcc": "maya"}, {"service": "s"}])
def test_every_call_takes_every_rule(call: dict[str, Any]) -> None:
    step = step_of(
        **call,
        timeout_secs=5,
        retry={"max_attempts": 2},
        on_crash="fail",
        idempotency_key="k_{{ inputs.x }}",
        idempotency_scope="global",
        idempotency_ttl_secs=60,
        on_conflict="fail",
        pending_ttl_secs=3600,
        poll={"interval_ms": 10, "max_ms": 100},
        supports_async_callback=True,
        result={"envelope": True, "select": "$.data[0]", "parse": "json"},
    )
    assert step.policy == StepPolicy(5.0, RetryPolicy(2), "fail", "k_{{ inputs.x }}", "global", 60, "fail")
    assert step.answer == Answer(ResultRule(True, "$.data[0]", "json"), 3600.0, PollRule(10, 100), True)
    spec = WorkflowSpec("w", steps=(step,))
    assert WorkflowSpec.from_yaml_str(spec.to_yaml()) == spec


def test_nothing_said_about_a_call_is_nothing() -> None:
    step = step_of(tool="t")
    assert step.policy == NO_POLICY and step.policy.is_empty
    assert step.answer == PLAIN_ANSWER


def test_a_lifetime_of_zero_is_none() -> None:
    assert step_of(tool="t", idempotency_key="k", idempotency_ttl_secs=0).policy.idempotency_ttl_secs is None


@pytest.mark.parametrize("key", ["fixed", "{{ inputs.x }}", "a-{{x}}-{{ inputs.y.z }}", "{{ my-step.id }}"])
def test_a_key_is_text_with_dotted_names(key: str) -> None:
    spec = spec_of(
        {"id": "my-step", "tool": "t"},
        {"id": "b", "tool": "t", "idempotency_key": key},
        inputs={"x": {}, "y": {}},
    )
    assert spec.steps[1].policy.idempotency_key == key


def test_a_bad_key_is_refused_when_read_and_an_unknown_name_when_validated() -> None:
    with pytest.raises(ValueError, match="dotted names"):
        WorkflowSpec.from_data(
            {"name": "w", "steps": [{"id": "a", "tool": "t", "idempotency_key": "{{ inputs.x[0] }}"}]}
        )
    spec = WorkflowSpec.from_data(
        {"name": "w", "steps": [{"id": "a", "tool": "t", "idempotency_key": "{{ nope }}"}]}
    )
    with pytest.raises(ValueError, match='references unknown identifier "nope"'):
        spec.validate()


@pytest.mark.parametrize("key", ["idempotency_scope", "idempotency_ttl_secs", "on_conflict"])
def test_a_rule_for_keys_without_a_key_is_noted(key: str) -> None:
    value = {"idempotency_scope": "global", "idempotency_ttl_secs": 5, "on_conflict": "fail"}[key]
    spec = spec_of({"id": "a", "tool": "t", key: value})
    assert [(note.code, note.pointer) for note in spec.notes] == [("without_effect", f"/steps/0/{key}")]


@pytest.mark.parametrize(
    "container",
    [
        {"kind": "foreach", "items": "$.inputs.x"},
        {"kind": "parallel"},
        {"kind": "branch", "on": "$.inputs.x"},
        {"kind": "timer", "delay_ms": 1},
        {"kind": "approve"},
        {"kind": "wait_event", "signal_key": "x"},
        {"workflow": "other"},
    ],
)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("idempotency_key", "k"),
        ("idempotency_scope", "global"),
        ("idempotency_ttl_secs", 5),
        ("on_conflict", "wait"),
        ("on_crash", "retry"),
        ("pending_ttl_secs", 5),
        ("poll", {}),
        ("supports_async_callback", True),
        ("result", {}),
    ],
)
def test_what_concerns_calls_is_refused_elsewhere(container: dict[str, Any], key: str, value: Any) -> None:
    with pytest.raises(InvalidSpec) as refused:
        WorkflowSpec.from_data({"name": "w", "steps": [{"id": "a", **container, key: value}]})
    assert [(problem.code, problem.pointer) for problem in refused.value.problems] == [
        ("invalid_policy", f"/steps/0/{key}")
    ]


def test_a_container_hands_on_time_limit_and_retries_but_no_key() -> None:
    own = StepPolicy(idempotency_key="k", idempotency_scope="global", on_conflict="fail")
    around = StepPolicy(timeout_secs=5, retry=RetryPolicy(3))
    assert own.within(around) == StepPolicy(5, RetryPolicy(3), "retry", "k", "global", None, "fail")


# ------------------------------------------------------------------------------------------------ the top level


def test_whom_to_tell_at_the_end_is_read_and_written() -> None:
    callbacks = [{"url": "https://x.y/z", "secret_env": "KEY"}, {"url": "http://127.0.0.1:8070/done"}]
    spec = spec_of({"id": "a", "tool": "t"}, on_complete=callbacks)
    assert spec.on_complete == (
        FinalCallback("https://x.y/z", "KEY"),
        FinalCallback("http://127.0.0.1:8070/done"),
    )
    assert WorkflowSpec.from_yaml_str(spec.to_yaml()) == spec


# ------------------------------------------------------------------------------------ the environment, and secrets

ENV = {"name": "w", "steps": [{"id": "a", "tool": "t", "args": "{{ env.HOME }}"}]}


def test_a_variable_of_the_environment_can_be_named_if_it_is_allowed() -> None:
    WorkflowSpec.from_data(ENV).validate(template_env=["HOME"])


@pytest.mark.parametrize(("allowed", "hint"), [((), "template_env"), (("HOMES",), "did you mean HOMES?")])
def test_a_variable_that_is_not_allowed_is_unknown(allowed: tuple[str, ...], hint: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        WorkflowSpec.from_data(ENV).validate(template_env=allowed)
    (problem,) = refused.value.problems
    assert problem.code == "unknown_root"
    assert 'references unknown identifier "env.HOME"' in problem.message
    assert hint in problem.hint


def test_a_wrong_shape_elsewhere_does_not_make_a_variable_unknown() -> None:
    with pytest.raises(InvalidSpec) as refused:
        WorkflowSpec.from_data(ENV | {"lables": {}})
    assert [problem.code for problem in refused.value.problems] == ["unknown_key"]


SECRET = "Bearer {{ secrets.KEY }}"


@pytest.mark.parametrize(
    "step",
    [
        {"tool": "t", "args": {"a": [SECRET]}},
        {"tool": "t", "dcc": "maya", "args": {"v": SECRET}},
        {"service": "s", "input": SECRET, "params": {"p": SECRET}},
        {"kind": "poll", "tool": "t", "args": {"v": SECRET}, "until": "$.x"},
    ],
)
def test_secrets_may_stand_in_what_a_call_is_given(step: dict[str, Any]) -> None:
    spec_of({"id": "a", **step})


@pytest.mark.parametrize(
    ("step", "top"),
    [
        ({"tool": "t", "idempotency_key": SECRET}, {}),
        ({"kind": "approve", "prompt": SECRET}, {}),
        ({"kind": "wait_event", "signal_key": SECRET}, {}),
        ({"kind": "wait_event", "any": [SECRET]}, {}),
        ({"kind": "wait_event", "signal_key": "x", "correlation": SECRET}, {}),
        ({"kind": "timer", "delay_ms": SECRET}, {}),
        ({"workflow": "other", "inputs": {"x": SECRET}}, {}),
        ({"tool": "t"}, {"output": {"x": SECRET}}),
    ],
)
def test_secrets_may_stand_nowhere_else(step: dict[str, Any], top: dict[str, Any]) -> None:
    spec = WorkflowSpec.from_data({"name": "w", "steps": [{"id": "a", **step}], **top})
    with pytest.raises(InvalidSpec) as refused:
        spec.validate()
    assert [problem.code for problem in refused.value.problems] == ["misplaced_secret"]


@pytest.mark.parametrize("path", ["$.secrets.KEY", "$['secrets']"])
def test_a_path_cannot_reach_a_secret(path: str) -> None:
    spec = WorkflowSpec.from_data({"name": "w", "steps": [{"id": "a", "kind": "branch", "on": path}]})
    with pytest.raises(InvalidSpec) as refused:
        spec.validate()
    assert [problem.code for problem in refused.value.problems] == ["misplaced_secret"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ("{{ a.x }} {{ steps.a.output }}", ""),
        ("{{ nope }}", "unknown_root"),
        ("{{ steps.last.output }}", "out_of_scope"),
    ],
)
@pytest.mark.parametrize(
    "step",
    [
        {"service": "s", "input": "ARGS"},
        {"service": "s", "params": {"x": "ARGS"}},
        {"tool": "t", "dcc": "maya", "args": {"v": ["ARGS"]}},
        {"workflow": "other", "inputs": {"x": "ARGS"}},
        {"kind": "approve", "prompt": "ARGS"},
        {"kind": "wait_event", "signal_key": "ARGS"},
        {"kind": "wait_event", "signal_key": "x", "correlation": ["ARGS"]},
        {"kind": "poll", "tool": "t", "args": {"v": "ARGS"}, "until": "$.x"},
    ],
)
def test_names_are_looked_up_wherever_a_template_may_stand(
    step: dict[str, Any], args: str, code: str
) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(member) for key, member in value.items()}
        if isinstance(value, list):
            return [filled(member) for member in value]
        return args if value == "ARGS" else value

    steps = [{"id": "a", "tool": "t"}, {"id": "last", **filled(step)}]
    try:
        WorkflowSpec.from_data({"name": "w", "steps": steps}).validate()
        found = ""
    except InvalidSpec as refused:
        found = ",".join(problem.code for problem in refused.problems)
    assert found == code


@pytest.mark.parametrize(
    "rules",
    [
        {"quorum": {"need": 1, "of": []}},
        {"escalate": {"after_secs": 1, "to": []}},
        {"escalate": {"after_secs": 1, "to": [1]}},
        {"escalate": {"after_secs": 1, "to": 5}},
    ],
)
def test_an_approval_that_no_one_could_answer_is_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        WorkflowSpec.from_data({"name": "n", "steps": [{"id": "a", "kind": "approve", **rules}]})
