"""Checks that the names in templates and JSONPaths are known where they are written.

Knows the roots of expressions, and the change that corrects an unknown name. Must not know the kinds of steps.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any, Final

from holdfast.nearest import did_you_mean, nearest
from holdfast.spec import foreign
from holdfast.spec.condition import OF_STEPS, comparison_of, flow_text, paths_in
from holdfast.spec.conversions import UNKNOWN
from holdfast.spec.document import Key
from holdfast.spec.expr import ExprError, JsonPath, Template, parse_jsonpath, parse_template, refs_in
from holdfast.spec.inputs import declaration, input_names
from holdfast.spec.patch import NO_PATCH, Patch, move, replace
from holdfast.spec.problems import Report, Where, one_of, quoted
from holdfast.spec.repairs import TEXT_CHARS_MAX, in_text
from holdfast.spec.scope import ROOTS, Scope
from holdfast.spec.steps import Condition, Definition

_PATH_ROOTS: Final = ("inputs", "steps", "item")


class ReferenceChecker:
    """Checks the expressions of one definition. `who` begins each message: the step that the expression belongs to."""

    def __init__(self, spec: Definition, report: Report, template_env: Collection[str] | None) -> None:
        self._report = report
        self._env_names = template_env
        self._inputs = input_names(spec.inputs)

    def condition(
        self, who: str, condition: Condition, at: Where, scope: Scope, *, compares: bool = True
    ) -> None:
        """Check a path, or where the key allows it (`compares`) a comparison."""
        if isinstance(condition, str):
            meant = comparison_of(condition, OF_STEPS) if compares else UNKNOWN
            return self.path(who, condition, at, scope, meant)
        for where, text in paths_in(condition, at):
            self.path(who, text, where, scope)

    def path(self, who: str, text: str, at: Where, scope: Scope, meant: Any = UNKNOWN) -> None:
        path = self.parsed_path(who, text, at, meant)
        for members in path.reads if path else ():
            if members and isinstance(members[0], str):
                self._reference(who, members[0], members[1:], at, scope, roots=_PATH_ROOTS)

    def parsed_path(self, who: str, text: str, at: Where, meant: Any = UNKNOWN) -> JsonPath | None:
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
        names = {*scope.names(), *roots} - {"env"}  # which would be refused as well
        if name == "item":
            hint = "it exists only inside a foreach"
        else:
            hint = did_you_mean(name, names) or f"the names known here are {one_of(names - {'item'})}"
        message = f"{who}references unknown identifier {quoted(name)}"
        self._report.add("unknown_root", at, message, hint, patch=lambda: self._known_root(name, at, names))

    def _known_root(self, name: str, at: Where, names: set[str]) -> Patch:
        """The known root that a misspelt name resembles; any other name is taken for an input."""
        near = foreign.root_for(name, names) or nearest(name, names - {"item"})
        if near is None and self._inputs is not None:
            return self._declared(name)
        return self._renamed(at, name, near or f"inputs.{name}")

    def _renamed(self, at: Where, old: str, new: str) -> Patch:
        """The text at a place, with a root renamed in its references."""
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
        return declaration(self._report.given.at(("inputs",)), name, {})

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
    elif isinstance(value, list | tuple):
        for i, member in enumerate(value):
            yield from _texts(member, (*at, i))


def _dotted(root: str, parts: tuple[Key, ...]) -> str:
    return ".".join([root, *map(str, parts)])


def _last(parts: tuple[Key, ...]) -> str:
    return str(parts[-1]).lower() if parts else "env"
