"""Plain data ⇄ records: the keys of the steps notation, and what each kind of step may say.

Knows which keys and types there are, and the range of each number. Must not know whether a name leads
somewhere: that is asked of the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from holdfast.spec.policy import (
    ATTEMPTS_MAX,
    CONCURRENCY_MAX,
    DELAY_MS_MAX,
    NEVER_RETRIED,
    BackoffKind,
    RetryPolicy,
    StepPolicy,
)
from holdfast.spec.problems import Fields, Report, Where, did_you_mean, quoted, type_name
from holdfast.spec.steps import (
    Body,
    BranchBody,
    Definition,
    ForeachBody,
    Origin,
    ParallelBody,
    TimerBody,
    ToolBody,
    WorkflowStep,
)

AnyDefinition = TypeVar("AnyDefinition", bound=Definition)

_SPEC_KEYS: Final = (
    "name",
    "description",
    "inputs",
    "steps",
    "output",
    "on_restart",
    "timeout_secs",
    "labels",
)


def definition_from(data: Any, report: Report, record: type[AnyDefinition]) -> AnyDefinition:
    """The definition that plain data spell; where the report has problems afterwards, it has holes."""
    if not isinstance(data, dict):
        hint = "it starts with `name:` and `steps:`"
        report.add("wrong_type", (), f"a workflow must be a mapping, not {type_name(data)}", hint)
        raise report.refusal()
    fields = Fields(report, data, (), misfit="invalid_policy")
    fields.expect(_SPEC_KEYS, required=("name",))
    return record(
        name=fields.text("name"),
        description=fields.text("description"),
        inputs=fields.get("inputs", dict, "a mapping") or None,
        steps=_read_steps(fields, "steps"),
        output=fields.data.get("output"),
        on_restart=fields.choice("on_restart", ("resume", "interrupt"), "resume"),
        timeout_secs=fields.seconds("timeout_secs"),
        labels=_read_labels(fields),
        origin=Origin(report.document, report.source, tuple(report.notes)),
    )


def _read_labels(fields: Fields) -> dict[str, str]:
    labels = fields.get("labels", dict, "a mapping") or {}
    inner = Fields(fields.report, labels, (*fields.at, "labels"), "label ")
    return {key: inner.text(key) for key in labels}


def _read_steps(fields: Fields, key: str) -> tuple[WorkflowStep, ...]:
    return _steps_from(fields.get(key, list, "a list of steps") or [], fields.report, (*fields.at, key))


def _steps_from(items: list[Any], report: Report, at: Where) -> tuple[WorkflowStep, ...]:
    steps = (_read_step(report, item, (*at, i)) for i, item in enumerate(items))
    return tuple(step for step in steps if step)


def _read_step(report: Report, data: Any, at: Where) -> WorkflowStep | None:
    if not isinstance(data, dict):
        report.add("wrong_type", at, f"a step must be a mapping, not {type_name(data)}")
        return None
    step_id = data.get("id")
    who = f"step {quoted(step_id)}: " if step_id else ""
    fields = Fields(report, data, at, who, misfit="invalid_policy")
    kind = _kind_of(fields)
    if kind is None:
        # Its keys cannot be judged, but its id can; and an empty parallel has nothing else to be judged.
        return WorkflowStep(fields.text("id"), "parallel", ParallelBody())
    rules = _KINDS[kind]
    fields.expect((*_STEP_KEYS, *_POLICY_KEYS, *rules.keys), required=("id", *rules.required))
    return WorkflowStep(
        id=fields.text("id"),
        kind=kind,
        body=rules.read(fields),
        description=fields.text("description"),
        policy=_read_policy(fields, kind, rules),
    )


def _kind_of(fields: Fields) -> str | None:
    data = fields.data
    if data.get("kind") is None:
        implied = next((kind for key, kind in _IMPLIED_KINDS.items() if key in data), None)
        if implied is None:
            near = [
                kind for kind, rules in _KINDS.items() if rules.required and set(rules.required) <= set(data)
            ]
            hint = f"did you mean kind: {near[0]}?" if near else f"the kinds are {', '.join(_KINDS)}"
            fields.wrong("missing_key", "kind", 'the key "kind" or "tool" is missing', hint)
        return implied
    kind = fields.get("kind", str, "text")
    if kind is None or kind in _KINDS:
        return None if kind is None else str(kind)
    message = f"unknown kind {quoted(kind)}; the kinds are {', '.join(_KINDS)}"
    fields.wrong("unknown_kind", "kind", message, did_you_mean(kind, _KINDS))
    return None


def _read_policy(fields: Fields, kind: str, rules: _Kind) -> StepPolicy:
    for key in _POLICY_KEYS:
        if key in fields.data and key not in rules.policy:
            message = f"{key} has no meaning on a {kind}"
            fields.report.add("invalid_policy", (*fields.at, key), fields.who + message, of_key=True)
    return StepPolicy(
        timeout_secs=fields.seconds("timeout_secs"),
        retry=_read_retry(fields),
        on_crash=fields.choice("on_crash", ("retry", "fail"), "retry"),
    )


_RETRY_KEYS: Final = ("max_attempts", "backoff", "initial_delay_ms", "max_delay_ms", "jitter", "retry_on")


def _read_retry(step: Fields) -> RetryPolicy | None:
    data = step.get("retry", dict, "a mapping")
    if data is None:
        return None
    fields = Fields(step.report, data, (*step.at, "retry"), f"{step.who}retry: ", misfit="invalid_policy")
    fields.expect(_RETRY_KEYS, required=("max_attempts",))
    policy = RetryPolicy(
        max_attempts=fields.integer("max_attempts", 1, 1, ATTEMPTS_MAX),
        backoff=BackoffKind(fields.choice("backoff", tuple(BackoffKind), BackoffKind.EXPONENTIAL)),
        initial_delay_ms=fields.integer("initial_delay_ms", 500, 0, DELAY_MS_MAX),
        max_delay_ms=fields.integer("max_delay_ms", 10_000, 0, DELAY_MS_MAX),
        jitter=_read_jitter(fields),
        retry_on=_read_retry_on(fields),
    )
    if policy.initial_delay_ms > policy.max_delay_ms:
        key = "max_delay_ms" if "max_delay_ms" in data else "initial_delay_ms"
        message = f"initial_delay_ms ({policy.initial_delay_ms}) exceeds max_delay_ms ({policy.max_delay_ms})"
        fields.wrong("invalid_policy", key, message, "give both, the first no larger than the second")
    return policy


def _read_jitter(fields: Fields) -> float:
    value = fields.get("jitter", (int, float), "a number from 0 to 1")
    if value is None:
        return 0.0
    clamped = float(min(max(value, 0), 1))
    if clamped != value:
        message = f"{fields.who}jitter {value} is taken as {clamped}"
        fields.report.note(
            "clamped", (*fields.at, "jitter"), message, "it is a share of the delay, from 0 to 1"
        )
    return clamped


def _read_retry_on(fields: Fields) -> tuple[str, ...] | None:
    kinds = fields.get("retry_on", list, "a list of error kinds")
    if kinds is None:
        return None
    for i, kind in enumerate(kinds):
        at = (*fields.at, "retry_on", i)
        if not isinstance(kind, str):
            message = f"{fields.who}an error kind must be text, not {type_name(kind)}"
            fields.report.add("wrong_type", at, message)
        elif kind in NEVER_RETRIED:
            message = f"{fields.who}errors of kind {quoted(kind)} are never retried"
            fields.report.add("invalid_policy", at, message, "remove it")
    return tuple(kind for kind in kinds if isinstance(kind, str))


def _read_tool(fields: Fields) -> Body:
    return ToolBody(tool=fields.text("tool"), args=fields.data.get("args"))


def _read_foreach(fields: Fields) -> Body:
    return ForeachBody(
        items=fields.text("items"),
        as_=fields.text("as", "item"),
        steps=_read_steps(fields, "steps"),
        concurrency=fields.integer("concurrency", 1, 1, CONCURRENCY_MAX),
        on_any_fail=fields.choice("on_any_fail", ("abort", "continue"), "abort"),
        collect=fields.choice("collect", ("outputs", "none"), "outputs"),
    )


def _read_parallel(fields: Fields) -> Body:
    on_any_fail = fields.choice("on_any_fail", ("abort", "continue"), "abort")
    if fields.data.get("branches") is None:
        branches = tuple((step,) for step in _read_steps(fields, "steps"))
        return ParallelBody(branches, "steps", on_any_fail)
    if fields.data.get("steps") is not None:
        fields.wrong(
            "exclusive_keys", "branches", "steps and branches exclude each other", "keep one of them"
        )
    return ParallelBody(tuple(_read_branches(fields)), "branches", on_any_fail)


def _read_branches(fields: Fields) -> Iterator[tuple[WorkflowStep, ...]]:
    for i, branch in enumerate(fields.get("branches", list, "a list of lists of steps") or []):
        at = (*fields.at, "branches", i)
        if isinstance(branch, list):
            yield _steps_from(branch, fields.report, at)
        else:
            message = f"{fields.who}a branch must be a list of steps, not {type_name(branch)}"
            fields.report.add("wrong_type", at, message, "use `steps` where each branch is one step")


def _read_branch(fields: Fields) -> Body:
    return BranchBody(
        on=fields.text("on"), then=_read_steps(fields, "then"), else_=_read_steps(fields, "else")
    )


def _read_timer(fields: Fields) -> Body:
    given = [key for key in ("delay_ms", "until") if fields.data.get(key) is not None]
    if not given:
        fields.wrong("missing_key", "delay_ms", 'the key "delay_ms" or "until" is missing')
    elif len(given) == 2:
        fields.wrong("exclusive_keys", "until", "delay_ms and until exclude each other", "keep one of them")
    return TimerBody(
        delay_ms=_read_time(fields, "delay_ms", DELAY_MS_MAX), until=_read_time(fields, "until", 2**53)
    )


def _read_time(fields: Fields, key: str, high: int) -> int | float | str | None:
    value: int | float | str | None = fields.get(
        key, (int, float, str), "a number of milliseconds or a template"
    )
    if value is None or isinstance(value, str):
        return value
    if not 0 <= value <= high:
        fields.wrong("out_of_range", key, f"{key} must be from 0 to {high:,}, not {value}")
    return value


class _Kind(NamedTuple):
    """What a kind of step may say: its own keys, those it must have, and the policies that concern it."""

    keys: tuple[str, ...]
    required: tuple[str, ...]
    policy: frozenset[str]
    read: Callable[[Fields], Body]


_STEP_KEYS: Final = ("id", "kind", "description")
_POLICY_KEYS: Final = ("timeout_secs", "retry", "on_crash")
_CALL: Final = frozenset(_POLICY_KEYS)
_CONTAINER: Final = frozenset({"timeout_secs", "retry"})  # the defaults of the call steps inside
_NEITHER: Final = frozenset[str]()

_KINDS: Final = {
    "tool": _Kind(("tool", "args"), ("tool",), _CALL, _read_tool),
    "foreach": _Kind(
        ("items", "as", "steps", "concurrency", "on_any_fail", "collect"),
        ("items",),
        _CONTAINER,
        _read_foreach,
    ),
    "parallel": _Kind(("steps", "branches", "on_any_fail"), (), _CONTAINER, _read_parallel),
    "branch": _Kind(("on", "then", "else"), ("on",), _NEITHER, _read_branch),
    "timer": _Kind(("delay_ms", "until"), (), _NEITHER, _read_timer),
}
_IMPLIED_KINDS: Final = {"tool": "tool"}  # the key that says the kind


# --------------------------------------------------------------------------------------------- records → data


def data_of(definition: Definition) -> dict[str, Any]:
    """A definition as plain data, without what goes without saying."""
    return {key: value for key, value in _struct_data(definition).items() if key != "origin"}


def _step_data(step: WorkflowStep) -> dict[str, Any]:
    data: dict[str, Any] = {"id": step.id}
    body = _body_data(step.body)
    if not any(_IMPLIED_KINDS.get(key) == step.kind for key in body):
        data["kind"] = step.kind
    if step.description:
        data["description"] = step.description
    return data | body | _struct_data(step.policy)


def _body_data(body: Body) -> dict[str, Any]:
    if not isinstance(body, ParallelBody):
        return _struct_data(body)
    data: dict[str, Any] = {}
    if body.form == "branches" or any(len(branch) != 1 for branch in body.branches):
        data["branches"] = _plain(body.branches)
    elif body.branches:
        data["steps"] = [_step_data(step) for (step,) in body.branches]
    if body.on_any_fail != "abort":
        data["on_any_fail"] = body.on_any_fail
    return data


def _struct_data(struct: msgspec.Struct) -> dict[str, Any]:
    """The fields that differ from their defaults, in their order, by their names in the notation."""
    fields = ((key, getattr(struct, name), default) for name, key, default in _fields_of(type(struct)))
    return {key: _plain(value) for key, value, default in fields if value != default}


@cache  # msgspec works this out anew each time, from the annotations
def _fields_of(record: type[msgspec.Struct]) -> tuple[tuple[str, str, Any], ...]:
    return tuple(
        (field.name, field.encode_name, field.default)
        if field.default_factory is msgspec.NODEFAULT
        else (field.name, field.encode_name, field.default_factory())
        for field in msgspec.structs.fields(record)
    )


def _plain(value: Any) -> Any:
    match value:
        case WorkflowStep():
            return _step_data(value)
        case msgspec.Struct():
            return _struct_data(value)
        case tuple() | list():
            return [_plain(item) for item in value]
        case BackoffKind():
            return value.value
        case _:
            return value
