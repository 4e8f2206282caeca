"""Checks that each name, path and template of a definition is valid, and warns about what is probably not intended.

Knows which names may be written where. Must not know which tools exist, or the values of a run.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, Final, assert_never

from holdfast import limits
from holdfast.spec import foreign, remotes
from holdfast.spec.condition import OF_STEPS, comparison_of, flow_text, paths_in
from holdfast.spec.conversions import UNKNOWN, number_of
from holdfast.spec.expr import ExprError, JsonPath, Template, parse_jsonpath, parse_template, refs_in
from holdfast.spec.inputs import check_inputs, declared_inputs, input_names
from holdfast.spec.jsonschema import check_schema
from holdfast.spec.moments import instant_of
from holdfast.spec.names import check_name
from holdfast.spec.patch import NO_PATCH, Patch, move, put, replace
from holdfast.spec.policy import NO_POLICY
from holdfast.spec.problems import Report, Where, did_you_mean, nearest, one_of, quoted
from holdfast.spec.read import Key
from holdfast.spec.repairs import TEXT_CHARS_MAX, in_text
from holdfast.spec.scope import ROOTS, Scope
from holdfast.spec.step_blanks import default_name
from holdfast.spec.step_keys import CALLBACK_URL, TOOL_NAME
from holdfast.spec.steps import (
    ApproveBody,
    BranchBody,
    Condition,
    Definition,
    FinalCallback,
    ForeachBody,
    NestedBody,
    ParallelBody,
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
_PATH_ROOTS: Final = ("inputs", "steps", "item")


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
    scope = Scope.of(spec)
    checker = _Checker(spec, report, template_env)
    for i, step in enumerate(spec.steps):
        checker.step(step, ("steps", i), scope)
    checker.templates("", spec.output, ("output",), scope)
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

    def __init__(self, spec: Definition, report: Report, template_env: Collection[str] | None) -> None:
        self._report = report
        self._env_names = template_env
        self._inputs = input_names(spec.inputs)
        self._seen: dict[str, Where] = {}

    def step(self, step: WorkflowStep, at: Where, scope: Scope) -> None:
        self._check_id(step.id, (*at, "id"))
        if step.when is not None:
            self._condition(_who(step), step.when, (*at, "when"), scope)
        self._check_body(step, at, scope)
        self._check_rules(step, at, scope)
        if (undo := step.compensate) is not None:
            names = {"tool": undo.tool, "service": undo.service}
            given = {"args": undo.args, "input": undo.input, "params": undo.params}
            who = f"{_who(step)}compensate: "
            self._call(who, (*at, "compensate"), scope.undoing(), **names, **given)
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

    def _check_body(self, step: WorkflowStep, at: Where, scope: Scope) -> None:
        who = _who(step)
        match step.body:
            case ToolBody(tool, args):
                self._call(who, at, scope, tool=tool, args=args)
            case RemoteBody(dcc, tool, args):
                self._call(who, at, scope, tool=tool, dcc=dcc, args=args)
            case ServiceBody(service, given, params):
                self._call(who, at, scope, service=service, input=given, params=params)
            case PollBody() as poll:
                self._poll(who, poll, at, scope)
            case ForeachBody(items, binding):
                self._path(who, items, (*at, "items"), scope)
                self._binding(who, binding, (*at, "as"))
            case BranchBody(on):
                self._condition(who, on, (*at, "on"), scope)
            case NestedBody(workflow, inputs):
                self._name(who, "workflow", workflow, (*at, "workflow"))
                self.templates(who, inputs, (*at, "inputs"), scope)
            case ApproveBody(prompt=prompt, form=form):
                self.templates(who, prompt, (*at, "prompt"), scope)
                self._form(who, form, (*at, "form"))
            case TimerBody(delay_ms, until):
                self._time(who, delay_ms, (*at, "delay_ms"), scope)
                self._time(who, until, (*at, "until"), scope)
            case WaitEventBody() as wait:
                self._wait(who, wait, at, scope)
            case ParallelBody():
                pass  # nothing but steps, which are checked by themselves
            case _:
                assert_never(step.body)

    def _form(self, who: str, form: Any, at: Where) -> None:
        if form is not None:
            check_schema(form, self._report, at, f"{who}form: ")

    def _check_rules(self, step: WorkflowStep, at: Where, scope: Scope) -> None:
        """Check the retry policy and result handling of a call."""
        who, rule = _who(step), step.answer.result
        self.templates(who, step.policy.idempotency_key, (*at, "idempotency_key"), scope)
        if rule is not None and rule.select is not None:
            self._parsed_path(who, rule.select, (*at, "result", "select"))

    def _call(
        self,
        who: str,
        at: Where,
        scope: Scope,
        tool: str | None = None,
        dcc: str | None = None,
        service: str | None = None,
        **given: Any,
    ) -> None:
        """Check the names and arguments of a call: the only place where secrets are allowed."""
        if tool is not None:
            self._tool_name(who, tool, (*at, "tool"))
        if dcc is not None:
            self._name(who, "server", dcc, (*at, "dcc"), "/")
        if service is not None:
            self._name(who, "service", service, (*at, "service"), "/")
        for key, value in given.items():
            self.templates(who, value, (*at, key), scope, secrets=True)

    def _poll(self, who: str, poll: PollBody, at: Where, scope: Scope) -> None:
        names = {"tool": poll.tool, "dcc": poll.dcc, "service": poll.service}
        given = {"args": poll.args, "input": poll.input, "params": poll.params}
        self._call(who, at, scope, **names, **given)
        self._parsed_path(who, poll.until, (*at, "until"))
        strays = ("input", "params") if poll.service is None else ("dcc", "args")
        for key in strays:
            if given.get(key, names.get(key)) is not None:
                other = "service" if poll.service is None else "tool"
                message = f"{who}{key} has no effect without {other}"
                self._report.add("exclusive_keys", (*at, key), message, "remove it", of_key=True)

    def _wait(self, who: str, wait: WaitEventBody, at: Where, scope: Scope) -> None:
        for key, names in (("any", wait.any_), ("all", wait.all_)):
            if names == ():
                message = f"{who}{key} names no signal"
                near = [self._report.given.at((*at, "id"))]
                self._report.add("out_of_range", (*at, key), message, "name at least one signal", near=near)
            for i, name in enumerate(names or ()):
                self._signal(who, name, (*at, key, i), scope)
        if wait.signal_key is not None:
            self._signal(who, wait.signal_key, (*at, "signal_key"), scope)
        self.templates(who, wait.correlation, (*at, "correlation"), scope)

    def _signal(self, who: str, name: str, at: Where, scope: Scope) -> None:
        if not name.strip():
            near = self._report.given.at((*at[: -1 if isinstance(at[-1], str) else -2], "id"))
            message = f"{who}the name of a signal must not be empty"
            self._report.add("invalid_name", at, message, "name it", near=near)
        self.templates(who, name, at, scope)

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

    def _condition(self, who: str, condition: Condition, at: Where, scope: Scope) -> None:
        if isinstance(condition, str):
            return self._path(who, condition, at, scope, meant=comparison_of(condition, OF_STEPS))
        for where, text in paths_in(condition, at):
            self._path(who, text, where, scope)

    def _path(self, who: str, text: str, at: Where, scope: Scope, meant: Any = UNKNOWN) -> None:
        path = self._parsed_path(who, text, at, meant)
        for members in path.reads if path else ():
            if members and isinstance(members[0], str):
                self._reference(who, members[0], members[1:], at, scope, roots=_PATH_ROOTS)

    def _parsed_path(self, who: str, text: str, at: Where, meant: Any = UNKNOWN) -> JsonPath | None:
        try:
            return parse_jsonpath(text)
        except ExprError as error:
            message = f"{who}invalid JSONPath expression {quoted(text)}: {error}"
            hint = error.hint if meant is UNKNOWN else f"write {flow_text(meant)}"
            self._report.add("invalid_jsonpath", at, message, hint, near=meant)
            return None

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
            message = f"{who}{at[-1]} must be {wanted} or a template, not {quoted(value)}"
            near = instant_of(value) if at[-1] == "until" else number_of(value, "delay_ms")
            self._report.add("wrong_type", at, message, f"write {_EXAMPLE_OF_TIME[str(at[-1])]}", near=near)

    def _reference(
        self, who: str, root: str, parts: tuple[Key, ...], at: Where, scope: Scope, *, roots: tuple[str, ...]
    ) -> None:
        if self._report.is_full:
            return
        if root == "secrets" and root not in roots:
            hint = "secrets can be used in the arguments of call steps only"
            self._report.add("misplaced_secret", at, f"{who}a secret cannot be used here", hint)
        elif root == "secrets":
            self._secret(who, parts, at)
        elif root == "inputs":
            self._input(who, parts, at)
        elif root == "steps":
            self._step(who, parts, at, scope)
        elif root == "env" and root in roots:
            self._env(who, parts, at)
        elif root not in roots or root == "item":
            self._bare(who, root, at, scope, roots)

    def _secret(self, who: str, parts: tuple[Key, ...], at: Where) -> None:
        if len(parts) != 1 or not isinstance(parts[0], str):
            message = f"{who}a secret's name is a single word"
            old, new = _dotted("secrets", parts), _dotted("secrets", parts[:1] or ("NAME",))
            hint = "write {{ secrets.NAME }}"
            self._report.add("invalid_template", at, message, hint, patch=lambda: self._renamed(at, old, new))

    def _may_be_declared(self, name: str) -> bool:
        """Whether a name stands in a part of the text that has the wrong shape, and so may not be unknown."""
        return name in self._report.unread

    def _input(self, who: str, parts: tuple[Key, ...], at: Where) -> None:
        if not parts or not isinstance(parts[0], str) or self._may_be_declared(parts[0]):
            return
        if self._inputs is not None and parts[0] not in self._inputs:
            message = f"{who}references unknown input {quoted(parts[0])}"
            near = nearest(parts[0], self._inputs)
            hint = f"did you mean {near}?" if near else f"the declared inputs are {one_of(self._inputs)}"
            patch = (
                self._renamed(at, f"inputs.{parts[0]}", f"inputs.{near}")
                if near
                else self._declared(parts[0])
            )
            self._report.add("unknown_input", at, message, hint, patch=patch)

    def _step(self, who: str, parts: tuple[Key, ...], at: Where, scope: Scope) -> None:
        if not parts or not isinstance(parts[0], str) or scope.step(parts[0]):
            return
        if self._may_be_declared(parts[0]):
            return
        if not self._out_of_scope(who, parts[0], at, scope):
            message = f"{who}references unknown step {quoted(parts[0])}"
            seen = scope.step_ids()
            near = nearest(parts[0], seen)
            hint = (
                f"did you mean {near}?"
                if near
                else (
                    f"the steps visible here are {one_of(seen)}" if seen else "no step runs before this one"
                )
            )
            meant = near or (next(iter(seen)) if len(seen) == 1 else None)
            patch = self._renamed(at, f"steps.{parts[0]}", f"steps.{meant}") if meant else NO_PATCH
            self._report.add("unknown_step", at, message, hint, patch=patch)

    def _env(self, who: str, parts: tuple[Key, ...], at: Where) -> None:
        known = self._env_names
        if known is None or (parts and parts[0] in known):
            return
        name = ".".join(("env", *map(str, parts[:1])))
        near = nearest(str(parts[0]), known) if parts else None
        hint = f"did you mean {near}?" if near else "env names must be allowed by the setting template_env"
        patch = self._renamed(at, name, f"env.{near}" if near else f"inputs.{_last(parts)}")
        message = f"{who}references unknown identifier {quoted(name)}"
        self._report.add("unknown_root", at, message, hint, patch=patch)

    def _bare(self, who: str, name: str, at: Where, scope: Scope, roots: tuple[str, ...]) -> None:
        if scope.lookup(name) or self._may_be_declared(name) or self._out_of_scope(who, name, at, scope):
            return
        names = {*scope.names(), *roots} - {"env"}  # which would be refused in turn
        if name == "item":
            hint = "it exists only inside a foreach"
        else:
            hint = did_you_mean(name, names) or f"the names known here are {one_of(names - {'item'})}"
        message = f"{who}references unknown identifier {quoted(name)}"
        self._report.add("unknown_root", at, message, hint, patch=lambda: self._known_root(name, at, names))

    def _known_root(self, name: str, at: Where, names: set[str]) -> Patch:
        """The name that another one nearly is; else it must be meant as an input."""
        near = foreign.root_for(name, names) or nearest(name, names - {"item"})
        if near is None and self._inputs is not None:
            return self._declared(name)
        return self._renamed(at, name, near or f"inputs.{name}")

    def _renamed(self, at: Where, old: str, new: str) -> Patch:
        """The text at a place with another name in its references."""
        text = self._report.given.at(at)
        if (
            not isinstance(text, str)
            or len(text) > TEXT_CHARS_MAX
            or (better := in_text(text, old, new)) == text
        ):
            return NO_PATCH
        return replace(at, better)

    def _declared(self, name: str) -> Patch:
        """The declaration of an input that is used."""
        declared = self._report.given.at(("inputs",))
        is_schema = isinstance(declared, dict) and declared_inputs({name: {}} | declared) != {name, *declared}
        return put(("inputs", "properties", name) if is_schema else ("inputs", name), {})

    def _out_of_scope(self, who: str, step_id: str, at: Where, scope: Scope) -> bool:
        reason = scope.hidden(step_id)
        if reason:
            message = f"{who}step {quoted(step_id)} is not visible here: {reason}"
            hint = "name a step that has finished by then"
            self._report.add(
                "out_of_scope", at, message, hint, patch=lambda: self._in_scope(step_id, at, scope)
            )
        return reason is not None

    def _in_scope(self, step_id: str, at: Where, scope: Scope) -> Patch:
        """After a foreach the outputs of its steps are those of the foreach; a step that comes later comes before."""
        loop = scope.loop_of(step_id)
        if loop is not None:
            text = self._report.given.at(at)
            old = re.escape(f"steps.{step_id}")
            better = re.sub(
                rf"{old}(?:\.[\w-]+)*", f"steps.{loop}.output.iterations", str(text)[:TEXT_CHARS_MAX]
            )
            return replace(at, better) if better != text else NO_PATCH
        steps, here = self._report.given.at(("steps",)), at[1] if len(at) > 1 else None
        for i, step in enumerate(steps if isinstance(steps, list) else ()):
            if isinstance(step, dict) and step.get("id") == step_id and isinstance(here, int) and i > here:
                return move(("steps", i), ("steps", here))
        return NO_PATCH


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


def _dotted(root: str, parts: tuple[Key, ...]) -> str:
    return ".".join([root, *map(str, parts)])


def _last(parts: tuple[Key, ...]) -> str:
    return str(parts[-1]).lower() if parts else "env"


def _is_instant(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def note_oddities(spec: Definition, report: Report) -> None:
    """Warn about what is valid but probably not intended."""
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
