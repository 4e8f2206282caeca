"""Checks the steps of a definition and warns about what is probably not intended.

Knows the rules of each kind of step. What expressions refer to is checked in check_references. Must not know which tools exist, or
the values of a run.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from holdfast import limits
from holdfast.spec import remotes
from holdfast.spec.check_references import ReferenceChecker
from holdfast.spec.conversions import UNKNOWN, number_of
from holdfast.spec.inputs import check_inputs, declared_inputs
from holdfast.spec.jsonschema import check_schema
from holdfast.spec.moments import instant_of
from holdfast.spec.names import check_name
from holdfast.spec.policy import NO_POLICY
from holdfast.spec.problems import Report, Where, quoted
from holdfast.spec.scope import ROOTS, Scope
from holdfast.spec.step_blanks import default_name
from holdfast.spec.step_keys import CALLBACK_URL, TOOL_NAME
from holdfast.spec.step_kinds import KINDS
from holdfast.spec.step_types import PATH
from holdfast.spec.steps import (
    ApproveBody,
    Definition,
    FinalCallback,
    ForeachBody,
    NestedBody,
    PollBody,
    RemoteBody,
    ServiceBody,
    TimerBody,
    ToolBody,
    WaitEventBody,
    WorkflowStep,
    blocks,
    every_step,
    handlers,
)

_TOOL_NAME = re.compile(TOOL_NAME)
_BINDING_NAME = re.compile(r"[^\W\d][\w-]*\Z")
_VARIABLE_NAME = re.compile(r"(?!HOLDFAST_)[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
_URL = re.compile(CALLBACK_URL)
_KEY_RULES: Final = ("idempotency_scope", "idempotency_ttl_secs", "on_conflict")
_EXAMPLE_OF_TIME: Final = {"until": "2026-01-31T09:00:00Z, with a zone", "delay_ms": "5000 for five seconds"}


def check(spec: Definition, report: Report, template_env: Collection[str] | None) -> None:
    """Report every name, path and template that cannot be used.

    `template_env` are the variables of the environment that may be named; None if they are not known yet.
    """
    if not spec.name.strip():
        message, near = "the name of a workflow must not be empty", default_name(report.source)
        report.add("empty_name", ("name",), message, "add a name", near=near)
    check_name(report, ("name",), spec.name)
    check_inputs(spec.inputs, report)
    if not spec.steps:
        hint = "add `- {id: name, tool: name}`"
        report.add("no_steps", ("steps",), "workflow spec must declare at least one step", hint)
    if sum(1 for _ in every_step(spec)) > limits.now.spec_steps_max:
        message = (
            f"the workflow has more than {limits.now.spec_steps_max:,} steps ({limits.met('spec_steps_max')})"
        )
        report.add("too_many_steps", ("steps",), message, "use a foreach, or several workflows")
        return
    scope, references = Scope.of(spec), ReferenceChecker(spec, report, template_env)
    checker = _Checker(report, references)
    for i, step in enumerate(spec.steps):
        checker.step(step, ("steps", i), scope)
    references.templates("", spec.output, ("output",), scope)
    for block in handlers(spec):
        inside = scope.following(None, block)
        for i, step in enumerate(block.steps):
            checker.step(step, (*block.key, i), inside)
            scope.finish(step)
    for i, callback in enumerate(spec.on_complete):
        _check_callback(report, ("on_complete", i), callback)


def _check_callback(report: Report, at: Where, callback: FinalCallback) -> None:
    if not _URL.fullmatch(callback.url):
        hint = "write an https:// or http:// URL without placeholders, user or password"
        message = f"{quoted(callback.url)} is not a callback URL"
        report.add("invalid_url", (*at, "url"), message, hint)
    if callback.secret_env is not None and not _VARIABLE_NAME.match(callback.secret_env):
        message = f"{quoted(callback.secret_env)} is not an environment variable that a callback may use"
        hint = "name the variable that holds the secret, for example secret_env: CALLBACK_KEY; Holdfast's own variables are not allowed"
        near = (
            re.sub(r"\W", "_", callback.secret_env, flags=re.ASCII)
            .lstrip("0123456789_")
            .removeprefix("HOLDFAST_")
        )
        report.add("invalid_name", (*at, "secret_env"), message, hint, near=near or UNKNOWN)


def _who(step: WorkflowStep) -> str:
    return f"step {quoted(step.id)}: " if step.id else ""


class _Checker:
    """Walks the tree once and checks each step and the names it refers to."""

    def __init__(self, report: Report, references: ReferenceChecker) -> None:
        self._report, self._references = report, references
        self._seen: dict[str, Where] = {}

    def step(self, step: WorkflowStep, at: Where, scope: Scope) -> None:
        self._check_id(step.id, (*at, "id"))
        if step.when is not None:
            self._references.condition(_who(step), step.when, (*at, "when"), scope)
        self._check_references(step, at, scope)
        self._check_kind(step, at)
        self._check_rules(step, at, scope)
        if (undo := step.compensate) is not None:
            who, place = f"{_who(step)}compensate: ", (*at, "compensate")
            self._called(who, place, undo.tool, service=undo.service)
            for key, value in {"args": undo.args, "input": undo.input, "params": undo.params}.items():
                self._references.templates(who, value, (*place, key), scope.undoing(), secrets=True)
        for block in blocks(step):
            inside = scope.inside(step, block)
            for i, inner in enumerate(block.steps, block.first):
                self.step(inner, (*at, *block.key, i), inside)
        scope.finish(step)

    def _check_id(self, step_id: str, at: Where) -> None:
        if not step_id.strip():
            self._report.add("empty_id", at, "empty step id", "give the step a unique id")
        elif step_id in self._seen:
            hint = f"the first is in {self._report.line_of(self._seen[step_id])}"
            self._report.add("duplicate_id", at, f"duplicate step id: {quoted(step_id)}", hint)
        else:
            self._seen[step_id] = at
            check_name(self._report, at, step_id)

    def _check_references(self, step: WorkflowStep, at: Where, scope: Scope) -> None:
        """Check everything that the values of a step's own keys refer to."""
        who, kind = _who(step), KINDS[step.kind]
        for key, value in kind.values(step.body, "templates").items():
            self._references.templates(who, value, (*at, key), scope)
        for key, value in kind.values(step.body, "arguments").items():
            self._references.templates(who, value, (*at, key), scope, secrets=True)
        for key, value in kind.values(step.body, "paths").items():
            self._references.condition(who, value, (*at, key), scope, compares=kind.keys[key].shape != PATH)

    def _check_kind(self, step: WorkflowStep, at: Where) -> None:
        """Check the rules of a kind; what its keys refer to is checked for all kinds alike."""
        who = _who(step)
        match step.body:
            case ToolBody(tool):
                self._called(who, at, tool=tool)
            case RemoteBody(dcc, tool):
                self._called(who, at, tool=tool, dcc=dcc)
            case ServiceBody(service):
                self._called(who, at, service=service)
            case PollBody() as poll:
                self._poll(who, poll, at)
            case ForeachBody(as_=binding):
                self._binding(who, binding, (*at, "as"))
            case NestedBody(workflow):
                self._name(who, "workflow", workflow, (*at, "workflow"))
            case ApproveBody(form=form) if form is not None:
                check_schema(form, self._report, (*at, "form"), f"{who}form: ")
            case TimerBody(delay_ms, until):
                self._time(who, delay_ms, (*at, "delay_ms"))
                self._time(who, until, (*at, "until"))
            case WaitEventBody() as wait:
                self._wait(who, wait, at)
            case _:
                pass  # this kind has no rules of its own

    def _check_rules(self, step: WorkflowStep, at: Where, scope: Scope) -> None:
        """Check the retry policy and result handling of a call."""
        who, rule = _who(step), step.answer.result
        self._references.templates(who, step.policy.idempotency_key, (*at, "idempotency_key"), scope)
        if rule is not None and rule.select is not None:
            self._references.parsed_path(who, rule.select, (*at, "result", "select"))

    def _called(
        self, who: str, at: Where, tool: str | None = None, dcc: str | None = None, service: str | None = None
    ) -> None:
        if tool is not None:
            self._tool_name(who, tool, (*at, "tool"))
        if dcc is not None:
            self._name(who, "server", dcc, (*at, "dcc"), "/")
        if service is not None:
            self._name(who, "service", service, (*at, "service"), "/")

    def _poll(self, who: str, poll: PollBody, at: Where) -> None:
        self._called(who, at, poll.tool, poll.dcc, poll.service)
        self._references.parsed_path(who, poll.until, (*at, "until"))
        other, strays = (
            ("service", {"input": poll.input, "params": poll.params})
            if poll.service is None
            else ("tool", {"dcc": poll.dcc, "args": poll.args})
        )
        for key, value in strays.items():
            if value is not None:
                message = f"{who}{key} has no effect without {other}"
                self._report.add("exclusive_keys", (*at, key), message, "remove it", of_key=True)

    def _wait(self, who: str, wait: WaitEventBody, at: Where) -> None:
        for key, names in (("any", wait.any_), ("all", wait.all_)):
            if names == ():
                message = f"{who}{key} names no signal"
                near = [self._report.given.at((*at, "id"))]
                self._report.add("out_of_range", (*at, key), message, "name at least one signal", near=near)
            for i, name in enumerate(names or ()):
                self._signal(who, name, (*at, key, i))
        if wait.signal_key is not None:
            self._signal(who, wait.signal_key, (*at, "signal_key"))

    def _signal(self, who: str, name: str, at: Where) -> None:
        if not name.strip():
            near = self._report.given.at((*at[: -1 if isinstance(at[-1], str) else -2], "id"))
            message = f"{who}the name of a signal must not be empty"
            self._report.add("invalid_name", at, message, "name it", near=near)

    def _name(self, who: str, noun: str, name: str, where: Where, forbidden: str = "") -> None:
        """A name that is resolved elsewhere. It must be fixed, so that it is known before a run starts."""
        if not name.strip():
            message, near = (
                f"{who}the name of a {noun} must not be empty",
                self._report.given.at((*where[:-1], "id")),
            )
            self._report.add("invalid_name", where, message, "name it", near=near)
        elif "{{" in name or any(letter in name for letter in forbidden):
            hint = "it has no placeholders" if "{{" in name else "it is a name, not an address or a path"
            message = f"{who}{quoted(name)} cannot be the name of a {noun}"
            self._report.add("invalid_name", where, message, hint)
        check_name(self._report, where, name)

    def _tool_name(self, who: str, tool: str, at: Where) -> None:
        server, slash, name = tool.partition("/")
        if slash and _TOOL_NAME.fullmatch(name) and (server in remotes.now or self._report.is_stored):
            return
        if not _TOOL_NAME.fullmatch(tool):
            better = re.sub(r"[^A-Za-z0-9_-]+", "_", tool, flags=re.ASCII).strip("_")[:64]
            message = f"{who}invalid tool name {quoted(tool)}: use 1 to 64 letters, digits, _ and -"
            hint = f"for instance {better}" if better else "name a tool"
            self._report.add("invalid_tool_name", at, message, hint, near=better or UNKNOWN)

    def _binding(self, who: str, name: str, at: Where) -> None:
        if not _BINDING_NAME.match(name):
            message = f"{who}{quoted(name)} cannot be the name of an item"
            self._report.add(
                "invalid_name", at, message, "use letters, digits, _ and -, not starting with a digit"
            )
        elif name in ROOTS and name != "item":
            message = f"{who}{quoted(name)} is reserved"
            self._report.add("reserved_name", at, message, "choose another name", near=f"{name}_item")
        check_name(self._report, at, name)

    def _time(self, who: str, value: Any, at: Where) -> None:
        if isinstance(value, str) and "{{" not in value and not (at[-1] == "until" and _is_instant(value)):
            wanted = (
                "an instant such as 2026-01-31T09:00:00Z" if at[-1] == "until" else "a number of milliseconds"
            )
            message = f"{who}{at[-1]} must be {wanted} or a template, not {quoted(value)}"
            near = instant_of(value) if at[-1] == "until" else number_of(value, "delay_ms")
            self._report.add("wrong_type", at, message, f"write {_EXAMPLE_OF_TIME[str(at[-1])]}", near=near)


def _is_instant(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def note_oddities(spec: Definition, report: Report) -> None:
    """Warn about things that are valid but probably not intended."""
    _note_clashes(spec, report)
    for at, step in every_step(spec):
        if step.policy.on_no_worker != NO_POLICY.on_no_worker and getattr(step.body, "service", None) is None:
            message = f"{_who(step)}on_no_worker has no effect without service"
            report.note("without_effect", (*at, "on_no_worker"), message, "remove it")
        if step.policy.idempotency_key is not None:
            continue
        for key in _KEY_RULES:
            if getattr(step.policy, key) != getattr(NO_POLICY, key):
                message = f"{_who(step)}{key} has no effect without idempotency_key"
                report.note("without_effect", (*at, key), message, "add idempotency_key, or remove it")


def _note_clashes(spec: Definition, report: Report) -> None:
    """Warn where the same bare name is used for two things, and say which one it means."""
    inputs, ids = declared_inputs(spec.inputs), {step.id for _, step in every_step(spec)}
    for name in sorted(inputs.intersection(ROOTS)):
        message = f"the bare name {quoted(name)} does not mean this input"
        report.note("shadowed", ("inputs", name), message, f"use inputs.{name}")
    for at, step in every_step(spec):
        if step.id in ROOTS or step.id in inputs:
            message = f"the bare name {quoted(step.id)} does not mean this step"
            report.note("shadowed", (*at, "id"), message, f"use steps.{step.id}.output")
        if isinstance(step.body, ForeachBody) and (step.body.as_ in inputs or step.body.as_ in ids):
            message = f"inside this foreach the bare name {quoted(step.body.as_)} means its item"
            report.note("shadowed", (*at, "as"), message, "choose another name for the item")
