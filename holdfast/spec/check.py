"""Whether each name, path and template of a definition can be used, and what is probably not meant.

Knows which names may be written where. Must not know tools that exist, or what a run will hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from holdfast.spec.expr import ExprError, Template, parse_jsonpath, parse_template, refs_in
from holdfast.spec.inputs import check_inputs, declared_inputs, input_names
from holdfast.spec.policy import NAME_CHARS_MAX, SPEC_STEPS_MAX
from holdfast.spec.problems import Report, Where, did_you_mean, quoted
from holdfast.spec.read import Key
from holdfast.spec.scope import ROOTS, Scope
from holdfast.spec.steps import (
    BranchBody,
    Definition,
    ForeachBody,
    TimerBody,
    ToolBody,
    WorkflowStep,
    blocks,
    placed,
    walk,
)

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
_BINDING_NAME = re.compile(r"[^\W\d][\w-]*\Z")
_PATH_ROOTS: Final = ("inputs", "steps", "item")


def check(spec: Definition, report: Report) -> None:
    """Report every name, path and template that cannot be used."""
    if not spec.name.strip():
        report.add("empty_name", ("name",), "the name of a workflow must not be empty")
    _check_length(report, ("name",), spec.name)
    check_inputs(spec.inputs, report)
    if not spec.steps and not report.has_holes:
        report.add("no_steps", ("steps",), "workflow spec must declare at least one step")
    if sum(1 for _ in walk(spec.steps)) > SPEC_STEPS_MAX:
        report.add("too_many_steps", ("steps",), f"the workflow has more than {SPEC_STEPS_MAX:,} steps")
        return
    scope = Scope.of(spec)
    checker = _Checker(spec, report)
    for i, step in enumerate(spec.steps):
        checker.step(step, ("steps", i), scope)
    checker.templates("", spec.output, ("output",), scope)


def _check_length(report: Report, at: Where, name: str) -> None:
    if len(name) > NAME_CHARS_MAX:
        report.add("name_too_long", at, f"{quoted(name)} is longer than {NAME_CHARS_MAX} characters")


class _Checker:
    """Walks the tree once, looking at what each step says and at whom it names."""

    def __init__(self, spec: Definition, report: Report) -> None:
        self._report = report
        self._inputs = input_names(spec.inputs)
        self._seen: dict[str, Where] = {}

    def step(self, step: WorkflowStep, at: Where, scope: Scope) -> None:
        self._check_id(step.id, (*at, "id"))
        self._check_body(step, at, scope)
        for block in blocks(step):
            inside = scope.inside(step, block)
            for i, inner in enumerate(block.steps, block.first):
                self.step(inner, (*at, *block.key, i), inside)
        scope.finish(step)

    def _check_id(self, step_id: str, at: Where) -> None:
        if not step_id.strip():
            self._report.add("empty_id", at, "empty step id")
        elif step_id in self._seen:
            hint = f"the first is in {self._report.line_of(self._seen[step_id])}"
            self._report.add("duplicate_id", at, f"duplicate step id: {quoted(step_id)}", hint)
        else:
            self._seen[step_id] = at
            _check_length(self._report, at, step_id)

    def _check_body(self, step: WorkflowStep, at: Where, scope: Scope) -> None:
        who = f"step {quoted(step.id)}: " if step.id else ""
        match step.body:
            case ToolBody(tool, args):
                self._tool_name(who, tool, (*at, "tool"))
                self.templates(who, args, (*at, "args"), scope, secrets=True)
            case ForeachBody(items, binding):
                self._path(who, items, (*at, "items"), scope)
                self._binding(who, binding, (*at, "as"))
            case BranchBody(on):
                self._path(who, on, (*at, "on"), scope)
            case TimerBody(delay_ms, until):
                self._time(who, delay_ms, (*at, "delay_ms"), scope)
                self._time(who, until, (*at, "until"), scope)

    def _tool_name(self, who: str, tool: str, at: Where) -> None:
        if not _TOOL_NAME.match(tool):
            better = re.sub(r"[^A-Za-z0-9_-]+", "_", tool, flags=re.ASCII).strip("_")[:64]
            message = f"{who}invalid tool name {quoted(tool)}: it has 1 to 64 letters, digits, _ and -"
            self._report.add("invalid_tool_name", at, message, f"for instance {better}" if better else "")

    def _binding(self, who: str, name: str, at: Where) -> None:
        if not _BINDING_NAME.match(name):
            message = f"{who}{quoted(name)} cannot be the name of an item"
            self._report.add(
                "invalid_name", at, message, "it has letters, digits, _ and -, a digit not first"
            )
        elif name in ROOTS and name != "item":
            self._report.add(
                "reserved_name", at, f"{who}{quoted(name)} already has a meaning", "choose another"
            )
        _check_length(self._report, at, name)

    def _path(self, who: str, text: str, at: Where, scope: Scope) -> None:
        try:
            path = parse_jsonpath(text)
        except ExprError as error:
            message = f"{who}invalid JSONPath expression {quoted(text)}: {error}"
            self._report.add("invalid_jsonpath", at, message, error.hint)
            return
        for members in path.reads:
            if members and isinstance(members[0], str):
                self._reference(who, members[0], members[1:], at, scope, roots=_PATH_ROOTS)

    def templates(self, who: str, value: Any, at: Where, scope: Scope, *, secrets: bool = False) -> None:
        roots = ROOTS if secrets else ROOTS[:-1]
        for where, text in _texts(value, at):
            template = self._template(who, text, where)
            for ref in refs_in(template):
                self._reference(who, ref.root, ref.parts, where, scope, roots=roots)

    def _template(self, who: str, text: str, at: Where) -> Template:
        try:
            return parse_template(text)
        except ExprError as error:
            self._report.add("invalid_template", at, f"{who}{error}", error.hint)
            return ""

    def _time(self, who: str, value: Any, at: Where, scope: Scope) -> None:
        self.templates(who, value, at, scope)
        if isinstance(value, str) and "{{" not in value and not (at[-1] == "until" and _is_instant(value)):
            wanted = (
                "an instant such as 2026-01-31T09:00:00Z" if at[-1] == "until" else "a number of milliseconds"
            )
            self._report.add(
                "wrong_type", at, f"{who}{at[-1]} must be {wanted} or a template, not {quoted(value)}"
            )

    def _reference(
        self, who: str, root: str, parts: tuple[Key, ...], at: Where, scope: Scope, *, roots: tuple[str, ...]
    ) -> None:
        if self._report.has_holes or self._report.is_full:
            return
        if root == "secrets" and root not in roots:
            hint = "secrets can be used in the arguments of call steps only"
            self._report.add("misplaced_secret", at, f"{who}a secret cannot be used here", hint)
        elif root == "inputs":
            self._input(who, parts, at)
        elif root == "steps":
            self._step(who, parts, at, scope)
        elif root == "env" and root in roots:
            self._env(who, parts, at)
        elif root not in roots or root == "item":
            self._bare(who, root, at, scope, roots)

    def _input(self, who: str, parts: tuple[Key, ...], at: Where) -> None:
        if parts and isinstance(parts[0], str) and self._inputs is not None and parts[0] not in self._inputs:
            message = f"{who}references unknown input {quoted(parts[0])}"
            self._report.add("unknown_input", at, message, did_you_mean(parts[0], self._inputs))

    def _step(self, who: str, parts: tuple[Key, ...], at: Where, scope: Scope) -> None:
        if not parts or not isinstance(parts[0], str) or scope.step(parts[0]):
            return
        if not self._out_of_scope(who, parts[0], at, scope):
            message = f"{who}references unknown step {quoted(parts[0])}"
            self._report.add("unknown_step", at, message, did_you_mean(parts[0], scope.step_ids()))

    def _env(self, who: str, parts: tuple[Key, ...], at: Where) -> None:
        name = ".".join(("env", *map(str, parts[:1])))
        hint = "env names must be allowed by the setting template_env"
        self._report.add("unknown_root", at, f"{who}references unknown identifier {quoted(name)}", hint)

    def _bare(self, who: str, name: str, at: Where, scope: Scope, roots: tuple[str, ...]) -> None:
        if scope.lookup(name) or self._out_of_scope(who, name, at, scope):
            return
        hint = did_you_mean(name, {*scope.names(), *roots} - {"env"})  # which would be refused in turn
        if name == "item":
            hint = "it exists inside a foreach only"
        self._report.add("unknown_root", at, f"{who}references unknown identifier {quoted(name)}", hint)

    def _out_of_scope(self, who: str, step_id: str, at: Where, scope: Scope) -> bool:
        reason = scope.hidden(step_id)
        if reason:
            message = f"{who}step {quoted(step_id)} cannot be seen from here: {reason}"
            self._report.add("out_of_scope", at, message)
        return reason is not None


def _texts(value: Any, at: Where) -> Iterator[tuple[Where, str]]:
    """The texts with braces in a piece of data. Keys are left alone: they are not rendered."""
    if isinstance(value, str):
        if "{{" in value:
            yield at, value
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from _texts(member, (*at, key))
    elif isinstance(value, list):
        for i, member in enumerate(value):
            yield from _texts(member, (*at, i))


def _is_instant(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def note_clashes(spec: Definition, report: Report) -> None:
    """A bare name stands for one thing only; whoever gave it to two should know for which."""
    inputs = declared_inputs(spec.inputs)
    for name in sorted(inputs.intersection(ROOTS)):
        message = f"the bare name {quoted(name)} does not mean this input"
        report.note("shadowed", ("inputs", name), message, f"use inputs.{name}")
    for at, step in placed(spec.steps, ("steps",)):
        if step.id in ROOTS or step.id in inputs:
            message = f"the bare name {quoted(step.id)} does not mean this step"
            report.note("shadowed", (*at, "id"), message, f"use steps.{step.id}.output")
